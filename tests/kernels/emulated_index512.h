/* The operations of cpu/avx512/index512.h on pairs of 256-bit vectors: a tile-row each. */
#ifndef CRUMB_TESTS_EMULATED_INDEX512_H
#define CRUMB_TESTS_EMULATED_INDEX512_H

#include "cpu/lowbit/trits.h"

enum { INDEX_TILES = 2 };

SIMD_INLINE vint index_load(const uint8_t *const *codes, size_t at) {
    return (vint){_mm256_loadu_si256((const void *)(codes[0] + at)), _mm256_loadu_si256((const void *)(codes[1] + at))};
}
SIMD_INLINE vint index_table(const uint8_t *tables) {
    const __m256i both = _mm256_loadu_si256((const void *)tables);
    return (vint){both, both};
}
SIMD_INLINE vint index_add(vint a, vint b) {
    return (vint){_mm256_add_epi8(a.low, b.low), _mm256_add_epi8(a.high, b.high)};
}
SIMD_INLINE vint index_add_signed(vint sum, vint value, vint signs) {
    return index_add(sum, (vint){_mm256_sign_epi8(value.low, signs.low), _mm256_sign_epi8(value.high, signs.high)});
}
SIMD_INLINE void index_trits(vint bytes, vint two, vint *a, vint *b) {
    trit_indices(bytes.low, two.low, &a->low, &b->low);
    trit_indices(bytes.high, two.high, &a->high, &b->high);
}

SIMD_INLINE __m256i index_half_digits(__m256i low, __m256i high, int base, bool signed_digits, __m256i acc,
                                      bool upper) {
    const __m256i weights = _mm256_set1_epi16((short)(base << 8 | 1));
    const __m256i pairs = upper ? _mm256_unpackhi_epi8(low, high) : _mm256_unpacklo_epi8(low, high);
    return _mm256_add_epi16(acc, signed_digits ? _mm256_maddubs_epi16(weights, pairs)
                                               : _mm256_maddubs_epi16(pairs, weights));
}
SIMD_INLINE void index_add_digits(vint low, vint high, int base, bool signed_digits, vint acc[2]) {
    for (int i = 0; i < 2; i++) {
        acc[i].low = index_half_digits(low.low, high.low, base, signed_digits, acc[i].low, i);
        acc[i].high = index_half_digits(low.high, high.high, base, signed_digits, acc[i].high, i);
    }
}

SIMD_INLINE __m256i index_half_rows(__m256i acc) {
    return _mm256_add_epi32(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(acc)),
                            _mm256_cvtepi16_epi32(_mm256_extracti128_si256(acc, 1)));
}
SIMD_INLINE void index_rows(const vint acc[2], vint sums[2]) {
    sums[0] = (vint){index_half_rows(acc[0].low), index_half_rows(acc[1].low)};
    sums[1] = (vint){index_half_rows(acc[0].high), index_half_rows(acc[1].high)};
}

#endif
