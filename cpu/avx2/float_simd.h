/* What the float kernels and storing in the KV cache share: small vector helpers for AVX2, FMA and F16C. */
#ifndef CRUMB_CPU_AVX2_FLOAT_SIMD_H
#define CRUMB_CPU_AVX2_FLOAT_SIMD_H

#include <immintrin.h>
#include <stdint.h>

/* Before loops over a register block: unrolled early, so that its sums live in registers and not in memory. */
#define UNROLLED _Pragma("GCC unroll 8")
#define INLINE   static inline __attribute__((always_inline))

/* All ones in the first n (0 to 8) lanes. */
INLINE __m256i lanes_below(uint32_t n) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), index);
}

INLINE float reduce_max(__m256 v) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}

#endif
