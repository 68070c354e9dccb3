/* Kernels with layouts of their own, the index layout's and the papers', against the reference: bit for bit where their
 * row says so, else within the error that it states. Tiers that the machine lacks run in an exact emulation. */
#include "cpu/trial.h"
#include "tests/kernels/emulated.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 20261121;
static size_t n_compared;

/* What codes of each width mean in files: symmetric ones and those with a zero point. */
static const struct {
    unsigned bits, max_code;
    int mul, sub;
} meanings[] = {{1, 1, 2, 1}, {2, 2, 1, 1}, {2, 3, 2, 3}, {3, 7, 1, 4}, {4, 15, 1, 8}};
enum { N_MEANINGS = sizeof meanings / sizeof meanings[0] };

static void check(const crumb_cpu_kernel *kernel, crumb_trial *t, const float *y, const float *expected) {
    const crumb_trial_params *p = &t->params;
    double error = 0;
    for (size_t i = 0; i < (size_t)p->n * p->m; i++) {
        if (kernel->max_nmse == 0 && memcmp(&y[i], &expected[i], sizeof y[i]) != 0)
            fail_msg("%s: y[%zu][%zu] is %a, not %a; bits %u max %u m %u k %u n %u group %u act %d/%u fill %d",
                     kernel->name, i / p->m, i % p->m, (double)y[i], (double)expected[i], p->bits, p->max_code, p->m,
                     p->k, p->n, p->group, (int)p->act, p->act_group, (int)p->fill);
        double difference = (double)y[i] - (double)expected[i];
        error += difference * difference;
    }
    if (kernel->max_nmse == 0) return;
    const double power = crumb_trial_power(t, expected);
    if (!(error <= (double)kernel->max_nmse * power))
        fail_msg("%s: the error is %g of the result, above %g; bits %u m %u k %u n %u group %u fill %d", kernel->name,
                 error / power, (double)kernel->max_nmse, p->bits, p->m, p->k, p->n, p->group, (int)p->fill);
}

/* One kernel on a case: all of it, and in two ranges of its blocks of rows, which must not change a bit. */
static void run_and_check(const crumb_cpu_kernel *kernel, crumb_trial *t, const float *expected) {
    const crumb_trial_params *p = &t->params;
    const size_t n_values = (size_t)p->n * p->m;
    float *y = malloc(2 * n_values * sizeof *y), *in_ranges = y + n_values;
    assert_non_null(y);
    crumb_linear_args args = crumb_trial_args(t, y, p->m);
    assert_int_equal(crumb_trial_pack(t, kernel->layout, &args, NULL), CRUMB_OK);
    kernel->run(&args);
    check(kernel, t, y, expected);

    const uint32_t block = kernel->layout->rows / CRUMB_TILE_ROWS, n_tiles = args.tile1;
    const uint32_t cut = (uint32_t)(crumb_random_u64(&seed) % (n_tiles / block + 1)) * block;
    for (size_t i = 0; i < n_values; i++) in_ranges[i] = 12345.0f;
    args.y = in_ranges;
    args.tile1 = cut;
    if (cut) kernel->run(&args);
    args.tile0 = cut;
    args.tile1 = n_tiles;
    if (cut < n_tiles) kernel->run(&args);
    if (memcmp(y, in_ranges, n_values * sizeof *y) != 0) fail_msg("%s: ranges of rows change results", kernel->name);
    free(y);
    n_compared += 2;
}

static bool takes(const crumb_cpu_kernel *kernel, const crumb_trial *t) {
    return kernel->layout && crumb_isa_available(kernel->isa) && kernel->acts >> t->params.act & 1 &&
           crumb_cpu_kernel_takes(kernel, &t->w);
}

/* Those of one layout one after the other, so that weights are packed once for all of them. */
static void run_layout(const crumb_cpu_layout *layout, crumb_trial *t, const float *expected) {
    size_t n_real, n_emulated;
    const crumb_cpu_kernel *real = crumb_cpu_kernels(&n_real), *emulated = crumb_emulated_kernels(&n_emulated);
    for (size_t i = 0; i < n_real + n_emulated; i++) {
        const crumb_cpu_kernel *kernel = i < n_real ? &real[i] : &emulated[i - n_real];
        if (kernel->layout == layout && takes(kernel, t)) run_and_check(kernel, t, expected);
    }
}

static void compare_case(const crumb_trial_params *p) {
    crumb_trial t;
    assert_int_equal(crumb_trial_create(p, &seed, &t, NULL), CRUMB_OK);
    float *expected = malloc((size_t)p->n * p->m * sizeof(float));
    assert_non_null(expected);
    const crumb_linear_args args = crumb_trial_args(&t, expected, p->m);
    if (p->act == CRUMB_ACT_F32)
        crumb_linear_f32__ref(&args);
    else
        crumb_linear_i8__ref(&args);
    size_t n;
    const crumb_cpu_kernel *rows = crumb_cpu_kernels(&n);
    for (size_t i = 0; i < n; i++) {
        bool first = rows[i].layout != NULL;
        for (size_t j = 0; j < i && first; j++) first = rows[j].layout != rows[i].layout;
        if (first) run_layout(rows[i].layout, &t, expected);
    }
    free(expected);
    crumb_trial_destroy(&t);
}

