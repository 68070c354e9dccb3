/* Linear layers for many rows of activations on Intel's matrix instructions with 2D block loads (Xe2 and later): what
 * linear.cl computes, with its arguments. A sub-group has TM * 8 rows of activations x TN tile-rows of sums in
 * registers, so that a load of activations feeds TN matrix instructions. With X=32 a work-group quantizes its rows once,
 * into local memory, or, however long they are, finds their scales, and each sub-group quantizes in registers.
 *
 * Arguments: linear.cl's, but for codebook, which is not read. q and codes begin at a multiple of 64 bytes, and K' is at
 * least 64. scratch: X=32: TOKENS * (K'' + 4 * (scales of a row + sums of a row)) bytes; K'' = K' rounded up to 128. With
 * IN_REGISTERS=1 it is not used, x begins at a multiple of 64 bytes, and k is a multiple of 4 and finite.
 * Work-groups: (as linear.cl's, with TILES = TN * SLICES; ceil(rows / TOKENS)), TOKENS = TM * 8.
 * Local size: 16 * SLICES.
 *
 * Options
 *   BITS               1, 2, 4 or 8
 *   SCALE, GROUP, SUPER_GROUP, X_GROUP, ROW_SCALE, INPUT   common.cl; X_GROUP 0, 32, 64 or 128
 *   X_ORDER            common.cl: 8, with 1 bit 0
 *   X, MINS, PARTS, GATED  linear.cl; with GATED part 0's results wait in y for part 1's
 *   -D MUL=0|1|2       1: `mul` is 1; 2: with BITS=1, it is 2; 0: whatever it is
 *   -D TM=1|2|4        -D TN=n   sums take TM * TN * 8 registers: 16 of them need -cl-intel-256-GRF-per-thread
 *   -D IN_REGISTERS=0|1  1: with X=32, X_GROUP=0, INPUT=0, X_ORDER=8: quantize in registers; TM is 1 or 2
 *   -D SLICES=n        sub-groups of a work-group, which take other tile-rows
 *   -D AHEAD=n         with X_GROUP=0: how many 128 k ahead codes, and activations in memory, are fetched into L1; 0: not
 * Result: exactly cpu/kernels.h's sequence. */
#define STEP   (X_GROUP ? X_GROUP / TILE_K : 4) /* 32-blocks of a step: a group, or 128 k */
#if TM == 1
#define TOKENS 8
#elif TM == 2
#define TOKENS 16
#else
#define TOKENS 32
#endif
#define UR     _Pragma("unroll")
#define INLINE static __attribute__((always_inline))
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

#if BITS <= 2
typedef uint2 b_columns;
#define MULTIPLY intel_sub_group_i8_u2_matrix_mad_k32
#elif BITS == 4
typedef uint4 b_columns;
#define MULTIPLY intel_sub_group_i8_u4_matrix_mad_k32
#else
typedef uint8 b_columns;
#define MULTIPLY intel_sub_group_i8_u8_matrix_mad_k32
#endif
int8 __attribute__((overloadable)) MULTIPLY(short8 a, b_columns b, int8 acc);

