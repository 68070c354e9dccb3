/* What the kernels make of their knobs (crumb_kernel_suite.setting_effect): settings that come to the same are told so,
 * others are not, and of each kernel so many are left that tuning is worth its time. */
#include "cpu/suite.h"

#include "cpu/caches.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const crumb_kernel_suite *const suite = &crumb_kernel_suite_cpu;
static crumb_kernel_machine *machine;

static int open_machine(void **state) {
    (void)state;
    return suite->machine_create(&(crumb_kernel_machine_params){.n_threads = 2}, &machine, NULL) != CRUMB_OK;
}

static int close_machine(void **state) {
    (void)state;
    suite->machine_destroy(machine);
    return 0;
}

static size_t kernel_named(const char *name) {
    size_t kernel = 0;
    while (kernel < suite->n_kernels() && strcmp(suite->info(NULL, kernel).name, name) != 0) kernel++;
    assert_true(kernel < suite->n_kernels());
    return kernel;
}

/* Results that every piece must have written, whichever thread had it. */
static void every_share_on_any_threads_computes_the_same(void **state) {
    (void)state;
    static const struct {
        const char *kernel;
        uint32_t n;
    } cases[] = {{"gemv_u2_i8__avx2", 1}, {"gemm_u2_i8__avx2", 40}};
    enum { M = 1000, K = 1024, MOST_N = 40 };
    static float standard[M * MOST_N], y[M * MOST_N];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t kernel = kernel_named(cases[i].kernel), n_bytes = sizeof *y * M * cases[i].n;
        const crumb_kernel_problem p = {
            .format = crumb_kernel_format_find("2"), .m = M, .k = K, .n = cases[i].n, .act = CRUMB_ACT_ROW};
        const crumb_trial_params params = crumb_problem_trial(&p);
        crumb_trial trial;
        uint64_t seed = 1;
        if (!suite->info(machine, kernel).available) skip();
        assert_int_equal(crumb_trial_create(&params, &seed, &trial, NULL), CRUMB_OK);
        assert_int_equal(suite->run(machine, kernel, "threads=1", &trial, standard, NULL), CRUMB_OK);
        for (int share = 0; share <= 4; share++)
            for (int threads = 0; threads <= 2; threads++) {
                char knobs[CRUMB_KNOBS_BYTES];
                snprintf(knobs, sizeof knobs, "share=%d threads=%d", share, threads);
                memset(y, 0xff, n_bytes);
                assert_int_equal(suite->run(machine, kernel, knobs, &trial, y, NULL), CRUMB_OK);
                if (memcmp(y, standard, n_bytes) != 0) fail_msg("%s, %s", cases[i].kernel, knobs);
            }
        crumb_trial_destroy(&trial);
    }
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

static size_t count_programs(size_t kernel, const crumb_kernel_problem *problem) {
    enum { MOST = 16384 };
    static char effects[MOST][CRUMB_KNOBS_BYTES];
    const size_t n_settings = suite->n_settings(machine, kernel);
    size_t n = 1;
    assert_in_range(n_settings, 1, MOST);
    for (size_t i = 0; i < n_settings; i++) {
        char knobs[CRUMB_KNOBS_BYTES];
        suite->setting(machine, kernel, i, knobs);
        suite->setting_effect(machine, kernel, knobs, problem, effects[i]);
    }
    qsort(effects, n_settings, sizeof *effects, by_text);
    for (size_t i = 1; i < n_settings; i++) n += strcmp(effects[i], effects[i - 1]) != 0;
    return n;
}

