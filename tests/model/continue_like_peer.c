/* continue_like_peer MODEL FIXTURE.json: does crumb, as shipped, tokenize the fixture's prompts and continue them
 * greedily as llama.cpp does? A prompt with a question must also come out of the model's chat template. The rule is
 * compare_tokens.h's; the fixture is written by tests/oracle/llama_fixtures.py.
 */
#include "host/crumb.h"
#include "tests/support/compare_tokens.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Both sides quantize activations to 8 bits, but not alike: other roundings, and for ternary files other groups (crumb:
 * one scale per token, as BitNet is trained; llama.cpp: one per 256). Seen as the distance of the two best tokens from
 * that with float activations: on SmolLM2 llama.cpp is off by up to 0.9 and crumb by about the same; on the ternary
 * model of random weights, which dampen nothing, llama.cpp by 0.23 and crumb by 0.43 (root mean square). The bounds are
 * about four times what both together are off on average, and for ties twice. */
static const token_rule trained_rule = {.near_tie = 0.5f, .max_error = 2.0f};
static const token_rule random_rule = {.near_tie = 1.0f, .max_error = 2.0f};
/* K-quants as llama.cpp itself runs them: one scale for 256 activations alone moves its distances by up to 1.2 from
 * those of the same weights in an f16 file, which the other rule is for. */
static const token_rule shared_scales_rule = {.near_tie = 1.25f, .max_error = 2.5f};

enum { MAX_TOKENS = 256 };

static char *read_text(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *text = NULL;
    size_t n = 0, room = 1 << 20;
    if ((text = malloc(room))) n = fread(text, 1, room - 1, f);
    if (text) text[n] = 0;
    fclose(f);
    return text;
}

static size_t int_array(const cJSON *array, int32_t *out) {
    size_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (n < MAX_TOKENS) out[n++] = (int32_t)item->valuedouble;
    }
    return n;
}

/* question: NULL where the text is no chat. */
static bool same_tokens(const crumb_model *model, const char *text, const char *question, const int32_t *expected,
                        size_t n_expected) {
    int32_t tokens[MAX_TOKENS];
    size_t n = 0;
    crumb_error err = {0};
    const crumb_message message = {.role = "user", .content = question};
    crumb_chat chat = crumb_chat_default();
    chat.messages = &message;
    chat.n_messages = 1;
    unsigned flags = CRUMB_TOKENIZE_ADD_SPECIAL | CRUMB_TOKENIZE_PARSE_SPECIAL;
    crumb_status status = question
                              ? crumb_model_tokenize_chat(model, &chat, tokens, MAX_TOKENS, &n, &err)
                              : crumb_model_tokenize(model, text, strlen(text), flags, tokens, MAX_TOKENS, &n, &err);
    if (status != CRUMB_OK) {
        printf("\"%s\": %s\n", text, err.message);
        return false;
    }
    if (n == n_expected && memcmp(tokens, expected, n * sizeof *tokens) == 0) return true;
    printf("\"%s\": other token ids than llama.cpp's\n", text);
    return false;
}

/* Feeds the prompt, then llama.cpp's own tokens, and judges the logits before each. */
static bool continue_prompt(crumb_model *model, crumb_session *session, const cJSON *prompt, const token_rule *rule,
                            token_tally *tally) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(prompt, "text"));
    int32_t tokens[MAX_TOKENS];
    size_t n = int_array(cJSON_GetObjectItem(prompt, "tokens"), tokens), n_vocab;
    crumb_model_info info;
    crumb_error err = {0};
    crumb_model_get_info(model, &info);
    n_vocab = info.n_vocab;
    const char *question = cJSON_GetStringValue(cJSON_GetObjectItem(prompt, "question"));
    bool good =
        same_tokens(model, text, question, tokens, n) && (!question || same_tokens(model, text, NULL, tokens, n));
    crumb_status status = crumb_session_rewind(session, 0, &err);
    const cJSON *position;
    cJSON_ArrayForEach(position, cJSON_GetObjectItem(prompt, "continuation")) {
        if (status == CRUMB_OK) status = crumb_session_feed(session, tokens, n, &err);
        if (status != CRUMB_OK) break;
        token_reference reference = {
            .best = cJSON_GetArrayItem(position, 0)->valueint,
            .second = cJSON_GetArrayItem(position, 1)->valueint,
            .margin = (float)cJSON_GetArrayItem(position, 2)->valuedouble,
        };
        token_tally_add(tally, rule, text, crumb_session_logits(session), n_vocab, &reference);
        tokens[0] = reference.best;
        n = 1;
    }
    if (status != CRUMB_OK) printf("\"%s\": %s\n", text, err.message);
    return good && status == CRUMB_OK;
}

/* The prompts under a key, of which there may be none. */
static bool continue_prompts(crumb_model *model, crumb_session *session, const cJSON *fixture, const char *key,
                             const token_rule *rule) {
    const cJSON *prompts = cJSON_GetObjectItem(fixture, key), *prompt;
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(fixture, "model"));
    token_tally tally = {0};
    char what[96];
    bool good = true;
    if (!prompts) return true;
    cJSON_ArrayForEach(prompt, prompts) {
        if (!continue_prompt(model, session, prompt, rule, &tally)) good = false;
    }
    snprintf(what, sizeof what, "%s, %s", name ? name : "?", key);
    return token_tally_report(&tally, rule, what) && good;
}

static bool run(const char *model_path, const cJSON *fixture) {
    crumb_model_params model_params = crumb_model_params_default();
    crumb_session_params params = crumb_session_params_default();
    params.n_ctx = 2 * MAX_TOKENS;
    crumb_model *model = NULL;
    crumb_session *session = NULL;
    crumb_error err = {0};
    bool good = crumb_model_open(model_path, &model_params, &model, &err) == CRUMB_OK &&
                crumb_session_create(model, &params, &session, &err) == CRUMB_OK;
    if (good) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(fixture, "model"));
        const token_rule *rule = name && strncmp(name, "ternary", 7) == 0 ? &random_rule : &trained_rule;
        good = continue_prompts(model, session, fixture, "prompts", rule);
        good = continue_prompts(model, session, fixture, "as_it_is", &shared_scales_rule) && good;
    } else {
        printf("%s\n", err.message);
    }
    crumb_session_destroy(session);
    crumb_model_close(model);
    return good;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: continue_like_peer MODEL FIXTURE.json\n");
        return 2;
    }
    char *text = read_text(argv[2]);
    cJSON *fixture = text ? cJSON_Parse(text) : NULL;
    bool good = fixture != NULL;
    if (!good) {
        printf("%s: not a fixture\n", argv[2]);
    } else {
        good = run(argv[1], fixture);
    }
    cJSON_Delete(fixture);
    free(text);
    return good ? 0 : 1;
}