#if TM == 1
#define A_2D(op) JOIN(intel_sub_group_2d_block_##op, _8b_8r32x1c)
#elif TM == 2
#define A_2D(op) JOIN(intel_sub_group_2d_block_##op, _8b_16r32x1c)
#else
#define A_2D(op) JOIN(intel_sub_group_2d_block_##op, _8b_32r32x1c)
#endif
#ifndef IN_REGISTERS
#define IN_REGISTERS 0
#endif
#define X_READ JOIN(JOIN(intel_sub_group_2d_block_read_32b_, TOKENS), r16x1c)
#define B_ROWS (STEP * BITS)
#if B_ROWS == 32
#define B_2D(op) JOIN(intel_sub_group_2d_block_##op, _32b_32r16x1c)
#elif B_ROWS == 16
#define B_2D(op) JOIN(intel_sub_group_2d_block_##op, _32b_16r16x1c)
#elif B_ROWS == 8
#define B_2D(op) JOIN(intel_sub_group_2d_block_##op, _32b_8r16x1c)
#elif B_ROWS == 4
#define B_2D(op) JOIN(intel_sub_group_2d_block_##op, _32b_4r16x1c)
#elif B_ROWS == 2
#define B_2D(op) JOIN(intel_sub_group_2d_block_##op, _32b_2r16x1c)
#else
#define B_2D(op) JOIN(intel_sub_group_2d_block_##op, _32b_1r16x1c)
#endif
#define OVERLOAD __attribute__((overloadable))
void OVERLOAD A_2D(read)(global void *base, int width, int height, int pitch, int2 at, private ushort *out);
void OVERLOAD A_2D(prefetch)(global void *base, int width, int height, int pitch, int2 at);
void OVERLOAD B_2D(read)(global void *base, int width, int height, int pitch, int2 at, private uint *out);
void OVERLOAD B_2D(prefetch)(global void *base, int width, int height, int pitch, int2 at);

#if X == 32
#define Q_READ local const
#else
#define Q_READ global const
#endif

/* What of a launch the loop needs: the tile-rows as surfaces 64 bytes wide, the activations as one K' bytes wide. */
typedef struct {
    global const uint *codes; /* of the sub-group's first tile-row */
    Q_READ int *q, *qsum;     /* of the work-group's first row */
    Q_READ float *sx;
    uint first, last;         /* row `first` of the batch is row 0 of the work-group; beyond row `last` none is stored */
    uint k_padded, n_blocks, n_tiles;
    int mul, sub;
    global const float *x;  /* with IN_REGISTERS: the batch's */
    float to_code;          /* item r has row r's */
    uint n, k;
    local const int *start; /* with VIA_BASE: what groups' sums begin with, 8 x 16 times */
} operands;

/* Beyond the last tile-row of a part the same one is read again. */
INLINE global void *tile_row(private const operands *o, uint j) {
    return (global void *)(o->codes + (size_t)min(j, o->n_tiles - 1) * o->n_blocks * BITS * TILE_ROWS);
}

INLINE void load_b(private const operands *o, uint j, uint block, uint b[B_ROWS]) {
    B_2D(read)(tile_row(o, j), 64, (int)(o->n_blocks * BITS), 64, (int2)(0, (int)(block * BITS)), b);
}

#if IN_REGISTERS
void OVERLOAD X_READ(global void *base, int width, int height, int pitch, int2 at, private uint *out);

/* Rounding to nearest is adding 1.5 * 2^23: the code is then the low byte, and within -127 to 127. */
INLINE uint code_bits(uint x, float to_code) {
    float scaled = as_float(x) * to_code;
    return as_uint(scaled + 12582912.0f);
}

/* An item has elements 2 l and 2 l + 1 of a row, which are k = l and 16 + l. */
INLINE void load_a(private const operands *o, uint block, ushort a[STEP][TOKENS]) {
    int width = (int)(o->k * sizeof(float));
    UR for (uint u = 0; u < STEP; u++) {
        uint low[TOKENS], high[TOKENS];
        int k = (int)((block + u) * TILE_K);
        X_READ((global void *)o->x, width, (int)o->n, width, (int2)(k, (int)o->first), low);
        X_READ((global void *)o->x, width, (int)o->n, width, (int2)(k + 16, (int)o->first), high);
        UR for (uint t = 0; t < TOKENS; t++) {
            float to_code = intel_sub_group_shuffle(o->to_code, t);
            a[u][t] = (ushort)((code_bits(low[t], to_code) & 0xff) | code_bits(high[t], to_code) << 8);
        }
    }
}
#else
INLINE void load_a(private const operands *o, uint block, ushort a[STEP][TOKENS]) {
    UR for (uint u = 0; u < STEP; u++) {
#if X == 32
        UR for (uint i = 0; i < TM; i++) {
            local const ushort *rows = (local const ushort *)o->q + ((block + u) * TM + i) * (8 * TILE_K / 2);
            ushort8 eight = intel_sub_group_block_read_us8(rows);
            UR for (uint r = 0; r < 8; r++) a[u][i * 8 + r] = ((private const ushort *)&eight)[r];
        }
#else
        A_2D(read)((global void *)o->q, (int)o->k_padded, (int)(o->last + 1), (int)o->k_padded,
                   (int2)((int)((block + u) * TILE_K), 0), a[u]);
#endif
    }
}
#endif

