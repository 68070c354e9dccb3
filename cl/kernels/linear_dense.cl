/* Linear layers with dense weights and f32 activations: y = (W x) * out_scale + bias + add.
 *
 *     kernel void linear_dense(batch, uint on_outputs, uint k, global const float *x, global const float *add,
 *                              global const uchar *weights, global const float *bias, global float *y, uint row0,
 *                              uint row1, uint width, float out_scale)
 *
 *     x           f32 [N][k]
 *     weights     dense rows of k values of TYPE
 *     row0, row1  the rows of the matrix to compute
 *     bias        f32 [rows of the matrix] or null
 *     add         f32 like y, added last (may be y itself), or null
 *     y           f32 [N][width]; row r goes to column r
 *
 * Work-groups: (ceil((row1 - row0) / 16), ceil(rows / TOKENS)); local size 128.
 * Options: -D TYPE=32|16|17 (f32, f16, bf16), -D TOKENS=n (1 to 8; default 1)
 * Result: exactly cpu/ref/dense.c's: eight sums per row, k % 8, which is also what keeps eight items per row busy. */
#ifndef TOKENS
#define TOKENS 1
#endif
#define LANES 8
#define ROWS  16

static float weight_at(global const uchar *weights, size_t i) {
#if TYPE == 32
    return ((global const float *)weights)[i];
#elif TYPE == 16
    return vload_half(i, (global const half *)weights);
#else
    return as_float((uint)((global const ushort *)weights)[i] << 16);
#endif
}

kernel __attribute__((reqd_work_group_size(ROWS *LANES, 1, 1))) void
linear_dense(global const crumb_batch *batch, uint on_outputs, uint k, global const crumb_value *x,
             global const crumb_result *add, global const uchar *weights, global const float *bias,
             global crumb_result *y, uint row0, uint row1, uint width, float out_scale) {
    local float sums[TOKENS][ROWS][LANES];
    uint n = N_OF(batch, on_outputs), first = get_group_id(1) * TOKENS;
    if (first >= n) return;
    uint lane = get_local_id(0) % LANES, r = get_local_id(0) / LANES, row = row0 + get_group_id(0) * ROWS + r;
    uint last = min(n - first, (uint)TOKENS) - 1;
    size_t from = (size_t)min(row, row1 - 1) * k;
    float sum[TOKENS];
#pragma unroll
    for (uint t = 0; t < TOKENS; t++) sum[t] = 0;
    for (uint i = lane; i < k; i += LANES) {
        float w = weight_at(weights, from + i);
#pragma unroll
        for (uint t = 0; t < TOKENS; t++) sum[t] = fma(w, FROM_VALUE(x[(size_t)(first + min(t, last)) * k + i]), sum[t]);
    }
#pragma unroll
    for (uint t = 0; t < TOKENS; t++) sums[t][r][lane] = sum[t];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane <= last && row < row1) { /* item `lane` finishes that row of activations */
        local const float *s = sums[lane][r];
        float result = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
        size_t at = (size_t)(first + lane) * width + row;
        result = result * out_scale;
        if (bias) result = result + bias[row];
        y[at] = sum_with(add, at, result);
    }
}
