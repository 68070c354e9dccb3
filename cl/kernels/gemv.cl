/* Linear layers for one to eight rows of activations on Intel's matrix instructions: what linear.cl computes, with its
 * arguments. Decoding is bound by memory, so what counts is how much of the weights is on its way at any time, and how
 * little is done beside loading them: codes of 1, 2, 3, 4 and 8 bits go into the instructions as they lie.
 *
 * Work-groups: as linear.cl's, with TILES = TN. Local size: SUB_GROUP * SLICES.
 * A work-group has TN tile-rows and TOKENS rows of activations. Its slices, which are sub-groups, divide K in steps;
 * their int32 sums meet in local memory, where 16 items per tile-row and row make floats of them. Sums of groups do so
 * SEGMENT blocks after the other: those of all K would leave a core room for few work-groups, or for none.
 *
 * Arguments: linear.cl's. q, sx and qsum are quantize.cl's with the row's x_bits and x_pairs. K' is a multiple of 64;
 * q, scratch and codes begin at multiples of 64 bytes.
 *   scratch     local memory: 64 * TOKENS * TN * n bytes, n SLICES or with X_GROUP N_PARTIALS, and behind them for X=32
 *               TOKENS * (K'' + 4 * (scales of a row + sums of a row)); K'' = K' rounded up to 32 * STEP
 * Options
 *   BITS               1, 2, 3, 4 or 8
 *   SCALE, GROUP, SUPER_GROUP, X_GROUP, ROW_SCALE, INPUT, ORDER   common.cl; X_GROUP 0, 32, 64 or 128, with 1 and 3 bits not 32
 *   X_ORDER, X_PAIRS   common.cl: 1 bit: 0 and 1; 3 bits: 8 and 1; else 8 and 0
 *   X, MINS, PARTS, GATED   linear.cl
 *   -D SUB_GROUP=16|8  16: loads are 2D blocks (Xe2 and later). 8 (dg2, arl-h): plain blocks
 *   -D TOKENS=1|2|4|8
 *   -D TN=n            tile-rows
 *   -D STEP=n          32-blocks that are loaded together: with SUB_GROUP=16 BITS * STEP is 8, 16 or 32 (3 bits: STEP
 *                      is); with 8 a multiple of 4, and K' is at least 32 * STEP. X_GROUP divides 32 * STEP
 *   -D SLICES=n        16 * TN * TOKENS is at most the local size
 * Result: exactly cpu/kernels.h's sequence; with INPUT=1 as near as the norm (norm.cl).
 *
 * 1 bit, without masks. A dword of 32 codes is read as 16 fields of 2 bits: unsigned, a field is even + 2 * odd, signed
 * even - 2 * odd. So the two products with the activations of the even codes add up to 2 * even, and those with the
 * activations of the odd codes differ by 4 * odd. For that, activations come in pairs of 32-blocks: 16 of the one and 16
 * of the other for the even codes, then the same for the odd. The third bit of 3 is such a dword.
 *
 * Sub-groups of 8. A block load fills registers with rows 0 to 7 and rows 8 to 15 of a dword in turn, but an operand is
 * registers that follow each other. Operand s, s + 1, ... (s < BITS) has dword s of the first rows in place s, s + 1 that
 * of the others: activations of which only place s is not zero pick it out. Operands that overlap, and do not lie in one
 * load, would be copied; so with 3 and 8 bits they begin where a dword does, and have rows 0 to 7 in even places and the
 * others in odd ones. Activations of half as many columns lie in both then, and what is zeroed picks one. */
