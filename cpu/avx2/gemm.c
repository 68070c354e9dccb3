/* Low-bit GEMM for AVX2. */
#include "cpu/avx2/simd.h"

#include "cpu/lowbit/gemm.h"

GEMM_INSTANCES
GEMM_INTERLEAVE_INSTANCE
