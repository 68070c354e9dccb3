/* Every linear kernel of cl/kernels.def on an OpenCL device against cpu/ref, bit for bit: all widths, codebooks, groups
 * and scales, activations from memory and quantized in the kernel, several parts, gates, tails. */
#include "cl/variant.h"
#include "cpu/float.h"
#include "cpu/trial.h"
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
static uint64_t seed = 20261121;
static size_t n_compared;
static bool small; /* CRUMB_XE_SMALL: for a simulator */
static bool spirv; /* CRUMB_XE_OCLOC: kernels come as SPIR-V */

static const int8_t codebook_of_255[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 127, -128, 113};
static const uint32_t groups[] = {32, 0, 128, 16, 64, 0};
enum { N_GROUPS = sizeof groups / sizeof groups[0] };

static uint32_t below(uint32_t n) {
    return (uint32_t)(crumb_random_u64(&seed) % n);
}

/* More than two work-groups' of most kernels, than one of each. */
static uint32_t most_rows(const crumb_cl_kernel *kernel) {
    return kernel->tokens < 16 || small ? 19 : kernel->tokens + 3;
}

static float rounded(float x) {
    return crumb_bf16_to_f32(crumb_f32_to_bf16(x));
}

static void *take(size_t n_bytes) {
    void *p = calloc(1, n_bytes + 64);
    assert_non_null(p);
    return p;
}

/* ---- a case: a trial, what calls the kernel, and what should come out ---------------------------------------- */

typedef struct layer {
    crumb_trial trial;
    crumb_cl_linear use;
    const crumb_cl_kernel *kernel;
    uint32_t n, first_tile[4], n_tiles; /* part i: tile-rows from first_tile[i] to first_tile[i + 1] */
    bool has_bias, has_add;
    float out_scale, eps;
    float *aux;
    uint32_t *order; /* of columns; NULL: as they lie */
} layer;

static void choose_params(const crumb_cl_kernel *kernel, uint32_t variant, crumb_trial_params *p) {
    *p = (crumb_trial_params){
        .bits = kernel->bits, .mul = 1, .sub = (int)below(1u << (kernel->bits - 1)), .n = most_rows(kernel)};
    if (kernel->bits <= 2) p->mul = 1 + (int)below(2);
    if (kernel->codebook) {
        p->codebook = variant % 2 ? codebook_of_255 : crumb_codebook_e2m1;
        p->sub = 0;
    }
    bool in_registers = kernel->x == 32; /* plain rows alone */
    p->group = in_registers ? 0 : groups[variant % N_GROUPS];
    p->act = below(2) || !p->group ? CRUMB_ACT_ROW : CRUMB_ACT_GROUP;
    if (variant == 5 && !in_registers) p->act = CRUMB_ACT_GROUP;
    p->k = p->group ? p->group * (1 + below(small ? 3 : p->group < 64 ? 40 : 6)) : 33 + below(small ? 100 : 700);
    p->k = p->group == 16 ? (uint32_t)crumb_round_up(p->k, 32) : p->k;
    if (kernel->form == CRUMB_CL_GEMV) /* K' in whole pairs of blocks */
        p->k = (uint32_t)(p->group ? crumb_round_up(p->k, p->group < 64 ? 64 : p->group)
                                   : crumb_round_up(p->k, 64) + 192 - below(32));
    if (in_registers) p->k = (uint32_t)crumb_round_up(p->k, kernel->bf16 ? 8 : 4);
    p->m = 16 * (2 + below(small ? 2 : 5)) - below(16);
    p->has_min = below(2);
    p->scales_f32 = below(2);
    if (p->group && below(3) == 0)
        for (p->super_group = 256; crumb_round_up(p->k, 32) % p->super_group || p->super_group % p->group;)
            if ((p->super_group /= 2) < CRUMB_TILE_K) break;
    if (p->super_group < CRUMB_TILE_K) p->super_group = 0;
    p->act_group = 32u << below(3);
    uint32_t whole = p->group ? p->group : (uint32_t)crumb_round_up(p->k, 32);
    while (whole % p->act_group) p->act_group /= 2;
    p->fill = below(4) ? CRUMB_FILL_RANDOM : CRUMB_FILL_SUMS;
}

