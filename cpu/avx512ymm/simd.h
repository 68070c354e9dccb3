/* The vector operations that cpu/lowbit is written in, for AVX512-VNNI on ymm registers: 8 rows per vector as for
 * AVX-VNNI, and 32 registers. For machines that have no AVX-VNNI, or slow down for zmm registers, and to compare with
 * others at the same width. */
#ifndef CRUMB_CPU_AVX512YMM_SIMD_H
#define CRUMB_CPU_AVX512YMM_SIMD_H

#include "cpu/avx2/simd256.h"

#ifndef SIMD_NAME /* tests compile this once more under another name, with an emulated instruction */
#define SIMD_NAME(base) base##__avx512ymm
#define SIMD_DOT4       _mm256_dpbusd_epi32
#define v_dot2          _mm256_dpwssd_epi32
#endif

enum { SIMD_REGISTERS = 32, DOT2_LATENCY = 5 }; /* v_dot2: acc plus the products of a lane's two int16 */

SIMD_INLINE vint v_dot4(vint acc, vint u8, vint s8) {
    return SIMD_DOT4(acc, u8, s8);
}

/* Planes of 2 bits have an accumulator each; 8 of 1 bit would leave no registers for a second tile-row. */
SIMD_INLINE int dot_accumulators(int bits) {
    return bits == 1 || bits == 2 ? 4 : bits == 4 ? 2 : 1;
}

#include "cpu/lowbit/dot32.h"

/* Tile-rows that a GEMV reads at once, for 4 to 16 accumulators, as many for two columns. */
SIMD_INLINE int gemv_streams(int bits, int columns) {
    const bool split = bits == 3 || bits == 5 || bits == 6;
    return split ? 4 / columns : bits <= 2 ? 2 / columns : 2;
}

/* As many as the zmm tier, so that both want activations in the same order. */
enum { GEMM_REGISTER_COLUMNS = 6, GEMM_WHOLE_COLUMNS = 6 };

#endif
