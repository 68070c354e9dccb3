/* cpu/avxvnni as it stands, but for its two instructions that AVX2 lacks. */
#include "tests/kernels/emulated.h"
#include "tests/kernels/emulated_dot.h"

#define _mm256_dpbusd_avx_epi32 emulated_dpbusd
#define v_dot2                  emulated_dpwssd
#define SIMD_NAME(base)         base##__avxvnni_emulated
#include "cpu/avxvnni/simd.h"

#include "cpu/attention/q8.h"
#include "cpu/lowbit/gemm.h"
#include "cpu/lowbit/gemv.h"
#include "cpu/papers/georganas.h"

GEMV_INSTANCES
GEMM_INSTANCES
GEMM_INTERLEAVE_INSTANCE
GEORGANAS_INSTANCE
KV_Q8_INSTANCE(crumb_softmax__avx2)
