/* The kernels of Georganas et al. for AVX512-VNNI on ymm registers. */
#include "cpu/avx512ymm/simd.h"

#include "cpu/papers/georganas.h"

GEORGANAS_INSTANCE
