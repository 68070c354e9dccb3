/* Dense weights on matrix instructions: every row of cl/kernels.def, with activations that are split before it or in
 * it, against sums in double precision, and against CLBlast's Sgemm on the same device, for rows of all sizes and tails
 * of both matrices. And all kernels of one type and sub-group agree to the bit, since which of them runs depends on how
 * many rows a batch has. */
#include "cl/registry.h"
#include "cpu/float.h"
#include "cpu/trial.h"
#include "host/base/half.h"
#include "tests/xe/device.h"

#include "host/base/checked.h"
#include "host/base/module.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_xe_device device;
static uint64_t seed = 20261125;

enum { M = 77, N = 67, ROW0 = 16, MAX_K = 416 };

typedef struct layer {
    crumb_type type;
    uint32_t k;
    bool norm;
    uint16_t weights[M * MAX_K];
    float x[N * MAX_K], norm_weight[MAX_K], bias[M], add[N * M];
} layer;

static float weight_at(const layer *c, size_t i) {
    return c->type == CRUMB_TYPE_F16 ? crumb_f16_to_f32(c->weights[i]) : crumb_bf16_to_f32(c->weights[i]);
}

/* Rows of activations from the smallest to what overflows f16, and one of nothing. */
static void make_layer(layer *c, crumb_type type, uint32_t k, bool norm) {
    static const float sizes[] = {1, 1e6f, 0, 1e-30f, 3e-39f, 1e30f, 1e-4f};
    *c = (layer){.type = type, .k = k, .norm = norm};
    for (size_t i = 0; i < M * (size_t)k; i++) {
        float w = crumb_random_f32(&seed) * 0.3f;
        c->weights[i] = type == CRUMB_TYPE_F16 ? crumb_f32_to_f16(w) : crumb_f32_to_bf16(w);
    }
    for (uint32_t n = 0; n < N; n++)
        for (uint32_t i = 0; i < k; i++) c->x[n * k + i] = crumb_random_f32(&seed) * (norm ? 3 : sizes[n % 7]);
    for (uint32_t i = 0; i < k; i++) c->norm_weight[i] = 1 + crumb_random_f32(&seed);
    for (int i = 0; i < M; i++) c->bias[i] = crumb_random_f32(&seed);
    for (int i = 0; i < N * M; i++) c->add[i] = crumb_random_f32(&seed);
}

static cl_mem upload(const void *data, size_t n_bytes) {
    return crumb_xe_buffer(&device, data, n_bytes);
}

/* The activations as terms. */
static void split_rows(const layer *c, const crumb_cl_kernel *kernel, cl_mem batch, cl_mem x, cl_mem norm_weight,
                       cl_mem terms, cl_mem down) {
    char options[CRUMB_CL_OPTIONS_MAX];
    crumb_cl_split_options(kernel, c->norm, options);
    cl_kernel split = crumb_xe_kernel(&device, "split.cl", options, false, "split_rows");
    crumb_xe_args(split, 0, "buubbfbb", batch, 0u, c->k, x, norm_weight, 1e-5, terms, down);
    crumb_xe_run(&device, split, 128, N + 1, 1, 1);
    clReleaseKernel(split);
}

/* y [N][M] over `add`, as one kernel makes it. */
static void run(const layer *c, const crumb_cl_kernel *kernel, float out_scale, float *y) {
    char options[CRUMB_CL_OPTIONS_MAX];
    const uint32_t header[4] = {N, 0, 1, 1}, k = c->k;
    const crumb_cl_dense use = {.type = c->type, .n_parts = 1, .norm = c->norm};
    const bool owns = crumb_cl_dense_owns(kernel);
    crumb_cl_dense_options(kernel, &use, options);
    cl_kernel dense = crumb_xe_kernel(&device, kernel->file, options, true, kernel->entry);
    cl_mem batch = upload(header, sizeof header), x = upload(c->x, (size_t)N * k * 4);
    cl_mem norm_weight = c->norm ? upload(c->norm_weight, k * 4) : NULL;
    cl_mem terms = upload(NULL, crumb_cl_split_bytes(N, k)), down = upload(NULL, N * 4);
    cl_mem weights = upload(c->weights, (size_t)M * k * 2), bias = upload(c->bias, sizeof c->bias);
    cl_mem out = upload(c->add, sizeof c->add);
    if (!owns) split_rows(c, kernel, batch, x, norm_weight, terms, down);
    crumb_xe_args(dense, 0, "buubbfbbbbbbuuuf", batch, 0u, k, owns ? x : NULL, owns ? norm_weight : NULL, 1e-5,
                  owns ? NULL : terms, owns ? NULL : down, out, weights, bias, out, (uint32_t)ROW0, (uint32_t)M,
                  (uint32_t)M, (double)out_scale);
    crumb_xe_run(&device, dense, kernel->local_size, crumb_div_up(N + 3, kernel->tokens),
                 crumb_div_up(M - ROW0, kernel->rows), 1);
    crumb_xe_read(&device, out, y, sizeof c->add);
    cl_mem all[] = {batch, x, norm_weight, terms, down, weights, bias, out};
    crumb_xe_release(sizeof all / sizeof *all, all);
    clReleaseKernel(dense);
}

