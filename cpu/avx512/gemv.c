/* Low-bit GEMV for AVX512-VNNI. */
#include "cpu/avx512/simd.h"

#include "cpu/lowbit/gemv.h"

GEMV_INSTANCES
