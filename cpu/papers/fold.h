/* How the papers' kernels end a sum group: the float sequence of cpu/kernels.h for 8 rows per vector, so that they can
 * be compared with the reference bit for bit. Included after a 256-bit tier's simd.h. */
#ifndef CRUMB_CPU_PAPERS_FOLD_H
#define CRUMB_CPU_PAPERS_FOLD_H

#include "cpu/lowbit/linear.h"

/* The sums S of group g of activation row n join the accumulators of rows 8 * first .. in vectors of 8. */
SIMD_INLINE void papers_fold_values(const crumb_linear_args *a, const shape *s, uint32_t first, const int n_vectors,
                                    uint32_t n, uint32_t g, const vint *sums, vflt *acc) {
    const size_t at = (size_t)n * s->n_groups + g;
    const uint32_t scale = g / s->scale_groups;
    const uint32_t last_tile = (a->w->m - 1) / CRUMB_TILE_ROWS;
    const float sx = a->x.row_scale ? 1.0f : a->x.sx[at];
    for (int v = 0; v < n_vectors; v++) {
        uint32_t tile = (first + (uint32_t)v) / TILE_VECTORS, part = (first + (uint32_t)v) % TILE_VECTORS;
        if (tile > last_tile) continue; /* padding of a row block */
        const tile_scales scales = scales_of_tile(a, s, tile);
        vflt sum = v_mul_f32(v_broadcast_f32(sx), v_to_f32(sums[v]));
        acc[v] = v_fma_f32(load_scale(&scales, s, scale, (int)part), sum, acc[v]);
        if (!a->w->mins) continue;
        const tile_scales mins = mins_of_tile(a, s, tile);
        vflt sx_qsum = v_broadcast_f32(sx * (float)a->x.qsum[at]);
        acc[v] = v_fma_f32(load_scale(&mins, s, scale, (int)part), sx_qsum, acc[v]);
    }
}

/* The same for kernels that multiply codes: sums are mul * sum(u*q). */
SIMD_INLINE void papers_fold(const crumb_linear_args *a, const shape *s, uint32_t first, const int n_vectors,
                             uint32_t n, uint32_t g, vint *sums, vflt *acc) {
    const vint zero = v_broadcast(a->w->sub * a->x.qsum[(size_t)n * s->n_groups + g]);
    for (int v = 0; v < n_vectors; v++) sums[v] = v_sub(sums[v], zero);
    papers_fold_values(a, s, first, n_vectors, n, g, sums, acc);
}

/* The results of the same rows, those that exist. */
SIMD_INLINE void papers_finish(const crumb_linear_args *a, uint32_t first, const int n_vectors, uint32_t n,
                               const vflt *acc) {
    for (int v = 0; v < n_vectors; v++) {
        uint32_t m = (first + (uint32_t)v) * SIMD_LANES;
        if (m < a->w->m) finish_rows(a, n, m, acc[v]);
    }
}

#endif
