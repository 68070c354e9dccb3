/* GEMM for AVX2 with any codebook, and with simd.h's order of activations. */
#include "cpu/avx2/simd_wide.h"

#include "cpu/lowbit/gemm.h"

GEMM_CODEBOOK_INSTANCE
