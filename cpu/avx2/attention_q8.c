/* Attention over an 8-bit cache with AVX2: the same results as cpu/ref/attention_q8.c. Its sums are of integers and
 * therefore exact, in whatever order; a pair of int8 codes, widened, meets a pair of int16 in one multiply-add. */
#include "cpu/attention.h"

#include "cpu/avx2/float_simd.h"

#include <string.h>

enum { BLOCK = CRUMB_KEY_BLOCK, GROUP = CRUMB_KV_GROUP, CHUNK = CRUMB_ATTENTION_CHUNK };

/* The first n (at most 8) of x, then zeros. */
INLINE __m256 load_some(const float *x, uint32_t n) {
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, lanes_below(n));
}
INLINE __m256 larger_magnitude(__m256 x, __m256 most) {
    return _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), most);
}
INLINE __m256i round_within(__m256 x, float most) {
    x = _mm256_max_ps(x, _mm256_set1_ps(-most));
    return _mm256_cvtps_epi32(_mm256_min_ps(x, _mm256_set1_ps(most)));
}
INLINE __m256i widen_codes(const int8_t *codes) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)codes));
}
INLINE __m256i broadcast_pair(const int16_t *pair) {
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return _mm256_set1_epi32(both);
}

/* ---- storing ----------------------------------------------------------------------------------------------- */

/* n values (at most 32), and zeros behind them. */
typedef struct group {
    __m256 v[4];
} group;

INLINE group load_group(const float *x, uint32_t n) {
    group g;
    UNROLLED for (uint32_t i = 0; i < 4; i++) g.v[i] =
        8 * i < n ? load_some(x + (size_t)8 * i, n - 8 * i) : _mm256_setzero_ps();
    return g;
}

/* (a, b) -> (a + b, a - b) of lanes that are `swapped` with each other; `later` is -0.0 in each pair's second. */
INLINE __m256 butterfly(__m256 x, __m256 swapped, __m256 later) {
    return _mm256_add_ps(swapped, _mm256_xor_ps(x, later));
}

/* As crumb_kv_turn, then times `part` of the order. */
INLINE group turn_short(const float *x, uint32_t n, bool query) {
    float some[GROUP];
    memcpy(some, x, n * sizeof *some);
    float part = query ? 1 / (float)crumb_kv_turn(some, n) : (crumb_kv_turn(some, n), 1);
    for (uint32_t i = 0; i < n; i++) some[i] *= part;
    return load_group(some, n);
}

INLINE group turn(const float *x, uint32_t n, bool query) {
    if (n < GROUP) return turn_short(x, n, query);
    group g = load_group(x, GROUP);
    const __m256 one = _mm256_setr_ps(0, -0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f);
    const __m256 two = _mm256_setr_ps(0, 0, -0.0f, -0.0f, 0, 0, -0.0f, -0.0f);
    const __m256 four = _mm256_setr_ps(0, 0, 0, 0, -0.0f, -0.0f, -0.0f, -0.0f);
    UNROLLED for (uint32_t i = 0; i < 4; i++) {
        g.v[i] = butterfly(g.v[i], _mm256_permute_ps(g.v[i], 0xb1), one);
        g.v[i] = butterfly(g.v[i], _mm256_permute_ps(g.v[i], 0x4e), two);
        g.v[i] = butterfly(g.v[i], _mm256_permute2f128_ps(g.v[i], g.v[i], 1), four);
    }
    __m256 a = _mm256_add_ps(g.v[0], g.v[1]), b = _mm256_sub_ps(g.v[0], g.v[1]);
    __m256 c = _mm256_add_ps(g.v[2], g.v[3]), d = _mm256_sub_ps(g.v[2], g.v[3]);
    const __m256 part = _mm256_set1_ps(query ? 1.0f / GROUP : 1.0f);
    return (group){{_mm256_mul_ps(_mm256_add_ps(a, c), part), _mm256_mul_ps(_mm256_add_ps(b, d), part),
                    _mm256_mul_ps(_mm256_sub_ps(a, c), part), _mm256_mul_ps(_mm256_sub_ps(b, d), part)}};
}

INLINE __m256 largest(group x, __m256 most) {
    UNROLLED for (uint32_t i = 0; i < 4; i++) most = larger_magnitude(x.v[i], most);
    return most;
}

/* Codes of a group; returns their scale. */
INLINE uint16_t quantize(group x, int8_t codes[GROUP]) {
    float scale = reduce_max(largest(x, _mm256_setzero_ps())) / 127;
    uint16_t half = (uint16_t)_cvtss_sh(scale < 65504.0f ? scale : 65504.0f, _MM_FROUND_TO_NEAREST_INT);
    __m256 inverse = _mm256_set1_ps(half ? 1 / _cvtsh_ss(half) : 0);
    __m256i q[4];
    UNROLLED for (uint32_t i = 0; i < 4; i++) q[i] = round_within(_mm256_mul_ps(x.v[i], inverse), 127);
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)codes, bytes);
    return half;
}

