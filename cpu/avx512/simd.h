/* The vector operations that cpu/lowbit is written in, for AVX512-VNNI: 16 rows per vector, int32 accumulators. */
#ifndef CRUMB_CPU_AVX512_SIMD_H
#define CRUMB_CPU_AVX512_SIMD_H

#include "cpu/avx512/simd512.h"

#ifndef SIMD_NAME /* tests compile this once more under another name, with emulated vectors */
#define SIMD_NAME(base) base##__avx512vnni
#endif

/* With 32 registers every plane has an accumulator of its own, but for split codes; 8 planes of 1 bit have 4, so that
 * four tile-rows' fit. */
SIMD_INLINE int dot_accumulators(int bits) {
    return bits == 1 ? 4 : bits == 2 || bits == 4 ? 8 / bits : 1;
}

#include "cpu/lowbit/dot32.h"

/* Tile-rows that a GEMV reads at once: 2 to 16 accumulators; split codes have few, and take four. */
SIMD_INLINE int gemv_streams(int bits, int columns) {
    return columns == 1 && (bits == 3 || bits == 5 || bits == 6) ? 4 : 2;
}

/* Half as many as there are registers for: then a core's window of instructions holds the fold of one group and the dot
 * products of the next, which is worth 18 % with groups of 32 and 3 to 6 % with others (Zen 5). */
enum {
    GEMM_REGISTER_COLUMNS = 6, /* 12 accumulators */
    GEMM_WHOLE_COLUMNS = 6
};

#endif