static uint32_t *random_order(uint32_t k) {
    uint32_t *order = take(k * sizeof *order);
    for (uint32_t i = 0; i < k; i++) order[i] = i;
    for (uint32_t i = k; i > 1; i--) {
        const uint32_t other = below(i), kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    return order;
}

static void make_layer(const crumb_cl_kernel *kernel, uint32_t variant, layer *c) {
    crumb_trial_params p;
    choose_params(kernel, variant, &p);
    p.bf16 = kernel->bf16;
    *c = (layer){.kernel = kernel, .n = 1 + below(small ? 9 : p.n), .out_scale = below(2) ? 1.0f : 0.37f, .eps = 1e-5f};
    assert_int_equal(crumb_trial_create(&p, &seed, &c->trial, NULL), CRUMB_OK);
    if (kernel->max_n < p.n && below(2)) c->n = 1 + below(kernel->max_n);
    c->n_tiles = (uint32_t)crumb_div_up(p.m, CRUMB_TILE_ROWS);
    c->use = (crumb_cl_linear){.w = &c->trial.w, .act = p.act, .act_group = p.act_group};
    c->use.x = kernel->x ? kernel->x : below(2) ? 32 : 8;
    c->use.input = c->use.x == 32 && !kernel->x ? below(4) : 0;
    c->use.ordered = c->use.x == 32 && !kernel->x && below(2);
    if (c->use.ordered) c->order = random_order(p.k);
    c->use.f32_results = !kernel->bf16 || below(4) == 0;
    c->use.n_parts = 1 + below(c->n_tiles < 3 ? c->n_tiles : 3);
    c->use.gated = c->use.n_parts == 2 ? below(3) : 0;
    c->has_bias = below(2);
    c->has_add = c->use.n_parts == 1 && below(2);
    for (uint32_t i = 1; i < c->use.n_parts; i++) c->first_tile[i] = c->n_tiles * i / c->use.n_parts;
    for (uint32_t i = c->use.n_parts; i < 4; i++) c->first_tile[i] = c->n_tiles;
    if (c->use.gated) c->first_tile[2] = 2 * c->first_tile[1]; /* gate and up are as high */
    c->aux = take((size_t)p.n * p.k * sizeof(float));
    for (size_t i = 0; i < (size_t)p.n * p.k; i++) {
        c->aux[i] = crumb_random_f32(&seed);
        if (kernel->bf16 && c->use.input > 1) c->aux[i] = rounded(c->aux[i]);
    }
    for (size_t i = 0; !c->use.f32_results && i < (size_t)p.n * p.m; i++) c->trial.add[i] = rounded(c->trial.add[i]);
}

/* Puts a row's columns in the layer's order. */
static void put_in_order(const layer *c, float *row) {
    const uint32_t k = c->trial.w.k;
    float *kept = take(k * sizeof *kept);
    memcpy(kept, row, k * sizeof *kept);
    for (uint32_t i = 0; c->order && i < k; i++) row[i] = kept[c->order[i]];
    free(kept);
}

/* What the kernel quantizes, in plain C. */
static void make_input(const layer *c, float *x) {
    const crumb_float_ops *ops = &crumb_float_ops__ref;
    uint32_t k = c->trial.w.k;
    for (uint32_t n = 0; n < c->n; n++) {
        const float *from = c->trial.xf + (size_t)n * k, *aux = c->aux + (size_t)n * k;
        float *to = x + (size_t)n * k;
        if (c->use.input == 1)
            ops->rms_norm(from, c->aux, k, c->eps, to);
        else if (c->use.input)
            ops->gated(from, aux, k, c->use.input == 2 ? CRUMB_ACT_FN_SILU : CRUMB_ACT_FN_RELU2, to);
        else
            memcpy(to, from, k * sizeof(float));
        put_in_order(c, to);
    }
}

/* y [n][m] of all rows of the matrix. */
static float *expected_of(const layer *c) {
    const crumb_matrix *w = &c->trial.w;
    float *y = take((size_t)c->n * w->m * sizeof(float)), *x = take((size_t)c->n * w->k * sizeof(float));
    crumb_linear_args args = crumb_trial_args(&c->trial, y, w->m);
    args.n = c->n;
    args.out_scale = c->out_scale;
    args.bias = c->has_bias ? c->trial.bias : NULL;
    args.add = c->has_add ? c->trial.add : NULL;
    args.add_stride = w->m;
    if (c->use.x == 32) {
        make_input(c, x);
        crumb_quantize__ref(x, w->k, w->k, w->bits, 0, c->n, &args.x);
    }
    crumb_linear_i8__ref(&args);
    for (size_t i = 0; !c->use.f32_results && i < (size_t)c->n * w->m; i++) y[i] = rounded(y[i]);
    free(x);
    return y;
}

/* ---- the kernel ---------------------------------------------------------------------------------------------- */

/* The trial's codes in the order that the kernel reads. */
static int8_t *codes_in_order(const layer *c) {
    const crumb_q8 *x = &c->trial.x;
    int8_t *q = take(crumb_cl_linear_x_bytes(c->n, x->k_padded));
    for (uint32_t n = 0; n < c->n; n++)
        for (uint32_t k = 0; k < x->k_padded; k++) {
            size_t row = (size_t)n * x->k_padded,
                   from = k - k % 32 + crumb_tile_plane_position(c->trial.w.bits, k % 32);
            q[crumb_cl_linear_x_place(c->kernel, x->k_padded, n, k)] = x->q[row + from];
        }
    return q;
}

static cl_mem batch_buffer(uint32_t n) {
    uint32_t header[4] = {n + 3, n, 1, 1}; /* linear layers read n_outputs here: on_outputs is 1 */
    return crumb_xe_buffer(&device, header, sizeof header);
}

typedef struct weights {
    cl_mem codes, scales, mins, supers, super_mins, bias, codebook;
} weights;

static weights upload_weights(const layer *c) {
    const crumb_matrix *w = &c->trial.w;
    uint32_t k_padded = (uint32_t)crumb_round_up(w->k, CRUMB_TILE_K), tiles = c->n_tiles;
    size_t n_scales = (size_t)tiles * (k_padded / w->group) * CRUMB_TILE_ROWS;
    size_t scale_bytes = n_scales * (w->super_group ? 1 : w->scales_f32 ? 4 : 2);
    size_t super_bytes = w->super_group ? (size_t)tiles * (k_padded / w->super_group) * CRUMB_TILE_ROWS * 2 : 0;
    return (weights){.codes = crumb_xe_buffer(&device, w->codes, c->trial.codes_bytes),
                     .scales = crumb_xe_buffer(&device, w->scales, scale_bytes),
                     .mins = crumb_xe_buffer(&device, w->mins, w->mins ? scale_bytes : 0),
                     .supers = crumb_xe_buffer(&device, w->supers, super_bytes),
                     .super_mins = crumb_xe_buffer(&device, w->super_mins, w->mins ? super_bytes : 0),
                     .bias = crumb_xe_buffer(&device, c->trial.bias, c->has_bias ? w->m * sizeof(float) : 0),
                     .codebook = crumb_xe_buffer(&device, w->codebook, w->codebook ? 16 : 0)};
}

/* n values as the kernel reads them. */
static cl_mem upload_values(const float *x, size_t n, bool bf16) {
    if (!bf16) return crumb_xe_buffer(&device, x, n * sizeof *x);
    uint16_t *narrow = take(n * sizeof *narrow);
    for (size_t i = 0; i < n; i++) narrow[i] = crumb_f32_to_bf16(x[i]);
    cl_mem buffer = crumb_xe_buffer(&device, narrow, n * sizeof *narrow);
    free(narrow);
    return buffer;
}

static void read_results(cl_mem buffer, float *y, size_t n, bool bf16) {
    uint16_t *narrow = bf16 ? take(n * sizeof *narrow) : NULL;
    crumb_xe_read(&device, buffer, bf16 ? (void *)narrow : y, n * (bf16 ? sizeof *narrow : sizeof *y));
    for (size_t i = 0; bf16 && i < n; i++) y[i] = crumb_bf16_to_f32(narrow[i]);
    free(narrow);
}

static size_t groups_of(const layer *c) {
    size_t n_groups = 0;
    for (uint32_t i = 0; i < (c->use.gated ? 1 : c->use.n_parts); i++)
        n_groups += crumb_div_up(c->first_tile[i + 1] - c->first_tile[i], c->kernel->tiles);
    return n_groups;
}

/* What the kernel that finds scales leaves in sx. */
static void find_scales(const layer *c, cl_mem batch, cl_mem x, cl_mem sx) {
    char options[CRUMB_CL_OPTIONS_MAX];
    crumb_cl_quantize_options(c->kernel, &c->use, options);
    assert_non_null(strstr(options, CRUMB_CL_ONLY_SCALES));
    cl_kernel kernel = crumb_xe_kernel(&device, "quantize.cl", options, false, "quantize_rows");
    crumb_xe_args(kernel, 0, "buubbbfbbbl", batch, 1u, c->trial.w.k, x, NULL, NULL, 0.0, NULL, sx, NULL,
                  sizeof(int32_t));
    crumb_xe_run(&device, kernel, 128, c->n + 1, 1, 1);
    clReleaseKernel(kernel);
}

/* y[part] [n][m], 0xa5 where the kernel wrote nothing. */
static void run_layer(const layer *c, float *y[3]) {
    char options[CRUMB_CL_OPTIONS_MAX];
    const crumb_matrix *w = &c->trial.w;
    const crumb_q8 *q = &c->trial.x;
    const bool bf16 = c->kernel->bf16, narrow_y = !c->use.f32_results;
    size_t n_y = (size_t)c->n * w->m, y_bytes = n_y * (narrow_y ? sizeof(uint16_t) : sizeof(float));
    size_t n_groups = q->k_padded / q->group;
    crumb_cl_linear_options(c->kernel, &c->use, options);
    cl_kernel kernel = crumb_xe_kernel(&device, c->kernel->file, options, c->kernel->sub_group != 0, c->kernel->entry);
    weights b = upload_weights(c);
    int8_t *codes = codes_in_order(c);
    cl_mem batch = batch_buffer(c->n), out[3] = {NULL, NULL, NULL};
    cl_mem x = upload_values(c->trial.xf, (size_t)c->n * w->k, bf16);
    cl_mem aux = upload_values(c->aux, (size_t)c->n * w->k, bf16 && c->use.input > 1);
    cl_mem order = c->order ? crumb_xe_buffer(&device, c->order, w->k * sizeof *c->order) : NULL;
    cl_mem codes_buffer = crumb_xe_buffer(&device, codes, crumb_cl_linear_x_bytes(c->n, q->k_padded));
    cl_mem sx = crumb_xe_buffer(&device, q->sx, (size_t)c->n * (q->row_scale ? 1 : n_groups) * sizeof(float));
    cl_mem qsum = crumb_xe_buffer(&device, q->qsum, (size_t)c->n * n_groups * sizeof(int32_t));
    cl_mem add = c->has_add ? upload_values(c->trial.add, n_y, narrow_y) : NULL;
    if (crumb_cl_linear_scaled(c->kernel)) find_scales(c, batch, x, sx);
    crumb_xe_args(kernel, 0, "buubbbfbbbbiibl", batch, 1u, w->k, x, aux, order, (double)c->eps, codes_buffer, sx, qsum,
                  b.codebook, (int)w->mul, (int)w->sub, add, (size_t)crumb_cl_linear_scratch_bytes(c->kernel, &c->use));
    for (uint32_t i = 0; i < c->use.n_parts; i++) {
        out[i] = crumb_xe_buffer(&device, NULL, y_bytes);
        crumb_xe_args(kernel, 15 + 12 * i, "bbbbbbbuuuuf", b.codes, b.scales, b.mins, b.supers, b.super_mins, b.bias,
                      out[i], c->first_tile[i], c->first_tile[i + 1] - c->first_tile[i], w->m, w->m,
                      (double)c->out_scale);
    }
    crumb_xe_run(&device, kernel, c->kernel->local_size, crumb_div_up(c->n + 3, c->kernel->tokens), groups_of(c), 1);
    for (uint32_t i = 0; i < c->use.n_parts; i++) read_results(out[i], y[i], n_y, narrow_y);
    cl_mem all[] = {batch,    x,      aux,      order,        codes_buffer, sx,         qsum,   add,    b.codes,
                    b.scales, b.mins, b.supers, b.super_mins, b.bias,       b.codebook, out[0], out[1], out[2]};
    crumb_xe_release(sizeof all / sizeof *all, all);
    clReleaseKernel(kernel);
    free(codes);
}

/* ---- comparison ------------------------------------------------------------------------------------------------ */

static void check_value(const layer *c, uint32_t part, uint32_t n, uint32_t m, float got, float want) {
    n_compared++;
    if (memcmp(&got, &want, sizeof got) == 0) return;
    char options[CRUMB_CL_OPTIONS_MAX];
    crumb_cl_linear_options(c->kernel, &c->use, options);
    fail_msg("%s: part %u y[%u][%u] is %a, not %a; m %u k %u n %u bias %d add %d\n%s", c->kernel->name, part, n, m,
             (double)got, (double)want, c->trial.w.m, c->trial.w.k, c->n, c->has_bias, c->has_add, options);
}

static float gate(const layer *c, float a, float b) {
    float y;
    crumb_float_ops__ref.gated(&a, &b, 1, c->use.gated == 1 ? CRUMB_ACT_FN_SILU : CRUMB_ACT_FN_RELU2, &y);
    return c->use.f32_results ? y : rounded(y);
}

static void check_part(const layer *c, uint32_t part, const float *y, const float *expected) {
    uint32_t m0 = c->first_tile[part] * CRUMB_TILE_ROWS, m1 = c->first_tile[part + 1] * CRUMB_TILE_ROWS;
    uint32_t width = c->trial.w.m, untouched = c->use.f32_results ? 0xa5a5a5a5u : 0xa5a50000u;
    for (uint32_t n = 0; n < c->n; n++)
        for (uint32_t m = 0; m < width; m++) {
            float want;
            memcpy(&want, &untouched, sizeof want);
            if (m >= m0 && m < m1 && !(c->use.gated && part == 1)) {
                want = expected[(size_t)n * width + m];
                if (c->use.gated) {
                    if (m + m1 >= width) continue; /* up's last tile is not whole */
                    want = gate(c, want, expected[(size_t)n * width + m + m1]);
                }
            }
            check_value(c, part, n, m, y[(size_t)n * width + m], want);
        }
}

/* False: the kernel does not take that variant. */
static bool compare(const crumb_cl_kernel *kernel, uint32_t variant) {
    layer c;
    make_layer(kernel, variant, &c);
    crumb_cl_target target = {kernel->rung, kernel->sub_group, device.local_bytes, 1024, 0, kernel->bf16, false, false};
    bool fits = crumb_cl_linear_fits(kernel, &c.use, &target);
    if (fits) {
        float *y[3], *expected = expected_of(&c);
        for (int i = 0; i < 3; i++) y[i] = take((size_t)c.n * c.trial.w.m * sizeof(float));
        run_layer(&c, y);
        for (uint32_t i = 0; i < c.use.n_parts; i++) check_part(&c, i, y[i], expected);
        for (int i = 0; i < 3; i++) free(y[i]);
        free(expected);
    }
    free(c.aux);
    free(c.order);
    crumb_trial_destroy(&c.trial);
    return fits;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void need_rung(crumb_cl_rung rung) {
    if (rung == CRUMB_CL_PORTABLE) return;
    if (rung == CRUMB_CL_DP4A && !device.dot) crumb_xe_skip("dot products");
    if (rung != CRUMB_CL_DP4A && !device.sub_groups) crumb_xe_skip("sub-groups");
}

/* Whether a row is compared on scales of every group, which its text has a branch for each: of matrix instructions with
 * the widths that most files have. */
static bool is_on_all_groups(const crumb_cl_kernel *row) {
    return !spirv && row->rung == CRUMB_CL_DPAS && row->form != CRUMB_CL_PLAIN && !row->bf16 && row->x != 32 &&
           (row->bits == 2 || row->bits == 4);
}

/* On one layer that it takes, from number `first` on, or on as many as there are groups; false: the kernel lacks the
 * knobs that are set by hand. */
static bool compare_kernel(const crumb_cl_kernel *row, uint32_t first) {
    const char *variants = getenv("CRUMB_XE_VARIANTS"), *knobs = getenv("CRUMB_XE_KNOBS"); /* more; see cl/variant.h */
    const uint32_t n_variants = variants ? (uint32_t)atoi(variants) : is_on_all_groups(row) ? N_GROUPS : 1;
    crumb_cl_variant v;
    uint32_t n_fit = 0;
    if (!crumb_cl_variant_make(row, knobs ? knobs : "", &v)) return false;
    if (variants) first = 0;
    for (uint32_t i = first; i < first + 64 && (i < first + n_variants || !n_fit); i++) n_fit += compare(&v.kernel, i);
    if (!n_fit) fail_msg("%s takes no layer of 64", row->name);
    return true;
}

static void compare_rung(crumb_cl_rung rung) {
    size_t n, before = n_compared, n_run = 0;
    const char *only = getenv("CRUMB_XE_KERNEL"); /* some, by hand */
    const bool all = only || getenv("CRUMB_XE_ALL");
    const crumb_cl_kernel *kernels = crumb_cl_kernels(&n);
    need_rung(rung);
    for (size_t i = 0; i < n; i++) {
        if (kernels[i].rung != rung || kernels[i].op != CRUMB_CL_LINEAR) continue;
        if (only && !strstr(kernels[i].name, only)) continue;
        if (!all && spirv && (i + i / 4) % 4) continue;                      /* of neighbours each in its turn */
        if (!all && kernels[i].bf16 && kernels[i].x == 0 && i % 8) continue; /* they differ at both ends alone */
        const bool of_16 = kernels[i].form == CRUMB_CL_GEMM && kernels[i].groups && kernels[i].bits == 2;
        n_run += compare_kernel(&kernels[i], of_16 ? 3 : (uint32_t)n_run + 1); /* groups of 16, where it takes them */
    }
    print_message("%s: %zu kernels, %zu values equal\n", crumb_cl_rung_name(rung), n_run, n_compared - before);
    if (only && n_run == 0) skip();
    assert_true(n_run > 0);
}

static void portable_kernels_equal_reference(void **state) {
    (void)state;
    compare_rung(CRUMB_CL_PORTABLE);
}
static void dp4a_kernels_equal_reference(void **state) {
    (void)state;
    compare_rung(CRUMB_CL_DP4A);
}
static void dpas_i8_kernels_equal_reference(void **state) {
    (void)state;
    compare_rung(CRUMB_CL_DPAS_I8);
}
static void dpas_kernels_equal_reference(void **state) {
    (void)state;
    compare_rung(CRUMB_CL_DPAS);
}

int main(void) {
    const char *given = getenv("CRUMB_TEST_SEED");
    small = getenv("CRUMB_XE_SMALL") != NULL;
    spirv = getenv("CRUMB_XE_OCLOC") != NULL;
    if (given) seed = strtoull(given, NULL, 10);
    printf("CRUMB_TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(portable_kernels_equal_reference),
        cmocka_unit_test(dp4a_kernels_equal_reference),
        cmocka_unit_test(dpas_i8_kernels_equal_reference),
        cmocka_unit_test(dpas_kernels_equal_reference),
    };
    return crumb_xe_run_tests(&device, tests, sizeof tests / sizeof *tests);
}
