/* The tile layout, the one packed form of low-bit weights that every device reads: [M/16][K/32][bits][16] dwords.
 *
 * A tile is 16 rows (lanes) x 32 k. Lane n of dword d holds the 32/bits codes of row n whose linear index is
 *     L = (32/bits)*d + e        e = 0 .. 32/bits - 1, lowest bits first
 * and L stands for k = 16*(L%2) + L/2 of the 32-block (so that a GPU can quantize activations in registers without a
 * shuffle; the order is free as long as activations follow). Scales and mins lie beside the codes as
 * [M/16][K/group][16], f16 where the file has f16, else f32; or as int8 that multiply f16 *super-scales*
 * [M/16][K/super_group][16], where a file has two levels. M and K are padded with zero codes to whole tiles.
 *
 * On a CPU, byte j of dword d, plane p (bits p*bits of each byte) is L = (32/bits)*d + (8/bits)*j + p. A kernel that
 * masks plane p out of a dword meets four k's of one row; activations are therefore stored in *plane order*:
 * for each 32-block [bits dwords d][8/bits planes p][4 bytes j].
 *
 * Widths that do not divide a byte are split: 3 = 2 + 1, 5 = 4 + 1 and 6 = 4 + 2 bits, a *base* of B and an *extra
 * part* of X bits. A tile of theirs is [B base dwords][X extra dwords] x 16 rows. The base dwords hold the low B bits
 * of every code as a tile of B bits does, L at bits B*e of dword d. The high X bits of the same L stand in extra dword
 * d*X/B at bits B*e + X*(d % (B/X)): shifted right by X*(d % (B/X)), they lie at the low end of base dword d's fields.
 * A CPU joins the two to one byte per code; to a GPU they are two operands, sum = sum_base + 2^B * sum_extra.
 * Activations are in the plane order of the base.
 *
 * The codes of a matrix with a *codebook* are 4 bits wide and stand for its entries: w = scale * codebook[u] + min.
 */
#ifndef CRUMB_LOWBIT_TILE_H
#define CRUMB_LOWBIT_TILE_H

#include "host/base/error.h"
#include "host/lowbit/types.h"

enum { CRUMB_TILE_ROWS = 16, CRUMB_TILE_K = 32, CRUMB_CODEBOOK_ENTRIES = 16 };

/* The k within its 32-block of linear index L. */
static inline unsigned crumb_tile_k_of(unsigned linear) {
    return 16 * (linear % 2) + linear / 2;
}

/* Its inverse. */
static inline unsigned crumb_tile_linear_of(unsigned k) {
    return 2 * (k % 16) + k / 16;
}

/* Of a code's bits, those in the base: all, but for split codes. */
static inline unsigned crumb_tile_base_bits(unsigned bits) {
    return bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits;
}

/* The code of lane 0..15 and linear index L of a tile. */
static inline unsigned crumb_tile_code(const uint32_t *tile, unsigned bits, unsigned lane, unsigned linear) {
    unsigned base = crumb_tile_base_bits(bits), extra = bits - base, d = linear / (32 / base);
    unsigned at = linear % (32 / base) * base, code = tile[d * CRUMB_TILE_ROWS + lane] >> at & ((1u << base) - 1);
    if (!extra) return code;
    uint32_t high = tile[(base + d * extra / base) * CRUMB_TILE_ROWS + lane];
    return code | (high >> (at + extra * (d % (base / extra))) & ((1u << extra) - 1)) << base;
}

/* Writes it where zero is. */
static inline void crumb_tile_set_code(uint32_t *tile, unsigned bits, unsigned lane, unsigned linear, unsigned code) {
    unsigned base = crumb_tile_base_bits(bits), extra = bits - base, d = linear / (32 / base);
    unsigned at = linear % (32 / base) * base;
    tile[d * CRUMB_TILE_ROWS + lane] |= (code & ((1u << base) - 1)) << at;
    if (extra)
        tile[(base + d * extra / base) * CRUMB_TILE_ROWS + lane] |= code >> base << (at + extra * (d % (base / extra)));
}

