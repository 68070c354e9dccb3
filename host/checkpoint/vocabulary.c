#include "host/checkpoint/internal.h"
#include "host/text/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *folder;
    const cJSON *root;    /* config.json */
    const cJSON *options; /* tokenizer_config.json; NULL: none */
    const crumb_gguf *g;  /* the keys so far */
    crumb_gguf_builder *keys;
    crumb_error *err;
} reader;

/* A special token's text, which stands there alone or as an entry of added tokens. */
static const char *token_text(const cJSON *options, const char *key) {
    const cJSON *v = checkpoint_get(options, key);
    return cJSON_IsObject(v) ? checkpoint_text(v, "content") : checkpoint_text(options, key);
}

/* The id of the token with that text. */
static bool find_token(const crumb_gguf *g, const char *text, uint32_t *id) {
    const crumb_gguf_value *tokens;
    if (!*text || crumb_gguf_get_array(g, "tokenizer.ggml.tokens", true, CRUMB_GGUF_STRING, &tokens, NULL) != CRUMB_OK)
        return false;
    const uint8_t *cursor = tokens->array.data;
    for (uint64_t i = 0; i < tokens->array.n; i++) {
        const crumb_bytes token = crumb_gguf_next_string(&cursor);
        if (token.size != strlen(text) || memcmp(token.data, text, token.size) != 0) continue;
        *id = (uint32_t)i;
        return true;
    }
    return false;
}

/* config.json's, which may be a list: the first one is the one. */
static bool find_id(const cJSON *root, const char *key, uint32_t *id) {
    const cJSON *v = checkpoint_get(root, key);
    if (cJSON_IsArray(v)) v = v->child;
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0) || !(v->valuedouble <= INT32_MAX)) return false;
    *id = (uint32_t)v->valuedouble;
    return true;
}

static void put_special(const reader *r, const char *text_key, const char *id_key, const char *key) {
    uint32_t id;
    if (crumb_gguf_find(r->g, key)) return;
    if (find_token(r->g, token_text(r->options, text_key), &id) || find_id(r->root, id_key, &id))
        crumb_gguf_build_u32(r->keys, key, id);
}

static void put_flag(const reader *r, const char *option, const char *key) {
    const cJSON *v = checkpoint_get(r->options, option);
    if (cJSON_IsBool(v) && !crumb_gguf_find(r->g, key)) crumb_gguf_build_bool(r->keys, key, cJSON_IsTrue(v));
}

/* In a file of its own, or in tokenizer_config.json: one, or several of which `default` is for chats. */
static crumb_status put_template(const reader *r) {
    char *text;
    size_t n_bytes;
    const cJSON *v = checkpoint_get(r->options, "chat_template"), *entry;
    CRUMB_TRY(checkpoint_read(r->folder, "chat_template.jinja", false, &text, &n_bytes, r->err));
    const char *found = text ? text : cJSON_IsString(v) ? v->valuestring : "";
    if (!text && cJSON_IsArray(v))
        cJSON_ArrayForEach(entry, v) if (strcmp(checkpoint_text(entry, "name"), "default") == 0) found =
            checkpoint_text(entry, "template");
    if (*found) crumb_gguf_build_string(r->keys, "tokenizer.chat_template", found);
    free(text);
    return CRUMB_OK;
}

/* Adds what tokenizer.json does not say. */
static crumb_status put_others(reader *r) {
    cJSON *options;
    CRUMB_TRY(checkpoint_read_json(r->folder, "tokenizer_config.json", false, &options, r->err));
    r->options = options;
    put_special(r, "bos_token", "bos_token_id", "tokenizer.ggml.bos_token_id");
    put_special(r, "eos_token", "eos_token_id", "tokenizer.ggml.eos_token_id");
    put_special(r, "pad_token", "pad_token_id", "tokenizer.ggml.padding_token_id");
    put_flag(r, "add_bos_token", "tokenizer.ggml.add_bos_token");
    put_flag(r, "add_eos_token", "tokenizer.ggml.add_eos_token");
    const crumb_status status = put_template(r);
    cJSON_Delete(options);
    return status;
}

crumb_status checkpoint_vocabulary_read(const char *folder, const cJSON *root, const checkpoint_config *c,
                                        crumb_gguf_builder *keys, crumb_error *err) {
    reader r = {.folder = folder, .root = root, .keys = keys, .err = err};
    char *text, path[CHECKPOINT_MAX_PATH];
    size_t n_bytes;
    crumb_gguf *g = NULL;
    CRUMB_TRY(checkpoint_path(folder, "tokenizer.json", path, err));
    CRUMB_TRY(checkpoint_read(folder, "tokenizer.json", true, &text, &n_bytes, err));
    crumb_status status = crumb_tokenizer_json_to_keys(text, n_bytes, c->vocab_size, keys, err);
    if (status != CRUMB_OK) crumb_fail_prefix(err, status, "%s", path);
    free(text);
    if (status == CRUMB_OK) status = crumb_gguf_build_open(keys, path, &g);
    r.g = g;
    if (status == CRUMB_OK) status = put_others(&r);
    crumb_gguf_close(g);
    return status == CRUMB_OK ? keys->status : status;
}
