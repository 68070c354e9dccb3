/* host/container/safetensors.h: files of the safetensors package (tests/oracle/make_safetensors.py) are read as they
 * were written, and damaged ones are refused with the file and the tensor named. */
#include "host/container/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define FOLDER "tests/oracle/safetensors/"

static crumb_safetensors *open_file(const char *path) {
    crumb_safetensors *s;
    crumb_error err = {0};
    if (crumb_safetensors_open(path, &s, &err) != CRUMB_OK) fail_msg("%s", err.message);
    return s;
}

static const crumb_safetensor *find(const crumb_safetensors *s, const char *name) {
    const crumb_safetensor *t = crumb_safetensors_find(s, name);
    if (!t) fail_msg("no tensor '%s'", name);
    return t;
}

static void all_dtypes_are_read(void **state) {
    (void)state;
    static const struct {
        const char *name, *dtype;
        unsigned n_bytes;
    } cases[] = {{"bool", "BOOL", 1}, {"u8", "U8", 1},   {"i8", "I8", 1},   {"u16", "U16", 2},
                 {"i16", "I16", 2},   {"f16", "F16", 2}, {"u32", "U32", 4}, {"i32", "I32", 4},
                 {"f32", "F32", 4},   {"u64", "U64", 8}, {"i64", "I64", 8}, {"f64", "F64", 8}};
    crumb_safetensors *s = open_file(FOLDER "dtypes.safetensors");
    assert_int_equal(crumb_safetensors_n(s), sizeof cases / sizeof *cases + 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const crumb_safetensor *t = find(s, cases[i].name);
        const uint8_t *data = crumb_safetensors_data(s, t);
        assert_string_equal(crumb_dtype_name(t->dtype), cases[i].dtype);
        assert_int_equal(t->n_dims, 2);
        assert_true(t->dims[0] == 3 && t->dims[1] == 5 && t->n_values == 15);
        assert_int_equal(t->n_bytes, 15 * cases[i].n_bytes);
        for (uint8_t v = 0; v < 15 && *cases[i].name != 'f'; v++)
            assert_int_equal(data[v * cases[i].n_bytes], i == 0 ? v % 2 : v);
    }
    float value;
    memcpy(&value, crumb_safetensors_data(s, find(s, "f32")) + 4 * 14, 4);
    assert_true(value == 14);
    memcpy(&value, crumb_safetensors_data(s, find(s, "scalar")), 4);
    assert_true(value == 7 && find(s, "scalar")->n_dims == 0 && find(s, "scalar")->n_values == 1);
    assert_true(find(s, "empty")->n_bytes == 0 && find(s, "empty")->dims[1] == 4);
    assert_null(crumb_safetensors_find(s, "float"));
    crumb_safetensors_close(s);
}

static void an_index_joins_its_files(void **state) {
    (void)state;
    crumb_safetensors *s = open_file(FOLDER "model.safetensors.index.json");
    assert_int_equal(crumb_safetensors_n(s), 3);
    assert_string_equal(crumb_safetensors_at(s, 0)->name, "a.bias");
    assert_string_equal(crumb_safetensors_path(s, find(s, "a.weight")), FOLDER "model-00001-of-00002.safetensors");
    assert_string_equal(crumb_safetensors_path(s, find(s, "b.weight")), FOLDER "model-00002-of-00002.safetensors");
    crumb_safetensors_close(s);
}

/* A file with this header and so many bytes of data behind it; exactly allocated, so that a sanitizer sees a read past
 * the end. */
static uint8_t *make_file(const char *header, size_t n_data, size_t *size) {
    const uint64_t n = strlen(header);
    uint8_t *file = calloc(8 + n + n_data, 1);
    assert_non_null(file);
    memcpy(file, &n, 8);
    memcpy(file + 8, header, n);
    *size = 8 + n + n_data;
    return file;
}

static void expect_refusal(const void *file, size_t size, crumb_status expected, const char *needle) {
    crumb_safetensors *s;
    crumb_error err = {0};
    assert_int_equal(crumb_safetensors_open_memory(file, size, "some.safetensors", &s, &err), expected);
    assert_null(s);
    if (!strstr(err.message, needle) || strncmp(err.message, "some.safetensors: ", 18) != 0)
        fail_msg("'%s' does not name the file and '%s'", err.message, needle);
}

