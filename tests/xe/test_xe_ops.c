/* Every kernel of cl/kernels.def that is not a linear layer with int8 activations, on an OpenCL device, against
 * cpu/ref: bit for bit but where a kernel's comment says otherwise. Attention is in test_xe_attention.c. */
#include "cl/registry.h"
#include "cpu/float.h"
#include "cpu/trial.h"
#include "tests/support/random_tensor.h"
#include "tests/xe/device.h"

#include "host/base/checked.h"
#include "host/base/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_xe_device device;
static uint64_t seed = 20261122;

enum { ROWS = 5 };

static uint32_t below(uint32_t n) {
    return (uint32_t)(crumb_random_u64(&seed) % n);
}

static float *random_floats(size_t n, float scale) {
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = crumb_random_f32(&seed) * scale;
    return x;
}

static cl_mem upload(const void *data, size_t n_bytes) {
    return crumb_xe_buffer(&device, data, n_bytes);
}

/* A batch of ROWS rows with these tokens and outputs. */
static cl_mem batch_of(const uint32_t *tokens, const uint32_t *outputs, uint32_t n_outputs) {
    uint32_t batch[4 + 4 * ROWS] = {ROWS, n_outputs, 1, 1};
    for (uint32_t n = 0; n < ROWS; n++) {
        batch[4 + 4 * n] = tokens ? tokens[n] : 0;
        batch[4 + 4 * n + 3] = outputs ? outputs[n] : ~0u;
    }
    return upload(batch, sizeof batch);
}

static void assert_same_floats(const float *got, const float *want, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: value %zu is %a, not %a", what, i, (double)got[i], (double)want[i]);
}

/* Reads a buffer of floats, compares it and lets it go. */
static void check_floats(cl_mem buffer, const float *want, size_t n, const char *what) {
    float *got = malloc(n * sizeof *got);
    assert_non_null(got);
    crumb_xe_read(&device, buffer, got, n * sizeof *got);
    assert_same_floats(got, want, n, what);
    free(got);
    clReleaseMemObject(buffer);
}

static cl_kernel kernel_for(crumb_cl_op op, bool bf16, const char *more) {
    char options[CRUMB_CL_OPTIONS_MAX];
    const crumb_cl_kernel *kernel = crumb_cl_kernel_of(op, bf16);
    snprintf(options, sizeof options, "%s %s", kernel->options, more);
    return crumb_xe_kernel(&device, kernel->file, options, false, kernel->entry);
}

static cl_kernel kernel_of(crumb_cl_op op, const char *more) {
    return kernel_for(op, false, more);
}

/* ---- norm, gate, select, top -------------------------------------------------------------------------------- */

