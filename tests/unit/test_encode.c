/* host/lowbit/encode.h against the `gguf` package's quantizers (tests/oracle/make_quantized.py), and, for the types
 * that it has none for, against what their codes can hold. */
#include "host/base/half.h"
#include "host/container/safetensors.h"
#include "host/lowbit/encode.h"
#include "tests/support/random_tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_safetensors *files;
static const crumb_safetensor *weights; /* [rows][k] */

static int open_files(void **state) {
    (void)state;
    if (crumb_safetensors_open("tests/oracle/quantized.safetensors", &files, NULL) != CRUMB_OK) return -1;
    weights = crumb_safetensors_find(files, "weights");
    return weights ? 0 : -1;
}

static int close_files(void **state) {
    (void)state;
    crumb_safetensors_close(files);
    return 0;
}

/* Row m of the weights; freed by the caller. */
static float *load_row(uint64_t m) {
    const uint64_t n_bytes = weights->dims[1] * sizeof(float);
    float *row = malloc(n_bytes);
    assert_non_null(row);
    memcpy(row, crumb_safetensors_data(files, weights) + m * n_bytes, n_bytes);
    return row;
}

/* Every row by a method, against the bytes of the tensor `name`. */
static void compare_rows(crumb_type type, crumb_encode_method method, float tensor_scale, const char *name) {
    const crumb_type_info *info = crumb_type_get_info(type);
    const crumb_safetensor *expected = crumb_safetensors_find(files, name);
    const uint64_t k = weights->dims[1], row_bytes = crumb_type_row_bytes(type, k);
    uint8_t got[4096];
    assert_true(expected && expected->dims[1] == row_bytes && row_bytes <= sizeof got);
    for (uint64_t m = 0; m < weights->dims[0]; m++) {
        float *row = load_row(m);
        const uint8_t *want = crumb_safetensors_data(files, expected) + m * row_bytes;
        crumb_type_encode_row(type, method, row, k, tensor_scale, got);
        for (uint64_t b = 0; b < row_bytes; b++)
            if (got[b] != want[b])
                fail_msg("%s: byte %u of block %u in row %u is %02x, not %02x", name, (unsigned)(b % info->block_bytes),
                         (unsigned)(b / info->block_bytes), (unsigned)m, got[b], want[b]);
        free(row);
    }
}

