/* A checkpoint's files beside its weights, from what a GGUF file says. */
#include "host/base/file.h"
#include "host/base/file_out.h"
#include "host/checkpoint/internal.h"
#include "host/container/gguf_rows.h"
#include "host/text/tokenizer_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

crumb_status checkpoint_write_text(const char *folder, const char *name, const char *text, size_t n, crumb_error *err) {
    char path[CHECKPOINT_MAX_PATH], partial[CHECKPOINT_MAX_PATH];
    crumb_file_out f;
    char partial_name[64];
    snprintf(partial_name, sizeof partial_name, "%s.partial", name);
    CRUMB_TRY(checkpoint_path(folder, name, path, err));
    CRUMB_TRY(checkpoint_path(folder, partial_name, partial, err));
    CRUMB_TRY(crumb_file_out_open(partial, &f, err));
    crumb_status status = crumb_file_out_truncate(&f, 0, err);
    if (status == CRUMB_OK) status = crumb_file_out_write(&f, 0, text, n, err);
    if (status == CRUMB_OK) status = crumb_file_out_publish(&f, path, err);
    crumb_file_out_close(&f);
    return status;
}

/* ---- config.json --------------------------------------------------------------------------------------------- */

static const struct family {
    const char *architecture, *class;
} families[] = {{"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}};

static crumb_status find_family(const crumb_hparams *h, const struct family **out, crumb_error *err) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].architecture, h->architecture) == 0) return *out = &families[i], CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                      "key 'general.architecture': crumb writes config.json for llama, qwen2 and qwen3, not for %s",
                      h->architecture);
}

/* Llama 3's scaling by the file's divisors, whose parameters are not in it: the slowest frequencies are divided by its
 * factor, and one of those between fast and slow tells the original context. Its other two are 1 and 4 everywhere. */
static void guess_llama3(const crumb_hparams *h, const float *divisors, uint32_t n, checkpoint_llama3 *out) {
    *out = (checkpoint_llama3){.low = 1, .high = 4, .original = 8192};
    for (uint32_t i = 0; i < n; i++) out->factor = fmaxf(out->factor, divisors[i]);
    for (uint32_t i = 0; i < n; i++) {
        const double d = (double)divisors[i], f = (double)out->factor;
        if (d < 1.001 || d > 0.999 * f) continue;
        const double wavelength = 2 * 3.14159265358979323846 * pow((double)h->rope_theta, 2.0 * i / h->head_dim);
        out->original = (uint32_t)(((1 / d - 1 / f) / (1 - 1 / f) * 3 + 1) * wavelength + 0.5);
    }
}

static crumb_status find_llama3(const crumb_gguf *g, const crumb_gguf_tensor *t, const crumb_hparams *h,
                                checkpoint_llama3 *out, crumb_error *err) {
    float found[CHECKPOINT_MAX_ROPE], wanted[CHECKPOINT_MAX_ROPE], worst = 0;
    if (t->dims[0] != h->head_dim / 2 || t->dims[0] > CHECKPOINT_MAX_ROPE)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "tensor '%s': not half a head long", t->name);
    CRUMB_TRY(crumb_gguf_read_tensor(g, t, found, err));
    guess_llama3(h, found, h->head_dim / 2, out);
    checkpoint_llama3_divisors((double)h->rope_theta, h->head_dim, out, wanted);
    for (uint64_t i = 0; i < t->dims[0]; i++) worst = fmaxf(worst, fabsf(found[i] / wanted[i] - 1));
    if (worst < 1e-3f) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                      "tensor '%s': which scaling of positions it stands for cannot be told: give the model's folder",
                      t->name);
}

static void put_yarn(cJSON *rope, const crumb_rope_scaling *s) {
    const double usual = s->factor > 1 ? 1 + 0.1 * log((double)s->factor) : 1;
    cJSON_AddNumberToObject(rope, "original_max_position_embeddings", s->original_context);
    cJSON_AddNumberToObject(rope, "beta_fast", (double)s->beta_fast);
    cJSON_AddNumberToObject(rope, "beta_slow", (double)s->beta_slow);
    if (s->attn_factor != 1) cJSON_AddNumberToObject(rope, "attention_factor", usual * (double)s->attn_factor);
}

