#include "host/base/file.h"
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

enum { MAX_IDS = 64 };
typedef struct id_list {
    int32_t ids[MAX_IDS];
    size_t n;
} id_list;

static bool has_id(const id_list *list, int32_t id) {
    size_t i = 0;
    while (i < list->n && list->ids[i] != id) i++;
    return i < list->n;
}

static crumb_status add_id(const checkpoint_object *from, const char *key, int32_t id, id_list *to) {
    if (id < 0 || has_id(to, id)) return CRUMB_OK;
    if (to->n == MAX_IDS) return checkpoint_unsupported(from, key, "a list of more than 64");
    to->ids[to->n++] = id;
    return CRUMB_OK;
}

/* Adds what the key says: an id or a list of them. -1, as older files have it, is none. */
static crumb_status add_ids(const reader *r, const checkpoint_object *from, const char *key, id_list *to) {
    const cJSON *v = checkpoint_get(from->json, key), *each;
    const int32_t last = (int32_t)r->vocab_size - 1;
    int32_t id = -1;
    if (!cJSON_IsArray(v)) {
        CRUMB_TRY(checkpoint_get_integer(from, key, false, -1, last, &id));
        return add_id(from, key, id, to);
    }
    if (!v->child) return checkpoint_damaged(from, key, "an empty list");
    cJSON_ArrayForEach(each, v) {
        if (!cJSON_IsNumber(each) || !(each->valuedouble >= 0) || !(each->valuedouble <= last) ||
            (int32_t)each->valuedouble != each->valuedouble)
            return checkpoint_damaged(from, key, "an entry that is no token's id");
        CRUMB_TRY(add_id(from, key, (int32_t)each->valuedouble, to));
    }
    return CRUMB_OK;
}

/* The token of tokenizer_config.json, else the first one of config.json. */
static crumb_status put_special(const reader *r, const char *text_key, const char *id_key, const char *key) {
    const char *text;
    id_list list = {.n = 0};
    CRUMB_TRY(get_token(r, text_key, &text));
    CRUMB_TRY(add_ids(r, &r->root, id_key, &list));
    int32_t id = list.n ? list.ids[0] : -1;
    if (!find_token(r->g, text, &id) && *text && strcmp(text_key, "pad_token") != 0)
        return checkpoint_damaged(&r->options, text_key, "its text is no token of tokenizer.json");
    if (id >= 0 && !crumb_gguf_find(r->g, key)) crumb_gguf_build_u32(r->keys, key, (uint32_t)id);
    return CRUMB_OK;
}

/* Chat models end their answers with other tokens than texts end with: config.json, and generation_config.json where
 * there is one, list them all. */
static crumb_status put_ends(const reader *r) {
    char path[CHECKPOINT_MAX_PATH];
    cJSON *json;
    id_list list = {.n = 0};
    CRUMB_TRY(add_ids(r, &r->root, "eos_token_id", &list));
    CRUMB_TRY(checkpoint_path(r->folder, "generation_config.json", path, r->root.err));
    CRUMB_TRY(checkpoint_read_json(r->folder, "generation_config.json", false, &json, r->root.err));
    const checkpoint_object generation = {.path = path, .json = json, .err = r->root.err};
    const crumb_status status = add_ids(r, &generation, "eos_token_id", &list);
    cJSON_Delete(json);
    CRUMB_TRY(status);
    if (!list.n) return CRUMB_OK;
    crumb_gguf_build_array(r->keys, CRUMB_KEY_ENDS, CRUMB_GGUF_I32, list.n);
    for (size_t i = 0; i < list.n; i++) crumb_gguf_add_i32(r->keys, list.ids[i]);
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

/* Of models that see, from before there was chat_template.jinja. */
static crumb_status put_older_template(const reader *r) {
    char path[CHECKPOINT_MAX_PATH];
    const char *text = "";
    cJSON *json;
    CRUMB_TRY(checkpoint_path(r->folder, "chat_template.json", path, r->root.err));
    CRUMB_TRY(checkpoint_read_json(r->folder, "chat_template.json", false, &json, r->root.err));
    const checkpoint_object object = {.path = path, .json = json, .err = r->root.err};
    const crumb_status status = checkpoint_get_text(&object, "chat_template", &text);
    if (status == CRUMB_OK && *text) crumb_gguf_build_string(r->keys, "tokenizer.chat_template", text);
    cJSON_Delete(json);
    return status;
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
    const bool is_found = *found;
    if (is_found) crumb_gguf_build_string(r->keys, "tokenizer.chat_template", found);
    free(own);
    return is_found ? CRUMB_OK : put_older_template(r);
}

/* Adds what tokenizer.json does not say. */
static crumb_status put_others(const reader *r) {
    CRUMB_TRY(put_special(r, "bos_token", "bos_token_id", "tokenizer.ggml.bos_token_id"));
    CRUMB_TRY(put_special(r, "eos_token", "eos_token_id", "tokenizer.ggml.eos_token_id"));
    CRUMB_TRY(put_special(r, "pad_token", "pad_token_id", "tokenizer.ggml.padding_token_id"));
    CRUMB_TRY(put_ends(r));
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

/* More tokens than the model has rows for: of the finished keys, so that the file is named where they come from. */
static crumb_status check_count(const crumb_gguf *g, const checkpoint_config *c, const char *path, crumb_error *err) {
    const crumb_gguf_value *tokens;
    CRUMB_TRY(crumb_gguf_get_array(g, "tokenizer.ggml.tokens", true, CRUMB_GGUF_STRING, &tokens, err));
    if (tokens->array.n <= c->vocab_size) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: token %llu, but config.json's key 'vocab_size' is %u", path,
                      (unsigned long long)tokens->array.n - 1, c->vocab_size);
}

static crumb_status read_text(const char *folder, const char *path, char **text, size_t *n_bytes, crumb_error *err) {
    if (crumb_file_exists(path)) return checkpoint_read(folder, "tokenizer.json", true, text, n_bytes, err);
    return crumb_fail(err, CRUMB_ERR_IO,
                      "%s: there is no such file, and crumb reads no other vocabulary (tokenizer.model, vocab.json): "
                      "transformers writes it, AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                      path);
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
    CRUMB_TRY(read_text(folder, path, &text, &n_bytes, err));
    crumb_status status = crumb_tokenizer_json_to_keys(text, n_bytes, c->vocab_size, keys, err);
    if (status != CRUMB_OK) crumb_fail_prefix(err, status, "%s", path);
    free(text);
    if (status == CRUMB_OK) status = crumb_gguf_build_open(keys, path, &g);
    r.g = g;
    if (status == CRUMB_OK) status = check_count(g, c, path, err);
    if (status == CRUMB_OK) status = read_options(&r);
    crumb_gguf_close(g);
    return status == CRUMB_OK ? keys->status : status;
}
