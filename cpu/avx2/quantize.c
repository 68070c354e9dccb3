/* The activation quantizer for AVX2: cpu/kernels.h's rule, 32 values at a time. */
#include "cpu/kernels.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Largest |x| of n values. */
INLINE float largest(const float *x, uint32_t n) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a0 = _mm256_max_ps(a0, _mm256_and_ps(magnitude, _mm256_loadu_ps(x + i)));
        a1 = _mm256_max_ps(a1, _mm256_and_ps(magnitude, _mm256_loadu_ps(x + i + 8)));
        a2 = _mm256_max_ps(a2, _mm256_and_ps(magnitude, _mm256_loadu_ps(x + i + 16)));
        a3 = _mm256_max_ps(a3, _mm256_and_ps(magnitude, _mm256_loadu_ps(x + i + 24)));
    }
    a0 = _mm256_max_ps(_mm256_max_ps(a0, a1), _mm256_max_ps(a2, a3));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(a0), _mm256_extractf128_ps(a0, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    float a = _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
    for (; i < n; i++) {
        float v = x[i] < 0 ? -x[i] : x[i];
        a = v > a ? v : a;
    }
    return a;
}

/* 32 bytes in the order of linear index L, to plane order (host/lowbit/tile.h). */
INLINE __m256i plane_order(__m256i linear, unsigned bits) {
    const __m256i for_u4 = _mm256_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15, 0, 2, 4, 6, 1, 3, 5,
                                            7, 8, 10, 12, 14, 9, 11, 13, 15);
    const __m256i for_u2 = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5, 9,
                                            13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i for_u1 = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15, 0, 8, 1, 9, 2, 10, 3,
                                            11, 4, 12, 5, 13, 6, 14, 7, 15);
    if (bits == 8) return linear;
    if (bits == 4) return _mm256_shuffle_epi8(linear, for_u4);
    if (bits == 2) return _mm256_shuffle_epi8(linear, for_u2);
    /* Eight planes of two bytes in each half; plane p wants both halves' pairs side by side. */
    __m256i pairs = _mm256_shuffle_epi8(linear, for_u1);
    __m128i low = _mm256_castsi256_si128(pairs), high = _mm256_extracti128_si256(pairs, 1);
    return _mm256_set_m128i(_mm_unpackhi_epi16(low, high), _mm_unpacklo_epi16(low, high));
}

/* 32 values at x times a scale for either half, rounded and saturated, in their own order. */
INLINE __m256i quantize_32(const float *x, __m256 scale_low, __m256 scale_high) {
    __m256i v0 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), scale_low));
    __m256i v1 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), scale_low));
    __m256i v2 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16), scale_high));
    __m256i v3 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 24), scale_high));
    /* Packing works within halves: 16-bit k 0-3,8-11 | 4-7,12-15, then with the upper 16 the same way. */
    __m256i low = _mm256_packs_epi32(v0, v1), high = _mm256_packs_epi32(v2, v3);
    __m256i bytes = _mm256_packs_epi16(low, high); /* dwords 0 2 4 6 | 1 3 5 7 of the block */
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE void store_32(__m256i k, unsigned bits, int8_t *q) {
    /* L takes k 0, 16, 1, 17 ... */
    __m128i k_low = _mm256_castsi256_si128(k), k_high = _mm256_extracti128_si256(k, 1);
    __m256i linear = _mm256_set_m128i(_mm_unpackhi_epi8(k_low, k_high), _mm_unpacklo_epi8(k_low, k_high));
    _mm256_storeu_si256((__m256i *)(void *)q, plane_order(linear, bits));
}

/* Eight sums of four bytes. */
INLINE __m256i sum_fours(__m256i bytes) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
}

INLINE int32_t sum_of_four(__m128i four) {
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

/* n values at x, as many of 32 as there are, and zeros; `room` holds them where they are fewer. */
INLINE const float *whole_32(const float *x, uint32_t n, float room[32]) {
    if (n >= 32) return x;
    memset(room, 0, 32 * sizeof(float));
    return memcpy(room, x, n * sizeof(float));
}

/* n values at x into q, zeros up to a whole 32-block. Returns their sum. */
INLINE int32_t quantize_span(const float *x, uint32_t n, float scale, unsigned bits, int8_t *q) {
    const __m256 scales = _mm256_set1_ps(scale);
    __m256i sum = _mm256_setzero_si256();
    for (uint32_t i = 0; i < n; i += 32) {
        float tail[32];
        __m256i v = quantize_32(whole_32(x + i, n - i, tail), scales, scales);
        store_32(v, bits, q + i);
        sum = _mm256_add_epi32(sum, sum_fours(v));
    }
    return sum_of_four(_mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)));
}

/* The scale that activations of largest magnitude a are multiplied with, and in *sx the one that undoes it. */
INLINE float group_scale(float a, float *sx) {
    const bool tiny = a < CRUMB_QUANTIZE_TINY;
    *sx = tiny ? 0.0f : a / 127.0f;
    return tiny ? 0.0f : 127.0f / a;
}