/* Where k of a 32-block stands in plane-ordered activations: [dword][plane][byte]. */
static inline unsigned crumb_tile_plane_position(unsigned bits, unsigned k) {
    unsigned base = crumb_tile_base_bits(bits), planes = 8 / base, per_dword = 32 / base;
    unsigned linear = crumb_tile_linear_of(k);
    return (linear / per_dword * planes + linear % planes) * 4 + linear % per_dword / planes;
}

/* order[i] = the k within a 32-block that stands at byte i of plane-ordered activations. */
void crumb_tile_plane_order(unsigned bits, uint8_t order[32]);

/* How a matrix of weights lies in memory. Pointers are not owned. */
typedef struct crumb_matrix {
    crumb_type type;        /* where it came from, and for dense matrices what it is */
    uint8_t bits;           /* 1 to 6, 8: tile layout; 0: dense, row-major [M][K] of `type` */
    uint8_t max_code;       /* no code is larger */
    bool scales_f32;        /* scales and mins are f32, else f16 */
    bool indexed;           /* codes are in the index layout (index.h), not in tiles */
    int16_t mul, sub;       /* w = scale * (mul * u - sub) + min */
    uint32_t m, k;          /* rows and columns, unpadded */
    uint32_t group;         /* weights per scale along K: 16, or a multiple of 32; one per row: K rounded up to 32 */
    uint32_t super_group;   /* weights per super-scale, a multiple of group and of 32; 0: scales have one level */
    const void *codes;      /* tiles, or the dense rows */
    const void *scales;     /* [ceil(M/16)][K/group][16] */
    const void *mins;       /* as scales, or NULL */
    const uint16_t *supers; /* f16 [ceil(M/16)][K/super_group][16]: what the scales, then int8, are multiplied with */
    const uint16_t *super_mins; /* the same for the mins */
    const int8_t *codebook;     /* the 16 values that 4-bit codes stand for, with mul 1 and sub 0; NULL: themselves */
} crumb_matrix;

/* Where the parts of a packed matrix go in one allocation; offsets are multiples of 64. */
typedef struct crumb_matrix_layout {
    uint64_t codes_offset, scales_offset, mins_offset; /* mins_offset is 0 where there are none */
    uint64_t supers_offset, super_mins_offset;         /* 0 likewise */
    uint64_t total_bytes;
} crumb_matrix_layout;

/* Fills `matrix` except for its pointers, and the sizes that packing m x k weights of `type` takes.
 * Fails with FORMAT/UNSUPPORTED when k is not whole blocks or a size overflows. */
crumb_status crumb_matrix_plan(crumb_type type, uint64_t m, uint64_t k, crumb_matrix *matrix,
                               crumb_matrix_layout *layout, crumb_error *err);

/* Packs tile-rows [tile0, tile1) (16 rows each) of a tensor on disk (`tensor`, all its bytes) into `base`, which has
 * the layout above. May run on several threads for different ranges. Dense types are copied. Fails with FORMAT when a
 * scale is NaN or infinite (message says which row and block; the caller adds the tensor's name). */
crumb_status crumb_matrix_pack(crumb_type type, const uint8_t *tensor, const crumb_matrix *matrix,
                               const crumb_matrix_layout *layout, uint8_t *base, uint64_t tile0, uint64_t tile1,
                               crumb_error *err);

/* Where every row has one scale for all of its groups, as trainers of ternary models write it, keeps it once: in place,
 * with matrix->group grown to the row. Sums then run along whole rows, and scales take no bandwidth. For packed and
 * bound matrices without mins, before anyone reads them. */
void crumb_matrix_merge_scales(crumb_matrix *matrix);

