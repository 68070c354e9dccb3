/* The vector operations that cpu/lowbit is written in, for AVX-VNNI: 8 rows per vector, int32 accumulators. */
#ifndef CRUMB_CPU_AVXVNNI_SIMD_H
#define CRUMB_CPU_AVXVNNI_SIMD_H

#include "cpu/avx2/simd256.h"

#ifndef SIMD_NAME /* tests compile this once more under another name, with an emulated instruction */
#define SIMD_NAME(base) base##__avxvnni
#endif

#ifndef SIMD_DOT4 /* AVX-VNNI-INT8 is this with another dot product */
#define SIMD_DOT4 _mm256_dpbusd_avx_epi32
#endif
SIMD_INLINE vint v_dot4(vint acc, vint codes, vint q) {
    return SIMD_DOT4(acc, codes, q);
}

enum { SIMD_REGISTERS = 16 };

/* acc plus the products of a lane's two int16. */
#ifndef v_dot2
#define v_dot2 _mm256_dpwssd_avx_epi32
#endif
enum { DOT2_LATENCY = 5 };

/* Planes with an accumulator each; further planes share them, shifted. Split codes are whole bytes, as are 8 bits. */
SIMD_INLINE int dot_accumulators(int bits) {
    return bits == 1 ? 4 : bits == 2 || bits == 4 ? 2 : 1;
}

#include "cpu/lowbit/dot32.h"

/* Tile-rows that a GEMV reads at once, for 8 accumulators of the 16 registers (8 bits: 4). One row of 1 bit has 32, of
 * which most are in memory, and 1.4 times the speed of 8 in registers, as a stream alone is. */
SIMD_INLINE int gemv_streams(int bits, int columns) {
    if (bits == 3 || bits == 5 || bits == 6) return 4 / columns;
    return columns == 2 ? 1 : bits == 1 ? 4 : 2;
}

enum {
    GEMM_REGISTER_COLUMNS = 6, /* 12 accumulators */
    GEMM_WHOLE_COLUMNS = 6
};

#endif
