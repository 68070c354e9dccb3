#include "host/model/hparams.h"

#include "host/model/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct key_name {
    char text[96];
} key_name;

/* "llama" + "attention.head_count" */
static key_name key_of(const char *architecture, const char *suffix) {
    key_name k;
    snprintf(k.text, sizeof k.text, "%s.%s", architecture, suffix);
    return k;
}

/* Keys that change the computation in a way that crumb does not implement, unless they hold the neutral value. */
static const struct {
    const char *suffix;
    double neutral;
} semantic_keys[] = {
    {"expert_count", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.clamp_kqv", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"logit_scale", 1},
    {"residual_scale", 1},
    {"embedding_scale", 1},
    {"attention.causal", 1},
    {"attention.scale", 0},
    {"use_parallel_residual", 0},
    {"rope.scaling.yarn_log_multiplier", 0},
    {"rope.scaling.yarn_attn_factor", 1},
    {"rope.scaling.yarn_ext_factor", 1},
};

static bool value_is(const crumb_gguf_value *v, double neutral) {
    switch (v->type) {
    case CRUMB_GGUF_F32:
    case CRUMB_GGUF_F64: return v->f == neutral;
    case CRUMB_GGUF_I8:
    case CRUMB_GGUF_I16:
    case CRUMB_GGUF_I32:
    case CRUMB_GGUF_I64: return (double)v->i == neutral;
    case CRUMB_GGUF_STRING:
    case CRUMB_GGUF_ARRAY: return false;
    default: return (double)v->u == neutral;
    }
}

static bool contains(crumb_bytes text, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.size; i++)
        if (memcmp(text.data + i, word, n) == 0) return true;
    return false;
}

/* Silent garbage is the worst outcome: whatever names a transform of weights or activations is refused. */
static crumb_status refuse_transforms(const crumb_gguf *g, const char *architecture, crumb_error *err) {
    static const char *const words[] = {"hadamard", "rotat", "quarot", "spinquant", "transform", "adapter"};
    for (size_t i = 0; i < crumb_gguf_n_values(g); i++) {
        crumb_bytes key = crumb_gguf_value_at(g, i)->key;
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            if (contains(key, words[w]))
                return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                                  "key '%.*s' names a transform that crumb does not apply: the output would be wrong",
                                  (int)(key.size < 200 ? key.size : 200), key.data);
    }
    for (size_t i = 0; i < sizeof semantic_keys / sizeof *semantic_keys; i++) {
        key_name key = key_of(architecture, semantic_keys[i].suffix);
        const crumb_gguf_value *v = crumb_gguf_find(g, key.text);
        if (v && !value_is(v, semantic_keys[i].neutral))
            return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "key '%s' asks for something that crumb does not do",
                              key.text);
    }
    return CRUMB_OK;
}

/* Files of BitNet 2B-4T under the architecture `bitnet` say here that they do not gate with its SiLU. */
static crumb_status read_hidden_act(const crumb_gguf *g, crumb_hparams *h, crumb_error *err) {
    key_name key = key_of(h->architecture, "hidden_activation");
    crumb_bytes name = {NULL, 0};
    CRUMB_TRY(crumb_gguf_get_string(g, key.text, false, &name, err));
    if (name.size == 0) return CRUMB_OK;
    if (name.size == 4 && memcmp(name.data, "silu", 4) == 0) {
        h->hidden_act = CRUMB_HIDDEN_ACT_SILU;
    } else if (name.size == 5 && memcmp(name.data, "relu2", 5) == 0) {
        h->hidden_act = CRUMB_HIDDEN_ACT_RELU2;
    } else {
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "key '%s': activation '%.*s' is not supported (silu, relu2)",
                          key.text, (int)(name.size < 64 ? name.size : 64), name.data);
    }
    return CRUMB_OK;
}

/* A count that some files give per layer: all layers must agree. */
static crumb_status get_uniform_u32(const crumb_gguf *g, const char *key, bool required, uint32_t *out,
                                    crumb_error *err) {
    const crumb_gguf_value *v = crumb_gguf_find(g, key);
    if (!v || v->type != CRUMB_GGUF_ARRAY) return crumb_gguf_get_u32(g, key, required, out, err);
    bool words = v->array.type == CRUMB_GGUF_U32 || v->array.type == CRUMB_GGUF_I32;
    if (!words || v->array.n == 0)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s': not an array of 32-bit numbers", key);
    memcpy(out, v->array.data, 4);
    for (uint64_t i = 1; i < v->array.n; i++)
        if (memcmp(v->array.data, v->array.data + 4 * i, 4) != 0)
            return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "key '%s': layers of different shapes are not supported",
                              key);
    return CRUMB_OK;
}

