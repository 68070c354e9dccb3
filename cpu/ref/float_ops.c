/* The reference of every float kernel of cpu/float.h, in plain C: what the other tiers must agree with bit for bit. */
#include "cpu/float.h"

#include "host/base/half.h"

#include <math.h>

static void rms_norm(const float *x, const float *weight, uint32_t n, float eps, float *out) {
    double lanes[16] = {0};
    for (uint32_t i = 0; i < n; i++) lanes[i % 16] = fma(x[i], x[i], lanes[i % 16]);
    for (int step = 8; step > 0; step /= 2)
        for (int i = 0; i < step; i++) lanes[i] += lanes[i + step];
    float r = (float)(1 / sqrt(lanes[0] / n + (double)eps));
    for (uint32_t i = 0; i < n; i++) out[i] = x[i] * r * weight[i];
}

static void rope(float *head, const float *cosines, const float *sines, uint32_t dims, crumb_rope_pairing pairing) {
    uint32_t half = dims / 2;
    for (uint32_t i = 0; i < half; i++) {
        float *a = pairing == CRUMB_ROPE_NORMAL ? head + 2 * i : head + i;
        float *b = pairing == CRUMB_ROPE_NORMAL ? a + 1 : a + half;
        float x = *a, y = *b;
        *a = fmaf(x, cosines[i], -(y * sines[i]));
        *b = fmaf(y, cosines[i], x * sines[i]);
    }
}

static float exp_ref(float x) {
    x = CRUMB_EXP_MIN > x ? CRUMB_EXP_MIN : x; /* written so that NaN stays NaN */
    x = CRUMB_EXP_MAX < x ? CRUMB_EXP_MAX : x;
    float n = rintf(x * CRUMB_EXP_LOG2E);
    float r = fmaf(-n, CRUMB_EXP_LN2_HI, x);
    r = fmaf(-n, CRUMB_EXP_LN2_LO, r);
    float p = fmaf(CRUMB_EXP_C5, r, CRUMB_EXP_C4);
    p = fmaf(p, r, CRUMB_EXP_C3);
    p = fmaf(p, r, CRUMB_EXP_C2);
    p = fmaf(p, r, CRUMB_EXP_C1);
    p = fmaf(p, r, CRUMB_EXP_C0);
    p = fmaf(p, r * r, r) + 1.0f;
    if (isnan(n)) return n;
    return p * crumb_bits_to_f32((uint32_t)((int32_t)n + 127) << 23);
}

static void gated(const float *gate, const float *up, uint32_t n, crumb_activation_fn fn, float *out) {
    for (uint32_t i = 0; i < n; i++) {
        float g = gate[i];
        float activated;
        if (fn == CRUMB_ACT_FN_SILU) {
            activated = g / (1.0f + exp_ref(-g));
        } else {
            float positive = g > 0 ? g : 0;
            activated = positive * positive;
        }
        out[i] = activated * up[i];
    }
}

static void attention_merge(float *o, float a, const float *chunk, float b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) o[i] = fmaf(o[i], a, chunk[i] * b);
}

const crumb_float_ops crumb_float_ops__ref = {
    .rms_norm = rms_norm,
    .rope = rope,
    .gated = gated,
    .attention_merge = attention_merge,
    .exp = exp_ref,
};
