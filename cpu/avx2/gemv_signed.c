/* GEMV for AVX2 with any codebook of -127 to 127. */
#include "cpu/avx2/simd_signed.h"

#include "cpu/lowbit/gemv.h"

GEMV_CODEBOOK_INSTANCE
