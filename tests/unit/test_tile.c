/* host/lowbit/tile.h: packing keeps every weight, pads with zeros, refuses what is damaged. */
#include "host/base/half.h"
#include "host/base/thread.h"
#include "host/lowbit/tile.h"
#include "tests/support/random_tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct packed {
    uint8_t *tensor, *base;
    crumb_matrix matrix;
    crumb_matrix_layout layout;
} packed;

static crumb_status pack(packed *p, crumb_type type, uint64_t m, uint64_t k, crumb_error *err) {
    CRUMB_TRY(crumb_matrix_plan(type, m, k, &p->matrix, &p->layout, err));
    p->base = aligned_alloc(64, p->layout.total_bytes);
    memset(p->base, 0xa5, p->layout.total_bytes); /* packing may not rely on zeroed memory */
    crumb_matrix_bind(&p->matrix, &p->layout, p->base);
    return crumb_matrix_pack(type, p->tensor, &p->matrix, &p->layout, p->base, 0, (m + 15) / 16, err);
}

static packed pack_random(crumb_type type, uint64_t m, uint64_t k) {
    packed p = {.tensor = crumb_test_random_tensor(type, m, k, m * 1000003 + k)};
    crumb_error err = {0};
    assert_non_null(p.tensor);
    if (pack(&p, type, m, k, &err) != CRUMB_OK) fail_msg("%s", err.message);
    return p;
}

static void release(packed *p) {
    free(p->tensor);
    free(p->base);
}

static void rows_equal(const packed *p, crumb_type type) {
    uint64_t k = p->matrix.k, row_bytes = crumb_type_row_bytes(type, k);
    float *want = malloc(k * 4), *got = malloc(k * 4);
    float scale = type == CRUMB_TYPE_I2_S ? crumb_type_i2_s_scale(p->tensor, p->matrix.m, k) : 0;
    for (uint64_t row = 0; row < p->matrix.m; row++) {
        crumb_type_row_to_f32(type, p->tensor + row * row_bytes, k, scale, want);
        crumb_matrix_row_to_f32(&p->matrix, row, got);
        assert_memory_equal(want, got, k * 4);
    }
    free(want);
    free(got);
}