static crumb_status read_attention(const crumb_gguf *g, crumb_hparams *h, crumb_error *err) {
    const char *a = h->architecture;
    CRUMB_TRY(get_uniform_u32(g, key_of(a, "attention.head_count").text, true, &h->num_attention_heads, err));
    h->num_key_value_heads = h->num_attention_heads;
    CRUMB_TRY(get_uniform_u32(g, key_of(a, "attention.head_count_kv").text, false, &h->num_key_value_heads, err));
    if (h->num_attention_heads == 0) return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s.attention.head_count' is 0", a);
    h->head_dim = h->hidden_size / h->num_attention_heads;
    CRUMB_TRY(crumb_gguf_get_u32(g, key_of(a, "attention.key_length").text, false, &h->head_dim, err));
    uint32_t value_length = h->head_dim;
    CRUMB_TRY(crumb_gguf_get_u32(g, key_of(a, "attention.value_length").text, false, &value_length, err));
    if (value_length != h->head_dim)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "key '%s.attention.value_length' (%u) differs from key_length (%u)", a, value_length,
                          h->head_dim);
    uint32_t window = h->max_position_embeddings;
    CRUMB_TRY(crumb_gguf_get_u32(g, key_of(a, "attention.sliding_window").text, false, &window, err));
    /* inside its window a sliding-window model computes full attention; beyond it crumb would be wrong */
    if (window > 0 && window < h->max_position_embeddings) h->max_position_embeddings = window;
    return CRUMB_OK;
}

crumb_status crumb_hparams_read(const crumb_gguf *g, const char *architecture, crumb_hparams *out, crumb_error *err) {
    crumb_hparams h = {.rope_theta = 10000.0f};
    snprintf(h.architecture, sizeof h.architecture, "%s", architecture);
    const char *a = h.architecture;
    CRUMB_TRY(refuse_transforms(g, a, err));
    CRUMB_TRY(crumb_gguf_get_u32(g, key_of(a, "block_count").text, true, &h.num_hidden_layers, err));
    CRUMB_TRY(crumb_gguf_get_u32(g, key_of(a, "context_length").text, true, &h.max_position_embeddings, err));
    CRUMB_TRY(crumb_gguf_get_u32(g, key_of(a, "embedding_length").text, true, &h.hidden_size, err));
    CRUMB_TRY(get_uniform_u32(g, key_of(a, "feed_forward_length").text, true, &h.intermediate_size, err));
    CRUMB_TRY(read_attention(g, &h, err));
    CRUMB_TRY(crumb_gguf_get_f32(g, key_of(a, "attention.layer_norm_rms_epsilon").text, true, &h.rms_norm_eps, err));
    CRUMB_TRY(crumb_gguf_get_f32(g, key_of(a, "rope.freq_base").text, false, &h.rope_theta, err));
    h.rope_dims = h.head_dim;
    CRUMB_TRY(crumb_gguf_get_u32(g, key_of(a, "rope.dimension_count").text, false, &h.rope_dims, err));
    CRUMB_TRY(crumb_rope_scaling_read(g, &h, &h.rope_scaling, err));
    CRUMB_TRY(read_hidden_act(g, &h, err));
    const crumb_gguf_tensor *embedding = crumb_gguf_find_tensor(g, "token_embd.weight");
    if (!embedding) return crumb_fail(err, CRUMB_ERR_FORMAT, "tensor 'token_embd.weight' is missing");
    if (embedding->dims[1] > INT32_MAX)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "tensor 'token_embd.weight': too many rows");
    h.vocab_size = (uint32_t)embedding->dims[1];
    uint32_t stated = h.vocab_size;
    CRUMB_TRY(crumb_gguf_get_u32(g, key_of(a, "vocab_size").text, false, &stated, err));
    if (stated != h.vocab_size)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s.vocab_size' is %u, but token_embd.weight has %u rows", a,
                          stated, h.vocab_size);
    *out = h;
    return crumb_hparams_check(&h, err);
}

crumb_status crumb_hparams_check(const crumb_hparams *h, crumb_error *err) {
    const struct {
        const char *name;
        uint32_t value, max;
    } ranges[] = {
        {"block_count", h->num_hidden_layers, CRUMB_MAX_LAYERS},
        {"context_length", h->max_position_embeddings, CRUMB_MAX_CONTEXT},
        {"embedding_length", h->hidden_size, CRUMB_MAX_HIDDEN_SIZE},
        {"feed_forward_length", h->intermediate_size, CRUMB_MAX_INTERMEDIATE_SIZE},
        {"attention.head_count", h->num_attention_heads, CRUMB_MAX_HEADS},
        {"attention.head_count_kv", h->num_key_value_heads, CRUMB_MAX_HEADS},
        {"attention.key_length", h->head_dim, CRUMB_MAX_HEAD_DIM},
        {"vocab_size", h->vocab_size, CRUMB_MAX_VOCAB_SIZE},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value == 0 || ranges[i].value > ranges[i].max)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s.%s': %u is outside 1..%u", h->architecture,
                              ranges[i].name, ranges[i].value, ranges[i].max);
    if (h->num_attention_heads % h->num_key_value_heads != 0)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s.attention.head_count_kv': %u does not divide %u heads",
                          h->architecture, h->num_key_value_heads, h->num_attention_heads);
    if (h->rope_dims > h->head_dim || h->rope_dims % 2 != 0)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s.rope.dimension_count': %u does not fit heads of %u",
                          h->architecture, h->rope_dims, h->head_dim);
    if (!(h->rms_norm_eps >= 0 && h->rms_norm_eps < 1))
        return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s.attention.layer_norm_rms_epsilon': %g is not sensible",
                          h->architecture, (double)h->rms_norm_eps);
    if (!(h->rope_theta > 0 && isfinite(h->rope_theta)))
        return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s.rope.freq_base': %g is not sensible", h->architecture,
                          (double)h->rope_theta);
    return CRUMB_OK;
}
