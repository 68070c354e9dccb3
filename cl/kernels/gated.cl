/* Gated activation: out = fn(gate) * up, elementwise.
 *
 *     kernel void gated(batch, uint on_outputs, uint width, global const float *gate, global const float *up,
 *                       global float *out)
 *
 *     gate, up, out   f32 [N][width]; out may be either of the others
 *
 * Work-groups: (ceil(width / WG), rows); local size -D WG=n (default 128).
 * Options: -D FN=1|2   1: silu, 2: relu(gate)^2 (in f32: BitNet's overflows f16)
 * Result: exactly the CPU's. */
#ifndef WG
#define WG 128
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void gated(global const crumb_batch *batch, uint on_outputs,
                                                                   uint width, global const crumb_value *gate,
                                                                   global const crumb_value *up,
                                                                   global crumb_result *out) {
    uint column = get_global_id(0), n = get_group_id(1);
    if (n >= N_OF(batch, on_outputs) || column >= width) return;
    size_t at = (size_t)n * width + column;
    out[at] = TO_RESULT(crumb_gated(FN, FROM_VALUE(gate[at]), FROM_VALUE(up[at])));
}
