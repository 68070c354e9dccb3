/* cpu/avx512ymm as it stands, but for its one instruction that AVX2 lacks. */
#include "tests/kernels/emulated.h"
#include "tests/kernels/emulated_dot.h"

#define SIMD_DOT4       emulated_dpbusd
#define SIMD_NAME(base) base##__avx512ymm_emulated
#include "cpu/avx512ymm/simd.h"

#include "cpu/lowbit/gemm.h"
#include "cpu/lowbit/gemv.h"
#include "cpu/papers/georganas.h"

GEMV_INSTANCE(1)
GEMV_INSTANCE(2)
GEMV_SPLIT_INSTANCE(3)
GEMV_INSTANCE(4)
GEMV_SPLIT_INSTANCE(5)
GEMV_SPLIT_INSTANCE(6)
GEMV_BYTES_INSTANCE
GEMM_INSTANCE(1)
GEMM_INSTANCE(2)
GEMM_INSTANCE(3)
GEMM_INSTANCE(4)
GEMM_INSTANCE(5)
GEMM_INSTANCE(6)
GEMM_INSTANCE(8)
GEMV_CODEBOOK_INSTANCE
GEMM_CODEBOOK_INSTANCE
GEMM_INDEX_INSTANCES
GEORGANAS_INSTANCE
