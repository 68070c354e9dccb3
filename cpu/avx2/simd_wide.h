/* The vector operations that cpu/lowbit is written in, for AVX2 with a dot product of any signed bytes:
 * simd_signed.h's, but for products of 16-bit numbers. Those are twice as many, so this is for codebooks with -128
 * alone. */
#ifndef CRUMB_CPU_AVX2_SIMD_WIDE_H
#define CRUMB_CPU_AVX2_SIMD_WIDE_H

#include "cpu/avx2/simd256.h"

#define SIMD_NAME(base) base##_wide__avx2
#define SIMD_DOT4       wide_dot4
SIMD_INLINE vint wide_even(vint bytes) {
    return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
}
SIMD_INLINE vint wide_odd(vint bytes) {
    return _mm256_srai_epi16(bytes, 8);
}
/* vpmaddwd adds the first and third product of each four, then the second and fourth: 32768 at most, in 32 bits. */
SIMD_INLINE vint wide_dot4(vint acc, vint codes, vint q) {
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(wide_even(codes), wide_even(q)));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(wide_odd(codes), wide_odd(q)));
}

#include "cpu/avx2/simd_signed.h"

#endif
