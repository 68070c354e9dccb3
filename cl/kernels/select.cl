/* SELECT: keeps the rows whose logits are wanted, in order.
 *
 *     kernel void select_rows(batch, uint width, global const float *x, global float *out)
 *
 *     x     f32 [n_rows][width]
 *     out   f32 [n_outputs][width]; may be x: rows move towards the front, and each column is moved by one item
 *
 * Work-groups: ceil(width / WG); local size -D WG=n (default 128).
 * Result: exact. */
#ifndef WG
#define WG 128
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void select_rows(global const crumb_batch *batch, uint width,
                                                                         global const crumb_value *x,
                                                                         global crumb_value *out) {
    uint column = get_global_id(0);
    if (column >= width) return;
    for (uint n = 0; n < batch->n_rows; n++) {
        uint to = ROWS_OF(batch)[n].output;
        if (to != NO_OUTPUT) out[(size_t)to * width + column] = x[(size_t)n * width + column];
    }
}
