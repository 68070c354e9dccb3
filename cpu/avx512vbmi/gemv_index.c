/* GEMV of ternary weights in the index layout for AVX512 with VBMI: products on zmm registers. */
#include "cpu/avx512/simd.h"

#include "cpu/avx512vbmi/trits512.h"
#include "cpu/lowbit/gemv_trits.h"

GEMV_TRITS(avx512vbmi)
