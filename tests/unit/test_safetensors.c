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

#define ENTRY(dtype, shape, offsets) "{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define SOUND                        "{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}"

/* Each field of a tensor's entry, with 16 bytes of data behind the header. */
static void damaged_fields_are_named(void **state) {
    (void)state;
    static const struct {
        const char *header, *says;
    } cases[] = {
        {"{\"w\":{\"shape\":[2,2],\"data_offsets\":[0,16]}}", "dtype"},
        {ENTRY("null", "[2,2]", "[0,16]"), "dtype"},
        {ENTRY("4", "[2,2]", "[0,16]"), "dtype"},
        {ENTRY("[\"F32\"]", "[2,2]", "[0,16]"), "dtype"},
        {ENTRY("\"F31\"", "[2,2]", "[0,16]"), "dtype 'F31'"},
        {ENTRY("\"\"", "[2,2]", "[0,16]"), "dtype ''"},
        {ENTRY("\"f32\"", "[2,2]", "[0,16]"), "dtype 'f32'"},
        {ENTRY("\"F16\"", "[2,2]", "[0,16]"), "dtype do not fit its data_offsets"},
        {ENTRY("\"F64\"", "[2,2]", "[0,16]"), "dtype do not fit its data_offsets"},
        {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", "shape"},
        {ENTRY("\"F32\"", "null", "[0,16]"), "shape: missing"},
        {ENTRY("\"F32\"", "4", "[0,16]"), "shape: missing, or not a list"},
        {ENTRY("\"F32\"", "\"2,2\"", "[0,16]"), "shape: missing, or not a list"},
        {ENTRY("\"F32\"", "{\"a\":2,\"b\":2}", "[0,16]"), "shape: missing, or not a list"},
        {ENTRY("\"F32\"", "[-2,2]", "[0,16]"), "shape: a dimension"},
        {ENTRY("\"F32\"", "[2.5,2]", "[0,16]"), "shape: a dimension"},
        {ENTRY("\"F32\"", "[\"2\",2]", "[0,16]"), "shape: a dimension"},
        {ENTRY("\"F32\"", "[[2],2]", "[0,16]"), "shape: a dimension"},
        {ENTRY("\"F32\"", "[2,null]", "[0,16]"), "shape: a dimension"},
        {ENTRY("\"F32\"", "[true,4]", "[0,16]"), "shape: a dimension"},
        {ENTRY("\"F32\"", "[1e300]", "[0,16]"), "shape: a dimension"},
        {ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,16]"), "shape: the size overflows"},
        {ENTRY("\"F32\"", "[4611686018427387905]", "[0,16]"), "shape: a dimension"},
        {ENTRY("\"F32\"", "[1,1,1,1,1,1,1,2,2]", "[0,16]"), "shape: more than 8 dimensions"},
        {ENTRY("\"F32\"", "[3]", "[0,16]"), "shape and dtype do not fit its data_offsets"},
        {ENTRY("\"F32\"", "[]", "[0,16]"), "shape and dtype do not fit its data_offsets"},
        {ENTRY("\"F32\"", "[0]", "[0,16]"), "shape and dtype do not fit its data_offsets"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2]}}", "data_offsets"},
        {ENTRY("\"F32\"", "[2,2]", "null"), "data_offsets: missing"},
        {ENTRY("\"F32\"", "[2,2]", "[0]"), "data_offsets: missing, or not two counts"},
        {ENTRY("\"F32\"", "[2,2]", "[0,16,32]"), "data_offsets: missing, or not two counts"},
        {ENTRY("\"F32\"", "[2,2]", "\"0,16\""), "data_offsets: missing, or not two counts"},
        {ENTRY("\"F32\"", "[2,2]", "{\"a\":0,\"b\":16}"), "data_offsets: missing, or not two counts"},
        {ENTRY("\"F32\"", "[2,2]", "[\"0\",16]"), "data_offsets: missing, or not two counts"},
        {ENTRY("\"F32\"", "[2,2]", "[0,\"16\"]"), "data_offsets: missing, or not two counts"},
        {ENTRY("\"F32\"", "[2,2]", "[0.5,16.5]"), "data_offsets: missing, or not two counts"},
        {ENTRY("\"F32\"", "[2,2]", "[-1,15]"), "data_offsets: missing, or not two counts"},
        {ENTRY("\"F32\"", "[2,2]", "[0,18446744073709551632]"), "data_offsets: missing, or not two counts"},
        {ENTRY("\"F32\"", "[2,2]", "[16,0]"), "data_offsets: its bytes do not lie in the file"},
        {ENTRY("\"F32\"", "[2,2]", "[1,17]"), "data_offsets: its bytes do not lie in the file"},
        {ENTRY("\"F32\"", "[2,2]", "[9007199254740991,9007199254740992]"), "data_offsets: its bytes do not lie"},
        {ENTRY("\"F32\"", "[3]", "[4,16]"), "data_offsets: its bytes overlap another tensor's, or leave a gap"},
        {"{\"v\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
         "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
         "data_offsets: its bytes overlap another tensor's, or leave a gap"},
        {"{\"v\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},\"w\":" SOUND "}",
         "data_offsets: its bytes overlap another tensor's, or leave a gap"},
        {"{\"w\":7}", "not an object of dtype, shape and data_offsets"},
        {"{\"w\":null}", "not an object of dtype, shape and data_offsets"},
        {"{\"w\":[\"F32\",[2,2],[0,16]]}", "not an object of dtype, shape and data_offsets"},
        {"{\"w\":{\"dtype\":\"F32\",\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}",
         "'dtype': it is there twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size;
        uint8_t *file = make_file(cases[i].header, 16, &size);
        const bool unsupported = strncmp(cases[i].says, "dtype '", 7) == 0;
        expect_refusal(file, size, unsupported ? CRUMB_ERR_UNSUPPORTED : CRUMB_ERR_FORMAT, cases[i].says);
        if (!strstr(cases[i].says, "twice"))
            expect_refusal(file, size, unsupported ? CRUMB_ERR_UNSUPPORTED : CRUMB_ERR_FORMAT, "tensor 'w'");
        free(file);
    }
}

