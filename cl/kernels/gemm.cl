/* Linear layers for many rows of activations on Intel's matrix instructions: what linear.cl computes, with its
 * arguments. A sub-group has TM * 8 rows of activations x TN tile-rows of sums in registers, so that a load of
 * activations feeds TN tile-rows and one of weights TM * 8 rows. With X=32 a work-group quantizes its rows once, into
 * local memory, or, however long they are, finds their scales, and each sub-group quantizes in registers.
 *
 * Arguments: linear.cl's, but for codebook, which is not read. q and codes begin at a multiple of 64 bytes, and K' is at
 * least 64. scratch: X=32: TOKENS * (K'' + 4 * (scales of a row + sums of a row)) bytes; K'' = K' rounded up to 128. With
 * IN_REGISTERS=1 it is not used, x begins at a multiple of 64 bytes, its rows have whole 16 bytes, and it is finite. Behind it, with
 * SLICES > 1, 64 * TOKENS * TN * SLICES bytes; with TM=8 (2 + MINS) * 4 * TOKENS * (sums of a row).
 * Work-groups: (as linear.cl's, with TILES = TN * ACROSS; ceil(rows / TOKENS)), TOKENS = TM * 8.
 * Local size: SUB_GROUP * ACROSS * SLICES.
 *
 * Options
 *   BITS               1, 2, 3, 4, 8; with X_GROUP also 5 and 6
 *   SCALE, GROUP, SUPER_GROUP, X_GROUP, ROW_SCALE, INPUT   common.cl; X_GROUP 0, 16, 32, 64 or 128
 *   X_ORDER            common.cl: 8; 0 with 1 bit, and with 3 in sub-groups of 8
 *   X_ROWS             quantize.cl: 1, with SUB_GROUP=8 8
 *   X, MINS, PARTS, GATED  linear.cl; with GATED part 0's results wait in y for part 1's
 *   -D SUB_GROUP=16|8  16: loads are 2D blocks (Xe2 and later), zeros outside a surface. 8 (dg2, arl-h): plain blocks
 *   -D MUL=0|1|2       1: `mul` is 1; 2: with BITS=1, it is 2; 0: whatever it is
 *   -D TM=1|2|4|8      -D TN=n   sums take TM * TN * 8 registers (of 8 items: twice that; of 3 bits with SUB_GROUP=16 and
 *                      X_GROUP=0 too): more than half of what a thread has makes it spill. 8: with SUB_GROUP=16, X=8
 *                      and X_GROUP of 32 or more; an operand, once put together, then meets 64 rows, 16 after 16
 *   -D IN_REGISTERS=0|1  1: with SUB_GROUP=16, X=32, X_GROUP=0, INPUT=0, X_ORDER=8, SLICES=1: quantize in registers; TM is
 *                      1 or 2
 *   -D ACROSS=n        sub-groups of a work-group that take other tile-rows
 *   -D SLICES=n        sub-groups of a work-group that divide K: n > 1 with ACROSS=1 and X_GROUP=0 alone, since floats of
 *                      groups are added in their order
 *   -D AHEAD=n         with SUB_GROUP=16, X_GROUP=0: how many steps ahead codes, and activations in memory, are fetched
 *                      into L1; 0: not
 * Result: exactly cpu/kernels.h's sequence. */
#if X_GROUP == 16
#define STEP 1 /* 32-blocks of a step: two groups */
#elif X_GROUP
#define STEP (X_GROUP / TILE_K) /* a group */
#else
#define STEP (SUB_GROUP == 16 ? 4 : 2)
#endif
#define TOKENS (TM * 8)
#if TM == 1 /* rows of activations that are loaded at once */
#define PIECE 8
#elif TM == 4
#define PIECE 32
#else
#define PIECE 16
#endif
#define PIECES (TOKENS / PIECE)
#define SIZE   (SUB_GROUP * ACROSS * SLICES)
#define HALVES (TILE_ROWS / SUB_GROUP)
#define BLOCKS (TN * HALVES) /* of SUB_GROUP rows of weights, of a sub-group */
#define LANE   (get_local_id(0) % SUB_GROUP)
#define UR     _Pragma("unroll")
#define INLINE static __attribute__((always_inline))
#define OVERLOAD __attribute__((overloadable))
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

/* Two operands: low bits as they lie, 2 or 4, and high ones, whose sums count 1 << LOW_BITS. */
#define SPLIT_BITS ((BITS == 3 && SUB_GROUP == 16) || BITS == 5 || BITS == 6)
#define LOW_BITS   (BITS == 3 ? 2 : 4)
#if BITS <= 2 || (BITS == 3 && SUB_GROUP == 16)
typedef uint2 b_columns;
#define MULTIPLY intel_sub_group_i8_u2_matrix_mad_k32
#elif BITS <= 6
typedef uint4 b_columns;
#define MULTIPLY intel_sub_group_i8_u4_matrix_mad_k32
#else
typedef uint8 b_columns;
#define MULTIPLY intel_sub_group_i8_u8_matrix_mad_k32
#endif
#if SUB_GROUP == 16
typedef ushort a_lane; /* lane l: elements 2l, 2l + 1 of a row of 32 */
typedef short8 a_rows;
#else
typedef uint a_lane; /* elements 4l to 4l + 3 */
typedef int8 a_rows;
#endif
int8 OVERLOAD MULTIPLY(a_rows a, b_columns b, int8 acc);

