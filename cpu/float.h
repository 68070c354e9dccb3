/* The float kernels of the CPU backend: everything but linear layers and what reads the KV cache (cpu/attention.h). One
 * table of functions per tier, all from the list below; every tier computes the same sequence of IEEE operations, so
 * that all agree with cpu/ref bit for bit and the tests compare them without a tolerance. (The references are compared
 * with double precision, within the error stated here.)
 */
#ifndef CRUMB_CPU_FLOAT_H
#define CRUMB_CPU_FLOAT_H

#include "cpu/kernels.h"

typedef struct crumb_float_ops {
    /* out = x * r * weight, r = 1 / sqrt(mean(x^2) + eps); the squares are summed in 16 double lanes. out may be x. */
    void (*rms_norm)(const float *x, const float *weight, uint32_t n, float eps, float *out);
    /* Rotates a head in place: (a, b) -> (a cos - b sin, a sin + b cos). cosines and sines: dims/2 each. */
    void (*rope)(float *head, const float *cosines, const float *sines, uint32_t dims, crumb_rope_pairing pairing);
    /* out = fn(gate) * up; out may be gate or up. */
    void (*gated)(const float *gate, const float *up, uint32_t n, crumb_activation_fn fn, float *out);
    /* o = a * o + b * chunk */
    void (*attention_merge)(float *o, float a, const float *chunk, float b, uint32_t n);
    /* exp(x): relative error below 2 ulp; x is clamped to [-87.3, 88.3]. */
    float (*exp)(float x);
} crumb_float_ops;

extern const crumb_float_ops crumb_float_ops__ref, crumb_float_ops__avx2;

const crumb_float_ops *crumb_float_ops_select(crumb_isa isa);

/* Constants of exp, shared by all tiers: exp(x) = 2^n * p(r), n = round(x / ln 2), r = x - n * ln 2 in two steps. */
#define CRUMB_EXP_MIN    (-87.3f)
#define CRUMB_EXP_MAX    88.3f
#define CRUMB_EXP_LOG2E  1.44269504f
#define CRUMB_EXP_LN2_HI 0.693359375f /* exact in 10 bits: n * LN2_HI has no rounding error */
#define CRUMB_EXP_LN2_LO (-2.12194440e-4f)
#define CRUMB_EXP_C5     1.9875691500e-4f /* p(r) = 1 + r + r^2 (C0 + C1 r + ... + C5 r^5), Cephes' coefficients */
#define CRUMB_EXP_C4     1.3981999507e-3f
#define CRUMB_EXP_C3     8.3334519073e-3f
#define CRUMB_EXP_C2     4.1665795894e-2f
#define CRUMB_EXP_C1     1.6666665459e-1f
#define CRUMB_EXP_C0     5.0000001201e-1f

#endif
