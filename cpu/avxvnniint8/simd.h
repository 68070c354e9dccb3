/* The vector operations that cpu/lowbit is written in, for AVX-VNNI-INT8: those of AVX-VNNI, but for a dot product that
 * takes signed bytes for codes, too. Only codebooks gain from that; their kernels and the paper's, whose dot product it
 * is (cpu/papers/georganas.h), are all that this tier has. */
#ifndef CRUMB_CPU_AVXVNNIINT8_SIMD_H
#define CRUMB_CPU_AVXVNNIINT8_SIMD_H

#include "cpu/avx2/simd256.h"

#ifndef SIMD_NAME /* tests compile this once more under another name, with an emulated instruction */
#define SIMD_NAME(base) base##__avxvnniint8
/* gcc has an intrinsic since 13 only, assemblers the instruction since binutils 2.40. */
SIMD_INLINE vint signed_dot4(vint acc, vint codes, vint q) {
    __asm__("vpdpbssd %2, %1, %0" : "+x"(acc) : "x"(codes), "x"(q));
    return acc;
}
#endif

#define SIMD_DOT4 signed_dot4
#define SIMD_SIGNED_DOT
#include "cpu/avxvnni/simd.h"

#endif
