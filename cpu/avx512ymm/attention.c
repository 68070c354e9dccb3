/* Attention over an 8-bit cache with AVX512-VNNI on ymm registers: one instruction where AVX2 has two. */
#include "cpu/avx512ymm/simd.h"

#include "cpu/attention/q8.h"

KV_Q8_INSTANCE(crumb_softmax__avx2)
