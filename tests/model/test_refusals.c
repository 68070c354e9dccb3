/* What crumb would run wrongly it refuses: a sound tiny model is damaged in one place, and opening it must fail with
 * the right status and a message that names the key or tensor. */
#include "host/container/gguf.h"
#include "tests/model/fixture.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct file_bytes {
    uint8_t *data;
    size_t size;
    char path[64]; /* where it is written for crumb_model_open */
} file_bytes;

static file_bytes load(const char *model) {
    char path[256];
    snprintf(path, sizeof path, "tests/oracle/models/%s.gguf", model);
    file_bytes f = {0};
    f.data = read_whole_file(path, &f.size);
    return f;
}

/* Where a length-prefixed string starts (its bytes, behind the length). */
static uint8_t *find_string(const file_bytes *f, const char *text) {
    uint64_t length = strlen(text);
    uint8_t needle[8 + 128];
    memcpy(needle, &length, 8);
    memcpy(needle + 8, text, length);
    uint8_t *at = memmem(f->data, f->size, needle, 8 + length);
    if (!at) fail_msg("the model has no '%s'", text);
    return at + 8;
}

/* Replaces a string by one of the same length. */
static void rename_string(const file_bytes *f, const char *from, const char *to) {
    assert_int_equal(strlen(from), strlen(to));
    memcpy(find_string(f, from), to, strlen(to));
}

static void set_value(const file_bytes *f, const char *key, const void *value, size_t n_bytes) {
    memcpy(find_string(f, key) + strlen(key) + 4, value, n_bytes); /* behind the value's type */
}

static void set_u32(const file_bytes *f, const char *key, uint32_t value) {
    set_value(f, key, &value, sizeof value);
}

static void set_f32(const file_bytes *f, const char *key, float value) {
    set_value(f, key, &value, sizeof value);
}

/* A string of that key becomes one byte 0 and what follows. */
static void cut_value(const file_bytes *f, const char *key) {
    find_string(f, key)[strlen(key) + 4 + 8] = 0; /* behind the value's type and the string's length */
}

static void put_string(uint8_t **at, const char *text, size_t length) {
    uint64_t n = length;
    memcpy(*at, &n, 8);
    memcpy(*at + 8, text, length);
    *at += 8 + length;
}

enum { U32_TYPE = 4, STRING_TYPE = 8 };

/* Adds a key in front of the others, and a filler so that the tensors stay aligned. */
static void add_value(file_bytes *f, const char *key, uint32_t type, const char *text, uint32_t number) {
    static const char filler[] = "test.filler", fill[32] = {0};
    size_t n = 8 + strlen(key) + 4 + (type == STRING_TYPE ? 8 + strlen(text) : 4);
    size_t n_filler = 8 + strlen(filler) + 4 + 8;
    size_t padding = (32 - (n + n_filler) % 32) % 32, added = n + n_filler + padding;
    uint8_t *data = malloc(f->size + added);
    assert_non_null(data);
    memcpy(data, f->data, 24); /* magic, version, two counts */
    memcpy(data + 24 + added, f->data + 24, f->size - 24);
    uint64_t n_values;
    memcpy(&n_values, data + 16, 8);
    n_values += 2;
    memcpy(data + 16, &n_values, 8);
    uint8_t *at = data + 24;
    put_string(&at, key, strlen(key));
    memcpy(at, &type, 4);
    at += 4;
    if (type == STRING_TYPE) {
        put_string(&at, text, strlen(text));
    } else {
        memcpy(at, &number, 4);
        at += 4;
    }
    put_string(&at, filler, strlen(filler));
    const uint32_t string_type = STRING_TYPE;
    memcpy(at, &string_type, 4);
    at += 4;
    put_string(&at, fill, padding);
    free(f->data);
    f->data = data;
    f->size += added;
}

static void set_tensor_type(const file_bytes *f, const char *tensor, uint32_t type) {
    memcpy(find_string(f, tensor) + strlen(tensor) + 4 + 2 * 8, &type, 4); /* behind n_dims and two dims */
}

static void set_tensor_rows(const file_bytes *f, const char *tensor, uint64_t rows) {
    memcpy(find_string(f, tensor) + strlen(tensor) + 4 + 8, &rows, 8);
}

