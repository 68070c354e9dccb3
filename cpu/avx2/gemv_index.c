/* GEMV on the index layout for AVX2: a tile-row a vector. */
#include "cpu/avx2/simd.h"

#include "cpu/lowbit/trits.h"

enum { INDEX_TILES = 1 };

SIMD_INLINE vint index_load(const uint8_t *const *codes, size_t at) {
    return v_load(codes[0] + at);
}
SIMD_INLINE vint index_table(const uint8_t *tables) {
    return v_load(tables);
}
SIMD_INLINE vint index_add(vint a, vint b) {
    return _mm256_add_epi8(a, b);
}
SIMD_INLINE vint index_add_signed(vint sum, vint value, vint signs) {
    return _mm256_add_epi8(sum, _mm256_sign_epi8(value, signs)); /* never 0 */
}
SIMD_INLINE void index_trits(vint bytes, vint two, vint *a, vint *b) {
    trit_indices(bytes, two, a, b);
}

/* Of the two factors of vpmaddubsw the digits are the one that can hold them. */
SIMD_INLINE void index_add_digits(vint low, vint high, const int base, const bool signed_digits, vint acc[2]) {
    const vint weights = _mm256_set1_epi16((short)(base << 8 | 1));
    const vint pairs[2] = {_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)};
    for (int i = 0; i < 2; i++)
        acc[i] = _mm256_add_epi16(acc[i], signed_digits ? _mm256_maddubs_epi16(weights, pairs[i])
                                                        : _mm256_maddubs_epi16(pairs[i], weights));
}

SIMD_INLINE void index_rows(const vint acc[2], vint sums[2]) {
    for (int i = 0; i < 2; i++)
        sums[i] = v_add(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(acc[i])),
                        _mm256_cvtepi16_epi32(_mm256_extracti128_si256(acc[i], 1)));
}

#include "cpu/lowbit/gemv_index.h"

INDEX_GEMV_BITS
INDEX_GEMV_TRITS