/* Dimensions of the group that begins at `first`. */
INLINE uint32_t group_size(uint32_t head_dim, uint32_t first) {
    return head_dim - first < GROUP ? head_dim - first : GROUP;
}

static void store(const float *key, const float *value, uint32_t head_dim, uint32_t place, void *keys, void *values) {
    uint16_t *key_scales = keys, *value_scales = values;
    int8_t codes[GROUP];
    int8_t *k = (int8_t *)keys + crumb_kv_codes_offset(head_dim) + 2 * place;
    int8_t *v = (int8_t *)values + crumb_kv_codes_offset(head_dim) + place % 2;
    for (uint32_t g = 0; g < crumb_kv_groups(head_dim); g++) {
        uint32_t first = g * GROUP, width = crumb_kv_group_width(head_dim, g);
        uint32_t n = group_size(head_dim, first);
        key_scales[g * BLOCK + place] = quantize(turn(key + first, n, false), codes);
        for (uint32_t i = 0; i < n; i++) k[(size_t)((first + i) / 2) * 2 * BLOCK + i % 2] = codes[i];
        value_scales[g * BLOCK + place] = quantize(load_group(value + first, n), codes);
        int8_t *to = v + (size_t)first * BLOCK + (size_t)(place / 2) * width * 2;
        for (uint32_t i = 0; i < n; i++) to[2 * i] = codes[i];
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------ */

static void prepare_one(const float *x, uint32_t head_dim, char *row) {
    __m256 most = _mm256_setzero_ps();
    for (uint32_t d = 0; d < head_dim; d += GROUP) most = largest(turn(x + d, group_size(head_dim, d), true), most);
    float a = reduce_max(most), scale = a < CRUMB_QUANTIZE_TINY ? 0 : a / 32767;
    __m256 inverse = _mm256_set1_ps(a < CRUMB_QUANTIZE_TINY ? 0 : 32767 / a);
    for (uint32_t d = 0; d < head_dim; d += GROUP) {
        group g = turn(x + d, group_size(head_dim, d), true);
        for (uint32_t i = 0; i < 4 && d + 8 * i < head_dim; i++) {
            __m256i q = round_within(_mm256_mul_ps(g.v[i], inverse), 32767);
            __m128i codes = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
            _mm_storeu_si128((__m128i *)(void *)(row + ((size_t)d + 8 * i) * sizeof(int16_t)), codes);
        }
    }
    memcpy(row + crumb_kv_q8_query_bytes(head_dim) - sizeof scale, &scale, sizeof scale);
}

static void prepare(const float *q, uint32_t n_rows, uint32_t head_dim, void *queries) {
    for (uint32_t r = 0; r < n_rows; r++)
        prepare_one(q + (size_t)r * head_dim, head_dim, (char *)queries + r * crumb_kv_q8_query_bytes(head_dim));
}

/* Of a group of a block, with its scales: 8.5 lines. */
enum { GROUP_BYTES = BLOCK * (GROUP + 2) };

enum { MAX_ROWS = 6 }; /* two sums each, and their operands, fit in 16 registers */

/* Scores of `rows` queries against the 16 keys of a block. */
INLINE void scores_tile(const uint32_t rows, const char *queries, size_t query_bytes, uint32_t head_dim,
                        const char *block, const char *ahead, float *s) {
    const uint16_t *scales = (const uint16_t *)(const void *)block;
    const int8_t *codes = (const int8_t *)block + crumb_kv_codes_offset(head_dim);
    const uint32_t n_pairs = (head_dim + 1) / 2;
    __m256 sum[MAX_ROWS][2];
    UNROLLED for (uint32_t r = 0; r < rows; r++) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
    for (uint32_t first = 0; first < n_pairs; first += GROUP / 2, scales += BLOCK) {
        __m256i acc[MAX_ROWS][2];
        UNROLLED for (uint32_t r = 0; r < rows; r++) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
        UNROLLED for (uint32_t i = 0; i < 9; i++) fetch(ahead + (size_t)64 * i);
        ahead += GROUP_BYTES;
        uint32_t end = first + GROUP / 2 < n_pairs ? first + GROUP / 2 : n_pairs;
        ROLLED for (uint32_t i = first; i < end; i++) {
            __m256i k0 = widen_codes(codes + (size_t)i * 2 * BLOCK);
            __m256i k1 = widen_codes(codes + (size_t)i * 2 * BLOCK + BLOCK);
            UNROLLED for (uint32_t r = 0; r < rows; r++) {
                __m256i q = broadcast_pair((const int16_t *)(const void *)(queries + r * query_bytes) + 2 * i);
                acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(k0, q));
                acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(k1, q));
            }
        }
        __m256 scale0 = load_f16(scales), scale1 = load_f16(scales + 8);
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            sum[r][0] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][0]), scale0, sum[r][0]);
            sum[r][1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][1]), scale1, sum[r][1]);
        }
    }
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        float scale;
        memcpy(&scale, queries + (r + 1) * query_bytes - sizeof scale, sizeof scale);
        _mm256_storeu_ps(s + (size_t)r * CHUNK, _mm256_mul_ps(sum[r][0], _mm256_set1_ps(scale)));
        _mm256_storeu_ps(s + (size_t)r * CHUNK + 8, _mm256_mul_ps(sum[r][1], _mm256_set1_ps(scale)));
    }
}

