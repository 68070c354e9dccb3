/* Embeddings, the rounding of results to bf16, and linear layers in float. */
#include "cpu/float.h"
#include "cpu/trial.h"
#include "host/base/checked.h"
#include "host/base/half.h"
#include "tests/support/random_tensor.h"
#include "tests/xe/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void compare_embedding(const crumb_matrix *w, size_t codes_bytes, float scale) {
    char options[CRUMB_CL_OPTIONS_MAX];
    uint32_t tokens[CRUMB_XE_ROWS], k_padded = (uint32_t)crumb_round_up(w->k, 32);
    float *want = crumb_xe_random_floats((size_t)CRUMB_XE_ROWS * k_padded, 1);
    for (uint32_t n = 0; n < CRUMB_XE_ROWS; n++) {
        tokens[n] = n == 0 ? w->m - 1 : crumb_xe_below(w->m);
        crumb_matrix_row_to_f32(w, tokens[n], want + (size_t)n * w->k);
        for (uint32_t i = 0; i < w->k && scale != 1.0f; i++) want[(size_t)n * w->k + i] *= scale;
    }
    size_t tiles = crumb_div_up(w->m, 16), n_scales = w->bits ? tiles * (k_padded / w->group) * 16 : 0;
    size_t scale_bytes = n_scales * (w->super_group ? 1 : w->scales_f32 ? 4 : 2);
    size_t super_bytes = w->super_group ? tiles * (k_padded / w->super_group) * 32 : 0;
    cl_mem batch = crumb_xe_batch_of(tokens, NULL, 0), out = crumb_xe_upload(NULL, (size_t)CRUMB_XE_ROWS * w->k * 4);
    cl_mem all[] = {crumb_xe_upload(w->codes, codes_bytes),
                    crumb_xe_upload(w->scales, scale_bytes),
                    crumb_xe_upload(w->mins, w->mins ? scale_bytes : 0),
                    crumb_xe_upload(w->supers, super_bytes),
                    crumb_xe_upload(w->super_mins, w->mins ? super_bytes : 0),
                    crumb_xe_upload(w->codebook, w->codebook ? 16 : 0)};
    crumb_cl_matrix_options(w, options);
    cl_kernel kernel = crumb_xe_kernel_of(CRUMB_CL_EMBED, options);
    crumb_xe_args(kernel, 0, "bubbbbbbiifb", batch, w->k, all[0], all[1], all[2], all[3], all[4], all[5], (int)w->mul,
                  (int)w->sub, (double)scale, out);
    crumb_xe_run(&crumb_xe_tested, kernel, 128, crumb_div_up(w->k, 128), CRUMB_XE_ROWS + 1, 1);
    crumb_xe_check_buffer(out, want, (size_t)CRUMB_XE_ROWS * w->k, options);
    crumb_xe_release(6, all);
    clReleaseMemObject(batch);
    clReleaseKernel(kernel);
    free(want);
}

/* All upper halves of floats, NaN and infinities among them, with lower ones below, at and above the middle: an
 * embedding from a table in f32 is nothing but the rounding. */
void crumb_xe_rounding_to_bf16_equals_reference(void **state) {
    (void)state;
    enum { WIDTH = 1 << 16 };
    static const uint32_t lower[CRUMB_XE_ROWS] = {0, 1, 0x7fff, 0x8000, 0x8001};
    uint32_t *table = malloc(CRUMB_XE_ROWS * WIDTH * sizeof *table);
    uint16_t *got = malloc(CRUMB_XE_ROWS * WIDTH * sizeof *got);
    assert_true(table && got);
    for (uint32_t i = 0; i < CRUMB_XE_ROWS * WIDTH; i++) table[i] = i % WIDTH << 16 | lower[i / WIDTH];
    const uint32_t tokens[CRUMB_XE_ROWS] = {0, 1, 2, 3, 4};
    cl_mem batch = crumb_xe_batch_of(tokens, NULL, 0),
           rows = crumb_xe_upload(table, CRUMB_XE_ROWS * WIDTH * sizeof *table),
           out = crumb_xe_upload(NULL, CRUMB_XE_ROWS * WIDTH * sizeof *got);
    cl_kernel kernel = crumb_xe_kernel_for(CRUMB_CL_EMBED, true, "-D BITS=0 -D TYPE=32");
    crumb_xe_args(kernel, 0, "bubbbbbbiifb", batch, (uint32_t)WIDTH, rows, NULL, NULL, NULL, NULL, NULL, 0, 0, 1.0,
                  out);
    crumb_xe_run(&crumb_xe_tested, kernel, 128, WIDTH / 128, CRUMB_XE_ROWS, 1);
    crumb_xe_read(&crumb_xe_tested, out, got, CRUMB_XE_ROWS * WIDTH * sizeof *got);
    for (uint32_t i = 0; i < CRUMB_XE_ROWS * WIDTH; i++) {
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
                            .n = CRUMB_XE_ROWS,
                            .group = forms[i].group,
                            .super_group = forms[i].super_group,
                            .has_min = forms[i].has_min,
                            .scales_f32 = forms[i].scales_f32};
    assert_int_equal(crumb_trial_create(&p, &crumb_xe_seed, trial, NULL), CRUMB_OK);
}

