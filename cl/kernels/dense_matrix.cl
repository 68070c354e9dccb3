/* Linear layers with dense weights of 16 bits on Intel's matrix instructions: y = (W x) * out_scale + bias + add, from
 * activations as terms of the weights' type (common/6_terms.cl): split.cl has written them, or each work-group makes them.
 *
 *     kernel void dense_matrix(batch, uint on_outputs, uint k, global const float *x, global const float *norm,
 *                              float eps, global const ushort *terms, global const float *down, global const float *add,
 *                              parts)
 *
 *     k            columns, a multiple of 32
 *     x, norm, eps OWN=1: linear_dense.cl's. Else null
 *     terms, down  OWN=0: what split.cl made with the same TYPE and TERMS. Else null
 *     the others   linear_dense.cl's
 *
 * Work-groups: (ceil(N / TOKENS), with SPREAD=0 ceil(N / (TOKENS * 8)); the sum of
 * ceil((row1 - row0) / (TILES * SUB_GROUP)) of all parts, with GATED of part 0). Local size: SUB_GROUP * 8.
 * Options
 *   DENSE_PARTS, GATED common/5_dense.cl; GATED with SPREAD=1 alone
 *   -D OWN=0|1         1: with SPREAD=1 and TOKENS=1: a row is split where it is read, by sub-groups; with X_GROUP and INPUT
 *                      of common/6_terms.cl
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

typedef struct {
#if OWN
    global const crumb_value *x;
    global const crumb_aux *norm;
    float r, up;
#else
    global const ushort *terms;
#endif
} activations;

/* The terms of 16 columns, from 16 * i on. */
static void load_terms(private const activations *a, uint i, a_rows out[TERMS]) {
#if OWN
    uint at = i * 16 + get_local_id(0) % SUB_GROUP * (16 / SUB_GROUP);
    float rest = input_value(a->x, a->norm, a->r, at) * a->up;
#if SUB_GROUP == 16
    UR for (uint t = 0; t < TERMS; t++) out[t] = as_short(next_term(&rest));
#else
    float of_next = input_value(a->x, a->norm, a->r, at + 1) * a->up;
    UR for (uint t = 0; t < TERMS; t++) {
        uint low = next_term(&rest), high = next_term(&of_next);
        out[t] = as_int(low | high << 16);
    }
#endif
#else
    UR for (uint t = 0; t < TERMS; t++) out[t] = A_READ(a->terms + ((size_t)i * TERMS + t) * 8 * 16);
#endif
}

/* The sums of k [from, to) * 32 for TILES * SUB_GROUP rows of weights; `own` are this item's, one of each tile. */
static void sum_slice(private const activations *a, global const ushort *const own[TILES], uint from, uint to,
                      d_rows sums[TILES]) {
    UR for (uint j = 0; j < TILES; j++) sums[j] = 0;
    for (uint block = from; block < to; block++) {
        a_rows terms[STEP][TERMS];
        UR for (uint s = 0; s < STEP; s++) load_terms(a, block * STEP + s, terms[s]);
        UR for (uint j = 0; j < TILES; j++) {
            int16 b = as_int16(vload16(0, (global const uint *)(own[j] + block * STEP * 16)));
            UR for (uint t = 0; t < TERMS; t++) sums[j] = MULTIPLY(terms[0][t], b.lo, sums[j]);
            UR for (uint t = 0; t < TERMS; t++) sums[j] = MULTIPLY(terms[1][t], b.hi, sums[j]);
        }
    }
}

static uint slice_begin(uint slice, uint n_blocks) {
    return slice * n_blocks / SLICES;
}

/* This item's rows of weights: number `row` of the part, and those SUB_GROUP apart behind it. */
static void find_rows(private const dense_part *w, uint row, uint k, global const ushort *own[TILES]) {
    UR for (uint j = 0; j < TILES; j++)
        own[j] = (global const ushort *)w->weights + (size_t)min(row + j * SUB_GROUP, w->row1 - 1) * k;
}

static void store_sum(private const dense_part *w, global const crumb_result *add, uint n, uint row, float sum) {
    size_t at = (size_t)n * w->width + row;
    w->y[at] = sum_with(add, at, dense_finish(w, row, sum));
}

#if SPREAD
typedef float slice_sums[TILES][TOKENS][SLICES][SUB_GROUP];