static void norms_equal_reference(void **state) {
    (void)state;
    static const struct {
        uint32_t width, vectors;
    } shapes[] = {{1, 1}, {64, 3}, {100, 1}, {576, 1}, {4096, 1}, {129, 4}};
    cl_mem batch = batch_of(NULL, NULL, 0);
    cl_kernel kernel = kernel_of(CRUMB_CL_RMS_NORM, "");
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        uint32_t width = shapes[s].width, vectors = shapes[s].vectors;
        size_t n = (size_t)ROWS * vectors * width;
        float *x = random_floats(n, 30), *weight = random_floats(width, 2), *want = random_floats(n, 1);
        for (size_t i = 0; i < n; i += width) crumb_float_ops__ref.rms_norm(x + i, weight, width, 1e-5f, want + i);
        cl_mem values = upload(x, n * sizeof *x), weights = upload(weight, width * sizeof *weight);
        crumb_xe_args(kernel, 0, "buuubbfb", batch, 0u, width, vectors, values, weights, 1e-5, values); /* in place */
        crumb_xe_run(&device, kernel, 128, vectors, ROWS + 1, 1);
        check_floats(values, want, n, "norm");
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
    enum { WIDTH = 333, N = ROWS * WIDTH };
    cl_mem batch = batch_of(NULL, NULL, 0);
    for (int fn = 1; fn <= 2; fn++) {
        float *gate = random_floats(N, 40), *up = random_floats(N, 3), *want = random_floats(N, 1);
        gate[0] = 120, gate[1] = -120, gate[2] = 0, gate[3] = 70000;
        crumb_float_ops__ref.gated(gate, up, N, fn == 1 ? CRUMB_ACT_FN_SILU : CRUMB_ACT_FN_RELU2, want);
        cl_mem gates = upload(gate, N * 4), ups = upload(up, N * 4);
        cl_kernel kernel = kernel_of(CRUMB_CL_GATED, fn == 1 ? "-D FN=1" : "-D FN=2");
        crumb_xe_args(kernel, 0, "buubbb", batch, 0u, (uint32_t)WIDTH, gates, ups, gates);
        crumb_xe_run(&device, kernel, 128, 3, ROWS + 1, 1);
        check_floats(gates, want, N, "gate");
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
    const uint32_t outputs[ROWS] = {~0u, 0, ~0u, 1, 2}, kept[] = {1, 3, 4};
    float *x = random_floats(ROWS * WIDTH, 1), want[3 * WIDTH];
    for (int i = 0; i < 3; i++) memcpy(want + i * WIDTH, x + kept[i] * WIDTH, WIDTH * sizeof *x);
    cl_mem batch = batch_of(NULL, outputs, 3), values = upload(x, ROWS * WIDTH * 4);
    cl_kernel kernel = kernel_of(CRUMB_CL_SELECT, "");
    crumb_xe_args(kernel, 0, "bubb", batch, (uint32_t)WIDTH, values, values); /* in place */
    crumb_xe_run(&device, kernel, 128, 2, 1, 1);
    check_floats(values, want, 3 * WIDTH, "select");
    clReleaseKernel(kernel);
    clReleaseMemObject(batch);
    free(x);
}

static void place_writes_its_columns(void **state) {
    (void)state;
    enum { WIDTH = 130, OUT_WIDTH = 300, COLUMN = 70 };
    float *x = random_floats(ROWS * WIDTH, 1), *want = random_floats(ROWS * OUT_WIDTH, 1);
    cl_mem batch = batch_of(NULL, NULL, 0), values = upload(x, ROWS * WIDTH * 4),
           out = upload(want, ROWS * OUT_WIDTH * 4);
    for (int n = 0; n < ROWS; n++) memcpy(want + n * OUT_WIDTH + COLUMN, x + n * WIDTH, WIDTH * sizeof *x);
    cl_kernel kernel = kernel_of(CRUMB_CL_PLACE, "");
    crumb_xe_args(kernel, 0, "buuuubb", batch, 0u, (uint32_t)WIDTH, (uint32_t)COLUMN, (uint32_t)OUT_WIDTH, values, out);
    crumb_xe_run(&device, kernel, 128, 2, ROWS + 1, 1);
    check_floats(out, want, ROWS * OUT_WIDTH, "place");
    clReleaseKernel(kernel);
    clReleaseMemObject(batch);
    clReleaseMemObject(values);
    free(x), free(want);
}

static void gather_takes_columns_in_any_order(void **state) {
    (void)state;
    enum { WIDTH = 131 };
    float *x = random_floats(ROWS * WIDTH, 1), *want = random_floats(ROWS * WIDTH, 1);
    uint32_t from[WIDTH];
    for (uint32_t i = 0; i < WIDTH; i++) from[i] = i * 37 % WIDTH;
    cl_mem batch = batch_of(NULL, NULL, 0), values = upload(x, ROWS * WIDTH * 4), out = upload(want, ROWS * WIDTH * 4),
           order = upload(from, sizeof from);
    for (int n = 0; n < ROWS; n++)
        for (int i = 0; i < WIDTH; i++) want[n * WIDTH + i] = x[n * WIDTH + (int)from[i]];
    cl_kernel kernel = kernel_of(CRUMB_CL_GATHER, "");
    crumb_xe_args(kernel, 0, "buubbb", batch, 0u, (uint32_t)WIDTH, order, values, out);
    crumb_xe_run(&device, kernel, 128, 2, ROWS + 1, 1);
    check_floats(out, want, ROWS * WIDTH, "gather");
    clReleaseKernel(kernel);
    clReleaseMemObject(batch);
    clReleaseMemObject(values);
    clReleaseMemObject(order);
    free(x), free(want);
}

/* Values in few steps, so that many are equal; NaN, both zeros and infinities among them. */
static float *logits_of(uint32_t width) {
    float *x = random_floats((size_t)ROWS * width, 8);
    for (uint32_t i = 0; i < ROWS * width; i++) x[i] = rintf(x[i]);
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
        float *x = logits_of(width), *want = malloc((size_t)ROWS * 2 * k * sizeof *want),
              *got = calloc(2 * k * ROWS, 4);
        for (int row = 0; row < ROWS; row++)
            largest_of_row(x + (size_t)row * width, width, k, want + (size_t)row * 2 * k);
        size_t key_bytes = (crumb_div_up(width, 2048) * k * ROWS + 1) * 8;
        cl_mem batch = batch_of(NULL, NULL, ROWS), logits = upload(x, (size_t)ROWS * width * 4);
        cl_mem keys[2] = {upload(NULL, key_bytes), upload(NULL, key_bytes)},
               out = upload(NULL, (size_t)ROWS * 2 * k * 4);
        uint32_t n_in = width;
        for (int launch = 0, chunks = 2; chunks > 1; launch++) {
            char options[64];
            chunks = (int)crumb_div_up(n_in, 2048);
            snprintf(options, sizeof options, "-D FIRST=%d -D LAST=%d -D K=%u", launch == 0, chunks == 1, k);
            cl_kernel kernel = kernel_of(CRUMB_CL_TOP, options);
            crumb_xe_args(kernel, 0, "buubbbb", batch, 0u, n_in, logits, keys[launch % 2 ^ 1], keys[launch % 2], out);
            crumb_xe_run(&device, kernel, 128, (uint32_t)chunks, ROWS, 1);
            clReleaseKernel(kernel);
            n_in = (uint32_t)chunks * k;
        }
        crumb_xe_read(&device, out, got, (size_t)ROWS * 2 * k * 4);
        for (int row = 0; row < ROWS; row++) { /* zeros are equal, whatever their sign */
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

/* bits: of the order; 0 is rising k. x_rows: rows whose blocks lie together. */
static void compare_quantization(unsigned bits, uint32_t x_rows, uint32_t x_group, bool row_scale, uint32_t k,
                                 float scale) {
    uint32_t k_padded = (uint32_t)crumb_round_up(k, 32), group = x_group ? x_group : k_padded,
             n_groups = k_padded / group;
    size_t n_q = (size_t)ROWS * k_padded, n_sums = (size_t)ROWS * n_groups, n_scales = row_scale ? ROWS : n_sums;
    float *x = random_floats((size_t)ROWS * k, scale), *sx = random_floats(n_scales, 1);
    int8_t *want = calloc(1, n_q), *got = malloc(crumb_cl_linear_x_bytes(ROWS, k_padded));
    int32_t *sums = calloc(n_sums, 4), *got_sums = malloc(n_sums * 4);
    memset(x + k, 0, k * sizeof *x); /* a row of nothing */
    crumb_q8 out = {.q = want, .sx = sx, .qsum = sums, .k_padded = k_padded, .group = group, .row_scale = row_scale};
    crumb_quantize__ref(x, k, k, bits ? bits : 8, 0, ROWS, &out);
    char options[200];
    snprintf(options, sizeof options, "-D BITS=%u -D X_ROWS=%u -D X_GROUP=%u -D ROW_SCALE=%d -D INPUT=0", bits, x_rows,
             x_group, row_scale);
    cl_kernel kernel = kernel_of(CRUMB_CL_QUANTIZE, options);
    cl_mem batch = batch_of(NULL, NULL, 0), values = upload(x, (size_t)ROWS * k * 4);
    cl_mem codes = upload(NULL, crumb_cl_linear_x_bytes(ROWS, k_padded));
    cl_mem scales = upload(NULL, n_scales * 4), code_sums = upload(NULL, n_sums * 4);
    crumb_xe_args(kernel, 0, "buubbfbbbl", batch, 0u, k, values, NULL, 0.0, codes, scales, code_sums,
                  (size_t)(8 * n_groups));
    crumb_xe_run(&device, kernel, 128, ROWS + 1, 1, 1);
    crumb_xe_read(&device, codes, got, crumb_cl_linear_x_bytes(ROWS, k_padded));
    crumb_xe_read(&device, code_sums, got_sums, n_sums * 4);
    for (size_t i = 0; i < n_q; i++) {
        size_t at = bits ? i : i / 32 * 32 + crumb_tile_plane_position(8, i % 32), row = i / k_padded;
        size_t of_row = i % k_padded, place = x_rows == 1 ? i : (of_row / 32 * x_rows + row) * 32 + of_row % 32;
        if (got[place] != want[at]) fail_msg("%s k %u: code %zu is %d, not %d", options, k, i, got[place], want[at]);
    }
    assert_memory_equal(got_sums, sums, n_sums * 4);
    check_floats(scales, sx, n_scales, "scale of activations");
    clReleaseKernel(kernel);
    cl_mem all[] = {batch, values, codes, code_sums};
    crumb_xe_release(4, all);
    free(x), free(sx), free(want), free(got), free(sums), free(got_sums);
}

static void quantization_equals_reference(void **state) {
    (void)state;
    static const unsigned orders[] = {0, 1, 2, 3, 4, 8};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        compare_quantization(orders[i], 1, 0, true, 4 + below(1000), 3);
        compare_quantization(orders[i], 1, 32, false, 1000, 1e-3f);
        compare_quantization(orders[i], i % 2 ? 1 : 8, 128, i % 2, 1280, 1e4f);
        compare_quantization(orders[i], 1, 16, i % 2 == 0, 96, 1e-6f);
        compare_quantization(orders[i], 1, 32, false, 64, 1e-31f); /* below what has an inverse */
    }
}

/* ---- embedding and linear layers in float --------------------------------------------------------------------------
 */

static void compare_embedding(const crumb_matrix *w, size_t codes_bytes, float scale) {
    char options[CRUMB_CL_OPTIONS_MAX];
    uint32_t tokens[ROWS], k_padded = (uint32_t)crumb_round_up(w->k, 32);
    float *want = random_floats((size_t)ROWS * k_padded, 1);
    for (uint32_t n = 0; n < ROWS; n++) {
        tokens[n] = n == 0 ? w->m - 1 : below(w->m);
        crumb_matrix_row_to_f32(w, tokens[n], want + (size_t)n * w->k);
        for (uint32_t i = 0; i < w->k && scale != 1.0f; i++) want[(size_t)n * w->k + i] *= scale;
    }
    size_t tiles = crumb_div_up(w->m, 16), n_scales = w->bits ? tiles * (k_padded / w->group) * 16 : 0;
    size_t scale_bytes = n_scales * (w->super_group ? 1 : w->scales_f32 ? 4 : 2);
    size_t super_bytes = w->super_group ? tiles * (k_padded / w->super_group) * 32 : 0;
    cl_mem batch = batch_of(tokens, NULL, 0), out = upload(NULL, (size_t)ROWS * w->k * 4);
    cl_mem all[] = {upload(w->codes, codes_bytes),
                    upload(w->scales, scale_bytes),
                    upload(w->mins, w->mins ? scale_bytes : 0),
                    upload(w->supers, super_bytes),
                    upload(w->super_mins, w->mins ? super_bytes : 0),
                    upload(w->codebook, w->codebook ? 16 : 0)};
    crumb_cl_matrix_options(w, options);
    cl_kernel kernel = kernel_of(CRUMB_CL_EMBED, options);
    crumb_xe_args(kernel, 0, "bubbbbbbiifb", batch, w->k, all[0], all[1], all[2], all[3], all[4], all[5], (int)w->mul,
                  (int)w->sub, (double)scale, out);
    crumb_xe_run(&device, kernel, 128, crumb_div_up(w->k, 128), ROWS + 1, 1);
    check_floats(out, want, (size_t)ROWS * w->k, options);
    crumb_xe_release(6, all);
    clReleaseMemObject(batch);
    clReleaseKernel(kernel);
    free(want);
}

/* All upper halves of floats, NaN and infinities among them, with lower ones below, at and above the middle: an
 * embedding from a table in f32 is nothing but the rounding. */
static void rounding_to_bf16_equals_reference(void **state) {
    (void)state;
    enum { WIDTH = 1 << 16 };
    static const uint32_t lower[ROWS] = {0, 1, 0x7fff, 0x8000, 0x8001};
    uint32_t *table = malloc(ROWS * WIDTH * sizeof *table);
    uint16_t *got = malloc(ROWS * WIDTH * sizeof *got);
    assert_true(table && got);
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) table[i] = i % WIDTH << 16 | lower[i / WIDTH];
    const uint32_t tokens[ROWS] = {0, 1, 2, 3, 4};
    cl_mem batch = batch_of(tokens, NULL, 0), rows = upload(table, ROWS * WIDTH * sizeof *table),
           out = upload(NULL, ROWS * WIDTH * sizeof *got);
    cl_kernel kernel = kernel_for(CRUMB_CL_EMBED, true, "-D BITS=0 -D TYPE=32");
    crumb_xe_args(kernel, 0, "bubbbbbbiifb", batch, (uint32_t)WIDTH, rows, NULL, NULL, NULL, NULL, NULL, 0, 0, 1.0,
                  out);
    crumb_xe_run(&device, kernel, 128, WIDTH / 128, ROWS, 1);
    crumb_xe_read(&device, out, got, ROWS * WIDTH * sizeof *got);
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        float x;
        memcpy(&x, &table[i], sizeof x);
        if (got[i] != crumb_f32_to_bf16(x))
            fail_msg("%08x becomes %04x, not %04x", table[i], got[i], crumb_f32_to_bf16(x));
    }
    clReleaseKernel(kernel);
    cl_mem all[] = {batch, rows, out};
    crumb_xe_release(3, all);
    free(table);
    free(got);
}

