/* The int8 peak of one AVX-VNNI core. */
#include "cpu/avxvnni/simd.h"

#include "cpu/lowbit/probe.h"

PROBE_DOT_INSTANCE
