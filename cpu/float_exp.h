/* exp as cpu/float.h defines it, on vectors of any width. Included behind a tier's simd.h and a definition of
 * UNROLLED. */
#ifndef CRUMB_CPU_FLOAT_EXP_H
#define CRUMB_CPU_FLOAT_EXP_H

#include "cpu/float.h"

enum { EXP_SIDE_BY_SIDE = 4 };

/* Floats from here on are integers: adding it rounds, ties to even, and leaves the integer in the lowest bits. */
#define EXP_INTEGERS 12582912.0f

/* x = exp(x) of up to EXP_SIDE_BY_SIDE vectors, each step for all of them: a step waits for the one before it, and a
 * core's scheduler, which takes operations in order, is full of waiting ones after four vectors. */
SIMD_INLINE void v_exps(vflt *x, const uint32_t vectors) {
    vflt n[EXP_SIDE_BY_SIDE], p[EXP_SIDE_BY_SIDE];
    vint power[EXP_SIDE_BY_SIDE];
#define EACH(to, value) UNROLLED for (uint32_t i = 0; i < vectors; i++)(to)[i] = value
    EACH(x, v_max_f32(v_broadcast_f32(CRUMB_EXP_MIN), x[i])); /* this order of operands keeps NaN */
    EACH(x, v_min_f32(v_broadcast_f32(CRUMB_EXP_MAX), x[i]));
    EACH(n, v_add_f32(v_mul_f32(x[i], v_broadcast_f32(CRUMB_EXP_LOG2E)), v_broadcast_f32(EXP_INTEGERS)));
    EACH(power, v_shift_left(v_as_int(n[i]), 23));
    EACH(n, v_sub_f32(n[i], v_broadcast_f32(EXP_INTEGERS)));
    EACH(x, v_fnma_f32(n[i], v_broadcast_f32(CRUMB_EXP_LN2_HI), x[i]));
    EACH(x, v_fnma_f32(n[i], v_broadcast_f32(CRUMB_EXP_LN2_LO), x[i]));
    EACH(p, v_fma_f32(v_broadcast_f32(CRUMB_EXP_C5), x[i], v_broadcast_f32(CRUMB_EXP_C4)));
    EACH(p, v_fma_f32(p[i], x[i], v_broadcast_f32(CRUMB_EXP_C3)));
    EACH(p, v_fma_f32(p[i], x[i], v_broadcast_f32(CRUMB_EXP_C2)));
    EACH(p, v_fma_f32(p[i], x[i], v_broadcast_f32(CRUMB_EXP_C1)));
    EACH(p, v_fma_f32(p[i], x[i], v_broadcast_f32(CRUMB_EXP_C0)));
    EACH(p, v_add_f32(v_fma_f32(p[i], v_mul_f32(x[i], x[i]), x[i]), v_broadcast_f32(1.0f)));
    EACH(x, v_as_f32(v_add(v_as_int(p[i]), power[i]))); /* p * 2^n: neither overflows nor becomes subnormal */
#undef EACH
}

SIMD_INLINE vflt v_exp(vflt x) {
    v_exps(&x, 1);
    return x;
}

#endif
