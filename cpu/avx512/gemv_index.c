/* GEMV on the index layout for AVX512: two tile-rows a vector. Of ternary weights alone: products of 1 bit are faster
 * than look-ups on zmm registers (gemv.h; 0.31 cycles for 32 weights where look-ups take 0.34, Zen 5). */
#include "cpu/avx512/simd.h"

#include "cpu/avx512/index512.h"
#include "cpu/lowbit/gemv_index.h"

INDEX_GEMV_TRITS
