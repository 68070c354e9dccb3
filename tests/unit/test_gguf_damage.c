/* Damaged and hostile GGUF files: each is refused with a message that names what is wrong, and costs no memory. */
#include "host/base/memory.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/random_tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void expect(gguf_writer *w, crumb_status status, const char *message) {
    crumb_gguf *g;
    crumb_error err = {0};
    crumb_status got = crumb_gguf_open_memory(w->data, w->size, "bad.gguf", &g, &err);
    if (got != status || !strstr(err.message, message) || !strstr(err.message, "bad.gguf"))
        fail_msg("expected %s with '%s', got %s: '%s'", crumb_status_name(status), message, crumb_status_name(got),
                 err.message);
    assert_null(g);
    gguf_writer_free(w);
}

static void header_fields(void **state) {
    (void)state;
    static const struct {
        uint32_t version;
        const char *message;
    } versions[] = {{0, "version 0"}, {1, "version 1"}, {4, "version 4"}, {0x03000000, "big-endian"}};
    gguf_writer w = gguf_writer_begin();
    w.data[3] = 'X';
    expect(&w, CRUMB_ERR_FORMAT, "not a GGUF file");
    for (int i = 0; i < 4; i++) {
        w = gguf_writer_begin();
        gguf_patch_u32(&w, GGUF_AT_VERSION, versions[i].version);
        expect(&w, CRUMB_ERR_UNSUPPORTED, versions[i].message);
    }
}

/* 2^63 and its like in every length and count, without the memory that they claim. */
static void huge_lengths(void **state) {
    (void)state;
    static const uint64_t huge[] = {UINT64_C(1) << 63, UINT64_MAX, UINT64_C(1) << 61, (UINT64_C(1) << 63) - 1, 1 << 30};
    uint64_t peak = crumb_memory_peak_bytes();
    for (int i = 0; i < 5; i++) {
        for (int count = 0; count < 2; count++) {
            gguf_writer w = gguf_writer_begin();
            gguf_key_u32(&w, "a.key", 1);
            gguf_patch_u64(&w, count ? GGUF_AT_N_VALUES : GGUF_AT_N_TENSORS, huge[i]);
            expect(&w, CRUMB_ERR_FORMAT, "cannot lie in");
        }
        gguf_writer w = gguf_writer_begin();
        gguf_key_u32(&w, "a.key", 1);
        gguf_patch_u64(&w, GGUF_HEADER_BYTES, huge[i]); /* the key's length */
        expect(&w, CRUMB_ERR_FORMAT, "key at offset");
        w = gguf_writer_begin();
        gguf_put_key(&w, "a.key", CRUMB_GGUF_STRING);
        gguf_put_u64(&w, huge[i]);
        expect(&w, CRUMB_ERR_FORMAT, "the string of 'a.key'");
        for (uint32_t type = 0; type < CRUMB_GGUF_VALUE_TYPE_COUNT; type++) {
            if (type == CRUMB_GGUF_ARRAY) continue;
            w = gguf_writer_begin();
            gguf_put_array(&w, "a.key", (crumb_gguf_value_type)type, huge[i]);
            gguf_put(&w, NULL, 64);
            expect(&w, CRUMB_ERR_FORMAT, "of 'a.key'");
        }
        w = gguf_writer_begin();
        gguf_put_array(&w, "a.key", CRUMB_GGUF_STRING, 1);
        gguf_put_u64(&w, huge[i]);
        expect(&w, CRUMB_ERR_FORMAT, "a string of 'a.key'");
        w = gguf_writer_begin();
        gguf_put_tensor(&w, "a.tensor", 0, 1, (uint64_t[]){8}, 0);
        gguf_patch_u64(&w, GGUF_HEADER_BYTES, huge[i]);
        expect(&w, CRUMB_ERR_FORMAT, "tensor name at offset");
        w = gguf_writer_begin();
        gguf_put_tensor(&w, "a.tensor", 0, 1, (uint64_t[]){8}, huge[i] / 32 * 32);
        gguf_put_data(&w, 32, NULL, 32);
        expect(&w, CRUMB_ERR_FORMAT, "'a.tensor' begins at offset");
        w = gguf_writer_begin();
        gguf_put_tensor(&w, "a.tensor", 0, 1, &huge[i], 0);
        gguf_put_data(&w, 32, NULL, 32);
        expect(&w, CRUMB_ERR_FORMAT, "'a.tensor'");
    }
    assert_true(crumb_memory_peak_bytes() < peak + (8 << 20));
}

