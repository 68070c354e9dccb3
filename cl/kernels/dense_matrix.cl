/* Linear layers with dense weights of 16 bits on Intel's matrix instructions: y = (W x) * out_scale + bias + add, from
 * activations that split.cl has written as terms of the weights' type.
 *
 *     kernel void dense_matrix(batch, uint on_outputs, uint k, global const ushort *terms, global const float *down,
 *                              global const float *add, global const ushort *weights, global const float *bias,
 *                              global float *y, uint row0, uint row1, uint width, float out_scale)
 *
 *     k           columns, a multiple of 32
 *     terms, down what split.cl made with the same TYPE and TERMS
 *     weights     dense rows of k values of TYPE
 *     the others  linear_dense.cl
 *
 * Work-groups: (ceil((row1 - row0) / (TILES * SUB_GROUP)), ceil(N / TOKENS)), with SPREAD=0 ceil(N / (TOKENS * 8)).
 * Local size: SUB_GROUP * 8.
 * Options
 *   -D TYPE=16|17      f16, bf16
 *   -D TERMS=1|2       numbers that an activation is the sum of
 *   -D SUB_GROUP=16|8  the width of the device's matrix instructions
 *   -D TOKENS=1|2|4|8  rows of activations of a sub-group
 *   -D TILES=n         of SUB_GROUP rows of weights, which a sub-group has at once
 *   -D SPREAD=0|1      K has 8 slices. 1: each sub-group of a work-group sums one of them; 0: every sub-group sums all,
 *                      for TOKENS rows of activations of its own, so that all of a work-group read the same weights
 * Result: per slice a sum of k rising, term 0 before term 1, as the matrix instruction adds; then the slices in their
 * order: the same for any number of rows, but not the CPU's. It is nearer than 2^-15 (bf16; f16: 2^-19) of the sum of
 * the products' magnitudes to the exact one with two terms.
 *
 * A column of matrix B is a row of weights: an item reads 64 bytes of its own row at a time, which is a line of the
 * cache and two instructions' operand as it lies. */
#define SLICES  8
#define GROUPS  8  /* sub-groups of a work-group */
#define STEP    2  /* instructions' k that are loaded together: 32 */
#define UR      _Pragma("unroll")
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

#if TOKENS == 1
#define VECTOR(type) type
#else
#define VECTOR(type) JOIN(type, TOKENS)
#endif
#if SUB_GROUP == 16
typedef VECTOR(short) a_rows; /* lane l: element l of each row */
#define A_READ(p) JOIN(as_, VECTOR(short))(JOIN(intel_sub_group_block_read_us, COUNT)(p))
#else
typedef VECTOR(int) a_rows; /* lane l: elements 2l and 2l + 1 */
#define A_READ(p) JOIN(as_, VECTOR(int))(JOIN(intel_sub_group_block_read, COUNT)((global const uint *)(p)))
#endif
#if TOKENS == 1
#define COUNT
#else
#define COUNT TOKENS
#endif
typedef VECTOR(float) d_rows;
#if TYPE == 16
#define MULTIPLY intel_sub_group_f16_f16_matrix_mad_k16
#else
#define MULTIPLY intel_sub_group_bf16_bf16_matrix_mad_k16
#endif
d_rows __attribute__((overloadable)) MULTIPLY(a_rows a, int8 b, d_rows acc);

/* The sums of k [from, to) * 32 for TILES * SUB_GROUP rows of weights; `own` are this item's, one of each tile. */
static void sum_slice(global const ushort *terms, global const ushort *const own[TILES], uint from, uint to,
                      d_rows sums[TILES]) {
    UR for (uint j = 0; j < TILES; j++) sums[j] = 0;
    for (uint block = from; block < to; block++) {
        a_rows a[STEP][TERMS];
        UR for (uint s = 0; s < STEP; s++)
            UR for (uint t = 0; t < TERMS; t++)
                a[s][t] = A_READ(terms + ((size_t)(block * STEP + s) * TERMS + t) * 8 * 16);
        UR for (uint j = 0; j < TILES; j++) {
            int16 b = as_int16(vload16(0, (global const uint *)(own[j] + block * STEP * 16)));
            UR for (uint t = 0; t < TERMS; t++) sums[j] = MULTIPLY(a[0][t], b.lo, sums[j]);
            UR for (uint t = 0; t < TERMS; t++) sums[j] = MULTIPLY(a[1][t], b.hi, sums[j]);
        }
    }
}

