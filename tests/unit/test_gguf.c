/* host/container/gguf.h: what sound files mean, how typed reads fail, split files, files that are no files. What
 * damaged files do is in test_gguf_damage.c. */
#include "host/base/file.h"
#include "host/container/gguf_describe.h"
#include "tests/support/gguf_writer.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static crumb_gguf *open_sound(const gguf_writer *w) {
    crumb_gguf *g;
    crumb_error err = {0};
    if (crumb_gguf_open_memory(w->data, w->size, "mem.gguf", &g, &err) != CRUMB_OK) fail_msg("%s", err.message);
    return g;
}

#define assert_message(err, part)                                                                                      \
    do {                                                                                                               \
        if (!strstr((err).message, part)) fail_msg("'%s' does not contain '%s'", (err).message, part);                 \
    } while (0)

/* One key of each value type and one array of each element type. */
static gguf_writer all_value_types(void) {
    gguf_writer w = gguf_writer_begin();
    static const int64_t minus_two = -2;
    static const uint64_t large = UINT64_C(0xfedcba9876543210);
    float f32 = 0.1f;
    double f64 = 1.0 / 3;
    uint8_t yes = 1;
    for (uint32_t type = 0; type < CRUMB_GGUF_VALUE_TYPE_COUNT; type++) {
        static const size_t n_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
        const void *value = &minus_two;
        char key[16];
        snprintf(key, sizeof key, "v.%u", type);
        if (type == CRUMB_GGUF_U64) value = &large;
        if (type == CRUMB_GGUF_F32) value = &f32;
        if (type == CRUMB_GGUF_F64) value = &f64;
        if (type == CRUMB_GGUF_BOOL) value = &yes;
        if (type == CRUMB_GGUF_STRING) {
            gguf_key_string(&w, key, "text");
        } else if (type != CRUMB_GGUF_ARRAY) {
            gguf_put_key(&w, key, (crumb_gguf_value_type)type);
            gguf_put(&w, value, n_bytes[type]);
        }
        if (type == CRUMB_GGUF_ARRAY) continue;
        snprintf(key, sizeof key, "a.%u", type);
        gguf_put_array(&w, key, (crumb_gguf_value_type)type, 3);
        for (int i = 0; i < 3; i++) {
            if (type == CRUMB_GGUF_STRING)
                gguf_put_string(&w, i == 1 ? "" : "item");
            else
                gguf_put(&w, value, n_bytes[type]);
        }
    }
    return w;
}

static void all_value_types_are_read(void **state) {
    (void)state;
    static const char *const texts[] = {"254",
                                        "-2",
                                        "65534",
                                        "-2",
                                        "4294967294",
                                        "-2",
                                        "0.1",
                                        "true",
                                        "\"text\"",
                                        "",
                                        "18364758544493064720",
                                        "-2",
                                        "0.3333333333333333"};
    gguf_writer w = all_value_types();
    crumb_gguf *g = open_sound(&w);
    assert_int_equal(crumb_gguf_n_values(g), 24);
    assert_int_equal(crumb_gguf_version(g), 3);
    assert_string_equal(crumb_gguf_path(g), "mem.gguf");
    for (int type = 0; type < CRUMB_GGUF_VALUE_TYPE_COUNT; type++) {
        char key[16], text[200], want[200];
        if (type == CRUMB_GGUF_ARRAY) continue;
        snprintf(key, sizeof key, "v.%d", type);
        assert_non_null(crumb_gguf_find(g, key));
        assert_int_equal(crumb_gguf_find(g, key)->type, type);
        crumb_gguf_value_text(crumb_gguf_find(g, key), 40, 3, text, sizeof text);
        assert_string_equal(text, texts[type]);
        snprintf(key, sizeof key, "a.%d", type);
        const crumb_gguf_value *array;
        assert_int_equal(crumb_gguf_get_array(g, key, true, (crumb_gguf_value_type)type, &array, NULL), CRUMB_OK);
        assert_int_equal(array->array.n, 3);
        crumb_gguf_value_text(array, 40, 2, text, sizeof text);
        if (type == CRUMB_GGUF_STRING)
            snprintf(want, sizeof want, "[3] = {\"item\", \"\", ...}");
        else
            snprintf(want, sizeof want, "[3] = {%s, %s, ...}", texts[type], texts[type]);
        assert_string_equal(text, want);
    }
    assert_null(crumb_gguf_find(g, "v"));
    assert_null(crumb_gguf_find(g, "v.99"));
    assert_null(crumb_gguf_find(g, ""));
    crumb_gguf_close(g);
    gguf_writer_free(&w);
}

