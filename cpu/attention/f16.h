/* Attention over an f16 cache: the same operations per element as cpu/ref/attention_f16.c, on vectors of any width.
 * Included behind a tier's simd.h; KV_F16_INSTANCE makes the tier's functions. */
#ifndef CRUMB_CPU_ATTENTION_F16_H
#define CRUMB_CPU_ATTENTION_F16_H

#include "cpu/attention/tiles.h"

#include <math.h>

/* Both products go by register blocks of rows x vectors: 8 to 24 independent sums hide the latency of the
 * multiply-add, and fit in the registers with a vector of operands for each column and one for the row's. What is left
 * at the end is taken 2 and 1 at a time. */
SIMD_INLINE uint32_t f16_widest(uint32_t rows) {
    uint32_t n = (SIMD_REGISTERS - 2) / (rows + 1);
    return n < ATTENTION_VECTORS ? n : ATTENTION_VECTORS;
}
SIMD_INLINE uint32_t f16_vectors(uint32_t rows, uint32_t left) {
    uint32_t widest = f16_widest(rows);
    return left >= widest ? widest : left >= 2 ? 2 : 1;
}

/* Calls F16_TILE(rows, vectors) with both as constants; what f16_vectors never says is left out. */
#define F16_CASE(r, v)                                                                                                 \
    case v:                                                                                                            \
        if ((v) <= 2 || (v) == f16_widest(r)) F16_TILE(r, v);                                                          \
        break
#define F16_SELECT_VECTORS(r)                                                                                          \
    switch (vectors) {                                                                                                 \
        F16_CASE(r, 4);                                                                                                \
        F16_CASE(r, 3);                                                                                                \
        F16_CASE(r, 2);                                                                                                \
        F16_CASE(r, 1);                                                                                                \
    default: break;                                                                                                    \
    }

/* What is fetched from L2 into L1 so far ahead: bytes of each block of keys, and rows of values. */
enum { F16_NEAR_BYTES = 512, F16_NEAR_ROWS = 4 };

/* acc[r][v] += products of `dims` dimensions, from d on. */
SIMD_INLINE void f16_scores_dims(const uint32_t rows, const uint32_t vectors, const uint32_t dims, uint32_t d,
                                 const float *q, uint32_t head_dim, const uint16_t *const *k,
                                 vflt acc[ATTENTION_ROWS][ATTENTION_VECTORS]) {
    UNROLLED for (uint32_t i = 0; i < dims; i++) {
        vflt x[ATTENTION_VECTORS];
        UNROLLED for (uint32_t v = 0; v < vectors; v++) x[v] = v_load_f16(k[v] + (size_t)(d + i) * CRUMB_KEY_BLOCK);
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            const vflt weight = v_broadcast_f32(q[(size_t)r * head_dim + d + i]);
            UNROLLED for (uint32_t v = 0; v < vectors; v++) acc[r][v] = v_fma_f32(weight, x[v], acc[r][v]);
        }
    }
}

/* Scores of `rows` queries against the keys of vectors first .. first + vectors - 1: two dimensions of a block are a
 * line. */
SIMD_INLINE void f16_scores_tile(const uint32_t rows, const uint32_t vectors, uint32_t first, const float *q,
                                 uint32_t head_dim, const uint16_t *blocks, const char *ahead, float *s) {
    enum { DIMS = 2, BLOCK_VECTORS = CRUMB_KEY_BLOCK / SIMD_LANES };
    vflt acc[ATTENTION_ROWS][ATTENTION_VECTORS];
    const uint16_t *k[ATTENTION_VECTORS];
    UNROLLED for (uint32_t v = 0; v < vectors; v++) {
        const uint32_t key = (first + v) * SIMD_LANES;
        k[v] = blocks + (size_t)(key / CRUMB_KEY_BLOCK) * head_dim * CRUMB_KEY_BLOCK + key % CRUMB_KEY_BLOCK;
        UNROLLED for (uint32_t r = 0; r < rows; r++) acc[r][v] = v_zero_f32();
    }
    const uint32_t bytes = 2 * DIMS * SIMD_LANES * vectors;
    uint32_t d = 0;
    for (; d + DIMS <= head_dim; d += DIMS, ahead += bytes) {
        fetch(ahead, bytes);
        UNROLLED for (uint32_t v = 0; v < vectors; v += BLOCK_VECTORS)
            fetch_near((const char *)(k[v] + (size_t)d * CRUMB_KEY_BLOCK) + F16_NEAR_BYTES, 64);
        f16_scores_dims(rows, vectors, DIMS, d, q, head_dim, k, acc);
    }
    if (d < head_dim) f16_scores_dims(rows, vectors, 1, d, q, head_dim, k, acc);
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t v = 0; v < vectors; v++)
            v_store_f32(s + (size_t)r * CRUMB_ATTENTION_CHUNK + SIMD_LANES * (first + v), acc[r][v]);
    }
}