static void every_kernel_has_a_hundred_programs(void **state) {
    (void)state;
    static const uint32_t groups[] = {0, 16, 32, 128, 256};
    size_t n_counted = 0;
    for (size_t kernel = 0; kernel < suite->n_kernels(); kernel++) {
        const crumb_kernel_info info = suite->info(machine, kernel);
        if (info.in_plans || !info.eligible || strcmp(info.target, "scalar") == 0) continue;
        for (size_t f = 0; f < crumb_n_kernel_formats; f++)
            for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
                for (int by_group = 0; by_group < 2; by_group++) {
                    const crumb_kernel_problem p = {.format = &crumb_kernel_formats[f],
                                                    .m = 8192,
                                                    .k = 2048,
                                                    .n = strcmp(info.op, "gemm") == 0 ? 512 : 1,
                                                    .group = groups[g],
                                                    .act = by_group ? CRUMB_ACT_GROUP : CRUMB_ACT_ROW};
                    if (!suite->takes(machine, kernel, &p)) continue;
                    const size_t n = count_programs(kernel, &p);
                    if (n < 100) fail_msg("%s, group %u: %zu programs", info.name, groups[g], n);
                    n_counted++;
                }
    }
    if (crumb_isa_available(CRUMB_ISA_AVX2)) assert_true(n_counted > 50);
}

/* Two settings of a kernel, and whether they are the same program. */
static void check(const char *kernel, const crumb_kernel_problem *p, const char *a, const char *b, bool same) {
    char effects[2][CRUMB_KNOBS_BYTES];
    suite->setting_effect(machine, kernel_named(kernel), a, p, effects[0]);
    suite->setting_effect(machine, kernel_named(kernel), b, p, effects[1]);
    if ((strcmp(effects[0], effects[1]) == 0) != same)
        fail_msg("%s: '%s' is %s, '%s' is %s", kernel, a, effects[0], b, effects[1]);
}

static void programs_are_told_apart(void **state) {
    (void)state;
    if (!crumb_isa_available(CRUMB_ISA_AVX2)) skip();
    crumb_caches_set(&(crumb_caches){.l1_bytes = 32 << 10, .l2_bytes = 512 << 10});
    crumb_kernel_problem p = {
        .format = crumb_kernel_format_find("2"), .m = 8192, .k = 2048, .n = 1, .act = CRUMB_ACT_ROW};
    check("gemv_u2_i8__avx2", &p, "", crumb_core_is_intel() ? "streams=4" : "streams=2", true);
    check("gemv_u2_i8__avx2", &p, "", "streams=1", false);
    check("gemv_u2_i8__avx2", &p, "", "near=1536", false);
    check("gemv_u2_i8__avx2", &p, "", "far=16", false);
    check("gemv_u2_i8__avx2", &p, "", "share=3", false);
    check("gemv_u3_i8__avx2", &p, "streams=1", "streams=4", true); /* split codes have one number of streams */
    check("gemv_u2_i8__avx2", &p, "", "threads=1", false);
    check("gemv_u2_i8__avx2", &p, "", "threads=2", true);                  /* there are no more */
    check("gemv_u2_i8__avx2", &p, "threads=1", "threads=1 share=3", true); /* and one takes all at once */
    p.n = 2;
    check("gemv_u2_i8__avx2", &p, "", "streams=4", true); /* and so have two columns */
    p.n = 512;
    check("gemm_u2_i8__avx2", &p, "", "columns=192", true);
    check("gemm_u2_i8__avx2", &p, "columns=264", "columns=384", true); /* two blocks, as even as can be */
    check("gemm_u2_i8__avx2", &p, "", "columns=96", false);
    check("gemm_u2_i8__avx2", &p, "", "steps=256", true);
    check("gemm_u2_i8__avx2", &p, "", "steps=128", false);
    check("gemm_u2_i8__avx2", &p, "", "far=1", false);
    check("gemm_u2_i8__avx2", &p, "", "threads=1", false);
    check("gemm_u2_i8__avx2", &p, "", "threads=16", true);
    p.group = 256;
    check("gemm_u2_i8__avx2", &p, "steps=64", "steps=96", true); /* whole groups */
    p.group = 0;
    p.m = 64;
    p.k = 32;
    check("gemm_u2_i8__avx2", &p, "share=3", "share=4", true); /* there is one chunk */
    check("gemm_u2_i8__avx2", &p, "steps=64", "steps=96", true);
    crumb_caches_set(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_share_on_any_threads_computes_the_same),
                                       cmocka_unit_test(every_kernel_has_a_hundred_programs),
                                       cmocka_unit_test(programs_are_told_apart)};
    return cmocka_run_group_tests(tests, open_machine, close_machine);
}
