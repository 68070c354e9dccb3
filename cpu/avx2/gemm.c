/* Low-bit GEMM for AVX2. */
#include "cpu/avx2/simd.h"

#include "cpu/lowbit/gemm.h"

GEMM_INSTANCE(1)
GEMM_INSTANCE(2)
GEMM_INSTANCE(4)
GEMM_INSTANCE(8)
GEMM_INTERLEAVE_INSTANCE
