#include "host/checkpoint/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What transformers calls a model, and what GGUF does. */
static const struct known_model {
    const char *model_type, *hidden_act, *architecture;
} known_models[] = {
    {"llama", "silu", "llama"}, {"mistral", "silu", "llama"},        {"qwen2", "silu", "qwen2"},
    {"qwen3", "silu", "qwen3"}, {"bitnet", "relu2", "bitnet-b1.58"}, {"bitnet", "silu", "bitnet"},
};

typedef struct reader {
    const cJSON *root;
    checkpoint_config *c;
    crumb_gguf_builder *keys;
    crumb_error *err;
} reader;

static crumb_status damaged(const reader *r, const char *key, const char *problem) {
    return crumb_fail(r->err, CRUMB_ERR_FORMAT, "%s: key '%s': %s", r->c->path, key, problem);
}

static crumb_status unsupported(const reader *r, const char *key, const char *value) {
    return crumb_fail(r->err, CRUMB_ERR_UNSUPPORTED, "%s: key '%s': '%.60s' is something that crumb does not do",
                      r->c->path, key, value);
}

/* ---- values: what is not there leaves *out as it is, unless it is required ---- */

static crumb_status get_count(const reader *r, const cJSON *object, const char *key, bool required, uint32_t *out) {
    const cJSON *v = checkpoint_get(object, key);
    if (!v && !required) return CRUMB_OK;
    if (!v) return damaged(r, key, "missing");
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 1) || !(v->valuedouble <= INT32_MAX) ||
        v->valuedouble != floor(v->valuedouble))
        return damaged(r, key, "not a positive whole number");
    *out = (uint32_t)v->valuedouble;
    return CRUMB_OK;
}

static crumb_status get_real(const reader *r, const cJSON *object, const char *key, bool required, float *out) {
    const cJSON *v = checkpoint_get(object, key);
    if (!v && !required) return CRUMB_OK;
    if (!v) return damaged(r, key, "missing");
    if (!cJSON_IsNumber(v) || !(v->valuedouble > 0) || !isfinite((float)v->valuedouble))
        return damaged(r, key, "not a positive number");
    *out = (float)v->valuedouble;
    return CRUMB_OK;
}

static bool is_true(const cJSON *object, const char *key) {
    return cJSON_IsTrue(checkpoint_get(object, key));
}

/* ---- keys of the result: "llama" + "attention.head_count" ---- */

typedef struct key_name {
    char text[96];
} key_name;

static key_name key_of(const reader *r, const char *suffix) {
    key_name k;
    snprintf(k.text, sizeof k.text, "%s.%s", r->c->architecture, suffix);
    return k;
}

static void put_u32(const reader *r, const char *suffix, uint32_t value) {
    crumb_gguf_build_u32(r->keys, key_of(r, suffix).text, value);
}

static void put_f32(const reader *r, const char *suffix, float value) {
    crumb_gguf_build_f32(r->keys, key_of(r, suffix).text, value);
}

/* ---- RoPE ---- */

/* Waves longer than the original context over `low` are divided by `factor`, those shorter than over `high` stay, and
 * what lies between is blended. */
void checkpoint_llama3_divisors(double theta, uint32_t head_dim, const checkpoint_llama3 *scaling, float *out) {
    for (uint32_t i = 0; i < head_dim / 2; i++) {
        const double wavelength = 2 * 3.14159265358979323846 * pow(theta, 2.0 * i / head_dim);
        const double kept =
            (scaling->original / wavelength - (double)scaling->low) / ((double)scaling->high - (double)scaling->low);
        const double smooth = fmin(fmax(kept, 0), 1);
        out[i] = (float)(1 / ((1 - smooth) / (double)scaling->factor + smooth));
    }
}

static crumb_status read_llama3(const reader *r, const cJSON *rope, double theta) {
    checkpoint_config *c = r->c;
    checkpoint_llama3 s = {.factor = 0};
    CRUMB_TRY(get_real(r, rope, "factor", true, &s.factor));
    CRUMB_TRY(get_real(r, rope, "low_freq_factor", true, &s.low));
    CRUMB_TRY(get_real(r, rope, "high_freq_factor", true, &s.high));
    CRUMB_TRY(get_count(r, rope, "original_max_position_embeddings", true, &s.original));
    if (!(s.high > s.low)) return damaged(r, "high_freq_factor", "not above low_freq_factor");
    if (c->head_dim / 2 > CHECKPOINT_MAX_ROPE) return damaged(r, "head_dim", "too large");
    c->n_divisors = c->head_dim / 2;
    checkpoint_llama3_divisors(theta, c->head_dim, &s, c->divisors);
    return CRUMB_OK;
}

