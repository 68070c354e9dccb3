/* Low-bit GEMM for AVX-VNNI. */
#include "cpu/avxvnni/simd.h"

#include "cpu/lowbit/gemm.h"

GEMM_INSTANCES
GEMM_INTERLEAVE_INSTANCE
