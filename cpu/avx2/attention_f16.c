/* Attention over an f16 cache with AVX2, FMA and F16C: the same operations per element as cpu/ref/attention_f16.c. */
#include "cpu/attention.h"

#include "cpu/avx2/float_simd.h"

#include <math.h>
#include <string.h>

INLINE __m128i to_f16(const float *x, uint32_t count) {
    __m256 v = count == 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, lanes_below(count));
    v = _mm256_max_ps(_mm256_set1_ps(-65504.0f), v);
    v = _mm256_min_ps(_mm256_set1_ps(65504.0f), v);
    return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
}

static void store(const float *key, const float *value, uint32_t head_dim, uint32_t place, void *keys, void *values) {
    uint16_t *k = (uint16_t *)keys + place, *v = (uint16_t *)values + (size_t)place * head_dim, halves[8];
    for (uint32_t d = 0; d < head_dim; d += 8) {
        uint32_t count = head_dim - d < 8 ? head_dim - d : 8;
        _mm_storeu_si128((__m128i *)(void *)halves, to_f16(key + d, count));
        for (uint32_t i = 0; i < count; i++) k[(size_t)(d + i) * CRUMB_KEY_BLOCK] = halves[i];
        _mm_storeu_si128((__m128i *)(void *)halves, to_f16(value + d, count));
        memcpy(v + d, halves, count * sizeof *halves);
    }
}

/* Both products below go by register blocks of rows x vectors: 8 to 12 independent sums hide the latency of the
 * multiply-add, and with the operands they fit in 16 registers. What is left at the end is taken 2 and 1 at a time. */
enum { MAX_TILE_ROWS = 6, MAX_VECTORS = 4 };

INLINE uint32_t tile_rows(uint32_t left) {
    return left < MAX_TILE_ROWS ? left : MAX_TILE_ROWS;
}
INLINE uint32_t tile_vectors(uint32_t rows, uint32_t left) {
    uint32_t widest = rows <= 2 ? 4 : rows == 3 ? 3 : 2;
    return left >= widest ? widest : left >= 2 ? 2 : 1;
}

/* Calls TILE(rows, vectors) with both as constants. */
#define TILE_CASE(r, v)                                                                                                \
    case (r) * 8 + (v): TILE(r, v); break
#define SELECT_TILE(rows, vectors)                                                                                     \
    switch ((rows) * 8 + (vectors)) {                                                                                  \
        TILE_CASE(1, 4);                                                                                               \
        TILE_CASE(2, 4);                                                                                               \
        TILE_CASE(3, 3);                                                                                               \
        TILE_CASE(1, 2);                                                                                               \
        TILE_CASE(2, 2);                                                                                               \
        TILE_CASE(3, 2);                                                                                               \
        TILE_CASE(4, 2);                                                                                               \
        TILE_CASE(5, 2);                                                                                               \
        TILE_CASE(6, 2);                                                                                               \
        TILE_CASE(1, 1);                                                                                               \
        TILE_CASE(2, 1);                                                                                               \
        TILE_CASE(3, 1);                                                                                               \
        TILE_CASE(4, 1);                                                                                               \
        TILE_CASE(5, 1);                                                                                               \
        TILE_CASE(6, 1);                                                                                               \
    default: break;                                                                                                    \
    }

/* Scores of `rows` queries against the keys of vectors first .. first + vectors - 1, two of which make a block. */
INLINE void scores_tile(const uint32_t rows, const uint32_t vectors, uint32_t first, const float *q, uint32_t head_dim,
                        const uint16_t *blocks, const char *ahead, float *s) {
    __m256 acc[MAX_TILE_ROWS][MAX_VECTORS];
    const uint16_t *k[MAX_VECTORS];
    UNROLLED for (uint32_t v = 0; v < vectors; v++) {
        k[v] = blocks + ((size_t)((first + v) / 2) * head_dim) * CRUMB_KEY_BLOCK + (first + v) % 2 * 8;
        UNROLLED for (uint32_t r = 0; r < rows; r++) acc[r][v] = _mm256_setzero_ps();
    }
    for (uint32_t d = 0; d < head_dim; d++) {
        __m256 x[MAX_VECTORS];
        fetch(ahead + (size_t)d * 16 * vectors);
        UNROLLED for (uint32_t v = 0; v < vectors; v++) x[v] = load_f16(k[v] + (size_t)d * CRUMB_KEY_BLOCK);
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            __m256 weight = _mm256_broadcast_ss(q + (size_t)r * head_dim + d);
            UNROLLED for (uint32_t v = 0; v < vectors; v++) acc[r][v] = _mm256_fmadd_ps(weight, x[v], acc[r][v]);
        }
    }
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t v = 0; v < vectors; v++)
            _mm256_storeu_ps(s + (size_t)r * CRUMB_ATTENTION_CHUNK + 8 * (first + v), acc[r][v]);
    }
}