static void packing_keeps_every_weight(void **state) {
    (void)state;
    static const uint64_t rows[] = {1, 2, 15, 16, 17, 33}, blocks[] = {1, 2, 3, 5};
    for (int type = 0; type < CRUMB_TYPE_COUNT; type++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (size_t j = 0; j < sizeof blocks / sizeof *blocks; j++) {
                uint32_t block = crumb_type_get_info((crumb_type)type)->block;
                packed p = pack_random((crumb_type)type, rows[i], blocks[j] * (block == 1 ? 7 : block));
                rows_equal(&p, (crumb_type)type);
                release(&p);
            }
}

/* One code at a time; where crumb_tile_code finds it is worked out by hand below. */
static void codes_stand_where_the_layout_says(void **state) {
    (void)state;
    for (int type = CRUMB_TYPE_Q4_0; type < CRUMB_TYPE_COUNT; type++) {
        const crumb_type_info *info = crumb_type_get_info((crumb_type)type);
        enum { M = 19 };
        uint64_t k = 2 * info->block;
        packed p = pack_random((crumb_type)type, M, k);
        uint8_t codes[512];
        float scales[32], mins[32];
        const uint32_t *tiles = p.matrix.codes;
        for (uint64_t row = 0; row < 32; row++) {
            memset(codes, 0, sizeof codes);
            if (row < M)
                crumb_type_decode_row((crumb_type)type, p.tensor + row * crumb_type_row_bytes((crumb_type)type, k), k,
                                      codes, scales, mins);
            for (uint64_t block = 0; block < k / 32; block++)
                for (unsigned linear = 0; linear < 32; linear++) {
                    const uint32_t *tile = tiles + ((row / 16) * (k / 32) + block) * info->bits * 16;
                    unsigned code = crumb_tile_code(tile, info->bits, row % 16, linear);
                    assert_int_equal(code, codes[block * 32 + crumb_tile_k_of(linear)]);
                }
        }
        release(&p);
    }
}

/* Super-scales are the file's f16, scales and mins its integers; in lanes without a row all are zero. */
static void two_levels_stay_two(void **state) {
    (void)state;
    enum { M = 18, K = 512, BLOCK = 144 };
    packed p = pack_random(CRUMB_TYPE_Q4_K, M, K);
    const int8_t *scales = p.matrix.scales, *mins = p.matrix.mins;
    assert_int_equal(p.matrix.super_group, 256);
    assert_int_equal(p.matrix.group, 32);
    for (int row = 0; row < 32; row++)
        for (int b = 0; b < K / 256; b++) {
            static const uint8_t none[BLOCK];
            const uint8_t *block = row < M ? p.tensor + (size_t)(row * 2 + b) * BLOCK : none;
            const int at = (row / 16 * 2 + b) * 16 + row % 16;
            uint16_t d, dmin;
            memcpy(&d, block, 2);
            memcpy(&dmin, block + 2, 2);
            assert_int_equal(p.matrix.supers[at], d);
            assert_int_equal(p.matrix.super_mins[at], row < M ? dmin ^ 0x8000 : 0);
            assert_int_equal(scales[((row / 16 * 2 + b) * 8 + 3) * 16 + row % 16], block[4 + 3] & 63);
            assert_int_equal(mins[((row / 16 * 2 + b) * 8 + 7) * 16 + row % 16],
                             block[4 + 11] >> 4 | block[4 + 7] >> 6 << 4);
        }
    release(&p);
}

static void padding_rows_have_zero_scales(void **state) {
    (void)state;
    packed q4 = pack_random(CRUMB_TYPE_Q4_1, 17, 64), i2 = pack_random(CRUMB_TYPE_I2_S, 3, 128);
    const uint16_t *scales = q4.matrix.scales, *mins = q4.matrix.mins;
    for (int group = 0; group < 2; group++)
        for (int lane = 1; lane < 16; lane++) {
            assert_int_equal(scales[(2 + group) * 16 + lane], 0);
            assert_int_equal(mins[(2 + group) * 16 + lane], 0);
        }
    float want = crumb_type_i2_s_scale(i2.tensor, 3, 128);
    for (int lane = 0; lane < 16; lane++) assert_true(((const float *)i2.matrix.scales)[lane] == (lane < 3 ? want : 0));
    assert_int_equal(i2.matrix.group, 128);
    assert_true(i2.matrix.scales_f32);
    release(&q4);
    release(&i2);
}

static void ranges_of_tile_rows_add_up(void **state) {
    (void)state;
    packed whole = pack_random(CRUMB_TYPE_TQ2_0, 70, 512), parts = whole;
    crumb_error err = {0};
    parts.base = aligned_alloc(64, whole.layout.total_bytes);
    memset(parts.base, 0, whole.layout.total_bytes);
    memset(whole.base, 0, whole.layout.total_bytes);
    for (uint64_t tile = 5; tile-- > 0;) {
        assert_int_equal(crumb_matrix_pack(CRUMB_TYPE_TQ2_0, parts.tensor, &parts.matrix, &parts.layout, parts.base,
                                           tile, tile + 1, &err),
                         CRUMB_OK);
    }
    assert_int_equal(
        crumb_matrix_pack(CRUMB_TYPE_TQ2_0, whole.tensor, &whole.matrix, &whole.layout, whole.base, 0, 5, &err),
        CRUMB_OK);
    assert_memory_equal(whole.base, parts.base, whole.layout.total_bytes);
    free(parts.base);
    release(&whole);
}

/* One scale for all groups of every row, as in a BitNet file: the weights stay, the group grows to the row. One scale
 * more, and nothing is merged. */
static void equal_scales_of_rows_are_merged(void **state) {
    (void)state;
    enum { M = 37, K = 768, BLOCK = 66, SCALE_OFFSET = 64 };
    for (int with_exception = 0; with_exception < 2; with_exception++) {
        packed p = {.tensor = crumb_test_random_tensor(CRUMB_TYPE_TQ2_0, M, K, 5)};
        crumb_error err = {0};
        for (int i = 0; i < M * (K / 256); i++) {
            p.tensor[i * BLOCK + SCALE_OFFSET] = (uint8_t)(i / (K / 256)); /* the row */
            p.tensor[i * BLOCK + SCALE_OFFSET + 1] = 0x2c;
        }
        if (with_exception) p.tensor[(M * (K / 256) - 1) * BLOCK + SCALE_OFFSET] ^= 1;
        assert_int_equal(pack(&p, CRUMB_TYPE_TQ2_0, M, K, &err), CRUMB_OK);
        static float before[M][K], after[K];
        for (uint64_t row = 0; row < M; row++) crumb_matrix_row_to_f32(&p.matrix, row, before[row]);
        crumb_matrix_merge_scales(&p.matrix);
        assert_int_equal(p.matrix.group, with_exception ? 256 : K);
        for (uint64_t row = 0; row < M; row++) {
            crumb_matrix_row_to_f32(&p.matrix, row, after);
            assert_memory_equal(before[row], after, sizeof after);
        }
        release(&p);
    }
}

static void plane_order_matches_the_tiles(void **state) {
    (void)state;
    static const struct {
        unsigned bits, base;
    } widths[] = {{1, 1}, {2, 2}, {3, 2}, {4, 4}, {5, 4}, {6, 4}, {8, 8}};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        unsigned bits = widths[i].base, n_planes = 8 / bits;
        uint8_t order[32];
        bool seen[32] = {0};
        crumb_tile_plane_order(widths[i].bits, order);
        for (unsigned at = 0; at < 32; at++) {
            unsigned d = at / (4 * n_planes), plane = at / 4 % n_planes, j = at % 4;
            assert_int_equal(order[at], crumb_tile_k_of(32 / bits * d + n_planes * j + plane));
            assert_false(seen[order[at]]);
            seen[order[at]] = true;
        }
    }
    uint8_t two[32]; /* by hand: plane 0 of dword 0 meets the first code of each byte, L = 0, 4, 8, 12 */
    crumb_tile_plane_order(2, two);
    assert_int_equal(two[0], 0);
    assert_int_equal(two[1], 2);
    assert_int_equal(two[2], 4);
    assert_int_equal(two[4], 16);
}

