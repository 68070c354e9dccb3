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
    checkpoint_object root;
    checkpoint_config *c;
    crumb_gguf_builder *keys;
} reader;

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

static crumb_status read_llama3(const reader *r, const checkpoint_object *rope, double theta) {
    checkpoint_config *c = r->c;
    checkpoint_llama3 s = {.factor = 0};
    CRUMB_TRY(checkpoint_get_real(rope, "factor", true, &s.factor));
    CRUMB_TRY(checkpoint_get_real(rope, "low_freq_factor", true, &s.low));
    CRUMB_TRY(checkpoint_get_real(rope, "high_freq_factor", true, &s.high));
    CRUMB_TRY(checkpoint_get_count(rope, "original_max_position_embeddings", true, CRUMB_MAX_CONTEXT, &s.original));
    if (!(s.high > s.low)) return checkpoint_damaged(rope, "high_freq_factor", "not above low_freq_factor");
    c->n_divisors = c->head_dim / 2;
    checkpoint_llama3_divisors(theta, c->head_dim, &s, c->divisors);
    return CRUMB_OK;
}

static crumb_status put_yarn(const reader *r, const checkpoint_object *rope, float factor) {
    static const char *const others[] = {"mscale", "mscale_all_dim"};
    const float usual = factor > 1 ? 1 + 0.1f * logf(factor) : 1; /* what readers of the keys assume */
    uint32_t original = 0;
    float beta_fast = 32, beta_slow = 1, attention = usual;
    bool truncate = true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (checkpoint_get(rope->json, others[i])) return checkpoint_unsupported(rope, others[i], "a scale of its own");
    CRUMB_TRY(checkpoint_get_flag(rope, "truncate", &truncate));
    if (!truncate) return checkpoint_unsupported(rope, "truncate", "false");
    CRUMB_TRY(checkpoint_get_count(rope, "original_max_position_embeddings", false, CRUMB_MAX_CONTEXT, &original));
    CRUMB_TRY(checkpoint_get_real(rope, "beta_fast", false, &beta_fast));
    CRUMB_TRY(checkpoint_get_real(rope, "beta_slow", false, &beta_slow));
    CRUMB_TRY(checkpoint_get_real(rope, "attention_factor", false, &attention));
    if (original) put_u32(r, "rope.scaling.original_context_length", original);
    put_f32(r, "rope.scaling.yarn_beta_fast", beta_fast);
    put_f32(r, "rope.scaling.yarn_beta_slow", beta_slow);
    if (attention != usual) put_f32(r, "rope.scaling.attn_factor", attention / usual);
    return CRUMB_OK;
}

static crumb_status put_scaling(const reader *r, const checkpoint_object *rope, float theta) {
    const char *type = "", *key = "rope_type";
    float factor = 1;
    CRUMB_TRY(checkpoint_get_text(rope, key, &type));
    if (!*type) CRUMB_TRY(checkpoint_get_text(rope, key = "type", &type));
    if (!*type && checkpoint_get(rope->json, "factor")) return checkpoint_damaged(rope, "rope_type", "missing");
    if (!*type || strcmp(type, "default") == 0) return CRUMB_OK;
    if (strcmp(type, "llama3") == 0) return read_llama3(r, rope, (double)theta);
    if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0) return checkpoint_unsupported(rope, key, type);
    CRUMB_TRY(checkpoint_get_real(rope, "factor", true, &factor));
    crumb_gguf_build_string(r->keys, key_of(r, "rope.scaling.type").text, type);
    put_f32(r, "rope.scaling.factor", factor);
    return strcmp(type, "yarn") == 0 ? put_yarn(r, rope, factor) : CRUMB_OK;
}

/* The object that says how positions are scaled: up to version 4 of transformers rope_scaling, from 5 on
 * rope_parameters. These versions do not read the same one where both are there. */
static crumb_status get_rope(const reader *r, checkpoint_object *out) {
    checkpoint_object old;
    const cJSON *v;
    CRUMB_TRY(checkpoint_get_object(&r->root, "rope_scaling", &old));
    CRUMB_TRY(checkpoint_get_object(&r->root, "rope_parameters", out));
    if (old.json && old.json->child && out->json && !cJSON_Compare(old.json, out->json, true))
        return checkpoint_damaged(&r->root, "rope_scaling", "another value than rope_parameters has");
    if (!out->json) *out = old;
    cJSON_ArrayForEach(v, out->json) {
        if (cJSON_IsObject(v)) return checkpoint_unsupported(out, v->string, "settings of single layers");
    }
    return CRUMB_OK;
}

