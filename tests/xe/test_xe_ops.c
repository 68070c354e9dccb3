/* Every kernel of cl/kernels.def that is not a linear layer with int8 activations, on an OpenCL device, against
 * cpu/ref: bit for bit but where a kernel's comment says otherwise. Embeddings and linear layers in float are in
 * ops_layers.c, division in ops_division.c, attention is in test_xe_attention.c. */
#include "cpu/float.h"
#include "cpu/trial.h"
#include "host/base/checked.h"
#include "tests/xe/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- norm, gate, select, top -------------------------------------------------------------------------------- */

static void norms_equal_reference(void **state) {
    (void)state;
    static const struct {
        uint32_t width, vectors;
    } shapes[] = {{1, 1}, {64, 3}, {100, 1}, {576, 1}, {4096, 1}, {129, 4}};
    cl_mem batch = crumb_xe_batch_of(NULL, NULL, 0);
    cl_kernel kernel = crumb_xe_kernel_of(CRUMB_CL_RMS_NORM, "");
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        uint32_t width = shapes[s].width, vectors = shapes[s].vectors;
        size_t n = (size_t)CRUMB_XE_ROWS * vectors * width;
        float *x = crumb_xe_random_floats(n, 30), *weight = crumb_xe_random_floats(width, 2),
              *want = crumb_xe_random_floats(n, 1);
        for (size_t i = 0; i < n; i += width) crumb_float_ops__ref.rms_norm(x + i, weight, width, 1e-5f, want + i);
        cl_mem values = crumb_xe_upload(x, n * sizeof *x), weights = crumb_xe_upload(weight, width * sizeof *weight);
        crumb_xe_args(kernel, 0, "buuubbfb", batch, 0u, width, vectors, values, weights, 1e-5, values); /* in place */
        crumb_xe_run(&crumb_xe_tested, kernel, 128, vectors, CRUMB_XE_ROWS + 1, 1);
        crumb_xe_check_buffer(values, want, n, "norm");
        clReleaseMemObject(weights);
        free(x);
        free(weight);
        free(want);
    }
    clReleaseKernel(kernel);
    clReleaseMemObject(batch);
}

static void gates_equal_reference(void **state) {
    (void)state;
    enum { WIDTH = 333, N = CRUMB_XE_ROWS * WIDTH };
    cl_mem batch = crumb_xe_batch_of(NULL, NULL, 0);
    for (int fn = 1; fn <= 2; fn++) {
        float *gate = crumb_xe_random_floats(N, 40), *up = crumb_xe_random_floats(N, 3),
              *want = crumb_xe_random_floats(N, 1);
        gate[0] = 120, gate[1] = -120, gate[2] = 0, gate[3] = 70000;
        crumb_float_ops__ref.gated(gate, up, N, fn == 1 ? CRUMB_ACT_FN_SILU : CRUMB_ACT_FN_RELU2, want);
        cl_mem gates = crumb_xe_upload(gate, N * 4), ups = crumb_xe_upload(up, N * 4);
        cl_kernel kernel = crumb_xe_kernel_of(CRUMB_CL_GATED, fn == 1 ? "-D FN=1" : "-D FN=2");
        crumb_xe_args(kernel, 0, "buubbb", batch, 0u, (uint32_t)WIDTH, gates, ups, gates);
        crumb_xe_run(&crumb_xe_tested, kernel, 128, 3, CRUMB_XE_ROWS + 1, 1);
        crumb_xe_check_buffer(gates, want, N, "gate");
        clReleaseMemObject(ups);
        clReleaseKernel(kernel);
        free(gate);
        free(up);
        free(want);
    }
    clReleaseMemObject(batch);
}