INLINE void fetch_step(private const operands *o, uint block) {
    UR for (uint j = 0; j < TN; j++)
        B_2D(prefetch)(tile_row(o, j), 64, (int)(o->n_blocks * BITS), 64, (int2)(0, (int)(block * BITS)));
#if X != 32
    UR for (uint u = 0; u < STEP; u++)
        A_2D(prefetch)((global void *)o->q, (int)o->k_padded, (int)(o->last + 1), (int)o->k_padded,
                       (int2)((int)((block + u) * TILE_K), 0));
#endif
}

INLINE short8 rows_of(private const ushort *a, uint i) {
    short8 rows;
    UR for (uint r = 0; r < 8; r++) ((private short *)&rows)[r] = as_short(a[i * 8 + r]);
    return rows;
}

/* Block u of a step. Bits of even and of odd k are the two dwords of an operand of 2 bits, where they may stand high. */
INLINE b_columns columns_of(private const uint *b, uint u) {
    b_columns columns;
#if BITS == 1
    columns.s0 = MUL == 2 ? b[u] << 1 & 0xaaaaaaaau : b[u] & 0x55555555u;
    columns.s1 = MUL == 2 ? b[u] & 0xaaaaaaaau : b[u] >> 1 & 0x55555555u;
#else
    UR for (uint d = 0; d < BITS; d++) ((private uint *)&columns)[d] = b[u * BITS + d];
#endif
    return columns;
}

INLINE void multiply(ushort a[STEP][TOKENS], private const uint *b, uint u, int8 sums[TM]) {
    b_columns columns = columns_of(b, u);
    UR for (uint i = 0; i < TM; i++) sums[i] = MULTIPLY(rows_of(a[u], i), columns, sums[i]);
}

/* ---- floats ------------------------------------------------------------------------------------------------------- *
 * Sums of groups begin at FLOAT_BASE, so that they are the bits of the float 1.5 * 2^23 + sum: the conversion is one
 * subtraction, which takes sub * qsum away with it. All are integers below 2^24, and so exact. FLOAT_BASE comes from
 * local memory since the compiler writes a constant into registers anew for every sum. */
#define FLOAT_BASE  0x4b400000
#define MUL_IN_CODE (MUL == 1 || (MUL == 2 && BITS == 1)) /* sums have it already */
#define VIA_BASE    (X_GROUP && MUL_IN_CODE)
#define ROW_SETS    DIV_UP(TOKENS, 16) /* of 16 rows of activations, one per item */

/* Scales (or mins) of this item's row of each tile-row, for a group. Those of f16 and f32 are surfaces of a line per
 * tile-row, of which one load takes TN. */
#if GROUP && SCALE != 8
#if SCALE == 16
#define S_READ JOIN(JOIN(intel_sub_group_2d_block_read_16b_, TN), r16x1c)
typedef ushort s_lane;
#else
#define S_READ JOIN(JOIN(intel_sub_group_2d_block_read_32b_, TN), r16x1c)
typedef uint s_lane;
#endif
void OVERLOAD S_READ(global void *base, int width, int height, int pitch, int2 at, private s_lane *out);
#endif

