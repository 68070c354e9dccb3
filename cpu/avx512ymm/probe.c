/* The int8 peak of one AVX512-VNNI core, on ymm registers. */
#include "cpu/avx512ymm/simd.h"

#include "cpu/lowbit/probe.h"

PROBE_DOT_INSTANCE