static void typed_reads_check_type_and_range(void **state) {
    (void)state;
    gguf_writer w = all_value_types();
    gguf_put_key(&w, "nan", CRUMB_GGUF_F64);
    gguf_put(&w, &(double){NAN}, 8);
    gguf_put_key(&w, "huge", CRUMB_GGUF_F64);
    gguf_put(&w, &(double){1e300}, 8);
    gguf_put_key(&w, "large", CRUMB_GGUF_I64);
    gguf_put_u64(&w, INT64_MAX);
    crumb_gguf *g = open_sound(&w);
    crumb_error err = {0};
    uint32_t u = 7;
    int32_t i = 7;
    float f = 7;
    bool b = false;
    crumb_bytes s = {"x", 1};
    const crumb_gguf_value *array;

    assert_int_equal(crumb_gguf_get_u32(g, "v.0", true, &u, &err), CRUMB_OK);
    assert_int_equal(u, 254);
    assert_int_equal(crumb_gguf_get_i32(g, "v.11", true, &i, &err), CRUMB_OK);
    assert_int_equal(i, -2);
    assert_int_equal(crumb_gguf_get_f32(g, "v.6", true, &f, &err), CRUMB_OK);
    assert_true(f == 0.1f);
    assert_int_equal(crumb_gguf_get_f32(g, "v.12", true, &f, &err), CRUMB_OK);
    assert_true(f == (float)(1.0 / 3));
    assert_int_equal(crumb_gguf_get_bool(g, "v.7", true, &b, &err), CRUMB_OK);
    assert_true(b);
    assert_int_equal(crumb_gguf_get_string(g, "v.8", true, &s, &err), CRUMB_OK);
    assert_int_equal(s.size, 4);
    assert_memory_equal(s.data, "text", 4);

    u = 7;
    assert_int_equal(crumb_gguf_get_u32(g, "absent", false, &u, &err), CRUMB_OK);
    assert_int_equal(u, 7); /* the default stays */
    assert_int_equal(crumb_gguf_get_u32(g, "absent", true, &u, &err), CRUMB_ERR_FORMAT);
    assert_message(err, "'absent' is missing");
    assert_int_equal(crumb_gguf_get_u32(g, "v.1", true, &u, &err), CRUMB_ERR_FORMAT);
    assert_message(err, "'v.1' is out of range (0 to 4294967295)");
    assert_int_equal(crumb_gguf_get_u32(g, "v.10", true, &u, &err), CRUMB_ERR_FORMAT);
    assert_int_equal(crumb_gguf_get_i32(g, "large", true, &i, &err), CRUMB_ERR_FORMAT);
    assert_int_equal(crumb_gguf_get_i32(g, "v.10", true, &i, &err), CRUMB_ERR_FORMAT);
    assert_int_equal(crumb_gguf_get_u32(g, "v.8", true, &u, &err), CRUMB_ERR_FORMAT);
    assert_message(err, "'v.8' is of type string, not an integer");
    assert_int_equal(crumb_gguf_get_f32(g, "v.4", true, &f, &err), CRUMB_ERR_FORMAT);
    assert_int_equal(crumb_gguf_get_f32(g, "nan", true, &f, &err), CRUMB_ERR_FORMAT);
    assert_int_equal(crumb_gguf_get_f32(g, "huge", true, &f, &err), CRUMB_ERR_FORMAT);
    assert_int_equal(crumb_gguf_get_bool(g, "v.0", true, &b, &err), CRUMB_ERR_FORMAT);
    assert_int_equal(crumb_gguf_get_string(g, "a.8", true, &s, &err), CRUMB_ERR_FORMAT);
    assert_int_equal(crumb_gguf_get_array(g, "a.8", true, CRUMB_GGUF_F32, &array, &err), CRUMB_ERR_FORMAT);
    assert_message(err, "'a.8' is not an array of f32");
    assert_int_equal(crumb_gguf_get_array(g, "absent", false, CRUMB_GGUF_F32, &array, &err), CRUMB_OK);
    assert_null(array);
    crumb_gguf_close(g);
    gguf_writer_free(&w);
}