/* The header as a whole. */
static void damaged_headers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *header, *says;
    } cases[] = {
        {ENTRY("\"F32\"", "[3]", "[0,12]"), "4 bytes behind the last tensor"},
        {"{}", "16 bytes behind the last tensor"},
        {"{\"w\":" SOUND ",\"w\":" SOUND "}", "'w': it is there twice"},
        {"{\"\":" SOUND "}", "name is empty"},
        {"{\"a\\u001b\":" SOUND "}", "control characters"},
        {"{\"w\":" SOUND "} }", "something stands behind the JSON object"},
        {"{\"w\":" SOUND "}{}", "something stands behind the JSON object"},
        {"{\"w\":" SOUND ",\"__metadata__\":7}", "__metadata__: not an object of strings"},
        {"{\"w\":" SOUND ",\"__metadata__\":null}", "__metadata__: not an object of strings"},
        {"{\"w\":" SOUND ",\"__metadata__\":[\"pt\"]}", "__metadata__: not an object of strings"},
        {"{\"w\":" SOUND ",\"__metadata__\":{\"format\":7}}", "__metadata__: not an object of strings"},
        {"{\"w\":" SOUND ",\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", "__metadata__: not an object of strings"},
        {"[1,2]", "header is damaged: not a JSON object"},
        {"\"w\"", "header is damaged: not a JSON object"},
        {"{\"w\":", "header is damaged: not a JSON object"},
        {"", "header is damaged: not a JSON object"},
    };
    size_t size;
    uint8_t *file;
    crumb_safetensors *s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file = make_file(cases[i].header, 16, &size);
        expect_refusal(file, size, CRUMB_ERR_FORMAT, cases[i].says);
        free(file);
    }
    /* writers pad the header with spaces */
    file = make_file("{\"__metadata__\":{\"format\":\"pt\"},\"w\":" SOUND "}   ", 16, &size);
    assert_int_equal(crumb_safetensors_open_memory(file, size, "sound", &s, NULL), CRUMB_OK);
    assert_int_equal(crumb_safetensors_n(s), 1);
    crumb_safetensors_close(s);
    free(file);
}