#ifndef IN_REGISTERS
#define IN_REGISTERS 0
#endif
#define ROW_SETS DIV_UP(TOKENS, SUB_GROUP) /* of as many rows of activations as there are items */
#define B_ROWS   (STEP * BITS) /* dwords of each row of a tile-row, for a step */

/* What of a launch the loop needs. */
typedef struct {
    global const uint *codes; /* of the sub-group's first tile-row */
    Q_READ int *q, *qsum;     /* of the work-group's first row; a surface begins with the batch's */
    Q_READ float *sx;
    uint first, last;         /* row `first` of the batch is row 0 of the work-group; beyond row `last` none is stored */
    uint k_padded, n_blocks, n_tiles, slice;
    int mul, sub;
    global const crumb_value *x; /* with IN_REGISTERS: the batch's */
    float to_code;          /* item r has row r's */
    uint n, k;
    local const int *start; /* with VIA_BASE: what groups' sums begin with, 8 x 16 times */
    local int *partials;    /* with SLICES > 1: [slice][block of rows][TOKENS][SUB_GROUP] */
    local const float *staged; /* with PIECES > 1: [group][STAGED_ROW] */
} operands;

/* Beyond the last tile-row of a part the same one is read again. */
INLINE global const uint *tile_row(private const operands *o, uint j) {
    return o->codes + min(j, o->n_tiles - 1) * o->n_blocks * (BITS * TILE_ROWS);
}

/* ---- loads: blocks [block, block + n) of a tile-row and of the activations ---------------------------------------- */

#if SUB_GROUP == 16
/* Tile-rows are surfaces 64 bytes wide, activations one K' bytes wide. */
#if B_ROWS == 5 || B_ROWS == 6
#define B_2D_ROWS 8 /* with rows of the next block, which are not used */
#elif B_ROWS % 32 == 0
#define B_2D_ROWS 32
#elif B_ROWS % 16 == 0
#define B_2D_ROWS 16
#elif B_ROWS % 8 == 0
#define B_2D_ROWS 8
#elif B_ROWS % 4 == 0
#define B_2D_ROWS 4
#elif B_ROWS % 2 == 0
#define B_2D_ROWS 2
#else
#define B_2D_ROWS 1
#endif
#define A_2D(op) JOIN(intel_sub_group_2d_block_##op, JOIN(_8b_, JOIN(PIECE, r32x1c)))
#define B_2D(op) JOIN(intel_sub_group_2d_block_##op, JOIN(_32b_, JOIN(B_2D_ROWS, r16x1c)))
#if VALUES == 16
#define X_READ JOIN(JOIN(intel_sub_group_2d_block_read_16b_, PIECE), r16x2c) /* the 32 of a block at once */
#else
#define X_READ JOIN(JOIN(intel_sub_group_2d_block_read_32b_, PIECE), r16x1c)
#endif
void OVERLOAD A_2D(read)(global void *base, int width, int height, int pitch, int2 at, private ushort *out);
void OVERLOAD A_2D(prefetch)(global void *base, int width, int height, int pitch, int2 at);
void OVERLOAD B_2D(read)(global void *base, int width, int height, int pitch, int2 at, private uint *out);
void OVERLOAD B_2D(prefetch)(global void *base, int width, int height, int pitch, int2 at);

#define B_SIZE ROUND_UP(B_ROWS, B_2D_ROWS) /* dwords of an item that a load writes */

INLINE void load_b(private const operands *o, uint j, uint block, uint n, uint b[B_SIZE]) {
    UR for (uint i = 0; i < B_ROWS; i += B_2D_ROWS)
        B_2D(read)((global void *)tile_row(o, j), 64, (int)(o->n_blocks * BITS), 64, (int2)(0, (int)(block * BITS + i)), b + i);
}

#if IN_REGISTERS
#if VALUES == 16
typedef ushort x_lane;
#else
typedef uint x_lane;
#endif
void OVERLOAD X_READ(global void *base, int width, int height, int pitch, int2 at, private x_lane *out);

/* Rounding to nearest is adding 1.5 * 2^23: the code is then the low byte, and within -127 to 127. */
INLINE uint code_bits(x_lane x, float to_code) {
    float scaled = (VALUES == 16 ? from_bf16((ushort)x) : as_float((uint)x)) * to_code;
    return as_uint(scaled + 12582912.0f);
}