static void select_keeps_the_wanted_rows(void **state) {
    (void)state;
    enum { WIDTH = 200 };
    const uint32_t outputs[CRUMB_XE_ROWS] = {~0u, 0, ~0u, 1, 2}, kept[] = {1, 3, 4};
    float *x = crumb_xe_random_floats(CRUMB_XE_ROWS * WIDTH, 1), want[3 * WIDTH];
    for (int i = 0; i < 3; i++) memcpy(want + i * WIDTH, x + kept[i] * WIDTH, WIDTH * sizeof *x);
    cl_mem batch = crumb_xe_batch_of(NULL, outputs, 3), values = crumb_xe_upload(x, CRUMB_XE_ROWS * WIDTH * 4);
    cl_kernel kernel = crumb_xe_kernel_of(CRUMB_CL_SELECT, "");
    crumb_xe_args(kernel, 0, "bubb", batch, (uint32_t)WIDTH, values, values); /* in place */
    crumb_xe_run(&crumb_xe_tested, kernel, 128, 2, 1, 1);
    crumb_xe_check_buffer(values, want, 3 * WIDTH, "select");
    clReleaseKernel(kernel);
    clReleaseMemObject(batch);
    free(x);
}

static void place_writes_its_columns(void **state) {
    (void)state;
    enum { WIDTH = 130, OUT_WIDTH = 300, COLUMN = 70 };
    float *x = crumb_xe_random_floats(CRUMB_XE_ROWS * WIDTH, 1),
          *want = crumb_xe_random_floats(CRUMB_XE_ROWS * OUT_WIDTH, 1);
    cl_mem batch = crumb_xe_batch_of(NULL, NULL, 0), values = crumb_xe_upload(x, CRUMB_XE_ROWS * WIDTH * 4),
           out = crumb_xe_upload(want, CRUMB_XE_ROWS * OUT_WIDTH * 4);
    for (int n = 0; n < CRUMB_XE_ROWS; n++) memcpy(want + n * OUT_WIDTH + COLUMN, x + n * WIDTH, WIDTH * sizeof *x);
    cl_kernel kernel = crumb_xe_kernel_of(CRUMB_CL_PLACE, "");
    crumb_xe_args(kernel, 0, "buuuubb", batch, 0u, (uint32_t)WIDTH, (uint32_t)COLUMN, (uint32_t)OUT_WIDTH, values, out);
    crumb_xe_run(&crumb_xe_tested, kernel, 128, 2, CRUMB_XE_ROWS + 1, 1);
    crumb_xe_check_buffer(out, want, CRUMB_XE_ROWS * OUT_WIDTH, "place");
    clReleaseKernel(kernel);
    clReleaseMemObject(batch);
    clReleaseMemObject(values);
    free(x), free(want);
}

static void gather_takes_columns_in_any_order(void **state) {
    (void)state;
    enum { WIDTH = 131 };
    float *x = crumb_xe_random_floats(CRUMB_XE_ROWS * WIDTH, 1),
          *want = crumb_xe_random_floats(CRUMB_XE_ROWS * WIDTH, 1);
    uint32_t from[WIDTH];
    for (uint32_t i = 0; i < WIDTH; i++) from[i] = i * 37 % WIDTH;
    cl_mem batch = crumb_xe_batch_of(NULL, NULL, 0), values = crumb_xe_upload(x, CRUMB_XE_ROWS * WIDTH * 4),
           out = crumb_xe_upload(want, CRUMB_XE_ROWS * WIDTH * 4), order = crumb_xe_upload(from, sizeof from);
    for (int n = 0; n < CRUMB_XE_ROWS; n++)
        for (int i = 0; i < WIDTH; i++) want[n * WIDTH + i] = x[n * WIDTH + (int)from[i]];
    cl_kernel kernel = crumb_xe_kernel_of(CRUMB_CL_GATHER, "");
    crumb_xe_args(kernel, 0, "buubbb", batch, 0u, (uint32_t)WIDTH, order, values, out);
    crumb_xe_run(&crumb_xe_tested, kernel, 128, 2, CRUMB_XE_ROWS + 1, 1);
    crumb_xe_check_buffer(out, want, CRUMB_XE_ROWS * WIDTH, "gather");
    clReleaseKernel(kernel);
    clReleaseMemObject(batch);
    clReleaseMemObject(values);
    clReleaseMemObject(order);
    free(x), free(want);
}