static void bad_values(void **state) {
    (void)state;
    gguf_writer w = gguf_writer_begin();
    gguf_put_key(&w, "k", (crumb_gguf_value_type)13);
    gguf_put(&w, NULL, 64);
    expect(&w, CRUMB_ERR_FORMAT, "key 'k' has value type 13");
    w = gguf_writer_begin();
    gguf_put_array(&w, "k", (crumb_gguf_value_type)0x80000000, 1);
    gguf_put(&w, NULL, 64);
    expect(&w, CRUMB_ERR_FORMAT, "key 'k' has value type 2147483648");
    w = gguf_writer_begin();
    gguf_put_array(&w, "k", CRUMB_GGUF_ARRAY, 1);
    gguf_put(&w, NULL, 64);
    expect(&w, CRUMB_ERR_UNSUPPORTED, "key 'k' is an array of arrays");
    w = gguf_writer_begin();
    gguf_put_key(&w, "k", CRUMB_GGUF_BOOL);
    gguf_put(&w, "\2", 1);
    expect(&w, CRUMB_ERR_FORMAT, "key 'k': 2 is not a bool");
    w = gguf_writer_begin();
    gguf_put_array(&w, "k", CRUMB_GGUF_BOOL, 3);
    gguf_put(&w, "\0\1\xff", 3);
    expect(&w, CRUMB_ERR_FORMAT, "key 'k': 255 is not a bool");
}

static void bad_names(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        uint64_t size;
    } names[] = {{"a\0b", 3}, {"a\nb", 3}, {"\x1b[2J", 4}, {"a\x7f", 2}, {"", 0}};
    for (int i = 0; i < 5; i++) {
        gguf_writer w = gguf_writer_begin();
        gguf_patch_u64(&w, GGUF_AT_N_TENSORS, 1);
        gguf_put_u64(&w, names[i].size);
        gguf_put(&w, names[i].bytes, names[i].size);
        gguf_put(&w, NULL, 64);
        expect(&w, CRUMB_ERR_FORMAT, "the tensor name at offset 24");
        w = gguf_writer_begin();
        gguf_patch_u64(&w, GGUF_AT_N_VALUES, 1);
        gguf_put_u64(&w, names[i].size);
        gguf_put(&w, names[i].bytes, names[i].size);
        gguf_put(&w, NULL, 64);
        expect(&w, CRUMB_ERR_FORMAT, "the key at offset 24");
    }
}

static void duplicates(void **state) {
    (void)state;
    gguf_writer w = gguf_writer_begin();
    gguf_key_u32(&w, "twice", 1);
    gguf_key_u32(&w, "once", 1);
    gguf_key_u32(&w, "twice", 1);
    expect(&w, CRUMB_ERR_FORMAT, "key 'twice' occurs twice");
    w = gguf_writer_begin();
    gguf_put_tensor(&w, "twice", 0, 1, (uint64_t[]){8}, 0);
    gguf_put_tensor(&w, "twice", 0, 1, (uint64_t[]){8}, 32);
    gguf_put_data(&w, 32, NULL, 64);
    expect(&w, CRUMB_ERR_FORMAT, "tensor 'twice' occurs twice");
}

static void bad_alignments(void **state) {
    (void)state;
    for (uint32_t alignment = 0; alignment < 100; alignment += alignment ? 9 : 3) { /* 0, 3, 12, 21 ... */
        gguf_writer w = gguf_writer_begin();
        gguf_key_u32(&w, "general.alignment", alignment);
        expect(&w, CRUMB_ERR_FORMAT, "'general.alignment'");
    }
    gguf_writer w = gguf_writer_begin();
    gguf_key_u16(&w, "general.alignment", 32);
    expect(&w, CRUMB_ERR_FORMAT, "'general.alignment'");
    w = gguf_writer_begin();
    gguf_key_u32(&w, "general.alignment", UINT32_C(1) << 31);
    gguf_put_tensor(&w, "t", 0, 1, (uint64_t[]){8}, 0);
    gguf_put(&w, NULL, 64);
    expect(&w, CRUMB_ERR_FORMAT, "'t' begins at offset 2147483648");
}

/* One or two tensors, then `n_bytes` of data. */
typedef struct tensor_case {
    uint32_t type_id, n_dims;
    uint64_t dims[5], offset;
    uint64_t second_offset; /* of a tensor "u" of 8 floats; 0: none */
    size_t n_bytes;
    const char *message;
} tensor_case;

