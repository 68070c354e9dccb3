/* Linear layers with dense weights and f32 activations: y = (W x) * out_scale + bias + add.
 *
 *     kernel void linear_dense(batch, uint on_outputs, uint k, global const float *x, global const float *norm,
 *                              float eps, global const float *add, parts)
 *
 *     parts: of each of DENSE_PARTS matrices
 *                              global const uchar *weights, global const float *bias, global float *y, uint row0,
 *                              uint row1, uint width, float out_scale
 *
 *     x           f32 [N][k]
 *     norm, eps   INPUT=1: of the norm of x that the weights are multiplied with: its weight [k]. Else null
 *     weights     dense rows of k values of TYPE
 *     row0, row1  the rows of the matrix to compute; with GATED the same of both
 *     bias        f32 [rows of the matrix] or null
 *     add         f32 like y, added last (may be y itself), or null; with GATED null
 *     y           f32 [N][width]; row r goes to column r
 *
 * Work-groups: (ceil(rows / TOKENS); the sum of ceil((row1 - row0) / 16) of all parts, with GATED of part 0). Local size:
 * 128.
 * Options: -D TYPE=32|16|17 (f32, f16, bf16), -D TOKENS=n (1 to 8), -D X_GROUP=0 (which brings in what common.cl has for
 *          activations), -D INPUT=0|1 (common/2_quantize.cl; 1 with TOKENS=1 alone), DENSE_PARTS, GATED (common/5_dense.cl)
 * Result: exactly cpu/ref/dense.c's, of the norm as norm.cl makes it: eight sums per row, k % 8, which is also what keeps
 * eight items per row busy. */
#define LANES  8
#define ROWS   16
#define SIZE   (ROWS * LANES)
#define UNROLL (TOKENS == 1 ? 8 : 1) /* values of a row that an item loads together: what is on its way hides memory */
#define UR     _Pragma("unroll")

typedef struct {
    global const crumb_value *x;
    global const float *norm;
    uint k, last; /* the last row of activations */
    float r;
} activations;

static float weight_at(global const uchar *weights, size_t i) {
#if TYPE == 32
    return ((global const float *)weights)[i];
#elif TYPE == 16
    return vload_half(i, (global const half *)weights);
#else
    return as_float((uint)((global const ushort *)weights)[i] << 16);
#endif
}

static float value_at(private const activations *a, uint t, uint i) {
#if INPUT == 1
    return ROUND_VALUE(input_value(a->x, a->norm, a->r, i));
#else
    return FROM_VALUE(a->x[(size_t)min(t, a->last) * a->k + i]);
#endif
}

static void add_products(private const activations *a, uint i, float w, private float *sum) {
    UR for (uint t = 0; t < TOKENS; t++) sum[t] = fma(w, value_at(a, t, i), sum[t]);
}

/* The sum of row `row` with row `lane` of activations, of which there are `last` + 1. All items take part. */
static float sum_of_row(private const activations *a, private const dense_part *w, uint row, uint r, uint lane,
                        local float sums[TOKENS][ROWS][LANES]) {
    size_t from = (size_t)min(row, w->row1 - 1) * a->k;
    float sum[TOKENS];
    uint i = lane;
    UR for (uint t = 0; t < TOKENS; t++) sum[t] = 0;
    for (; i + (UNROLL - 1) * LANES < a->k; i += UNROLL * LANES) {
        float loaded[UNROLL];
        UR for (uint j = 0; j < UNROLL; j++) loaded[j] = weight_at(w->weights, from + i + j * LANES);
        UR for (uint j = 0; j < UNROLL; j++) add_products(a, i + j * LANES, loaded[j], sum);
    }
    for (; i < a->k; i += LANES) add_products(a, i, weight_at(w->weights, from + i), sum);
    barrier(CLK_LOCAL_MEM_FENCE); /* a part before may still be read */
    UR for (uint t = 0; t < TOKENS; t++) sums[t][r][lane] = sum[t];
    barrier(CLK_LOCAL_MEM_FENCE);
    local const float *s = sums[min(lane, a->last)][r];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

kernel __attribute__((reqd_work_group_size(SIZE, 1, 1))) void
linear_dense(global const crumb_batch *batch, uint on_outputs, uint k, global const crumb_value *x,
             global const float *norm, float eps, global const crumb_result *add, DENSE_ARGS_LIST) {
    local float sums[TOKENS][ROWS][LANES];
    local float2 scratch[SIZE];
    uint n = N_OF(batch, on_outputs), first = ROW_BLOCK * TOKENS;
    if (first >= n) return;
    dense_part parts[DENSE_PARTS] = {DENSE_LIST};
    uint lane = get_local_id(0) % LANES, r = get_local_id(0) / LANES, row;
    dense_part w = dense_part_of_group(parts, ROWS, &row);
    row += r;
    activations a;
    a.x = x + (size_t)first * k;
    a.norm = norm;
    a.k = k;
    a.last = min(n - first, (uint)TOKENS) - 1;
    a.r = row_inverse_rms(a.x, k, eps, scratch);
    float sum = sum_of_row(&a, &w, row, r, lane, sums);
#if GATED
    float of_up = sum_of_row(&a, &parts[1], row, r, lane, sums);
#endif
    if (lane <= a.last && row < w.row1) { /* item `lane` finishes that row of activations */
        size_t at = (size_t)(first + lane) * w.width + row;
        float result = dense_finish(&w, row, sum);
#if GATED
        w.y[at] = gated_result(GATED, TO_RESULT(result), dense_finish(&parts[1], row, of_up));
#else
        w.y[at] = sum_with(add, at, result);
#endif
    }
}