/* Values in few steps, so that many are equal; NaN, both zeros and infinities among them. */
static float *logits_of(uint32_t width) {
    float *x = crumb_xe_random_floats((size_t)CRUMB_XE_ROWS * width, 8);
    for (uint32_t i = 0; i < CRUMB_XE_ROWS * width; i++) x[i] = rintf(x[i]);
    for (uint32_t i = 0; i < width; i++) x[2 * width + i] = i % 3 == 0 ? NAN : i % 7 == 0 ? -0.0f : x[2 * width + i];
    for (uint32_t i = 0; i < width; i++) x[3 * width + i] = i == width / 2 ? -1e30f : -INFINITY;
    for (uint32_t i = 0; i < width; i++) x[4 * width + i] = NAN;
    x[width - 1] = INFINITY;
    return x;
}

/* The definition of CRUMB_OP_TOP, read off. */
static void largest_of_row(const float *x, uint32_t width, uint32_t k, float *out) {
    bool *taken = calloc(width, sizeof *taken);
    for (uint32_t i = 0; i < k; i++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t j = 0; j < width; j++)
            if (!taken[j] && !isnan(x[j]) && (best == UINT32_MAX || x[j] > x[best])) best = j;
        out[i] = best == UINT32_MAX ? -INFINITY : x[best];
        memcpy(&out[k + i], &best, sizeof best);
        if (best != UINT32_MAX) taken[best] = true;
    }
    free(taken);
}

static void top_finds_the_largest(void **state) {
    (void)state;
    static const struct {
        uint32_t width, k;
    } cases[] = {{1, 1}, {100, 128}, {2048, 16}, {2049, 128}, {40000, 128}, {5000, 1024}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const uint32_t width = cases[c].width, k = cases[c].k;
        float *x = logits_of(width), *want = malloc((size_t)CRUMB_XE_ROWS * 2 * k * sizeof *want),
              *got = calloc(2 * k * CRUMB_XE_ROWS, 4);
        for (int row = 0; row < CRUMB_XE_ROWS; row++)
            largest_of_row(x + (size_t)row * width, width, k, want + (size_t)row * 2 * k);
        size_t key_bytes = (crumb_div_up(width, 2048) * k * CRUMB_XE_ROWS + 1) * 8;
        cl_mem batch = crumb_xe_batch_of(NULL, NULL, CRUMB_XE_ROWS),
               logits = crumb_xe_upload(x, (size_t)CRUMB_XE_ROWS * width * 4);
        cl_mem keys[2] = {crumb_xe_upload(NULL, key_bytes), crumb_xe_upload(NULL, key_bytes)},
               out = crumb_xe_upload(NULL, (size_t)CRUMB_XE_ROWS * 2 * k * 4);
        uint32_t n_in = width;
        for (int launch = 0, chunks = 2; chunks > 1; launch++) {
            char options[64];
            chunks = (int)crumb_div_up(n_in, 2048);
            snprintf(options, sizeof options, "-D FIRST=%d -D LAST=%d -D K=%u", launch == 0, chunks == 1, k);
            cl_kernel kernel = crumb_xe_kernel_of(CRUMB_CL_TOP, options);
            crumb_xe_args(kernel, 0, "buubbbb", batch, 0u, n_in, logits, keys[launch % 2 ^ 1], keys[launch % 2], out);
            crumb_xe_run(&crumb_xe_tested, kernel, 128, (uint32_t)chunks, CRUMB_XE_ROWS, 1);
            clReleaseKernel(kernel);
            n_in = (uint32_t)chunks * k;
        }
        crumb_xe_read(&crumb_xe_tested, out, got, (size_t)CRUMB_XE_ROWS * 2 * k * 4);
        for (int row = 0; row < CRUMB_XE_ROWS; row++) { /* zeros are equal, whatever their sign */
            assert_memory_equal(got + (2 * row + 1) * k, want + (2 * row + 1) * k, k * 4);
            for (uint32_t i = 0; i < k; i++) assert_true(got[2 * row * k + i] == want[2 * row * k + i]);
        }
        cl_mem all[] = {batch, logits, keys[0], keys[1], out};
        crumb_xe_release(5, all);
        free(x);
        free(want);
        free(got);
    }
}

/* ---- quantization ------------------------------------------------------------------------------------------------ */