#define UR      _Pragma("unroll")
#define INLINE  static __attribute__((always_inline)) /* in a function, pointers lose their 32-bit addresses on dg2 */
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)
#define SIZE        (SUB_GROUP * SLICES)
#define STEP_K      (STEP * TILE_K)
#define BIT_PAIRS   (BITS == 1 || BITS == 3) /* dwords of single bits, for a pair of blocks */
#define STEP_GROUPS (X_GROUP ? STEP_K / (X_GROUP ? X_GROUP : 1) : 1)
#define GROUP_STEP  (STEP / STEP_GROUPS) /* blocks of one sum */
#define BLOCK_BYTES (BITS * TILE_ROWS * 4)
#define STORE_STEP  (TOKENS == 1 && STEP_GROUPS > 1) /* one store takes up to eight registers of a step's groups */
#if X_GROUP
#define ROUND_GROUPS (SLICES * STEP_GROUPS) /* whose sums one step of each slice makes */
#define ROUND_BYTES  (64 * TOKENS * TN * ROUND_GROUPS)
#define ROUNDS       (ROUND_BYTES < SUM_BYTES ? SUM_BYTES / ROUND_BYTES : 1)
#define SUM_BYTES    32768
#define SEGMENT      (ROUNDS * SLICES * STEP)
/* In sub-groups of 8 the last step may begin before its segment. */
#define N_PARTIALS(k_padded) min((uint)(ROUNDS * ROUND_GROUPS + STEP_GROUPS), GROUPS_OF(ROUND_UP(k_padded, STEP_K)))
#else
#define N_PARTIALS(k_padded) SLICES
#endif

/* The rows of activations of a work-group. Row t is row min(t, last): beyond the batch nothing is stored. */
typedef struct {
    Q_READ int *q;
    Q_READ int *qsum;
    Q_READ float *sx;
    uint n, first, last, k_padded, n_groups, n_scales;
} activations;

/* ---- operands ----------------------------------------------------------------------------------------------------- */

#if TOKENS == 1
#define VECTOR(type) type
#else
#define VECTOR(type) JOIN(type, TOKENS)
#endif
#if SUB_GROUP == 16
typedef ushort a_lane; /* lane l: elements 2l, 2l + 1 of a row of 32 */
typedef VECTOR(short) a_rows;
#else
typedef uint a_lane; /* elements 4l to 4l + 3 */
typedef VECTOR(int) a_rows;
#endif
typedef VECTOR(int) d_rows;
#define OVERLOAD __attribute__((overloadable))

#if BITS == 4
typedef uint4 b_columns;
#define MULTIPLY intel_sub_group_i8_u4_matrix_mad_k32
#elif BITS == 8
typedef uint8 b_columns;
#define MULTIPLY intel_sub_group_i8_u8_matrix_mad_k32
#else
typedef uint2 b_columns;
#define MULTIPLY intel_sub_group_i8_u2_matrix_mad_k32
typedef int2 b_signed;
d_rows OVERLOAD intel_sub_group_i8_i2_matrix_mad_k32(a_rows a, b_signed b, d_rows acc);
#endif
d_rows OVERLOAD MULTIPLY(a_rows a, b_columns b, d_rows acc);
#define B_DWORDS (sizeof(b_columns) / 4)

INLINE b_columns columns_at(private const uint *b) {
    b_columns columns;
    UR for (uint d = 0; d < B_DWORDS; d++) ((private uint *)&columns)[d] = b[d];
    return columns;
}

#define TURNS (TOKENS <= 2 && !X_GROUP && (BITS != 8 || SUB_GROUP == 16) ? 2 : 1)
/* Sums of one tile-row, or of half of one with sub-groups of 8. */
typedef struct {
#if BIT_PAIRS /* plus - minus + 2 * twice; of 3 bits the two lower ones are in `plus` too */
    d_rows plus, minus;
#if SUB_GROUP == 16
    d_rows twice;
#endif
#else
    d_rows sum[TURNS]; /* in turn, so that one need not wait for the other */
#endif
} totals;

INLINE void clear(private totals *t) {
#if BIT_PAIRS
    t->plus = t->minus = 0;
#if SUB_GROUP == 16
    t->twice = 0;
#endif
#else
    t->sum[0] = t->sum[TURNS - 1] = 0;
#endif
}

