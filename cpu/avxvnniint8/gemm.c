/* Codebook GEMM for AVX-VNNI-INT8, with AVX-VNNI's order of activations. */
#include "cpu/avxvnniint8/simd.h"

#include "cpu/lowbit/gemm.h"

GEMM_CODEBOOK_INSTANCE
