/* Low-bit GEMV for AVX-VNNI. */
#include "cpu/avxvnni/simd.h"

#include "cpu/lowbit/gemv.h"

GEMV_INSTANCES