INLINE void load_scales(private const operands *o, global const uchar *values, global const half *supers, uint tile, uint g,
                        float scales[TN]) {
    uint group = GROUP > 0 && X_GROUP > 0 ? g * X_GROUP / (GROUP ? GROUP : 1) : 0;
#if GROUP && SCALE != 8
    s_lane bits[TN];
    int width = (int)(o->k_padded / GROUP * TILE_ROWS * sizeof(s_lane));
    S_READ((global void *)values, width, (int)(tile + o->n_tiles), width, (int2)((int)(group * TILE_ROWS), (int)tile), bits);
    UR for (uint j = 0; j < TN; j++)
        scales[j] = SCALE == 32 ? as_float((uint)bits[j]) : vload_half(0, (private const half *)&bits[j]);
#else
    UR for (uint j = 0; j < TN; j++)
        scales[j] = load_scale(values, supers, tile + min(j, o->n_tiles - 1), get_local_id(0) % TILE_ROWS, group, o->k_padded);
#endif
}

/* A group's numbers: of the activations, item r of set s having row 16 s + r; of the weights, per tile-row. */
typedef struct {
    float minuend[ROW_SETS], sx[ROW_SETS], x_sum[ROW_SETS];
    int correction[ROW_SETS];
    float scale[TN], smallest[TN];
    int8 qsums[TM]; /* with IN_REGISTERS */
} group_numbers;

INLINE void load_group(private const operands *o, private const part *w, uint tile, uint g, private group_numbers *z) {
    uint n_groups = GROUPS_OF(o->k_padded);
    UR for (uint s = 0; s < ROW_SETS; s++) {
        uint t = min(s * 16 + (uint)get_local_id(0) % 16, o->last);
        int qsum = IN_REGISTERS ? 0 : o->qsum[t * n_groups + g];
        z->sx[s] = ROW_SCALE ? 1.0f : o->sx[t * n_groups + g];
        z->correction[s] = o->sub * qsum;
        z->minuend[s] = as_float(FLOAT_BASE) + (float)z->correction[s];
        z->x_sum[s] = z->sx[s] * (float)qsum;
    }
    load_scales(o, w->scales, w->supers, w->tile0 + tile, g, z->scale);
    if (MINS) load_scales(o, w->mins, w->super_mins, w->tile0 + tile, g, z->smallest);
}

INLINE float exact_sum(private const operands *o, private const group_numbers *z, uint row, int sum) {
#if VIA_BASE
    return as_float(sum) - intel_sub_group_shuffle(z->minuend[row / 16], row % 16);
#else
    int correction = IN_REGISTERS ? o->sub * ((private const int *)&z->qsums[row / 8])[row % 8]
                                  : intel_sub_group_shuffle(z->correction[row / 16], row % 16);
    return (float)((MUL_IN_CODE ? sum : o->mul * sum) - correction);
#endif
}

INLINE float x_sum(private const group_numbers *z, uint row) {
#if IN_REGISTERS
    return intel_sub_group_shuffle(z->sx[row / 16], row % 16) * (float)((private const int *)&z->qsums[row / 8])[row % 8];
#else
    return intel_sub_group_shuffle(z->x_sum[row / 16], row % 16);
#endif
}

/* The sequence of cpu/kernels.h for a group of tile-row j. */
INLINE void add_group(private const operands *o, private const group_numbers *z, uint j, const int8 sums[TM],
                      float8 results[TM]) {
    UR for (uint i = 0; i < TM; i++)
        UR for (uint r = 0; r < 8; r++) {
            uint row = i * 8 + r;
            private float *result = (private float *)&results[i] + r;
            float sum = exact_sum(o, z, row, ((private const int *)&sums[i])[r]);
            if (!ROW_SCALE) sum = intel_sub_group_shuffle(z->sx[row / 16], row % 16) * sum;
            *result = fma(z->scale[j], sum, *result);
            if (MINS) *result = fma(z->smallest[j], x_sum(z, row), *result);
        }
}

/* ---- sums --------------------------------------------------------------------------------------------------------- */