/* An item has elements 2 l and 2 l + 1 of a row, which are k = l and 16 + l. */
INLINE void load_a(private const operands *o, uint piece, uint block, uint n, ushort a[STEP][PIECE]) {
    int width = (int)(o->k * sizeof(crumb_value));
    UR for (uint u = 0; u < STEP; u++) {
        x_lane both[2 * PIECE];
        private x_lane *low = both, *high = both + PIECE;
        int k = (int)((block + u) * TILE_K);
        X_READ((global void *)o->x, width, (int)o->n, width, (int2)(k, (int)o->first), low);
#if VALUES == 32
        X_READ((global void *)o->x, width, (int)o->n, width, (int2)(k + 16, (int)o->first), high);
#endif
        UR for (uint t = 0; t < PIECE; t++) {
            float to_code = intel_sub_group_shuffle(o->to_code, t);
            a[u][t] = (ushort)((code_bits(low[t], to_code) & 0xff) | code_bits(high[t], to_code) << 8);
        }
    }
}
#else
INLINE void load_a(private const operands *o, uint piece, uint block, uint n, ushort a[STEP][PIECE]) {
    UR for (uint u = 0; u < STEP; u++) {
#if X == 32
        UR for (uint i = 0; i < TM; i++) {
            local const ushort *rows = (local const ushort *)o->q + ((block + u) * TM + i) * (8 * TILE_K / 2);
            ushort8 eight = intel_sub_group_block_read_us8(rows);
            UR for (uint r = 0; r < 8; r++) a[u][i * 8 + r] = ((private const ushort *)&eight)[r];
        }
#else
        A_2D(read)((global void *)o->q, (int)o->k_padded, (int)(o->first + o->last + 1), (int)o->k_padded,
                   (int2)((int)((block + u) * TILE_K), (int)(o->first + piece * PIECE)), a[u]);
#endif
    }
}
#endif

INLINE void fetch_step(private const operands *o, uint block) {
    UR for (uint j = 0; j < TN; j++)
        UR for (uint i = 0; i < B_ROWS; i += B_2D_ROWS)
            B_2D(prefetch)((global void *)tile_row(o, j), 64, (int)(o->n_blocks * BITS), 64, (int2)(0, (int)(block * BITS + i)));
#if X != 32
    UR for (uint u = 0; u < STEP; u++)
        A_2D(prefetch)((global void *)o->q, (int)o->k_padded, (int)(o->first + o->last + 1), (int)o->k_padded,
                       (int2)((int)((block + u) * TILE_K), (int)o->first));
#endif
}

#else
#define B_SIZE (B_ROWS * HALVES)

INLINE void load_b(private const operands *o, uint j, uint block, uint n, uint b[B_SIZE]) {
    global const uint *from = tile_row(o, j) + block * (BITS * TILE_ROWS);
    UR for (uint i = 0; i + 8 <= n * BITS * HALVES; i += 8) {
        uint8 eight = intel_sub_group_block_read8(from + i * SUB_GROUP);
        UR for (uint r = 0; r < 8; r++) b[i + r] = ((private const uint *)&eight)[r];
    }
    UR for (uint i = n * BITS * HALVES / 8 * 8; i < n * BITS * HALVES; i += 2) {
        uint2 two = intel_sub_group_block_read2(from + i * SUB_GROUP);
        b[i] = two.s0;
        b[i + 1] = two.s1;
    }
}

/* Of 8 rows 32 bytes each lie together. */
INLINE void load_a(private const operands *o, uint piece, uint block, uint n, uint a[STEP][PIECE]) {
    UR for (uint u = 0; u < n; u++)
        UR for (uint i = 0; i < TM; i++) {
            uint at = X == 32 ? (block + u) * TM + i : min(i, o->last / 8) * o->n_blocks + block + u;
            uint8 eight = intel_sub_group_block_read8((Q_READ uint *)o->q + at * (8 * TILE_K / 4));
            UR for (uint r = 0; r < 8; r++) a[u][i * 8 + r] = ((private const uint *)&eight)[r];
        }
}
#endif

/* ---- products ----------------------------------------------------------------------------------------------------- */

INLINE a_rows rows_of(private const a_lane *a, uint i) {
    a_rows rows;
    UR for (uint r = 0; r < 8; r++) ((private a_lane *)&rows)[r] = a[i * 8 + r];
    return rows;
}

/* Block u of a step, half h of a tile's rows. 1 bit: bits of even and of odd k are the two dwords of an operand of 2 bits,
 * where they may stand high. 3 bits: of even k of the two dwords, then of odd k, an operand of 4 bits, so that k rises; with
 * SPLIT_BITS the low two bits as they lie. */