static void scores(const void *queries, uint32_t n_rows, uint32_t head_dim, const void *keys, uint32_t n_blocks,
                   const char *ahead, float *s) {
    const float *q = queries;
    uint32_t n_vectors = n_blocks * (CRUMB_KEY_BLOCK / 8);
    for (uint32_t row = 0, rows; row < n_rows; row += rows) {
        rows = tile_rows(n_rows - row);
        const float *x = q + (size_t)row * head_dim;
        float *to = s + (size_t)row * CRUMB_ATTENTION_CHUNK;
        for (uint32_t first = 0, vectors; first < n_vectors; first += vectors) {
            vectors = tile_vectors(rows, n_vectors - first);
            const char *next = ahead + (size_t)first * 16 * head_dim;
#define TILE(r, v) scores_tile(r, v, first, x, head_dim, keys, next, to)
            SELECT_TILE(rows, vectors)
#undef TILE
        }
    }
}

/* Columns [0, 8 * vectors) of the output of `rows` rows: first the keys that all rows have, then each row's others. */
INLINE void values_tile(const uint32_t rows, const uint32_t vectors, const float *p, const uint32_t *n_keys,
                        uint32_t n_common, uint32_t head_dim, const uint16_t *v, const char *ahead, float *o) {
    __m256 acc[MAX_TILE_ROWS][MAX_VECTORS];
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][i] = _mm256_setzero_ps();
    }
    for (uint32_t j = 0; j < n_common; j++) {
        __m256 x[MAX_VECTORS];
        fetch(ahead + (size_t)j * 16 * vectors);
        UNROLLED for (uint32_t i = 0; i < vectors; i++) x[i] = load_f16(v + (size_t)j * head_dim + 8 * i);
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            __m256 weight = _mm256_broadcast_ss(p + (size_t)r * CRUMB_ATTENTION_CHUNK + j);
            UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][i] = _mm256_fmadd_ps(weight, x[i], acc[r][i]);
        }
    }
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t j = n_common; j < n_keys[r]; j++) {
            __m256 weight = _mm256_broadcast_ss(p + (size_t)r * CRUMB_ATTENTION_CHUNK + j);
            UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][i] =
                _mm256_fmadd_ps(weight, load_f16(v + (size_t)j * head_dim + 8 * i), acc[r][i]);
        }
        UNROLLED for (uint32_t i = 0; i < vectors; i++) _mm256_storeu_ps(o + (size_t)r * head_dim + 8 * i, acc[r][i]);
    }
}

/* The last head_dim % 8 columns, one at a time. */
static void values_tail(uint32_t rows, uint32_t first, const float *p, const uint32_t *n_keys, uint32_t head_dim,
                        const uint16_t *v, float *o) {
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t d = first; d < head_dim; d++) {
            float sum = 0;
            for (uint32_t j = 0; j < n_keys[r]; j++)
                sum = fmaf(p[(size_t)r * CRUMB_ATTENTION_CHUNK + j], _cvtsh_ss(v[(size_t)j * head_dim + d]), sum);
            o[(size_t)r * head_dim + d] = sum;
        }
}

static void weigh_values(const float *p, uint32_t n_rows, const uint32_t *n_keys, uint32_t head_dim, const void *values,
                         const char *ahead, float *o) {
    const uint16_t *v = values;
    for (uint32_t row = 0, rows; row < n_rows; row += rows) {
        rows = tile_rows(n_rows - row);
        const float *weights = p + (size_t)row * CRUMB_ATTENTION_CHUNK;
        const uint32_t *counts = n_keys + row;
        float *to = o + (size_t)row * head_dim;
        uint32_t n_common = counts[0], n_vectors = head_dim / 8;
        for (uint32_t i = 1; i < rows; i++) n_common = counts[i] < n_common ? counts[i] : n_common;
        for (uint32_t first = 0, vectors; first < n_vectors; first += vectors) {
            vectors = tile_vectors(rows, n_vectors - first);
            const char *next = ahead + (size_t)first * 16 * CRUMB_ATTENTION_CHUNK;
#define TILE(r, n) values_tile(r, n, weights, counts, n_common, head_dim, v + 8 * first, next, to + 8 * first)
            SELECT_TILE(rows, vectors)
#undef TILE
        }
        values_tail(rows, 8 * n_vectors, weights, counts, head_dim, v, to);
    }
}

const crumb_kv_ops crumb_kv_f16__avx2 = {
    .block_bytes = crumb_kv_f16_block_bytes,
    .store = store,
    .query_bytes = crumb_kv_f16_query_bytes,
    .prepare = crumb_kv_f16_prepare,
    .scores = scores,
    .values = weigh_values,
};
