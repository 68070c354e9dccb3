/* Activations as sums of 16-bit floats, for dense layers on matrix instructions (dense_matrix.cl): x, or its RMS norm,
 * as down * (term 0 + term 1), each term the rest of those before it rounded to nearest.
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
 * Options: -D TYPE=16|17 (f16, bf16), -D TERMS=1|2, -D INPUT=0|1;
 *          always -D X_GROUP=0, which brings in what common.cl has for activations
 * Result: two terms are x within 2^-16 of it in bf16; in f16 within 2^-21 of it or 2^-30 of the row's largest, which is
 * scaled into f16's range: no finite row overflows. */
#ifndef WG
#define WG 128
#endif

static ushort to_16(float x) {
#if TYPE == 16
    ushort bits;
    vstore_half_rte(x, 0, (private half *)&bits);
    return bits;
#else
    return to_bf16(x);
#endif
}

static float from_16(ushort x) {
#if TYPE == 16
    return vload_half(0, (private const half *)&x);
#else
    return from_bf16(x);
#endif
}

/* Every item gets the largest |x| of the row, as bits; they order like the floats. */
static int largest_of_row(global const crumb_value *x, global const crumb_aux *aux, float r, uint k, local int *largest) {
    float most = 0;
    if (get_local_id(0) == 0) *largest = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = get_local_id(0); i < k; i += WG) most = fmax(most, fabs(input_value(x, aux, r, i)));
    atomic_max(largest, as_int(most));
    barrier(CLK_LOCAL_MEM_FENCE);
    return *largest;
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
split_rows(global const crumb_batch *batch, uint on_outputs, uint k, global const crumb_value *x,
           global const crumb_aux *aux, float eps, global ushort *terms, global float *down) {
    local float2 sum_scratch[WG];
    local int largest;
    uint n = get_group_id(0);
    if (n >= N_OF(batch, on_outputs)) return;
    global const crumb_value *row = x + (size_t)n * k;
    float r = row_inverse_rms(row, k, eps, sum_scratch), up = 1;
    if (TYPE == 16) { /* the largest becomes 128 to 256; the exponent is held where both factors are normal numbers */
        int exponent = max(largest_of_row(row, aux, r, k, &largest) >> 23, 32);
        up = as_float((261 - exponent) << 23);
        if (get_local_id(0) == 0) down[n] = as_float((exponent - 7) << 23);
    } else if (get_local_id(0) == 0) {
        down[n] = 1;
    }
    global ushort *own = terms + (size_t)(n / 8) * k * TERMS * 8 + n % 8 * 16;
    for (uint i = get_local_id(0); i < k; i += WG) {
        float rest = input_value(row, aux, r, i) * up;
#pragma unroll
        for (uint t = 0; t < TERMS; t++) {
            ushort term = to_16(rest);
            own[((size_t)(i / 16) * TERMS + t) * 8 * 16 + i % 16] = term;
            rest -= from_16(term);
        }
    }
}