/* Opens the damaged model; it must fail as expected, naming `needle`. Frees the bytes. */
static void refuses(file_bytes *f, crumb_status expected, const char *needle) {
    snprintf(f->path, sizeof f->path, "/tmp/crumb-refusal-XXXXXX");
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, f->data, f->size), f->size);
    close(fd);
    crumb_model_params params = crumb_model_params_default();
    crumb_model *model = NULL;
    crumb_error err = {0};
    crumb_status status = crumb_model_open(f->path, &params, &model, &err);
    unlink(f->path);
    free(f->data);
    if (status == CRUMB_OK) crumb_model_close(model);
    if (status != expected) {
        fail_msg("expected '%s' about '%s', got '%s': %s", crumb_status_name(expected), needle,
                 crumb_status_name(status), err.message);
    }
    assert_null(model);
    assert_int_equal(err.status, expected);
    if (!strstr(err.message, needle)) fail_msg("'%s' does not name '%s'", err.message, needle);
    if (!strstr(err.message, f->path)) fail_msg("'%s' does not name the file", err.message);
}

static void architectures_and_transforms(void **state) {
    (void)state;
    file_bytes f = load("llama-q4_0");
    rename_string(&f, "llama", "lxama"); /* the first string "llama" is the architecture */
    refuses(&f, CRUMB_ERR_UNSUPPORTED, "lxama");
    f = load("llama-q4_0");
    add_value(&f, "prism.hadamard.block", U32_TYPE, NULL, 128);
    refuses(&f, CRUMB_ERR_UNSUPPORTED, "prism.hadamard.block");
    f = load("llama-q4_0");
    add_value(&f, "llama.rope.scaling.type", STRING_TYPE, "longrope", 0);
    refuses(&f, CRUMB_ERR_UNSUPPORTED, "llama.rope.scaling.type");
    f = load("llama-q4_0");
    add_value(&f, "llama.rope.scaling.type", STRING_TYPE, "yarn", 0);
    refuses(&f, CRUMB_ERR_FORMAT, "llama.rope.scaling.factor");
    f = load("qwen2-f16-yarn");
    add_value(&f, "qwen2.rope.scaling.yarn_log_multiplier", U32_TYPE, NULL, 1);
    refuses(&f, CRUMB_ERR_UNSUPPORTED, "yarn_log_multiplier");
    f = load("llama-q4_0");
    add_value(&f, "llama.expert_count", U32_TYPE, NULL, 8);
    refuses(&f, CRUMB_ERR_UNSUPPORTED, "llama.expert_count");
    f = load("bitnet-i2_s-relu2");
    rename_string(&f, "relu2", "tanh2");
    refuses(&f, CRUMB_ERR_UNSUPPORTED, "bitnet.hidden_activation");
    f = load("llama-q4_0");
    add_value(&f, "tokenizer.chat_template", STRING_TYPE, "{{ messages }}", 0);
    cut_value(&f, "tokenizer.chat_template");
    refuses(&f, CRUMB_ERR_FORMAT, "tokenizer.chat_template");
}

static void hyper_parameters(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        crumb_status expected;
        const char *needle;
    } cases[] = {
        {"llama.block_count", 0, CRUMB_ERR_FORMAT, "llama.block_count"},
        {"llama.block_count", 3, CRUMB_ERR_FORMAT, "blk.2."}, /* a layer that is not there */
        {"llama.block_count", 0x7fffffff, CRUMB_ERR_FORMAT, "block_count"},
        {"llama.embedding_length", 0, CRUMB_ERR_FORMAT, "llama.embedding_length"},
        {"llama.embedding_length", 96, CRUMB_ERR_FORMAT, "token_embd.weight"},
        {"llama.feed_forward_length", 64, CRUMB_ERR_FORMAT, "ffn_"},
        {"llama.attention.head_count", 0, CRUMB_ERR_FORMAT, "llama.attention.head_count"},
        {"llama.attention.head_count_kv", 0, CRUMB_ERR_FORMAT, "llama.attention.head_count_kv"},
        {"llama.attention.head_count_kv", 3, CRUMB_ERR_FORMAT, "llama.attention.head_count_kv"},
        {"llama.rope.dimension_count", 7, CRUMB_ERR_FORMAT, "llama.rope.dimension_count"},
        {"llama.rope.dimension_count", 64, CRUMB_ERR_FORMAT, "llama.rope.dimension_count"}, /* wider than a head */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_bytes f = load("llama-q4_0");
        set_u32(&f, cases[i].key, cases[i].value);
        refuses(&f, cases[i].expected, cases[i].needle);
    }
    file_bytes f = load("llama-q4_0");
    rename_string(&f, "llama.block_count", "llama.blocc_count");
    refuses(&f, CRUMB_ERR_FORMAT, "llama.block_count");
    f = load("llama-q4_0");
    set_f32(&f, "llama.attention.layer_norm_rms_epsilon", (float)(0.0 / 0.0));
    refuses(&f, CRUMB_ERR_FORMAT, "llama.attention.layer_norm_rms_epsilon");
    f = load("llama-q4_0");
    set_f32(&f, "llama.rope.freq_base", -1.0f);
    refuses(&f, CRUMB_ERR_FORMAT, "llama.rope.freq_base");
    f = load("llama-bf16");
    set_f32(&f, "llama.rope.scaling.factor", 0.0f);
    refuses(&f, CRUMB_ERR_FORMAT, "llama.rope.scaling.factor");
    f = load("qwen2-f16-yarn");
    set_f32(&f, "qwen2.rope.scaling.yarn_beta_fast", -1.0f);
    refuses(&f, CRUMB_ERR_FORMAT, "qwen2.rope.scaling.yarn_beta_fast");
    f = load("qwen2-f16-yarn");
    set_u32(&f, "qwen2.rope.scaling.original_context_length", 0);
    refuses(&f, CRUMB_ERR_FORMAT, "qwen2.rope.scaling.original_context_length");
}

