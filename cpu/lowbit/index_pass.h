/* A pass of a GEMV over weights in the index layout (host/lowbit/index.h): what its ways of summing share.
 *
 * Included after a tier's simd.h.
 */
#ifndef CRUMB_CPU_LOWBIT_INDEX_PASS_H
#define CRUMB_CPU_LOWBIT_INDEX_PASS_H

#include "cpu/lowbit/gemv.h"

/* How lines become sums. */
typedef struct index_way {
    gemv_groups_fn *groups[3]; /* for 1, 2 and 4 streams */
    gemv_groups_fn *pair;      /* for one stream and two rows of activations, which fill the registers, or NULL */
    int streams, zero;         /* by default; zero point of what is summed */
    size_t row_bytes;          /* of a->prepared, for each row of activations */
} index_way;

/* Every tile-row meets all activations while it is in a cache. */
static void index_run(const crumb_linear_args *a, const shape *s, gemv_pass *pass, const index_way *way) {
    const uint32_t n_tiles = a->tile1 - a->tile0, n_streams = (uint32_t)pass->streams,
                   step = (n_tiles + n_streams - 1) / n_streams;
    for (uint32_t i = 0; i < step; i++) {
        for (uint32_t t = 0; t < n_streams; t++) pass->tile[t] = a->tile0 + t * step + i;
        for (pass->n0 = 0; pass->n0 < a->n; pass->n0 += (uint32_t)pass->columns) {
            pass->columns = way->pair && a->n - pass->n0 >= 2 ? 2 : 1;
            pass->groups = pass->columns == 2 ? way->pair : way->groups[n_streams / 2];
            gemv_run_pass(a, s, pass);
        }
    }
}

/* a->prepared are what the layout made of the activations. */
static inline void gemv_index(const crumb_linear_args *a, int bits, const index_way *way) {
    shape s = shape_of(a, bits);
    const uint32_t n_lines = crumb_index_lines(a->w);
    s.tile_bytes = (size_t)n_lines * CRUMB_INDEX_LINE_BYTES;
    gemv_pass pass = {.near = GEMV_NEAR_BYTES,
                      .far = GEMV_FAR_BYTES,
                      .zero = way->zero,
                      .table = v_zero(),
                      .streams = gemv_row_streams(a, way->streams),
                      .group_lines = n_lines / s.n_groups,
                      .q = a->prepared,
                      .q_stride = way->row_bytes};
    if (way->pair && a->n >= 2) pass.streams = 1;
    if (a->effect)
        gemv_tell(a, &pass);
    else
        index_run(a, &s, &pass, way);
}

#endif