INLINE b_columns columns_of(private const uint *b, uint u, uint h) {
    b_columns columns;
    uint w[BITS];
    UR for (uint d = 0; d < BITS; d++) w[d] = b[(u * BITS + d) * HALVES + h];
#if BITS == 1
    columns.s0 = MUL == 2 ? w[0] << 1 & 0xaaaaaaaau : w[0] & 0x55555555u;
    columns.s1 = MUL == 2 ? w[0] & 0xaaaaaaaau : w[0] >> 1 & 0x55555555u;
#elif BITS == 3 && SPLIT_BITS
    columns = (uint2)(w[0], w[1]);
#elif BITS == 3
    columns.s0 = (w[0] & 0x33333333u) | (w[2] << 2 & 0x44444444u);
    columns.s1 = (w[1] & 0x33333333u) | (w[2] << 1 & 0x44444444u);
    columns.s2 = (w[0] >> 2 & 0x33333333u) | (w[2] & 0x44444444u);
    columns.s3 = (w[1] >> 2 & 0x33333333u) | (w[2] >> 1 & 0x44444444u);
#else
    UR for (uint d = 0; d < (SPLIT_BITS ? LOW_BITS : BITS); d++) ((private uint *)&columns)[d] = w[d];
#endif
    return columns;
}

#if SPLIT_BITS
/* The high bits of the codes of a block, in the fields of the low ones' dwords: as tile.h has it, a dword holds those of
 * two dwords of fields, of four with 5 bits. */
INLINE b_columns high_columns(private const uint *b, uint u, uint h) {
    uint w = b[(u * BITS + LOW_BITS) * HALVES + h];
#if BITS == 3
    return (uint2)(w & 0x55555555u, w >> 1 & 0x55555555u);
#elif BITS == 5
    return (uint4)(w & 0x11111111u, w >> 1 & 0x11111111u, w >> 2 & 0x11111111u, w >> 3 & 0x11111111u);
#else
    uint v = b[(u * BITS + LOW_BITS + 1) * HALVES + h];
    return (uint4)(w & 0x33333333u, w >> 2 & 0x33333333u, v & 0x33333333u, v >> 2 & 0x33333333u);
#endif
}
#endif

/* The sums of activations: products with codes of 1. */
INLINE void add_codes(a_lane a[STEP][PIECE], int8 qsums[TM]) {
    const uint one = BITS <= 2 ? 0x55555555u : BITS <= 6 ? 0x11111111u : 0x01010101u;
    UR for (uint u = 0; u < STEP; u++)
        UR for (uint i = 0; i < TM; i++) qsums[i] = MULTIPLY(rows_of(a[u], i), (b_columns)one, qsums[i]);
}

/* ---- floats ------------------------------------------------------------------------------------------------------- *
 * Sums of groups begin at FLOAT_BASE, so that they are the bits of the float 1.5 * 2^23 + sum: the conversion is one
 * subtraction, which takes sub * qsum away with it. All are integers below 2^24, and so exact. FLOAT_BASE comes from
 * local memory since the compiler writes a constant into registers anew for every sum. */
#define FLOAT_BASE  0x4b400000
#define MUL_IN_CODE (MUL == 1 || (MUL == 2 && BITS == 1)) /* sums have it already */
#define VIA_BASE    (X_GROUP && MUL_IN_CODE)

/* The scale (or min) of this item's row of a block of rows. */
INLINE float block_scale(private const operands *o, global const uchar *values, global const half *supers, uint tile, uint c,
                         uint group) {
    return load_scale(values, supers, tile + min(c / HALVES, o->n_tiles - 1), c % HALVES * SUB_GROUP + LANE, group, o->k_padded);
}

#if X_GROUP
/* All blocks' for a group. With 2D blocks, those of f16 and f32 are surfaces of a line per tile-row, of which one load takes
 * TN. */
#if GROUP && SCALE != 8 && SUB_GROUP == 16
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
                        float scales[BLOCKS]) {
    uint group = GROUP ? g * X_GROUP / (GROUP ? GROUP : 1) : 0;
#ifdef S_READ
    s_lane bits[TN];
    int width = (int)(o->k_padded / GROUP * TILE_ROWS * sizeof(s_lane));
    S_READ((global void *)values, width, (int)(tile + o->n_tiles), width, (int2)((int)(group * TILE_ROWS), (int)tile), bits);
    UR for (uint j = 0; j < TN; j++)
        scales[j] = SCALE == 32 ? as_float((uint)bits[j]) : vload_half(0, (private const half *)&bits[j]);
#else
    UR for (uint c = 0; c < BLOCKS; c++) scales[c] = block_scale(o, values, supers, tile, c, group);
#endif
}
#endif

/* A group's numbers of the activations: item r of set s has row SUB_GROUP * s + r. With PIECES > 1 they would take too
 * large a part of the loop over groups, and come from local memory: the work-group puts them there before. */
typedef struct {
    float minuend[ROW_SETS], sx[ROW_SETS], x_sum[ROW_SETS], row_sx[ROW_SETS]; /* sx or row_sx is 1 */
    int correction[ROW_SETS];
    int8 qsums[TM]; /* with IN_REGISTERS */
} row_numbers;