static void tensors(void **state) {
    (void)state;
    static const char *const needed[] = {"token_embd.weight",   "output_norm.weight",       "blk.1.attn_norm.weight",
                                         "blk.1.attn_q.weight", "blk.0.attn_output.weight", "blk.1.ffn_up.weight"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        char other[64];
        snprintf(other, sizeof other, "%s", needed[i]);
        other[0] = 'x';
        file_bytes f = load("llama-q4_0");
        rename_string(&f, needed[i], other);
        refuses(&f, CRUMB_ERR_FORMAT, needed[i]);
    }
    file_bytes f = load("bitnet-b1.58-i2_s");
    rename_string(&f, "blk.1.ffn_sub_norm.weight", "blk.1.ffn_sux_norm.weight");
    refuses(&f, CRUMB_ERR_FORMAT, "blk.1.ffn_sub_norm.weight");
    f = load("qwen2-q5_0");
    rename_string(&f, "blk.1.attn_v.bias", "blk.1.attn_v.bios");
    refuses(&f, CRUMB_ERR_FORMAT, "blk.1.attn_v.bias");
    f = load("qwen3-q4_1");
    rename_string(&f, "blk.0.attn_k_norm.weight", "blk.0.attn_k_norn.weight");
    refuses(&f, CRUMB_ERR_FORMAT, "blk.0.attn_k_norm.weight");
    f = load("bitnet-tq2_0-scales");
    rename_string(&f, "blk.0.attn_q.scale", "blk.0.attn_q.twist"); /* something that crumb does not know to apply */
    refuses(&f, CRUMB_ERR_UNSUPPORTED, "blk.0.attn_q.twist");
    f = load("llama-q4_0");
    set_tensor_rows(&f, "blk.0.attn_k.weight", 16); /* of 24 */
    refuses(&f, CRUMB_ERR_FORMAT, "blk.0.attn_k.weight");
    f = load("llama-q4_0");
    set_tensor_type(&f, "blk.1.ffn_up.weight", 16); /* IQ2_XXS */
    refuses(&f, CRUMB_ERR_UNSUPPORTED, "blk.1.ffn_up.weight");
    f = load("llama-q4_0");
    set_tensor_type(&f, "blk.1.ffn_up.weight", 9999);
    refuses(&f, CRUMB_ERR_UNSUPPORTED, "blk.1.ffn_up.weight");
    f = load("llama-q4_0");
    set_tensor_rows(&f, "token_embd.weight", 69); /* the vocabulary has 70 pieces */
    refuses(&f, CRUMB_ERR_FORMAT, "token_embd.weight");
    f = load("llama-q4_1");
    set_tensor_rows(&f, "output.weight", 69);
    refuses(&f, CRUMB_ERR_FORMAT, "output.weight");
}

/* ---- numbers that are none ------------------------------------------------------------------------------------- */

/* A place in a tensor's bytes, and what damages it there. */
typedef struct damage {
    uint64_t at;
    uint8_t bytes[4];
    unsigned n;
} damage;

enum { MAX_DAMAGES = 8 };

/* Scale and min of the first and the last block, weights of dense tensors, codes of ternary ones: NaN or infinite, or a
 * code that stands for nothing. */
