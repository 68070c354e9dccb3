/* Codebook GEMV for AVX-VNNI-INT8. */
#include "cpu/avxvnniint8/simd.h"

#include "cpu/lowbit/gemv.h"

GEMV_CODEBOOK_INSTANCE
