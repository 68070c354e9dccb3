/* What all kernels share: the batch, arithmetic that every device does alike, the tile layout, quantization. A program
 * is this file followed by ONE other of this folder, built with
 *
 *     -cl-fp32-correctly-rounded-divide-sqrt   and the -D options that the other file names
 *
 * in OpenCL C 1.2, or 3.0 with DOT or MATRIX (not all devices declare those functions in 1.2),
 * and never with fast-math options: the kernels compute the same sequences of IEEE operations as cpu/ref, so that a
 * device gives the same numbers as the CPU, bit for bit, where division, sqrt and fma are IEEE. What is not exact says
 * so.
 *
 * Conventions of all kernels
 *   batch        crumb_batch in device memory: 16 bytes, then one crumb_row per row. It alone changes between replays.
 *   on_outputs   0: the kernel works on the batch's n_rows rows; 1: on the n_outputs rows that SELECT has kept.
 *                Rows beyond are not written, so a launch may be recorded for the most rows of a bucket.
 *   global size  local size x groups, as each file says, in the order (0, 1, 2).
 *   pointers     may be null where "or null" stands, and also where the options make the kernel not read them.
 *   k', K'       columns, and columns rounded up to 32.
 *
 * -D BITS=0|1|2|3|4|5|6|8   width of a code in the tile layout (host/lowbit/tile.h); 0 or left out: no tiles
 */
#pragma OPENCL FP_CONTRACT OFF

typedef struct {
    int token;
    uint sequence;
    uint position;
    uint output; /* its number among the rows that SELECT keeps; ~0u: none */
} crumb_row;

typedef struct {
    uint n_rows, n_outputs;
    uint max_kv; /* the largest position of any row + 1 */
    uint number; /* of the replay */
} crumb_batch;

#define ROWS_OF(batch)            ((global const crumb_row *)((batch) + 1))
#define N_OF(batch, on_outputs)   ((on_outputs) ? (batch)->n_outputs : (batch)->n_rows)
#define NO_OUTPUT                 0xffffffffu
#define TILE_ROWS                 16
#define TILE_K                    32
#define QUANTIZE_TINY             1e-30f
#define DIV_UP(a, b)              (((a) + (b) - 1) / (b))
#define ROUND_UP(a, b)            (DIV_UP(a, b) * (b))

/* ---- values: rows that pass from op to op through memory -----------------------------------------------------------
 * -D VALUES=32|16    f32, or bf16: what a kernel reads. Where a file says f32 of x, gate, up, q, k, v, add, y or out, it is
 *                    that of this option; 32 where left out
 * -D RESULTS=32|16   what it writes, and `add`, which may lie in the same place; as VALUES where left out
 * All arithmetic is f32, and a result is rounded once, to nearest even, where it is written; of gated parts (GATED) each
 * is rounded, as if it had been. What a launch keeps for itself is f32: norms and gated activations that it quantizes. */
#ifndef VALUES
#define VALUES 32
#endif
#ifndef RESULTS
#define RESULTS VALUES
#endif

