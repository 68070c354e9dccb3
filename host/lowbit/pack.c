/* Packing: a tensor on disk -> the tile layout (tile.h), at memory speed.
 *
 * One function turns the codes of one block into the dwords of one lane: for any type by way of its codes as bytes,
 * for some in one step. Blocks run over all 16 lanes before the next block column, so that the stores fill whole cache
 * lines. Fields move by shifts, masks and byte shuffles in 8 or 16 bytes at once (GNU C vectors, which any target has):
 * the order L <-> k = 16*(L%2) + L/2 interleaves the two halves of a 32-block.
 */
#include "host/base/checked.h"
#include "host/lowbit/tile.h"

#include <math.h>
#include <string.h>

enum { LANES = CRUMB_TILE_ROWS };

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t words8 __attribute__((vector_size(16)));
typedef uint32_t dwords4 __attribute__((vector_size(16)));
typedef uint64_t qwords2 __attribute__((vector_size(16)));

static inline uint64_t load64(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}
static inline bytes16 load16(const uint8_t *p) {
    bytes16 x;
    memcpy(&x, p, 16);
    return x;
}

/* Four dwords of one lane; they lie LANES apart. */
static inline void store_lane(uint32_t *lane, bytes16 x) {
    dwords4 d = (dwords4)x;
    for (int i = 0; i < 4; i++) lane[LANES * i] = d[i];
}

/* Joins the 32 low nibbles of a, b (their high nibbles are zero) to 16 bytes, a's first. */
static inline bytes16 join_nibbles(bytes16 a, bytes16 b) {
    words8 x = (words8)a, y = (words8)b;
    return __builtin_shufflevector((bytes16)(x | x >> 4), (bytes16)(y | y >> 4), 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20,
                                   22, 24, 26, 28, 30);
}

/* Swaps the bits of x that `mask` selects with those `shift` above them. */
static inline uint64_t swap_fields(uint64_t x, uint64_t mask, unsigned shift) {
    uint64_t t = (x ^ x >> shift) & mask;
    return x ^ t ^ t << shift;
}

/* ---- one block of one lane; lane[16*d] is dword d ---- */

static void pack_q4(const uint8_t *in, uint32_t *lane) {
    store_lane(lane, load16(in)); /* low nibble k, high k + 16: as the tile has it */
}

