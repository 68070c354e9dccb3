/* Low-bit GEMV for AVX2. */
#include "cpu/avx2/simd.h"

#include "cpu/lowbit/gemv.h"

GEMV_INSTANCES
