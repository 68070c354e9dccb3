/* cpu/avxvnniint8 as it stands, but for its one instruction that AVX2 lacks. */
#include "tests/kernels/emulated.h"
#include "tests/kernels/emulated_dot.h"

#define signed_dot4     emulated_dpbssd
#define SIMD_NAME(base) base##__avxvnniint8_emulated
#include "cpu/avxvnniint8/simd.h"

#include "cpu/lowbit/gemm.h"
#include "cpu/lowbit/gemv.h"
#include "cpu/papers/georganas.h"

GEMV_CODEBOOK_INSTANCE
GEMM_CODEBOOK_INSTANCE
GEORGANAS_INSTANCE
