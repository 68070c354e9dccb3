/* exp as cpu/float.h defines it, on vectors of any width. Included behind a tier's simd.h. */
#ifndef CRUMB_CPU_FLOAT_EXP_H
#define CRUMB_CPU_FLOAT_EXP_H

#include "cpu/float.h"

SIMD_INLINE vflt v_exp(vflt x) {
    x = v_max_f32(v_broadcast_f32(CRUMB_EXP_MIN), x); /* this order of operands keeps NaN */
    x = v_min_f32(v_broadcast_f32(CRUMB_EXP_MAX), x);
    const vflt n = v_nearest_f32(v_mul_f32(x, v_broadcast_f32(CRUMB_EXP_LOG2E)));
    vflt r = v_fnma_f32(n, v_broadcast_f32(CRUMB_EXP_LN2_HI), x);
    r = v_fnma_f32(n, v_broadcast_f32(CRUMB_EXP_LN2_LO), r);
    vflt p = v_fma_f32(v_broadcast_f32(CRUMB_EXP_C5), r, v_broadcast_f32(CRUMB_EXP_C4));
    p = v_fma_f32(p, r, v_broadcast_f32(CRUMB_EXP_C3));
    p = v_fma_f32(p, r, v_broadcast_f32(CRUMB_EXP_C2));
    p = v_fma_f32(p, r, v_broadcast_f32(CRUMB_EXP_C1));
    p = v_fma_f32(p, r, v_broadcast_f32(CRUMB_EXP_C0));
    p = v_add_f32(v_fma_f32(p, v_mul_f32(r, r), r), v_broadcast_f32(1.0f));
    return v_mul_f32(p, v_as_f32(v_shift_left(v_add(v_round(n), v_broadcast(127)), 23)));
}

#endif