static void expect_refusal(crumb_type type, uint64_t k, size_t at, const void *bytes, size_t n, const char *message) {
    packed p = {.tensor = crumb_test_random_tensor(type, 20, k, 7)};
    crumb_error err = {0};
    memcpy(p.tensor + at, bytes, n);
    assert_int_equal(pack(&p, type, 20, k, &err), CRUMB_ERR_FORMAT);
    if (!strstr(err.message, message)) fail_msg("'%s' does not contain '%s'", err.message, message);
    release(&p);
}

/* Scale and min of all groups become those of the first of each `run`; the mins zero where they are to be forgotten. */
static void repeat_scales(packed *p, uint64_t run, bool mins) {
    const crumb_type_info *info = crumb_type_get_info(p->matrix.type);
    const uint64_t row_bytes = crumb_type_row_bytes(p->matrix.type, p->matrix.k), n = info->block / info->group;
    for (uint64_t row = 0; row < p->matrix.m; row++)
        for (uint64_t g = 0; g < p->matrix.k / info->group; g++) {
            const uint64_t first = g / run * run;
            uint8_t *to = p->tensor + row * row_bytes + g / n * info->block_bytes + g % n * 4;
            const uint8_t *from = p->tensor + row * row_bytes + first / n * info->block_bytes + first % n * 4;
            if (from != to) memcpy(to, from, 4);
            if (!mins)
                memset(to + info->min_offset, 0, 4);
            else if (from != to)
                memcpy(to + info->min_offset, from + info->min_offset, 4);
        }
}

/* As rows_equal, but a zero is a zero: a min of zero that is no longer added leaves its sign. */
static void values_equal(const packed *p, crumb_type type) {
    float want[256], got[256];
    assert_true(p->matrix.k <= 256);
    for (uint64_t row = 0; row < p->matrix.m; row++) {
        crumb_type_row_to_f32(type, p->tensor + row * crumb_type_row_bytes(type, p->matrix.k), p->matrix.k, 0, want);
        crumb_matrix_row_to_f32(&p->matrix, row, got);
        for (uint32_t k = 0; k < p->matrix.k; k++) assert_true(got[k] == want[k]);
    }
}

