/* Every architecture with weights of every type that a GGUF file can have: the same logits as with the same weights as
 * F32. What an architecture computes is compared with transformers (test_oracle_models), what a type's bytes stand for
 * with the gguf package (test_types); here, that neither depends on the other. */
#include "tests/model/fixture.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/random_tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { HIDDEN = 256, HEADS = 4, HEADS_KV = 1, HEAD_DIM = 64, FF = 256, VOCAB = 40, MAX_TENSORS = 20, N_TOKENS = 12 };

typedef struct tensor {
    const char *name;
    crumb_type type;
    uint64_t k, m; /* m is 0: a vector */
    void *bytes;
    uint64_t n_bytes;
} tensor;

typedef struct model {
    const char *architecture;
    tensor tensors[MAX_TENSORS];
    size_t n;
} model;

static bool is_bitnet(const model *m) {
    return strncmp(m->architecture, "bitnet", 6) == 0;
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

static tensor *add(model *m, const char *name, crumb_type type, uint64_t k, uint64_t rows, void *bytes,
                   uint64_t n_bytes) {
    assert_true(bytes && m->n < MAX_TENSORS);
    m->tensors[m->n] = (tensor){name, type, k, rows, bytes, n_bytes};
    return &m->tensors[m->n++];
}

/* From 0.75 to 1.25 times `size`, either sign where it is a bias. */
static void add_vector(model *m, const char *name, uint64_t n, float size, bool is_bias, uint64_t *seed) {
    float *values = malloc(n * sizeof *values);
    for (uint64_t i = 0; values && i < n; i++) {
        const uint64_t r = crumb_test_random(seed);
        values[i] = size * (0.75f + (float)(r % 1024) / 2048) * (is_bias && r >> 63 ? -1 : 1);
    }
    add(m, name, CRUMB_TYPE_F32, n, 0, values, n * sizeof *values);
}

/* The same weights as floats; freed by the caller. */
static float *decode(const tensor *t) {
    const uint64_t row_bytes = crumb_type_row_bytes(t->type, t->k);
    const float scale = t->type == CRUMB_TYPE_I2_S ? crumb_type_i2_s_scale(t->bytes, t->m, t->k) : 0;
    float *out = malloc(t->m * t->k * sizeof *out);
    assert_non_null(out);
    for (uint64_t i = 0; i < t->m; i++)
        crumb_type_row_to_f32(t->type, (const uint8_t *)t->bytes + i * row_bytes, t->k, scale, out + i * t->k);
    return out;
}

/* What a matrix makes of a vector of ones, on average. */
static float gain(const tensor *t) {
    double sum = 0;
    float *w = decode(t);
    for (uint64_t i = 0; i < t->m * t->k; i++) sum += (double)w[i] * (double)w[i];
    free(w);
    return (float)sqrt(sum / (double)t->m);
}

static float add_matrix(model *m, const char *name, crumb_type type, uint64_t rows, uint64_t k, uint64_t *seed) {
    uint64_t n_bytes;
    assert_int_equal(crumb_type_tensor_bytes(type, rows, k, &n_bytes, NULL), CRUMB_OK);
    return gain(add(m, name, type, k, rows, crumb_test_random_tensor(type, rows, k, crumb_test_random(seed)), n_bytes));
}

/* Norms before matrices are such that these map to values of about one: attention is neither even nor of one token. */
static void fill(model *m, const char *architecture, crumb_type type) {
    uint64_t seed = 1 + (uint64_t)type;
    *m = (model){.architecture = architecture};
    add_matrix(m, "token_embd.weight", CRUMB_TYPE_F32, VOCAB, HIDDEN, &seed);
    add_vector(m, "output_norm.weight", HIDDEN, 0.2f, false, &seed);
    const float q = add_matrix(m, "blk.0.attn_q.weight", type, HEADS * HEAD_DIM, HIDDEN, &seed);
    const float k = add_matrix(m, "blk.0.attn_k.weight", type, HEADS_KV * HEAD_DIM, HIDDEN, &seed);
    add_matrix(m, "blk.0.attn_v.weight", type, HEADS_KV * HEAD_DIM, HIDDEN, &seed);
    add_matrix(m, "blk.0.attn_output.weight", type, HIDDEN, HEADS * HEAD_DIM, &seed);
    const float gate = add_matrix(m, "blk.0.ffn_gate.weight", type, FF, HIDDEN, &seed);
    add_matrix(m, "blk.0.ffn_up.weight", type, FF, HIDDEN, &seed);
    add_matrix(m, "blk.0.ffn_down.weight", type, HIDDEN, FF, &seed);
    add_vector(m, "blk.0.attn_norm.weight", HIDDEN, 1 / sqrtf(q * k), false, &seed);
    add_vector(m, "blk.0.ffn_norm.weight", HIDDEN, 1 / gate, false, &seed);
    if (is_bitnet(m)) add_vector(m, "blk.0.attn_sub_norm.weight", HEADS * HEAD_DIM, 1, false, &seed);
    if (is_bitnet(m)) add_vector(m, "blk.0.ffn_sub_norm.weight", FF, 1, false, &seed);
    if (strcmp(architecture, "qwen3") == 0) {
        add_vector(m, "blk.0.attn_q_norm.weight", HEAD_DIM, 1, false, &seed);
        add_vector(m, "blk.0.attn_k_norm.weight", HEAD_DIM, 1, false, &seed);
    }
    if (strcmp(architecture, "qwen2") == 0) {
        add_vector(m, "blk.0.attn_q.bias", HEADS * HEAD_DIM, 0.5f, true, &seed);
        add_vector(m, "blk.0.attn_k.bias", HEADS_KV * HEAD_DIM, 0.5f, true, &seed);
        add_vector(m, "blk.0.attn_v.bias", HEADS_KV * HEAD_DIM, 0.5f, true, &seed);
    }
}

static void as_floats(model *m) {
    for (size_t i = 0; i < m->n; i++) {
        tensor *t = &m->tensors[i];
        if (t->m == 0 || t->type == CRUMB_TYPE_F32) continue;
        float *w = decode(t);
        free(t->bytes);
        *t = (tensor){t->name, CRUMB_TYPE_F32, t->k, t->m, w, t->k * t->m * sizeof *w};
    }
}

static void free_tensors(model *m) {
    for (size_t i = 0; i < m->n; i++) free(m->tensors[i].bytes);
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

static void put_key(gguf_writer *w, const model *m, const char *suffix, uint32_t value) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->architecture, suffix);
    gguf_key_u32(w, key, value);
}

