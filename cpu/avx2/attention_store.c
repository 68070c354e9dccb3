/* Storing keys and values in either cache, and 8-bit queries, with AVX2, FMA and F16C: what every tier above the
 * reference stores with; the same bits as cpu/ref/attention_f16.c and attention_q8.c. */
#include "cpu/attention/store.h"

#include "cpu/avx2/float_simd.h"

#include <string.h>

enum { BLOCK = CRUMB_KEY_BLOCK, GROUP = CRUMB_KV_GROUP };

/* ---- halves ------------------------------------------------------------------------------------------------ */

INLINE __m128i to_f16(const float *x, uint32_t count) {
    __m256 v = count == 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, lanes_below(count));
    v = _mm256_max_ps(_mm256_set1_ps(-65504.0f), v);
    v = _mm256_min_ps(_mm256_set1_ps(65504.0f), v);
    return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
}

void crumb_kv_f16_store__avx2(const float *key, const float *value, uint32_t head_dim, uint32_t place, void *keys,
                              void *values) {
    uint16_t *k = (uint16_t *)keys + place, *v = (uint16_t *)values + (size_t)place * head_dim, halves[8];
    for (uint32_t d = 0; d < head_dim; d += 8) {
        uint32_t count = head_dim - d < 8 ? head_dim - d : 8;
        _mm_storeu_si128((__m128i *)(void *)halves, to_f16(key + d, count));
        for (uint32_t i = 0; i < count; i++) k[(size_t)(d + i) * CRUMB_KEY_BLOCK] = halves[i];
        _mm_storeu_si128((__m128i *)(void *)halves, to_f16(value + d, count));
        memcpy(v + d, halves, count * sizeof *halves);
    }
}

/* ---- 8 bits ------------------------------------------------------------------------------------------------ */

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

void crumb_kv_q8_store__avx2(const float *key, const float *value, uint32_t head_dim, uint32_t place, void *keys,
                             void *values) {
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

void crumb_kv_q8_prepare__avx2(const float *q, uint32_t n_rows, uint32_t head_dim, void *queries) {
    for (uint32_t r = 0; r < n_rows; r++)
        prepare_one(q + (size_t)r * head_dim, head_dim, (char *)queries + r * crumb_kv_q8_query_bytes(head_dim));
}