static void repeated_scales_are_kept_once(void **state) {
    (void)state;
    static const struct {
        crumb_type type;
        uint64_t n_blocks, run; /* run: groups */
        bool mins;
        uint32_t group;
    } cases[] = {{CRUMB_TYPE_INT4, 8, 4, true, 128},    {CRUMB_TYPE_INT4, 8, 8, false, 128},
                 {CRUMB_TYPE_INT2, 6, 2, true, 64},     {CRUMB_TYPE_INT3, 6, 6, false, 64}, /* 6 is no multiple of 4 */
                 {CRUMB_TYPE_INT8, 5, 1, false, 32},    {CRUMB_TYPE_INT2_G16, 8, 1, true, 16},
                 {CRUMB_TYPE_INT4_G16, 3, 2, true, 32}, {CRUMB_TYPE_INT3_G16, 8, 8, false, 128},
                 {CRUMB_TYPE_INT8_G16, 6, 3, true, 16}}; /* as groups of 48 */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum { M = 35 };
        const crumb_type type = cases[i].type;
        packed p = pack_random(type, M, cases[i].n_blocks * 32);
        crumb_error err = {0};
        repeat_scales(&p, cases[i].run, cases[i].mins);
        free(p.base);
        assert_int_equal(pack(&p, type, M, p.matrix.k, &err), CRUMB_OK);
        crumb_matrix_widen_groups(&p.matrix);
        assert_int_equal(p.matrix.group, cases[i].group);
        assert_true((p.matrix.mins != NULL) == cases[i].mins);
        values_equal(&p, type);
        release(&p);
    }
}

/* In random tensors all are f16; one of the mins, or of the scales, is not then. */
static void scales_are_narrowed_where_all_are_f16(void **state) {
    (void)state;
    for (int type = CRUMB_TYPE_INT2; type < CRUMB_TYPE_COUNT; type++)
        for (int other = 0; other < 3; other++) {
            enum { M = 35, K = 224 };
            const crumb_type_info *info = crumb_type_get_info((crumb_type)type);
            const float third = 1.0f / 3;
            packed p = pack_random((crumb_type)type, M, K);
            crumb_error err = {0};
            if (other) {
                uint8_t *block = p.tensor + 34 * crumb_type_row_bytes((crumb_type)type, K) + 3 * info->block_bytes;
                memcpy(block + (other == 1 ? info->scale_offset : info->min_offset), &third, 4);
                free(p.base);
                assert_int_equal(pack(&p, (crumb_type)type, M, K, &err), CRUMB_OK);
            }
            crumb_matrix_widen_groups(&p.matrix);
            crumb_matrix_narrow_scales(&p.matrix);
            assert_true(p.matrix.scales_f32 == (other != 0));
            rows_equal(&p, (crumb_type)type);
            release(&p);
            p = pack_random((crumb_type)type, M, K); /* without mins */
            repeat_scales(&p, 1, false);
            free(p.base);
            assert_int_equal(pack(&p, (crumb_type)type, M, K, &err), CRUMB_OK);
            crumb_matrix_widen_groups(&p.matrix);
            crumb_matrix_narrow_scales(&p.matrix);
            assert_true(!p.matrix.mins && !p.matrix.scales_f32);
            values_equal(&p, (crumb_type)type);
            release(&p);
        }
}

static void damaged_scales_and_codes_are_refused(void **state) {
    (void)state;
    static const uint16_t f16_bad[] = {0x7c00, 0xfc00, 0x7e01, 0xffff}, bf16_bad[] = {0x7f80, 0xff80, 0x7fc1, 0xffff};
    for (int i = 0; i < 4; i++) {
        for (int type = CRUMB_TYPE_Q4_0; type < CRUMB_TYPE_COUNT; type++) {
            const crumb_type_info *info = crumb_type_get_info((crumb_type)type);
            uint64_t k = 3 * info->block, at = 17 * crumb_type_row_bytes((crumb_type)type, k) + 2 * info->block_bytes;
            if (info->scale_kind != CRUMB_SCALE_F16 && info->scale_kind != CRUMB_SCALE_LEVELS) continue;
            expect_refusal((crumb_type)type, k, at + info->scale_offset, &f16_bad[i], 2, "row 17, block 2");
            if (info->has_min)
                expect_refusal((crumb_type)type, k, at + info->min_offset, &f16_bad[i], 2, "row 17, block 2");
        }
        for (uint64_t column = 0; column < 5; column++) { /* in whole words and in the tail */
            uint32_t f32_bad = (uint32_t)bf16_bad[i] << 16;
            expect_refusal(CRUMB_TYPE_F16, 5, (19 * 5 + column) * 2, &f16_bad[i], 2, "row 19");
            expect_refusal(CRUMB_TYPE_BF16, 5, (19 * 5 + column) * 2, &bf16_bad[i], 2, "row 19");
            expect_refusal(CRUMB_TYPE_F32, 5, (19 * 5 + column) * 4, &f32_bad, 4, "row 19");
        }
    }
    for (int type = CRUMB_TYPE_INT2; type < CRUMB_TYPE_COUNT; type++) {
        const crumb_type_info *info = crumb_type_get_info((crumb_type)type);
        const uint64_t k = 3 * info->block,
                       block = 17 * crumb_type_row_bytes((crumb_type)type, k) + 2 * info->block_bytes;
        for (uint64_t at = 0; at < info->codes_offset; at += 4) { /* each scale, and each min */
            const float bad[] = {NAN, INFINITY};
            for (int i = 0; i < 2; i++) expect_refusal((crumb_type)type, k, block + at, &bad[i], 4, "row 17, block 2");
        }
    }
    static const uint8_t exponents[] = {253, 254, 255}; /* 12 * 2^(252 - 128) is the last weight that is finite */
    for (int i = 0; i < 3; i++) expect_refusal(CRUMB_TYPE_MXFP4, 64, 17 * 34 + 17, &exponents[i], 1, "row 17, block 1");
    float nan = NAN;
    uint8_t code3 = 0x0c;
    expect_refusal(CRUMB_TYPE_I2_S, 256, 20 * 64, &nan, 4, "the tensor's scale");
    expect_refusal(CRUMB_TYPE_I2_S, 256, 16 * 64 + 40, &code3, 1, "row 16, block 1");
}

