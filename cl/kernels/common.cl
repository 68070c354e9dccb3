/* What all kernels share: the batch, arithmetic that every device does alike, the tile layout, quantization. It is one
 * text of several files, as every NAME.cl beside a folder NAME: this one, then the folder's in the order of their names.
 *     common.cl        the batch; f32 or bf16 between ops; exp, sums in pairs of floats
 *     1_tiles.cl       weights in tiles, the order of activations that suits them; scales
 *     2_quantize.cl    activations become codes, in 1_tiles.cl's order
 *     3_kv.cl          how the KV cache lies
 *     4_parts.cl       the matrices of a linear layer's launch
 *     5_dense.cl       the same of dense ones
 *     6_terms.cl       activations become sums of 16-bit floats; it needs 2_quantize.cl, which needs 1_tiles.cl
 *     7_attention.cl   sizes of attention's launches, and how its chunks of keys are merged; it needs 3_kv.cl
 * The others stand alone behind this file, and none has anything where a program lacks its options.
 *
 * A program is this text followed by ONE other of this folder, built with
 *
 *     -cl-fp32-correctly-rounded-divide-sqrt, or where the device does not take that -D ROUND_DIVISION=1,
 *     and the -D options that the other text names
 *
 * in OpenCL C 1.2, in 3.0 with DOT or MATRIX (not all devices declare those functions in 1.2), and of attention_split, whose
 * work-groups merge what others of the launch have made, in the newest that the device has; and never with fast-math options:
 * the kernels compute the same sequences of IEEE operations as cpu/ref, so that a device gives the same numbers as the CPU, bit
 * for bit. What is not exact says so.
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
/* Linear layers' work-groups: blocks of rows of activations, times parts of the weights. Devices start those along
 * dimension 0 first, so that blocks that read the same weights run together, and memory brings weights once. */
#define ROW_BLOCK                 get_group_id(0)
#define WEIGHTS_BLOCK             get_group_id(1)
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
#define FROM_VALUE(x)  from_bf16(x)
#define ROUND_VALUE(x) from_bf16(to_bf16(x)) /* as if it had been written, and read */
#else
typedef float crumb_value;
#define FROM_VALUE(x)  (x)
#define ROUND_VALUE(x) (x)
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

/* ---- division ----------------------------------------------------------------------------------------------------- *
 * a / b for 0 < b, rounded to nearest even: one unit more or less would be another code.
 * -D ROUND_DIVISION=1   the device's division is off by up to 2.5 units, as dg2's is */
#if ROUND_DIVISION
static float crumb_divide(float a, float b) {
    int a_exponent, b_exponent;
    if (!(fabs(a) > 0 && fabs(a) < INFINITY && b < INFINITY)) return a / b;
    /* Both from 0.5 to 1, so that nothing below overflows or is too small. One step of Newton's method leaves the quotient at
     * most a unit off; by what is left then, which is exact, it is seen which way. It never lies in the middle. */
    float x = frexp(fabs(a), &a_exponent), y = frexp(b, &b_exponent), q = x / y;
    q = fma(fma(-q, y, x), 1 / y, q);
    float left = fma(-q, y, x), half_unit = as_float(as_uint(q) & 0x7f800000) * 0x1p-24f * y;
    q = as_float(as_uint(q) + (left > half_unit) - (left < -half_unit));
    return copysign(ldexp(q, a_exponent - b_exponent), a);
}
#else
static float crumb_divide(float a, float b) {
    return a / b;
}
#endif

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
    return (fn == 1 ? crumb_divide(gate, 1.0f + crumb_exp(-gate)) : positive * positive) * up;
}

/* The product of a gated part, which is rounded, and the other part's result. */
static crumb_result gated_result(int fn, crumb_result gate, float up) {
    return TO_RESULT(crumb_gated(fn, FROM_RESULT(gate), FROM_RESULT(TO_RESULT(up))));
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