static void bad_tensors(void **state) {
    (void)state;
    static const tensor_case cases[] = {
        {0, 0, {0}, 0, 0, 64, "'t' has 0 dimensions"},
        {0, 5, {1, 1, 1, 1, 1}, 0, 0, 64, "'t' has 5 dimensions"},
        {0, 2, {8, 0}, 0, 0, 64, "'t': dimension 1 is zero"},
        {0, 1, {0}, 0, 0, 64, "'t': dimension 0 is zero"},
        {0, 2, {UINT64_C(1) << 32, UINT64_C(1) << 32}, 0, 0, 64, "'t': the product of its dimensions overflows"},
        {0, 2, {UINT64_C(1) << 32, UINT64_C(1) << 31}, 0, 0, 64, "'t': the product of its dimensions overflows"},
        {0, 4, {3, UINT64_C(1) << 31, UINT64_C(1) << 31, 1 << 30}, 0, 0, 64, "product of its dimensions overflows"},
        {0, 2, {1, (UINT64_C(1) << 62) + 1}, 0, 0, 64, "'t': the size of"},
        {2, 1, {33}, 0, 0, 64, "'t': rows of 33 weights are not whole Q4_0 blocks of 32"},
        {36, 1, {64}, 0, 0, 64, "'t': rows of 64 weights are not whole I2_S blocks of 128"},
        {36, 1, {128}, 0, 0, 63, "'t' needs 64 bytes at offset"}, /* the scale's padding counts */
        {0, 1, {8}, 8, 0, 64, "'t': offset 8 is not a multiple of 32"},
        {0, 1, {8}, 64, 0, 64, "'t' begins at offset"},
        {0, 1, {9}, 32, 0, 64, "'t' needs 36 bytes at offset"},
        {0, 1, {9}, 0, 32, 64, "only 32 lie before the next tensor"}, /* overlap */
        {0, 1, {8}, 32, 32, 64, "only 0 lie before the next tensor"}, /* the same place */
        {13, 1, {256}, 32, 32, 64, "only 0 lie before the next tensor"},
        {0, 1, {8}, UINT64_MAX - 31, 0, 64, "'t' begins at offset"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tensor_case *c = &cases[i];
        gguf_writer w = gguf_writer_begin();
        gguf_put_tensor(&w, "t", c->type_id, c->n_dims, c->dims, c->offset);
        if (c->second_offset) gguf_put_tensor(&w, "u", 0, 1, (uint64_t[]){8}, c->second_offset);
        gguf_put_data(&w, 32, NULL, c->n_bytes);
        expect(&w, CRUMB_ERR_FORMAT, c->message);
    }
}

/* A file with all kinds of things in it, and some data. */
static gguf_writer small_model(size_t *header_bytes) {
    gguf_writer w = gguf_writer_begin();
    gguf_key_string(&w, "general.architecture", "llama");
    gguf_key_u32(&w, "llama.block_count", 2);
    gguf_put_array(&w, "tokenizer.ggml.tokens", CRUMB_GGUF_STRING, 3);
    gguf_put_string(&w, "a");
    gguf_put_string(&w, "");
    gguf_put_string(&w, "bc");
    gguf_put_array(&w, "tokenizer.ggml.scores", CRUMB_GGUF_F32, 3);
    gguf_put(&w, NULL, 12);
    gguf_put_tensor(&w, "token_embd.weight", 8, 2, (uint64_t[]){64, 3}, 0);
    gguf_put_tensor(&w, "blk.0.attn_q.weight", 35, 2, (uint64_t[]){256, 2}, 224);
    gguf_put_tensor(&w, "output_norm.weight", 0, 1, (uint64_t[]){64}, 384);
    *header_bytes = w.size;
    gguf_put_data(&w, 32, NULL, 384 + 256);
    return w;
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    size_t header_bytes;
    gguf_writer whole = small_model(&header_bytes);
    crumb_gguf *g;
    crumb_error err = {0};
    if (crumb_gguf_open_memory(whole.data, whole.size, "whole.gguf", &g, &err) != CRUMB_OK) fail_msg("%s", err.message);
    crumb_gguf_close(g);
    for (size_t size = 1; size < whole.size; size++) {
        gguf_writer cut = {0}; /* exactly so large, for the sanitizer */
        gguf_put(&cut, whole.data, size);
        expect(&cut, CRUMB_ERR_FORMAT, size < 4 ? "GGUF magic" : "damaged");
    }
    gguf_writer_free(&whole);
}

/* On disk the mapping's last page hides small overruns, but the length is what fstat says. */
static void truncated_files_are_refused(void **state) {
    (void)state;
    size_t header_bytes;
    gguf_writer w = small_model(&header_bytes);
    gguf_put(&w, NULL, 100000);
    gguf_patch_u64(&w, header_bytes - 8 - 4 - 8, 64 + 25000); /* output_norm grows to the file's end */
    char path[] = "/tmp/crumb-gguf-XXXXXX";
    close(mkstemp(path));
    gguf_save(&w, path);
    crumb_gguf *g;
    crumb_error err = {0};
    if (crumb_gguf_open(path, &g, &err) != CRUMB_OK) fail_msg("%s", err.message);
    crumb_gguf_close(g);
    for (int percent = 99; percent >= 0; percent--) {
        assert_int_equal(truncate(path, (off_t)(w.size * (size_t)percent / 100)), 0);
        assert_int_equal(crumb_gguf_open(path, &g, &err), CRUMB_ERR_FORMAT);
        assert_non_null(strstr(err.message, path));
    }
    unlink(path);
    gguf_writer_free(&w);
}

/* Any byte may be anything: opening fails cleanly or succeeds, and what succeeds can be walked. */
static void flipped_bytes_do_no_harm(void **state) {
    (void)state;
    size_t header_bytes;
    uint64_t seed = 42;
    gguf_writer whole = small_model(&header_bytes);
    for (size_t at = 0; at < header_bytes; at++)
        for (int i = 0; i < 8; i++) {
            crumb_gguf *g;
            crumb_error err = {0};
            uint8_t kept = whole.data[at];
            whole.data[at] = i < 4 ? (uint8_t)(kept ^ (0x81 >> i)) : (uint8_t)crumb_test_random(&seed);
            if (crumb_gguf_open_memory(whole.data, whole.size, "f", &g, &err) == CRUMB_OK) {
                for (size_t t = 0; t < crumb_gguf_n_tensors(g); t++) {
                    const crumb_gguf_tensor *tensor = crumb_gguf_tensor_at(g, t);
                    assert_true(tensor->offset + tensor->n_bytes <= whole.size);
                }
                crumb_gguf_close(g);
            } else {
                assert_true(err.message[0] != 0);
            }
            whole.data[at] = kept;
        }
    gguf_writer_free(&whole);
}

/* A file with 3 rows of k weights in one tensor of that type id, and n_bytes of data. NULL: it is refused, by FORMAT.
 */
static crumb_gguf *open_typed(gguf_writer *w, uint32_t id, uint64_t k, uint64_t n_bytes) {
    crumb_gguf *g;
    crumb_error err = {0};
    *w = gguf_writer_begin();
    gguf_put_tensor(w, "t", id, 2, (uint64_t[]){k, 3}, 0);
    gguf_put_data(w, 32, NULL, n_bytes);
    const crumb_status status = crumb_gguf_open_memory(w->data, w->size, "f", &g, &err);
    if (status != CRUMB_OK) {
        assert_int_equal(status, CRUMB_ERR_FORMAT);
        assert_non_null(strstr(err.message, "'t'"));
    }
    return g;
}

/* Of every type: all of its bytes, and whole blocks, or it does not run. */
static void types_do_not_run_with_less_than_they_need(void **state) {
    (void)state;
    static const uint32_t densities[] = {72, 68, 136};
    enum { K = 4096, ROWS = 3 };
    bool seen[CRUMB_TYPE_COUNT] = {false};
    for (uint32_t id = 0; id < 256; id++)
        for (int d = 0; d < 3; d++) {
            crumb_type type;
            uint64_t n_bytes;
            crumb_error err = {0};
            if (crumb_type_from_gguf(id, densities[d], &type, &err) != CRUMB_OK) continue;
            seen[type] = true;
            assert_int_equal(crumb_type_tensor_bytes(type, ROWS, K, &n_bytes, &err), CRUMB_OK);
            for (int damage = 0; damage < 3; damage++) { /* none, a byte less, a weight more */
                gguf_writer w;
                crumb_gguf *g = open_typed(&w, id, K + (damage == 2), n_bytes - (damage == 1));
                const crumb_gguf_tensor *t = g ? crumb_gguf_tensor_at(g, 0) : NULL;
                assert_int_equal(t && t->supported, damage == 0);
                if (t && t->supported) assert_true(t->type == type && t->n_bytes == n_bytes);
                crumb_gguf_close(g);
                gguf_writer_free(&w);
            }
        }
    for (int type = 0; type < CRUMB_TYPE_GGUF_COUNT; type++) assert_true(seen[type]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_fields),
        cmocka_unit_test(huge_lengths),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(bad_names),
        cmocka_unit_test(duplicates),
        cmocka_unit_test(bad_alignments),
        cmocka_unit_test(bad_tensors),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(flipped_bytes_do_no_harm),
        cmocka_unit_test(types_do_not_run_with_less_than_they_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