static void encoders_write_what_the_gguf_package_writes(void **state) {
    (void)state;
    static const crumb_type types[] = {CRUMB_TYPE_Q8_0,  CRUMB_TYPE_Q4_0,  CRUMB_TYPE_Q4_1, CRUMB_TYPE_TQ1_0,
                                       CRUMB_TYPE_TQ2_0, CRUMB_TYPE_MXFP4, CRUMB_TYPE_BF16, CRUMB_TYPE_F16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        compare_rows(types[i], CRUMB_ENCODE_RTN, 0, crumb_type_get_info(types[i])->name);
}

static void methods_write_what_numpy_makes_of_their_definitions(void **state) {
    (void)state;
    crumb_ternary_sums sums = {0};
    for (uint64_t m = 0; m < weights->dims[0]; m++) {
        float *row = load_row(m);
        crumb_ternary_sums_add(&sums, row, weights->dims[1]);
        free(row);
    }
    compare_rows(CRUMB_TYPE_Q4_0, CRUMB_ENCODE_SEQ, 0, "seq.Q4_0");
    compare_rows(CRUMB_TYPE_Q2_K, CRUMB_ENCODE_SEQ, 0, "seq.Q2_K");
    compare_rows(CRUMB_TYPE_TQ1_0, CRUMB_ENCODE_ABSMEAN, crumb_ternary_scale(&sums), "absmean.TQ1_0");
    compare_rows(CRUMB_TYPE_TQ2_0, CRUMB_ENCODE_ABSMEAN, crumb_ternary_scale(&sums), "absmean.TQ2_0");
}

/* Squared error of a row in a type, and of the row itself. */
static double error_by(crumb_encode_method method, crumb_type type, const float *row, uint64_t k, float scale,
                       double *power) {
    uint8_t bytes[4096];
    float back[1024];
    double error = 0;
    *power = 0;
    assert_true(k <= 1024 && crumb_type_row_bytes(type, k) <= sizeof bytes);
    crumb_type_encode_row(type, method, row, k, scale, bytes);
    crumb_type_row_to_f32(type, bytes, k, scale, back);
    for (uint64_t i = 0; i < k; i++) {
        error += ((double)back[i] - (double)row[i]) * ((double)back[i] - (double)row[i]);
        *power += (double)row[i] * (double)row[i];
    }
    return error;
}

static double error_of(crumb_type type, const float *row, uint64_t k, float scale, double *power) {
    return error_by(CRUMB_ENCODE_RTN, type, row, k, scale, power);
}

/* Four levels in steps of one size leave 0.119 of a normal distribution's power where the step fits; groups do better.
 */
static void stretched_levels_lose_what_they_must(void **state) {
    (void)state;
    double fine = 0, wide = 0, all = 0;
    for (uint64_t m = 0; m < 24; m++) {
        double power;
        float *row = load_row(m);
        fine += error_by(CRUMB_ENCODE_SEQ, CRUMB_TYPE_Q4_0, row, weights->dims[1], 0, &power);
        wide += error_by(CRUMB_ENCODE_SEQ, CRUMB_TYPE_Q2_K, row, weights->dims[1], 0, &power);
        all += power;
        free(row);
    }
    assert_true(fine / all > 0.08 && fine / all < 0.119);
    assert_true(wide / all > 0.08 && wide / all < 0.119);
}

/* What a normal distribution loses to one bit: signs with the mean magnitude leave 1 - 2/pi of its power (0.363). */
static void one_bit_loses_what_it_must(void **state) {
    (void)state;
    for (uint64_t m = 0; m < 24; m++) {
        double power;
        float *row = load_row(m);
        const uint64_t k = weights->dims[1];
        const double one_bit = error_of(CRUMB_TYPE_Q1_0, row, k, 0, &power) / power;
        assert_true(one_bit > 0.25 && one_bit < 0.45);
        free(row);
    }
}

/* Weights that are a type's values come back as they were. */
static void values_of_a_type_come_back(void **state) {
    (void)state;
    enum { K = 256 };
    double power;
    float row[K];
    for (int i = 0; i < K; i++) row[i] = (float)(i * 7 % 3 - 1) * 0.375f;
    assert_true(error_of(CRUMB_TYPE_Q2_0_G64, row, K, 0, &power) == 0);
    for (int i = 0; i < K; i++) row[i] = i * 5 % 3 ? 0.25f : -0.25f;
    assert_true(error_of(CRUMB_TYPE_Q1_0, row, K, 0, &power) == 0);
    for (int i = 0; i < K; i++) row[i] = (float)(i * 5 % 3 - 1) * 0.3f;
    assert_true(error_of(CRUMB_TYPE_I2_S, row, K, 0.3f, &power) == 0);
    for (int i = 0; i < K; i++) row[i] = (float)(2 * (i * 7 % 4) - 3) * 0.0173797607421875f; /* an f16 */
    assert_true(error_by(CRUMB_ENCODE_SEQ, CRUMB_TYPE_Q2_K, row, K, 0, &power) == 0);
    assert_true(error_by(CRUMB_ENCODE_SEQ, CRUMB_TYPE_Q4_0, row, K, 0, &power) == 0);
    for (int i = 0; i < K; i++) row[i] = (i / 40 % 2 ? 3 : 1) * (i % 3 ? 0.5f : -0.5f); /* groups of one level */
    assert_true(error_by(CRUMB_ENCODE_SEQ, CRUMB_TYPE_Q2_K, row, K, 0, &power) == 0);
    for (int i = 0; i < K; i++) row[i] = (float)(i * 5 % 3 - 1) * 0.375f;
    assert_true(error_by(CRUMB_ENCODE_ABSMEAN, CRUMB_TYPE_TQ1_0, row, K, 0.375f, &power) == 0);
    assert_true(error_by(CRUMB_ENCODE_ABSMEAN, CRUMB_TYPE_TQ2_0, row, K, 0.375f, &power) == 0);
    memset(row, 0, sizeof row);
    for (int t = 0; t < CRUMB_TYPE_GGUF_COUNT; t++)
        if (crumb_type_can_encode((crumb_type)t, CRUMB_ENCODE_RTN))
            assert_true(error_of((crumb_type)t, row, K, 0, &power) == 0);
}

static float ternary_scale(const float *row, uint64_t k, uint64_t pieces) {
    crumb_ternary_sums all = {0};
    for (uint64_t i = 0; i < pieces; i++) {
        crumb_ternary_sums part = {0};
        crumb_ternary_sums_add(&part, row + i * k / pieces, (i + 1) * k / pieces - i * k / pieces);
        crumb_ternary_sums_join(&all, &part);
    }
    return crumb_ternary_scale(&all);
}

static void ternary_weights_keep_their_scale_and_others_get_the_mean(void **state) {
    (void)state;
    const float trained[] = {0, 0.3f, -0.3f, 0, 0, 0.3f, 0, -0.3f}, others[] = {1, -2, 3, 0, 0, 0, -1, 1};
    const float zeros[4] = {0}, one_more[] = {0.3f, 0.3f, 0.3f, 0.2f};
    for (uint64_t pieces = 1; pieces <= 4; pieces++) {
        assert_true(ternary_scale(trained, 8, pieces) == 0.3f);
        assert_true(ternary_scale(others, 8, pieces) == 1.0f);
        assert_true(ternary_scale(zeros, 4, pieces) == 0);
        assert_true(fabsf(ternary_scale(one_more, 4, pieces) - 0.275f) < 1e-6f);
    }
}

/* A block of 32 codes of `bits` bits, scale and min, as host/checkpoint makes it. */
static void make_block(unsigned bits, float scale, float min, const uint8_t codes[32], uint8_t out[40]) {
    memset(out, 0, 40);
    memcpy(out, &scale, 4);
    memcpy(out + 4, &min, 4);
    for (unsigned i = 0; i < 32 * bits; i++) out[8 + i / 8] |= (uint8_t)((codes[i / bits] >> i % bits & 1) << i % 8);
}

static void blocks_are_recoded_where_f16_holds_their_scale(void **state) {
    (void)state;
    static const struct {
        crumb_type from;
        unsigned bits;
        float scale;
        int zero, most; /* of the codes */
        crumb_type to;
        bool keeps;
    } cases[] = {{CRUMB_TYPE_INT4, 4, 0.25f, 8, 15, CRUMB_TYPE_Q4_0, true},
                 {CRUMB_TYPE_INT4, 4, 0.25f, 7, 15, CRUMB_TYPE_Q4_0, false}, /* 8 is none of Q4_0's values */
                 {CRUMB_TYPE_INT4, 4, 0.25f, 7, 14, CRUMB_TYPE_Q4_0, true},
                 {CRUMB_TYPE_INT4, 4, 0.25f, 1, 15, CRUMB_TYPE_Q8_0, true},
                 {CRUMB_TYPE_INT4, 4, 0.1f, 8, 15, CRUMB_TYPE_Q4_0, true}, /* not an f16, but near one */
                 {CRUMB_TYPE_INT4, 4, 0.1f, 3, 10, CRUMB_TYPE_Q4_0, true},
                 {CRUMB_TYPE_INT4, 4, 1.1e-6f, 8, 15, CRUMB_TYPE_Q4_0, false}, /* no f16 is near */
                 {CRUMB_TYPE_INT4, 4, 70000.0f, 8, 15, CRUMB_TYPE_Q4_0, false},
                 {CRUMB_TYPE_INT2, 2, -3.5f, 1, 3, CRUMB_TYPE_Q4_0, true},
                 {CRUMB_TYPE_INT3, 3, 0.75f, 0, 7, CRUMB_TYPE_Q4_0, true},
                 {CRUMB_TYPE_INT8, 8, 0.5f, 128, 255, CRUMB_TYPE_Q8_0, true},
                 {CRUMB_TYPE_INT8, 8, 0.5f, 127, 255, CRUMB_TYPE_Q8_0, false},
                 {CRUMB_TYPE_INT8, 8, 0.5f, 128, 255, CRUMB_TYPE_Q4_0, false},
                 {CRUMB_TYPE_INT4, 4, 0.25f, 8, 15, CRUMB_TYPE_Q4_1, false},
                 {CRUMB_TYPE_INT4_G16, 4, 0.25f, 8, 15, CRUMB_TYPE_Q4_0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t codes[32], block[40], out[64];
        float want[32], got[32];
        for (int k = 0; k < 32; k++) codes[k] = (uint8_t)(k * 37 % (cases[i].most + 1));
        codes[3] = (uint8_t)cases[i].most;
        codes[4] = 0;
        const int middle = 1 << (cases[i].bits - 1);
        make_block(cases[i].bits, cases[i].scale, cases[i].scale * (float)(middle - cases[i].zero), codes, block);
        if (crumb_type_recode_block(cases[i].from, block, cases[i].to, out) != cases[i].keeps) fail_msg("case %zu", i);
        assert_true(crumb_type_keeps_codes(cases[i].from, block, cases[i].to, CRUMB_ENCODE_RTN) == cases[i].keeps);
        if (!cases[i].keeps) continue;
        crumb_type_row_to_f32(cases[i].from, block, 32, 0, want);
        crumb_type_row_to_f32(cases[i].to, out, 32, 0, got);
        const float rounded = crumb_f16_to_f32(crumb_f32_to_f16(cases[i].scale));
        for (int k = 0; k < 32; k++) assert_true(got[k] == rounded * (float)(codes[k] - cases[i].zero));
        for (int k = 0; k < 32 && rounded == cases[i].scale; k++) assert_true(got[k] == want[k]);
    }
}

/* Weights on few levels of one f32 unit, as blocks of INT2, written in what keeps their codes: all move by the same
 * factor, and by no more than a weight that becomes f16 may. */
static void levels_with_f32_units_lose_no_more_than_f16_does(void **state) {
    (void)state;
    static const struct {
        crumb_type to;
        crumb_encode_method method;
        int values[4]; /* of codes, as multiples of the unit */
    } cases[] = {{CRUMB_TYPE_Q1_0, CRUMB_ENCODE_RTN, {-1, -1, 1, 1}},
                 {CRUMB_TYPE_TQ2_0, CRUMB_ENCODE_RTN, {-1, 0, 0, 1}},
                 {CRUMB_TYPE_Q4_0, CRUMB_ENCODE_SEQ, {-3, -1, 1, 3}},
                 {CRUMB_TYPE_Q2_K, CRUMB_ENCODE_SEQ, {-3, -1, 1, 3}}};
    uint64_t seed = 11;
    for (size_t i = 0; i < 4000; i++) {
        const int *values = cases[i % 4].values;
        const bool stretched = values[0] == -3;
        const uint32_t n = crumb_type_get_info(cases[i % 4].to)->block;
        const float unit = 1e-4f + (float)(crumb_test_random(&seed) % 1000000) * 1e-7f;
        uint8_t blocks[8 * 16], out[256];
        float row[256], got[256];
        for (uint32_t b = 0; b < n / 32; b++) {
            uint8_t codes[32], block[40];
            for (int k = 0; k < 32; k++) {
                const int value = values[crumb_test_random(&seed) % 4];
                codes[k] = (uint8_t)(stretched ? (value + 3) / 2 : value + 2);
            }
            make_block(2, stretched ? 2 * unit : unit, stretched ? unit : 0, codes, block);
            memcpy(blocks + (size_t)16 * b, block, 16);
        }
        assert_true(crumb_type_keeps_codes(CRUMB_TYPE_INT2, blocks, cases[i % 4].to, cases[i % 4].method));
        crumb_type_row_to_f32(CRUMB_TYPE_INT2, blocks, n, 0, row);
        crumb_type_encode_row(cases[i % 4].to, cases[i % 4].method, row, n, 0, out);
        crumb_type_row_to_f32(cases[i % 4].to, out, n, 0, got);
        const float most = 0x1p-11f * 1.01f, moved = fabsf(got[0] / row[0] - 1);
        for (uint32_t k = 0; k < n; k++)
            if (!(fabsf(got[k] - row[k]) <= most * fabsf(row[k])))
                fail_msg("%s: %a becomes %a (unit %a)", crumb_type_get_info(cases[i % 4].to)->name, (double)row[k],
                         (double)got[k], (double)unit);
        assert_true(row[0] == 0 || moved <= most);
    }
    uint8_t blocks[8 * 16] = {0}, codes[32]; /* what has not one scale, or another code, is not such */
    memset(codes, 3, sizeof codes);
    for (uint32_t b = 0; b < 8; b++) {
        uint8_t block[40];
        make_block(2, b == 7 ? 0.25f : 0.5f, 0, codes, block);
        memcpy(blocks + (size_t)16 * b, block, 16);
    }
    assert_true(crumb_type_keeps_codes(CRUMB_TYPE_INT2, blocks, CRUMB_TYPE_Q1_0, CRUMB_ENCODE_RTN));
    assert_false(crumb_type_keeps_codes(CRUMB_TYPE_INT2, blocks, CRUMB_TYPE_TQ2_0, CRUMB_ENCODE_RTN));
    assert_false(crumb_type_keeps_codes(CRUMB_TYPE_INT2, blocks, CRUMB_TYPE_Q2_K, CRUMB_ENCODE_SEQ));
    codes[31] = 2;
    make_block(2, 0.5f, 0, codes, blocks);
    assert_false(crumb_type_keeps_codes(CRUMB_TYPE_INT2, blocks, CRUMB_TYPE_Q1_0, CRUMB_ENCODE_RTN));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoders_write_what_the_gguf_package_writes),
        cmocka_unit_test(methods_write_what_numpy_makes_of_their_definitions),
        cmocka_unit_test(stretched_levels_lose_what_they_must),
        cmocka_unit_test(one_bit_loses_what_it_must),
        cmocka_unit_test(values_of_a_type_come_back),
        cmocka_unit_test(blocks_are_recoded_where_f16_holds_their_scale),
        cmocka_unit_test(levels_with_f32_units_lose_no_more_than_f16_does),
        cmocka_unit_test(ternary_weights_keep_their_scale_and_others_get_the_mean),
    };
    return cmocka_run_group_tests(tests, open_files, close_files);
}