static void strings_are_escaped_and_cut(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size, max;
        const char *want;
    } cases[] = {
        {"plain", 5, 10, "\"plain\""},
        {"say \"hi\"\\", 9, 20, "\"say \\\"hi\\\"\\\\\""},
        {"a\x1b[2J\n\t\0z", 9, 20, "\"a\\x1b[2J\\n\\t\\x00z\""},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", 9, 20, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\""},
        {"\xc2\x9b"
         "1m",
         4, 20, "\"\\xc2\\x9b1m\""}, /* C1 control sequence introducer */
        {"\xff\xc3", 2, 20, "\"\\xff\\xc3\""},
        {"\xc0\x80\xed\xa0\x80\xf5\x80\x80\x80", 9, 20, "\"\\xc0\\x80\\xed\\xa0\\x80\\xf5\\x80\\x80\\x80\""},
        {"0123456789", 10, 4, "\"0123\"..."},
        {"012\xc3\xa9"
         "6789",
         9, 4, "\"012\xc3\xa9\"..."}, /* never inside a character */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        crumb_gguf_value v = {.type = CRUMB_GGUF_STRING, .string = {cases[i].bytes, cases[i].size}};
        char text[100], small[4];
        size_t n = crumb_gguf_value_text(&v, cases[i].max, 1, text, sizeof text);
        assert_string_equal(text, cases[i].want);
        assert_int_equal(n, strlen(text));
        assert_int_equal(crumb_gguf_value_text(&v, cases[i].max, 1, small, sizeof small), n);
        assert_int_equal(small[3], 0);
        assert_memory_equal(small, text, 3);
    }
}

