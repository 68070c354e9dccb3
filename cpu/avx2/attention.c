/* Attention over both types of cache with AVX2, FMA and F16C. */
#include "cpu/avx2/simd.h"

#include "cpu/attention/f16.h"
#include "cpu/attention/q8.h"
#include "cpu/attention/softmax.h"

SOFTMAX_INSTANCE
KV_F16_INSTANCE(crumb_softmax__avx2)
KV_Q8_INSTANCE(crumb_softmax__avx2)