static unsigned damages_of(const crumb_gguf_tensor *t, damage out[MAX_DAMAGES]) {
    static const damage nan32 = {.bytes = {0, 0, 0xc0, 0x7f}, .n = 4}, infinite16 = {.bytes = {0, 0xfc}, .n = 2},
                        nan16 = {.bytes = {0, 0x7e}, .n = 2}, nan_bf16 = {.bytes = {0xc0, 0x7f}, .n = 2},
                        all_ones = {.bytes = {0xff}, .n = 1};
    const crumb_type_info *info = crumb_type_get_info(t->type);
    const uint64_t n_codes = t->n_bytes - (t->type == CRUMB_TYPE_I2_S ? 32 : 0),
                   blocks[] = {0, n_codes - info->block_bytes};
    unsigned n = 0;
    for (int i = 0; i < 2; i++) {
        const damage dense = t->type == CRUMB_TYPE_F32 ? nan32 : t->type == CRUMB_TYPE_F16 ? nan16 : nan_bf16;
        damage scale = info->bits == 0                        ? dense
                       : info->scale_kind == CRUMB_SCALE_E8M0 ? all_ones
                       : i                                    ? infinite16
                                                              : nan16;
        scale.at = blocks[i] + info->scale_offset;
        if (t->type != CRUMB_TYPE_I2_S) out[n++] = scale;
        if (info->has_min) out[n] = i ? nan16 : infinite16, out[n++].at = blocks[i] + info->min_offset;
        if (t->type == CRUMB_TYPE_I2_S || t->type == CRUMB_TYPE_TQ2_0) out[n] = all_ones, out[n++].at = blocks[i] + 5;
    }
    if (t->type == CRUMB_TYPE_I2_S) out[n] = nan32, out[n++].at = n_codes;
    return n;
}

static void damage_tensor(const char *model, const crumb_gguf_tensor *t) {
    damage damages[MAX_DAMAGES];
    const unsigned n = damages_of(t, damages);
    for (unsigned i = 0; i < n; i++) {
        file_bytes f = load(model);
        assert_true(damages[i].at + damages[i].n <= t->n_bytes);
        memcpy(f.data + t->offset + damages[i].at, damages[i].bytes, damages[i].n);
        refuses(&f, CRUMB_ERR_FORMAT, t->name);
    }
}

/* Of every type, as a matrix of a layer and as the embedding where there is one. */
static void numbers_that_are_none(void **state) {
    (void)state;
    bool seen[2][CRUMB_TYPE_COUNT] = {{false}};
    glob_t found;
    assert_int_equal(glob("tests/oracle/models/*.gguf", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char model[64];
        crumb_gguf *g;
        const char *name = strrchr(found.gl_pathv[i], '/') + 1;
        snprintf(model, sizeof model, "%.*s", (int)(strlen(name) - strlen(".gguf")), name);
        assert_int_equal(crumb_gguf_open(found.gl_pathv[i], &g, NULL), CRUMB_OK);
        for (size_t j = 0; j < crumb_gguf_n_tensors(g); j++) {
            const crumb_gguf_tensor *t = crumb_gguf_tensor_at(g, j);
            const bool in_layer = strncmp(t->name, "blk.", 4) == 0;
            if (seen[in_layer][t->type]) continue;
            seen[in_layer][t->type] = true;
            damage_tensor(model, t);
        }
        crumb_gguf_close(g);
    }
    globfree(&found);
    for (int type = 0; type < CRUMB_TYPE_GGUF_COUNT; type++) assert_true(seen[true][type] || seen[false][type]);
}

static void scales_beside_weights(void **state) {
    (void)state;
    file_bytes f = load("bitnet-tq2_0-scales");
    crumb_gguf *g = NULL;
    assert_int_equal(crumb_gguf_open_memory(f.data, f.size, "test", &g, NULL), CRUMB_OK);
    const crumb_gguf_tensor *t = crumb_gguf_find_tensor(g, "blk.0.attn_q.scale");
    assert_non_null(t);
    memcpy(f.data + t->offset, (const uint8_t[]){0, 0, 0xc0, 0x7f}, 4);
    crumb_gguf_close(g);
    refuses(&f, CRUMB_ERR_FORMAT, "blk.0.attn_q.scale");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(architectures_and_transforms),
        cmocka_unit_test(hyper_parameters),
        cmocka_unit_test(tensors),
        cmocka_unit_test(numbers_that_are_none),
        cmocka_unit_test(scales_beside_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
