/* crumb tokenize: text to ids, as llama-tokenize prints them. Reads the vocabulary only, so that it is quick for a
 * model of any size and works on files that hold nothing else, or on a tokenizer.json. */
#include "host/base/error.h"
#include "host/container/gguf.h"
#include "host/text/tokenizer_json.h"
#include "tools/crumb/json_util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct tokenize_state {
    const cli_options *options;
    crumb_tokenizer *tokenizer;
    char *text;
    size_t n_bytes;
    int32_t *tokens;
    size_t n_tokens;
} tokenize_state;

static bool ends_with(const char *text, const char *end) {
    const size_t n_text = strlen(text), n_end = strlen(end);
    return n_text >= n_end && strcmp(text + n_text - n_end, end) == 0;
}

/* Hugging Face's tokenizer.json: the model is that file, or a folder with it. */
static bool find_json(const char *model, char *path, size_t size) {
    struct stat info;
    const bool is_folder = model && stat(model, &info) == 0 && S_ISDIR(info.st_mode);
    if (!is_folder && !(model && ends_with(model, ".json"))) return false;
    const int n = snprintf(path, size, "%s%s", model, is_folder ? "/tokenizer.json" : "");
    return n > 0 && (size_t)n < size;
}

static crumb_status open_json(const char *path, crumb_tokenizer **out, crumb_error *err) {
    char *json;
    size_t n_bytes;
    CRUMB_TRY(cli_read_file(path, &json, &n_bytes, err));
    const crumb_status status = crumb_tokenizer_open_json(json, n_bytes, path, out, err);
    free(json);
    return status;
}

static crumb_status open_tokenizer(const cli_options *options, crumb_tokenizer **out, crumb_error *err) {
    crumb_gguf *g;
    char path[4096];
    if (find_json(options->model, path, sizeof path)) return open_json(path, out, err);
    CRUMB_TRY(cli_gguf_open(options->model, &g, err));
    crumb_status status = crumb_tokenizer_open(g, out, err);
    if (status != CRUMB_OK) crumb_fail_prefix(err, status, "%s", crumb_gguf_path(g));
    crumb_gguf_close(g);
    return status;
}

static crumb_status read_text(tokenize_state *t, crumb_error *err) {
    if (t->options->from_stdin) return cli_read_file("-", &t->text, &t->n_bytes, err);
    CRUMB_TRY(cli_prompt(t->options, &t->text, &t->n_bytes, err));
    if (t->text) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "no text: give -p TEXT, -f FILE or --stdin");
}

static crumb_status encode(tokenize_state *t, crumb_error *err) {
    const cli_options *o = t->options;
    unsigned flags = (o->bos ? CRUMB_TOKENIZE_ADD_SPECIAL : 0) | (o->parse_special ? CRUMB_TOKENIZE_PARSE_SPECIAL : 0);
    crumb_status status = crumb_tokenizer_encode(t->tokenizer, t->text, t->n_bytes, flags, NULL, 0, &t->n_tokens, NULL);
    if (status != CRUMB_OK && t->n_tokens == 0)
        return crumb_tokenizer_encode(t->tokenizer, t->text, t->n_bytes, flags, NULL, 0, &t->n_tokens, err);
    t->tokens = malloc((t->n_tokens + 1) * sizeof *t->tokens);
    if (!t->tokens) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %zu tokens", t->n_tokens);
    return crumb_tokenizer_encode(t->tokenizer, t->text, t->n_bytes, flags, t->tokens, t->n_tokens, &t->n_tokens, err);
}

static crumb_status print_json(const tokenize_state *t, crumb_error *err) {
    cJSON *document = json_document(), *tokens;
    json_add_text(document, "model_filename", t->options->model ? t->options->model : "");
    json_add_u64(document, "n_tokens", t->n_tokens);
    tokens = cJSON_AddArrayToObject(document, "tokens");
    for (size_t i = 0; i < t->n_tokens; i++) {
        size_t n_bytes;
        const char *bytes = crumb_tokenizer_token_bytes(t->tokenizer, t->tokens[i], true, &n_bytes);
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddItemToObject(entry, "id", json_i64(t->tokens[i]));
        cJSON_AddItemToObject(entry, "text", json_text(bytes, n_bytes));
        cJSON_AddItemToArray(tokens, entry);
    }
    return json_print(document, false, "\n", err);
}

static void print_ids(const tokenize_state *t) {
    cli_print("[");
    for (size_t i = 0; i < t->n_tokens; i++) cli_print("%s%d", i ? ", " : "", t->tokens[i]);
    cli_print("]\n");
}

static void print_pieces(const tokenize_state *t) {
    for (size_t i = 0; i < t->n_tokens; i++) {
        size_t n_bytes;
        const char *bytes = crumb_tokenizer_token_bytes(t->tokenizer, t->tokens[i], true, &n_bytes);
        char *text = cli_printable(bytes, n_bytes);
        cli_print("%6d -> '%s'\n", t->tokens[i], text ? text : "");
        free(text);
    }
}

static crumb_status tokenize(tokenize_state *t, crumb_error *err) {
    CRUMB_TRY(read_text(t, err));
    CRUMB_TRY(open_tokenizer(t->options, &t->tokenizer, err));
    CRUMB_TRY(encode(t, err));
    if (t->options->json) return print_json(t, err);
    if (t->options->ids)
        print_ids(t);
    else
        print_pieces(t);
    if (t->options->show_count) cli_print("Total number of tokens: %zu\n", t->n_tokens);
    return CRUMB_OK;
}

int cli_tokenize(const cli_options *options) {
    crumb_error err = {0};
    tokenize_state t = {.options = options};
    crumb_status status = tokenize(&t, &err);
    crumb_tokenizer_close(t.tokenizer);
    free(t.text);
    free(t.tokens);
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
