/* gemm.cl: the operands of its matrix instructions: loads, by 2D blocks in sub-groups of 16 and plain ones in those of 8,
 * and the columns that codes become. */

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