static const uint32_t groups[] = {32, 64, 128, 256, 0};
enum { N_GROUPS = sizeof groups / sizeof groups[0] };

static void equal_the_reference_on_random_layers(void **state) {
    (void)state;
    static const uint32_t shapes_m[] = {1, 16, 31, 32, 33, 48, 100, 600}, free_k[] = {32, 96, 100, 576, 2080};
    for (int meaning = 0; meaning < N_MEANINGS; meaning++)
        for (int g = 0; g < N_GROUPS; g++)
            for (int act = 0; act < 3; act++)
                for (int variant = 0; variant < 8; variant++) {
                    crumb_trial_params p = {.bits = meanings[meaning].bits,
                                            .max_code = meanings[meaning].max_code,
                                            .mul = meanings[meaning].mul,
                                            .sub = meanings[meaning].sub,
                                            .group = groups[g],
                                            .m = shapes_m[crumb_random_u64(&seed) % 8],
                                            .n = variant & 1   ? 1
                                                 : variant & 2 ? 3
                                                               : 13,
                                            .act =
                                                (crumb_act_quant[]){CRUMB_ACT_F32, CRUMB_ACT_ROW, CRUMB_ACT_GROUP}[act],
                                            .has_min = variant & 2,
                                            .scales_f32 = variant & 4};
                    p.k = p.group ? p.group * (1 + (uint32_t)(crumb_random_u64(&seed) % 5))
                                  : free_k[crumb_random_u64(&seed) % 5];
                    p.act_group = p.group && p.group < 128 ? p.group : p.group ? 128 : 32;
                    compare_case(&p);
                }
}

/* More rows than a kernel keeps at once, more blocks than one in both directions, groups longer than a block. */
static void equal_the_reference_on_large_layers(void **state) {
    (void)state;
    static const struct {
        uint32_t m, k, group;
    } shapes[] = {{4200, 576, 0}, {4200, 576, 64}, {48, 16384, 8192}};
    for (int meaning = 0; meaning < N_MEANINGS; meaning++)
        for (int shape = 0; shape < 3; shape++)
            for (int floats = 0; floats < 2; floats++) {
                crumb_trial_params p = {.bits = meanings[meaning].bits,
                                        .max_code = meanings[meaning].max_code,
                                        .mul = meanings[meaning].mul,
                                        .sub = meanings[meaning].sub,
                                        .group = shapes[shape].group,
                                        .m = shapes[shape].m,
                                        .n = 1,
                                        .k = shapes[shape].k,
                                        .act = floats ? CRUMB_ACT_F32 : CRUMB_ACT_ROW};
                compare_case(&p);
            }
}

/* Every code and every activation at its extreme: the bound that a row states is reached. */
static void hold_at_their_bounds(void **state) {
    (void)state;
    for (int meaning = 0; meaning < N_MEANINGS; meaning++)
        for (int g = 0; g < N_GROUPS; g++)
            for (crumb_trial_fill fill = CRUMB_FILL_SUMS; fill < CRUMB_FILL_COUNT; fill++)
                for (int variant = 0; variant < 4; variant++) {
                    const bool long_row = variant & 1;
                    crumb_trial_params p = {.bits = meanings[meaning].bits,
                                            .max_code = meanings[meaning].max_code,
                                            .mul = meanings[meaning].mul,
                                            .sub = meanings[meaning].sub,
                                            .group = groups[g],
                                            .m = 33,
                                            .n = 1,
                                            .k = long_row && !groups[g] ? 16384 : 2048,
                                            .act = variant & 2 ? CRUMB_ACT_F32 : CRUMB_ACT_ROW,
                                            .fill = fill};
                    compare_case(&p);
                }
}

static void every_variant_was_compared(void **state) {
    (void)state;
    size_t n, n_emulated, run = 0, emulations = 0, lacking = 0;
    const crumb_cpu_kernel *rows = crumb_cpu_kernels(&n), *emulated = crumb_emulated_kernels(&n_emulated);
    for (size_t i = 0; i < n; i++) {
        if (!rows[i].layout) continue;
        bool available = crumb_isa_available(rows[i].isa), has_emulation = false;
        for (size_t j = 0; j < n_emulated; j++) has_emulation |= strcmp(rows[i].name, emulated[j].name) == 0;
        if (rows[i].isa > CRUMB_ISA_AVX2 && !has_emulation) fail_msg("%s has no emulated twin", rows[i].name);
        run += available;
        lacking += !available;
        emulations += has_emulation;
    }
    print_message("variants run: %zu, emulated: %zu, of tiers this machine lacks: %zu, comparisons: %zu\n", run,
                  emulations, lacking, n_compared);
    assert_true(n_compared > 0);
}

int main(void) {
    const char *given = getenv("CRUMB_TEST_SEED");
    if (given) seed = strtoull(given, NULL, 10);
    printf("CRUMB_TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_the_reference_on_random_layers),
        cmocka_unit_test(equal_the_reference_on_large_layers),
        cmocka_unit_test(hold_at_their_bounds),
        cmocka_unit_test(every_variant_was_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