void crumb_xe_embeddings_equal_reference(void **state) {
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

void crumb_xe_float_layers_are_near_the_reference(void **state) {
    (void)state;
    for (int i = 0; i < N_FORMS; i++) {
        crumb_trial t;
        char options[CRUMB_CL_OPTIONS_MAX];
        make_form(i, &t);
        const crumb_matrix *w = &t.w;
        size_t n = (size_t)CRUMB_XE_ROWS * w->m, tiles = crumb_div_up(w->m, 16);
        size_t n_scales = tiles * ((uint32_t)crumb_round_up(w->k, 32) / w->group) * 16;
        size_t scale_bytes = n_scales * (w->super_group ? 1 : w->scales_f32 ? 4 : 2);
        size_t super_bytes = w->super_group ? tiles * (w->k / w->super_group) * 32 : 0;
        float *want = crumb_xe_random_floats(n, 1), *got = crumb_xe_random_floats(n, 1),
              *row = crumb_xe_random_floats(w->k + 32, 1);
        crumb_linear_args args = crumb_trial_args(&t, want, w->m);
        args.bias = t.bias;
        args.add = t.add;
        args.add_stride = w->m;
        args.out_scale = 0.37f;
        crumb_linear_f32__ref(&args);
        cl_mem batch = crumb_xe_batch_of(NULL, NULL, 0), y = crumb_xe_upload(NULL, n * 4);
        cl_mem all[] = {crumb_xe_upload(t.xf, (size_t)CRUMB_XE_ROWS * w->k * 4),
                        crumb_xe_upload(w->codebook, w->codebook ? 16 : 0),
                        crumb_xe_upload(t.add, n * 4),
                        crumb_xe_upload(w->codes, t.codes_bytes),
                        crumb_xe_upload(w->scales, scale_bytes),
                        crumb_xe_upload(w->mins, w->mins ? scale_bytes : 0),
                        crumb_xe_upload(w->supers, super_bytes),
                        crumb_xe_upload(w->super_mins, w->mins ? super_bytes : 0),
                        crumb_xe_upload(t.bias, w->m * 4)};
        crumb_cl_matrix_options(w, options);
        cl_kernel kernel = crumb_xe_kernel_of(CRUMB_CL_LINEAR_F32, options);
        crumb_xe_args(kernel, 0, "buubbiibbbbbbbbuuuuf", batch, 0u, w->k, all[0], all[1], (int)w->mul, (int)w->sub,
                      all[2], all[3], all[4], all[5], all[6], all[7], all[8], y, 0u, (uint32_t)tiles, w->m, w->m, 0.37);
        crumb_xe_run(&crumb_xe_tested, kernel, 128, 2, tiles, 1);
        crumb_xe_read(&crumb_xe_tested, y, got, n * 4);
        for (uint32_t m = 0; m < w->m; m++) {
            crumb_matrix_row_to_f32(w, m, row);
            for (uint32_t r = 0; r < CRUMB_XE_ROWS; r++) {
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

void crumb_xe_dense_layers_equal_reference(void **state) {
    (void)state;
    static const crumb_type types[] = {CRUMB_TYPE_F32, CRUMB_TYPE_F16, CRUMB_TYPE_BF16};
    for (int i = 0; i < 6; i++) {
        char options[CRUMB_CL_OPTIONS_MAX];
        crumb_matrix w = {.type = types[i % 3], .m = 45, .k = 100 + 77 * (uint32_t)i};
        size_t n_weights = (size_t)w.m * w.k, n = (size_t)CRUMB_XE_ROWS * w.m;
        w.codes = crumb_test_random_tensor(w.type, w.m, w.k, 9);
        float *x = crumb_xe_random_floats((size_t)CRUMB_XE_ROWS * w.k, 1), *want = crumb_xe_random_floats(n, 1),
              *bias = crumb_xe_random_floats(w.m, 1);
        float *add = crumb_xe_random_floats(n, 1);
        crumb_linear_args args = {.w = &w,
                                  .xf = x,
                                  .xf_stride = w.k,
                                  .n = CRUMB_XE_ROWS,
                                  .tile1 = 3,
                                  .y = want,
                                  .y_stride = w.m,
                                  .add = add,
                                  .add_stride = w.m,
                                  .out_scale = 1.25f,
                                  .bias = bias};
        crumb_linear_dense__ref(&args);
        const crumb_cl_kernel *row = crumb_cl_floats_select(i < 3 ? 1 : CRUMB_XE_ROWS, false);
        crumb_cl_dense_options(row, &(crumb_cl_dense){.type = w.type, .n_parts = 1}, options);
        cl_kernel kernel = crumb_xe_kernel(&crumb_xe_tested, row->file, options, false, row->entry);
        cl_mem batch = crumb_xe_batch_of(NULL, NULL, 0), y = crumb_xe_upload(add, n * 4);
        cl_mem all[] = {crumb_xe_upload(x, (size_t)CRUMB_XE_ROWS * w.k * 4),
                        crumb_xe_upload(w.codes, n_weights * (w.type ? 2 : 4)), crumb_xe_upload(bias, w.m * 4)};
        crumb_xe_args(kernel, 0, "buubbfbbbbuuuf", batch, 0u, w.k, all[0], NULL, 0.0, y, all[1], all[2], y, 0u, w.m,
                      w.m, 1.25);
        crumb_xe_run(&crumb_xe_tested, kernel, 128, i < 3 ? CRUMB_XE_ROWS + 1 : 1, 3, 1);
        crumb_xe_check_buffer(y, want, n, options);
        crumb_xe_release(3, all);
        clReleaseMemObject(batch);
        clReleaseKernel(kernel);
        free(x), free(want), free(bias), free(add), free((void *)(uintptr_t)w.codes);
    }
}