static void largest_finite_values_are_kept(void **state) {
    (void)state;
    packed p = {.tensor = crumb_test_random_tensor(CRUMB_TYPE_F16, 1, 4, 1)};
    static const uint16_t largest[4] = {0x7bff, 0xfbff, 0x0001, 0x8000};
    crumb_error err = {0};
    memcpy(p.tensor, largest, sizeof largest);
    assert_int_equal(pack(&p, CRUMB_TYPE_F16, 1, 4, &err), CRUMB_OK);
    assert_memory_equal(p.matrix.codes, largest, sizeof largest);
    release(&p);
}

static void impossible_shapes_are_refused(void **state) {
    (void)state;
    crumb_matrix matrix;
    crumb_matrix_layout layout;
    crumb_error err = {0};
    assert_int_equal(crumb_matrix_plan(CRUMB_TYPE_Q4_0, 4, 33, &matrix, &layout, &err), CRUMB_ERR_FORMAT);
    assert_non_null(strstr(err.message, "Q4_0 blocks of 32"));
    assert_int_equal(crumb_matrix_plan(CRUMB_TYPE_Q4_0, 0, 32, &matrix, &layout, &err), CRUMB_ERR_FORMAT);
    assert_int_equal(crumb_matrix_plan(CRUMB_TYPE_F32, UINT64_C(1) << 40, UINT64_C(1) << 40, &matrix, &layout, &err),
                     CRUMB_ERR_FORMAT);
    assert_int_equal(crumb_matrix_plan(CRUMB_TYPE_F32, UINT64_C(1) << 33, 1, &matrix, &layout, &err),
                     CRUMB_ERR_UNSUPPORTED);
}

/* Row 1 of a 17 x 32 matrix: 4-bit codes are indices of a codebook's entries. */
static void rows_of_codebooks_are_entries(void **state) {
    (void)state;
    static uint32_t codes[2][4][16];
    float scales[32] = {0}, row[32];
    for (unsigned k = 0; k < 32; k++) {
        unsigned linear = crumb_tile_linear_of(k);
        codes[0][linear / 8][1] |= (k % 16) << (4 * (linear % 8));
    }
    scales[1] = 0.25f;
    crumb_matrix w = {.bits = 4,
                      .max_code = 15,
                      .scales_f32 = true,
                      .mul = 1,
                      .codebook = crumb_codebook_e2m1,
                      .m = 17,
                      .k = 32,
                      .group = 32,
                      .codes = codes,
                      .scales = scales};
    crumb_matrix_row_to_f32(&w, 1, row);
    for (int k = 0; k < 32; k++) {
        int magnitude = k % 8 < 2 ? k % 8 : (2 + k % 2) << (k % 8 / 2 - 1); /* doubled: subnormal, or 1.m * 2^(e-1) */
        assert_true(row[k] == (k % 16 < 8 ? 0.25f : -0.25f) * (float)magnitude);
    }
    crumb_codebook_range range = crumb_codebook_get_range(crumb_codebook_e2m1);
    assert_true(range.low == -12 && range.high == 12);
}

