/* The int8 peak of one AVX-VNNI-INT8 core. */
#include "cpu/avxvnniint8/simd.h"

#include "cpu/lowbit/probe.h"

PROBE_DOT_INSTANCE
