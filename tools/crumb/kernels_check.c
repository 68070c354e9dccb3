/* Kernels of any backend compared with the scalar reference, on data that the host makes. */
#include "tools/crumb/kernels.h"

#include "cpu/trial.h"
#include "host/base/checked.h"
#include "host/base/half.h"
#include "host/base/memory.h"

#include <stdlib.h>
#include <string.h>

static bool same_bits(float a, float b) {
    uint32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y;
}

static double squared_error(const float *y, const float *expected, uint64_t n) {
    double error = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double difference = (double)y[i] - (double)expected[i];
        error += difference * difference;
    }
    return error;
}

/* For kernels that state an error: as a part of the result's power. */
static void compare_power(double max_nmse, crumb_trial *t, const float *y, const float *expected, kernels_check *out) {
    const double power = crumb_trial_power(t, expected), error = squared_error(y, expected, out->n_values);
    out->nmse = power > 0 ? error / power : error;
    out->ok = out->nmse <= max_nmse;
    if (!out->ok)
        snprintf(out->where, sizeof out->where, "the error is %g of the result, above %g", out->nmse, max_nmse);
}

static void compare(double max_nmse, crumb_trial *t, const float *y, const float *expected, kernels_check *out) {
    const crumb_trial_params *p = &t->params;
    *out = (kernels_check){.ok = true, .n_values = (uint64_t)p->n * p->m};
    if (max_nmse > 0) {
        compare_power(max_nmse, t, y, expected, out);
        return;
    }
    for (uint64_t i = 0; i < out->n_values && out->ok; i++) {
        out->ok = same_bits(y[i], expected[i]);
        if (!out->ok)
            snprintf(out->where, sizeof out->where, "y[%u][%u] is %a, not %a", (unsigned)(i / p->m),
                     (unsigned)(i % p->m), (double)y[i], (double)expected[i]);
    }
}

enum { SUPER_GROUP = 256 }; /* as K-quants have it */

bool kernels_check_takes(const kernels_choice *c, size_t kernel, const crumb_kernel_problem *p, unsigned scales) {
    if (scales >= KERNELS_SCALES_WITH_MINS && p->format->codebook) return false;
    if (scales % KERNELS_SCALES_WITH_MINS != KERNELS_SCALES_TWO_LEVELS) return true;
    return kernels_info(c, kernel).rank >= 0 && p->group && p->group < SUPER_GROUP && SUPER_GROUP % p->group == 0 &&
           crumb_round_up(p->k, CRUMB_TILE_K) % SUPER_GROUP == 0;
}

unsigned kernels_check_scales(const kernels_choice *c, size_t kernel, const crumb_kernel_problem *p, uint64_t number) {
    unsigned fit[KERNELS_N_SCALES], n = 0;
    for (unsigned scales = 0; scales < KERNELS_N_SCALES; scales++)
        if (kernels_check_takes(c, kernel, p, scales)) fit[n++] = scales;
    return fit[number % n]; /* f16 always fits */
}

crumb_status kernels_sample_create(const kernels_sample_params *sample, kernels_sample *out, crumb_error *err) {
    crumb_trial_params params = crumb_problem_trial(sample->problem);
    const bool bounded = params.act != CRUMB_ACT_F32; /* sums of floats have no bound to reach */
    uint64_t seed = sample->seed;
    void *memory;
    *out = (kernels_sample){.n_values = (uint64_t)params.n * params.m};
    if (sample->extreme && bounded) params.fill = seed % 2 ? CRUMB_FILL_POSITIVE : CRUMB_FILL_NEGATIVE;
    params.normal = bounded && sample->quantized;
    params.has_min = sample->scales >= KERNELS_SCALES_WITH_MINS;
    params.scales_f32 = sample->scales % KERNELS_SCALES_WITH_MINS == KERNELS_SCALES_F32;
    params.super_group = sample->scales % KERNELS_SCALES_WITH_MINS == KERNELS_SCALES_TWO_LEVELS ? SUPER_GROUP : 0;
    params.bf16 = sample->bf16;
    CRUMB_TRY(crumb_trial_create(&params, &seed, &out->trial, err));
    CRUMB_TRY(crumb_calloc(2 * out->n_values, sizeof(float), "results", &memory, err));
    out->expected = memory;
    const crumb_linear_args args = crumb_trial_args(&out->trial, out->expected, params.m);
    if (params.act == CRUMB_ACT_F32)
        crumb_linear_f32__ref(&args);
    else
        crumb_linear_i8__ref(&args);
    for (uint64_t i = 0; params.bf16 && i < out->n_values; i++)
        out->expected[i] = crumb_bf16_to_f32(crumb_f32_to_bf16(out->expected[i]));
    return CRUMB_OK;
}

