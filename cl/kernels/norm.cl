/* RMS norm: out = x / sqrt(mean(x^2) + eps) * weight, of whole rows or of each head.
 *
 *     kernel void rms_norm(batch, uint on_outputs, uint width, uint vectors, global const float *x,
 *                          global const float *weight, float eps, global float *out)
 *
 *     width    values that are normalised together: the row, or a head's dimensions
 *     vectors  of them per row: 1, or the number of heads
 *     x, out   f32 [N][vectors][width]; may be the same
 *     weight   f32 [width], the same for all heads
 *
 * Work-groups: (vectors, rows); local size -D WG=n (a power of 2, default 128; 32 is enough for heads).
 * Result: x * r * weight with r as near to 1 / sqrt(...) as inverse_rms in common.cl says; nearly always the CPU's. */
#ifndef WG
#define WG 128
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
rms_norm(global const crumb_batch *batch, uint on_outputs, uint width, uint vectors,
         global const crumb_value *x, global const float *weight, float eps, global crumb_result *out) {
    local float2 scratch[WG];
    uint n = get_group_id(1);
    if (n >= N_OF(batch, on_outputs)) return;
    size_t first = ((size_t)n * vectors + get_group_id(0)) * width;
    float2 sum = 0;
    for (uint i = get_local_id(0); i < width; i += WG) sum = pair_add_square(sum, FROM_VALUE(x[first + i]));
    float r = inverse_rms(work_group_sum(sum, scratch), width, eps);
    for (uint i = get_local_id(0); i < width; i += WG) out[first + i] = TO_RESULT(FROM_VALUE(x[first + i]) * r * weight[i]);
}