/* What is quantized: x, or where `input` is 2 or 3 silu or relu^2 of x, times up. */
static float *make_quantized(unsigned input, const float *x, const float *up, size_t n) {
    float *out = malloc(n * sizeof *out);
    if (input)
        crumb_float_ops__ref.gated(x, up, n, input == 2 ? CRUMB_ACT_FN_SILU : CRUMB_ACT_FN_RELU2, out);
    else
        memcpy(out, x, n * sizeof *out);
    return out;
}

/* bits: of the order; 0 is rising k. x_rows: rows whose blocks lie together. */
static void compare_quantization(unsigned input, unsigned bits, uint32_t x_rows, uint32_t x_group, bool row_scale,
                                 uint32_t k, float scale) {
    uint32_t k_padded = (uint32_t)crumb_round_up(k, 32), group = x_group ? x_group : k_padded,
             n_groups = k_padded / group;
    size_t n_q = (size_t)CRUMB_XE_ROWS * k_padded, n_sums = (size_t)CRUMB_XE_ROWS * n_groups,
           n_scales = row_scale ? CRUMB_XE_ROWS : n_sums;
    const size_t n_x = (size_t)CRUMB_XE_ROWS * k;
    float *x = crumb_xe_random_floats(n_x, scale), *up = crumb_xe_random_floats(n_x, 3),
          *sx = crumb_xe_random_floats(n_scales, 1);
    int8_t *want = calloc(1, n_q), *got = malloc(crumb_cl_linear_x_bytes(CRUMB_XE_ROWS, k_padded));
    int32_t *sums = calloc(n_sums, 4), *got_sums = malloc(n_sums * 4);
    memset(x + k, 0, k * sizeof *x); /* a row of nothing */
    crumb_q8 out = {.q = want, .sx = sx, .qsum = sums, .k_padded = k_padded, .group = group, .row_scale = row_scale};
    float *quantized = make_quantized(input, x, up, n_x);
    crumb_quantize__ref(quantized, k, k, bits ? bits : 8, 0, CRUMB_XE_ROWS, &out);
    char options[200];
    snprintf(options, sizeof options, "-D BITS=%u -D X_ROWS=%u -D X_GROUP=%u -D ROW_SCALE=%d -D INPUT=%u", bits, x_rows,
             x_group, row_scale, input);
    cl_kernel kernel = crumb_xe_kernel_of(CRUMB_CL_QUANTIZE, options);
    cl_mem batch = crumb_xe_batch_of(NULL, NULL, 0), values = crumb_xe_upload(x, n_x * 4);
    cl_mem ups = input ? crumb_xe_upload(up, n_x * 4) : NULL;
    cl_mem codes = crumb_xe_upload(NULL, crumb_cl_linear_x_bytes(CRUMB_XE_ROWS, k_padded));
    cl_mem scales = crumb_xe_upload(NULL, n_scales * 4), code_sums = crumb_xe_upload(NULL, n_sums * 4);
    crumb_xe_args(kernel, 0, "buubbbfbbbl", batch, 0u, k, values, ups, NULL, 0.0, codes, scales, code_sums,
                  (size_t)(8 * n_groups));
    crumb_xe_run(&crumb_xe_tested, kernel, 128, CRUMB_XE_ROWS + 1, 1, 1);
    crumb_xe_read(&crumb_xe_tested, codes, got, crumb_cl_linear_x_bytes(CRUMB_XE_ROWS, k_padded));
    crumb_xe_read(&crumb_xe_tested, code_sums, got_sums, n_sums * 4);
    for (size_t i = 0; i < n_q; i++) {
        size_t at = bits ? i : i / 32 * 32 + crumb_tile_plane_position(8, i % 32), row = i / k_padded;
        size_t of_row = i % k_padded, place = x_rows == 1 ? i : (of_row / 32 * x_rows + row) * 32 + of_row % 32;
        if (got[place] != want[at]) fail_msg("%s k %u: code %zu is %d, not %d", options, k, i, got[place], want[at]);
    }
    assert_memory_equal(got_sums, sums, n_sums * 4);
    crumb_xe_check_buffer(scales, sx, n_scales, "scale of activations");
    clReleaseKernel(kernel);
    if (ups) clReleaseMemObject(ups);
    cl_mem all[] = {batch, values, codes, code_sums};
    crumb_xe_release(4, all);
    free(x), free(up), free(quantized), free(sx), free(want), free(got), free(sums), free(got_sums);
}

