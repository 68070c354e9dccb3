/* host/lowbit/types.h: every type decodes to exactly what the `gguf` package (or, where it lacks the type, a numpy
 * transcription of the layout) makes of the same bytes. tests/oracle/make_types.py writes the files. */
#include "host/container/gguf.h"
#include "host/lowbit/tile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const files[CRUMB_TYPE_GGUF_COUNT] = {
    [CRUMB_TYPE_F32] = "f32",       [CRUMB_TYPE_F16] = "f16",       [CRUMB_TYPE_BF16] = "bf16",
    [CRUMB_TYPE_Q4_0] = "q4_0",     [CRUMB_TYPE_Q4_1] = "q4_1",     [CRUMB_TYPE_Q8_0] = "q8_0",
    [CRUMB_TYPE_TQ1_0] = "tq1_0",   [CRUMB_TYPE_TQ2_0] = "tq2_0",   [CRUMB_TYPE_I2_S] = "i2_s",
    [CRUMB_TYPE_Q1_0] = "q1_0",     [CRUMB_TYPE_Q2_0_G64] = "q2_0", [CRUMB_TYPE_Q2_0_G128] = "q2_0_g128",
    [CRUMB_TYPE_PTQ1_0] = "ptq1_0", [CRUMB_TYPE_Q5_0] = "q5_0",     [CRUMB_TYPE_Q5_1] = "q5_1",
    [CRUMB_TYPE_Q2_K] = "q2_k",     [CRUMB_TYPE_Q3_K] = "q3_k",     [CRUMB_TYPE_Q4_K] = "q4_k",
    [CRUMB_TYPE_Q5_K] = "q5_k",     [CRUMB_TYPE_Q6_K] = "q6_k",     [CRUMB_TYPE_MXFP4] = "mxfp4",
    [CRUMB_TYPE_IQ4_NL] = "iq4_nl",
};

typedef struct fixture {
    crumb_gguf *g;
    const crumb_gguf_tensor *tensor; /* NULL: the file has none of this name */
    const uint8_t *data;
    const uint8_t *expected; /* floats, [m][k] */
    uint64_t m, k, row_bytes;
    float tensor_scale;
} fixture;

static fixture open_fixture(crumb_type type, const char *name) {
    fixture f = {0};
    char path[200], expected[64];
    crumb_error err = {0};
    snprintf(path, sizeof path, "tests/oracle/types/%s.gguf", files[type]);
    snprintf(expected, sizeof expected, "%s.expected", name);
    if (crumb_gguf_open(path, &f.g, &err) != CRUMB_OK) fail_msg("%s", err.message);
    f.tensor = crumb_gguf_find_tensor(f.g, name);
    if (!f.tensor) return f;
    assert_true(f.tensor->supported);
    assert_int_equal(f.tensor->type, type);
    f.data = crumb_gguf_tensor_data(f.g, f.tensor);
    f.expected = crumb_gguf_tensor_data(f.g, crumb_gguf_find_tensor(f.g, expected));
    f.m = f.tensor->dims[1];
    f.k = f.tensor->dims[0];
    f.row_bytes = crumb_type_row_bytes(type, f.k);
    if (type == CRUMB_TYPE_I2_S) f.tensor_scale = crumb_type_i2_s_scale(f.data, f.m, f.k);
    return f;
}

static void same_floats(const fixture *f, uint64_t row, const float *got) {
    for (uint64_t i = 0; i < f->k; i++) {
        uint32_t want_bits, got_bits;
        memcpy(&want_bits, f->expected + (row * f->k + i) * 4, 4);
        memcpy(&got_bits, &got[i], 4);
        if (want_bits != got_bits)
            fail_msg("%s row %d, weight %d: %08x, expected %08x", crumb_gguf_path(f->g), (int)row, (int)i, got_bits,
                     want_bits);
    }
}

