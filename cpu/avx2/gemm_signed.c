/* GEMM for AVX2 with any codebook of -127 to 127, and with simd.h's order of activations. */
#include "cpu/avx2/simd_signed.h"

#include "cpu/lowbit/gemm.h"

GEMM_CODEBOOK_INSTANCE