static void floats_read_back(void **state) {
    (void)state;
    static const struct {
        float f;
        const char *want;
    } cases[] = {{1e-5f, "1e-05"}, {0.1f, "0.1"}, {16777217.0f, "16777216"}, {3.4028235e38f, "3.4028235e+38"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        crumb_gguf_value v = {.type = CRUMB_GGUF_F32, .f = (double)cases[i].f};
        char text[40];
        crumb_gguf_value_text(&v, 1, 1, text, sizeof text);
        assert_string_equal(text, cases[i].want);
    }
}

static void tensors_have_places_and_types(void **state) {
    (void)state;
    gguf_writer w = gguf_writer_begin();
    gguf_patch_u32(&w, GGUF_AT_VERSION, 2);
    gguf_key_u32(&w, "general.alignment", 64);
    gguf_put_tensor(&w, "b", 2, 2, (uint64_t[]){64, 3}, 128); /* out of order on purpose */
    gguf_put_tensor(&w, "a", 0, 1, (uint64_t[]){5}, 0);
    gguf_put_tensor(&w, "k", 23, 1, (uint64_t[]){256}, 64); /* IQ4_XS: listed, not run */
    gguf_put_tensor(&w, "x", 7777, 1, (uint64_t[]){256}, 256);
    uint8_t data[257];
    for (int i = 0; i < 257; i++) data[i] = (uint8_t)i;
    gguf_put_data(&w, 64, data, sizeof data);
    crumb_gguf *g = open_sound(&w);
    crumb_error err = {0};
    char name[24];
    const crumb_gguf_tensor *t, *b = crumb_gguf_find_tensor(g, "b"), *k = crumb_gguf_find_tensor(g, "k");
    assert_int_equal(crumb_gguf_version(g), 2);
    assert_int_equal(crumb_gguf_n_tensors(g), 4);
    assert_ptr_equal(crumb_gguf_tensor_at(g, 0), b);
    assert_int_equal(b->type, CRUMB_TYPE_Q4_0);
    assert_int_equal(b->n_bytes, 3 * 2 * 18);
    assert_int_equal(b->dims[1] * b->dims[2] * b->dims[3], 3);
    assert_int_equal(crumb_gguf_tensor_data(g, b)[0], 128);
    assert_int_equal(crumb_gguf_data_bytes(g), 108 + 20);
    assert_false(k->supported);
    assert_string_equal(crumb_gguf_tensor_type_name(k, name), "IQ4_XS");
    assert_string_equal(crumb_gguf_tensor_type_name(b, name), "Q4_0");
    assert_string_equal(crumb_gguf_tensor_type_name(crumb_gguf_find_tensor(g, "x"), name), "type 7777");
    assert_null(crumb_gguf_find_tensor(g, "c"));
    assert_int_equal(crumb_gguf_require_tensor(g, "b", &t, &err), CRUMB_OK);
    assert_ptr_equal(t, b);
    assert_int_equal(crumb_gguf_require_tensor(g, "c", &t, &err), CRUMB_ERR_FORMAT);
    assert_message(err, "'c' is missing");
    assert_int_equal(crumb_gguf_require_tensor(g, "k", &t, &err), CRUMB_ERR_UNSUPPORTED);
    assert_message(err, "tensor 'k': type IQ4_XS (id 23) is not supported");
    assert_int_equal(crumb_gguf_require_tensor(g, "x", &t, &err), CRUMB_ERR_UNSUPPORTED);
    assert_message(err, "7777");
    crumb_gguf_close(g);
    gguf_writer_free(&w);
}

/* A file whose tensors of a type id, of n weights each, take bytes_per_256 and are padded to `alignment`. */
static crumb_gguf *open_dense(gguf_writer *w, uint32_t id, size_t n_tensors, const uint64_t *n_weights,
                              uint64_t bytes_per_256, uint64_t alignment) {
    uint64_t offset = 0, end = 0;
    *w = gguf_writer_begin();
    gguf_key_u32(w, "general.alignment", (uint32_t)alignment);
    for (size_t i = 0; i < n_tensors; i++) {
        char name[8];
        snprintf(name, sizeof name, "t%zu", i);
        gguf_put_tensor(w, name, id, 1, &n_weights[i], offset);
        end = offset + n_weights[i] * bytes_per_256 / 256;
        offset = (end + alignment - 1) / alignment * alignment;
    }
    gguf_put_data(w, (size_t)alignment, NULL, (size_t)end);
    return open_sound(w);
}

static void ids_with_several_meanings_are_told_apart_by_spans(void **state) {
    (void)state;
    static const uint64_t large[] = {2048, 4096}, small_then_large[] = {256, 8192}, small[] = {256, 256};
    static const struct {
        const uint64_t *n_weights;
        uint64_t bytes_per_256, alignment;
        int type; /* -1: refused */
        const char *message;
    } cases[] = {
        {large, 72, 32, CRUMB_TYPE_Q2_0_G64, NULL},
        {large, 68, 32, CRUMB_TYPE_Q2_0_G128, NULL},
        {large, 42, 32, -1, "42 bytes per 256 weights"},
        {large, 80, 32, -1, "several meanings"},
        {small_then_large, 72, 32, CRUMB_TYPE_Q2_0_G64, NULL}, /* the large one decides for both */
        {small_then_large, 68, 32, CRUMB_TYPE_Q2_0_G128, NULL},
        {small, 72, 32, -1, "several meanings"}, /* 72 and 68 both fill 96 bytes */
        {small, 72, 4, CRUMB_TYPE_Q2_0_G64, NULL},
        {large, 72, 4096, -1, "several meanings"},
        {large, 136, 32, CRUMB_TYPE_MXFP4, NULL},
        {large, 54, 32, -1, "TL2"}, /* about what the old fork's type takes */
        {small_then_large, 54, 32, -1, "TL2"},
    };
    const size_t first_of_id_39 = 9;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_writer w;
        crumb_error err = {0};
        const crumb_gguf_tensor *t;
        crumb_gguf *g = open_dense(&w, i < first_of_id_39 ? 42 : 39, 2, cases[i].n_weights, cases[i].bytes_per_256,
                                   cases[i].alignment);
        crumb_status status = crumb_gguf_require_tensor(g, "t1", &t, &err);
        assert_int_equal(t->supported, cases[i].type >= 0);
        assert_int_equal(crumb_gguf_tensor_at(g, 0)->supported, cases[i].type >= 0);
        assert_int_equal(status, cases[i].type >= 0 ? CRUMB_OK : CRUMB_ERR_UNSUPPORTED);
        if (cases[i].type >= 0)
            assert_int_equal(t->type, cases[i].type);
        else
            assert_message(err, cases[i].message);
        crumb_gguf_close(g);
        gguf_writer_free(&w);
    }
}