#define SELECT_ROWS(rows)                                                                                              \
    switch (rows) {                                                                                                    \
    case 1: TILE(1); break;                                                                                            \
    case 2: TILE(2); break;                                                                                            \
    case 3: TILE(3); break;                                                                                            \
    case 4: TILE(4); break;                                                                                            \
    case 5: TILE(5); break;                                                                                            \
    default: TILE(6); break;                                                                                           \
    }

static void scores(const void *queries, uint32_t n_rows, uint32_t head_dim, const void *keys, uint32_t n_blocks,
                   const char *ahead, float *s) {
    size_t query_bytes = crumb_kv_q8_query_bytes(head_dim), block_bytes = crumb_kv_q8_block_bytes(head_dim);
    for (uint32_t row = 0, rows; row < n_rows; row += rows) {
        rows = n_rows - row < MAX_ROWS ? n_rows - row : MAX_ROWS;
        const char *q = (const char *)queries + row * query_bytes;
        for (uint32_t b = 0; b < n_blocks; b++) {
            const char *block = (const char *)keys + b * block_bytes;
            float *to = s + (size_t)row * CHUNK + b * BLOCK;
#define TILE(r) scores_tile(r, q, query_bytes, head_dim, block, ahead + b * block_bytes, to)
            SELECT_ROWS(rows)
#undef TILE
        }
    }
}

/* ---- values ------------------------------------------------------------------------------------------------ */

/* w[j] of one row, zeros behind its n keys up to n_blocks blocks; returns the largest of each lane. */
INLINE __m256 scale_weights(const float *p, uint32_t n, uint32_t n_blocks, const __m256 *scales, __m256 *w) {
    __m256 most = _mm256_setzero_ps();
    uint32_t i = 0;
    for (; i < n / 8; i++) {
        w[i] = _mm256_mul_ps(_mm256_loadu_ps(p + (size_t)8 * i), scales[i]);
        most = _mm256_max_ps(w[i], most);
    }
    for (; i < 2 * n_blocks; i++) {
        __m256 mask = _mm256_castsi256_ps(lanes_below(8 * i < n ? n - 8 * i : 0));
        w[i] = _mm256_and_ps(_mm256_mul_ps(_mm256_loadu_ps(p + (size_t)8 * i), scales[i]), mask);
        most = _mm256_max_ps(w[i], most);
    }
    return most;
}

INLINE void round_weights(const __m256 *w, uint32_t n_blocks, __m256 inverse, int16_t *weights) {
    for (uint32_t i = 0; i < 2 * n_blocks; i += 2) {
        __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(w[i], inverse));
        __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(w[i + 1], inverse));
        __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)(weights + (size_t)8 * i), both);
    }
}

/* W[j] of `rows` rows for the group whose f16 scales begin at `block`, and their b / 32767. All rows go through a stage
 * together, so that none waits for another's division. */
static void quantize_weights(const float *p, uint32_t rows, const uint32_t *n_keys, uint32_t n_blocks,
                             const char *block, size_t block_bytes, int16_t *weights, float *factors) {
    __m256 scales[CHUNK / 8], w[MAX_ROWS][CHUNK / 8], most[MAX_ROWS], inverse[MAX_ROWS];
    for (uint32_t b = 0; b < n_blocks; b++, block += block_bytes) {
        scales[2 * b] = load_f16((const uint16_t *)(const void *)block);
        scales[2 * b + 1] = load_f16((const uint16_t *)(const void *)block + 8);
    }
    for (uint32_t r = 0; r < rows; r++)
        most[r] = scale_weights(p + (size_t)r * CHUNK, n_keys[r], n_blocks, scales, w[r]);
    for (uint32_t r = 0; r < rows; r++) {
        float b = reduce_max(most[r]);
        factors[r] = b < CRUMB_QUANTIZE_TINY ? 0 : b / 32767;
        inverse[r] = _mm256_set1_ps(b < CRUMB_QUANTIZE_TINY ? 0 : 32767 / b);
    }
    for (uint32_t r = 0; r < rows; r++) round_weights(w[r], n_blocks, inverse[r], weights + (size_t)r * CHUNK);
}

