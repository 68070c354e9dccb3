/* The float kernels of cpu/float.h with AVX2, FMA and F16C: the same operations per element as cpu/ref/float_ops.c. */
#include "cpu/avx2/float_simd.h"
#include "cpu/avx2/simd.h"

#include "cpu/float_exp.h"

#include <math.h>

/* ---- norm, rotation, activation ---------------------------------------------------------------------------- */

static void rms_norm(const float *x, const float *weight, uint32_t n, float eps, float *out) {
    __m256d acc[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int v = 0; v < 4; v++) {
            __m256d d = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * v));
            acc[v] = _mm256_fmadd_pd(d, d, acc[v]);
        }
    double lanes[16];
    for (int v = 0; v < 4; v++) _mm256_storeu_pd(lanes + 4 * v, acc[v]);
    for (; i < n; i++) lanes[i % 16] = fma(x[i], x[i], lanes[i % 16]);
    for (int step = 8; step > 0; step /= 2)
        for (int lane = 0; lane < step; lane++) lanes[lane] += lanes[lane + step];
    float r = (float)(1 / sqrt(lanes[0] / n + (double)eps));
    __m256 factor = _mm256_set1_ps(r);
    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i,
                         _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor), _mm256_loadu_ps(weight + i)));
    for (; i < n; i++) out[i] = x[i] * r * weight[i];
}

static void rope(float *head, const float *cosines, const float *sines, uint32_t dims, crumb_rope_pairing pairing) {
    uint32_t half = dims / 2, i = 0;
    bool halves = pairing == CRUMB_ROPE_HALVES;
    for (; halves && i + 8 <= half; i += 8) {
        __m256 a = _mm256_loadu_ps(head + i), b = _mm256_loadu_ps(head + half + i);
        __m256 c = _mm256_loadu_ps(cosines + i), s = _mm256_loadu_ps(sines + i);
        _mm256_storeu_ps(head + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        _mm256_storeu_ps(head + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
    const __m256i pairs = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    for (; !halves && i + 4 <= half; i += 4) {
        __m256 x = _mm256_loadu_ps(head + 2 * i), swapped = _mm256_permute_ps(x, 0xb1);
        __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cosines + i)), pairs);
        __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sines + i)), pairs);
        _mm256_storeu_ps(head + 2 * i, _mm256_fmaddsub_ps(x, c, _mm256_mul_ps(swapped, s)));
    }
    for (; i < half; i++) {
        float *a = halves ? head + i : head + 2 * i, *b = halves ? a + half : a + 1, x = *a, y = *b;
        *a = fmaf(x, cosines[i], -(y * sines[i]));
        *b = fmaf(y, cosines[i], x * sines[i]);
    }
}

static float exp_one(float x) {
    return _mm256_cvtss_f32(v_exp(_mm256_set1_ps(x)));
}

INLINE __m256 activate8(__m256 g, crumb_activation_fn fn) {
    if (fn == CRUMB_ACT_FN_SILU) {
        __m256 e = v_exp(_mm256_xor_ps(g, _mm256_set1_ps(-0.0f)));
        return _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
    }
    __m256 positive = _mm256_max_ps(g, _mm256_setzero_ps());
    return _mm256_mul_ps(positive, positive);
}

INLINE void gated_by(const float *gate, const float *up, uint32_t n, crumb_activation_fn fn, float *out) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(activate8(_mm256_loadu_ps(gate + i), fn), _mm256_loadu_ps(up + i)));
    if (i == n) return;
    __m256i mask = lanes_below(n - i);
    __m256 g = _mm256_maskload_ps(gate + i, mask), u = _mm256_maskload_ps(up + i, mask);
    _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(activate8(g, fn), u));
}

static void gated(const float *gate, const float *up, uint32_t n, crumb_activation_fn fn, float *out) {
    if (fn == CRUMB_ACT_FN_SILU)
        gated_by(gate, up, n, CRUMB_ACT_FN_SILU, out);
    else
        gated_by(gate, up, n, CRUMB_ACT_FN_RELU2, out);
}

static void attention_merge(float *o, float a, const float *chunk, float b, uint32_t n) {
    __m256 va = _mm256_set1_ps(a), vb = _mm256_set1_ps(b);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(o + i,
                         _mm256_fmadd_ps(_mm256_loadu_ps(o + i), va, _mm256_mul_ps(_mm256_loadu_ps(chunk + i), vb)));
    for (; i < n; i++) o[i] = fmaf(o[i], a, chunk[i] * b);
}

const crumb_float_ops crumb_float_ops__avx2 = {
    .rms_norm = rms_norm,
    .rope = rope,
    .gated = gated,
    .attention_merge = attention_merge,
    .exp = exp_one,
};
