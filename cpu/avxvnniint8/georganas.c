/* The kernels of Georganas et al. for AVX-VNNI-INT8, which the paper has. */
#include "cpu/avxvnniint8/simd.h"

#include "cpu/papers/georganas.h"

GEORGANAS_INSTANCE