#if BIT_PAIRS
/* Four times the sum. In sub-groups of 8, where a tile-row has two of each of these sums, what counts twice is
 * multiplied twice: one more to add would take instructions of each tile-row. */
INLINE void add_bits(a_rows even, a_rows odd, b_columns b, private totals *t) {
    b_signed s = as_int2(b);
#if SUB_GROUP == 16
    t->twice = intel_sub_group_i8_u2_matrix_mad_k32(even, b, t->twice);
    t->twice = intel_sub_group_i8_i2_matrix_mad_k32(even, s, t->twice);
#else
    UR for (uint i = 0; i < 2; i++) {
        t->plus = intel_sub_group_i8_u2_matrix_mad_k32(even, b, t->plus);
        t->plus = intel_sub_group_i8_i2_matrix_mad_k32(even, s, t->plus);
    }
#endif
    t->plus = intel_sub_group_i8_u2_matrix_mad_k32(odd, b, t->plus);
    t->minus = intel_sub_group_i8_i2_matrix_mad_k32(odd, s, t->minus);
}
#endif

/* Of 1 bit four times the sum: fold divides it. The third bit of 3 counts four. */
INLINE int total(private const totals *t, uint row) {
    int sum = 0;
#if BIT_PAIRS
    sum = ((private const int *)&t->plus)[row] - ((private const int *)&t->minus)[row];
#if SUB_GROUP == 16
    int twice = ((private const int *)&t->twice)[row];
    sum += twice + twice;
#endif
#else
    UR for (uint i = 0; i < TURNS; i++) sum += ((private const int *)&t->sum[i])[row];
#endif
    return sum;
}

/* ---- sub-groups of 16 --------------------------------------------------------------------------------------------- */

#if SUB_GROUP == 16
#define HALVES 1
#define PIECES STEP
#define PLANES_APART (BITS == 3) /* all first dwords, all second, all third: a pair's lie side by side */
#if PLANES_APART
#define B_2D_ROWS STEP
#else
#define B_2D_ROWS (STEP * BITS)
#endif
#if B_2D_ROWS == 32
#define B_READ intel_sub_group_2d_block_read_32b_32r16x1c
#elif B_2D_ROWS == 16
#define B_READ intel_sub_group_2d_block_read_32b_16r16x1c
#else
#define B_READ intel_sub_group_2d_block_read_32b_8r16x1c
#endif
void OVERLOAD B_READ(global void *base, int width, int height, int pitch, int2 at, private uint *out);
#define B_REGISTERS (STEP * BITS)

/* Of the tile-row that begins at block `first`. */
INLINE void load_weights(global const uint *codes, uint first, uint n_blocks, uint block, uint byte,
                         uint b[B_REGISTERS]) {
    global void *tile_row = (global void *)(codes + (size_t)first * BITS * TILE_ROWS);
#if PLANES_APART
    UR for (uint d = 0; d < BITS; d++)
        B_READ(tile_row, 64 * BITS, (int)n_blocks, 64 * BITS, (int2)((int)(16 * d), (int)block), b + d * STEP);
#else
    B_READ(tile_row, 64, (int)(n_blocks * BITS), 64, (int2)(0, (int)(block * BITS)), b);
#endif
}

