/* The softmax of a chunk's scores: the same operations per element as cpu/ref/softmax.c, on vectors of any width.
 * Included behind a tier's simd.h; SOFTMAX_INSTANCE makes the tier's function. */
#ifndef CRUMB_CPU_ATTENTION_SOFTMAX_H
#define CRUMB_CPU_ATTENTION_SOFTMAX_H

#include "cpu/attention/tiles.h"
#include "cpu/float_exp.h"

#include <math.h>

/* s[j] * factor of the vector at j, -infinity behind n. */
SIMD_INLINE vflt softmax_scaled(const float *s, uint32_t j, uint32_t n, vflt factor) {
    const vflt v = v_mul_f32(v_load_f32(s + j), factor);
    return n - j < SIMD_LANES ? v_first_or_f32(v, n - j, v_broadcast_f32(-INFINITY)) : v;
}

/* One row's scores, scaled in place; returns the largest. */
SIMD_INLINE float softmax_scale(float *s, uint32_t n, vflt factor) {
    vflt max = v_broadcast_f32(-INFINITY);
    for (uint32_t j = 0; j < n; j += SIMD_LANES) {
        const vflt v = softmax_scaled(s, j, n, factor);
        v_store_f32(s + j, v);
        max = v_max_f32(v, max);
    }
    return v_largest_f32(max);
}

/* p = exp(s - max) of `vectors` vectors, added to the eight sums. */
SIMD_INLINE __m256 softmax_exps(float *s, const uint32_t vectors, vflt max, __m256 total) {
    vflt p[EXP_SIDE_BY_SIDE];
    UNROLLED for (uint32_t i = 0; i < vectors; i++) p[i] = v_sub_f32(v_load_f32(s + (size_t)SIMD_LANES * i), max);
    v_exps(p, vectors);
    UNROLLED for (uint32_t i = 0; i < vectors; i++) {
        v_store_f32(s + (size_t)SIMD_LANES * i, p[i]);
        total = v_sum8_f32(total, p[i]);
    }
    return total;
}

/* One row's scaled scores become weights; returns their sum. */
SIMD_INLINE float softmax_weights(float *s, uint32_t n, vflt max) {
    const uint32_t whole = n / SIMD_LANES * SIMD_LANES;
    uint32_t j = 0;
    __m256 total = _mm256_setzero_ps();
    for (; j + EXP_SIDE_BY_SIDE * SIMD_LANES <= n; j += EXP_SIDE_BY_SIDE * SIMD_LANES)
        total = softmax_exps(s + j, EXP_SIDE_BY_SIDE, max, total);
    for (; j < whole; j += SIMD_LANES) total = softmax_exps(s + j, 1, max, total);
    if (j < n) {
        const vflt p = v_first_f32(v_exp(v_sub_f32(v_load_f32(s + j), max)), n - j);
        v_store_f32(s + j, p);
        total = v_sum8_f32(total, p);
    }
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(total), _mm256_extractf128_ps(total, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}

/* All rows go through a stage together: a row's largest score and its sum are chains of operations that each wait for
 * the one before, and meanwhile the next row's begin. */
SIMD_INLINE void softmax(float *s, uint32_t n_rows, const uint32_t *n_keys, float scale, float *m, float *l) {
    const vflt factor = v_broadcast_f32(scale);
    for (uint32_t r = 0; r < n_rows; r++)
        if (n_keys[r]) m[r] = softmax_scale(s + (size_t)r * CRUMB_ATTENTION_CHUNK, n_keys[r], factor);
    for (uint32_t r = 0; r < n_rows; r++)
        if (n_keys[r]) l[r] = softmax_weights(s + (size_t)r * CRUMB_ATTENTION_CHUNK, n_keys[r], v_broadcast_f32(m[r]));
}

#define SOFTMAX_INSTANCE                                                                                               \
    void SIMD_NAME(crumb_softmax)(float *s, uint32_t n_rows, const uint32_t *n_keys, float scale, float *m,            \
                                  float *l) {                                                                          \
        softmax(s, n_rows, n_keys, scale, m, l);                                                                       \
    }

#endif