static void damaged_headers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *header;
        crumb_status expected;
        const char *needle;
    } cases[] = {
        {"{\"w\":{\"shape\":[2,2],\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT, "dtype"},
        {"{\"w\":{\"dtype\":\"F31\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", CRUMB_ERR_UNSUPPORTED, "F31"},
        {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT, "shape"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[-2,2],\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT, "dimension"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2.5,2],\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT, "dimension"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1e300],\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT, "dimension"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT,
         "overflows"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT,
         "'w'"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,2,2],\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT,
         "dimensions"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0]}}", CRUMB_ERR_FORMAT, "data_offsets"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":\"0,16\"}}", CRUMB_ERR_FORMAT, "data_offsets"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[-1,15]}}", CRUMB_ERR_FORMAT, "data_offsets"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,0]}}", CRUMB_ERR_FORMAT, "lie in the file"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[1,17]}}", CRUMB_ERR_FORMAT, "lie in the file"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[9007199254740991,9007199254740992]}}",
         CRUMB_ERR_FORMAT, "lie in the file"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT, "do not fit"},
        {"{\"w\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT, "do not fit"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", CRUMB_ERR_FORMAT, "behind the last"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[4,16]}}", CRUMB_ERR_FORMAT, "gap"},
        {"{\"v\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
         "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
         CRUMB_ERR_FORMAT, "overlap"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
         CRUMB_ERR_FORMAT, "twice"},
        {"{\"\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT, "name is empty"},
        {"{\"a\\u001b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", CRUMB_ERR_FORMAT,
         "control characters"},
        {"{\"w\":7}", CRUMB_ERR_FORMAT, "'w'"},
        {"[1,2]", CRUMB_ERR_FORMAT, "not a JSON object"},
        {"{\"w\":", CRUMB_ERR_FORMAT, "not a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size;
        uint8_t *file = make_file(cases[i].header, 16, &size);
        expect_refusal(file, size, cases[i].expected, cases[i].needle);
        free(file);
    }
}

static void files_that_end_early_are_refused(void **state) {
    (void)state;
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}";
    size_t size;
    crumb_safetensors *s;
    crumb_error err = {0};
    uint8_t *file = make_file(header, 16, &size);
    assert_int_equal(crumb_safetensors_open_memory(file, size, "sound", &s, &err), CRUMB_OK);
    crumb_safetensors_close(s);
    for (size_t n = 1; n < size; n++) {
        uint8_t *part = malloc(n);
        assert_non_null(part);
        memcpy(part, file, n);
        expect_refusal(part, n, CRUMB_ERR_FORMAT, "some.safetensors");
        free(part);
    }
    memset(file, 0xff, 8); /* a header longer than any file */
    expect_refusal(file, size, CRUMB_ERR_FORMAT, "header");
    free(file);
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    if (!f) {
        fail_msg("cannot write %s", path);
        return;
    }
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void an_index_does_not_leave_its_folder(void **state) {
    (void)state;
    static const struct {
        const char *text, *needle;
    } cases[] = {{"{\"weight_map\":{\"w\":\"../dtypes.safetensors\"}}", "'w'"},
                 {"{\"weight_map\":{\"w\":\"/etc/passwd\"}}", "'w'"},
                 {"{\"weight_map\":{\"w\":\"..\"}}", "'w'"},
                 {"{\"weight_map\":{\"w\":7}}", "'w'"},
                 {"{\"weight_map\":{\"w\":\"missing.safetensors\"}}", "missing.safetensors"},
                 {"{\"weight_map\":{}}", "weight_map"},
                 {"[]", "weight_map"},
                 {"{", "not JSON"}};
    char path[] = "/tmp/crumb-XXXXXX.index.json";
    const int fd = mkstemps(path, 11);
    if (fd < 0) fail_msg("no file in /tmp");
    close(fd);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        crumb_safetensors *s;
        crumb_error err = {0};
        write_text(path, cases[i].text);
        assert_true(crumb_safetensors_open(path, &s, &err) != CRUMB_OK);
        assert_null(s);
        if (!strstr(err.message, cases[i].needle)) fail_msg("'%s' does not name '%s'", err.message, cases[i].needle);
    }
    assert_int_equal(remove(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_dtypes_are_read),
        cmocka_unit_test(an_index_joins_its_files),
        cmocka_unit_test(damaged_headers_are_refused),
        cmocka_unit_test(files_that_end_early_are_refused),
        cmocka_unit_test(an_index_does_not_leave_its_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
