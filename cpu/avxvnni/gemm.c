/* Low-bit GEMM for AVX-VNNI. */
#include "cpu/avxvnni/simd.h"

#include "cpu/lowbit/gemm.h"

GEMM_INSTANCE(1)
GEMM_INSTANCE(2)
GEMM_INSTANCE(4)
GEMM_INSTANCE(8)
GEMM_INTERLEAVE_INSTANCE
