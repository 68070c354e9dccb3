/* Low-bit GEMM for AVX2. */
#include "cpu/avx2/simd.h"

#include "cpu/lowbit/gemm.h"

GEMM_INSTANCES
/* Of codebooks whose entries are numbers of 16 bits. */
void crumb_gemm_c4_i8_wide__avx2(const crumb_linear_args *a) {
    gemm(a, 4, CRUMB_WIDE_BITS, panel_c4_wide);
}
GEMM_INTERLEAVE_INSTANCE