/* The STEP pieces of 32 activations from a block on. */
#if X == 32
#if STEP == 4
#define A_WIDE 4 /* pieces of a load */
#else
#define A_WIDE 8
#endif
INLINE void load_activations(private const activations *a, uint block, a_rows pieces[PIECES]) {
    local const ushort *q = (local const ushort *)(a->q + block * 8 * TOKENS);
#if TOKENS == 1
    UR for (uint i = 0; i < STEP; i += A_WIDE) {
        JOIN(ushort, A_WIDE) wide = JOIN(intel_sub_group_block_read_us, A_WIDE)(q + i * 16);
        UR for (uint j = 0; j < A_WIDE; j++) pieces[i + j] = as_short(((private const ushort *)&wide)[j]);
    }
#else
    UR for (uint i = 0; i < STEP; i++)
        pieces[i] = JOIN(as_short, TOKENS)(JOIN(intel_sub_group_block_read_us, TOKENS)(q + i * 16 * TOKENS));
#endif
}
#elif TOKENS == 1
#if STEP == 32
#define A_READ intel_sub_group_2d_block_read_16b_16r16x2c
#elif STEP == 16
#define A_READ intel_sub_group_2d_block_read_16b_8r16x2c
#elif STEP == 8
#define A_READ intel_sub_group_2d_block_read_16b_4r16x2c
#else
#define A_READ intel_sub_group_2d_block_read_16b_2r16x2c
#endif
void OVERLOAD A_READ(global void *base, int width, int height, int pitch, int2 at, private ushort *out);

/* The row as a surface of 64 bytes, two pieces, a line. */
INLINE void load_activations(private const activations *a, uint block, a_rows pieces[PIECES]) {
    ushort raw[STEP];
    A_READ((global void *)a->q, 64, (int)(a->k_padded / 64), 64, (int2)(0, (int)(block / 2)), raw);
    UR for (uint i = 0; i < STEP; i++) pieces[i] = as_short(raw[i % 2 * (STEP / 2) + i / 2]);
}
#else
#define A_READ JOIN(JOIN(intel_sub_group_2d_block_read_8b_, TOKENS), r32x2c)
void OVERLOAD A_READ(global void *base, int width, int height, int pitch, int2 at, private ushort *out);

INLINE void load_activations(private const activations *a, uint block, a_rows pieces[PIECES]) {
    UR for (uint i = 0; i < STEP; i += 2) {
        ushort raw[2 * TOKENS];
        A_READ((global void *)a->q, (int)a->k_padded, (int)(a->last + 1), (int)a->k_padded,
               (int2)((int)((block + i) * TILE_K), 0), raw);
        UR for (uint t = 0; t < 2 * TOKENS; t++) ((private ushort *)&pieces[i + t / TOKENS])[t % TOKENS] = raw[t];
    }
}
#endif

/* Adds blocks [from, from + GROUP_STEP) of those loaded. */
INLINE void multiply(private const a_rows *pieces, private const uint *b, uint from, private totals *t) {
#if BIT_PAIRS
    UR for (uint i = from; i < from + GROUP_STEP; i += 2) {
        add_bits(pieces[i], pieces[i + 1], columns_at(b + (BITS - 1) * STEP + i), t);
#if BITS == 3
        t->plus = MULTIPLY(pieces[i], columns_at(b + i), t->plus);
        t->plus = MULTIPLY(pieces[i + 1], columns_at(b + STEP + i), t->plus);
#endif
    }
#else
    UR for (uint i = from; i < from + GROUP_STEP; i++)
        t->sum[i % TURNS] = MULTIPLY(pieces[i], columns_at(b + i * BITS), t->sum[i % TURNS]);
#endif
}

/* ---- sub-groups of 8 ---------------------------------------------------------------------------------------------- */

#else
#define HALVES      2
#define PLACE       (8 / B_DWORDS) /* lanes of activations that meet one dword of an operand */
#define B_REGISTERS (STEP * BITS * 2)

/* By bytes: an address is one addition then, of 32 bits, since dg2 has none of 64. */
INLINE void load_weights(global const uint *codes, uint first, uint n_blocks, uint block, uint byte,
                         uint b[B_REGISTERS]) {
    uint at = first * BLOCK_BYTES + byte;
    UR for (uint i = 0; i < B_REGISTERS; i += 8) {
        uint8 eight = intel_sub_group_block_read8((global const uint *)((global const char *)codes + (at + i * 32)));
        UR for (uint j = 0; j < 8; j++) b[i + j] = ((private const uint *)&eight)[j];
    }
}

