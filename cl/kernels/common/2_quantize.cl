/* common.cl: activations become int8 codes, exactly as cpu/kernels.h has it, by all items of a work-group: in a
 * launch of its own (quantize.cl), or in a linear layer's (X=32). */

typedef struct {
    float to_code, sx; /* code = round(x * to_code), x = code * sx */
} crumb_quantizer;

/* Structures are set member by member: of initializers with zeros Intel's offline compiler makes constants, which it does not
 * list among what an entry point uses, as SPIR-V asks. */
static crumb_quantizer quantizer_of(float largest, bool row) {
    crumb_quantizer z;
    if (row) largest = fmax(largest, 1e-5f);
    const bool any = largest >= QUANTIZE_TINY;
    z.to_code = any ? crumb_divide(127.0f, largest) : 0.0f;
    z.sx = any ? crumb_divide(largest, 127.0f) : 0.0f;
    return z;
}

static int quantize(float x, float to_code) {
    return (int)fmin(fmax(rint(x * to_code), -128.0f), 127.0f);
}

/* -D X_GROUP=g       codes per sum of codes: 16, a multiple of 32, or 0: the row. Where activations have one scale per
 *                    group it is theirs (crumb_op's act_group), where they have one per row it is the weights' GROUP
 * -D ROW_SCALE=0|1   1: one scale per row (CRUMB_ACT_ROW); 0: one per X_GROUP (CRUMB_ACT_GROUP)
 * -D INPUT=0|1|2|3   what is quantized: 0: x; 1: its RMS norm, aux being the weight [k]; 2: silu(x) * aux,
 *                    3: relu(x)^2 * aux, aux being [N][k] as x is
 * -D ORDER=0|1       1: value k is made of column order[k] of x, and of aux; 0 where left out. A norm's is x's as it
 *                    lies: its root mean square is the same in any order, but for how it is added up */
#ifdef X_GROUP
#ifndef INPUT
#define INPUT 0
#endif
#ifndef ORDER
#define ORDER 0
#endif
#ifndef ROW_SCALE
#define ROW_SCALE 0
#endif
#define GROUPS_OF(k_padded) (X_GROUP ? (k_padded) / (X_GROUP ? X_GROUP : 1) : 1) /* sums of a row */
#define GROUP_OF(k)         (X_GROUP ? (k) / (X_GROUP ? X_GROUP : 1) : 0)
#if X == 32
#define Q_MEM local /* quantized by the work-group that uses them */
#else
#define Q_MEM global
#endif
#define Q_READ Q_MEM const /* as linear layers read them */

#if INPUT >= 2
typedef crumb_value crumb_aux;
#else
typedef float crumb_aux;
#endif

static float input_value(global const crumb_value *x, global const crumb_aux *aux, float r, uint k) {
#if INPUT == 0
    return FROM_VALUE(x[k]);
#elif INPUT == 1
    return FROM_VALUE(x[k]) * r * aux[k];
#else
    return crumb_gated(INPUT - 1, FROM_VALUE(x[k]), FROM_VALUE(aux[k]));
#endif
}

/* The column of x that value k is made of. */
static uint column_of(global const uint *order, uint k) {
#if ORDER
    return order[k];
#else
    return k;
#endif
}

/* The four values that int i of a row's codes is made of; 0 beyond k, where it is not `whole`: of a 32-block that ends
 * within the row. Without that question values that lie beside each other are one load, and no load has a branch. */
static void input_values(global const crumb_value *x, global const crumb_aux *aux, global const uint *order, float r,
                         uint k, uint i, bool whole, float v[4]) {
#pragma unroll
    for (uint j = 0; j < 4; j++) {
        uint at = i / 8 * TILE_K + k_of_byte(i % 8, j);
        v[j] = whole || at < k ? input_value(x, aux, r, column_of(order, at)) : 0;
    }
}

static float row_inverse_rms(global const crumb_value *x, uint k, float eps, local float2 *scratch) {
#if INPUT == 1
    float2 sum = 0;
    for (uint i = get_local_id(0); i < k; i += get_local_size(0)) sum = pair_add_square(sum, FROM_VALUE(x[i]));
    return inverse_rms(work_group_sum(sum, scratch), k, eps);
#else
    return 1;
#endif
}