/* Sums of tile-row j over a step. */
INLINE void add_step(private const operands *o, uint block, uint j, ushort a[STEP][TOKENS], int8 sums[TM]) {
    uint b[B_ROWS];
    load_b(o, j, block, b);
    UR for (uint u = 0; u < STEP; u++) multiply(a, b, u, sums);
}

/* The sums of activations: products with codes of 1. */
INLINE void add_codes(ushort a[STEP][TOKENS], int8 qsums[TM]) {
    const uint one = BITS == 2 ? 0x55555555u : BITS == 4 ? 0x11111111u : 0x01010101u;
    UR for (uint u = 0; u < STEP; u++)
        UR for (uint i = 0; i < TM; i++) qsums[i] = MULTIPLY(rows_of(a[u], i), (b_columns)one, qsums[i]);
}

/* Results of tile-rows [tile, tile + n_tiles) of a part, up to TN. */
INLINE void run_part(private const operands *o, private const part *w, uint tile, float8 results[TN][TM]) {
    int8 sums[TN][TM], qsums[TM];
    UR for (uint i = 0; i < TM; i++) qsums[i] = 0;
    const int8 start = VIA_BASE ? as_int8(intel_sub_group_block_read8((local const uint *)o->start)) : 0;
    UR for (uint j = 0; j < TN; j++) UR for (uint i = 0; i < TM; i++) sums[j][i] = 0;
    UR for (uint j = 0; j < TN; j++) UR for (uint i = 0; i < TM; i++) results[j][i] = 0;
    for (uint block = 0; block < o->n_blocks; block += STEP) {
        ushort a[STEP][TOKENS];
        load_a(o, block, a);
#if X_GROUP
        group_numbers z;
        load_group(o, w, tile, block / STEP, &z);
        UR for (uint j = 0; j < TN; j++) {
            UR for (uint i = 0; i < TM; i++) sums[j][i] = start;
            add_step(o, block, j, a, sums[j]);
            add_group(o, &z, j, sums[j], results[j]);
        }
#else
        if (AHEAD) fetch_step(o, block + AHEAD * STEP);
        UR for (uint j = 0; j < TN; j++) add_step(o, block, j, a, sums[j]);
        if (IN_REGISTERS) add_codes(a, qsums);
#endif
    }
#if !X_GROUP
    group_numbers z;
    UR for (uint i = 0; i < TM; i++) z.qsums[i] = qsums[i];
    load_group(o, w, tile, 0, &z);
    UR for (uint j = 0; j < TN; j++) add_group(o, &z, j, sums[j], results[j]);
#endif
}

INLINE void store_part(private const operands *o, private const part *w, uint tile, const float8 results[TN][TM],
                       global const float *add, private const part *gate) {
    uint lane = get_local_id(0) % TILE_ROWS;
    UR for (uint i = 0; i < TM; i++)
        UR for (uint r = 0; r < 8; r++) {
            uint t = i * 8 + r;
            float sx = ROW_SCALE ? o->sx[min(t, o->last)] : 1;
            UR for (uint j = 0; j < TN; j++) {
                uint row = (w->tile0 + tile + j) * TILE_ROWS + lane;
                float y = ((private const float *)&results[j][i])[r];
                y = finish(w, row, ROW_SCALE ? y * sx : y);
                if (t > o->last || j >= o->n_tiles || row >= w->m) continue;
                size_t at = (size_t)(o->first + t) * w->width + row;
                if (gate) { /* part 0's result is where this item has put it */
                    at = (size_t)(o->first + t) * gate->width + (gate->tile0 + tile + j) * TILE_ROWS + lane;
                    gate->y[at] = crumb_gated(GATED, gate->y[at], y);
                } else {
                    w->y[at] = add ? y + add[at] : y;
                }
            }
        }
}