/* Both tensors of each file, decoded from the file's bytes and after packing. */
static void every_type_decodes_as_the_oracle(void **state) {
    (void)state;
    int n_compared = 0;
    for (int type = 0; type < CRUMB_TYPE_GGUF_COUNT; type++)
        for (int i = 0; i < 2; i++) {
            fixture f = open_fixture((crumb_type)type, i ? "quantized" : "random");
            if (f.tensor) {
                crumb_matrix matrix;
                crumb_matrix_layout layout;
                crumb_error err = {0};
                float *row = malloc(f.k * 4);
                assert_int_equal(crumb_matrix_plan((crumb_type)type, f.m, f.k, &matrix, &layout, &err), CRUMB_OK);
                uint8_t *base = aligned_alloc(64, layout.total_bytes);
                crumb_matrix_bind(&matrix, &layout, base);
                if (crumb_matrix_pack((crumb_type)type, f.data, &matrix, &layout, base, 0, 1, &err) != CRUMB_OK)
                    fail_msg("%s", err.message);
                for (uint64_t m = 0; m < f.m; m++) {
                    crumb_type_row_to_f32((crumb_type)type, f.data + m * f.row_bytes, f.k, f.tensor_scale, row);
                    same_floats(&f, m, row);
                    crumb_matrix_row_to_f32(&matrix, m, row);
                    same_floats(&f, m, row);
                }
                n_compared++;
                free(row);
                free(base);
            }
            crumb_gguf_close(f.g);
        }
    assert_int_equal(n_compared, 33); /* 22 random, 11 that the package can quantize */
}

/* Codes, scales and mins are the logical form: w = scale * (mul * u - sub) + min, or scale * codebook[u]. */
static void decoded_parts_make_up_the_weights(void **state) {
    (void)state;
    for (int type = CRUMB_TYPE_Q4_0; type < CRUMB_TYPE_GGUF_COUNT; type++) {
        const crumb_type_info *info = crumb_type_get_info((crumb_type)type);
        fixture f = open_fixture((crumb_type)type, "random");
        uint8_t codes[1024];
        float scales[64], mins[64], got[1024];
        uint64_t group = info->group ? info->group : f.k;
        for (uint64_t m = 0; m < f.m; m++) {
            scales[0] = f.tensor_scale;
            crumb_type_decode_row((crumb_type)type, f.data + m * f.row_bytes, f.k, codes, scales,
                                  info->has_min ? mins : NULL);
            for (uint64_t i = 0; i < f.k; i++) {
                assert_true(codes[i] < 1 << info->bits);
                assert_true(codes[i] <= info->max_code);
                const int value = info->codebook ? info->codebook[codes[i]] : info->mul * codes[i] - info->sub;
                got[i] = scales[i / group] * (float)value;
                if (info->has_min) got[i] += mins[i / group];
            }
            same_floats(&f, m, got);
        }
        crumb_gguf_close(f.g);
    }
}

static void sizes_are_checked(void **state) {
    (void)state;
    static const struct {
        crumb_type type;
        uint64_t m, k, want;
    } cases[] = {
        {CRUMB_TYPE_F32, 3, 5, 60},         {CRUMB_TYPE_BF16, 3, 5, 30},         {CRUMB_TYPE_Q4_0, 2, 64, 72},
        {CRUMB_TYPE_Q4_1, 2, 64, 80},       {CRUMB_TYPE_Q8_0, 2, 64, 136},       {CRUMB_TYPE_TQ1_0, 2, 512, 216},
        {CRUMB_TYPE_TQ2_0, 2, 512, 264},    {CRUMB_TYPE_I2_S, 2, 256, 160},      {CRUMB_TYPE_Q1_0, 2, 256, 72},
        {CRUMB_TYPE_Q2_0_G64, 2, 256, 144}, {CRUMB_TYPE_Q2_0_G128, 2, 256, 136}, {CRUMB_TYPE_PTQ1_0, 2, 256, 112},
        {CRUMB_TYPE_Q5_0, 2, 64, 88},       {CRUMB_TYPE_Q5_1, 2, 64, 96},        {CRUMB_TYPE_Q2_K, 2, 512, 336},
        {CRUMB_TYPE_Q3_K, 2, 512, 440},     {CRUMB_TYPE_Q4_K, 2, 512, 576},      {CRUMB_TYPE_Q5_K, 2, 512, 704},
        {CRUMB_TYPE_Q6_K, 2, 512, 840},     {CRUMB_TYPE_MXFP4, 2, 64, 68},       {CRUMB_TYPE_IQ4_NL, 2, 64, 72},
        {CRUMB_TYPE_INT4, 2, 64, 96},       {CRUMB_TYPE_INT2_G16, 2, 64, 96},    {CRUMB_TYPE_INT3_G16, 2, 64, 112},
    };
    uint64_t n_bytes;
    crumb_error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(crumb_type_tensor_bytes(cases[i].type, cases[i].m, cases[i].k, &n_bytes, &err), CRUMB_OK);
        assert_int_equal(n_bytes, cases[i].want);
    }
    for (int type = 0; type < CRUMB_TYPE_COUNT; type++) {
        uint64_t block = crumb_type_get_info((crumb_type)type)->block, huge = (UINT64_MAX - block) / block * block;
        assert_int_equal(crumb_type_tensor_bytes((crumb_type)type, UINT64_MAX, block, &n_bytes, &err),
                         CRUMB_ERR_FORMAT);
        assert_int_equal(crumb_type_tensor_bytes((crumb_type)type, 32, huge, &n_bytes, &err), CRUMB_ERR_FORMAT);
        assert_int_equal(crumb_type_tensor_bytes((crumb_type)type, 1, 0, &n_bytes, &err), CRUMB_ERR_FORMAT);
        if (block > 1)
            assert_int_equal(crumb_type_tensor_bytes((crumb_type)type, 1, block + 1, &n_bytes, &err), CRUMB_ERR_FORMAT);
    }
}