/* The base of the frequencies, which stands beside that object in version 4, and from 5 on in it. */
static crumb_status get_theta(const reader *r, const checkpoint_object *rope, float *out) {
    float inner;
    *out = 10000;
    CRUMB_TRY(checkpoint_get_real(&r->root, "rope_theta", false, out));
    inner = *out;
    CRUMB_TRY(checkpoint_get_real(rope, "rope_theta", false, &inner));
    if (inner != *out && checkpoint_get(r->root.json, "rope_theta"))
        return checkpoint_damaged(rope, "rope_theta", "another value than the rope_theta beside it has");
    *out = inner;
    return CRUMB_OK;
}

static crumb_status put_rope(const reader *r) {
    checkpoint_object rope;
    float theta, partial = 1;
    CRUMB_TRY(get_rope(r, &rope));
    CRUMB_TRY(get_theta(r, &rope, &theta));
    CRUMB_TRY(checkpoint_get_real(&r->root, "partial_rotary_factor", false, &partial));
    CRUMB_TRY(checkpoint_get_real(&rope, "partial_rotary_factor", false, &partial));
    if (partial != 1) return checkpoint_unsupported(&r->root, "partial_rotary_factor", "a part of each head");
    put_f32(r, "rope.freq_base", theta);
    put_u32(r, "rope.dimension_count", r->c->head_dim);
    return put_scaling(r, &rope, theta);
}

/* ---- the rest ---- */

static crumb_status find_model(const reader *r) {
    const char *type = "", *act = "";
    bool known = false;
    CRUMB_TRY(checkpoint_get_text(&r->root, "model_type", &type));
    CRUMB_TRY(checkpoint_get_text(&r->root, "hidden_act", &act));
    for (size_t i = 0; i < sizeof known_models / sizeof *known_models; i++) {
        const struct known_model *k = &known_models[i];
        if (strcmp(k->model_type, type) != 0) continue;
        known = true;
        if (strcmp(k->hidden_act, *act ? act : k->hidden_act) != 0) continue;
        r->c->architecture = k->architecture;
        return CRUMB_OK;
    }
    if (known) return checkpoint_unsupported(&r->root, "hidden_act", act);
    return crumb_fail(
        r->root.err, CRUMB_ERR_UNSUPPORTED,
        "%s: key 'model_type': '%.60s' is not supported (crumb reads llama, mistral, qwen2, qwen3, bitnet)", r->c->path,
        type);
}

static crumb_status read_heads(const reader *r) {
    checkpoint_config *c = r->c;
    CRUMB_TRY(checkpoint_get_count(&r->root, "num_attention_heads", true, CRUMB_MAX_HEADS, &c->n_heads));
    c->n_heads_kv = c->n_heads;
    CRUMB_TRY(checkpoint_get_count(&r->root, "num_key_value_heads", false, CRUMB_MAX_HEADS, &c->n_heads_kv));
    if (c->n_heads % c->n_heads_kv != 0)
        return checkpoint_damaged(&r->root, "num_key_value_heads", "num_attention_heads is no multiple of it");
    c->head_dim = c->hidden_size / c->n_heads;
    CRUMB_TRY(checkpoint_get_count(&r->root, "head_dim", false, CRUMB_MAX_HEAD_DIM, &c->head_dim));
    if (c->head_dim == 0) return checkpoint_damaged(&r->root, "num_attention_heads", "more than hidden_size");
    if (c->head_dim % 2 == 0) return CRUMB_OK;
    return checkpoint_damaged(&r->root, checkpoint_get(r->root.json, "head_dim") ? "head_dim" : "num_attention_heads",
                              "a head has an odd number of values");
}

static crumb_status put_shapes(const reader *r) {
    checkpoint_config *c = r->c;
    uint32_t context = 0;
    float eps = 0;
    CRUMB_TRY(checkpoint_get_count(&r->root, "vocab_size", true, CRUMB_MAX_VOCAB_SIZE, &c->vocab_size));
    CRUMB_TRY(checkpoint_get_count(&r->root, "hidden_size", true, CRUMB_MAX_HIDDEN_SIZE, &c->hidden_size));
    CRUMB_TRY(
        checkpoint_get_count(&r->root, "intermediate_size", true, CRUMB_MAX_INTERMEDIATE_SIZE, &c->intermediate_size));
    CRUMB_TRY(checkpoint_get_count(&r->root, "num_hidden_layers", true, CRUMB_MAX_LAYERS, &c->n_layers));
    CRUMB_TRY(checkpoint_get_count(&r->root, "max_position_embeddings", true, CRUMB_MAX_CONTEXT, &context));
    CRUMB_TRY(read_heads(r));
    CRUMB_TRY(checkpoint_get_real(&r->root, "rms_norm_eps", true, &eps));
    if (eps >= 1) return checkpoint_damaged(&r->root, "rms_norm_eps", "not below 1");
    put_u32(r, "vocab_size", c->vocab_size);
    put_u32(r, "context_length", context);
    put_u32(r, "embedding_length", c->hidden_size);
    put_u32(r, "block_count", c->n_layers);
    put_u32(r, "feed_forward_length", c->intermediate_size);
    put_u32(r, "attention.head_count", c->n_heads);
    put_u32(r, "attention.head_count_kv", c->n_heads_kv);
    put_u32(r, "attention.key_length", c->head_dim);
    put_u32(r, "attention.value_length", c->head_dim);
    put_f32(r, "attention.layer_norm_rms_epsilon", eps);
    return CRUMB_OK;
}

