/* Low-bit GEMM for AVX512-VNNI. */
#include "cpu/avx512/simd.h"

#include "cpu/lowbit/gemm.h"

GEMM_INSTANCES
GEMM_INTERLEAVE_INSTANCE
