/* crumb tune: candidates are compared with the reference before they are timed, as they are timed. */
#include "tools/crumb/tune.h"

enum {
    LEAST_M =
        48, /* outputs that a check takes at least and at most, and for how many products: the reference is slow */
    MOST_M = 512,
    N_PRODUCTS = 12 << 20
};

void tune_samples_init(const crumb_kernel_problem *problem, bool has_threads, tune_samples *out) {
    *out = (tune_samples){.problem = *problem};
    crumb_kernel_problem *p = &out->problem;
    if (p->n > TUNE_CHECK_N) p->n = TUNE_CHECK_N;
    uint32_t m = (uint32_t)(N_PRODUCTS / ((uint64_t)p->k * p->n));
    if (m > MOST_M) m = MOST_M;
    if (m < LEAST_M || !has_threads) m = LEAST_M;
    if (p->m > m) p->m = m;
}

void tune_samples_destroy(tune_samples *s) {
    for (unsigned scales = 0; scales < KERNELS_N_SCALES; scales++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            if (s->made[scales][bf16]) kernels_sample_destroy(&s->of[scales][bf16]);
}

crumb_status tune_check(const kernels_choice *choice, tune_samples *s, size_t kernel, const char *knobs,
                        uint64_t number, kernels_check *out, crumb_error *err) {
    const bool bf16 = kernels_info(choice, kernel).bf16;
    const unsigned scales = kernels_check_scales(choice, kernel, &s->problem, number);
    kernels_sample *sample = &s->of[scales][bf16];
    if (!s->made[scales][bf16]) {
        const kernels_sample_params params = {
            .problem = &s->problem, .scales = scales, .seed = number, .quantized = true, .bf16 = bf16};
        s->made[scales][bf16] = true; /* also what failed halfway is to be destroyed */
        CRUMB_TRY(kernels_sample_create(&params, sample, err));
    }
    return kernels_check_sample(choice, kernel, knobs, sample, out, err);
}
