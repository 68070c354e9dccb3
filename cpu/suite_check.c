/* The CPU's kernels compared with the references. */
#include "cpu/suite.h"

#include "cpu/knobs.h"
#include "host/base/checked.h"
#include "host/base/memory.h"

#include <stdio.h>
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
static void compare_power(const crumb_cpu_kernel *row, crumb_trial *t, const float *y, const float *expected,
                          crumb_kernel_check *out) {
    const double power = crumb_trial_power(t, expected), error = squared_error(y, expected, out->n_values);
    out->nmse = power > 0 ? error / power : error;
    out->ok = out->nmse <= (double)row->max_nmse;
    if (!out->ok)
        snprintf(out->where, sizeof out->where, "the error is %g of the result, above %g", out->nmse,
                 (double)row->max_nmse);
}

static void compare(const crumb_cpu_kernel *row, crumb_trial *t, const float *y, const float *expected,
                    crumb_kernel_check *out) {
    const crumb_trial_params *p = &t->params;
    *out = (crumb_kernel_check){.ok = true, .n_values = (uint64_t)p->n * p->m};
    if (row->max_nmse > 0) {
        compare_power(row, t, y, expected, out);
        return;
    }
    for (uint64_t i = 0; i < out->n_values && out->ok; i++) {
        out->ok = same_bits(y[i], expected[i]);
        if (!out->ok)
            snprintf(out->where, sizeof out->where, "y[%u][%u] is %a, not %a", (unsigned)(i / p->m),
                     (unsigned)(i % p->m), (double)y[i], (double)expected[i]);
    }
}

static crumb_status check_trial(const crumb_cpu_kernel *row, const char *knobs, crumb_trial *t, float *y,
                                float *expected, crumb_kernel_check *out, crumb_error *err) {
    const crumb_trial_params *p = &t->params;
    crumb_linear_args args = crumb_trial_args(t, expected, p->m);
    if (p->act == CRUMB_ACT_F32)
        crumb_linear_f32__ref(&args);
    else
        crumb_linear_i8__ref(&args);
    args.y = y;
    args.knobs = crumb_cpu_knobs_parse(row->op, knobs);
    if (row->layout) CRUMB_TRY(crumb_trial_pack(t, row->layout, &args, err));
    row->run(&args);
    compare(row, t, y, expected, out);
    return CRUMB_OK;
}

/* As K-quants have it, where it fits; 0: scales have one level. */
static uint32_t super_group(const crumb_trial_params *p) {
    const uint32_t size = 256;
    return p->group && size % p->group == 0 && crumb_round_up(p->k, CRUMB_TILE_K) % size == 0 ? size : 0;
}

crumb_status crumb_suite_check(size_t kernel, const char *knobs, const crumb_kernel_problem *problem, uint64_t seed,
                               bool extreme, crumb_kernel_check *out, crumb_error *err) {
    crumb_trial_params params = crumb_suite_trial(problem);
    const bool bounded = params.act != CRUMB_ACT_F32; /* sums of floats have no bound to reach */
    if (extreme && bounded) params.fill = seed % 2 ? CRUMB_FILL_POSITIVE : CRUMB_FILL_NEGATIVE;
    params.has_min = !params.codebook && seed / 2 % 2;
    params.scales_f32 = seed / 4 % 2;
    if (seed / 8 % 2 && crumb_suite_row(kernel)->rank >= 0) params.super_group = super_group(&params);
    crumb_trial t;
    void *y = NULL;
    crumb_status status = crumb_trial_create(&params, &seed, &t, err);
    if (status == CRUMB_OK) status = crumb_calloc(2 * (uint64_t)params.n * params.m, sizeof(float), "results", &y, err);
    if (status == CRUMB_OK)
        status = check_trial(crumb_suite_row(kernel), knobs, &t, y, (float *)y + (size_t)params.n * params.m, out, err);
    free(y);
    crumb_trial_destroy(&t);
    return status;
}

/* Activations of a normal distribution, quantized as a plan does it where the kernel wants them so; scales and codes as
 * in other trials, without what would be added to both sides alike. */
crumb_status crumb_suite_error(size_t kernel, const crumb_kernel_problem *problem, uint64_t seed, double *nmse,
                               crumb_error *err) {
    const crumb_cpu_kernel *row = crumb_suite_row(kernel);
    crumb_trial_params params = crumb_suite_trial(problem);
    params.quantized = true;
    const uint64_t n_values = (uint64_t)params.n * params.m;
    crumb_trial t;
    void *memory = NULL;
    crumb_status status = crumb_trial_create(&params, &seed, &t, err);
    if (status == CRUMB_OK) status = crumb_calloc(2 * n_values, sizeof(float), "results", &memory, err);
    if (status == CRUMB_OK) {
        float *y = memory, *exact = y + n_values;
        crumb_linear_args args = crumb_trial_args(&t, exact, params.m);
        args.bias = args.add = NULL;
        crumb_linear_f32__ref(&args);
        args.y = y;
        if (row->layout) status = crumb_trial_pack(&t, row->layout, &args, err);
        if (status == CRUMB_OK) {
            row->run(&args);
            *nmse = squared_error(y, exact, n_values) / crumb_trial_power(&t, exact);
        }
    }
    free(memory);
    crumb_trial_destroy(&t);
    return status;
}
