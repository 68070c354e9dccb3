/* The kernels of Georganas et al. for AVX-VNNI. */
#include "cpu/avxvnni/simd.h"

#include "cpu/papers/georganas.h"

GEORGANAS_INSTANCE
