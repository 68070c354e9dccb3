/* The kernels of Georganas et al. for AVX2. */
#include "cpu/avx2/simd.h"

#include "cpu/papers/georganas.h"

GEORGANAS_INSTANCE
