#include "tests/kernels/linear_case.h"

#include "host/base/checked.h"
#include "host/base/half.h"

#include <stdlib.h>
#include <string.h>

uint64_t case_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

float case_random_f32(uint64_t *state) {
    return (float)(int32_t)(case_random(state) >> 32) * 0x1p-31f;
}

static void *must_alloc(size_t n_bytes) {
    void *p = aligned_alloc(64, crumb_round_up(n_bytes + !n_bytes, 64));
    if (!p) abort();
    return p;
}

static unsigned largest_code(const case_params *p) {
    return p->max_code ? p->max_code : (1u << p->bits) - 1;
}

static unsigned code_of_largest_value(const case_params *p) {
    unsigned code = 0;
    if (!p->codebook) return largest_code(p);
    for (unsigned i = 1; i < CRUMB_CODEBOOK_ENTRIES; i++)
        if (p->codebook[i] > p->codebook[code]) code = i;
    return code;
}

static void *random_codes(const case_params *p, size_t n_bytes, uint64_t *state) {
    uint8_t *codes = must_alloc(n_bytes);
    bool extreme = p->fill == FILL_POSITIVE || p->fill == FILL_NEGATIVE;
    const unsigned largest = largest_code(p), chosen = code_of_largest_value(p);
    for (size_t i = 0; i < n_bytes; i++) {
        codes[i] = 0;
        for (unsigned bit = 0; bit < 8; bit += p->bits)
            codes[i] |= (uint8_t)((extreme ? chosen : case_random(state) % (largest + 1)) << bit);
    }
    return codes;
}

/* n_sets sets of n_groups scales for 16 rows. With sums only one group of each set counts. */
static void *random_scales(const case_params *p, size_t n_sets, size_t n_groups, uint64_t *state) {
    void *scales = must_alloc(n_sets * n_groups * CRUMB_TILE_ROWS * (p->scales_f32 ? 4 : 2));
    for (size_t set = 0; set < n_sets; set++) {
        size_t chosen = case_random(state) % n_groups;
        for (size_t i = 0; i < n_groups * CRUMB_TILE_ROWS; i++) {
            size_t at = set * n_groups * CRUMB_TILE_ROWS + i;
            float value = case_random_f32(state) * 0.25f;
            if (p->fill != FILL_RANDOM) value = i / CRUMB_TILE_ROWS == chosen ? 1.0f : 0.0f;
            if (p->scales_f32)
                ((float *)scales)[at] = value;
            else
                ((uint16_t *)scales)[at] = crumb_f32_to_f16(value);
        }
    }
    return scales;
}

static void fill_activations(const case_params *p, crumb_q8 *x, uint64_t *state) {
    uint32_t n_groups = x->k_padded / x->group;
    size_t n_sx = p->act == CRUMB_ACT_ROW ? p->n : (size_t)p->n * n_groups;
    x->q = must_alloc((size_t)p->n * x->k_padded);
    x->qsum = must_alloc((size_t)p->n * n_groups * sizeof(int32_t));
    x->sx = must_alloc(n_sx * sizeof(float));
    for (size_t i = 0; i < (size_t)p->n * x->k_padded; i++) {
        bool padding = i % x->k_padded / 32 * 32 + 32 > p->k && p->k % 32; /* kernels may not rely on zeros there */
        x->q[i] = p->fill == FILL_POSITIVE ? 127 : p->fill == FILL_NEGATIVE ? -128 : (int8_t)case_random(state);
        if (padding) x->q[i] = 0;
    }
    for (size_t i = 0; i < (size_t)p->n * n_groups; i++) {
        x->qsum[i] = 0;
        for (uint32_t j = 0; j < x->group; j++) x->qsum[i] += x->q[i * x->group + j];
    }
    for (size_t i = 0; i < n_sx; i++) x->sx[i] = p->fill == FILL_RANDOM ? case_random_f32(state) : 1.0f;
}

void case_create(const case_params *p, uint64_t *state, linear_case *out) {
    uint32_t k_padded = (uint32_t)crumb_round_up(p->k, CRUMB_TILE_K);
    uint32_t group = p->group ? p->group : k_padded;
    size_t n_tiles = crumb_div_up(p->m, CRUMB_TILE_ROWS);
    *out = (linear_case){.n = p->n};
    out->w = (crumb_matrix){.bits = (uint8_t)p->bits,
                            .max_code = (uint8_t)largest_code(p),
                            .scales_f32 = p->scales_f32,
                            .mul = (int16_t)p->mul,
                            .sub = (int16_t)p->sub,
                            .codebook = p->codebook,
                            .m = p->m,
                            .k = p->k,
                            .group = group};
    out->w.codes = random_codes(p, n_tiles * CRUMB_TILE_ROWS * k_padded * p->bits / 8, state);
    out->w.scales = random_scales(p, n_tiles, k_padded / group, state);
    out->w.mins = p->has_min ? random_scales(p, n_tiles, k_padded / group, state) : NULL;
    out->x.k_padded = k_padded;
    out->x.row_scale = p->act == CRUMB_ACT_ROW;
    out->x.group = out->x.row_scale ? group : p->act_group;
    fill_activations(p, &out->x, state);
    out->bias = must_alloc(p->m * sizeof(float));
    out->add = must_alloc((size_t)p->n * p->m * sizeof(float));
    for (size_t i = 0; i < p->m; i++) out->bias[i] = case_random_f32(state);
    for (size_t i = 0; i < (size_t)p->n * p->m; i++) out->add[i] = case_random_f32(state);
    out->scratch_bytes = crumb_cpu_kernel_scratch(&out->w);
    out->scratch = must_alloc(out->scratch_bytes);
}

void case_destroy(linear_case *c) {
    free((void *)c->w.codes);
    free((void *)c->w.scales);
    free((void *)c->w.mins);
    free(c->x.q);
    free(c->x.qsum);
    free(c->x.sx);
    free(c->bias);
    free(c->add);
    free(c->scratch);
}

crumb_linear_args case_args(const linear_case *c, float *y, size_t y_stride) {
    return (crumb_linear_args){.w = &c->w,
                               .x = c->x,
                               .n = c->n,
                               .tile0 = 0,
                               .tile1 = (uint32_t)crumb_div_up(c->w.m, CRUMB_TILE_ROWS),
                               .y = y,
                               .y_stride = y_stride,
                               .out_scale = 1.0f,
                               .scratch = c->scratch,
                               .scratch_bytes = c->scratch_bytes};
}
