/* The kernels of cpu/avx512 and cpu/avx512vbmi and their tuning as they stand, on 512-bit vectors made of two 256-bit
 * ones. */
#include "tests/kernels/emulated.h"
#include "tests/kernels/emulated_simd512.h"

#define CRUMB_CPU_AVX512_SIMD512_H /* not the real vectors */
#define SIMD_NAME(base)            base##__avx512vnni_emulated
#include "cpu/avx512/simd.h"

#include "cpu/attention/f16.h"
#include "cpu/attention/q8.h"
#include "cpu/attention/softmax.h"
#include "cpu/lowbit/gemm.h"
#include "cpu/lowbit/gemv.h"

#include "tests/kernels/emulated_index512.h"

#include "cpu/lowbit/gemv_index.h"

#include "tests/kernels/emulated_trits512.h"

#include "cpu/lowbit/gemv_trits.h"

GEMV_INSTANCES
INDEX_GEMV_TRITS
GEMV_TRITS(avx512vbmi_emulated)
GEMM_INSTANCES
GEMM_INTERLEAVE_INSTANCE
SOFTMAX_INSTANCE
KV_F16_INSTANCE(crumb_softmax__avx512vnni_emulated)
KV_Q8_INSTANCE(crumb_softmax__avx512vnni_emulated)
