/* GEMV for AVX2 with any codebook. */
#include "cpu/avx2/simd_wide.h"

#include "cpu/lowbit/gemv.h"

GEMV_CODEBOOK_INSTANCE
