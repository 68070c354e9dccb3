/* The vector operations that cpu/lowbit is written in, for AVX2 with a dot product of signed bytes: 8 rows per vector,
 * int32 accumulators. More operations a step than with 16 bits (simd.h), which hold no codebook whose entries are far
 * apart; those are operands as they stand here, and their GEMVs are all that this is for. */
#ifndef CRUMB_CPU_AVX2_SIMD_SIGNED_H
#define CRUMB_CPU_AVX2_SIMD_SIGNED_H

#include "cpu/avx2/simd256.h"

#ifndef SIMD_DOT4 /* simd_wide.h is this with another dot product */
#define SIMD_NAME(base) base##_signed__avx2
#define SIMD_DOT4       signed_dot4
/* vpmaddubsw multiplies unsigned bytes by signed ones: |q|, 128 at most, by the code with the sign of q. Two such
 * products are 32512 at most and do not saturate. -128 has no opposite: as a code it is not for this. */
SIMD_INLINE vint signed_dot4(vint acc, vint codes, vint q) {
    const vint pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(codes, q));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif
SIMD_INLINE vint v_dot4(vint acc, vint codes, vint q) {
    return SIMD_DOT4(acc, codes, q);
}

SIMD_INLINE int dot_accumulators(int bits) {
    (void)bits;
    return 1;
}

#define SIMD_SIGNED_DOT
#include "cpu/lowbit/dot32.h"

/* Tile-rows that a GEMV reads at once, for up to 8 accumulators of the 16 registers. */
SIMD_INLINE int gemv_streams(int bits, int columns) {
    (void)bits, (void)columns;
    return 2;
}

#endif
