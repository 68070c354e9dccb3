/* GATHER: a value's columns in another order.
 *
 *     kernel void gather(batch, uint on_outputs, uint width, global const uint *from, global const float *x,
 *                        global float *out)
 *
 *     from  u32 [width]: column i of out is column from[i] of x
 *     x     f32 [N][width]
 *     out   f32 [N][width], not x
 *
 * Work-groups: (ceil(width / WG), rows); local size -D WG=n (default 128).
 * Result: exact. */
#ifndef WG
#define WG 128
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void gather(global const crumb_batch *batch, uint on_outputs,
                                                                    uint width, global const uint *from,
                                                                    global const crumb_value *x,
                                                                    global crumb_value *out) {
    uint i = get_global_id(0), n = get_group_id(1);
    if (i < width && n < N_OF(batch, on_outputs)) out[(size_t)n * width + i] = x[(size_t)n * width + from[i]];
}
