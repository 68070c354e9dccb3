/* Kernels with other parameters than their rows have: what knobs make of every row of cl/kernels.def. */
#include "cl/variant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const crumb_cl_kernel *find(const char *name) {
    size_t n;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    fail_msg("no kernel %s", name);
    return NULL;
}

static void number_0_is_the_row(void **state) {
    (void)state;
    size_t n;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    for (size_t i = 0; i < n; i++) {
        char knobs[128];
        crumb_cl_variant v;
        crumb_cl_variant_print(&rows[i], 0, knobs, sizeof knobs);
        assert_string_equal(knobs, "");
        assert_true(crumb_cl_variant_make(&rows[i], knobs, &v));
        assert_string_equal(v.kernel.options, rows[i].options);
        assert_int_equal(v.kernel.local_size, rows[i].local_size);
        assert_int_equal(v.kernel.tiles, rows[i].tiles);
        assert_int_equal(v.kernel.tokens, rows[i].tokens);
        assert_int_equal(v.kernel.registers, rows[i].registers);
    }
}

/* Of every row: all combinations print differently, are read back as they were printed, and what they say holds. */
static void combinations_are_what_they_say(void **state) {
    (void)state;
    size_t n, n_made = 0;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    for (size_t i = 0; i < n; i++) {
        size_t made = 0;
        for (size_t j = 1; j < crumb_cl_variant_count(&rows[i]); j++) {
            char knobs[128], wanted[32];
            crumb_cl_variant v;
            unsigned value;
            crumb_cl_variant_print(&rows[i], j, knobs, sizeof knobs);
            assert_true(*knobs);
            if (!crumb_cl_variant_make(&rows[i], knobs, &v)) continue;
            made++;
            const char *slices = strstr(knobs, "slices=");
            if (slices && sscanf(slices, "slices=%u", &value) == 1) {
                snprintf(wanted, sizeof wanted, "-D SLICES=%u", value);
                assert_non_null(strstr(v.kernel.options, wanted));
                assert_true(v.kernel.local_size % value == 0);
            }
            assert_int_equal(strstr(knobs, "fused=1") != NULL, v.x == 32 && rows[i].x == 0);
            assert_true(strlen(v.kernel.options) <= strlen(rows[i].options) + 8);
        }
        if (rows[i].op == CRUMB_CL_LINEAR) assert_true(made >= 10);
        n_made += made;
    }
    assert_true(n_made > 1000);
}

static void rules_and_unknown_knobs_refuse(void **state) {
    (void)state;
    static const char *const refused[] = {"tiles=2",  "tiles=3",  "slices=",       "slices=8",         "warp=1",
                                          "tokens=4", "fused=0",  "registers=128", "registers=100000", "tiles",
                                          "=",        "tiles=-4", "tiles=4 warp=1"};
    const crumb_cl_kernel *row = find("linear_u2_gemv__portable");
    crumb_cl_variant v;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_false(crumb_cl_variant_make(row, refused[i], &v));
    assert_true(crumb_cl_variant_make(row, "slices=4 tiles=1 fused=1", &v));
    assert_int_equal(v.kernel.local_size, 64);
    assert_int_equal(v.kernel.tiles, 1);
    assert_int_equal(v.x, 32);
    row = find("linear_u2_gemm__portable");
    assert_true(crumb_cl_variant_make(row, "tokens=4 slices=4", &v));
    assert_int_equal(v.kernel.tokens, 4);
    assert_false(crumb_cl_variant_make(row, "slices=4", &v)); /* 8 rows need 8 slices */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(number_0_is_the_row),
        cmocka_unit_test(combinations_are_what_they_say),
        cmocka_unit_test(rules_and_unknown_knobs_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