static void check(const layer *c, const crumb_cl_kernel *kernel, float out_scale, const float *y) {
    const double most = c->type == CRUMB_TYPE_F16 ? 0x1p-19 : 0x1p-15;
    static float row[MAX_K];
    for (uint32_t n = 0; n < N; n++) {
        memcpy(row, c->x + (size_t)n * c->k, c->k * sizeof *row);
        if (c->norm) crumb_float_ops__ref.rms_norm(c->x + (size_t)n * c->k, c->norm_weight, c->k, 1e-5f, row);
        for (uint32_t m = 0; m < M; m++) {
            double sum = 0, size = 0, add = (double)c->add[n * M + m], want = add;
            for (uint32_t i = 0; i < c->k; i++) {
                double product = (double)row[i] * (double)weight_at(c, (size_t)m * c->k + i);
                sum += product;
                size += fabs(product);
            }
            if (m >= ROW0) want = sum * (double)out_scale + (double)c->bias[m] + add;
            double off = fabs((double)y[n * M + m] - want),
                   bound = m < ROW0 ? 0 : most * size + 0x1p-22 * fabs(want) + 1e-6;
            if (!(off <= bound))
                fail_msg("%s: k %u: y[%u][%u] is %g, not %g: off by %g of at most %g", kernel->name, c->k, n, m,
                         (double)y[n * M + m], want, off, bound);
        }
    }
}

static const crumb_cl_kernel *compare_kernels(const layer *c, uint32_t sub_group, float out_scale, size_t *n_run) {
    static float first[N * M], y[N * M];
    size_t n;
    const crumb_cl_kernel *kernels = crumb_cl_kernels(&n), *of_first = NULL;
    const crumb_matrix w = {.type = c->type, .m = M, .k = c->k};
    const crumb_cl_target target = {CRUMB_CL_DPAS_I8, sub_group, device.local_bytes, 1024, 0, false, false, false};
    for (size_t i = 0; i < n; i++) {
        if (!crumb_cl_dense_fits(&kernels[i], &w, &target)) continue;
        run(c, &kernels[i], out_scale, y);
        check(c, &kernels[i], out_scale, y);
        if (of_first && memcmp(y, first, sizeof y) != 0) fail_msg("%s and %s differ", kernels[i].name, of_first->name);
        if (!of_first) memcpy(first, y, sizeof y);
        of_first = &kernels[i];
        ++*n_run;
    }
    return of_first;
}

static void kernels_are_near_double_and_agree(void **state) {
    (void)state;
    static layer c;
    static const uint32_t widths[] = {32, 416, 288};
    size_t n_run = 0;
    if (!device.sub_groups) crumb_xe_skip("sub-groups");
    for (int i = 0; i < 6; i++)
        for (uint32_t sub_group = 8; sub_group <= 16; sub_group *= 2) {
            make_layer(&c, i % 2 ? CRUMB_TYPE_F16 : CRUMB_TYPE_BF16, widths[i % 3], i >= 4);
            assert_non_null(compare_kernels(&c, sub_group, i == 1 ? 0.37f : 1.0f, &n_run));
        }
    print_message("%zu times a kernel\n", n_run);
}

/* ---- CLBlast --------------------------------------------------------------------------------------------------- */

typedef int (*sgemm_fn)(int layout, int a_transpose, int b_transpose, size_t m, size_t n, size_t k, float alpha,
                        cl_mem a, size_t a_offset, size_t a_stride, cl_mem b, size_t b_offset, size_t b_stride,
                        float beta, cl_mem c, size_t c_offset, size_t c_stride, cl_command_queue *queue,
                        cl_event *event);

