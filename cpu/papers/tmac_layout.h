/* T-MAC: Wei et al., "T-MAC: CPU Renaissance via Table Lookup for Low-Bit LLM Deployment on Edge" (EuroSys 2025). How
 * its weights and tables lie, for every subset of its techniques; cpu/papers/tmac.h has the kernel.
 *
 * Bit-wise tables. A code is u = sum(2^i * b_i) of its bits. With t_i = 2 * b_i - 1 in {-1, +1} (the paper's linear
 * transformation, section 4), u = (sum(2^i * t_i) + 2^bits - 1) / 2, and a group of weights contributes
 *
 *     sum_k (scale * (mul * u - sub) + min) * x
 *         = scale * (mul / 2 * sum_i 2^i * R_i + (mul * (2^bits - 1) / 2 - sub) * X) + min * X
 *     R_i = sum_k t_i * x,  X = sum_k x
 *
 * whatever mul and sub a file has. For every four activations a table holds the 16 sums +-x0 +-x1 +-x2 +-x3, entry p
 * with + where p has a bit; R_i is a sum of entries, looked up with four bits b_i of a row at once. Without the
 * transformation bits count as 0 and 1: an entry is the sum of those x for which p has a bit, and a group contributes
 *
 *     scale * (mul * sum_i 2^i * S_i - sub * X) + min * X,  S_i = sum_k b_i * x
 *
 * Table quantization (section 3.3) makes entries bytes, round(127 * entry / a) + 128, a being the largest entry of a
 * table group; without it they are fp16, in two byte tables. Sums over set bits are no larger, and half as large where
 * signs are even, but count twice as much in the result: they are rounded up to twice as coarsely.
 *
 * Mirror consolidation keeps entries 0 .. 7 only, since entry p is -entry[15 - p]; a byte modulo 256 and an fp16 number
 * are as easily negated. It needs the transformation: sums over set bits have no such mirror.
 */
#ifndef CRUMB_CPU_PAPERS_TMAC_LAYOUT_H
#define CRUMB_CPU_PAPERS_TMAC_LAYOUT_H

#include "cpu/kernels.h"

#include "host/base/checked.h"

enum {
    TMAC_TABLES = 8,      /* that registers hold at once: one step along K */
    TMAC_STEP_K = 32,     /* of four activations each */
    TMAC_BLOCK_ROWS = 64, /* whose indices into one table are two a byte, a vector of bytes */
    TMAC_BLOCK_BYTES = 32,
    TMAC_TILE_BLOCKS = 8, /* that a step meets before the next one: their sums stay in the first-level cache */
    TMAC_TILE_ROWS = TMAC_TILE_BLOCKS * TMAC_BLOCK_ROWS,
    TMAC_GROUP_STEPS = 2 /* of a table group at most: 16 tables x 127 x (1 + 2 + 4 + 8) < 2^15 */
};

/* The paper's techniques, each of which can be left out. */
typedef struct tmac_method {
    bool transformed; /* bits count as -1 and +1, not as 0 and 1 */
    bool quantized;   /* bytes as table entries, not fp16 */
    bool mirrored;    /* 8 entries of a table are stored, not 16; only where bits are transformed */
    bool tiled;       /* a step's tables meet the rows of a tile, not of a block, before the next step */
    bool permuted;    /* indices lie as they are read, not as [bit][K/4][M] */
    bool interleaved; /* a block's bytes hold its first rows in their low halves, not neighbours */
    bool averaged;    /* fast aggregation: bytes are averaged in a tree, not added as 16 bits; lossy */
} tmac_method;

/* Each step of the ablation has what the one before has. */
#define TMAC_UPTO_TABLES       .transformed = true, .quantized = true, .mirrored = true
#define TMAC_UPTO_TILING       TMAC_UPTO_TABLES, .tiled = true
#define TMAC_UPTO_PERMUTING    TMAC_UPTO_TILING, .permuted = true
#define TMAC_UPTO_INTERLEAVING TMAC_UPTO_PERMUTING, .interleaved = true

