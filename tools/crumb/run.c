/* crumb run: continues a text, or talks (chat.c), streaming to stdout. */
#include "tools/crumb/run.h"

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/thread.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char default_prompt[] = "Once upon a time"; /* how the embedded model's stories begin */

enum {
    TOKEN_BYTES = 4,   /* of a token, about: the tokenizer is only there when the model is placed */
    CHAT_TOKENS = 512, /* of a chat's message, at least: what people paste into one is not known when it begins */
};

/* ---- preparing --------------------------------------------------------------------------------------------- */

static uint64_t choose_seed(int64_t wanted) {
    uint32_t seed = (uint32_t)wanted;
    if (wanted < 0 && getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint32_t)crumb_now_ns();
    return seed;
}

static void set_sampling(crumb_session_params *params, const cli_options *options, uint64_t seed) {
    params->temperature = (float)options->temperature;
    params->top_k = (int32_t)options->top_k;
    params->top_p = (float)options->top_p;
    params->min_p = (float)options->min_p;
    params->repeat_penalty = (float)options->repeat_penalty;
    params->repeat_last_n = (uint32_t)options->repeat_last_n;
    params->ignore_eos = options->ignore_eos;
    params->seed = seed;
}

static crumb_status need_prompt(run_state *r, crumb_error *err) {
    if (r->prompt) return CRUMB_OK;
    if (r->options->model)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "no prompt: give -p TEXT or -f FILE, or -cnv for a chat%s",
                          r->model && !crumb_model_chat_template(r->model) ? " (the model has no template of its own)"
                                                                           : "");
    r->prompt = default_prompt;
    r->prompt_bytes = strlen(r->prompt);
    return CRUMB_OK;
}

/* About as many tokens are read at once, which placement is chosen for. A chat's messages count as CHAT_TOKENS where
 * they are shorter or not known yet: a single one that was given is all that there will be. The system prompt is read
 * with the first. */
static int64_t expected_tokens(const run_state *r) {
    const cli_options *o = r->options;
    int64_t n = (int64_t)r->prompt_bytes / TOKEN_BYTES + 1;
    if (!run_may_chat(o)) return n;
    if (n < CHAT_TOKENS && !(o->single_turn && r->given)) n = CHAT_TOKENS;
    return n + (o->system_prompt ? (int64_t)strlen(o->system_prompt) / TOKEN_BYTES + 1 : 0);
}

static crumb_status open_model(run_state *r, crumb_error *err) {
    const cli_options *options = r->options;
    int64_t most = options->n_threads > options->n_threads_batch ? options->n_threads : options->n_threads_batch;
    CRUMB_TRY(cli_model_open(options, options->model, NULL, (int)most, expected_tokens(r), &r->model, err));
    crumb_model_get_info(r->model, &r->info);
    return CRUMB_OK;
}

static crumb_status tokenize_prompt(run_state *r, crumb_error *err) {
    unsigned flags = CRUMB_TOKENIZE_ADD_SPECIAL | CRUMB_TOKENIZE_PARSE_SPECIAL;
    return cli_model_tokenize(r->model, r->prompt, r->prompt_bytes, flags, &r->tokens, &r->n_tokens, err);
}

static crumb_status open_session(run_state *r, crumb_error *err) {
    crumb_session_params params = cli_session_params(r->options);
    r->seed = choose_seed(r->options->seed);
    set_sampling(&params, r->options, r->seed);
    CRUMB_TRY(crumb_session_create(r->model, &params, &r->session, err));
    return crumb_calloc(crumb_session_capacity(r->session), sizeof *r->context, "the context", (void **)&r->context,
                        err);
}

static crumb_status prepare(run_state *r, crumb_error *err) {
    CRUMB_TRY(cli_prompt(r->options, &r->given, &r->prompt_bytes, err));
    r->prompt = r->given;
    const bool may_chat = run_may_chat(r->options);
    if (!may_chat) CRUMB_TRY(need_prompt(r, err)); /* before a large file is read for nothing */
    CRUMB_TRY(open_model(r, err));
    r->chats = run_wants_chat(r);
    if (may_chat && !r->chats) CRUMB_TRY(need_prompt(r, err));
    if (!r->chats) CRUMB_TRY(tokenize_prompt(r, err));
    return open_session(r, err);
}

/* ---- generation -------------------------------------------------------------------------------------------- */

crumb_status run_feed(run_state *r, const int32_t *tokens, size_t n, crumb_error *err) {
    const size_t length = crumb_session_length(r->session), room = crumb_session_capacity(r->session) - length;
    if (n <= room) memcpy(r->context + length, tokens, n * sizeof *tokens);
    return crumb_session_feed(r->session, tokens, n, err);
}

uint64_t run_wanted(const run_state *r) {
    return r->options->n_predict < 0 ? UINT64_MAX : (uint64_t)r->options->n_predict;
}

crumb_status run_generate(run_state *r, uint64_t wanted, crumb_error *err) {
    r->end = RUN_LENGTH;
    for (uint64_t n = 0; n < wanted;) {
        int32_t token;
        if (cli_interrupted(NULL)) return r->end = RUN_INTERRUPTED, CRUMB_OK;
        CRUMB_TRY(crumb_session_sample(r->session, &token, err));
        if (!r->options->ignore_eos && crumb_model_token_ends(r->model, token)) return r->end = RUN_EOS, CRUMB_OK;
        CRUMB_TRY(run_put_token(r, token, err));
        if (!cli_flush()) return r->end = RUN_OUTPUT, CRUMB_OK;
        r->n_generated++;
        if (++n == wanted) break;
        bool full = crumb_session_length(r->session) == crumb_session_capacity(r->session);
        if (full) return r->end = RUN_CONTEXT, CRUMB_OK;
        CRUMB_TRY(run_feed(r, &token, 1, err));
    }
    return CRUMB_OK;
}

static crumb_status continue_text(run_state *r, crumb_error *err) {
    run_print_prompt(r);
    cli_flush();
    CRUMB_TRY(run_feed(r, r->tokens, r->n_tokens, err));
    return run_generate(r, run_wanted(r), err);
}

static int run_all(run_state *r, crumb_error *err) {
    if (prepare(r, err) != CRUMB_OK) return cli_fail(err);
    run_print_header(r);
    if (r->options->json && run_print_json_start(r, err) != CRUMB_OK) return cli_fail(err);
    r->roof_before = run_roof(r);
    r->began_ns = crumb_now_ns();
    crumb_status status = r->chats ? run_chat(r, err) : continue_text(r, err);
    if (status == CRUMB_ERR_INTERRUPTED) r->end = RUN_INTERRUPTED;
    if (status != CRUMB_OK && status != CRUMB_ERR_INTERRUPTED) {
        if (r->last_byte && r->last_byte != '\n' && !r->options->json) cli_write("\n", 1);
        cli_flush();
        return cli_fail(err);
    }
    if (run_finish(r, err) != CRUMB_OK) return cli_fail(err);
    return r->end == RUN_INTERRUPTED ? CLI_EXIT_INTERRUPTED : CLI_EXIT_OK;
}

int cli_run(const cli_options *options) {
    crumb_error err = {0};
    run_state r = {.options = options, .last_byte = 0};
    int code = run_all(&r, &err);
    crumb_session_destroy(r.session);
    crumb_model_close(r.model);
    free(r.tokens);
    free(r.context);
    free(r.answer);
    free(r.given);
    return code;
}
