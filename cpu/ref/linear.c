/* The scalar reference of the low-bit linear layers: cpu/kernels.h's sequence, one weight at a time. */
#include "cpu/kernels.h"

#include <math.h>

static float finish(const crumb_linear_args *a, uint32_t n, uint32_t m, float acc) {
    float y = a->out_scale == 1.0f ? acc : acc * a->out_scale;
    if (a->bias) y = y + a->bias[m];
    if (a->add) y = y + a->add[n * a->add_stride + m];
    return y;
}

/* values: of row m's codes, by k. */
static float dot(const crumb_linear_args *a, uint32_t n, uint32_t m, const int32_t *values) {
    const crumb_matrix *w = a->w;
    const crumb_q8 *x = &a->x;
    uint32_t n_groups = x->k_padded / x->group;
    const int8_t *q = x->q + (size_t)n * x->k_padded;
    float acc = 0;
    for (uint32_t g = 0; g < n_groups; g++) {
        int64_t sum = 0;
        for (uint32_t k = g * x->group; k < (g + 1) * x->group; k++)
            sum += (int64_t)values[k] * q[k / 32 * 32 + crumb_tile_plane_position(w->bits, k % 32)];
        int32_t s = (int32_t)sum, qsum = x->qsum[(size_t)n * n_groups + g];
        uint32_t weight_group = (uint32_t)((uint64_t)g * x->group / w->group);
        float sx = x->row_scale ? 1.0f : x->sx[(size_t)n * n_groups + g];
        acc = fmaf(crumb_matrix_scale(w, m, weight_group), sx * (float)s, acc);
        if (w->mins) acc = fmaf(crumb_matrix_min(w, m, weight_group), sx * (float)qsum, acc);
    }
    return x->row_scale ? acc * x->sx[n] : acc;
}

static uint32_t row_end(const crumb_linear_args *a) {
    uint64_t end = (uint64_t)a->tile1 * CRUMB_TILE_ROWS;
    return end < a->w->m ? (uint32_t)end : a->w->m;
}

void crumb_linear_i8__ref(const crumb_linear_args *a) {
    int32_t *values = a->scratch;
    for (uint32_t m = a->tile0 * CRUMB_TILE_ROWS; m < row_end(a); m++) {
        for (uint32_t k = 0; k < a->x.k_padded; k++)
            values[k] = crumb_matrix_code_value(a->w, crumb_matrix_code(a->w, m, k));
        for (uint32_t n = 0; n < a->n; n++) a->y[n * a->y_stride + m] = finish(a, n, m, dot(a, n, m, values));
    }
}

/* Weights decoded on the fly, activations in f32, sums in double: what exact arithmetic would give, nearly. */
void crumb_linear_f32__ref(const crumb_linear_args *a) {
    const crumb_matrix *w = a->w;
    float *row = a->scratch;
    for (uint32_t m = a->tile0 * CRUMB_TILE_ROWS; m < row_end(a); m++) {
        for (uint32_t k = 0; k < w->k; k++) {
            float min = crumb_matrix_min(w, m, k / w->group);
            row[k] =
                crumb_matrix_scale(w, m, k / w->group) * (float)crumb_matrix_code_value(w, crumb_matrix_code(w, m, k)) +
                min;
        }
        for (uint32_t n = 0; n < a->n; n++) {
            double sum = 0;
            for (uint32_t k = 0; k < w->k; k++) sum += (double)row[k] * (double)a->xf[n * a->xf_stride + k];
            a->y[n * a->y_stride + m] = finish(a, n, m, (float)sum);
        }
    }
}

/* The same for the index layout, wherever it lies. */
static void run_on_indices(crumb_linear_args a, crumb_linear_fn *run) {
    crumb_matrix w = *a.w;
    w.codes = a.packed;
    w.indexed = true;
    a.w = &w;
    run(&a);
}

void crumb_linear_index_i8__ref(const crumb_linear_args *a) {
    run_on_indices(*a, crumb_linear_i8__ref);
}

void crumb_linear_index_f32__ref(const crumb_linear_args *a) {
    run_on_indices(*a, crumb_linear_f32__ref);
}