/* Set s's of row t. */
INLINE void load_row(private const operands *o, uint t, uint g, uint s, private row_numbers *z) {
    uint n_groups = GROUPS_OF(o->k_padded);
    int qsum = IN_REGISTERS ? 0 : o->qsum[t * n_groups + g];
    z->sx[s] = ROW_SCALE ? 1.0f : o->sx[t * n_groups + g];
    z->row_sx[s] = ROW_SCALE ? o->sx[t] : 1.0f;
    z->correction[s] = o->sub * qsum;
    z->minuend[s] = fma((float)o->sub, (float)qsum, as_float(FLOAT_BASE));
    z->x_sum[s] = z->sx[s] * (float)qsum;
}

INLINE void load_rows(private const operands *o, uint g, private row_numbers *z) {
    UR for (uint s = 0; s < ROW_SETS; s++) load_row(o, min(s * SUB_GROUP + (uint)LANE, o->last), g, s, z);
}

#if PIECES > 1
/* [group][what is subtracted, scale, with MINS sum][TOKENS] */
#define STAGED_ROW ((2 + MINS) * TOKENS)

/* The whole work-group's part. */
INLINE void stage_rows(private const operands *o, local float *staged) {
    uint n_groups = GROUPS_OF(o->k_padded);
    for (uint t = get_local_id(0) / SUB_GROUP; t < TOKENS; t += ACROSS)
        for (uint g = LANE; g < n_groups; g += SUB_GROUP) {
            row_numbers z;
            local float *to = staged + g * STAGED_ROW + t;
            load_row(o, min(t, o->last), g, 0, &z);
            to[0] = VIA_BASE ? z.minuend[0] : as_float(z.correction[0]);
            to[TOKENS] = z.sx[0];
            if (MINS) to[2 * TOKENS] = z.x_sum[0];
        }
    barrier(CLK_LOCAL_MEM_FENCE);
}

INLINE void load_staged(private const operands *o, uint g, private row_numbers *z) {
    local const uint *from = (local const uint *)(o->staged + g * STAGED_ROW);
    uint8 two = intel_sub_group_block_read8(from);
    uint4 x_sum = MINS ? intel_sub_group_block_read4(from + 2 * TOKENS) : 0;
    UR for (uint s = 0; s < ROW_SETS; s++) {
        z->correction[s] = ((private const int *)&two)[s];
        z->minuend[s] = as_float(z->correction[s]);
        z->sx[s] = ((private const float *)&two)[ROW_SETS + s];
        z->x_sum[s] = ((private const float *)&x_sum)[s];
    }
}
#endif

/* What the item that has it says of a row. */
INLINE float float_of_row(private const float *of_sets, uint row) {
    return intel_sub_group_shuffle(of_sets[row / SUB_GROUP], row % SUB_GROUP);
}

INLINE float exact_sum(private const operands *o, private const row_numbers *z, uint row, int sum) {
#if VIA_BASE
    return as_float(sum) - float_of_row(z->minuend, row);
#else
    int correction = IN_REGISTERS ? o->sub * ((private const int *)&z->qsums[row / 8])[row % 8]
                                  : intel_sub_group_shuffle(z->correction[row / SUB_GROUP], row % SUB_GROUP);
    return (float)((MUL_IN_CODE ? sum : o->mul * sum) - correction);
#endif
}

INLINE float x_sum(private const row_numbers *z, uint row) {
#if IN_REGISTERS
    return float_of_row(z->sx, row) * (float)((private const int *)&z->qsums[row / 8])[row % 8];
#else
    return float_of_row(z->x_sum, row);
#endif
}

/* The sequence of cpu/kernels.h for a group: rows i * 8 to i * 8 + 7 of activations, a block of rows of weights. */
INLINE float8 add_group(private const operands *o, private const row_numbers *z, uint i, float scale, float smallest,
                        int8 sums, float8 results) {
    UR for (uint r = 0; r < 8; r++) {
        private float *result = (private float *)&results + r;
        float sum = exact_sum(o, z, i * 8 + r, ((private const int *)&sums)[r]);
        if (!ROW_SCALE) sum = float_of_row(z->sx, i * 8 + r) * sum;
        *result = fma(scale, sum, *result);
        if (MINS) *result = fma(smallest, x_sum(z, i * 8 + r), *result);
    }
    return results;
}

/* What becomes of results: those of part 0 wait in y for those of `gate`'s part 1. */
typedef struct {
    private const part *w, *gate;
    global const crumb_result *add;
    uint tile; /* the sub-group's first */
} target;