void kernels_sample_destroy(kernels_sample *s) {
    free(s->expected);
    crumb_trial_destroy(&s->trial);
}

crumb_status kernels_check_sample(const kernels_choice *c, size_t kernel, const char *knobs, kernels_sample *s,
                                  kernels_check *out, crumb_error *err) {
    float *y = s->expected + s->n_values;
    memset(y, 0xff, s->n_values * sizeof *y); /* of another kernel, they could be right */
    CRUMB_TRY(c->suite->run(c->machine, kernel, knobs, &s->trial, y, err));
    compare(kernels_info(c, kernel).max_nmse, &s->trial, y, s->expected, out);
    return CRUMB_OK;
}

crumb_status kernels_check_run(const kernels_choice *c, size_t kernel, const char *knobs,
                               const crumb_kernel_problem *problem, unsigned scales, uint64_t seed, bool extreme,
                               kernels_check *out, crumb_error *err) {
    const crumb_kernel_info info = kernels_info(c, kernel);
    const kernels_sample_params params = {.problem = problem,
                                          .scales = scales,
                                          .seed = seed,
                                          .extreme = extreme,
                                          .quantized = *knobs || info.quantizes,
                                          .bf16 = info.bf16};
    kernels_sample sample;
    crumb_status status = kernels_sample_create(&params, &sample, err);
    if (status == CRUMB_OK) status = kernels_check_sample(c, kernel, knobs, &sample, out, err);
    kernels_sample_destroy(&sample);
    return status;
}

/* Squared error of y [n][m] as a part of what the weights before they were rounded give, and the activations as floats.
 */
static double error_of_weights(const crumb_trial *t, const float *y) {
    const crumb_trial_params *p = &t->params;
    double power = 0, error = 0;
    for (uint32_t n = 0; n < p->n; n++)
        for (uint32_t m = 0; m < p->m; m++) {
            const float *x = t->xf + (size_t)n * p->k, *w = t->wf + (size_t)m * p->k;
            double exact = 0;
            for (uint32_t k = 0; k < p->k; k++) exact += (double)w[k] * (double)x[k];
            const double difference = (double)y[(size_t)n * p->m + m] - exact;
            error += difference * difference;
            power += exact * exact;
        }
    return power > 0 ? error / power : error;
}

/* Weights and activations of a normal distribution. The weights are rounded to codes with scales, and the activations
 * quantized as a plan does it where the kernel wants them so. */
crumb_status kernels_check_error(const kernels_choice *c, size_t kernel, const crumb_kernel_problem *problem,
                                 uint64_t seed, kernels_error *out, crumb_error *err) {
    crumb_trial_params params = crumb_problem_trial(problem);
    params.normal = params.rounded = true;
    const uint64_t n_values = (uint64_t)params.n * params.m;
    crumb_trial t;
    void *memory = NULL;
    crumb_status status = crumb_trial_create(&params, &seed, &t, err);
    if (status == CRUMB_OK) status = crumb_calloc(2 * n_values, sizeof(float), "results", &memory, err);
    if (status == CRUMB_OK) {
        float *y = memory, *exact = y + n_values;
        const crumb_linear_args args = crumb_trial_args(&t, exact, params.m);
        crumb_linear_f32__ref(&args);
        status = c->suite->run(c->machine, kernel, "", &t, y, err);
        const double power = crumb_trial_power(&t, exact), error = squared_error(y, exact, n_values);
        *out = (kernels_error){.of_codes = power > 0 ? error / power : error, .of_weights = error_of_weights(&t, y)};
    }
    free(memory);
    crumb_trial_destroy(&t);
    return status;
}