/* The eight bytes before the header. */
static void damaged_lengths_are_refused(void **state) {
    (void)state;
    static const uint64_t lengths[] = {0,         1, 56, 58, 73, 74, 100000001, UINT64_C(1) << 32, UINT64_C(1) << 63,
                                       UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t size;
        uint8_t *file = make_file("{\"w\":" SOUND "}", 16, &size);
        assert_int_equal(size, 8 + 57 + 16);
        memcpy(file, &lengths[i], 8);
        expect_refusal(file, size, CRUMB_ERR_FORMAT, "header");
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
                 {"{\"weight_map\":{\"w\":null}}", "weight_map: tensor 'w'"},
                 {"{\"weight_map\":{\"w\":\"\"}}", "weight_map: tensor 'w'"},
                 {"{\"weight_map\":{\"w\":[\"a.safetensors\"]}}", "weight_map: tensor 'w'"},
                 {"{\"weight_map\":{\"w\":\"missing.safetensors\"}}", "missing.safetensors"},
                 {"{\"weight_map\":{}}", "weight_map"},
                 {"{\"weight_map\":\"w\"}", "weight_map"},
                 {"{\"weight_map\":[\"w\"]}", "weight_map"},
                 {"{\"metadata\":{}}", "weight_map"},
                 {"{\"weight_map\":{\"w\":\"a\",\"w\":\"b\"}}", "'w': it is there twice"},
                 {"[]", "not a JSON object"},
                 {"{", "not a JSON object"}};
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

/* Two files of a tensor each, and what an index says of them. */
static void an_index_says_where_tensors_are(void **state) {
    (void)state;
    static const char *const names[] = {"a.safetensors", "b.safetensors"};
    static const struct {
        const char *map, *says;
    } cases[] = {
        {"\"v\":\"a.safetensors\",\"w\":\"b.safetensors\"", NULL},
        {"\"v\":\"b.safetensors\",\"w\":\"a.safetensors\"", "weight_map: tensor 'v' is not in 'b.safetensors'"},
        {"\"v\":\"a.safetensors\",\"w\":\"b.safetensors\",\"x\":\"b.safetensors\"",
         "weight_map: tensor 'x' is not in 'b.safetensors'"},
        {"\"v\":\"a.safetensors\",\"w\":\"a.safetensors\"", "weight_map: tensor 'w' is not in 'a.safetensors'"},
        {"\"v\":\"a.safetensors\",\"__metadata__\":\"a.safetensors\"", "weight_map: tensor '__metadata__'"},
    };
    char folder[] = "/tmp/crumb-index-XXXXXX", path[64], text[256];
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        size_t size;
        snprintf(text, sizeof text, "{\"%c\":" SOUND "}", 'v' + i);
        uint8_t *bytes = make_file(text, 16, &size);
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *f = fopen(path, "wb");
        assert_true(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
        free(bytes);
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        crumb_safetensors *s;
        crumb_error err = {0};
        snprintf(text, sizeof text, "{\"weight_map\":{%s}}", cases[i].map);
        write_text(path, text);
        const crumb_status status = crumb_safetensors_open(path, &s, &err);
        assert_int_equal(status, cases[i].says ? CRUMB_ERR_FORMAT : CRUMB_OK);
        if (cases[i].says && (!strstr(err.message, cases[i].says) || strncmp(err.message, path, strlen(path)) != 0))
            fail_msg("'%s' does not name the file and '%s'", err.message, cases[i].says);
        crumb_safetensors_close(s);
    }
    unlink(path);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_dtypes_are_read),
        cmocka_unit_test(an_index_joins_its_files),
        cmocka_unit_test(damaged_fields_are_named),
        cmocka_unit_test(damaged_headers_are_refused),
        cmocka_unit_test(damaged_lengths_are_refused),
        cmocka_unit_test(files_that_end_early_are_refused),
        cmocka_unit_test(an_index_does_not_leave_its_folder),
        cmocka_unit_test(an_index_says_where_tensors_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