INLINE void store_block(private const operands *o, private const target *to, private const row_numbers *z, uint c,
                        const float8 results[TM]) {
    private const part *w = to->w;
    uint tile = to->tile + c / HALVES, lane = c % HALVES * SUB_GROUP + LANE, row = (w->tile0 + tile) * TILE_ROWS + lane;
    UR for (uint i = 0; i < TM; i++)
        UR for (uint r = 0; r < 8; r++) {
            uint t = i * 8 + r;
            float y = ((private const float *)&results[i])[r];
            y = finish(w, row, ROW_SCALE ? y * float_of_row(z->row_sx, t) : y);
            if (t > o->last || c / HALVES >= o->n_tiles || row >= w->m) continue;
            size_t at = (size_t)(o->first + t) * w->width + row;
            if (to->gate) { /* this item has put part 0's there */
                at = (size_t)(o->first + t) * to->gate->width + (to->gate->tile0 + tile) * TILE_ROWS + lane;
                to->gate->y[at] = gated_result(GATED, to->gate->y[at], y);
            } else {
                w->y[at] = sum_with(to->add, at, y);
            }
        }
}

/* ---- sums --------------------------------------------------------------------------------------------------------- */

#if X_GROUP
/* What of a group all tile-rows need. */
typedef struct {
    row_numbers z;
    float scale[BLOCKS], smallest[BLOCKS];
    int8 start;
} group_numbers;

INLINE void load_group(private const operands *o, private const target *to, uint g, private group_numbers *group) {
    private const part *w = to->w;
#if PIECES > 1
    load_staged(o, g, &group->z);
#else
    load_rows(o, g, &group->z);
#endif
    load_scales(o, w->scales, w->supers, w->tile0 + to->tile, g, group->scale);
    if (MINS) load_scales(o, w->mins, w->super_mins, w->tile0 + to->tile, g, group->smallest);
}

/* The operands of a tile-row for a step. */
typedef struct {
    b_columns columns[HALVES][STEP], high[HALVES][STEP]; /* high: with SPLIT_BITS */
} tile_operands;

INLINE void load_tile_row(private const operands *o, uint j, uint block, private tile_operands *tile) {
    uint b[B_SIZE];
    load_b(o, j, block, STEP, b);
    UR for (uint h = 0; h < HALVES; h++)
        UR for (uint u = 0; u < STEP; u++) {
            tile->columns[h][u] = columns_of(b, u, h);
#if SPLIT_BITS
            tile->high[h][u] = high_columns(b, u, h);
#endif
        }
}

/* Adds a group of a piece's rows to the results of tile-row j. */
INLINE void add_tile_row(private const operands *o, private const group_numbers *group, uint piece, a_lane a[STEP][PIECE],
                         uint j, private const tile_operands *tile, float8 results[BLOCKS][TM]) {
    UR for (uint c = j * HALVES; c < (j + 1) * HALVES; c++)
        UR for (uint p = 0; p < PIECE / 8; p++) { /* sums of one at a time, which takes fewer registers */
            uint i = piece * (PIECE / 8) + p;
            int8 sums = group->start;
#if SPLIT_BITS
            UR for (uint u = 0; u < STEP; u++) sums = MULTIPLY(rows_of(a[u], p), tile->high[c % HALVES][u], sums);
            sums <<= LOW_BITS;
#endif
            UR for (uint u = 0; u < STEP; u++) sums = MULTIPLY(rows_of(a[u], p), tile->columns[c % HALVES][u], sums);
            results[c][i] =
                add_group(o, &group->z, i, group->scale[c], MINS ? group->smallest[c] : 0, sums, results[c][i]);
        }
}

#if X_GROUP == 16
/* The activations of one half of a block's k, zeros beside them: with them an instruction, which takes 32 k, has the sum
 * of one group. In order of k the halves are lanes, in X_ORDER=8 every other byte. */
INLINE void half_of(a_lane a[STEP][PIECE], uint h, a_lane out[STEP][PIECE]) {
    const a_lane bytes = (a_lane)(h ? 0xff00ff00u : 0x00ff00ffu);
    const a_lane lanes = (a_lane)(LANE / (SUB_GROUP / 2) == h ? 0xffffffffu : 0);
    UR for (uint t = 0; t < PIECE; t++) out[0][t] = a[0][t] & (X_ORDER == 8 ? bytes : lanes);
}

INLINE void add_step(private const operands *o, private const target *to, uint block, private group_numbers *group,
                     float8 results[BLOCKS][TM]) {
    a_lane a[STEP][PIECE], of_half[STEP][PIECE];
    tile_operands tiles[TN];
    load_a(o, 0, block, STEP, a);
    UR for (uint j = 0; j < TN; j++) load_tile_row(o, j, block, &tiles[j]);
    UR for (uint h = 0; h < 2; h++) {
        half_of(a, h, of_half);
        load_group(o, to, 2 * block + h, group);
        UR for (uint j = 0; j < TN; j++) add_tile_row(o, group, 0, of_half, j, &tiles[j], results);
    }
}
#else
INLINE void add_step(private const operands *o, private const target *to, uint block, private group_numbers *group,
                     float8 results[BLOCKS][TM]) {
    tile_operands tiles[TN];
    UR for (uint piece = 0; piece < PIECES; piece++) {
        a_lane a[STEP][PIECE];
        load_a(o, piece, block, STEP, a);
        if (piece == 0) load_group(o, to, block / STEP, group);
        UR for (uint j = 0; j < TN; j++) {
            if (piece == 0) load_tile_row(o, j, block, &tiles[j]);
            add_tile_row(o, group, piece, a, j, &tiles[j], results);
        }
    }
}
#endif