static crumb_status put_rope(const crumb_gguf *g, const crumb_hparams *h, cJSON *root, crumb_error *err) {
    const crumb_gguf_tensor *divisors = crumb_gguf_find_tensor(g, "rope_freqs.weight");
    const crumb_rope_scaling *s = &h->rope_scaling;
    cJSON_AddNumberToObject(root, "rope_theta", (double)h->rope_theta);
    if (h->rope_dims != h->head_dim)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "key '%s.rope.dimension_count': a part of each head",
                          h->architecture);
    if (divisors) {
        checkpoint_llama3 scaling;
        CRUMB_TRY(find_llama3(g, divisors, h, &scaling, err));
        cJSON *rope = cJSON_AddObjectToObject(root, "rope_scaling");
        cJSON_AddStringToObject(rope, "rope_type", "llama3");
        cJSON_AddNumberToObject(rope, "factor", (double)scaling.factor);
        cJSON_AddNumberToObject(rope, "low_freq_factor", (double)scaling.low);
        cJSON_AddNumberToObject(rope, "high_freq_factor", (double)scaling.high);
        cJSON_AddNumberToObject(rope, "original_max_position_embeddings", scaling.original);
    } else if (s->yarn || s->factor != 1) {
        cJSON *rope = cJSON_AddObjectToObject(root, "rope_scaling");
        cJSON_AddStringToObject(rope, "rope_type", s->yarn ? "yarn" : "linear");
        cJSON_AddNumberToObject(rope, "factor", (double)s->factor);
        if (s->yarn) put_yarn(rope, s);
    }
    return CRUMB_OK;
}

static void put_token(const crumb_gguf *g, const char *key, cJSON *root, const char *name) {
    uint32_t id;
    if (crumb_gguf_find(g, key) && crumb_gguf_get_u32(g, key, true, &id, NULL) == CRUMB_OK)
        cJSON_AddNumberToObject(root, name, id);
}

/* Of what folders of transformers list; else what the GGUF file says. */
static void put_ends(const crumb_gguf *g, cJSON *root) {
    const crumb_gguf_value *ends;
    if (!crumb_gguf_find(g, CRUMB_KEY_ENDS) ||
        crumb_gguf_get_array(g, CRUMB_KEY_ENDS, true, CRUMB_GGUF_I32, &ends, NULL) != CRUMB_OK) {
        put_token(g, "tokenizer.ggml.eos_token_id", root, "eos_token_id");
        return;
    }
    cJSON *list = cJSON_AddArrayToObject(root, "eos_token_id");
    for (uint64_t i = 0; i < ends->array.n; i++) {
        int32_t id;
        memcpy(&id, ends->array.data + 4 * i, 4);
        cJSON_AddItemToArray(list, cJSON_CreateNumber(id));
    }
}

static void put_shapes(const crumb_gguf *g, const crumb_hparams *h, const struct family *family, cJSON *root) {
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"vocab_size", h->vocab_size},
        {"hidden_size", h->hidden_size},
        {"intermediate_size", h->intermediate_size},
        {"num_hidden_layers", h->num_hidden_layers},
        {"num_attention_heads", h->num_attention_heads},
        {"num_key_value_heads", h->num_key_value_heads},
        {"head_dim", h->head_dim},
        {"max_position_embeddings", h->max_position_embeddings},
        {"rms_norm_eps", (double)h->rms_norm_eps},
    };
    cJSON_AddItemToObject(root, "architectures", cJSON_CreateStringArray(&family->class, 1));
    cJSON_AddStringToObject(root, "model_type", family->architecture);
    cJSON_AddStringToObject(root, "hidden_act", "silu");
    cJSON_AddStringToObject(root, "torch_dtype", "float16");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cJSON_AddNumberToObject(root, numbers[i].name, numbers[i].value);
    if (crumb_gguf_find_tensor(g, "blk.0.attn_q.bias") && strcmp(family->architecture, "llama") == 0)
        cJSON_AddTrueToObject(root, "attention_bias");
    cJSON_AddBoolToObject(root, "tie_word_embeddings", crumb_gguf_find_tensor(g, "output.weight") == NULL);
    put_token(g, "tokenizer.ggml.bos_token_id", root, "bos_token_id");
    put_ends(g, root);
}

