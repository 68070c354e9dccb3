/* Attention over both types of cache with AVX512-VNNI, on zmm registers. */
#include "cpu/avx512/simd.h"

#include "cpu/attention/f16.h"
#include "cpu/attention/q8.h"
#include "cpu/attention/softmax.h"

SOFTMAX_INSTANCE
KV_F16_INSTANCE(crumb_softmax__avx512vnni)
KV_Q8_INSTANCE(crumb_softmax__avx512vnni)
