/* The index of each row's largest value, so that logits need not travel; the lowest of several. In two launches:
 *
 *     kernel void argmax_parts(batch, uint width, global const float *x, global float *values, global uint *indices)
 *     kernel void argmax_merge(batch, uint parts, global const float *values, global const uint *indices,
 *                              global uint *out)
 *
 *     x                f32 [n_outputs][width]
 *     values, indices  scratch [n_outputs][parts]: the best of each part
 *     out              uint [n_outputs]
 *
 * Work-groups: argmax_parts: (parts, rows), any number of parts, each takes ceil(width / parts) values; argmax_merge:
 * (1, rows). Local size -D WG=n (a power of 2, default 128).
 * Result: exact; a NaN is never the largest (a row of nothing but NaN gives its width). */
#ifndef WG
#define WG 128
#endif

typedef struct {
    float value;
    uint index;
} best;

static best better(best a, best b) {
    return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

/* The best of all items, for item 0. */
static best best_of_group(best own, local float *values, local uint *indices) {
    uint id = get_local_id(0);
    values[id] = own.value;
    indices[id] = own.index;
    for (uint n = WG / 2; n > 0; n /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (id < n) {
            best other = {values[id + n], indices[id + n]};
            own = better(own, other);
            values[id] = own.value;
            indices[id] = own.index;
        }
    }
    return own;
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void argmax_parts(global const crumb_batch *batch, uint width,
                                                                          global const float *x, global float *values,
                                                                          global uint *indices) {
    local float local_values[WG];
    local uint local_indices[WG];
    uint n = get_group_id(1), parts = get_num_groups(0), part = get_group_id(0);
    if (n >= batch->n_outputs) return;
    uint share = DIV_UP(width, parts), end = min(width, (part + 1) * share);
    best own = {-INFINITY, width};
    for (uint i = part * share + get_local_id(0); i < end; i += WG) {
        best here = {x[(size_t)n * width + i], i};
        own = better(own, here);
    }
    own = best_of_group(own, local_values, local_indices);
    if (get_local_id(0) == 0) {
        values[(size_t)n * parts + part] = own.value;
        indices[(size_t)n * parts + part] = own.index;
    }
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void argmax_merge(global const crumb_batch *batch, uint parts,
                                                                          global const float *values,
                                                                          global const uint *indices,
                                                                          global uint *out) {
    local float local_values[WG];
    local uint local_indices[WG];
    uint n = get_group_id(1);
    if (n >= batch->n_outputs) return;
    best own = {-INFINITY, 0xffffffffu};
    for (uint i = get_local_id(0); i < parts; i += WG) {
        best here = {values[(size_t)n * parts + i], indices[(size_t)n * parts + i]};
        own = better(own, here);
    }
    own = best_of_group(own, local_values, local_indices);
    if (get_local_id(0) == 0) out[n] = own.index;
}
