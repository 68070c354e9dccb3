/* Low-bit GEMM for AVX512-VNNI on ymm registers, with the order of activations of the zmm tier. */
#include "cpu/avx512ymm/simd.h"

#include "cpu/lowbit/gemm.h"

GEMM_INSTANCE(1)
GEMM_INSTANCE(2)
GEMM_INSTANCE(3)
GEMM_INSTANCE(4)
GEMM_INSTANCE(5)
GEMM_INSTANCE(6)
GEMM_INSTANCE(8)
GEMM_CODEBOOK_INSTANCE
GEMM_INDEX_INSTANCES