/* y [N][M] = x W^T + bias + add, all weights as f32. */
static void multiply_by_clblast(const layer *c, sgemm_fn sgemm, float *y) {
    enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 };
    static float wide[M * MAX_K];
    const size_t k = c->k;
    for (size_t i = 0; i < M * k; i++) wide[i] = weight_at(c, i);
    for (size_t i = 0; i < (size_t)N * M; i++) y[i] = c->add[i] + c->bias[i % M];
    cl_mem all[] = {upload(c->x, N * k * 4), upload(wide, M * k * 4), upload(y, sizeof c->add)};
    assert_int_equal(sgemm(ROW_MAJOR, AS_IS, TRANSPOSED, N, M, k, 1, all[0], 0, k, all[1], 0, k, 1, all[2], 0, M,
                           &device.queue, NULL),
                     0);
    crumb_xe_read(&device, all[2], y, sizeof c->add);
    crumb_xe_release(3, all);
}

/* Sums of another order, in f32: each may be off by half a unit for each of its k products. */
static void check_by_clblast(const layer *c, const crumb_cl_kernel *kernel, const float *y, const float *want) {
    const double most = (c->type == CRUMB_TYPE_F16 ? 0x1p-19 : 0x1p-15) + c->k * 0x1p-24;
    for (uint32_t n = 0; n < N; n++)
        for (uint32_t m = ROW0; m < M; m++) {
            double size = fabs((double)c->bias[m]) + fabs((double)c->add[n * M + m]);
            for (uint32_t i = 0; i < c->k; i++)
                size += fabs((double)c->x[n * c->k + i] * (double)weight_at(c, (size_t)m * c->k + i));
            const double off = fabs((double)y[n * M + m] - (double)want[n * M + m]);
            if (!(off <= most * size))
                fail_msg("%s: y[%u][%u] is %g, and CLBlast's %g: off by %g of at most %g", kernel->name, n, m,
                         (double)y[n * M + m], (double)want[n * M + m], off, most * size);
        }
}

static void kernels_are_near_clblast(void **state) {
    (void)state;
    static layer c;
    static float want[N * M], y[N * M];
    size_t n_kernels, n_run = 0;
    const crumb_cl_kernel *kernels = crumb_cl_kernels(&n_kernels);
    const void *address;
    sgemm_fn sgemm;
    if (!device.sub_groups) crumb_xe_skip("sub-groups");
    if (crumb_module_open("libclblast.so.1", "CLBlastSgemm", &address, NULL) != CRUMB_OK) {
        print_message(
            "no libclblast.so.1 (package libclblast1): dense kernels are not compared with CLBlast's Sgemm\n");
        skip();
    }
    memcpy(&sgemm, &address, sizeof sgemm);
    for (int i = 0; i < 2; i++) {
        make_layer(&c, i ? CRUMB_TYPE_F16 : CRUMB_TYPE_BF16, MAX_K, false);
        multiply_by_clblast(&c, sgemm, want);
        for (uint32_t sub_group = 8; sub_group <= 16; sub_group *= 2) {
            const crumb_matrix w = {.type = c.type, .m = M, .k = c.k};
            const crumb_cl_target target = {
                CRUMB_CL_DPAS_I8, sub_group, device.local_bytes, 1024, 0, false, false, false};
            for (size_t k = 0; k < n_kernels; k++) {
                if (!crumb_cl_dense_fits(&kernels[k], &w, &target)) continue;
                run(&c, &kernels[k], 1, y);
                check_by_clblast(&c, &kernels[k], y, want);
                n_run++;
            }
        }
    }
    print_message("%zu times a kernel, beside CLBlast\n", n_run);
    assert_true(n_run >= 20);
}

/* Each number of rows has a kernel, and only where the instructions and the layout fit. */
static void selection_follows_its_rule(void **state) {
    (void)state;
    const crumb_cl_target target = {CRUMB_CL_DPAS, 16, 64 << 10, 1024, 0, false, false, false},
                          no_matrix = {CRUMB_CL_DP4A, 0, 64 << 10, 1024, 0, false, false, false};
    crumb_matrix w = {.type = CRUMB_TYPE_F16, .m = 100, .k = 96};
    uint32_t rows[] = {1, 2, 3, 8, 9, 512}, tokens[] = {1, 2, 4, 8, 64, 64};
    for (int i = 0; i < 6; i++) assert_int_equal(crumb_cl_dense_select(&w, rows[i], &target)->tokens, tokens[i]);
    assert_null(crumb_cl_dense_select(&w, 1, &no_matrix));
    w.k = 80;
    assert_null(crumb_cl_dense_select(&w, 1, &target));
    w = (crumb_matrix){.type = CRUMB_TYPE_F32, .m = 100, .k = 96};
    assert_null(crumb_cl_dense_select(&w, 1, &target));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selection_follows_its_rule),
        cmocka_unit_test(kernels_are_near_double_and_agree),
        cmocka_unit_test(kernels_are_near_clblast),
    };
    return crumb_xe_run_tests(&device, tests, sizeof tests / sizeof *tests);
}
