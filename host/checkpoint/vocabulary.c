#include "host/checkpoint/internal.h"
#include "host/text/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *folder;
    checkpoint_object root;    /* config.json */
    checkpoint_object options; /* tokenizer_config.json */
    uint32_t vocab_size;
    const crumb_gguf *g; /* the keys so far */
    crumb_gguf_builder *keys;
} reader;

/* A special token's text, which stands there alone or as an entry of added tokens; "" where there is none. */
static crumb_status get_token(const reader *r, const char *key, const char **text) {
    checkpoint_object entry;
    *text = "";
    if (!cJSON_IsObject(checkpoint_get(r->options.json, key))) return checkpoint_get_text(&r->options, key, text);
    CRUMB_TRY(checkpoint_get_object(&r->options, key, &entry));
    CRUMB_TRY(checkpoint_get_text(&entry, "content", text));
    return **text ? CRUMB_OK : checkpoint_damaged(&entry, "content", "missing");
}

/* The id of the token with that text. */
static bool find_token(const crumb_gguf *g, const char *text, int32_t *id) {
    const crumb_gguf_value *tokens;
    if (!*text || crumb_gguf_get_array(g, "tokenizer.ggml.tokens", true, CRUMB_GGUF_STRING, &tokens, NULL) != CRUMB_OK)
        return false;
    const uint8_t *cursor = tokens->array.data;
    for (uint64_t i = 0; i < tokens->array.n; i++) {
        const crumb_bytes token = crumb_gguf_next_string(&cursor);
        if (token.size != strlen(text) || memcmp(token.data, text, token.size) != 0) continue;
        *id = (int32_t)i;
        return true;
    }
    return false;
}

/* config.json's, which may be a list: the first one is the one. -1, as older files have it, is none. */
static crumb_status get_id(const reader *r, const char *key, int32_t *id) {
    const cJSON *v = checkpoint_get(r->root.json, key), *each;
    const int32_t last = (int32_t)r->vocab_size - 1;
    if (!cJSON_IsArray(v)) return checkpoint_get_integer(&r->root, key, false, -1, last, id);
    if (!v->child) return checkpoint_damaged(&r->root, key, "an empty list");
    cJSON_ArrayForEach(each, v) {
        if (!cJSON_IsNumber(each) || !(each->valuedouble >= 0) || !(each->valuedouble <= last) ||
            (int32_t)each->valuedouble != each->valuedouble)
            return checkpoint_damaged(&r->root, key, "an entry that is no token's id");
    }
    *id = (int32_t)v->child->valuedouble;
    return CRUMB_OK;
}

static crumb_status put_special(const reader *r, const char *text_key, const char *id_key, const char *key) {
    const char *text;
    int32_t id = -1;
    CRUMB_TRY(get_token(r, text_key, &text));
    CRUMB_TRY(get_id(r, id_key, &id));
    find_token(r->g, text, &id);
    if (id >= 0 && !crumb_gguf_find(r->g, key)) crumb_gguf_build_u32(r->keys, key, (uint32_t)id);
    return CRUMB_OK;
}

static crumb_status put_flag(const reader *r, const char *option, const char *key) {
    bool flag = false;
    CRUMB_TRY(checkpoint_get_flag(&r->options, option, &flag));
    if (checkpoint_get(r->options.json, option) && !crumb_gguf_find(r->g, key))
        crumb_gguf_build_bool(r->keys, key, flag);
    return CRUMB_OK;
}

/* tokenizer_config.json's: one, or several of which `default` is for chats. */
static crumb_status get_template(const reader *r, const char **text) {
    const cJSON *v = checkpoint_get(r->options.json, "chat_template"), *entry;
    if (!cJSON_IsArray(v)) return checkpoint_get_text(&r->options, "chat_template", text);
    cJSON_ArrayForEach(entry, v) {
        const cJSON *name = checkpoint_get(entry, "name"), *template = checkpoint_get(entry, "template");
        if (!cJSON_IsString(name) || !cJSON_IsString(template))
            return checkpoint_damaged(&r->options, "chat_template", "an entry without name and template");
        if (strcmp(name->valuestring, "default") == 0) *text = template->valuestring;
    }
    return CRUMB_OK;
}

/* A file of its own goes before what tokenizer_config.json says. */
static crumb_status put_template(const reader *r) {
    char *own;
    size_t n_bytes;
    const char *found = "";
    CRUMB_TRY(get_template(r, &found));
    CRUMB_TRY(checkpoint_read(r->folder, "chat_template.jinja", false, &own, &n_bytes, r->root.err));
    if (own && strlen(own) != n_bytes) {
        free(own);
        return crumb_fail(r->root.err, CRUMB_ERR_FORMAT, "%s/chat_template.jinja: a byte 0 in it; the file is damaged",
                          r->folder);
    }
    if (own) found = own;
    if (*found) crumb_gguf_build_string(r->keys, "tokenizer.chat_template", found);
    free(own);
    return CRUMB_OK;
}

/* Adds what tokenizer.json does not say. */
static crumb_status put_others(const reader *r) {
    CRUMB_TRY(put_special(r, "bos_token", "bos_token_id", "tokenizer.ggml.bos_token_id"));
    CRUMB_TRY(put_special(r, "eos_token", "eos_token_id", "tokenizer.ggml.eos_token_id"));
    CRUMB_TRY(put_special(r, "pad_token", "pad_token_id", "tokenizer.ggml.padding_token_id"));
    CRUMB_TRY(put_flag(r, "add_bos_token", "tokenizer.ggml.add_bos_token"));
    CRUMB_TRY(put_flag(r, "add_eos_token", "tokenizer.ggml.add_eos_token"));
    return put_template(r);
}

static crumb_status read_options(reader *r) {
    char path[CHECKPOINT_MAX_PATH];
    cJSON *options;
    CRUMB_TRY(checkpoint_path(r->folder, "tokenizer_config.json", path, r->root.err));
    CRUMB_TRY(checkpoint_read_json(r->folder, "tokenizer_config.json", false, &options, r->root.err));
    r->options = (checkpoint_object){.path = path, .json = options, .err = r->root.err};
    const crumb_status status = put_others(r);
    cJSON_Delete(options);
    return status;
}

crumb_status checkpoint_vocabulary_read(const char *folder, const cJSON *root, const checkpoint_config *c,
                                        crumb_gguf_builder *keys, crumb_error *err) {
    reader r = {.folder = folder,
                .root = {.path = c->path, .json = root, .err = err},
                .vocab_size = c->vocab_size,
                .keys = keys};
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
    if (status == CRUMB_OK) status = read_options(&r);
    crumb_gguf_close(g);
    return status == CRUMB_OK ? keys->status : status;
}
