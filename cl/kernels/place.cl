/* PLACE: a value becomes columns of a wider one.
 *
 *     kernel void place(batch, uint on_outputs, uint width, uint column, uint out_width, global const float *x,
 *                       global float *out)
 *
 *     x     f32 [N][width]
 *     out   f32 [N][out_width], of which columns [column, column + width) are written
 *
 * Work-groups: (ceil(width / WG), rows); local size -D WG=n (default 128).
 * Result: exact. */
#ifndef WG
#define WG 128
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void place(global const crumb_batch *batch, uint on_outputs,
                                                                   uint width, uint column, uint out_width,
                                                                   global const crumb_value *x,
                                                                   global crumb_value *out) {
    uint i = get_global_id(0), n = get_group_id(1);
    if (i < width && n < N_OF(batch, on_outputs)) out[(size_t)n * out_width + column + i] = x[(size_t)n * width + i];
}