static const struct {
    unsigned bits;
    uint32_t group, super_group;
    bool has_min, scales_f32, codebook;
} forms[] = {{1, 128, 0, false, false, false}, {2, 0, 0, false, true, false},    {3, 16, 256, true, false, false},
             {4, 32, 0, true, false, false},   {5, 32, 256, true, false, false}, {6, 16, 0, false, false, false},
             {8, 32, 0, false, false, false},  {4, 32, 0, false, true, true}};
enum { N_FORMS = sizeof forms / sizeof forms[0] };

static void make_form(int i, crumb_trial *trial) {
    crumb_trial_params p = {.bits = forms[i].bits,
                            .mul = 1,
                            .sub = forms[i].codebook ? 0 : 2,
                            .codebook = forms[i].codebook ? crumb_codebook_e2m1 : NULL,
                            .m = 77,
                            .k = forms[i].group ? 512 : 333,
                            .n = ROWS,
                            .group = forms[i].group,
                            .super_group = forms[i].super_group,
                            .has_min = forms[i].has_min,
                            .scales_f32 = forms[i].scales_f32};
    assert_int_equal(crumb_trial_create(&p, &seed, trial, NULL), CRUMB_OK);
}

static void embeddings_equal_reference(void **state) {
    (void)state;
    for (int i = 0; i < N_FORMS; i++) {
        crumb_trial trial;
        make_form(i, &trial);
        compare_embedding(&trial.w, trial.codes_bytes, i % 2 ? 1.0f : 1.7f);
        crumb_trial_destroy(&trial);
    }
    static const crumb_type types[] = {CRUMB_TYPE_F32, CRUMB_TYPE_F16, CRUMB_TYPE_BF16};
    for (int i = 0; i < 3; i++) {
        crumb_matrix w = {.type = types[i], .m = 50, .k = 300};
        size_t n_bytes = (size_t)50 * 300 * (i == 0 ? 4 : 2);
        w.codes = crumb_test_random_tensor(types[i], w.m, w.k, 5);
        compare_embedding(&w, n_bytes, 1.0f);
        free((void *)(uintptr_t)w.codes);
    }
}

