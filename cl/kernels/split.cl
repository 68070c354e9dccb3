/* Activations as sums of 16-bit floats (common/6_terms.cl), for dense layers on matrix instructions (dense_matrix.cl):
 * x, or its RMS norm, as down * (term 0 + term 1).
 *
 *     kernel void split_rows(batch, uint on_outputs, uint k, global const float *x, global const float *aux, float eps,
 *                            global ushort *terms, global float *down)
 *
 *     x      f32 [N][k]; k a multiple of 16
 *     aux    INPUT=1: the norm's weight [k]; else null
 *     eps    INPUT=1: the norm's
 *     terms  out: [ceil(N/8)][k/16][TERMS][8][16]: row n is row n % 8 of block n / 8. Rows beyond N are not written
 *     down   out: f32 [N], a power of 2; 1 with TYPE=17
 *
 * Work-groups: one per row; local size -D WG=n (a power of 2, default 128).
 * Options: those of common/6_terms.cl
 * Result: two terms are x within 2^-16 of it in bf16; in f16 within 2^-21 of it or 2^-30 of the row's largest, which is
 * scaled into f16's range: no finite row overflows. */
#ifndef WG
#define WG 128
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
split_rows(global const crumb_batch *batch, uint on_outputs, uint k, global const crumb_value *x,
           global const crumb_aux *aux, float eps, global ushort *terms, global float *down) {
    local float2 sum_scratch[WG];
    local int largest;
    uint n = get_group_id(0);
    if (n >= N_OF(batch, on_outputs)) return;
    global const crumb_value *row = x + (size_t)n * k;
    float down_of_row, r = row_inverse_rms(row, k, eps, sum_scratch);
    float up = up_of_row(row, aux, r, k, &largest, &down_of_row);
    if (get_local_id(0) == 0) down[n] = down_of_row;
    global ushort *own = terms + (size_t)(n / 8) * k * TERMS * 8 + n % 8 * 16;
    for (uint i = get_local_id(0); i < k; i += WG) {
        float rest = input_value(row, aux, r, i) * up;
#pragma unroll
        for (uint t = 0; t < TERMS; t++) own[((size_t)(i / 16) * TERMS + t) * 8 * 16 + i % 16] = next_term(&rest);
    }
}