/* The widest groups that activations share a scale within. */
enum { CRUMB_WIDEST_GROUP = 128 };
/* For packed and bound matrices of CRUMB_SCALE_F32, whose blocks repeat the scale of the group that they are in: keeps
 * it once for up to CRUMB_WIDEST_GROUP weights, in place, and forgets mins that are all zero. Before anyone reads them.
 */
void crumb_matrix_widen_groups(crumb_matrix *matrix);
/* For the same: keeps scales and mins as f16, in place, where all of them are. */
void crumb_matrix_narrow_scales(crumb_matrix *matrix);

/* The doubled values of FP4 (E2M1, as in MXFP4), whose bits are sign, exponent, mantissa: w = scale / 2 * entry. */
extern const int8_t crumb_codebook_e2m1[CRUMB_CODEBOOK_ENTRIES];
extern const int8_t crumb_codebook_iq4_nl[CRUMB_CODEBOOK_ENTRIES]; /* llama.cpp's */

/* The smallest and the largest entry of a codebook. */
typedef struct crumb_codebook_range {
    int low, high;
} crumb_codebook_range;
crumb_codebook_range crumb_codebook_get_range(const int8_t *codebook);

/* The value of a code as an integer, before scale and min. */
static inline int crumb_matrix_code_value(const crumb_matrix *matrix, unsigned code) {
    return matrix->mul * (matrix->codebook ? matrix->codebook[code] : (int)code) - matrix->sub;
}

/* The code of row m and column k of a packed matrix, by itself: for references and tests. */
unsigned crumb_matrix_indexed_code(const crumb_matrix *matrix, uint32_t m, uint32_t k);
static inline unsigned crumb_matrix_code(const crumb_matrix *matrix, uint32_t m, uint32_t k) {
    if (matrix->indexed) return crumb_matrix_indexed_code(matrix, m, k);
    uint64_t n_blocks = ((uint64_t)matrix->k + CRUMB_TILE_K - 1) / CRUMB_TILE_K;
    uint64_t tile = m / CRUMB_TILE_ROWS * n_blocks + k / CRUMB_TILE_K;
    const uint32_t *dwords = (const uint32_t *)matrix->codes + tile * matrix->bits * CRUMB_TILE_ROWS;
    return crumb_tile_code(dwords, matrix->bits, m % CRUMB_TILE_ROWS, crumb_tile_linear_of(k % CRUMB_TILE_K));
}

/* Scale `group` of row m of a packed matrix, and its min, 0 where there is none. */
float crumb_matrix_scale(const crumb_matrix *matrix, uint32_t m, uint32_t group);
float crumb_matrix_min(const crumb_matrix *matrix, uint32_t m, uint32_t group);

/* Bytes of a matrix's codes, padding included; of a dense one, of its weights. */
uint64_t crumb_matrix_codes_bytes(const crumb_matrix *matrix);
/* Bytes behind each of a matrix's pointers, 0 where that is NULL; its codebook is not counted. */
typedef struct crumb_matrix_bytes {
    uint64_t codes, scales, mins, supers, super_mins;
} crumb_matrix_bytes;
crumb_matrix_bytes crumb_matrix_get_bytes(const crumb_matrix *matrix);

/* Rows [m0, m1) as a matrix of its own in the same memory. m0 is a multiple of CRUMB_TILE_ROWS, and so is m1 unless it
 * is the last row's end. */
crumb_matrix crumb_matrix_rows(const crumb_matrix *matrix, uint32_t m0, uint32_t m1);

/* Points matrix's pointers into a packed allocation. */
void crumb_matrix_bind(crumb_matrix *matrix, const crumb_matrix_layout *layout, const uint8_t *base);

/* Row `row` of a packed or dense matrix as floats: embedding lookup from packed weights, tests. `out` holds k values,
 * and of a packed matrix k rounded up to CRUMB_TILE_K. */
void crumb_matrix_row_to_f32(const crumb_matrix *matrix, uint64_t row, float *out);

#endif