/* Takes int i into account: of a scale of its group in `largest`, else in what is returned. */
static float note_largest(global const crumb_value *x, global const crumb_aux *aux, global const uint *order, float r,
                          uint k, uint i, bool whole, local int *largest) {
    float v[4];
    input_values(x, aux, order, r, k, i, whole, v);
    float four = fmax(fmax(fabs(v[0]), fabs(v[1])), fmax(fabs(v[2]), fabs(v[3])));
#if ROW_SCALE || X_GROUP == 0
    return four;
#elif X_GROUP == 16
#pragma unroll
    for (uint j = 0; j < 4; j++) atomic_max(&largest[i / 8 * 2 + k_of_byte(i % 8, j) / 16], as_int(fabs(v[j])));
#else
    atomic_max(&largest[GROUP_OF(4 * i)], as_int(four));
#endif
    return 0;
}

/* largest[s] = the bits of the largest |x| of scale s; they order like the floats. */
static void find_largest(global const crumb_value *x, global const crumb_aux *aux, global const uint *order, float r,
                         uint k, uint n_ints, local int *largest) {
    float row = 0;
    uint n_whole = k / TILE_K * 8, rest = n_whole + get_local_id(0);
    for (uint i = get_local_id(0); i < n_whole; i += get_local_size(0))
        row = fmax(row, note_largest(x, aux, order, r, k, i, true, largest));
    if (rest < n_ints) row = fmax(row, note_largest(x, aux, order, r, k, rest, false, largest));
#if ROW_SCALE || X_GROUP == 0
    atomic_max(&largest[0], as_int(row));
#endif
}

/* Writes int i, and adds its codes to its group's in `sums`; returns their sum. */
static int make_int(global const crumb_value *x, global const crumb_aux *aux, global const uint *order, float r, uint k,
                    uint i, bool whole, float to_code, local const int *largest, local int *sums, Q_MEM int *q,
                    uint block_stride) {
    float v[4];
    int packed = 0, sum = 0;
    input_values(x, aux, order, r, k, i, whole, v);
#if !ROW_SCALE && X_GROUP > 16
    to_code = quantizer_of(as_float(largest[GROUP_OF(4 * i)]), false).to_code;
#endif
#pragma unroll
    for (uint j = 0; j < 4; j++) {
#if X_GROUP == 16
        uint g = i / 8 * 2 + k_of_byte(i % 8, j) / 16;
        if (!ROW_SCALE) to_code = quantizer_of(as_float(largest[g]), false).to_code;
#endif
        int code = quantize(v[j], to_code);
        packed |= (code & 255) << (8 * j);
        sum += code;
#if X_GROUP == 16
        atomic_add(&sums[g], code);
#endif
    }
    uint at = place_of_int(i);
    q[at / 8 * block_stride + at % 8] = packed;
#if X_GROUP > 16
    atomic_add(&sums[GROUP_OF(4 * i)], sum);
#endif
    return sum;
}

static void make_codes(global const crumb_value *x, global const crumb_aux *aux, global const uint *order, float r, uint k,
                       uint n_ints, local const int *largest, local int *sums, Q_MEM int *q, uint block_stride) {
    float to_code = quantizer_of(as_float(largest[0]), ROW_SCALE).to_code;
    uint n_whole = k / TILE_K * 8, rest = n_whole + get_local_id(0);
    int sum = 0;
    for (uint i = get_local_id(0); i < n_whole; i += get_local_size(0))
        sum += make_int(x, aux, order, r, k, i, true, to_code, largest, sums, q, block_stride);
    if (rest < n_ints) sum += make_int(x, aux, order, r, k, rest, false, to_code, largest, sums, q, block_stride);
#if X_GROUP == 0
    atomic_add(&sums[0], sum);
#endif
}

/* Quantizes a row of k values with all items of the work-group: n_ints = K'/4 ints of codes in plane order, blocks of 8
 * block_stride apart, and their sums. `largest` [scales of a row] and `sums` [GROUPS_OF(K')] are local; the scales are
 * then made of `largest`. */
static void quantize_row(global const crumb_value *x, global const crumb_aux *aux, global const uint *order, float eps,
                         uint k, uint n_ints, local float2 *scratch, local int *largest, local int *sums, Q_MEM int *q,
                         uint block_stride) {
    float r = row_inverse_rms(x, k, eps, scratch);
#if X_GROUP
    uint n_groups = GROUPS_OF(4 * n_ints), n_scales = ROW_SCALE ? 1 : n_groups;
    for (uint g = get_local_id(0); g < n_groups; g += get_local_size(0)) {
        sums[g] = 0;
        if (g < n_scales) largest[g] = 0;
    }
#else /* the same; but Intel's CPU runtime makes sub-groups of one item of kernels with such a loop to 1, from SPIR-V */
    if (get_local_id(0) == 0) sums[0] = largest[0] = 0;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    find_largest(x, aux, order, r, k, n_ints, largest);
    barrier(CLK_LOCAL_MEM_FENCE);
    make_codes(x, aux, order, r, k, n_ints, largest, sums, q, block_stride);
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif
