/* Block sizes of the low-bit GEMM, from a model of the machine's L1 and L2 (that of QIGen, arXiv:2307.03738, with one
 * level each; cpu/caches.h), and the scratch they take.
 *
 * At most three quarters of L1 are for a strip's panels, the rest for the activations and sums that pass (and for what
 * another thread of the same core keeps there); three quarters of a core's L2 for the activations of a block of
 * columns, the rest for their sums and for the codes that stream. */
#ifndef CRUMB_CPU_LOWBIT_GEMM_SHAPE_H
#define CRUMB_CPU_LOWBIT_GEMM_SHAPE_H

#include "cpu/caches.h"
#include "cpu/kernels.h"
#include "host/base/checked.h"

enum {
    GEMM_STEP_BYTES = CRUMB_TILE_ROWS * 4, /* of a panel: four k of a tile-row */
    GEMM_MOST_STEPS = 256,                 /* of a panel: larger ones gain nothing */
    GEMM_MOST_STEPS_OF_TWO = 160,          /* of each of two: whole GEMM_TRIT_UNITs, and K = 576 is one */
    GEMM_LEAST_STEPS = 32,
    /* Panels of ternary bytes begin at multiples of 8 steps and of 5 (panel_index.h); reach (dot16.h) counts 500. */
    GEMM_TRIT_UNIT = 40,
    GEMM_TRIT_MOST = 7 * GEMM_TRIT_UNIT,
    GEMM_PANEL = GEMM_TRIT_MOST * GEMM_STEP_BYTES, /* bytes that a tile-row's panel has room for */
    GEMM_MAX_PANELS = 2,                           /* of a strip with two tile-rows, or of codes of 16 bits */
    GEMM_MIN_COLUMNS = 96,                     /* so that unpacking stays a small part; long rows then stream from L3 */
    GEMM_MAX_COLUMNS = 384,                    /* so that their sums stay in L2 as well */
    GEMM_CHUNK_GROUPS = GEMM_TRIT_MOST / 4 + 1 /* of 16 */
};

/* The most whole units in n_steps, at least one. */
static inline uint32_t crumb_gemm_whole_units(uint32_t n_steps, uint32_t unit) {
    return n_steps < unit ? unit : n_steps / unit * unit;
}

/* The most steps of a panel: as many as L1 has room for in n_panels, in whole units of `unit` steps. */
static inline uint32_t crumb_gemm_panel_steps(uint32_t n_panels, uint32_t unit, const crumb_caches *caches) {
    uint32_t most = n_panels > 1 ? GEMM_MOST_STEPS_OF_TWO : GEMM_MOST_STEPS;
    if (n_panels == 1 && unit == GEMM_TRIT_UNIT) most = GEMM_TRIT_MOST;
    uint32_t fit = caches->l1_bytes / 4 * 3 / (n_panels * GEMM_STEP_BYTES);
    if (fit < GEMM_LEAST_STEPS) fit = GEMM_LEAST_STEPS;
    return crumb_gemm_whole_units(fit < most ? fit : most, unit);
}

/* Steps of K per panel, for rows of n_steps in groups of group_steps: as even as whole groups allow where they are
 * smaller than a panel, and whole 32-blocks where not, since every panel costs a pass over all columns' sums. */
static inline uint32_t crumb_gemm_chunk_steps(uint32_t n_steps, uint32_t group_steps, uint32_t n_panels, bool trits,
                                              const crumb_cpu_knobs *knobs) {
    const crumb_caches caches = crumb_caches_get();
    const uint32_t block = trits ? GEMM_TRIT_UNIT : CRUMB_TILE_K / 4;
    uint32_t most =
        knobs->steps ? crumb_gemm_whole_units(knobs->steps, block) : crumb_gemm_panel_steps(n_panels, block, &caches);
    const uint32_t unit = trits || group_steps > most || group_steps < block ? block : group_steps;
    most = crumb_gemm_whole_units(most, unit);
    const uint32_t n_chunks = (n_steps + most - 1) / most;
    return crumb_round_up((n_steps + n_chunks - 1) / n_chunks, unit);
}

/* The most columns (rows of activations) per block for K. */
static inline uint32_t crumb_gemm_most_columns(uint32_t k_padded, const crumb_cpu_knobs *knobs) {
    const crumb_caches caches = crumb_caches_get();
    uint32_t fit = knobs->columns ? knobs->columns : caches.l2_bytes / 4 * 3 / k_padded;
    if (!knobs->columns && fit < GEMM_MIN_COLUMNS) fit = GEMM_MIN_COLUMNS;
    return fit > GEMM_MAX_COLUMNS ? GEMM_MAX_COLUMNS : fit / CRUMB_INTERLEAVE_ROWS * CRUMB_INTERLEAVE_ROWS;
}

/* Columns of each block when there are n: as even as whole register blocks allow, because each block unpacks anew. */
static inline uint32_t crumb_gemm_block_columns(uint32_t n, uint32_t k_padded, const crumb_cpu_knobs *knobs) {
    uint32_t most = crumb_gemm_most_columns(k_padded, knobs), n_blocks = (n + most - 1) / most;
    uint32_t even = crumb_round_up((n + n_blocks - 1) / n_blocks, CRUMB_INTERLEAVE_ROWS);
    return n < even ? n : even;
}

/* Scratch bytes per thread for up to n rows of activations: panels, scales and mins of a chunk, then per column its
 * activations, sums and accumulators of a strip, three words per group of 16, and reach and spans per 32-block. */
static inline size_t crumb_gemm_scratch_bytes(uint32_t n, uint32_t k_padded, const crumb_cpu_knobs *knobs) {
    size_t columns = crumb_gemm_most_columns(k_padded, knobs), strip = CRUMB_STRIP_TILES * CRUMB_TILE_ROWS * 4;
    if (n < columns) columns = crumb_round_up(n, CRUMB_INTERLEAVE_ROWS);
    return GEMM_PANEL * GEMM_MAX_PANELS + GEMM_CHUNK_GROUPS * strip * 2 +
           columns * (strip * 2 + (size_t)k_padded * CRUMB_INTERLEAVE_BYTES + k_padded / 16 * 12 +
                      k_padded / CRUMB_TILE_K * (CRUMB_Q8_REACH + 1) * 2);
}

#endif