/* Where single codes of split widths stand, worked out by hand from the definition. */
static void split_codes_stand_where_the_layout_says(void **state) {
    (void)state;
    static const struct {
        unsigned bits, linear, code, base_dword, extra_dword;
        uint32_t base, extra;
    } cases[] = {{3, 0, 7, 0, 2, 3, 1},
                 {3, 1, 5, 0, 2, 1u << 2, 1u << 2},
                 {3, 16, 4, 1, 2, 0, 1u << 1}, /* the extra bits of dword 1 lie between those of dword 0 */
                 {3, 31, 6, 1, 2, 2u << 30, 1u << 31},
                 {5, 0, 31, 0, 4, 15, 1},
                 {5, 9, 17, 1, 4, 1u << 4, 1u << 5},
                 {5, 31, 24, 3, 4, 8u << 28, 1u << 31},
                 {6, 0, 63, 0, 4, 15, 3},
                 {6, 8, 33, 1, 4, 1, 2u << 2},
                 {6, 16, 48, 2, 5, 0, 3},
                 {6, 31, 29, 3, 5, 13u << 28, 1u << 30}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t tile[6 * 16] = {0};
        const unsigned lane = 11;
        tile[cases[i].base_dword * 16 + lane] = cases[i].base;
        tile[cases[i].extra_dword * 16 + lane] = cases[i].extra;
        for (unsigned linear = 0; linear < 32; linear++)
            assert_int_equal(crumb_tile_code(tile, cases[i].bits, lane, linear),
                             linear == cases[i].linear ? cases[i].code : 0);
        uint32_t written[6 * 16] = {0};
        crumb_tile_set_code(written, cases[i].bits, lane, cases[i].linear, cases[i].code);
        assert_memory_equal(written, tile, sizeof tile);
    }
}

/* Row 18 of a matrix of two tile-rows and two 32-blocks: no code disturbs another. */
static void rows_of_split_codes_decode(void **state) {
    (void)state;
    for (unsigned bits = 3; bits <= 6; bits++) {
        uint32_t tiles[4 * 6 * 16] = {0};
        float scales[2][2][16] = {0}, mins[2][2][16] = {0}, row[64];
        for (unsigned k = 0; k < 64; k++) {
            uint32_t *tile = tiles + (size_t)(2 + k / 32) * bits * 16;
            for (unsigned lane = 0; lane < 16; lane++)
                crumb_tile_set_code(tile, bits, lane, crumb_tile_linear_of(k % 32),
                                    lane == 2 ? k * 5 % (1u << bits) : (1u << bits) - 1);
        }
        scales[1][0][2] = 0.5f;
        scales[1][1][2] = 2;
        mins[1][1][2] = -3;
        crumb_matrix w = {.bits = (uint8_t)bits,
                          .max_code = (uint8_t)((1u << bits) - 1),
                          .scales_f32 = true,
                          .mul = 1,
                          .sub = 4,
                          .m = 32,
                          .k = 64,
                          .group = 32,
                          .codes = tiles,
                          .scales = scales,
                          .mins = mins};
        crumb_matrix_row_to_f32(&w, 18, row);
        for (unsigned k = 0; k < 64; k++) {
            float code = (float)(k * 5 % (1u << bits));
            assert_true(row[k] == (k < 32 ? 0.5f * (code - 4) : 2 * (code - 4) - 3));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_keeps_every_weight),
        cmocka_unit_test(codes_stand_where_the_layout_says),
        cmocka_unit_test(two_levels_stay_two),
        cmocka_unit_test(padding_rows_have_zero_scales),
        cmocka_unit_test(ranges_of_tile_rows_add_up),
        cmocka_unit_test(plane_order_matches_the_tiles),
        cmocka_unit_test(repeated_scales_are_kept_once),
        cmocka_unit_test(scales_are_narrowed_where_all_are_f16),
        cmocka_unit_test(damaged_scales_and_codes_are_refused),
        cmocka_unit_test(equal_scales_of_rows_are_merged),
        cmocka_unit_test(largest_finite_values_are_kept),
        cmocka_unit_test(rows_of_codebooks_are_entries),
        cmocka_unit_test(impossible_shapes_are_refused),
        cmocka_unit_test(split_codes_stand_where_the_layout_says),
        cmocka_unit_test(rows_of_split_codes_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