/* ---- files ---- */

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/crumb-gguf-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static const char *in_folder(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Part i of n: one tensor "t<i>" of four floats, all i. */
static void save_part(const char *name, uint16_t i, uint16_t n, uint32_t n_tensors, const char *tensor) {
    gguf_writer w = gguf_writer_begin();
    float values[4] = {i, i, i, i};
    gguf_key_u16(&w, "split.no", i);
    gguf_key_u16(&w, "split.count", n);
    gguf_key_u32(&w, "split.tensors.count", n_tensors);
    gguf_key_string(&w, "which", i == 0 ? "first" : "other");
    gguf_put_tensor(&w, tensor, 0, 1, (uint64_t[]){4}, 0);
    gguf_put_data(&w, 32, values, sizeof values);
    gguf_save(&w, in_folder(name));
    gguf_writer_free(&w);
}

static void expect_open_failure(const char *name, crumb_status status, const char *message) {
    crumb_gguf *g;
    crumb_error err = {0};
    assert_int_equal(crumb_gguf_open(in_folder(name), &g, &err), status);
    assert_null(g);
    assert_message(err, message);
    assert_message(err, folder);
}

static void split_files_are_one_model(void **state) {
    (void)state;
    save_part("m-00001-of-00003.gguf", 0, 3, 3, "t0");
    save_part("m-00002-of-00003.gguf", 1, 3, 3, "t1");
    expect_open_failure("m-00001-of-00003.gguf", CRUMB_ERR_IO, "m-00003-of-00003.gguf");
    save_part("m-00003-of-00003.gguf", 2, 3, 3, "t2");
    crumb_gguf *g;
    crumb_error err = {0};
    if (crumb_gguf_open(in_folder("m-00001-of-00003.gguf"), &g, &err) != CRUMB_OK) fail_msg("%s", err.message);
    assert_int_equal(crumb_gguf_n_tensors(g), 3);
    assert_int_equal(crumb_gguf_find(g, "which")->string.size, 5);
    assert_memory_equal(crumb_gguf_find(g, "which")->string.data, "first", 5);
    for (uint32_t i = 0; i < 3; i++) {
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(g, i);
        float values[4];
        assert_int_equal(t->part, i);
        memcpy(values, crumb_gguf_tensor_data(g, t), 16);
        assert_true(values[3] == (float)i);
        crumb_gguf_tensor_release(g, t);
    }
    crumb_gguf_close(g);
}

static void wrong_parts_are_refused(void **state) {
    (void)state;
    save_part("w-00001-of-00002.gguf", 0, 2, 2, "t0");
    save_part("w-00002-of-00002.gguf", 0, 2, 2, "t1"); /* split.no says it is the first */
    expect_open_failure("w-00001-of-00002.gguf", CRUMB_ERR_FORMAT, "split.no");
    save_part("w-00002-of-00002.gguf", 1, 2, 2, "t0");
    expect_open_failure("w-00001-of-00002.gguf", CRUMB_ERR_FORMAT, "'t0' occurs twice");
    expect_open_failure("w-00002-of-00002.gguf", CRUMB_ERR_ARGUMENT, "give the first part");
    save_part("w-00001-of-00002.gguf", 0, 2, 9, "t0");
    save_part("w-00002-of-00002.gguf", 1, 2, 9, "t1");
    expect_open_failure("w-00001-of-00002.gguf", CRUMB_ERR_FORMAT, "'split.tensors.count' is 9, but the parts have 2");
    save_part("renamed.gguf", 0, 2, 2, "t0");
    expect_open_failure("renamed.gguf", CRUMB_ERR_FORMAT, "must be named *-00001-of-00002.gguf");
    gguf_writer w = gguf_writer_begin();
    gguf_key_u32(&w, "split.count", UINT32_MAX);
    gguf_save(&w, in_folder("many.gguf"));
    expect_open_failure("many.gguf", CRUMB_ERR_FORMAT, "at most 99999 parts");
    gguf_writer_free(&w);
}

static void what_is_no_file_is_refused(void **state) {
    (void)state;
    expect_open_failure("missing.gguf", CRUMB_ERR_IO, "No such file");
    expect_open_failure("", CRUMB_ERR_IO, "is a directory");
    close(open(in_folder("empty.gguf"), O_CREAT | O_WRONLY, 0600));
    expect_open_failure("empty.gguf", CRUMB_ERR_FORMAT, "is empty");
    close(open(in_folder("secret.gguf"), O_CREAT | O_WRONLY, 0));
    if (geteuid() != 0) expect_open_failure("secret.gguf", CRUMB_ERR_IO, "Permission denied");
    assert_int_equal(mkfifo(in_folder("pipe.gguf"), 0600), 0);
    int keep = open(in_folder("pipe.gguf"), O_RDWR); /* so that opening it does not wait for a writer */
    expect_open_failure("pipe.gguf", CRUMB_ERR_IO, "not a regular file");
    close(keep);
}

typedef struct reading {
    const crumb_gguf *g;
    uint64_t sum;
} reading;

static crumb_status read_all_data(void *ctx, crumb_error *err) {
    (void)err;
    reading *r = ctx;
    const crumb_gguf_tensor *t = crumb_gguf_tensor_at(r->g, 0);
    const volatile uint8_t *data = crumb_gguf_tensor_data(r->g, t);
    for (uint64_t i = 0; i < t->n_bytes; i++) r->sum += data[i];
    return CRUMB_OK;
}

static void a_file_that_shrinks_keeps_its_metadata(void **state) {
    (void)state;
    gguf_writer w = gguf_writer_begin();
    gguf_key_string(&w, "k", "value");
    gguf_put_tensor(&w, "t", 0, 1, (uint64_t[]){100000}, 0);
    gguf_put_data(&w, 32, NULL, 400000);
    gguf_save(&w, in_folder("shrinks.gguf"));
    gguf_writer_free(&w);
    reading r = {0};
    crumb_gguf *g;
    crumb_error err = {0};
    assert_int_equal(crumb_gguf_open(in_folder("shrinks.gguf"), &g, &err), CRUMB_OK);
    r.g = g;
    assert_int_equal(crumb_file_guard(crumb_gguf_path(g), read_all_data, &r, &err), CRUMB_OK);
    assert_int_equal(truncate(in_folder("shrinks.gguf"), 0), 0);
    assert_int_equal(crumb_file_guard(crumb_gguf_path(g), read_all_data, &r, &err), CRUMB_ERR_IO);
    assert_message(err, "shrinks.gguf");
    assert_memory_equal(crumb_gguf_find(g, "k")->string.data, "value", 5);
    assert_non_null(crumb_gguf_find_tensor(g, "t"));
    crumb_gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_value_types_are_read),
        cmocka_unit_test(typed_reads_check_type_and_range),
        cmocka_unit_test(strings_are_escaped_and_cut),
        cmocka_unit_test(floats_read_back),
        cmocka_unit_test(tensors_have_places_and_types),
        cmocka_unit_test(ids_with_several_meanings_are_told_apart_by_spans),
        cmocka_unit_test(split_files_are_one_model),
        cmocka_unit_test(wrong_parts_are_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(a_file_that_shrinks_keeps_its_metadata),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
