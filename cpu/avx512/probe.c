/* The int8 peak of one AVX512-VNNI core. */
#include "cpu/avx512/simd.h"

#include "cpu/lowbit/probe.h"

PROBE_DOT_INSTANCE
