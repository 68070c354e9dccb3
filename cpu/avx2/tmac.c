/* T-MAC's kernels for AVX2: the steps of its ablation, for each width. */
#include "cpu/avx2/simd.h"

#include "cpu/papers/tmac.h"

#define TMAC_STEPS(bits)                                                                                               \
    TMAC_INSTANCE(u##bits##_f32_01_base, bits, TMAC_BASE_01)                                                           \
    TMAC_INSTANCE(u##bits##_f32_01, bits, TMAC_WHOLE_01)                                                               \
    TMAC_INSTANCE(u##bits##_f32_base, bits, TMAC_BASE)                                                                 \
    TMAC_INSTANCE(u##bits##_f32_tq, bits, TMAC_QUANTIZED)                                                              \
    TMAC_INSTANCE(u##bits##_f32_mirror, bits, TMAC_MIRRORED)                                                           \
    TMAC_INSTANCE(u##bits##_f32_tiling, bits, TMAC_TILED)                                                              \
    TMAC_INSTANCE(u##bits##_f32_perm, bits, TMAC_PERMUTED)                                                             \
    TMAC_INSTANCE(u##bits##_f32, bits, TMAC_FULL)                                                                      \
    TMAC_INSTANCE(u##bits##_f32_whole, bits, TMAC_WHOLE)                                                               \
    TMAC_INSTANCE(u##bits##_f32_fa, bits, TMAC_AVERAGED)

TMAC_STEPS(1)
TMAC_STEPS(2)
TMAC_STEPS(3)
TMAC_STEPS(4)
