/* Low-bit GEMV for AVX512-VNNI. */
#include "cpu/avx512/simd.h"

#include "cpu/lowbit/gemv.h"

GEMV_INSTANCE(1)
GEMV_INSTANCE(2)
GEMV_INSTANCE(4)
GEMV_INSTANCE(8)
GEMV_CODEBOOK_INSTANCE
