/* Activations to int8, for linear layers with -D X=8: x, or its RMS norm, or a gated activation, as INPUT says.
 *
 *     kernel void quantize_rows(batch, uint on_outputs, uint k, global const float *x, global const float *aux,
 *                          global const uint *order, float eps, global int *q, global float *sx, global int *qsum, local int *scratch)
 *
 *     x       f32 [N][k]
 *     aux     INPUT=1: the norm's weight [k]; INPUT=2, 3: up, f32 [N][k]; else null
 *     order   ORDER=1: u32 [k], which column of x, and of aux, value k is made of; else null
 *     eps     INPUT=1: the norm's
 *     q       out: int8 [N][K'], each 32-block in plane order for weights of BITS (the kernel's x_bits in the registry:
 *             the weights' width; 8 or 0, which is rising k, for matrix instructions), zeros beyond k; with X_PAIRS=1 K'
 *             is a multiple of 64. With X_ROWS=8 [N/8][K'/32][8][32], N rounded up: what of 8 rows is multiplied at once
 *             lies together
 *     sx      out: f32 [N] with ROW_SCALE=1, else [N][K'/X_GROUP]
 *     qsum    out: int32 [N][K'/X_GROUP], or [N] with X_GROUP=0
 *     scratch local memory: 4 * (scales of a row + sums of a row) bytes
 *
 * With ONLY_SCALES=1 (X_GROUP=0, INPUT=0, ORDER=0) only sx is written, and is the largest |x| of each row: for a linear layer that
 * quantizes by itself (gemm.cl, SCALED), whose work-groups would each look for it.
 *
 * Work-groups: one per row; local size -D WG=n (a power of 2, default 128).
 * Options: BITS, X_PAIRS, X_GROUP, ROW_SCALE, INPUT, ORDER (common.cl), -D X_ROWS=1|8 (1 where left out), -D ONLY_SCALES=0|1 (0 where
 * left out).
 * Result: exactly cpu/ref/quantize.c's; with INPUT=1 as near as the norm (norm.cl). */
#ifndef WG
#define WG 128
#endif
#ifndef X_ROWS
#define X_ROWS 1
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
quantize_rows(global const crumb_batch *batch, uint on_outputs, uint k, global const crumb_value *x,
              global const crumb_aux *aux, global const uint *order, float eps, global int *q, global float *sx,
              global int *qsum, local int *scratch) {
    local float2 sum_scratch[WG];
    uint n = get_group_id(0), n_ints = ROUND_UP(k, TILE_K) / 4;
    if (n >= N_OF(batch, on_outputs)) return;
    uint n_groups = GROUPS_OF(4 * n_ints), n_scales = ROW_SCALE ? 1 : n_groups;
    local int *largest = scratch, *sums = scratch + n_scales;
#if ONLY_SCALES
    if (get_local_id(0) == 0) scratch[0] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    find_largest(x + (size_t)n * k, aux, order, 1, k, n_ints, scratch);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) sx[n] = as_float(scratch[0]);
#else
    global const crumb_aux *own_aux = INPUT >= 2 ? aux + (size_t)n * k : aux;
    q += (size_t)(n / X_ROWS * X_ROWS) * n_ints + n % X_ROWS * (TILE_K / 4);
    quantize_row(x + (size_t)n * k, own_aux, order, eps, k, n_ints, sum_scratch, largest, sums, q,
                 X_ROWS * (TILE_K / 4));
    for (uint g = get_local_id(0); g < n_groups; g += WG) {
        qsum[(size_t)n * n_groups + g] = sums[g];
        if (g < n_scales) sx[(size_t)n * n_scales + g] = quantizer_of(as_float(largest[g]), ROW_SCALE).sx;
    }
#endif
}
