/* cpu/avx512's kernels and tuning as they stand, on 512-bit vectors made of two 256-bit ones. */
#include "tests/kernels/emulated.h"
#include "tests/kernels/emulated_simd512.h"

#define CRUMB_CPU_AVX512_SIMD512_H /* not the real vectors */
#define SIMD_NAME(base)            base##__avx512vnni_emulated
#include "cpu/avx512/simd.h"

#include "cpu/lowbit/gemm.h"
#include "cpu/lowbit/gemv.h"

GEMV_INSTANCE(1)
GEMV_INSTANCE(2)
GEMV_SPLIT_INSTANCE(3)
GEMV_INSTANCE(4)
GEMV_SPLIT_INSTANCE(5)
GEMV_SPLIT_INSTANCE(6)
GEMV_BYTES_INSTANCE
GEMM_INSTANCE(1)
GEMM_INSTANCE(2)
GEMM_INSTANCE(3)
GEMM_INSTANCE(4)
GEMM_INSTANCE(5)
GEMM_INSTANCE(6)
GEMM_INSTANCE(8)
GEMV_CODEBOOK_INSTANCE
GEMM_CODEBOOK_INSTANCE
GEMM_INDEX_INSTANCES
GEMM_INTERLEAVE_INSTANCE
