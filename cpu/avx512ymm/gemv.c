/* Low-bit GEMV for AVX512-VNNI on ymm registers. */
#include "cpu/avx512ymm/simd.h"

#include "cpu/lowbit/gemv.h"

GEMV_INSTANCES