static void pack_q8(const uint8_t *in, uint32_t *lane) {
    bytes16 a = load16(in) ^ 0x80, b = load16(in + 16) ^ 0x80; /* int8 to code: + 128 */
    store_lane(lane, __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
    store_lane(lane + (ptrdiff_t)LANES * 4,
               __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}

/* Two 32-blocks of 2-bit codes in one byte each: 16 nibbles, each a code of the first half below one of the second. */
static inline bytes16 join_2bit(const bytes16 block0[2], const bytes16 block1[2]) {
    return join_nibbles(block0[0] | block0[1] << 2, block1[0] | block1[1] << 2);
}

/* 32 bytes hold four 32-blocks of 2-bit codes, one in each bit pair: block l in bits first + step * l. */
static inline void pack_bit_pairs(const uint8_t *in, uint32_t *lane, int first, int step) {
    bytes16 a = load16(in), b = load16(in + 16), blocks[4][2];
    for (int l = 0; l < 4; l++) {
        blocks[l][0] = a >> (first + step * l) & 3;
        blocks[l][1] = b >> (first + step * l) & 3;
    }
    store_lane(lane, join_2bit(blocks[0], blocks[1]));
    store_lane(lane + (ptrdiff_t)LANES * 4, join_2bit(blocks[2], blocks[3]));
}

static void pack_tq2_0(const uint8_t *in, uint32_t *lane) {
    pack_bit_pairs(in, lane, 0, 2);
    pack_bit_pairs(in + 32, lane + (ptrdiff_t)LANES * 2 * 4, 0, 2);
}

static void pack_i2_s(const uint8_t *in, uint32_t *lane) {
    pack_bit_pairs(in, lane, 6, -2);
}

/* The next base-3 digit of 16 fractions: floor(3 * x / 256), leaving 3 * x mod 256. */
static inline bytes16 next_trit(bytes16 *x) {
    bytes16 digit = -((bytes16)(*x > 85) + (bytes16)(*x > 170));
    *x *= 3;
    return digit;
}

static void pack_tq1_0(const uint8_t *in, uint32_t *lane) {
    bytes16 a = load16(in), b = load16(in + 16), c = load16(in + 32), blocks[8][2];
    for (int t = 0; t < 5; t++) { /* bytes 0..31: digit t is block t */
        blocks[t][0] = next_trit(&a);
        blocks[t][1] = next_trit(&b);
    }
    for (int t = 0; t < 5; t++) blocks[5 + t / 2][t % 2] = next_trit(&c); /* bytes 32..47: digit t is half a block */
    uint32_t last;
    memcpy(&last, in + 48, 4);
    bytes16 d = (bytes16)(dwords4){last}, digits[4];
    for (int t = 0; t < 4; t++) digits[t] = next_trit(&d); /* bytes 48..51: digit t is 4 codes */
    dwords4 half = {((dwords4)digits[0])[0], ((dwords4)digits[1])[0], ((dwords4)digits[2])[0], ((dwords4)digits[3])[0]};
    blocks[7][1] = (bytes16)half;
    for (int i = 0; i < 4; i++)
        store_lane(lane + (ptrdiff_t)LANES * 4 * i, join_2bit(blocks[2 * i], blocks[2 * i + 1]));
}

/* Codes in order, lowest first: interleave the halves of each 32-block. */
static void pack_q1_0(const uint8_t *in, uint32_t *lane) {
    for (int i = 0; i < 2; i++) { /* two 32-blocks at once */
        uint64_t x = load64(in + 8 * i);
        x = swap_fields(x, UINT64_C(0x0000ff000000ff00), 8);
        x = swap_fields(x, UINT64_C(0x00f000f000f000f0), 4);
        x = swap_fields(x, UINT64_C(0x0c0c0c0c0c0c0c0c), 2);
        x = swap_fields(x, UINT64_C(0x2222222222222222), 1);
        lane[(ptrdiff_t)LANES * 2 * i] = (uint32_t)x;
        lane[(ptrdiff_t)LANES * (2 * i + 1)] = (uint32_t)(x >> 32);
    }
}

static inline void pack_q2_0(const uint8_t *in, uint32_t *lane, int n_blocks) {
    for (int i = 0; i < n_blocks; i++) {
        uint64_t x = load64(in + 8 * i);
        x = swap_fields(x, UINT64_C(0x00000000ffff0000), 16);
        x = swap_fields(x, UINT64_C(0x0000ff000000ff00), 8);
        x = swap_fields(x, UINT64_C(0x00f000f000f000f0), 4);
        x = swap_fields(x, UINT64_C(0x0c0c0c0c0c0c0c0c), 2);
        lane[(ptrdiff_t)LANES * 2 * i] = (uint32_t)x;
        lane[(ptrdiff_t)LANES * (2 * i + 1)] = (uint32_t)(x >> 32);
    }
}
static void pack_q2_0_g64(const uint8_t *in, uint32_t *lane) {
    pack_q2_0(in, lane, 2);
}
static void pack_q2_0_g128(const uint8_t *in, uint32_t *lane) {
    pack_q2_0(in, lane, 4);
}

typedef void pack_block_fn(const uint8_t *in, uint32_t *lane);

/* Types whose blocks take one step. */
static pack_block_fn *const pack_block[CRUMB_TYPE_COUNT] = {
    [CRUMB_TYPE_Q4_0] = pack_q4,
    [CRUMB_TYPE_Q4_1] = pack_q4,
    [CRUMB_TYPE_MXFP4] = pack_q4,
    [CRUMB_TYPE_Q8_0] = pack_q8,
    [CRUMB_TYPE_TQ1_0] = pack_tq1_0,
    [CRUMB_TYPE_TQ2_0] = pack_tq2_0,
    [CRUMB_TYPE_Q2_K] = pack_tq2_0,
    [CRUMB_TYPE_I2_S] = pack_i2_s,
    [CRUMB_TYPE_Q1_0] = pack_q1_0,
    [CRUMB_TYPE_Q2_0_G64] = pack_q2_0_g64,
    [CRUMB_TYPE_Q2_0_G128] = pack_q2_0_g128,
};

/* ---- 32 codes of one lane, one per byte -------------------------------------------------------------------- */

/* Fields of 4 bits: 16 bytes, the codes of the first half below those of the second. */
static inline bytes16 join_4bit(bytes16 a, bytes16 b) {
    return a | b << 4;
}

/* Four base dwords; of 5 and 6 bits their high bits, which lie in one or two dwords behind. */
static void pack_codes_of_4_to_6_bits(bytes16 a, bytes16 b, unsigned bits, uint32_t *lane) {
    store_lane(lane, join_4bit(a & 15, b & 15));
    const dwords4 high = (dwords4)join_4bit(a >> 4, b >> 4);
    if (bits == 5) lane[4 * LANES] = high[0] | high[1] << 1 | high[2] << 2 | high[3] << 3;
    if (bits == 6) {
        lane[4 * LANES] = high[0] | high[1] << 2;
        lane[5 * LANES] = high[2] | high[3] << 2;
    }
}

/* Eight bytes of four 2-bit fields. */
static inline uint64_t join_2_bits(bytes16 a, bytes16 b) {
    return ((qwords2)join_nibbles(a | b << 2, (bytes16){0}))[0];
}

static void pack_codes_of_2_or_3_bits(bytes16 a, bytes16 b, unsigned bits, uint32_t *lane) {
    const uint64_t low = join_2_bits(a & 3, b & 3), high = join_2_bits(a >> 2, b >> 2);
    lane[0] = (uint32_t)low;
    lane[LANES] = (uint32_t)(low >> 32);
    if (bits == 3) lane[2 * LANES] = (uint32_t)high | (uint32_t)(high >> 32) << 1;
}

static void pack_codes_of_8_bits(bytes16 a, bytes16 b, uint32_t *lane) {
    store_lane(lane, __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
    store_lane(lane + (ptrdiff_t)LANES * 4,
               __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}

static void pack_codes(const uint8_t *codes, unsigned bits, uint32_t *lane) {
    const bytes16 a = load16(codes), b = load16(codes + 16);
    if (bits == 8)
        pack_codes_of_8_bits(a, b, lane);
    else if (bits >= 4)
        pack_codes_of_4_to_6_bits(a, b, bits, lane);
    else
        pack_codes_of_2_or_3_bits(a, b, bits, lane);
}

/* A block of any type but those of 1 bit. */
static void pack_by_codes(const crumb_type_info *info, crumb_type type, const uint8_t *block, uint32_t *lane) {
    uint8_t codes[CRUMB_BLOCK_MAX];
    crumb_type_block_codes(type, block, codes);
    for (uint32_t k = 0; k < info->block; k += CRUMB_TILE_K, lane += (ptrdiff_t)info->bits * LANES)
        pack_codes(codes + k, info->bits, lane);
}

/* ---- one tile-row ---- */

static inline uint16_t load_f16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline bool f16_is_finite(uint16_t h) {
    return (h & 0x7c00) != 0x7c00;
}

static crumb_status fail_scale(uint64_t row, uint64_t block, crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_FORMAT, "row %llu, block %llu: the scale is NaN or infinite; the file is damaged",
                      (unsigned long long)row, (unsigned long long)block);
}

/* Where one tile-row's parts are. */
typedef struct tile_row {
    const uint8_t *rows; /* on disk */
    uint64_t row_bytes, row0;
    unsigned n_rows; /* 1..16 */
    uint64_t n_blocks;
    uint32_t *codes;
    void *scales, *mins;           /* [group][16]; NULL: none, or I2_S's scale */
    uint16_t *supers, *super_mins; /* [block][16]; NULL: scales have one level */
} tile_row;

/* Keeps the f16 scale of block b, lane n, and its min. */
static inline bool keep_f16(const crumb_type_info *info, const tile_row *t, const uint8_t *block, uint64_t b,
                            unsigned n) {
    const uint16_t scale = load_f16(block + info->scale_offset), min = t->mins ? load_f16(block + info->min_offset) : 0;
    ((uint16_t *)t->scales)[b * LANES + n] = scale;
    if (t->mins) ((uint16_t *)t->mins)[b * LANES + n] = min;
    return f16_is_finite(scale) && f16_is_finite(min);
}

/* The same where they are something else. No weight may be more than a float can hold. */
static bool keep_scales(const crumb_type_info *info, crumb_type type, const tile_row *t, const uint8_t *block,
                        uint64_t b, unsigned n) {
    crumb_block_scales s;
    crumb_type_block_scales(type, block, &s);
    const uint32_t n_groups = info->block / info->group;
    if (info->scale_kind != CRUMB_SCALE_LEVELS) {
        const float largest = info->scale_kind == CRUMB_SCALE_E8M0 ? 12 : 255; /* of what a code stands for */
        bool good = true;
        for (uint32_t g = 0; g < n_groups; g++) {
            ((float *)t->scales)[(b * n_groups + g) * LANES + n] = s.wide_scales[g];
            if (t->mins) ((float *)t->mins)[(b * n_groups + g) * LANES + n] = s.wide_mins[g];
            good = good && isfinite(largest * s.wide_scales[g]) && isfinite(s.wide_mins[g]);
        }
        return good;
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        ((int8_t *)t->scales)[(b * n_groups + g) * LANES + n] = s.scales[g];
        if (t->mins) ((int8_t *)t->mins)[(b * n_groups + g) * LANES + n] = s.mins[g];
    }
    t->supers[b * LANES + n] = s.scale;
    if (t->super_mins) t->super_mins[b * LANES + n] = s.min;
    return f16_is_finite(s.scale) && f16_is_finite(s.min);
}

static crumb_status pack_tile_row(const crumb_matrix *matrix, const tile_row *t, crumb_error *err) {
    const crumb_type_info *info = crumb_type_get_info(matrix->type);
    pack_block_fn *const pack = pack_block[matrix->type];
    size_t block_dwords = (size_t)info->block / CRUMB_TILE_K * info->bits * LANES;
    for (uint64_t b = 0; b < t->n_blocks; b++) {
        const uint8_t *block = t->rows + b * info->block_bytes;
        for (unsigned n = 0; n < t->n_rows; n++, block += t->row_bytes) {
            uint32_t *lane = t->codes + b * block_dwords + n;
            if (pack)
                pack(block + info->codes_offset, lane);
            else
                pack_by_codes(info, matrix->type, block, lane);
            if (!t->scales) continue;
            const bool good = info->scale_kind == CRUMB_SCALE_F16 ? keep_f16(info, t, block, b, n)
                                                                  : keep_scales(info, matrix->type, t, block, b, n);
            if (!good) return fail_scale(t->row0 + n, b, err);
        }
    }
    return CRUMB_OK;
}

/* Two bits have a code that ternary types do not: it would be run as +2, which no trainer meant. */
static crumb_status check_ternary(const crumb_type_info *info, const tile_row *t, crumb_error *err) {
    const uint64_t low_bits = UINT64_C(0x5555555555555555);
    for (unsigned n = 0; n < t->n_rows; n++)
        for (uint64_t b = 0; b < t->n_blocks; b++) {
            const uint8_t *codes = t->rows + n * t->row_bytes + b * info->block_bytes + info->codes_offset;
            uint64_t threes = 0;
            for (uint32_t i = 0; i < info->block / 4; i += 8) threes |= load64(codes + i) & load64(codes + i) >> 1;
            if (threes & low_bits)
                return crumb_fail(err, CRUMB_ERR_FORMAT,
                                  "row %llu, block %llu: code 3, which %s does not have; the file is damaged",
                                  (unsigned long long)(t->row0 + n), (unsigned long long)b, info->name);
        }
    return CRUMB_OK;
}

/* Lanes that stand for no row are zero. */
static void clear_tile_row(const tile_row *t, const crumb_matrix_bytes *n) {
    memset(t->codes, 0, n->codes);
    if (t->scales) memset(t->scales, 0, n->scales);
    if (t->mins) memset(t->mins, 0, n->mins);
    if (t->supers) memset(t->supers, 0, n->supers);
    if (t->super_mins) memset(t->super_mins, 0, n->super_mins);
}

/* Part i of `offset`'s parts, of n_bytes each; NULL where the matrix has none. */
static void *part_at(uint8_t *base, uint64_t offset, uint64_t n_bytes, uint64_t i) {
    return n_bytes ? base + offset + i * n_bytes : NULL;
}

/* I2_S's, in all 16 lanes. */
static crumb_status pack_tensor_scale(const uint8_t *tensor, const crumb_matrix *matrix, float *scales, unsigned n_rows,
                                      crumb_error *err) {
    const float scale = crumb_type_i2_s_scale(tensor, matrix->m, matrix->k);
    if (!isfinite(scale))
        return crumb_fail(err, CRUMB_ERR_FORMAT, "the tensor's scale is NaN or infinite; the file is damaged");
    for (unsigned n = 0; n < LANES; n++) scales[n] = n < n_rows ? scale : 0;
    return CRUMB_OK;
}

static crumb_status pack_tiles(const uint8_t *tensor, const crumb_matrix *matrix, const crumb_matrix_layout *layout,
                               uint8_t *base, uint64_t tile0, uint64_t tile1, crumb_error *err) {
    const crumb_type_info *info = crumb_type_get_info(matrix->type);
    /* the other ternary types count in base 3 */
    const bool two_bits_each = matrix->type == CRUMB_TYPE_TQ2_0 || matrix->type == CRUMB_TYPE_I2_S;
    crumb_matrix first = *matrix; /* bound, as the sizes of its parts follow from what it has */
    crumb_matrix_bind(&first, layout, base);
    first.m = LANES;
    const crumb_matrix_bytes n_bytes = crumb_matrix_get_bytes(&first);
    for (uint64_t i = tile0; i < tile1; i++) {
        tile_row t = {.row_bytes = crumb_type_row_bytes(matrix->type, matrix->k), .row0 = i * LANES};
        t.rows = tensor + t.row0 * t.row_bytes;
        t.n_rows = matrix->m - t.row0 < LANES ? (unsigned)(matrix->m - t.row0) : LANES;
        t.n_blocks = matrix->k / info->block;
        t.codes = part_at(base, layout->codes_offset, n_bytes.codes, i);
        void *scales = part_at(base, layout->scales_offset, n_bytes.scales, i);
        t.scales = info->scale_kind == CRUMB_SCALE_TENSOR ? NULL : scales;
        t.mins = part_at(base, layout->mins_offset, n_bytes.mins, i);
        t.supers = part_at(base, layout->supers_offset, n_bytes.supers, i);
        t.super_mins = part_at(base, layout->super_mins_offset, n_bytes.super_mins, i);
        if (t.n_rows < LANES) clear_tile_row(&t, &n_bytes);
        if (two_bits_each) CRUMB_TRY(check_ternary(info, &t, err));
        CRUMB_TRY(pack_tile_row(matrix, &t, err));
        if (!t.scales) CRUMB_TRY(pack_tensor_scale(tensor, matrix, scales, t.n_rows, err));
    }
    return CRUMB_OK;
}

/* ---- dense ---- */

/* Whether a whole number of 64-bit words holds only finite values. Adding one to an exponent of all ones carries into
 * the field's highest bit, and never further, because the mask leaves nothing else in the field. */
static bool words_are_finite(const uint8_t *p, uint64_t n_bytes, uint64_t exponent, uint64_t one) {
    uint64_t carry = 0;
    for (uint64_t i = 0; i < n_bytes; i += 8) carry |= (load64(p + i) & exponent) + one;
    return (carry & ~exponent) == 0;
}

static bool dense_is_finite(crumb_type type, const uint8_t *p, uint64_t n_bytes) {
    static const struct {
        uint64_t exponent, one;
    } fields[] = {
        [CRUMB_TYPE_F32] = {UINT64_C(0x7f8000007f800000), UINT64_C(0x0080000000800000)},
        [CRUMB_TYPE_F16] = {UINT64_C(0x7c007c007c007c00), UINT64_C(0x0400040004000400)},
        [CRUMB_TYPE_BF16] = {UINT64_C(0x7f807f807f807f80), UINT64_C(0x0080008000800080)},
    };
    uint8_t tail[8] = {0};
    uint64_t whole = n_bytes / 8 * 8;
    memcpy(tail, p + whole, n_bytes - whole);
    return words_are_finite(p, whole, fields[type].exponent, fields[type].one) &&
           words_are_finite(tail, 8, fields[type].exponent, fields[type].one);
}

static crumb_status copy_dense(const uint8_t *tensor, const crumb_matrix *matrix, uint8_t *out, uint64_t tile0,
                               uint64_t tile1, crumb_error *err) {
    uint64_t row_bytes = crumb_type_row_bytes(matrix->type, matrix->k);
    for (uint64_t row = tile0 * LANES; row < tile1 * LANES && row < matrix->m; row++) {
        const uint8_t *in = tensor + row * row_bytes;
        if (!dense_is_finite(matrix->type, in, row_bytes))
            return crumb_fail(err, CRUMB_ERR_FORMAT, "row %llu: a weight is NaN or infinite; the file is damaged",
                              (unsigned long long)row);
        memcpy(out + row * row_bytes, in, row_bytes);
    }
    return CRUMB_OK;
}

crumb_status crumb_matrix_pack(crumb_type type, const uint8_t *tensor, const crumb_matrix *matrix,
                               const crumb_matrix_layout *layout, uint8_t *base, uint64_t tile0, uint64_t tile1,
                               crumb_error *err) {
    if (type != matrix->type)
        return crumb_fail(err, CRUMB_ERR_INTERNAL, "packing a tensor of another type than was planned");
    if (matrix->bits == 0) return copy_dense(tensor, matrix, base + layout->codes_offset, tile0, tile1, err);
    return pack_tiles(tensor, matrix, layout, base, tile0, tile1, err);
}