#define HALF_PIECES (BITS == 3 || BITS == 8)
#define PIECES      (HALF_PIECES ? 2 * STEP : STEP)
INLINE void load_activations(private const activations *a, uint block, a_rows pieces[PIECES]) {
    Q_READ uint *q = (Q_READ uint *)a->q + block * 8 * (X == 32 ? TOKENS : 1);
#if HALF_PIECES
    uint lane = get_local_id(0) % 8, place = lane / PLACE, dword = place / 2 * PLACE + lane % PLACE;
    UR for (uint i = 0; i < PIECES; i++) UR for (uint t = 0; t < TOKENS; t++) {
        uint row = X == 32 ? (i / 2 * TOKENS + t) * 8 : min(t, a->last) * (a->k_padded / 4) + i / 2 * 8;
        ((private uint *)&pieces[i])[t] = q[row + i % 2 * 4 + dword];
    }
#elif TOKENS == 1
    UR for (uint i = 0; i < STEP; i += 4) {
        uint4 four = intel_sub_group_block_read4(q + i * 8);
        UR for (uint j = 0; j < 4; j++) pieces[i + j] = as_int(((private const uint *)&four)[j]);
    }
#elif X == 32
    UR for (uint i = 0; i < STEP; i++)
        pieces[i] = JOIN(as_int, TOKENS)(JOIN(intel_sub_group_block_read, TOKENS)(q + i * 8 * TOKENS));
#else
    UR for (uint i = 0; i < STEP; i++)
        UR for (uint t = 0; t < TOKENS; t++)
            ((private uint *)&pieces[i])[t] = intel_sub_group_block_read(q + min(t, a->last) * (a->k_padded / 4) + i * 8);
#endif
}

/* All bits where an operand's place is this item's; of half pieces where it is one of the rows' half `place`. */
INLINE int place_mask(uint place) {
    uint mine = get_local_id(0) % 8 / PLACE;
    return (HALF_PIECES ? mine % 2 : mine) == place ? -1 : 0;
}

INLINE void multiply(private const a_rows *pieces, private const uint *b, uint from, private totals *t) {
#if BITS == 1
    UR for (uint i = from; i < from + GROUP_STEP; i += 2)
        UR for (uint s = 0; s < 2; s++) { /* the pair's blocks */
            a_rows even = pieces[i] & place_mask(s), odd = pieces[i + 1] & place_mask(s);
            UR for (uint h = 0; h < HALVES; h++) add_bits(even, odd, columns_at(b + 2 * i + s + h), &t[h]);
        }
#elif BITS == 3
    UR for (uint i = 2 * from; i < 2 * (from + GROUP_STEP); i += 4)
        UR for (uint s = 0; s < 2; s++) {
            private const uint *dwords = b + BITS * (i + 2 * s);
            UR for (uint h = 0; h < HALVES; h++) {
                a_rows even = pieces[i + s] & place_mask(h), odd = pieces[i + 2 + s] & place_mask(h);
                t[h].plus = MULTIPLY(even, columns_at(dwords), t[h].plus);
                t[h].plus = MULTIPLY(odd, columns_at(dwords + 2), t[h].plus);
                add_bits(even, odd, columns_at(dwords + 4), &t[h]);
            }
        }
#elif BITS == 8
    UR for (uint i = 2 * from; i < 2 * (from + GROUP_STEP); i++)
        UR for (uint h = 0; h < HALVES; h++)
            t[h].sum[0] = MULTIPLY(pieces[i] & place_mask(h), columns_at(b + 8 * i), t[h].sum[0]);
#else
    UR for (uint i = from; i < from + GROUP_STEP; i++)
        UR for (uint s = 0; s < BITS; s++) {
            a_rows place = pieces[i] & place_mask(s);
            UR for (uint h = 0; h < HALVES; h++)
                t[h].sum[s % TURNS] = MULTIPLY(place, columns_at(b + 2 * BITS * i + s + h), t[h].sum[s % TURNS]);
        }
#endif
}
#endif

/* ---- sums --------------------------------------------------------------------------------------------------------- */