__attribute__((intel_reqd_sub_group_size(16))) __attribute__((reqd_work_group_size(TILE_ROWS *SLICES, 1, 1))) kernel void
linear(global const crumb_batch *batch, uint on_outputs, uint k, global const float *x, global const float *aux,
       float eps, global const int *q, global const float *sx, global const int *qsum, global const char *codebook,
       int mul, int sub, global const float *add, local int *scratch, PART_ARGS_LIST) {
    part parts[PARTS] = {PART_LIST};
    uint group, n = N_OF(batch, on_outputs);
    part w = part_of_group(parts, TN * SLICES, &group);
    uint tile = (group * SLICES + get_local_id(0) / TILE_ROWS) * TN;
    operands o = {.first = get_group_id(1) * TOKENS, .k_padded = ROUND_UP(k, TILE_K), .mul = mul, .sub = sub};
    if (o.first >= n) return;
    o.last = min(n - o.first, (uint)TOKENS) - 1;
    o.n_blocks = o.k_padded / TILE_K;
    uint n_groups = GROUPS_OF(o.k_padded), n_scales = ROW_SCALE ? 1 : n_groups;
#if IN_REGISTERS
    local int largest[TOKENS];
    local float row_sx[TOKENS];
    for (uint t = get_local_id(0); t < TOKENS; t += TILE_ROWS * SLICES) largest[t] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint t = 0; t <= o.last; t++) find_largest(x + (size_t)(o.first + t) * k, aux, 1, k, o.k_padded / 4, largest + t);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint t = get_local_id(0); t < TOKENS; t += TILE_ROWS * SLICES)
        row_sx[t] = quantizer_of(as_float(largest[t]), ROW_SCALE).sx;
    barrier(CLK_LOCAL_MEM_FENCE);
    o.x = x;
    o.n = n;
    o.k = k;
    o.to_code = quantizer_of(as_float(largest[get_local_id(0) % TOKENS]), ROW_SCALE).to_code;
    o.sx = row_sx;
#elif X == 32
    local float2 sum_scratch[TILE_ROWS * SLICES];
    local int *codes = scratch, *scales = codes + TOKENS * ROUND_UP(o.k_padded, STEP * TILE_K) / 4;
    local int *sums = scales + TOKENS * n_scales;
    for (uint t = 0; t <= o.last; t++) {
        size_t row = (size_t)(o.first + t) * k;
        quantize_row(x + row, INPUT >= 2 ? aux + row : aux, eps, k, o.k_padded / 4, sum_scratch, scales + t * n_scales,
                     sums + t * n_groups, codes + t * 8, 8 * TOKENS);
        for (uint g = get_local_id(0); g < n_scales; g += TILE_ROWS * SLICES)
            scales[t * n_scales + g] = as_int(quantizer_of(as_float(scales[t * n_scales + g]), ROW_SCALE).sx);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    o.q = codes;
    o.qsum = sums;
    o.sx = (local const float *)scales;
#else
    o.q = q + (size_t)o.first * (o.k_padded / 4);
    o.qsum = qsum + (size_t)o.first * n_groups;
    o.sx = sx + (size_t)o.first * n_scales;
#endif
#if VIA_BASE
    local int start[8 * TILE_ROWS];
    for (uint i = get_local_id(0); i < 8 * TILE_ROWS; i += TILE_ROWS * SLICES) start[i] = FLOAT_BASE;
    barrier(CLK_LOCAL_MEM_FENCE);
    o.start = start;
#endif
    if (tile >= w.n_tiles) return;
    o.n_tiles = min((uint)TN, w.n_tiles - tile);
    float8 results[TN][TM];
    o.codes = w.codes + (size_t)(w.tile0 + tile) * o.n_blocks * BITS * TILE_ROWS;
    run_part(&o, &w, tile, results);
    store_part(&o, &w, tile, results, add, 0);
#if GATED
    part up = parts[1];
    o.codes = up.codes + (size_t)(up.tile0 + tile) * o.n_blocks * BITS * TILE_ROWS;
    run_part(&o, &up, tile, results);
    store_part(&o, &up, tile, results, 0, &w);
#endif
}