static void put_keys(gguf_writer *w, const model *m) {
    const float eps = 1e-5f;
    char key[96];
    gguf_key_string(w, "general.architecture", m->architecture);
    put_key(w, m, "context_length", 64);
    put_key(w, m, "embedding_length", HIDDEN);
    put_key(w, m, "block_count", 1);
    put_key(w, m, "feed_forward_length", FF);
    put_key(w, m, "attention.head_count", HEADS);
    put_key(w, m, "attention.head_count_kv", HEADS_KV);
    put_key(w, m, "vocab_size", VOCAB);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", m->architecture);
    gguf_put_key(w, key, CRUMB_GGUF_F32);
    gguf_put(w, &eps, sizeof eps);
    gguf_key_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_key_string(w, "tokenizer.ggml.pre", "gpt-2");
    gguf_put_array(w, "tokenizer.ggml.tokens", CRUMB_GGUF_STRING, VOCAB);
    for (char c = '0'; c < '0' + VOCAB; c++) gguf_put_string(w, (char[]){c, 0});
    gguf_put_array(w, "tokenizer.ggml.merges", CRUMB_GGUF_STRING, 0);
}

static void save(const model *m, const char *path) {
    gguf_writer w = gguf_writer_begin();
    uint64_t offset = 0;
    put_keys(&w, m);
    for (size_t i = 0; i < m->n; i++) {
        const tensor *t = &m->tensors[i];
        uint32_t id;
        assert_int_equal(crumb_type_gguf_id(t->type, &id, NULL), CRUMB_OK);
        gguf_put_tensor(&w, t->name, id, t->m ? 2 : 1, (uint64_t[]){t->k, t->m}, offset);
        offset += (t->n_bytes + 31) / 32 * 32;
    }
    for (size_t i = 0; i < m->n; i++) gguf_put_data(&w, 32, m->tensors[i].bytes, m->tensors[i].n_bytes);
    gguf_save(&w, path);
    gguf_writer_free(&w);
}

/* ---- logits ---------------------------------------------------------------------------------------------------- */

/* *worst: of all so far, with float activations and with the type's own. */
static void compare(const char *architecture, crumb_type type, double worst[2]) {
    static const int32_t tokens[N_TOKENS] = {3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 3, 2};
    static float expected[N_TOKENS * VOCAB], got[N_TOKENS * VOCAB];
    static const double allowed[2] = {1e-8, 3e-3};
    char path[] = "/tmp/crumb-type-XXXXXX", other[] = "/tmp/crumb-type-XXXXXX";
    model m;
    close(mkstemp(path));
    close(mkstemp(other));
    fill(&m, architecture, type);
    save(&m, path);
    as_floats(&m);
    save(&m, other);
    free_tensors(&m);
    score_tokens(other, tokens, N_TOKENS, VOCAB, CRUMB_ACTIVATION_FLOAT, expected);
    for (int own = 0; own < 2; own++) {
        score_tokens(path, tokens, N_TOKENS, VOCAB, own ? CRUMB_ACTIVATION_AUTO : CRUMB_ACTIVATION_FLOAT, got);
        const double d = squared_error(got, expected, N_TOKENS * VOCAB);
        if (!(d <= allowed[own]))
            fail_msg("%s of %s: squared error %g of what F32 has", architecture, crumb_type_get_info(type)->name, d);
        if (d > worst[own]) worst[own] = d;
    }
    unlink(path);
    unlink(other);
}

static void each_architecture_computes_with_each_type(void **state) {
    (void)state;
    static const char *const architectures[] = {"llama", "qwen2", "qwen3", "bitnet", "bitnet-25", "bitnet-b1.58"};
    double worst[2] = {0};
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        for (int type = 0; type < CRUMB_TYPE_GGUF_COUNT; type++) compare(architectures[i], (crumb_type)type, worst);
    print_message("%d types: squared error at most %.2g with float activations, %.2g with the type's own\n",
                  CRUMB_TYPE_GGUF_COUNT, worst[0], worst[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_architecture_computes_with_each_type)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
