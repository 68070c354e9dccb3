/* The kernels of bitnet.cpp for AVX2. */
#include "cpu/avx2/simd.h"

#include "cpu/papers/bitnet_i2s.h"
#include "cpu/papers/bitnet_tl.h"

BITNET_TL_INSTANCE
BITNET_I2S_INSTANCE
