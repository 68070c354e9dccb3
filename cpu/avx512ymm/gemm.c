/* Low-bit GEMM for AVX512-VNNI on ymm registers, with the order of activations of the zmm tier. */
#include "cpu/avx512ymm/simd.h"

#include "cpu/lowbit/gemm.h"

GEMM_INSTANCES
