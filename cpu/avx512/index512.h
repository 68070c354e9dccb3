/* The operations that cpu/lowbit/gemv_index.h is written in, on zmm registers: the lower half is a tile-row, and the
 * upper half another. */
#ifndef CRUMB_CPU_AVX512_INDEX512_H
#define CRUMB_CPU_AVX512_INDEX512_H

enum { INDEX_TILES = 2 };

SIMD_INLINE __m256i index_half(const void *p) {
    return _mm256_loadu_si256(p);
}
SIMD_INLINE vint index_load(const uint8_t *const *codes, size_t at) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(index_half(codes[0] + at)), index_half(codes[1] + at), 1);
}
SIMD_INLINE vint index_table(const uint8_t *tables) {
    return _mm512_broadcast_i64x4(index_half(tables));
}
SIMD_INLINE vint index_add(vint a, vint b) {
    return _mm512_add_epi8(a, b);
}
SIMD_INLINE vint index_add_signed(vint sum, vint value, vint signs) {
    return _mm512_mask_sub_epi8(_mm512_add_epi8(sum, value), _mm512_movepi8_mask(signs), sum, value);
}
/* As trit_indices (cpu/lowbit/trits.h). */
SIMD_INLINE void index_trits(vint bytes, vint two, vint *a, vint *b) {
    const vint field = v_and(bytes, v_broadcast_bytes(15));
    const vint upper = v_and(_mm512_srli_epi16(bytes, 3), v_broadcast_bytes(14)); /* bits 4-6, doubled */
    const __mmask64 no_b = _mm512_cmpgt_epi8_mask(two, field);
    *a = _mm512_mask_add_epi8(field, no_b, field, upper); /* 0 or 1, and even */
    *b = _mm512_mask_mov_epi8(upper, no_b, v_broadcast_bytes(-1));
}

/* Of the two factors of vpmaddubsw the digits are the one that can hold them. */
SIMD_INLINE void index_add_digits(vint low, vint high, const int base, const bool signed_digits, vint acc[2]) {
    const vint weights = v_broadcast((base << 8 | 1) * 0x10001);
    const vint pairs[2] = {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
    for (int i = 0; i < 2; i++)
        acc[i] = _mm512_add_epi16(acc[i], signed_digits ? _mm512_maddubs_epi16(weights, pairs[i])
                                                        : _mm512_maddubs_epi16(pairs[i], weights));
}

SIMD_INLINE __m256i index_half_rows(__m256i acc) {
    return _mm256_add_epi32(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(acc)),
                            _mm256_cvtepi16_epi32(_mm256_extracti128_si256(acc, 1)));
}
SIMD_INLINE void index_rows(const vint acc[2], vint sums[2]) {
    for (int i = 0; i < 2; i++) {
        const __m256i first = i ? _mm512_extracti64x4_epi64(acc[0], 1) : _mm512_castsi512_si256(acc[0]);
        const __m256i second = i ? _mm512_extracti64x4_epi64(acc[1], 1) : _mm512_castsi512_si256(acc[1]);
        sums[i] = _mm512_inserti64x4(_mm512_castsi256_si512(index_half_rows(first)), index_half_rows(second), 1);
    }
}

#endif
