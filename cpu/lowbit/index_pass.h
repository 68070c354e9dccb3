/* A pass of a GEMV over weights in the index layout (host/lowbit/index.h): what its ways of summing share.
 *
 * Included after a tier's simd.h.
 */
#ifndef CRUMB_CPU_LOWBIT_INDEX_PASS_H
#define CRUMB_CPU_LOWBIT_INDEX_PASS_H

#include "cpu/lowbit/gemv.h"

/* How lines become sums. */
typedef struct index_way {
    gemv_sums_fn *sums[3]; /* for 1, 2 and 4 streams */
    int streams;           /* by default */
    int zero;              /* point of what is summed */
    size_t row_bytes;      /* of a->prepared, for each row of activations */
} index_way;

/* a->prepared are what the layout made of the activations. */
static inline void gemv_index(const crumb_linear_args *a, int bits, const index_way *way) {
    shape s = shape_of(a, bits);
    const uint32_t n_lines = crumb_index_lines(a->w);
    s.tile_bytes = (size_t)n_lines * CRUMB_INDEX_LINE_BYTES;
    gemv_pass pass = {.zero = way->zero,
                      .table = v_zero(),
                      .columns = 1,
                      .streams = a->knobs.streams ? (int)a->knobs.streams : way->streams,
                      .group_lines = n_lines / s.n_groups,
                      .q = a->prepared,
                      .q_stride = way->row_bytes};
    if (a->effect) {
        gemv_tell(a, &pass);
        return;
    }
    pass.sums = way->sums[pass.streams / 2];
    gemv_run_streams(a, &s, &pass, a->n);
}

#endif