INLINE void run_part(private const operands *o, private const target *to) {
    float8 results[BLOCKS][TM];
    group_numbers group;
    group.start = VIA_BASE ? as_int8(intel_sub_group_block_read8((local const uint *)o->start)) : 0;
    UR for (uint c = 0; c < BLOCKS; c++) UR for (uint i = 0; i < TM; i++) results[c][i] = 0;
    for (uint block = 0; block < o->n_blocks; block += STEP) add_step(o, to, block, &group, results);
    row_numbers last;
    load_rows(o, 0, &last);
    UR for (uint c = 0; c < BLOCKS; c++) store_block(o, to, &last, c, results[c]);
}
#else

INLINE void add_blocks(private const operands *o, uint block, uint n, int8 sums[BLOCKS][TM], int8 high[BLOCKS][TM],
                       int8 qsums[TM]) {
    a_lane a[STEP][PIECE];
    load_a(o, 0, block, n, a);
#if SUB_GROUP == 16
    if (AHEAD) fetch_step(o, block + AHEAD * SLICES * STEP);
#endif
    UR for (uint j = 0; j < TN; j++) {
        uint b[B_SIZE];
        load_b(o, j, block, n, b);
        UR for (uint c = j * HALVES; c < (j + 1) * HALVES; c++)
            UR for (uint u = 0; u < n; u++) {
                b_columns columns = columns_of(b, u, c % HALVES);
                UR for (uint i = 0; i < TM; i++) sums[c][i] = MULTIPLY(rows_of(a[u], i), columns, sums[c][i]);
#if SPLIT_BITS
                columns = high_columns(b, u, c % HALVES);
                UR for (uint i = 0; i < TM; i++) high[c][i] = MULTIPLY(rows_of(a[u], i), columns, high[c][i]);
#endif
            }
    }
    if (IN_REGISTERS) add_codes(a, qsums);
}

INLINE void store_sums(private const operands *o, private const target *to, private const row_numbers *z, uint c,
                       const int8 sums[TM]) {
    private const part *w = to->w;
    uint tile = w->tile0 + to->tile;
    float8 results[TM];
    float scale = block_scale(o, w->scales, w->supers, tile, c, 0);
    float smallest = MINS ? block_scale(o, w->mins, w->super_mins, tile, c, 0) : 0;
    UR for (uint i = 0; i < TM; i++) results[i] = add_group(o, z, i, scale, smallest, sums[i], 0);
    store_block(o, to, z, c, results);
}

#if SLICES > 1
/* Slices put their sums into local memory; then each adds up those of some blocks of rows. */
INLINE void join_slices(private const operands *o, private const target *to, private const row_numbers *z,
                        int8 sums[BLOCKS][TM]) {
    local int *own = o->partials + o->slice * (BLOCKS * TOKENS * SUB_GROUP) + LANE;
    barrier(CLK_LOCAL_MEM_FENCE); /* part 0's have been read */
    UR for (uint c = 0; c < BLOCKS; c++)
        UR for (uint t = 0; t < TOKENS; t++)
            own[(c * TOKENS + t) * SUB_GROUP] = ((private const int *)&sums[c][t / 8])[t % 8];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint c = o->slice; c < BLOCKS; c += SLICES) {
        int8 joined[TM];
        UR for (uint t = 0; t < TOKENS; t++) {
            int sum = 0;
            UR for (uint s = 0; s < SLICES; s++) sum += o->partials[((s * BLOCKS + c) * TOKENS + t) * SUB_GROUP + LANE];
            ((private int *)&joined[t / 8])[t % 8] = sum;
        }
        store_sums(o, to, z, c, joined);
    }
}
#endif

INLINE void run_part(private const operands *o, private const target *to) {
    int8 sums[BLOCKS][TM], high[BLOCKS][TM], qsums[TM]; /* high: with SPLIT_BITS */
    row_numbers z;
    UR for (uint i = 0; i < TM; i++) qsums[i] = 0;
    UR for (uint c = 0; c < BLOCKS; c++) UR for (uint i = 0; i < TM; i++) sums[c][i] = high[c][i] = 0;
#if SUB_GROUP == 16
    for (uint block = o->slice * STEP; block < o->n_blocks; block += SLICES * STEP) add_blocks(o, block, STEP, sums, high, qsums);
#else
    uint whole = o->n_blocks / STEP * STEP;
    for (uint block = o->slice * STEP; block < whole; block += SLICES * STEP) add_blocks(o, block, STEP, sums, high, qsums);
    for (uint block = whole + o->slice; block < o->n_blocks; block += SLICES) add_blocks(o, block, 1, sums, high, qsums);
#endif
    if (SPLIT_BITS) UR for (uint c = 0; c < BLOCKS; c++) UR for (uint i = 0; i < TM; i++) sums[c][i] += high[c][i] << LOW_BITS;
    load_rows(o, 0, &z);
    UR for (uint i = 0; i < TM; i++) z.qsums[i] = qsums[i];
#if SLICES > 1
    join_slices(o, to, &z, sums);
#else
    UR for (uint c = 0; c < BLOCKS; c++) store_sums(o, to, &z, c, sums[c]);
#endif
}
#endif

