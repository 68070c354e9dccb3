/* Block sizes of the low-bit GEMM, from a model of L1 and L2 (that of QIGen, arXiv:2307.03738, with one level each),
 * and the scratch they take. */
#ifndef CRUMB_CPU_LOWBIT_GEMM_SHAPE_H
#define CRUMB_CPU_LOWBIT_GEMM_SHAPE_H

#include "cpu/kernels.h"
#include "host/base/checked.h"

enum {
    GEMM_CHUNK_STEPS = 256, /* steps of four k in a panel: with its 64 bytes each, half of L1 */
    GEMM_TRIT_STEPS = 280,  /* the same for ternary bytes: a multiple of 8 steps, and of 5 (panel_index.h); reach
                             * (dot16.h) counts 500 at most */
    GEMM_PANEL = GEMM_TRIT_STEPS * CRUMB_TILE_ROWS * 4, /* bytes that a tile-row's panel has room for */
    GEMM_MAX_PANELS = 2,          /* of a strip with two tile-rows, or of codes that are two nibbles */
    GEMM_BLOCK_BYTES = 384 << 10, /* activations of one block of columns: most of a small L2 */
    GEMM_MIN_COLUMNS = 96,        /* so that unpacking stays a small part; long rows then stream from L3 */
    GEMM_MAX_COLUMNS = 384,       /* so that their sums stay in L2 as well */
    GEMM_CHUNK_GROUPS = GEMM_TRIT_STEPS / 4 + 1 /* of 16 */
};

/* The most columns (rows of activations) per block for K. */
static inline uint32_t crumb_gemm_most_columns(uint32_t k_padded, const crumb_cpu_knobs *knobs) {
    uint32_t fit = (knobs->block_kb ? knobs->block_kb << 10 : GEMM_BLOCK_BYTES) / k_padded;
    uint32_t least = knobs->columns ? knobs->columns : GEMM_MIN_COLUMNS;
    if (fit < least) fit = least;
    return fit > GEMM_MAX_COLUMNS ? GEMM_MAX_COLUMNS : fit / CRUMB_INTERLEAVE_ROWS * CRUMB_INTERLEAVE_ROWS;
}

/* Columns of each block when there are n: as even as whole register blocks allow, because each block unpacks anew. */
static inline uint32_t crumb_gemm_block_columns(uint32_t n, uint32_t k_padded, const crumb_cpu_knobs *knobs) {
    uint32_t most = crumb_gemm_most_columns(k_padded, knobs), n_blocks = (n + most - 1) / most;
    uint32_t even = crumb_round_up((n + n_blocks - 1) / n_blocks, CRUMB_INTERLEAVE_ROWS);
    return n < even ? n : even;
}

/* Scratch bytes per thread for any n: panels, scales and mins of a chunk, then per column its activations, sums
 * and accumulators of a strip, three words per group of 16, and reach and spans per 32-block. */
static inline size_t crumb_gemm_scratch_bytes(uint32_t k_padded, const crumb_cpu_knobs *knobs) {
    size_t columns = crumb_gemm_most_columns(k_padded, knobs), strip = CRUMB_STRIP_TILES * CRUMB_TILE_ROWS * 4;
    return GEMM_PANEL * GEMM_MAX_PANELS + GEMM_CHUNK_GROUPS * strip * 2 +
           columns * (strip * 2 + k_padded + k_padded / 16 * 12 + k_padded / CRUMB_TILE_K * (CRUMB_Q8_REACH + 1) * 2);
}

#endif