static void f16_scores(const void *queries, uint32_t n_rows, uint32_t head_dim, const void *keys, uint32_t n_blocks,
                       const char *ahead, float *s) {
    const float *q = queries;
    const uint32_t n_vectors = n_blocks * (CRUMB_KEY_BLOCK / SIMD_LANES);
    for (uint32_t row = 0, rows; row < n_rows; row += rows) {
        rows = tile_rows(n_rows - row);
        const float *x = q + (size_t)row * head_dim;
        float *to = s + (size_t)row * CRUMB_ATTENTION_CHUNK;
        for (uint32_t first = 0, vectors; first < n_vectors; first += vectors) {
            vectors = f16_vectors(rows, n_vectors - first);
            const char *next = ahead + (size_t)first * 2 * SIMD_LANES * head_dim;
#define F16_TILE(r, v) f16_scores_tile(r, v, first, x, head_dim, keys, next, to)
#define TILE(r)        F16_SELECT_VECTORS(r)
            SELECT_ROWS(rows)
#undef TILE
#undef F16_TILE
        }
    }
}

/* `vectors` vectors of the output of `rows` rows: first the keys that all rows have, then each row's others. */
SIMD_INLINE void f16_values_tile(const uint32_t rows, const uint32_t vectors, const float *p, const uint32_t *n_keys,
                                 uint32_t n_common, uint32_t head_dim, const uint16_t *v, const char *ahead, float *o) {
    vflt acc[ATTENTION_ROWS][ATTENTION_VECTORS];
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][i] = v_zero_f32();
    }
    for (uint32_t j = 0; j < n_common; j++) {
        vflt x[ATTENTION_VECTORS];
        fetch(ahead + (size_t)j * 2 * SIMD_LANES * vectors, 2 * SIMD_LANES * vectors);
        fetch_near((const char *)(v + (size_t)(j + F16_NEAR_ROWS) * head_dim), 2 * SIMD_LANES * vectors);
        UNROLLED for (uint32_t i = 0; i < vectors; i++) x[i] = v_load_f16(v + (size_t)j * head_dim + SIMD_LANES * i);
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            const vflt weight = v_broadcast_f32(p[(size_t)r * CRUMB_ATTENTION_CHUNK + j]);
            UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][i] = v_fma_f32(weight, x[i], acc[r][i]);
        }
    }
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t j = n_common; j < n_keys[r]; j++) {
            const vflt weight = v_broadcast_f32(p[(size_t)r * CRUMB_ATTENTION_CHUNK + j]);
            UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][i] =
                v_fma_f32(weight, v_load_f16(v + (size_t)j * head_dim + SIMD_LANES * i), acc[r][i]);
        }
        UNROLLED for (uint32_t i = 0; i < vectors; i++)
            v_store_f32(o + (size_t)r * head_dim + SIMD_LANES * i, acc[r][i]);
    }
}

/* The last head_dim % SIMD_LANES columns, one at a time. */
static void f16_values_tail(uint32_t rows, uint32_t first, const float *p, const uint32_t *n_keys, uint32_t head_dim,
                            const uint16_t *v, float *o) {
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t d = first; d < head_dim; d++) {
            float sum = 0;
            for (uint32_t j = 0; j < n_keys[r]; j++)
                sum = fmaf(p[(size_t)r * CRUMB_ATTENTION_CHUNK + j], _cvtsh_ss(v[(size_t)j * head_dim + d]), sum);
            o[(size_t)r * head_dim + d] = sum;
        }
}

static void f16_values(const float *p, uint32_t n_rows, const uint32_t *n_keys, uint32_t head_dim, const void *values,
                       const char *ahead, float *o) {
    const uint16_t *v = values;
    for (uint32_t row = 0, rows; row < n_rows; row += rows) {
        rows = tile_rows(n_rows - row);
        const float *weights = p + (size_t)row * CRUMB_ATTENTION_CHUNK;
        const uint32_t *counts = n_keys + row;
        float *to = o + (size_t)row * head_dim;
        uint32_t n_common = counts[0], n_vectors = head_dim / SIMD_LANES;
        for (uint32_t i = 1; i < rows; i++) n_common = counts[i] < n_common ? counts[i] : n_common;
        for (uint32_t first = 0, vectors; first < n_vectors; first += vectors) {
            vectors = f16_vectors(rows, n_vectors - first);
            const uint32_t at = SIMD_LANES * first;
            const char *next = ahead + (size_t)at * 2 * CRUMB_ATTENTION_CHUNK;
#define F16_TILE(r, n) f16_values_tile(r, n, weights, counts, n_common, head_dim, v + at, next, to + at)
#define TILE(r)        F16_SELECT_VECTORS(r)
            SELECT_ROWS(rows)
#undef TILE
#undef F16_TILE
        }
        f16_values_tail(rows, SIMD_LANES * n_vectors, weights, counts, head_dim, v, to);
    }
}

/* softmax_fn: the softmax of the tier, or of a lower one. */
#define KV_F16_INSTANCE(softmax_fn)                                                                                    \
    const crumb_kv_ops SIMD_NAME(crumb_kv_f16) = {                                                                     \
        .block_bytes = crumb_kv_f16_block_bytes,                                                                       \
        .store = crumb_kv_f16_store__avx2,                                                                             \
        .query_bytes = crumb_kv_f16_query_bytes,                                                                       \
        .prepare = crumb_kv_f16_prepare,                                                                               \
        .softmax = softmax_fn,                                                                                         \
        .scores = f16_scores,                                                                                          \
        .values = f16_values,                                                                                          \
    };

#endif