static void sum_own_slice(private const activations *a, private const dense_part *w, uint row, uint k,
                          local slice_sums *out) {
    uint lane = get_local_id(0) % SUB_GROUP, group = get_local_id(0) / SUB_GROUP, n_blocks = k / (STEP * 16);
    global const ushort *own[TILES];
    d_rows sums[TILES];
    find_rows(w, row, k, own);
    sum_slice(a, own, slice_begin(group, n_blocks), slice_begin(group + 1, n_blocks), sums);
    UR for (uint j = 0; j < TILES; j++)
        UR for (uint t = 0; t < TOKENS; t++) (*out)[j][t][group][lane] = ((private const float *)&sums[j])[t];
}

static float total_of(local const slice_sums *sums, uint tile, uint t) {
    local const float *part = &(*sums)[tile][t][0][get_local_id(0) % SUB_GROUP];
    float sum = part[0];
    for (uint s = 1; s < SLICES; s++) sum += part[s * SUB_GROUP];
    return sum;
}
#endif

__attribute__((intel_reqd_sub_group_size(SUB_GROUP)))
__attribute__((reqd_work_group_size(SUB_GROUP *GROUPS, 1, 1))) kernel void
dense_matrix(global const crumb_batch *batch, uint on_outputs, uint k, global const crumb_value *x,
             global const float *norm, float eps, global const ushort *terms, global const float *down,
             global const crumb_result *add, DENSE_ARGS_LIST) {
    uint lane = get_local_id(0) % SUB_GROUP, group = get_local_id(0) / SUB_GROUP, n = N_OF(batch, on_outputs), row;
    uint first = (SPREAD ? ROW_BLOCK : ROW_BLOCK * GROUPS + group) * TOKENS;
    if (first >= n) return;
    dense_part parts[DENSE_PARTS] = {DENSE_LIST};
    dense_part w = dense_part_of_group(parts, TILES * SUB_GROUP, &row);
    row += lane;
    activations a;
#if OWN
    local float2 scratch[SUB_GROUP * GROUPS];
    local int largest;
    float own_down;
    a.x = x + (size_t)first * k;
    a.norm = norm;
    a.r = row_inverse_rms(a.x, k, eps, scratch);
    a.up = up_of_row(a.x, norm, a.r, k, &largest, &own_down);
#define DOWN(n) own_down
#else
    a.terms = terms + (size_t)(first / 8) * k * TERMS * 8 + first % 8 * 16;
#define DOWN(n) down[n]
#endif
#if SPREAD
    local slice_sums sums[GATED ? 2 : 1];
    sum_own_slice(&a, &w, row, k, &sums[0]);
#if GATED
    sum_own_slice(&a, &parts[1], row, k, &sums[1]);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = group; i < TILES * TOKENS; i += GROUPS) { /* one of them per sub-group */
        uint tile = i / TOKENS, t = i % TOKENS, m = row + tile * SUB_GROUP;
        if (first + t >= n || m >= w.row1) continue;
        float sum = total_of(&sums[0], tile, t) * DOWN(first + t);
#if GATED
        float of_up = total_of(&sums[1], tile, t) * DOWN(first + t);
        w.y[(size_t)(first + t) * w.width + m] =
            gated_result(GATED, TO_RESULT(dense_finish(&w, m, sum)), dense_finish(&parts[1], m, of_up));
#else
        store_sum(&w, add, first + t, m, sum);
#endif
    }
#else
    uint n_blocks = k / (STEP * 16);
    global const ushort *own[TILES];
    d_rows sums[TILES], totals[TILES];
    find_rows(&w, row, k, own);
    sum_slice(&a, own, 0, slice_begin(1, n_blocks), totals);
#pragma unroll 1 /* else registers of sub-groups of 8 do not suffice */
    for (uint s = 1; s < SLICES; s++) {
        sum_slice(&a, own, slice_begin(s, n_blocks), slice_begin(s + 1, n_blocks), sums);
        UR for (uint j = 0; j < TILES; j++) totals[j] += sums[j];
    }
    UR for (uint j = 0; j < TILES; j++)
        UR for (uint t = 0; t < TOKENS; t++)
            if (first + t < n && row + j * SUB_GROUP < w.row1)
                store_sum(&w, add, first + t, row + j * SUB_GROUP,
                          ((private const float *)&totals[j])[t] * DOWN(first + t));
#endif
}