static void float_layers_are_near_the_reference(void **state) {
    (void)state;
    for (int i = 0; i < N_FORMS; i++) {
        crumb_trial t;
        char options[CRUMB_CL_OPTIONS_MAX];
        make_form(i, &t);
        const crumb_matrix *w = &t.w;
        size_t n = (size_t)ROWS * w->m, tiles = crumb_div_up(w->m, 16);
        size_t n_scales = tiles * ((uint32_t)crumb_round_up(w->k, 32) / w->group) * 16;
        size_t scale_bytes = n_scales * (w->super_group ? 1 : w->scales_f32 ? 4 : 2);
        size_t super_bytes = w->super_group ? tiles * (w->k / w->super_group) * 32 : 0;
        float *want = random_floats(n, 1), *got = random_floats(n, 1), *row = random_floats(w->k + 32, 1);
        crumb_linear_args args = crumb_trial_args(&t, want, w->m);
        args.bias = t.bias;
        args.add = t.add;
        args.add_stride = w->m;
        args.out_scale = 0.37f;
        crumb_linear_f32__ref(&args);
        cl_mem batch = batch_of(NULL, NULL, 0), y = upload(NULL, n * 4);
        cl_mem all[] = {upload(t.xf, (size_t)ROWS * w->k * 4),
                        upload(w->codebook, w->codebook ? 16 : 0),
                        upload(t.add, n * 4),
                        upload(w->codes, t.codes_bytes),
                        upload(w->scales, scale_bytes),
                        upload(w->mins, w->mins ? scale_bytes : 0),
                        upload(w->supers, super_bytes),
                        upload(w->super_mins, w->mins ? super_bytes : 0),
                        upload(t.bias, w->m * 4)};
        crumb_cl_matrix_options(w, options);
        cl_kernel kernel = kernel_of(CRUMB_CL_LINEAR_F32, options);
        crumb_xe_args(kernel, 0, "buubbiibbbbbbbbuuuuf", batch, 0u, w->k, all[0], all[1], (int)w->mul, (int)w->sub,
                      all[2], all[3], all[4], all[5], all[6], all[7], all[8], y, 0u, (uint32_t)tiles, w->m, w->m, 0.37);
        crumb_xe_run(&device, kernel, 128, tiles, 2, 1);
        crumb_xe_read(&device, y, got, n * 4);
        for (uint32_t m = 0; m < w->m; m++) {
            crumb_matrix_row_to_f32(w, m, row);
            for (uint32_t r = 0; r < ROWS; r++) {
                double size = 1e-6;
                for (uint32_t k = 0; k < w->k; k++) size += fabs((double)row[k] * (double)t.xf[r * w->k + k]);
                double off = fabs((double)got[r * w->m + m] - (double)want[r * w->m + m]);
                if (!(off <= 1e-5 * size)) fail_msg("%s: y[%u][%u] is off by %g of %g", options, r, m, off, size);
            }
        }
        crumb_xe_release(9, all);
        clReleaseMemObject(batch);
        clReleaseMemObject(y);
        clReleaseKernel(kernel);
        free(want), free(got), free(row);
        crumb_trial_destroy(&t);
    }
}

