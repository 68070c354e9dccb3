/* host/engine/verify_compare: what is wrong everywhere is found by the whole, what is wrong in a few outputs by the
 * output that is furthest off, beside what a layer was given. */
#include "host/engine/verify_compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 3, WIDTH = 4096, N = ROWS * WIDTH };

static float given[N], expected[N], got[N];

/* What a layer adds is 1 or -1, to something `loud` times as large. */
static void fill(float loud) {
    for (size_t i = 0; i < N; i++) {
        given[i] = loud * (i % 3 ? 1.0f : -1.0f);
        expected[i] = got[i] = given[i] + (i % 2 ? 1.0f : -1.0f);
    }
}

static void equal_results_are_right(void **state) {
    (void)state;
    fill(10);
    const crumb_verify_error e = crumb_verify_compare(got, expected, given, ROWS, WIDTH);
    assert_true(e.whole == 0 && e.output == 0);
}

static void one_output_is_little_of_the_whole(void **state) {
    (void)state;
    for (int loud = 0; loud <= 10; loud += 10) {
        fill((float)loud);
        for (size_t row = 0; row < ROWS; row++) got[row * WIDTH + 77] = given[row * WIDTH + 77];
        const crumb_verify_error e = crumb_verify_compare(got, expected, given, ROWS, WIDTH);
        assert_true(e.whole < 3e-4);
        assert_int_equal(e.column, 77);
        assert_true(fabs(e.output - 0.5) < 1e-3);
    }
    /* beside all that comes out it would be little as well */
    assert_true(crumb_verify_compare(got, expected, NULL, ROWS, WIDTH).output < 0.01);
}

/* A small error everywhere is no output's: one whose own sum is small by chance is held against the others'. */
static void an_output_near_zero_is_held_against_the_others(void **state) {
    (void)state;
    fill(0);
    for (size_t row = 0; row < ROWS; row++) expected[row * WIDTH + 5] = 0;
    for (size_t i = 0; i < N; i++) got[i] = expected[i] + 0.01f;
    const crumb_verify_error e = crumb_verify_compare(got, expected, given, ROWS, WIDTH);
    assert_true(e.whole > 0.9e-4 && e.whole < 1.1e-4);
    assert_int_equal(e.column, 5);
    assert_true(e.output < 1.1e-4);
}

static void what_is_no_result_is_infinitely_wrong(void **state) {
    (void)state;
    fill(0);
    got[N - 1] = NAN;
    assert_true(isinf(crumb_verify_compare(got, expected, given, ROWS, WIDTH).whole));
    memset(expected, 0, sizeof expected);
    memset(got, 0, sizeof got);
    const crumb_verify_error e = crumb_verify_compare(got, expected, NULL, ROWS, WIDTH);
    assert_true(isinf(e.whole) && isinf(e.output));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_results_are_right),
        cmocka_unit_test(one_output_is_little_of_the_whole),
        cmocka_unit_test(an_output_near_zero_is_held_against_the_others),
        cmocka_unit_test(what_is_no_result_is_infinitely_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
