/* host/checkpoint/levels.c against what ParetoQ's rounding makes of the same matrices (tests/oracle/make_levels.py). */
#include "host/checkpoint/internal.h"
#include "host/lowbit/encode.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_safetensors *files;

static int open_files(void **state) {
    (void)state;
    return crumb_safetensors_open("tests/oracle/levels.safetensors", &files, NULL) == CRUMB_OK ? 0 : -1;
}

static int close_files(void **state) {
    (void)state;
    crumb_safetensors_close(files);
    return 0;
}

static const crumb_safetensor *part_of(const char *stem, const char *part) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", stem, part);
    return crumb_safetensors_find(files, name);
}

/* The floats of a matrix after it was made; freed by the caller. */
static float *make_floats(const checkpoint_tensor *t, const crumb_gguf_tensor *d) {
    const uint64_t row_bytes = crumb_type_row_bytes(d->type, t->k);
    uint64_t n_bytes;
    crumb_error err = {0};
    assert_int_equal(crumb_type_tensor_bytes(d->type, t->m, t->k, &n_bytes, &err), CRUMB_OK);
    uint8_t *bytes = calloc(n_bytes, 1);
    float *out = malloc(t->m * t->k * sizeof *out);
    assert_true(bytes && out);
    if (checkpoint_levels_make(files, t, bytes, &err) != CRUMB_OK) fail_msg("%s", err.message);
    for (uint64_t m = 0; m < t->m; m++) crumb_type_row_to_f32(d->type, bytes + m * row_bytes, t->k, 0, out + m * t->k);
    free(bytes);
    return out;
}

/* All weights are unit * code; the units are those expected, within `tolerance`. */
static void compare(const char *stem, const checkpoint_tensor *t, const float *got, float tolerance) {
    const crumb_safetensor *codes = part_of(stem, "codes"), *units = part_of(stem, "units");
    assert_true(codes && units && codes->n_values == t->m * t->k && units->n_values == t->m);
    for (uint64_t m = 0; m < t->m; m++) {
        const uint8_t *code = crumb_safetensors_data(files, codes) + m * t->k;
        float expected, unit = 0;
        memcpy(&expected, crumb_safetensors_data(files, units) + 4 * m, 4);
        for (uint64_t i = 0; i < t->k && unit == 0; i++)
            if (code[i] != 8) unit = got[m * t->k + i] / (float)(code[i] - 8);
        if (!(fabsf(unit - expected) <= tolerance * expected))
            fail_msg("%s: row %u has the unit %.9g, not %.9g", stem, (unsigned)m, (double)unit, (double)expected);
        for (uint64_t i = 0; i < t->k; i++) {
            const float want = unit * (float)(code[i] - 8), w = got[m * t->k + i];
            if (!(fabsf(w - want) <= 2e-7f * fabsf(want)))
                fail_msg("%s: weight %u of row %u is %.9g, not %.9g", stem, (unsigned)i, (unsigned)m, (double)w,
                         (double)want);
        }
    }
}

static const enum checkpoint_levels kinds[] = {CHECKPOINT_LEVELS_TERNARY, CHECKPOINT_LEVELS_SIGN, CHECKPOINT_LEVELS_SEQ,
                                               CHECKPOINT_LEVELS_3_BITS, CHECKPOINT_LEVELS_4_BITS};

static void plan_and_compare(const char *stem, bool with_scales, int bits, crumb_type type, float tolerance) {
    checkpoint_tensor t = {.from = part_of(stem, "weight")};
    crumb_gguf_tensor d = {.dims = {1, 1, 1, 1}};
    crumb_error err = {0};
    bool found;
    assert_non_null(t.from);
    if (with_scales) {
        t.scales = part_of(stem, "weight_clip_val");
        t.levels = kinds[bits];
        assert_non_null(t.scales);
    }
    if (checkpoint_levels_plan(files, &t, &d, &found, &err) != CRUMB_OK) fail_msg("%s", err.message);
    if (!found || t.levels != kinds[bits]) fail_msg("%s: not recognised as what it is", stem);
    if (d.type != type) fail_msg("%s: became %s", stem, crumb_type_get_info(d.type)->name);
    float *got = make_floats(&t, &d);
    compare(stem, &t, got, tolerance);
    free(got);
}