static crumb_status put_yarn(const reader *r, const cJSON *rope, float factor) {
    static const char *const others[] = {"mscale", "mscale_all_dim"};
    const float usual = factor > 1 ? 1 + 0.1f * logf(factor) : 1; /* what readers of the keys assume */
    uint32_t original = 0;
    float beta_fast = 32, beta_slow = 1, attention = usual;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (checkpoint_get(rope, others[i])) return unsupported(r, "rope_scaling", others[i]);
    if (cJSON_IsFalse(checkpoint_get(rope, "truncate"))) return unsupported(r, "rope_scaling.truncate", "false");
    CRUMB_TRY(get_count(r, rope, "original_max_position_embeddings", false, &original));
    CRUMB_TRY(get_real(r, rope, "beta_fast", false, &beta_fast));
    CRUMB_TRY(get_real(r, rope, "beta_slow", false, &beta_slow));
    CRUMB_TRY(get_real(r, rope, "attention_factor", false, &attention));
    if (original) put_u32(r, "rope.scaling.original_context_length", original);
    put_f32(r, "rope.scaling.yarn_beta_fast", beta_fast);
    put_f32(r, "rope.scaling.yarn_beta_slow", beta_slow);
    if (attention != usual) put_f32(r, "rope.scaling.attn_factor", attention / usual);
    return CRUMB_OK;
}

/* Up to version 4 of transformers: rope_theta, and rope_scaling where there is any; from 5 on all in rope_parameters.
 */
static crumb_status put_rope(const reader *r) {
    const cJSON *all = checkpoint_get(r->root, "rope_parameters"), *old = checkpoint_get(r->root, "rope_scaling");
    const cJSON *rope = all ? all : old;
    const char *type = checkpoint_text(rope, "rope_type");
    float theta = 10000, factor = 1, partial = 1;
    if (!*type) type = checkpoint_text(rope, "type");
    CRUMB_TRY(get_real(r, r->root, "rope_theta", false, &theta));
    CRUMB_TRY(get_real(r, all, "rope_theta", false, &theta));
    CRUMB_TRY(get_real(r, r->root, "partial_rotary_factor", false, &partial));
    CRUMB_TRY(get_real(r, all, "partial_rotary_factor", false, &partial));
    if (partial != 1) return unsupported(r, "partial_rotary_factor", "a part of each head");
    put_f32(r, "rope.freq_base", theta);
    put_u32(r, "rope.dimension_count", r->c->head_dim);
    if (!*type || strcmp(type, "default") == 0) return CRUMB_OK;
    if (strcmp(type, "llama3") == 0) return read_llama3(r, rope, (double)theta);
    if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0) return unsupported(r, "rope_type", type);
    CRUMB_TRY(get_real(r, rope, "factor", true, &factor));
    crumb_gguf_build_string(r->keys, key_of(r, "rope.scaling.type").text, type);
    put_f32(r, "rope.scaling.factor", factor);
    return strcmp(type, "yarn") == 0 ? put_yarn(r, rope, factor) : CRUMB_OK;
}

/* ---- the rest ---- */

static crumb_status find_model(const reader *r) {
    const char *type = checkpoint_text(r->root, "model_type"), *act = checkpoint_text(r->root, "hidden_act");
    bool known = false;
    for (size_t i = 0; i < sizeof known_models / sizeof *known_models; i++) {
        const struct known_model *k = &known_models[i];
        if (strcmp(k->model_type, type) != 0) continue;
        known = true;
        if (strcmp(k->hidden_act, *act ? act : k->hidden_act) != 0) continue;
        r->c->architecture = k->architecture;
        return CRUMB_OK;
    }
    if (known) return unsupported(r, "hidden_act", act);
    return crumb_fail(
        r->err, CRUMB_ERR_UNSUPPORTED,
        "%s: key 'model_type': '%.60s' is not supported (crumb reads llama, mistral, qwen2, qwen3, bitnet)", r->c->path,
        type);
}

