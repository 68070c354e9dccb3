/* The operations that cpu/lowbit/gemv_trits.h is written in, on zmm registers with VBMI. */
#ifndef CRUMB_CPU_AVX512VBMI_TRITS512_H
#define CRUMB_CPU_AVX512VBMI_TRITS512_H

/* Lane r becomes the bytes r, 16 + r, 32 + r and 48 + r: of row r. */
SIMD_INLINE vint trits_by_row(vint bytes) {
    const vint columns = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const vint order = v_add(v_mul(columns, v_broadcast(0x01010101)), v_broadcast(0x30201000));
    return _mm512_permutexvar_epi8(order, bytes);
}
SIMD_INLINE vint trits_load(const uint8_t *p) {
    return trits_by_row(v_load(p));
}
/* 32 bytes at p, and zeros. */
SIMD_INLINE vint trits_load_half(const uint8_t *p) {
    return trits_by_row(_mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p)));
}
/* Entries of a table of 128 bytes, by bits 0-6 of every index. */
SIMD_INLINE vint trits_find(const vint table[2], vint indices) {
    return _mm512_permutex2var_epi8(table[0], indices, table[1]);
}
/* most - values, bytewise, where bit 7 of `signs` is set. */
SIMD_INLINE vint trits_mirror(vint values, vint most, vint signs) {
    return _mm512_mask_sub_epi8(values, _mm512_movepi8_mask(signs), most, values);
}

#endif