/* Groups of 16: two in a 32-block. `scale` is the row's, where there is one. */
INLINE void quantize_halves(const float *x, uint32_t k, unsigned bits, float scale, bool row_scale, int8_t *q,
                            float *sx, int32_t *qsum) {
    for (uint32_t i = 0; i < k; i += 32, qsum += 2) {
        float tail[32], low = scale, high = scale;
        const float *from = whole_32(x + i, k - i, tail);
        if (!row_scale) {
            low = group_scale(largest(from, 16), sx++);
            high = group_scale(largest(from + 16, 16), sx++);
        }
        __m256i v = quantize_32(from, _mm256_set1_ps(low), _mm256_set1_ps(high)), sum = sum_fours(v);
        store_32(v, bits, q + i);
        qsum[0] = sum_of_four(_mm256_castsi256_si128(sum));
        qsum[1] = sum_of_four(_mm256_extracti128_si256(sum, 1));
    }
}

/* Lane j of the result: the largest lane of v[j]. */
INLINE __m256 largest_of_each(const __m256 v[8]) {
    __m256 four[2];
    for (int i = 0; i < 2; i++) {
        const __m256 *w = v + 4 * i;
        const __m256 a = _mm256_max_ps(_mm256_unpacklo_ps(w[0], w[1]), _mm256_unpackhi_ps(w[0], w[1]));
        const __m256 b = _mm256_max_ps(_mm256_unpacklo_ps(w[2], w[3]), _mm256_unpackhi_ps(w[2], w[3]));
        four[i] = _mm256_max_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
    }
    return _mm256_max_ps(_mm256_permute2f128_ps(four[0], four[1], 0x20),
                         _mm256_permute2f128_ps(four[0], four[1], 0x31));
}

/* Lane j of the result: the sum of v[j]'s lanes. */
INLINE __m256i sum_of_each(const __m256i v[8]) {
    const __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

/* Eight groups of 32 at once, since finding one group's scale and sum is mostly waiting. */
INLINE void quantize_eight(const float *x, unsigned bits, int8_t *q, float *sx, int32_t *qsum) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)), most = _mm256_set1_ps(127.0f);
    __m256 all[8];
    for (int g = 0; g < 8; g++) {
        __m256 v[4];
        for (int i = 0; i < 4; i++) v[i] = _mm256_and_ps(magnitude, _mm256_loadu_ps(x + 32 * g + 8 * i));
        all[g] = _mm256_max_ps(_mm256_max_ps(v[0], v[1]), _mm256_max_ps(v[2], v[3]));
    }
    const __m256 a = largest_of_each(all);
    const __m256 counts = _mm256_cmp_ps(a, _mm256_set1_ps(CRUMB_QUANTIZE_TINY), _CMP_GE_OQ);
    float scales[8];
    _mm256_storeu_ps(scales, _mm256_and_ps(counts, _mm256_div_ps(most, a)));
    _mm256_storeu_ps(sx, _mm256_and_ps(counts, _mm256_div_ps(a, most)));
    __m256i sums[8];
    for (int g = 0; g < 8; g++) {
        const __m256 scale = _mm256_broadcast_ss(&scales[g]);
        const __m256i v = quantize_32(x + 32 * g, scale, scale);
        store_32(v, bits, q + 32 * g);
        sums[g] = sum_fours(v);
    }
    _mm256_storeu_si256((__m256i *)(void *)qsum, sum_of_each(sums));
}

INLINE void quantize_row(const float *x, uint32_t k, unsigned bits, uint32_t n, const crumb_q8 *out) {
    const uint32_t n_groups = out->k_padded / out->group;
    int8_t *q = out->q + (size_t)n * out->k_padded;
    float a = 0, scale = 0;
    if (out->row_scale) {
        a = largest(x, k);
        if (a < 1e-5f) a = 1e-5f;
        scale = 127.0f / a;
        out->sx[n] = a / 127.0f;
    }
    if (out->group < 32) {
        float *sx = out->row_scale ? NULL : out->sx + (size_t)n * n_groups;
        quantize_halves(x, k, bits, scale, out->row_scale, q, sx, out->qsum + (size_t)n * n_groups);
        return;
    }
    uint32_t g = 0;
    for (; !out->row_scale && out->group == 32 && g + 8 <= k / 32; g += 8) {
        const size_t at = (size_t)n * n_groups + g;
        quantize_eight(x + g * 32, bits, q + g * 32, out->sx + at, out->qsum + at);
    }
    for (; g < n_groups; g++) {
        uint32_t k0 = g * out->group, k1 = k0 + out->group < k ? k0 + out->group : k;
        if (!out->row_scale) scale = group_scale(largest(x + k0, k1 - k0), &out->sx[(size_t)n * n_groups + g]);
        out->qsum[(size_t)n * n_groups + g] = quantize_span(x + k0, k1 - k0, scale, bits, q + k0);
    }
}

void crumb_quantize__avx2(const float *x, size_t x_stride, uint32_t k, unsigned bits, uint32_t n0, uint32_t n1,
                          const crumb_q8 *out) {
    for (uint32_t n = n0; n < n1; n++) {
        const float *row = x + n * x_stride;
        switch (crumb_tile_base_bits(bits)) {
        case 1: quantize_row(row, k, 1, n, out); break;
        case 2: quantize_row(row, k, 2, n, out); break;
        case 4: quantize_row(row, k, 4, n, out); break;
        default: quantize_row(row, k, 8, n, out); break;
        }
    }
}