static void weights_behind_levels_are_rounded_as_in_training(void **state) {
    (void)state;
    /* an f16 holds the scales that bf16 does */
    static const crumb_type f32[] = {CRUMB_TYPE_INT2, CRUMB_TYPE_INT2, CRUMB_TYPE_INT2, CRUMB_TYPE_INT3,
                                     CRUMB_TYPE_INT4},
                            bf16[] = {CRUMB_TYPE_TQ2_0, CRUMB_TYPE_Q1_0, CRUMB_TYPE_INT2, CRUMB_TYPE_INT3,
                                      CRUMB_TYPE_INT4};
    for (int bits = 0; bits < 5; bits++) {
        char stem[32];
        snprintf(stem, sizeof stem, "behind.%d.f32", bits);
        plan_and_compare(stem, true, bits, f32[bits], 1e-6f);
        snprintf(stem, sizeof stem, "behind.%d.bf16", bits);
        plan_and_compare(stem, true, bits, bf16[bits], 0);
    }
}

static void weights_that_are_levels_are_recognised(void **state) {
    (void)state;
    static const struct {
        const char *name;
        float tolerance; /* half a step of the dtype */
    } dtypes[] = {{"f32", 0x1p-23f}, {"f16", 0x1p-10f}, {"bf16", 0x1p-7f}};
    for (int bits = 0; bits < 5; bits++)
        for (int i = 0; i < 3; i++) {
            static const crumb_type halves[] = {CRUMB_TYPE_TQ2_0, CRUMB_TYPE_Q1_0, CRUMB_TYPE_INT2, CRUMB_TYPE_INT3,
                                                CRUMB_TYPE_INT4};
            char stem[32];
            snprintf(stem, sizeof stem, "on.%d.%s", bits, dtypes[i].name);
            plan_and_compare(stem, false, bits, i == 0 && bits < 2 ? CRUMB_TYPE_INT2 : halves[bits],
                             dtypes[i].tolerance);
        }
}

/* The levels of 2 bits, stored in bf16, get units that an f16 holds: then a GGUF file keeps them. */
static void units_are_the_shortest_that_fit(void **state) {
    (void)state;
    checkpoint_tensor t = {.from = part_of("on.2.bf16", "weight")};
    crumb_gguf_tensor d = {.dims = {1, 1, 1, 1}};
    crumb_error err = {0};
    bool found;
    assert_int_equal(checkpoint_levels_plan(files, &t, &d, &found, &err), CRUMB_OK);
    assert_true(found && d.type == CRUMB_TYPE_INT2);
    const uint64_t row_bytes = crumb_type_row_bytes(d.type, t.k), n_blocks = t.k / 32;
    uint8_t *bytes = calloc(t.m, row_bytes);
    assert_non_null(bytes);
    assert_int_equal(checkpoint_levels_make(files, &t, bytes, &err), CRUMB_OK);
    for (uint64_t i = 0; i < t.m * n_blocks; i++)
        assert_true(crumb_type_keeps_codes(CRUMB_TYPE_INT2, bytes + i * (row_bytes / n_blocks), CRUMB_TYPE_Q4_0,
                                           CRUMB_ENCODE_SEQ));
    free(bytes);
}

/* Weights as training without levels leaves them. */
static void others_are_left_alone(void **state) {
    (void)state;
    static const char *const stems[] = {"behind.2.f32", "behind.4.bf16", "behind.1.bf16"};
    for (size_t i = 0; i < sizeof stems / sizeof *stems; i++) {
        checkpoint_tensor t = {.from = part_of(stems[i], "weight")};
        crumb_gguf_tensor d = {.dims = {1, 1, 1, 1}};
        crumb_error err = {0};
        bool found = true;
        assert_int_equal(checkpoint_levels_plan(files, &t, &d, &found, &err), CRUMB_OK);
        assert_false(found);
    }
}

static void scales_of_another_shape_are_refused(void **state) {
    (void)state;
    checkpoint_tensor t = {.from = part_of("behind.2.f32", "weight"),
                           .scales = part_of("behind.2.f32", "weight"),
                           .levels = CHECKPOINT_LEVELS_SEQ};
    crumb_gguf_tensor d = {.dims = {1, 1, 1, 1}};
    crumb_error err = {0};
    bool found;
    assert_int_equal(checkpoint_levels_plan(files, &t, &d, &found, &err), CRUMB_ERR_FORMAT);
    assert_non_null(strstr(err.message, "one scale for each row"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_behind_levels_are_rounded_as_in_training),
        cmocka_unit_test(weights_that_are_levels_are_recognised),
        cmocka_unit_test(units_are_the_shortest_that_fit),
        cmocka_unit_test(others_are_left_alone),
        cmocka_unit_test(scales_of_another_shape_are_refused),
    };
    return cmocka_run_group_tests(tests, open_files, close_files);
}
