/* The softmax of a chunk's scores: the same operations per element as cpu/ref/softmax.c, on vectors of any width.
 * Included behind a tier's simd.h; SOFTMAX_INSTANCE makes the tier's function. */
#ifndef CRUMB_CPU_ATTENTION_SOFTMAX_H
#define CRUMB_CPU_ATTENTION_SOFTMAX_H

#include "cpu/attention.h"
#include "cpu/float_exp.h"

#include <math.h>

/* s[j] * factor of the vector at j, -infinity behind n. */
SIMD_INLINE vflt softmax_scaled(const float *s, uint32_t j, uint32_t n, vflt factor) {
    const vflt v = v_mul_f32(v_load_f32(s + j), factor);
    return n - j < SIMD_LANES ? v_first_or_f32(v, n - j, v_broadcast_f32(-INFINITY)) : v;
}

SIMD_INLINE float softmax(float *s, uint32_t n, float scale, float *sum) {
    const vflt factor = v_broadcast_f32(scale);
    vflt max = v_broadcast_f32(-INFINITY);
    for (uint32_t j = 0; j < n; j += SIMD_LANES) {
        const vflt v = softmax_scaled(s, j, n, factor);
        v_store_f32(s + j, v);
        max = v_max_f32(v, max);
    }
    const float m = v_largest_f32(max);
    __m256 total = _mm256_setzero_ps();
    for (uint32_t j = 0; j < n; j += SIMD_LANES) {
        vflt p = v_exp(v_sub_f32(v_load_f32(s + j), v_broadcast_f32(m)));
        if (n - j < SIMD_LANES) p = v_first_f32(p, n - j);
        v_store_f32(s + j, p);
        total = v_sum8_f32(total, p);
    }
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(total), _mm256_extractf128_ps(total, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    *sum = _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
    return m;
}

#define SOFTMAX_INSTANCE                                                                                               \
    float SIMD_NAME(crumb_softmax)(float *s, uint32_t n, float scale, float *sum) {                                    \
        return softmax(s, n, scale, sum);                                                                              \
    }

#endif
