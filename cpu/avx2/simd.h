/* The vector operations that cpu/lowbit is written in, for AVX2: 8 rows per vector, int16 accumulators. */
#ifndef CRUMB_CPU_AVX2_SIMD_H
#define CRUMB_CPU_AVX2_SIMD_H

#include "cpu/avx2/simd256.h"

#define SIMD_NAME(base) base##__avx2

enum { SIMD_REGISTERS = 16 };

/* acc plus the products of a lane's two int16. The next one for the same sum waits for an addition alone. */
SIMD_INLINE vint v_dot2(vint acc, vint a, vint b) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}
enum { DOT2_LATENCY = 1 };

#include "cpu/lowbit/dot16.h"

/* Tile-rows that a GEMV reads at once, for up to 8 accumulators of the 16 registers. */
SIMD_INLINE int gemv_streams(int bits, int columns) {
    return columns == 1 && (bits == 3 || bits == 5 || bits == 6) ? 4 : 2;
}

enum {
    GEMM_REGISTER_COLUMNS = 6, /* 12 accumulators */
    GEMM_WHOLE_COLUMNS = 4
};

#endif
