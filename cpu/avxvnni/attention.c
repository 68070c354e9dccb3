/* Attention over an 8-bit cache with AVX-VNNI: one instruction where AVX2 has two. */
#include "cpu/avxvnni/simd.h"

#include "cpu/attention/q8.h"

KV_Q8_INSTANCE(crumb_softmax__avx2)