static uint slice_begin(uint slice, uint n_blocks) {
    return slice * n_blocks / SLICES;
}

typedef struct {
    global const float *down, *bias;
    global const crumb_result *add;
    global crumb_result *y;
    uint n, row1, width;
    float out_scale;
} outputs;

static void store_sum(private const outputs *o, uint n, uint row, float sum) {
    if (n >= o->n || row >= o->row1) return;
    size_t at = (size_t)n * o->width + row;
    float result = sum * o->down[n];
    result = result * o->out_scale;
    if (o->bias) result = result + o->bias[row];
    o->y[at] = sum_with(o->add, at, result);
}

__attribute__((intel_reqd_sub_group_size(SUB_GROUP)))
__attribute__((reqd_work_group_size(SUB_GROUP *GROUPS, 1, 1))) kernel void
dense_matrix(global const crumb_batch *batch, uint on_outputs, uint k, global const ushort *terms,
             global const float *down, global const crumb_result *add, global const ushort *weights,
             global const float *bias, global crumb_result *y, uint row0, uint row1, uint width, float out_scale) {
    uint lane = get_local_id(0) % SUB_GROUP, group = get_local_id(0) / SUB_GROUP;
    uint first = (SPREAD ? get_group_id(1) : get_group_id(1) * GROUPS + group) * TOKENS;
    outputs o = {down, bias, add, y, N_OF(batch, on_outputs), row1, width, out_scale};
    if (first >= o.n) return;
    uint n_blocks = k / (STEP * 16);
    uint row = row0 + get_group_id(0) * TILES * SUB_GROUP + lane;
    global const ushort *own[TILES];
    d_rows sums[TILES];
    UR for (uint j = 0; j < TILES; j++) own[j] = weights + (size_t)min(row + j * SUB_GROUP, row1 - 1) * k;
    terms += (size_t)(first / 8) * k * TERMS * 8 + first % 8 * 16;
#if SPREAD
    local float parts[TILES][TOKENS][SLICES][SUB_GROUP];
    sum_slice(terms, own, slice_begin(group, n_blocks), slice_begin(group + 1, n_blocks), sums);
    UR for (uint j = 0; j < TILES; j++)
        UR for (uint t = 0; t < TOKENS; t++) parts[j][t][group][lane] = ((private const float *)&sums[j])[t];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = group; i < TILES * TOKENS; i += GROUPS) { /* one of them per sub-group */
        local const float *part = &parts[i / TOKENS][i % TOKENS][0][lane];
        float sum = part[0];
        for (uint s = 1; s < SLICES; s++) sum += part[s * SUB_GROUP];
        store_sum(&o, first + i % TOKENS, row + i / TOKENS * SUB_GROUP, sum);
    }
#else
    d_rows totals[TILES];
    sum_slice(terms, own, 0, slice_begin(1, n_blocks), totals);
#pragma unroll 1 /* else registers of sub-groups of 8 do not suffice */
    for (uint s = 1; s < SLICES; s++) {
        sum_slice(terms, own, slice_begin(s, n_blocks), slice_begin(s + 1, n_blocks), sums);
        UR for (uint j = 0; j < TILES; j++) totals[j] += sums[j];
    }
    UR for (uint j = 0; j < TILES; j++)
        UR for (uint t = 0; t < TOKENS; t++)
            store_sum(&o, first + t, row + j * SUB_GROUP, ((private const float *)&totals[j])[t]);
#endif
}