static ushort to_bf16(float x) {
    uint bits = as_uint(x); /* a NaN stays one: its fraction's high bits are kept */
    return isnan(x) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static float from_bf16(ushort x) {
    return as_float((uint)x << 16);
}

#if VALUES == 16
typedef ushort crumb_value;
#define FROM_VALUE(x) from_bf16(x)
#else
typedef float crumb_value;
#define FROM_VALUE(x) (x)
#endif
#if RESULTS == 16
typedef ushort crumb_result;
#define FROM_RESULT(x) from_bf16(x)
#define TO_RESULT(x)   to_bf16(x)
#else
typedef float crumb_result;
#define FROM_RESULT(x) (x)
#define TO_RESULT(x)   (x)
#endif

/* A linear layer's result number `at`, `add` being null where nothing is added. */
static crumb_result sum_with(global const crumb_result *add, size_t at, float y) {
    return TO_RESULT(add ? y + FROM_RESULT(add[at]) : y);
}

/* ---- exp, as cpu/float.h defines it ------------------------------------------------------------------------------- */

static float crumb_exp(float x) {
    x = -87.3f > x ? -87.3f : x;
    x = 88.3f < x ? 88.3f : x;
    float n = rint(x * 1.44269504f);
    float r = fma(-n, 0.693359375f, x);
    r = fma(-n, -2.12194440e-4f, r);
    float p = fma(1.9875691500e-4f, r, 1.3981999507e-3f);
    p = fma(p, r, 8.3334519073e-3f);
    p = fma(p, r, 4.1665795894e-2f);
    p = fma(p, r, 1.6666665459e-1f);
    p = fma(p, r, 5.0000001201e-1f);
    p = fma(p, r * r, r) + 1.0f;
    return isnan(n) ? n : p * as_float((uint)((int)n + 127) << 23);
}

/* activation(gate) * up; fn 1: silu, 2: relu squared, in f32, which it cannot overflow for finite f16 inputs. */
static float crumb_gated(int fn, float gate, float up) {
    float positive = gate > 0 ? gate : 0;
    return (fn == 1 ? gate / (1.0f + crumb_exp(-gate)) : positive * positive) * up;
}

/* ---- sums in pairs of floats, (high, low): about 46 bits, where a device may have no double ----------------------- */

static float2 pair_add(float2 a, float2 b) {
    float s = a.x + b.x, t = s - a.x;
    float e = ((a.x - (s - t)) + (b.x - t)) + (a.y + b.y);
    float high = s + e;
    return (float2)(high, e - (high - s));
}

static float2 pair_add_square(float2 a, float x) {
    float p = x * x;
    return pair_add(a, (float2)(p, fma(x, x, -p)));
}

/* 1 / sqrt(sum / n + eps), rounded to float. The CPU sums in double: the two differ, by one ulp, where the exact value
 * lies within 2^-45 of the middle between two floats. */
static float inverse_rms(float2 sum, uint n, float eps) {
    float count = (float)n, q = sum.x / count;
    float2 mean = pair_add((float2)(q, (fma(-q, count, sum.x) + sum.y) / count), (float2)(eps, 0));
    float r = 1 / sqrt(mean.x);
    float p = r * r, p_low = fma(r, r, -p); /* one step of Newton's method, its residual in pairs */
    float m = mean.x * p, m_low = fma(mean.x, p, -m);
    float e = ((1 - m) - m_low) - (mean.x * p_low + mean.y * p);
    return fma(0.5f * r, e, r);
}

/* The sum of all items of a work-group; `scratch` has one entry per item, and is free again after it. */
static float2 work_group_sum(float2 value, local float2 *scratch) {
    uint id = get_local_id(0);
    scratch[id] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint n = get_local_size(0); n > 1;) {
        uint half_n = (n + 1) / 2;
        if (id < n / 2) scratch[id] = pair_add(scratch[id], scratch[id + half_n]);
        n = half_n;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float2 sum = scratch[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}

/* ---- tiles -------------------------------------------------------------------------------------------------------- */

#ifndef BITS
#define BITS 0
#endif
#if BITS == 3
#define BASE 2
#elif BITS == 5 || BITS == 6
#define BASE 4
#elif BITS == 0
#define BASE 8
#else
#define BASE BITS
#endif
#define EXTRA     (BITS ? BITS - BASE : 0)
#define PLANES    (8 / BASE)  /* codes of a byte of a base dword */
#define PER_DWORD (32 / BASE) /* codes of a base dword */
#define BASE_MASK (BASE == 1 ? 0x01010101u : BASE == 2 ? 0x03030303u : BASE == 4 ? 0x0f0f0f0fu : 0xffffffffu)

/* The k within its 32-block of linear index L. */
static uint k_of_linear(uint linear) {
    return 16 * (linear % 2) + linear / 2;
}
static uint linear_of_k(uint k) {
    return 2 * (k % 16) + k / 16;
}

/* Activations are stored in an order that suits the weights. Byte j of int i = dword * planes + plane of a 32-block is
 * this k:
 * -D X_ORDER=b    plane order for weights of b bits, [dword][plane][4 bytes]; BITS where left out. For 8 that is linear
 *                 order, which is what matrix instructions want for most widths
 * -D X_ORDER=0    rising k
 * -D X_PAIRS=0|1  1: of two 32-blocks the second and the third 16 bytes change places */
#ifndef X_ORDER
#define X_ORDER BITS
#endif
#ifndef X_PAIRS
#define X_PAIRS 0
#endif
#if X_ORDER == 0
static uint k_of_byte(uint i, uint j) {
    return 4 * i + j;
}
#else
#define ORDER_PLANES (X_ORDER == 8 ? 1 : PLANES)
static uint k_of_byte(uint i, uint j) {
    return k_of_linear(4 * ORDER_PLANES * (i / ORDER_PLANES) + ORDER_PLANES * j + i % ORDER_PLANES);
}
#endif
/* Where X_PAIRS puts int i of a row. */
static uint place_of_int(uint i) {
    return X_PAIRS ? (i & ~12u) | (i & 4) << 1 | (i & 8) >> 1 : i;
}

#if BITS
/* The code of a row at linear index L; `tile` points to the row's lane. */
static uint tile_code(global const uint *tile, uint linear) {
    uint d = linear / PER_DWORD, at = linear % PER_DWORD * BASE;
    uint code = tile[d * TILE_ROWS] >> at & ((1u << BASE) - 1);
#if BITS == 3 || BITS == 5 || BITS == 6
    uint high = tile[(BASE + d * EXTRA / BASE) * TILE_ROWS];
    code |= (high >> (at + EXTRA * (d % (BASE / EXTRA))) & ((1u << EXTRA) - 1)) << BASE;
#endif
    return code;
}
#endif

/* ---- scales ------------------------------------------------------------------------------------------------------- *
 * -D SCALE=16|32|8     f16, f32, or int8 that multiply f16 super-scales ("two levels")
 * -D GROUP=g           weights per scale: 16, a multiple of 32, or 0: one per row
 * -D SUPER_GROUP=g     with SCALE=8: weights per super-scale, a multiple of GROUP and of 32 */
#ifdef SCALE
#ifndef GROUP
#define GROUP 0
#endif
#ifndef SUPER_GROUP
#define SUPER_GROUP 32
#endif

/* Scale (or min) `group` of the row at `lane` of a tile-row; values are [tile][K'/GROUP][16]. */
static float load_scale(global const uchar *values, global const half *supers, uint tile, uint lane, uint group,
                        uint k_padded) {
    size_t n_groups = GROUP ? k_padded / (GROUP ? GROUP : 1) : 1, i = (tile * n_groups + group) * TILE_ROWS + lane;
#if SCALE == 32
    return ((global const float *)values)[i];
#elif SCALE == 16
    return vload_half(i, (global const half *)values);
#else
    size_t above = tile * (size_t)(k_padded / SUPER_GROUP) + group * (GROUP ? GROUP : k_padded) / SUPER_GROUP;
    return vload_half(above * TILE_ROWS + lane, supers) * (float)((global const char *)values)[i];
#endif
}
#endif

/* ---- activations -------------------------------------------------------------------------------------------------- *
 * Quantization exactly as cpu/kernels.h has it. */

typedef struct {
    float to_code, sx; /* code = round(x * to_code), x = code * sx */
} crumb_quantizer;

/* Structures are set member by member: of initializers with zeros Intel's offline compiler makes constants, which it does not
 * list among what an entry point uses, as SPIR-V asks. */
static crumb_quantizer quantizer_of(float largest, bool row) {
    crumb_quantizer z;
    if (row) largest = fmax(largest, 1e-5f);
    const bool any = largest >= QUANTIZE_TINY;
    z.to_code = any ? 127.0f / largest : 0.0f;
    z.sx = any ? largest / 127.0f : 0.0f;
    return z;
}

static int quantize(float x, float to_code) {
    return (int)fmin(fmax(rint(x * to_code), -128.0f), 127.0f);
}

/* -D X_GROUP=g       codes per sum of codes: 16, a multiple of 32, or 0: the row. Where activations have one scale per
 *                    group it is theirs (crumb_op's act_group), where they have one per row it is the weights' GROUP
 * -D ROW_SCALE=0|1   1: one scale per row (CRUMB_ACT_ROW); 0: one per X_GROUP (CRUMB_ACT_GROUP)
 * -D INPUT=0|1|2|3   what is quantized: 0: x; 1: its RMS norm, aux being the weight [k]; 2: silu(x) * aux,
 *                    3: relu(x)^2 * aux, aux being [N][k] as x is */
#ifdef X_GROUP
#ifndef INPUT
#define INPUT 0
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

/* The four values that int i of a row's codes is made of; 0 beyond k. */
static void input_values(global const crumb_value *x, global const crumb_aux *aux, float r, uint k, uint i, float v[4]) {
#pragma unroll
    for (uint j = 0; j < 4; j++) {
        uint at = i / 8 * TILE_K + k_of_byte(i % 8, j);
        v[j] = at < k ? input_value(x, aux, r, at) : 0;
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

/* largest[s] = the bits of the largest |x| of scale s; they order like the floats. */
static void find_largest(global const crumb_value *x, global const crumb_aux *aux, float r, uint k, uint n_ints,
                         local int *largest) {
    float row = 0;
    for (uint i = get_local_id(0); i < n_ints; i += get_local_size(0)) {
        float v[4];
        input_values(x, aux, r, k, i, v);
#if ROW_SCALE || X_GROUP == 0
        row = fmax(row, fmax(fmax(fabs(v[0]), fabs(v[1])), fmax(fabs(v[2]), fabs(v[3]))));
#elif X_GROUP == 16
#pragma unroll
        for (uint j = 0; j < 4; j++)
            atomic_max(&largest[i / 8 * 2 + k_of_byte(i % 8, j) / 16], as_int(fabs(v[j])));
#else
        float four = fmax(fmax(fabs(v[0]), fabs(v[1])), fmax(fabs(v[2]), fabs(v[3])));
        atomic_max(&largest[GROUP_OF(4 * i)], as_int(four));
#endif
    }
#if ROW_SCALE || X_GROUP == 0
    atomic_max(&largest[0], as_int(row));
#endif
}

static void make_codes(global const crumb_value *x, global const crumb_aux *aux, float r, uint k, uint n_ints,
                       local const int *largest, local int *sums, Q_MEM int *q, uint block_stride) {
    int row_sum = 0;
    float to_code = quantizer_of(as_float(largest[0]), ROW_SCALE).to_code;
    for (uint i = get_local_id(0); i < n_ints; i += get_local_size(0)) {
        float v[4];
        int packed = 0, sum = 0;
        input_values(x, aux, r, k, i, v);
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
        row_sum += sum;
#if X_GROUP > 16
        atomic_add(&sums[GROUP_OF(4 * i)], sum);
#endif
    }
#if X_GROUP == 0
    atomic_add(&sums[0], row_sum);
#endif
}

/* Quantizes a row of k values with all items of the work-group: n_ints = K'/4 ints of codes in plane order, blocks of 8
 * block_stride apart, and their sums. `largest` [scales of a row] and `sums` [GROUPS_OF(K')] are local; the scales are
 * then made of `largest`. */
static void quantize_row(global const crumb_value *x, global const crumb_aux *aux, float eps, uint k, uint n_ints,
                         local float2 *scratch, local int *largest, local int *sums, Q_MEM int *q,
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
    find_largest(x, aux, r, k, n_ints, largest);
    barrier(CLK_LOCAL_MEM_FENCE);
    make_codes(x, aux, r, k, n_ints, largest, sums, q, block_stride);
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

/* ---- the KV cache ------------------------------------------------------------------------------------------------- *
 * It lies as on the CPU (cpu/attention.h), so that layers can move between devices with a copy: per layer, sequence and
 * key head blocks of 16 positions, of keys in one buffer and of values in the other.
 *     KV=16  keys f16 [HEAD_DIM][16], values f16 [16][HEAD_DIM]
 *     KV=8   f16 scales [group of 32 dimensions][16], then int8 codes: keys [HEAD_DIM/2][16][2],
 *            values [group][16/2][the group's dimensions][2]; HEAD_DIM padded to a multiple of 8
 *
 * -D HEAD_DIM=n   even
 * -D KV=16|8
 * Arguments: keys, values: the buffers of the whole cache; layer_offset: bytes in each before the layer;
 * head_blocks: blocks per sequence and head, ceil(n_ctx / 16). A buffer has layers * sequences * heads * head_blocks *
 * KV_BLOCK_BYTES bytes. */
#ifdef HEAD_DIM
#define KEY_BLOCK       16
#define KV_CHUNK        128 /* keys whose softmax is made together */
#define KV_GROUP        32
#define KV_GROUPS       DIV_UP(HEAD_DIM, KV_GROUP)
#define KV_STORED_DIMS  ROUND_UP(HEAD_DIM, 8)
#define KV_CODES_OFFSET (KV == 8 ? KV_GROUPS * KEY_BLOCK * 2 : 0)
#define KV_BLOCK_BYTES  (KV == 8 ? KV_CODES_OFFSET + KEY_BLOCK * KV_STORED_DIMS : KEY_BLOCK * HEAD_DIM * 2)

/* Where a head's blocks begin. */
static size_t kv_head_offset(ulong layer_offset, uint sequence, uint n_head_kv, uint head, uint head_blocks) {
    return layer_offset + ((size_t)sequence * n_head_kv + head) * head_blocks * KV_BLOCK_BYTES;
}

/* Dimensions of group g: of the head, and as they are stored. */
static uint kv_group_dims(uint g) {
    return min((uint)KV_GROUP, HEAD_DIM - g * KV_GROUP);
}
static uint kv_group_width(uint g) {
    return min((uint)KV_GROUP, KV_STORED_DIMS - g * KV_GROUP);
}

static float kv_within(float x, float most) {
    x = x > -most ? x : -most;
    return x < most ? x : most;
}

/* One step of multiplying each group of n_vectors heads by a Hadamard matrix. */
static void kv_turn_step(local float *x, uint n_vectors, uint distance) {
    for (uint i = get_local_id(0); i < n_vectors * (HEAD_DIM / 2); i += get_local_size(0)) {
        uint pair = i % (HEAD_DIM / 2), g = pair / (KV_GROUP / 2), n = kv_group_dims(g), at = pair % (KV_GROUP / 2);
        if (distance < (n & -n)) {
            local float *a = x + i / (HEAD_DIM / 2) * HEAD_DIM + g * KV_GROUP;
            a += at / distance * 2 * distance + at % distance;
            float low = a[0], high = a[distance];
            a[0] = low + high;
            a[distance] = low - high;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* The matrix's order is the largest power of 2 that divides a group's length, up to 32. With all items of the
 * work-group, after a barrier. */
static void kv_turn(local float *x, uint n_vectors) {
    kv_turn_step(x, n_vectors, 1);
    kv_turn_step(x, n_vectors, 2);
    kv_turn_step(x, n_vectors, 4);
    kv_turn_step(x, n_vectors, 8);
    kv_turn_step(x, n_vectors, 16);
}
#endif

/* ---- the matrices of a linear layer ------------------------------------------------------------------------------- *
 * -D PARTS=1|2|3, -D GATED=0|1|2: see linear.cl */
#ifdef PARTS
typedef struct {
    global const uint *codes;
    global const uchar *scales, *mins;
    global const half *supers, *super_mins;
    global const float *bias;
    global crumb_result *y;
    uint tile0, n_tiles, m, width;
    float out_scale;
} part;

#define PART_ARGS(i)                                                                                                   \
    global const uint *codes##i, global const uchar *scales##i, global const uchar *mins##i,                           \
        global const half *supers##i, global const half *super_mins##i, global const float *bias##i,                   \
        global crumb_result *y##i, uint tile0_##i, uint n_tiles##i, uint m##i, uint width##i, float out_scale##i
#define PART(i)                                                                                                        \
    {                                                                                                                  \
        codes##i, scales##i, mins##i, supers##i, super_mins##i, bias##i, y##i, tile0_##i, n_tiles##i, m##i, width##i,  \
            out_scale##i                                                                                               \
    }
#if PARTS == 1
#define PART_ARGS_LIST PART_ARGS(0)
#define PART_LIST      PART(0)
#elif PARTS == 2
#define PART_ARGS_LIST PART_ARGS(0), PART_ARGS(1)
#define PART_LIST      PART(0), PART(1)
#else
#define PART_ARGS_LIST PART_ARGS(0), PART_ARGS(1), PART_ARGS(2)
#define PART_LIST      PART(0), PART(1), PART(2)
#endif

/* The part that this work-group computes, and the number of the group within it; each has `tiles` tile-rows. */
static part part_of_group(private const part *parts, uint tiles, private uint *group) {
    part w = parts[0];
    *group = get_group_id(0);
#if !GATED && PARTS > 1
    if (*group >= DIV_UP(w.n_tiles, tiles)) {
        *group -= DIV_UP(w.n_tiles, tiles);
        w = parts[1];
#if PARTS > 2
        if (*group >= DIV_UP(w.n_tiles, tiles)) {
            *group -= DIV_UP(w.n_tiles, tiles);
            w = parts[2];
        }
#endif
    }
#endif
    return w;
}

/* The last steps of the sequence, but for `add`. */
static float finish(private const part *w, uint row, float result) {
    result = result * w->out_scale;
    return w->bias && row < w->m ? result + w->bias[row] : result;
}

/* The product of a gated part and part 1's result. */
static crumb_result gated_result(int fn, crumb_result gate, float up) {
    return TO_RESULT(crumb_gated(fn, FROM_RESULT(gate), FROM_RESULT(TO_RESULT(up))));
}
#endif