/* ---- the kernel --------------------------------------------------------------------------------------------------- */

__attribute__((intel_reqd_sub_group_size(SUB_GROUP))) __attribute__((reqd_work_group_size(SIZE, 1, 1))) kernel void
linear(global const crumb_batch *batch, uint on_outputs, uint k, global const crumb_value *x,
       global const crumb_aux *aux, float eps, global const int *q, global const float *sx, global const int *qsum, global const char *codebook,
       int mul, int sub, global const crumb_result *add, local int *scratch, PART_ARGS_LIST) {
    part parts[PARTS] = {PART_LIST};
    uint group, n = N_OF(batch, on_outputs), sub_group = get_local_id(0) / SUB_GROUP;
    part w = part_of_group(parts, TN * ACROSS, &group);
    uint tile = (group * ACROSS + sub_group / SLICES) * TN;
    operands o;
    o.first = get_group_id(1) * TOKENS;
    if (o.first >= n) return;
    o.k_padded = ROUND_UP(k, TILE_K);
    o.mul = mul;
    o.sub = sub;
    o.slice = sub_group % SLICES;
    o.last = min(n - o.first, (uint)TOKENS) - 1;
    o.n_blocks = o.k_padded / TILE_K;
    uint n_groups = GROUPS_OF(o.k_padded), n_scales = ROW_SCALE ? 1 : n_groups;
#if IN_REGISTERS
    local int largest[TOKENS];
    local float row_sx[TOKENS];
    for (uint t = get_local_id(0); t < TOKENS; t += SIZE) largest[t] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint t = 0; t <= o.last; t++) find_largest(x + (size_t)(o.first + t) * k, aux, 1, k, o.k_padded / 4, largest + t);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint t = get_local_id(0); t < TOKENS; t += SIZE) row_sx[t] = quantizer_of(as_float(largest[t]), ROW_SCALE).sx;
    barrier(CLK_LOCAL_MEM_FENCE);
    o.x = x;
    o.n = n;
    o.k = k;
    o.to_code = quantizer_of(as_float(largest[get_local_id(0) % TOKENS]), ROW_SCALE).to_code;
    o.sx = row_sx;
#elif X == 32
    local float2 sum_scratch[SIZE];
    local int *codes = scratch, *scales = codes + TOKENS * ROUND_UP(o.k_padded, STEP * TILE_K) / 4;
    local int *sums = scales + TOKENS * n_scales;
    scratch = sums + TOKENS * n_groups;
    for (uint t = 0; t <= o.last; t++) {
        size_t row = (size_t)(o.first + t) * k;
        quantize_row(x + row, INPUT >= 2 ? aux + row : aux, eps, k, o.k_padded / 4, sum_scratch, scales + t * n_scales,
                     sums + t * n_groups, codes + t * 8, 8 * TOKENS);
        for (uint g = get_local_id(0); g < n_scales; g += SIZE)
            scales[t * n_scales + g] = as_int(quantizer_of(as_float(scales[t * n_scales + g]), ROW_SCALE).sx);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    o.q = codes;
    o.qsum = sums;
    o.sx = (local const float *)scales;
#else
    o.q = SUB_GROUP == 16 ? q : q + (size_t)o.first * (o.k_padded / 4);
    o.qsum = qsum + (size_t)o.first * n_groups;
    o.sx = sx + (size_t)o.first * n_scales;
#endif
#if VIA_BASE
    local int start[8 * TILE_ROWS];
    for (uint i = get_local_id(0); i < 8 * TILE_ROWS; i += SIZE) start[i] = SPLIT_BITS ? FLOAT_BASE >> LOW_BITS : FLOAT_BASE;
    barrier(CLK_LOCAL_MEM_FENCE);
    o.start = start;
#endif
#if PIECES > 1
    o.staged = (local const float *)scratch;
    stage_rows(&o, (local float *)scratch);
#endif
    if (tile >= w.n_tiles) return; /* no slice waits for it: ACROSS > 1 */
    o.n_tiles = min((uint)TN, w.n_tiles - tile);
    o.partials = scratch;
    target to = {&w, 0, add, tile};
    o.codes = w.codes + (size_t)(w.tile0 + tile) * o.n_blocks * BITS * TILE_ROWS;
    run_part(&o, &to);
#if GATED
    part up = parts[1];
    target product = {&up, &w, 0, tile};
    o.codes = up.codes + (size_t)(up.tile0 + tile) * o.n_blocks * BITS * TILE_ROWS;
    run_part(&o, &product);
#endif
}