crumb_status checkpoint_config_make(const crumb_gguf *g, const crumb_hparams *h, cJSON **out, crumb_error *err) {
    const struct family *family = NULL;
    *out = NULL;
    CRUMB_TRY(find_family(h, &family, err));
    *out = cJSON_CreateObject();
    put_shapes(g, h, family, *out);
    return put_rope(g, h, *out, err);
}

/* ---- the vocabulary ------------------------------------------------------------------------------------------ */

static crumb_status write_json(const char *folder, const char *name, const cJSON *root, crumb_error *err) {
    char *text = cJSON_Print(root);
    if (!text) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for %s", name);
    const crumb_status status = checkpoint_write_text(folder, name, text, strlen(text), err);
    free(text);
    return status;
}

static void put_special(const crumb_gguf *g, const char *key, cJSON *options, const char *name) {
    const crumb_gguf_value *tokens;
    uint32_t id;
    if (!crumb_gguf_find(g, key) || crumb_gguf_get_u32(g, key, true, &id, NULL) != CRUMB_OK ||
        crumb_gguf_get_array(g, "tokenizer.ggml.tokens", true, CRUMB_GGUF_STRING, &tokens, NULL) != CRUMB_OK ||
        id >= tokens->array.n)
        return;
    const uint8_t *cursor = tokens->array.data;
    crumb_bytes token = {NULL, 0};
    for (uint32_t i = 0; i <= id; i++) token = crumb_gguf_next_string(&cursor);
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)(token.size < 511 ? token.size : 511), token.data);
    cJSON_AddStringToObject(options, name, text);
}

static void put_flag(const crumb_gguf *g, const char *key, cJSON *options, const char *name) {
    bool value;
    if (crumb_gguf_find(g, key) && crumb_gguf_get_bool(g, key, true, &value, NULL) == CRUMB_OK)
        cJSON_AddBoolToObject(options, name, value);
}

static crumb_status write_options(const crumb_gguf *g, const char *folder, crumb_error *err) {
    const crumb_gguf_value *template = crumb_gguf_find(g, "tokenizer.chat_template");
    cJSON *options = cJSON_CreateObject();
    cJSON_AddStringToObject(options, "tokenizer_class", "PreTrainedTokenizerFast");
    put_special(g, "tokenizer.ggml.bos_token_id", options, "bos_token");
    put_special(g, "tokenizer.ggml.eos_token_id", options, "eos_token");
    put_special(g, "tokenizer.ggml.unknown_token_id", options, "unk_token");
    put_special(g, "tokenizer.ggml.padding_token_id", options, "pad_token");
    put_flag(g, "tokenizer.ggml.add_bos_token", options, "add_bos_token");
    put_flag(g, "tokenizer.ggml.add_eos_token", options, "add_eos_token");
    crumb_status status = write_json(folder, "tokenizer_config.json", options, err);
    cJSON_Delete(options);
    if (status == CRUMB_OK && template && template->type == CRUMB_GGUF_STRING)
        status =
            checkpoint_write_text(folder, "chat_template.jinja", template->string.data, template->string.size, err);
    return status;
}

crumb_status checkpoint_vocabulary_write(const crumb_gguf *g, const char *folder, crumb_error *err) {
    char *text;
    CRUMB_TRY(crumb_tokenizer_json_from_keys(g, &text, err));
    const crumb_status status = checkpoint_write_text(folder, "tokenizer.json", text, strlen(text), err);
    free(text);
    CRUMB_TRY(status);
    return write_options(g, folder, err);
}