static void dense_layers_equal_reference(void **state) {
    (void)state;
    static const crumb_type types[] = {CRUMB_TYPE_F32, CRUMB_TYPE_F16, CRUMB_TYPE_BF16};
    for (int i = 0; i < 6; i++) {
        char options[CRUMB_CL_OPTIONS_MAX];
        crumb_matrix w = {.type = types[i % 3], .m = 45, .k = 100 + 77 * (uint32_t)i};
        size_t n_weights = (size_t)w.m * w.k, n = (size_t)ROWS * w.m;
        w.codes = crumb_test_random_tensor(w.type, w.m, w.k, 9);
        float *x = random_floats((size_t)ROWS * w.k, 1), *want = random_floats(n, 1), *bias = random_floats(w.m, 1);
        float *add = random_floats(n, 1);
        crumb_linear_args args = {.w = &w,
                                  .xf = x,
                                  .xf_stride = w.k,
                                  .n = ROWS,
                                  .tile1 = 3,
                                  .y = want,
                                  .y_stride = w.m,
                                  .add = add,
                                  .add_stride = w.m,
                                  .out_scale = 1.25f,
                                  .bias = bias};
        crumb_linear_dense__ref(&args);
        crumb_cl_matrix_options(&w, options);
        strcat(options, i < 3 ? " -D TOKENS=1" : " -D TOKENS=8");
        cl_kernel kernel = crumb_xe_kernel(&device, "linear_dense.cl", options, false, "linear_dense");
        cl_mem batch = batch_of(NULL, NULL, 0), y = upload(add, n * 4);
        cl_mem all[] = {upload(x, (size_t)ROWS * w.k * 4), upload(w.codes, n_weights * (w.type ? 2 : 4)),
                        upload(bias, w.m * 4)};
        crumb_xe_args(kernel, 0, "buubbbbbuuuf", batch, 0u, w.k, all[0], y, all[1], all[2], y, 0u, w.m, w.m, 1.25);
        crumb_xe_run(&device, kernel, 128, 3, i < 3 ? ROWS + 1 : 1, 1);
        check_floats(y, want, n, options);
        crumb_xe_release(3, all);
        clReleaseMemObject(batch);
        clReleaseKernel(kernel);
        free(x), free(want), free(bias), free(add), free((void *)(uintptr_t)w.codes);
    }
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
        cmocka_unit_test(rounding_to_bf16_equals_reference),
        cmocka_unit_test(embeddings_equal_reference),
        cmocka_unit_test(float_layers_are_near_the_reference),
        cmocka_unit_test(dense_layers_equal_reference),
    };
    return crumb_xe_run_tests(&device, tests, sizeof tests / sizeof *tests);
}