/* What a work-group computes at a time: TN tile-rows of a part. */
typedef struct {
    global const uint *codes; /* of the part */
    uint tile, n_tiles, n_blocks; /* those that exist: beyond, the last one is computed again */
    local int *partials; /* [groups, or slices][TOKENS][TN][16]; STORE_STEP: [TN][n_partials][16] */
    uint n_partials, first_group; /* whose sums lie first */
} work;

/* Where the sums of a group, or slice, begin, of row t of activations and tile-row j. */
INLINE uint place_of(private const work *o, uint partial, uint t, uint j) {
    return (STORE_STEP ? j * o->n_partials + partial : (partial * TOKENS + t) * TN + j) * TILE_ROWS;
}

#if !STORE_STEP
INLINE void store_totals(private const work *o, private const totals *t, uint j, uint partial) {
    local int *to = o->partials + place_of(o, partial, 0, j) + get_local_id(0) % SUB_GROUP;
    UR for (uint row = 0; row < TOKENS; row++)
        UR for (uint h = 0; h < HALVES; h++) to[row * TN * TILE_ROWS + h * SUB_GROUP] = total(&t[h], row);
}
#else
/* Those of a step's groups. */
INLINE void store_step(private const work *o, private const uint sums[STEP_GROUPS * HALVES], uint j, uint first) {
    local uint *to = (local uint *)o->partials + place_of(o, first, 0, j);
#if STEP_GROUPS * HALVES >= 8
    UR for (uint g = 0; g < STEP_GROUPS * HALVES; g += 8)
        intel_sub_group_block_write8(to + g * SUB_GROUP, vload8(0, sums + g));
#elif STEP_GROUPS * HALVES == 4
    intel_sub_group_block_write4(to, vload4(0, sums));
#else
    intel_sub_group_block_write2(to, vload2(0, sums));
#endif
}
#endif

/* Adds STEP blocks of each tile-row from `block`, which is its byte `byte`, on, but for the first `skip` of them. */
INLINE void add_step(private const activations *a, private const work *o, uint block, uint byte, uint skip,
                     totals sums[TN][HALVES]) {
    a_rows pieces[PIECES];
    load_activations(a, block, pieces);
    if (skip)
        UR for (uint i = 0; i < PIECES; i++)
            if (i < PIECES / STEP * skip) pieces[i] = 0;
    UR for (uint j = 0; j < TN; j++) {
        uint b[B_REGISTERS];
        load_weights(o->codes, (o->tile + min(j, o->n_tiles - 1)) * o->n_blocks, o->n_blocks, block, byte, b);
#if STORE_STEP
        uint of_groups[STEP_GROUPS * HALVES];
#endif
#if X_GROUP
        UR for (uint g = 0; g < STEP_GROUPS; g++) {
            UR for (uint h = 0; h < HALVES; h++) clear(&sums[j][h]);
            multiply(pieces, b, g * GROUP_STEP, sums[j]);
#if !STORE_STEP
            store_totals(o, sums[j], j, block / GROUP_STEP + g - o->first_group);
#else
            UR for (uint h = 0; h < HALVES; h++) of_groups[g * HALVES + h] = (uint)total(&sums[j][h], 0);
#endif
        }
#if STORE_STEP
        store_step(o, of_groups, j, block / GROUP_STEP - o->first_group);
#endif
#else
        multiply(pieces, b, 0, sums[j]);
#endif
    }
}

