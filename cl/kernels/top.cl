/* TOP: the K largest values of each row and where they stand, so that logits need not travel.
 *
 *     kernel void top(batch, uint on_outputs, uint n_in, global const float *x, global const ulong *in,
 *                     global ulong *out, global float *result)
 *
 *     x       -D FIRST=1: f32 [rows][n_in]; else not read
 *     in      -D FIRST=0: keys [rows][n_in], made by the launch before; else not read
 *     out     -D LAST=0: keys [rows][work-groups of dimension 0][K]; else not written
 *     result  -D LAST=1 (one work-group): f32 [rows][2 K]: the values, falling, then the bits of their indices; else not
 *             written
 *
 * A launch keeps K of every CHUNK = 2048 values; launches follow each other until one chunk is left: n_in is then the
 * number of work-groups before, times K.
 * A key orders like its value: the bits of the float made to rise, and below them the index, so that of equal values
 * the first is larger. NaN and what is missing have key 0, and come out as -infinity with index 2^32 - 1.
 *
 * Work-groups: (ceil(n_in / 2048), rows); local size -D WG=n (default 128), a power of 2 up to 1024.
 * Options: -D K=n, at most 1024.
 * Result: exact. */
#ifndef WG
#define WG 128
#endif
#define CHUNK 2048

static ulong key_of(float value, uint index) {
    uint bits = as_uint(value);
    if (isnan(value)) return 0;
    if (bits == 0x80000000u) bits = 0; /* zeros are equal */
    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
    return (ulong)bits << 32 | ~index;
}

static float value_of(ulong key) {
    uint bits = (uint)(key >> 32);
    return key ? as_float(bits >> 31 ? bits ^ 0x80000000u : ~bits) : -INFINITY;
}

/* A bitonic network (Batcher, "Sorting networks and their applications", 1968), falling. */
static void sort(local ulong *keys) {
    for (uint size = 2; size <= CHUNK; size *= 2)
        for (uint stride = size / 2; stride > 0; stride /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint i = get_local_id(0); i < CHUNK / 2; i += WG) {
                uint low = 2 * stride * (i / stride) + i % stride, high = low + stride;
                ulong a = keys[low], b = keys[high];
                if ((a < b) == ((low & size) == 0)) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
        }
    barrier(CLK_LOCAL_MEM_FENCE);
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void top(global const crumb_batch *batch, uint on_outputs,
                                                                 uint n_in, global const float *x,
                                                                 global const ulong *in, global ulong *out,
                                                                 global float *result) {
    local ulong keys[CHUNK];
    uint row = get_group_id(1), chunk = get_group_id(0);
    if (row >= N_OF(batch, on_outputs)) return;
    for (uint i = get_local_id(0); i < CHUNK; i += WG) {
        uint at = chunk * CHUNK + i;
#if FIRST
        keys[i] = at < n_in ? key_of(x[(size_t)row * n_in + at], at) : 0;
#else
        keys[i] = at < n_in ? in[(size_t)row * n_in + at] : 0;
#endif
    }
    sort(keys);
    for (uint i = get_local_id(0); i < K; i += WG) {
#if LAST
        result[(size_t)row * 2 * K + i] = value_of(keys[i]);
        result[(size_t)row * 2 * K + K + i] = as_float(~(uint)keys[i]);
#else
        out[((size_t)row * get_num_groups(0) + chunk) * K + i] = keys[i];
#endif
    }
}