static crumb_status put_shapes(const reader *r) {
    checkpoint_config *c = r->c;
    uint32_t hidden = 0, ff = 0, context = 0;
    float eps = 0;
    CRUMB_TRY(get_count(r, r->root, "vocab_size", true, &c->vocab_size));
    CRUMB_TRY(get_count(r, r->root, "hidden_size", true, &hidden));
    CRUMB_TRY(get_count(r, r->root, "intermediate_size", true, &ff));
    CRUMB_TRY(get_count(r, r->root, "num_hidden_layers", true, &c->n_layers));
    CRUMB_TRY(get_count(r, r->root, "max_position_embeddings", true, &context));
    CRUMB_TRY(get_count(r, r->root, "num_attention_heads", true, &c->n_heads));
    c->n_heads_kv = c->n_heads;
    CRUMB_TRY(get_count(r, r->root, "num_key_value_heads", false, &c->n_heads_kv));
    c->head_dim = hidden / c->n_heads;
    CRUMB_TRY(get_count(r, r->root, "head_dim", false, &c->head_dim));
    if (c->head_dim == 0) return damaged(r, "num_attention_heads", "more than hidden_size");
    CRUMB_TRY(get_real(r, r->root, "rms_norm_eps", true, &eps));
    put_u32(r, "vocab_size", c->vocab_size);
    put_u32(r, "context_length", context);
    put_u32(r, "embedding_length", hidden);
    put_u32(r, "block_count", c->n_layers);
    put_u32(r, "feed_forward_length", ff);
    put_u32(r, "attention.head_count", c->n_heads);
    put_u32(r, "attention.head_count_kv", c->n_heads_kv);
    put_u32(r, "attention.key_length", c->head_dim);
    put_u32(r, "attention.value_length", c->head_dim);
    put_f32(r, "attention.layer_norm_rms_epsilon", eps);
    return CRUMB_OK;
}

/* Qwen's configurations name a window that only use_sliding_window puts into effect. */
static crumb_status put_window(const reader *r) {
    const cJSON *use = checkpoint_get(r->root, "use_sliding_window");
    uint32_t window = 0;
    if (cJSON_IsFalse(use) || (!use && strncmp(r->c->architecture, "qwen", 4) == 0)) return CRUMB_OK;
    CRUMB_TRY(get_count(r, r->root, "sliding_window", false, &window));
    if (window) put_u32(r, "attention.sliding_window", window);
    return CRUMB_OK;
}

/* ParetoQ's training says how many bits its weights have; 16 and more are none of its quantizers. */
static crumb_status read_w_bits(const reader *r) {
    const cJSON *bits = checkpoint_get(r->root, "w_bits");
    if (!bits || r->c->packing.method != CHECKPOINT_PLAIN) return CRUMB_OK;
    if (!cJSON_IsNumber(bits) || bits->valuedouble != floor(bits->valuedouble) || bits->valuedouble < 0)
        return damaged(r, "w_bits", "not a number of bits");
    if (bits->valuedouble >= 16) return CRUMB_OK;
    if (bits->valuedouble > 4) return unsupported(r, "w_bits", "a number of bits other than 0 to 4");
    r->c->packing.method = CHECKPOINT_PARETOQ;
    r->c->packing.bits = (uint8_t)bits->valuedouble;
    return CRUMB_OK;
}

static bool says_something(const cJSON *v) {
    return !cJSON_IsNull(v) && !cJSON_IsFalse(v) && !((cJSON_IsObject(v) || cJSON_IsArray(v)) && !v->child) &&
           !(cJSON_IsString(v) && !*v->valuestring);
}

/* Weights that were rotated (QuaRot, SpinQuant; GPTQModel's `rotation`) want activations rotated while they run. Which
 * ones and how, no key says that writers agree on: refused, as in GGUF files. */
static crumb_status refuse_transforms(const reader *r, const cJSON *object, const char *within) {
    static const char *const words[] = {"hadamard", "rotation", "rotate", "quarot", "spinquant", "transform_config"};
    const cJSON *v;
    cJSON_ArrayForEach(v, object) {
        for (size_t i = 0; v->string && i < sizeof words / sizeof *words; i++)
            if (strstr(v->string, words[i]) && says_something(v))
                return crumb_fail(r->err, CRUMB_ERR_UNSUPPORTED,
                                  "%s: key '%s%.60s' names a transform that crumb does not apply: the output would be "
                                  "wrong",
                                  r->c->path, within, v->string);
    }
    return CRUMB_OK;
}

crumb_status checkpoint_config_read(const cJSON *root, checkpoint_config *c, crumb_gguf_builder *keys,
                                    crumb_error *err) {
    const reader r = {.root = root, .c = c, .keys = keys, .err = err};
    CRUMB_TRY(find_model(&r));
    crumb_gguf_build_string(keys, "general.architecture", c->architecture);
    CRUMB_TRY(put_shapes(&r));
    CRUMB_TRY(put_rope(&r));
    CRUMB_TRY(put_window(&r));
    c->tied = is_true(root, "tie_word_embeddings");
    const cJSON *quantization = checkpoint_get(root, "quantization_config");
    CRUMB_TRY(refuse_transforms(&r, root, ""));
    CRUMB_TRY(refuse_transforms(&r, quantization, "quantization_config."));
    CRUMB_TRY(checkpoint_packing_read(quantization, c->path, &c->packing, err));
    c->not_converted = checkpoint_get(quantization, "modules_to_not_convert");
    CRUMB_TRY(read_w_bits(&r));
    return keys->status;
}
