/* crumb_utf8_stream_push: text that comes in pieces is never split inside a character. */
#include "host/text/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_OUT = 512 };

/* Pushes a piece; what comes out must be whole characters. */
static size_t push(crumb_utf8_stream *s, const char *bytes, size_t n, char *out) {
    size_t n_out = crumb_utf8_stream_push(s, bytes, n, out, 3 * n + 3);
    assert_true(n_out <= 3 * n + 3);
    assert_int_equal(crumb_utf8_valid_prefix(out, n_out), n_out);
    return n_out;
}

static void every_split_joins_again(void **state) {
    (void)state;
    static const char text[] =
        "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xc2\x80z\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80\n";
    const size_t n = sizeof text - 1;
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = i; j <= n; j++) {
            size_t cuts[] = {0, i, j, n}, n_out = 0;
            char out[MAX_OUT];
            crumb_utf8_stream s = {0};
            for (int k = 0; k < 3; k++)
                if (cuts[k + 1] > cuts[k]) n_out += push(&s, text + cuts[k], cuts[k + 1] - cuts[k], out + n_out);
            assert_int_equal(n_out, n);
            assert_memory_equal(out, text, n);
            assert_int_equal(push(&s, NULL, 0, out), 0); /* nothing is left */
        }
    }
}

#define R "\xef\xbf\xbd"
static const struct {
    const char *in, *out;
} malformed[] = {
    {"\x80", R},
    {"\xff"
     "a",
     R "a"},
    {"a\xc3", "a" R}, /* cut off by the end */
    {"\xe2\x82", R},  /* one character cut off is one replacement */
    {"\xe2\x82"
     "a",
     R "a"}, /* and does not swallow what follows */
    {"\xe2\x82\xc3\xa9", R "\xc3\xa9"},
    {"\xf0\x9f\x98"
     "\xf0\x9f\x98\x80",
     R "\xf0\x9f\x98\x80"},
    {"\xc0\xaf", R R}, /* overlong */
    {"\xe0\x80\xaf", R R R},
    {"\xed\xa0\x80", R R R},       /* a surrogate */
    {"\xf4\x90\x80\x80", R R R R}, /* above U+10FFFF */
    {"\xf5\x80", R R},
    {"\xe2\xe2\xe2", R R R},
};

static void malformed_bytes_are_replaced(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        size_t n = strlen(malformed[i].in), n_expected = strlen(malformed[i].out);
        for (size_t step = 1; step <= n; step++) {
            crumb_utf8_stream s = {0};
            char out[MAX_OUT];
            size_t n_out = 0;
            for (size_t at = 0; at < n; at += step)
                n_out += push(&s, malformed[i].in + at, at + step <= n ? step : n - at, out + n_out);
            n_out += push(&s, NULL, 0, out + n_out);
            assert_int_equal(n_out, n_expected);
            assert_memory_equal(out, malformed[i].out, n_expected);
        }
    }
}

static void small_capacity_drops_whole_characters(void **state) {
    (void)state;
    for (size_t capacity = 0; capacity < 12; capacity++) {
        crumb_utf8_stream s = {0};
        char out[16];
        memset(out, '#', sizeof out);
        size_t n = crumb_utf8_stream_push(&s, "\xe2\x82\xac\xe2\x82\xac\xff\xc3\xa9", 9, out, capacity);
        assert_true(n <= capacity);
        assert_int_equal(crumb_utf8_valid_prefix(out, n), n);
        for (size_t i = n; i < sizeof out; i++) assert_int_equal(out[i], '#');
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_joins_again),
        cmocka_unit_test(malformed_bytes_are_replaced),
        cmocka_unit_test(small_capacity_drops_whole_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