static void gguf_ids_name_types(void **state) {
    (void)state;
    static const struct {
        uint32_t id, bytes_per_256;
        int type; /* -1: refused */
    } cases[] = {{0, 0, CRUMB_TYPE_F32},
                 {1, 0, CRUMB_TYPE_F16},
                 {30, 0, CRUMB_TYPE_BF16},
                 {2, 0, CRUMB_TYPE_Q4_0},
                 {3, 0, CRUMB_TYPE_Q4_1},
                 {8, 0, CRUMB_TYPE_Q8_0},
                 {34, 0, CRUMB_TYPE_TQ1_0},
                 {35, 0, CRUMB_TYPE_TQ2_0},
                 {36, 0, CRUMB_TYPE_I2_S},
                 {41, 0, CRUMB_TYPE_Q1_0},
                 {42, 72, CRUMB_TYPE_Q2_0_G64},
                 {42, 68, CRUMB_TYPE_Q2_0_G128},
                 {142, 0, CRUMB_TYPE_Q2_0_G128},
                 {143, 0, CRUMB_TYPE_PTQ1_0},
                 {6, 0, CRUMB_TYPE_Q5_0},
                 {7, 0, CRUMB_TYPE_Q5_1},
                 {10, 0, CRUMB_TYPE_Q2_K},
                 {11, 0, CRUMB_TYPE_Q3_K},
                 {12, 0, CRUMB_TYPE_Q4_K},
                 {13, 0, CRUMB_TYPE_Q5_K},
                 {14, 0, CRUMB_TYPE_Q6_K},
                 {20, 0, CRUMB_TYPE_IQ4_NL},
                 {39, 136, CRUMB_TYPE_MXFP4},
                 {42, 42, -1},
                 {42, 0, -1},
                 {39, 0, -1},
                 {39, 54, -1},
                 {9, 0, -1},
                 {16, 0, -1},
                 {4, 0, -1},
                 {UINT32_MAX, 0, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        crumb_type type;
        crumb_error err = {0};
        crumb_status status = crumb_type_from_gguf(cases[i].id, cases[i].bytes_per_256, &type, &err);
        assert_int_equal(status, cases[i].type < 0 ? CRUMB_ERR_UNSUPPORTED : CRUMB_OK);
        if (status == CRUMB_OK)
            assert_int_equal(type, cases[i].type);
        else
            assert_non_null(strstr(err.message, "convert the model to"));
    }
    assert_string_equal(crumb_type_gguf_name(12), "Q4_K");
    assert_null(crumb_type_gguf_name(4));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_decodes_as_the_oracle),
        cmocka_unit_test(decoded_parts_make_up_the_weights),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(gguf_ids_name_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