static void quantization_equals_reference(void **state) {
    (void)state;
    static const unsigned orders[] = {0, 1, 2, 3, 4, 8};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        compare_quantization(0, orders[i], 1, 0, true, 4 + crumb_xe_below(1000), 3);
        compare_quantization(0, orders[i], 1, 32, false, 1000, 1e-3f);
        compare_quantization(0, orders[i], i % 2 ? 1 : 8, 128, i % 2, 1280, 1e4f);
        compare_quantization(0, orders[i], 1, 16, i % 2 == 0, 96, 1e-6f);
        compare_quantization(0, orders[i], 1, 32, false, 64, 1e-31f); /* below what has an inverse */
    }
}

/* The same of gates: widths that fill no block, gates whose squares f16 cannot have, and some below what has an
 * inverse. */
static void quantized_gates_equal_reference(void **state) {
    (void)state;
    static const unsigned orders[] = {0, 2, 4, 8};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
        for (unsigned input = 2; input <= 3; input++) {
            compare_quantization(input, orders[i], 1, 0, true, 1 + crumb_xe_below(1000), 9);
            compare_quantization(input, orders[i], i % 2 ? 1 : 8, 32, false, 37, 400);
            compare_quantization(input, orders[i], i % 2 ? 8 : 1, 128, i % 2, 1277, 30);
            compare_quantization(input, orders[i], 1, 16, i % 2 == 0, 95, 1e-3f);
            compare_quantization(input, orders[i], 1, 32, false, 65, 1e-20f);
        }
}

/* ONLY_SCALES: a row's largest value, whatever its sign, and nothing else written. */
static void scales_alone_are_the_largest_values(void **state) {
    (void)state;
    enum { K = 333 };
    float *x = crumb_xe_random_floats(CRUMB_XE_ROWS * K, 3), want[CRUMB_XE_ROWS] = {0};
    for (int i = 0; i < CRUMB_XE_ROWS * K; i++) want[i / K] = fmaxf(want[i / K], fabsf(x[i]));
    cl_mem batch = crumb_xe_batch_of(NULL, NULL, 0), values = crumb_xe_upload(x, CRUMB_XE_ROWS * K * sizeof *x),
           scales = crumb_xe_upload(NULL, sizeof want);
    cl_kernel kernel =
        crumb_xe_kernel_of(CRUMB_CL_QUANTIZE, "-D BITS=8 -D X_GROUP=0 -D ROW_SCALE=1 -D INPUT=0" CRUMB_CL_ONLY_SCALES);
    crumb_xe_args(kernel, 0, "buubbbfbbbl", batch, 0u, (uint32_t)K, values, NULL, NULL, 0.0, NULL, scales, NULL,
                  sizeof(int32_t));
    crumb_xe_run(&crumb_xe_tested, kernel, 128, CRUMB_XE_ROWS + 1, 1, 1);
    crumb_xe_check_buffer(scales, want, CRUMB_XE_ROWS, "scales alone");
    clReleaseKernel(kernel);
    clReleaseMemObject(batch);
    clReleaseMemObject(values);
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_equal_reference),
        cmocka_unit_test(gates_equal_reference),
        cmocka_unit_test(select_keeps_the_wanted_rows),
        cmocka_unit_test(place_writes_its_columns),
        cmocka_unit_test(gather_takes_columns_in_any_order),
        cmocka_unit_test(top_finds_the_largest),
        cmocka_unit_test(quantization_equals_reference),
        cmocka_unit_test(quantized_gates_equal_reference),
        cmocka_unit_test(scales_alone_are_the_largest_values),
        cmocka_unit_test(crumb_xe_rough_division_is_rounded),
        cmocka_unit_test(crumb_xe_rounding_to_bf16_equals_reference),
        cmocka_unit_test(crumb_xe_embeddings_equal_reference),
        cmocka_unit_test(crumb_xe_float_layers_are_near_the_reference),
        cmocka_unit_test(crumb_xe_dense_layers_equal_reference),
    };
    return crumb_xe_run_tests(&crumb_xe_tested, tests, sizeof tests / sizeof *tests);
}