/* Of blocks [begin, end). */
INLINE void make_sums(private const activations *a, private const work *o, uint begin, uint end) {
    totals sums[TN][HALVES];
    uint block = begin + get_local_id(0) / SUB_GROUP * STEP;
    UR for (uint j = 0; j < TN; j++) UR for (uint h = 0; h < HALVES; h++) clear(&sums[j][h]);
#if SUB_GROUP == 16
    for (; block < end; block += SLICES * STEP) add_step(a, o, block, 0, 0, sums);
#else
    uint last = o->n_blocks - STEP, byte = block * BLOCK_BYTES;
#if X_GROUP /* the last step makes some groups' sums once more */
    for (; block < end; block += SLICES * STEP, byte += SLICES * STEP * BLOCK_BYTES)
        add_step(a, o, min(block, last), min(byte, last * BLOCK_BYTES), 0, sums);
#else
    uint rest = o->n_blocks % STEP;
    for (; block <= last; block += SLICES * STEP, byte += SLICES * STEP * BLOCK_BYTES)
        add_step(a, o, block, byte, 0, sums);
    if (rest && block < end) add_step(a, o, last, last * BLOCK_BYTES, STEP - rest, sums);
#endif
#endif
#if !X_GROUP
    UR for (uint j = 0; j < TN; j++) store_totals(o, sums[j], j, get_local_id(0) / SUB_GROUP);
#endif
}

/* ---- floats ------------------------------------------------------------------------------------------------------- */

/* The sequence of cpu/kernels.h for a group's sum. */
INLINE float add_group(private const activations *a, private const part *w, uint tile, uint t, uint g, int sum, int mul,
                       int sub, float result) {
    uint lane = get_local_id(0) % TILE_ROWS, group = GROUP > 0 && X_GROUP > 0 ? g * X_GROUP / (GROUP ? GROUP : 1) : 0;
    int qsum = a->qsum[t * a->n_groups + g];
    if (BITS == 1) sum >>= 2;
    float sx = ROW_SCALE ? 1.0f : a->sx[t * a->n_scales + g];
    float scale = load_scale(w->scales, w->supers, tile, lane, group, a->k_padded);
    result = fma(scale, sx * (float)(mul * sum - sub * qsum), result);
    return MINS ? fma(load_scale(w->mins, w->super_mins, tile, lane, group, a->k_padded), sx * (float)qsum, result) : result;
}

/* The result of this item's row of tile-row j, for row t of activations; of groups [begin, end) behind those before. */
INLINE float fold(private const activations *a, private const part *w, private const work *o, uint tile, uint j, uint t,
                  int mul, int sub, uint begin, uint end, float result) {
    local const int *partials = o->partials + get_local_id(0) % TILE_ROWS;
    uint row = min(t, a->last);
#if X_GROUP
    for (uint g = begin; g < end; g++)
        result = add_group(a, w, tile, row, g, partials[place_of(o, g - o->first_group, t, j)], mul, sub, result);
    return result;
#else
    int sum = 0;
    for (uint i = 0; i < SLICES; i++) sum += partials[place_of(o, i, t, j)];
    return add_group(a, w, tile, row, 0, sum, mul, sub, result);
#endif
}

/* Of tile-rows from `tile` on: y of one row of weights and of activations, by this item's number; `add` is not in it. */
INLINE float compute(private const activations *a, private const part *w, uint tile, uint n_tiles, int mul, int sub,
                     local int *partials) {
    uint n_blocks = a->k_padded / TILE_K, unit = get_local_id(0) / TILE_ROWS, j = unit % TN, t = unit / TN;
    bool folds = unit < TN * TOKENS && j < n_tiles;
    work o = {w->codes, tile, n_tiles, n_blocks, partials, N_PARTIALS(a->k_padded), 0};
    float result = 0;
#if X_GROUP
    for (uint begin = 0; begin < n_blocks; begin += SEGMENT) {
        uint end = min(begin + SEGMENT, n_blocks);
        if (begin) {
            barrier(CLK_LOCAL_MEM_FENCE); /* all have read the sums */
            o.first_group = begin / GROUP_STEP - STEP_GROUPS;
        }
        make_sums(a, &o, begin, end);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (folds)
            result = fold(a, w, &o, tile + j, j, t, mul, sub, begin / GROUP_STEP, end / GROUP_STEP, result);
    }
#else
    make_sums(a, &o, 0, n_blocks);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (folds) result = fold(a, w, &o, tile + j, j, t, mul, sub, 0, 1, 0);
#endif
    if (ROW_SCALE) result *= a->sx[min(t, a->last)];
    return folds ? finish(w, (tile + j) * TILE_ROWS + get_local_id(0) % TILE_ROWS, result) : 0;
}