static crumb_status check_layer_types(const reader *r, bool has_window) {
    const cJSON *types, *v;
    CRUMB_TRY(checkpoint_get_names(&r->root, "layer_types", &types));
    cJSON_ArrayForEach(v, types) {
        const bool slides = strcmp(v->valuestring, "sliding_attention") == 0;
        if (!(slides && has_window) && strcmp(v->valuestring, "full_attention") != 0)
            return checkpoint_unsupported(&r->root, "layer_types", v->valuestring);
    }
    return CRUMB_OK;
}

/* Qwen's configurations name a window that only use_sliding_window puts into effect. */
static crumb_status put_window(const reader *r) {
    bool use = strncmp(r->c->architecture, "qwen", 4) != 0;
    uint32_t window = 0;
    CRUMB_TRY(checkpoint_get_flag(&r->root, "use_sliding_window", &use));
    CRUMB_TRY(checkpoint_get_count(&r->root, "sliding_window", false, CRUMB_MAX_CONTEXT, &window));
    if (use && window) put_u32(r, "attention.sliding_window", window);
    return check_layer_types(r, use && window);
}

/* ParetoQ's training says how many bits its weights have; 16 and more are none of its quantizers. */
static crumb_status read_w_bits(const reader *r) {
    int32_t bits = 16;
    CRUMB_TRY(checkpoint_get_integer(&r->root, "w_bits", false, 0, 64, &bits));
    if (bits >= 16 || r->c->packing.method != CHECKPOINT_PLAIN) return CRUMB_OK;
    if (bits > 4) return checkpoint_unsupported(&r->root, "w_bits", "a number of bits other than 0 to 4");
    r->c->packing.method = CHECKPOINT_PARETOQ;
    r->c->packing.bits = (uint8_t)bits;
    return CRUMB_OK;
}

static bool says_something(const cJSON *v) {
    return !cJSON_IsNull(v) && !cJSON_IsFalse(v) && !((cJSON_IsObject(v) || cJSON_IsArray(v)) && !v->child) &&
           !(cJSON_IsString(v) && !*v->valuestring);
}

/* Weights that were rotated (QuaRot, SpinQuant; GPTQModel's `rotation`) want activations rotated while they run. Which
 * ones and how, no key says that writers agree on: refused, as in GGUF files. */
crumb_status checkpoint_refuse_transforms(const checkpoint_object *object) {
    static const char *const words[] = {"hadamard", "rotation", "rotate", "quarot", "spinquant", "transform_config"};
    const cJSON *v;
    cJSON_ArrayForEach(v, object->json) {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strstr(v->string, words[i]) && says_something(v))
                return checkpoint_refuse(object, CRUMB_ERR_UNSUPPORTED, v->string,
                                         "names a transform that crumb does not apply: the output would be wrong");
    }
    return CRUMB_OK;
}

crumb_status checkpoint_config_read(const cJSON *root, checkpoint_config *c, crumb_gguf_builder *keys,
                                    crumb_error *err) {
    const reader r = {.root = {.path = c->path, .json = root, .err = err}, .c = c, .keys = keys};
    checkpoint_object quantization;
    CRUMB_TRY(find_model(&r));
    crumb_gguf_build_string(keys, "general.architecture", c->architecture);
    CRUMB_TRY(put_shapes(&r));
    CRUMB_TRY(put_rope(&r));
    CRUMB_TRY(put_window(&r));
    CRUMB_TRY(checkpoint_get_flag(&r.root, "tie_word_embeddings", &c->tied));
    CRUMB_TRY(checkpoint_get_flag(&r.root, "attention_bias", &c->attention_bias));
    CRUMB_TRY(checkpoint_get_flag(&r.root, "mlp_bias", &c->mlp_bias));
    CRUMB_TRY(checkpoint_get_object(&r.root, "quantization_config", &quantization));
    CRUMB_TRY(checkpoint_refuse_transforms(&r.root));
    CRUMB_TRY(checkpoint_refuse_transforms(&quantization));
    CRUMB_TRY(checkpoint_packing_read(&quantization, &c->packing));
    CRUMB_TRY(checkpoint_get_names(&quantization, "modules_to_not_convert", &c->not_converted));
    CRUMB_TRY(read_w_bits(&r));
    return keys->status;
}
