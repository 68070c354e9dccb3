/* What a device does at best, and what a launch costs: the roofs that `crumb kernels perf` compares with. Not used by
 * plans.
 *
 *     kernel void probe_fill(global uint4 *to, uint n)       n numbers that no two are alike
 *     kernel void probe_read(global const uint4 *from, uint n, uint run, global uint *out)
 *                                                            reads them all, each item `run` of them in a row
 *     kernel void probe_stream(the same)                     neighbouring items read neighbouring numbers; run is 1
 *     kernel void probe_dot(uint rounds, global uint *out)   per item rounds * CHAINS dot products
 *     kernel void probe_empty(global uint *out)              nothing
 *
 *     out     one uint, which is written only where the result is one that cannot be expected
 *
 * Work-groups: any number, of 64 items; of any number of items for probe_read.
 * Options: -D PEAK=0|1|2   dot products in plain C, of cl_khr_integer_dot_product, or Intel's matrix instructions
 *          -D SUB_GROUP=16|8   with PEAK=2
 *          -D CHAINS=n   sums that an item keeps at once
 * Operations of a dot product, per item: 8; with PEAK=2 512 (8 rows x 32 k, multiplied and added). */
#define UNLIKELY 0x5bd1e995u
#ifndef CHAINS
#define CHAINS 1
#endif
#ifndef PEAK
#define PEAK 0
#endif

kernel void probe_fill(global uint4 *to, uint n) {
    for (uint i = (uint)get_global_id(0); i < n; i += (uint)get_global_size(0))
        to[i] = (uint4)(i * 2654435761u, i ^ 0x9e3779b9u, i * 40503u, i + 7);
}

static void keep(uint4 all, global uint *out) {
    if ((all.x ^ all.y ^ all.z ^ all.w) == UNLIKELY) out[0] = all.x;
}

kernel void probe_read(global const uint4 *from, uint n, uint run, global uint *out) {
    uint4 all = 0;
    uint step = (uint)get_global_size(0) * run;
    for (uint i = (uint)get_global_id(0) * run; i < n; i += step) {
        uint end = min(i + run, n);
        for (uint j = i; j < end; j++) all ^= from[j];
    }
    keep(all, out);
}

/* Four loads in flight. */
kernel void probe_stream(global const uint4 *from, uint n, uint run, global uint *out) {
    uint4 all = 0;
    uint step = (uint)get_global_size(0) * run, i = (uint)get_global_id(0);
    for (; i + 3 * step < n; i += 4 * step)
        all ^= (from[i] ^ from[i + step]) + (from[i + 2 * step] ^ from[i + 3 * step]);
    for (; i < n; i += step) all ^= from[i];
    keep(all, out);
}

kernel void probe_empty(global uint *out) {
    if (get_global_id(0) == UNLIKELY) out[0] = 1;
}

#if PEAK == 2
#if SUB_GROUP == 16
typedef short8 a_rows;
#define A_OF(x) as_short8((int4)(x))
#else
typedef int8 a_rows;
#define A_OF(x) ((int8)(x))
#endif
int8 __attribute__((overloadable)) intel_sub_group_i8_i8_matrix_mad_k32(a_rows a, int8 b, int8 acc);
#define SUM          int8
#define DOT(u, q, s) intel_sub_group_i8_i8_matrix_mad_k32(A_OF((int)(u)), (int8)(q), s)
#define ONE(s)       ((s).s0 ^ (s).s1 ^ (s).s2 ^ (s).s3 ^ (s).s4 ^ (s).s5 ^ (s).s6 ^ (s).s7)
__attribute__((intel_reqd_sub_group_size(SUB_GROUP)))
#else
#define SUM    int
#define ONE(s) (s)
#if PEAK == 1
#define DOT(u, q, s) dot_acc_sat_4x8packed_us_int(u, (uint)(q), s)
#else
static int DOT(uint u, int q, int s) {
    uchar4 a = as_uchar4(u);
    char4 b = as_char4(q);
    return s + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
#endif
#endif
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void probe_dot(uint rounds, global uint *out) {
    SUM sums[CHAINS];
    uint id = (uint)get_global_id(0);
    int all = 0;
#pragma unroll
    for (uint c = 0; c < CHAINS; c++) sums[c] = (int)(id + c);
    for (uint i = 0; i < rounds; i++)
#pragma unroll
        for (uint c = 0; c < CHAINS; c++) sums[c] = DOT(id + i, (int)(id * (2 * c + 1)), sums[c]);
#pragma unroll
    for (uint c = 0; c < CHAINS; c++) all ^= ONE(sums[c]);
    if (all == (int)UNLIKELY) out[0] = (uint)all;
}
