/* What the parts of the low-bit GEMM share: a block of columns and its sums, and how columns make register blocks.
 *
 * A *strip* is the tile-rows whose panels are met in one pass, GEMM_TILES of them: two vectors of rows in every tier,
 * so that an activation is broadcast once for both. Included by gemm.h.
 */
#ifndef CRUMB_CPU_LOWBIT_GEMM_BLOCK_H
#define CRUMB_CPU_LOWBIT_GEMM_BLOCK_H

#include "cpu/lowbit/gemm_shape.h"
#include "cpu/lowbit/panel.h"

enum {
    GEMM_VECTORS = 2,
    GEMM_TILES = GEMM_VECTORS / TILE_VECTORS,
    GEMM_ROWS = GEMM_TILES * CRUMB_TILE_ROWS,
    GEMM_SHORT = 1 << 15 /* in gemm_block.spans */
};

/* One block of columns and its sums; all in the thread's scratch. */
typedef struct gemm_block {
    const crumb_linear_args *a;
    shape s;
    panel_fn *unpack;
    vint table;         /* of a codebook */
    uint32_t most_code; /* the largest operand */
    uint32_t chunk_steps;
    size_t far; /* of unpack */
    uint32_t n0, n_columns;
    const int8_t *q;       /* activations: the register block from column c on begins with code c * k_padded;
                            * [step][column][4] of gemm_code_bytes */
    int8_t *local_q;       /* room for them */
    const uint16_t *reach; /* of the activations, where accumulators have a limit: as in crumb_q8 */
    uint16_t *local_reach; /* room for it */
    uint16_t *spans; /* [n_columns][32-blocks], at a register block's first column: the block after the span that begins
                      * here, and GEMM_SHORT where accumulators may not even hold one block */
    uint8_t *panel;  /* [GEMM_TILES], GEMM_PANEL apart: [steps of the chunk][parts][16 rows], 4 bytes of a row each */
    float *scales;   /* [groups of the chunk][GEMM_ROWS] */
    float *mins;     /* as scales */
    size_t stride;   /* columns that there is room for */
    float *sx;       /* [n_groups][stride]: the activations' scales; 1 where they are per row */
    bool biased;     /* a group's sums are small, and have V_F32_BIAS with their zero point */
    int32_t *offsets; /* as sx: -sub * qsum, and the bias */
    float *sx_qsums;  /* as sx: sx * qsum, for mins */
    int32_t *sums;    /* [n_columns][GEMM_ROWS]: sums of an unfinished group */
    float *accs;      /* as sums; between strips 0 */
} gemm_block;

/* What groups of activations are: half a 32-block, one, or more of them. */
typedef enum gemm_groups { GEMM_ANY, GEMM_BLOCKS, GEMM_HALVES } gemm_groups;

/* How activations lie for a kind: bytes; bytes of which each two steps become a step of either half of a 32-block; or
 * numbers of 16 bits in the order of a step's parts. */
typedef enum gemm_order { GEMM_BYTES, GEMM_BYTE_HALVES, GEMM_WORDS } gemm_order;

/* Whether accumulators may hold less than a 32-block. */
SIMD_INLINE bool gemm_is_short(int kind) {
    return gemm_unit_steps(kind) < BLOCK_STEPS;
}

SIMD_INLINE gemm_groups gemm_groups_of(uint32_t group) {
    return group < CRUMB_TILE_K ? GEMM_HALVES : group == CRUMB_TILE_K ? GEMM_BLOCKS : GEMM_ANY;
}

/* Steps are made of bytes of one half each: of smaller codes planes are, and where a step has parts they are. */
SIMD_INLINE gemm_order gemm_order_of(int bits, gemm_groups groups) {
    if (gemm_code_bytes(bits) > 1) return GEMM_WORDS;
    return bits == 8 && groups == GEMM_HALVES ? GEMM_BYTE_HALVES : GEMM_BYTES;
}

/* Columns of a register block, of as many as there are registers for. Where accumulators rarely hold a 32-block, sums
 * take registers as well, and so do the weights of a step's second part. */
SIMD_INLINE int gemm_wide(int bits, gemm_groups groups) {
    const bool few = groups != GEMM_ANY || gemm_unit_steps(bits) < BLOCK_STEPS / 2 || gemm_parts(bits) > 1;
    return few ? GEMM_WHOLE_COLUMNS : GEMM_REGISTER_COLUMNS;
}

/* Columns of the next register block where `left` are left: all, half of them, two or one. */
SIMD_INLINE uint32_t gemm_next_columns(uint32_t left, uint32_t wide) {
    if (left >= wide) return wide;
    return wide > 4 && left >= wide / 2 ? wide / 2 : wide > 2 && left >= 2 ? 2 : 1;
}

#endif