#define TMAC_BASE_01   {0}
#define TMAC_BASE      {.transformed = true}
#define TMAC_QUANTIZED {.transformed = true, .quantized = true}
#define TMAC_MIRRORED  {TMAC_UPTO_TABLES}
#define TMAC_TILED     {TMAC_UPTO_TILING}
#define TMAC_PERMUTED  {TMAC_UPTO_PERMUTING}
#define TMAC_FULL      {TMAC_UPTO_INTERLEAVING}
#define TMAC_WHOLE     {.transformed = true, .quantized = true, .tiled = true, .permuted = true, .interleaved = true}
#define TMAC_WHOLE_01  {.quantized = true, .tiled = true, .permuted = true, .interleaved = true}
#define TMAC_AVERAGED  {TMAC_UPTO_INTERLEAVING, .averaged = true}

/* A code's value mul * u - sub is unit * (the sum of 2^i times what bit i counts as) + zero. */
typedef struct tmac_value {
    float unit, zero;
} tmac_value;

static inline tmac_value tmac_value_of(const crumb_matrix *w, tmac_method how) {
    const float mul = (float)w->mul, sub = (float)w->sub;
    if (!how.transformed) return (tmac_value){mul, -sub};
    return (tmac_value){0.5f * mul, 0.5f * mul * (float)((1 << w->bits) - 1) - sub};
}

typedef struct tmac_shape {
    uint32_t n_blocks, n_steps;
    uint32_t group_steps, scale_steps; /* per table group, per group of the weights; the first divides the second */
    size_t table_bytes;                /* of one table */
    size_t sums_offset, tables_offset; /* of an activation row's tables: scales lie at 0 */
    size_t row_bytes;
} tmac_shape;

static inline tmac_shape tmac_shape_of(const crumb_matrix *w, tmac_method how) {
    tmac_shape s;
    s.n_blocks = (uint32_t)crumb_div_up(w->m, TMAC_BLOCK_ROWS);
    s.n_steps = (uint32_t)crumb_div_up(w->k, TMAC_STEP_K);
    s.scale_steps = w->group / TMAC_STEP_K;
    s.group_steps = how.quantized && s.scale_steps % TMAC_GROUP_STEPS == 0 ? TMAC_GROUP_STEPS : 1;
    s.table_bytes = (how.mirrored ? 8 : 16) * (how.quantized ? 1 : 2);
    s.sums_offset = s.n_steps / s.group_steps * sizeof(float);
    s.tables_offset = crumb_round_up(s.sums_offset + s.n_steps / s.scale_steps * sizeof(float), 64);
    s.row_bytes = crumb_round_up(s.tables_offset + s.n_steps * TMAC_TABLES * s.table_bytes, 64);
    return s;
}

/* Where the indices of a block into a step's tables begin, and how far apart those of its tables and bits lie; the
 * highest bit is first. */
typedef struct tmac_place {
    size_t offset, table_stride, bit_stride;
} tmac_place;

static inline tmac_place tmac_place_of(const tmac_shape *s, unsigned bits, tmac_method how, uint32_t block,
                                       uint32_t step) {
    if (!how.permuted) {
        size_t stride = (size_t)s->n_blocks * TMAC_BLOCK_BYTES;
        return (tmac_place){step * TMAC_TABLES * stride + (size_t)block * TMAC_BLOCK_BYTES, stride,
                            s->n_steps * TMAC_TABLES * stride};
    }
    const size_t bit = TMAC_TABLES * TMAC_BLOCK_BYTES, bytes = bits * bit; /* of one block and step */
    uint32_t first = block / TMAC_TILE_BLOCKS * TMAC_TILE_BLOCKS, n = s->n_blocks - first;
    if (n > TMAC_TILE_BLOCKS) n = TMAC_TILE_BLOCKS; /* blocks of the tile */
    return (tmac_place){((size_t)first * s->n_steps + (size_t)step * n + block - first) * bytes, TMAC_BLOCK_BYTES, bit};
}

#endif
