/* host/base/json: what readers would take differently, or not see, is refused with the place named. */
#include "host/base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *text, *says;
} refused[] = {
    {"{\"a\": \"b\\u0000\"}", "key 'a': a byte 0"},
    {"{\"a\": \"\\u0000b\"}", "key 'a': a byte 0"},
    {"{\"a\\u0000\": 1}", "key 'a': a byte 0"},
    {"{\"\\u0000\": {\"b\": \"c\"}}", "key '': a byte 0"},
    {"{\"a\": \"x\", \"b\": {\"c\": [1, {\"d\": \"\\u0000\"}]}}", "key 'b.c[1].d': a byte 0"},
    {"{\"a\": [\"x\", [\"y\", \"z\\u0000\"]], \"b\": \"\"}", "key 'a[1][1]': a byte 0"},
    {"{\"a\": {\"b\": \"x\", \"c\\u0000d\": \"y\"}}", "key 'a.c': a byte 0"},
    {"{\"a\": \"\\\\\\u0000\"}", "key 'a': a byte 0"},
    {"{\"a\": \"\\\"\\u0000\\\"\", \"b\": 1}", "key 'a': a byte 0"},
    {"{\"a\": {}, \"b\": [], \"c\": \"\\u0000\"}", "key 'c': a byte 0"},
    {"{\"a\": 1, \"b\": {\"c\": 1, \"d\": 1, \"c\": 2}}", "key 'c': it is there twice"},
    {"{\"a\": 1} {}", "something stands behind"},
    {"[1]", "not a JSON object"},
    {"{\"a\": 1", "not a JSON object"},
};

static void what_is_wrong_is_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        cJSON *root;
        crumb_error err = {0};
        if (crumb_json_parse_object(refused[i].text, strlen(refused[i].text), &root, &err) != CRUMB_ERR_FORMAT)
            fail_msg("%s is taken", refused[i].text);
        if (strncmp(err.message, refused[i].says, strlen(refused[i].says)) != 0)
            fail_msg("%s: '%s' does not say '%s'", refused[i].text, err.message, refused[i].says);
        assert_null(root);
    }
}

static void byte_0_as_it_is(void **state) {
    (void)state;
    static const char text[] = "{\"a\": {\"b\": \"c\0d\"}}";
    cJSON *root;
    crumb_error err = {0};
    assert_int_equal(crumb_json_parse_object(text, sizeof text - 1, &root, &err), CRUMB_ERR_FORMAT);
    assert_non_null(strstr(err.message, "key 'a.b': a byte 0"));
}

/* A long path is cut, and does no harm. */
static void deep_places(void **state) {
    (void)state;
    char text[4096];
    size_t n = 0;
    cJSON *root;
    crumb_error err = {0};
    for (unsigned i = 0; i < 300; i++) n += (size_t)snprintf(text + n, sizeof text - n, "{\"a%u\":", i);
    n += (size_t)snprintf(text + n, sizeof text - n, "\"\\u0000\"");
    for (unsigned i = 0; i < 300; i++) text[n++] = '}';
    assert_int_equal(crumb_json_parse_object(text, n, &root, &err), CRUMB_ERR_FORMAT);
    assert_non_null(strstr(err.message, "key 'a0.a1.a2.a3."));
}

static void escapes_that_only_look_like_it(void **state) {
    (void)state;
    static const char text[] = "{\"\\\\u0000\": \"\\\\u0000\", \"a\": [\"\\u0001\", \"\\\\\\\\u0000\"]}";
    cJSON *root;
    crumb_error err = {0};
    assert_int_equal(crumb_json_parse_object(text, sizeof text - 1, &root, &err), CRUMB_OK);
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(root, "\\u0000")->valuestring, "\\u0000");
    cJSON_Delete(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(byte_0_as_it_is),
        cmocka_unit_test(deep_places),
        cmocka_unit_test(escapes_that_only_look_like_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