/* The results of tile-rows group * TN and on of part w; with GATED `up` is the part that they are multiplied with. */
INLINE void run_group(private const activations *a, private const part *w, private const part *up, uint group, int mul,
                      int sub, global const crumb_result *add, local int *partials) {
    uint unit = get_local_id(0) / TILE_ROWS, tile = w->tile0 + group * TN, n_tiles = min((uint)TN, w->n_tiles - group * TN);
    float y = compute(a, w, tile, n_tiles, mul, sub, partials);
#if GATED
    barrier(CLK_LOCAL_MEM_FENCE); /* all have read the sums */
    float of_up = compute(a, up, up->tile0 + group * TN, n_tiles, mul, sub, partials);
#endif
    uint t = unit / TN, row = (tile + unit % TN) * TILE_ROWS + get_local_id(0) % TILE_ROWS;
    if (t > a->last || unit % TN >= n_tiles || row >= w->m) return;
    size_t at = (size_t)(a->first + t) * w->width + row;
#if GATED
    w->y[at] = gated_result(GATED, TO_RESULT(y), of_up);
#else
    w->y[at] = sum_with(add, at, y);
#endif
}

/* ---- the kernel --------------------------------------------------------------------------------------------------- */

__attribute__((intel_reqd_sub_group_size(SUB_GROUP))) __attribute__((reqd_work_group_size(SIZE, 1, 1))) kernel void
linear(global const crumb_batch *batch, uint on_outputs, uint k, global const crumb_value *x,
       global const crumb_aux *aux, global const uint *order, float eps, global const int *q, global const float *sx, global const int *qsum, global const char *codebook,
       int mul, int sub, global const crumb_result *add, local int *scratch, PART_ARGS_LIST) {
    part parts[PARTS] = {PART_LIST};
    activations a;
    a.n = N_OF(batch, on_outputs);
    a.first = ROW_BLOCK * TOKENS;
    if (a.first >= a.n) return;
    a.last = min(a.n - a.first, (uint)TOKENS) - 1;
    a.k_padded = ROUND_UP(k, TILE_K);
    a.n_groups = GROUPS_OF(a.k_padded);
    a.n_scales = ROW_SCALE ? 1 : a.n_groups;
#if X == 32
    local float2 sum_scratch[SIZE];
    local int *codes = scratch + N_PARTIALS(a.k_padded) * (TOKENS * TN * TILE_ROWS);
    local int *scales = codes + TOKENS * ROUND_UP(a.k_padded, STEP_K) / 4, *sums = scales + TOKENS * a.n_scales;
    for (uint t = 0; t <= a.last; t++) {
        size_t row = (size_t)(a.first + t) * k;
        quantize_row(x + row, INPUT >= 2 ? aux + row : aux, order, eps, k, a.k_padded / 4, sum_scratch, scales + t * a.n_scales,
                     sums + t * a.n_groups, codes + t * 8, 8 * TOKENS);
        for (uint g = get_local_id(0); g < a.n_scales; g += SIZE)
            scales[t * a.n_scales + g] = as_int(quantizer_of(as_float(scales[t * a.n_scales + g]), ROW_SCALE).sx);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    a.q = codes;
    a.qsum = sums;
    a.sx = (local const float *)scales;
#else
    a.q = q + (size_t)a.first * (a.k_padded / 4);
    a.qsum = qsum + (size_t)a.first * a.n_groups;
    a.sx = sx + (size_t)a.first * a.n_scales;
#endif

#define RUN(w, group) run_group(&a, w, &parts[PARTS - 1], group, mul, sub, add, scratch)
    RUN_PART_OF_GROUP(parts, TN, RUN);
}