/* 8 * vectors dimensions of a group, `width` of which are stored, for `rows` rows: out [rows][GROUP]. */
INLINE void values_tile(const uint32_t rows, const uint32_t vectors, const int16_t *weights, const float *scales,
                        uint32_t n_blocks, const int8_t *codes, size_t block_bytes, uint32_t width, const char *ahead,
                        float *out) {
    __m256i acc[MAX_ROWS][4];
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][i] = _mm256_setzero_si256();
    }
    for (uint32_t b = 0; b < n_blocks; b++, codes += block_bytes, weights += BLOCK) {
        UNROLLED for (uint32_t i = 0; i <= 2 * vectors; i++) fetch(ahead + (size_t)64 * i);
        ahead += (size_t)GROUP_BYTES / 4 * vectors;
        ROLLED for (uint32_t pair = 0; pair < BLOCK / 2; pair++) {
            __m256i v[4];
            UNROLLED for (uint32_t i = 0; i < vectors; i++) v[i] =
                widen_codes(codes + (size_t)pair * width * 2 + (size_t)16 * i);
            UNROLLED for (uint32_t r = 0; r < rows; r++) {
                __m256i w = broadcast_pair(weights + (size_t)r * CHUNK + (size_t)2 * pair);
                UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][i] =
                    _mm256_add_epi32(acc[r][i], _mm256_madd_epi16(v[i], w));
            }
        }
    }
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        __m256 scale = _mm256_set1_ps(scales[r]);
        UNROLLED for (uint32_t i = 0; i < vectors; i++)
            _mm256_storeu_ps(out + r * GROUP + (size_t)8 * i, _mm256_mul_ps(_mm256_cvtepi32_ps(acc[r][i]), scale));
    }
}

/* Group g of up to MAX_ROWS rows. */
static void weigh_group(const float *p, uint32_t rows, const uint32_t *n_keys, uint32_t n_blocks, uint32_t head_dim,
                        uint32_t g, const char *values, const char *ahead, float *o) {
    size_t block_bytes = crumb_kv_q8_block_bytes(head_dim);
    uint32_t first = g * GROUP, width = crumb_kv_group_width(head_dim, g);
    uint32_t n = group_size(head_dim, first);
    int16_t weights[MAX_ROWS * CHUNK];
    float scales[MAX_ROWS], out[MAX_ROWS * GROUP];
    quantize_weights(p, rows, n_keys, n_blocks, values + (size_t)g * BLOCK * 2, block_bytes, weights, scales);
    const int8_t *codes = (const int8_t *)values + crumb_kv_codes_offset(head_dim) + (size_t)first * BLOCK;
    for (uint32_t d = 0, vectors; d < width; d += 8 * vectors) {
        vectors = width - d >= 32 && rows <= 2 ? 4 : width - d >= 16 ? 2 : 1;
        const char *next = ahead + (size_t)GROUP_BYTES / GROUP * n_blocks * (first + d);
#define VALUES(r, v)                                                                                                   \
    values_tile(r, v, weights, scales, n_blocks, codes + (size_t)2 * d, block_bytes, width, next, out + d)
#define TILE(r)                                                                                                        \
    if (r <= 2 && vectors == 4)                                                                                        \
        VALUES(r, 4);                                                                                                  \
    else if (vectors == 2)                                                                                             \
        VALUES(r, 2);                                                                                                  \
    else                                                                                                               \
        VALUES(r, 1)
        SELECT_ROWS(rows)
#undef TILE
#undef VALUES
    }
    for (uint32_t r = 0; r < rows; r++)
        memcpy(o + (size_t)r * head_dim + first, out + (size_t)r * GROUP, n * sizeof(float));
}

static void weigh_values(const float *p, uint32_t n_rows, const uint32_t *n_keys, uint32_t head_dim, const void *values,
                         const char *ahead, float *o) {
    for (uint32_t row = 0, rows; row < n_rows; row += rows) {
        rows = n_rows - row < MAX_ROWS ? n_rows - row : MAX_ROWS;
        uint32_t most = 0;
        for (uint32_t r = row; r < row + rows; r++) most = n_keys[r] > most ? n_keys[r] : most;
        for (uint32_t g = 0; g < crumb_kv_groups(head_dim); g++)
            weigh_group(p + (size_t)row * CHUNK, rows, n_keys + row, (most + BLOCK - 1) / BLOCK, head_dim, g, values,
                        ahead, o + (size_t)row * head_dim);
    }
}

const crumb_kv_ops crumb_kv_q8__avx2 = {
    .block_bytes = crumb_kv_q8_block_bytes,
    .store = store,
    .query_bytes = crumb_kv_q8_query_bytes,
    .prepare = prepare,
    .scores = scores,
    .values = weigh_values,
};
