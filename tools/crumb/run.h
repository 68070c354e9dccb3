/* What `crumb run` is made of: run.c continues a text, chat.c talks, run_output.c prints. */
#ifndef CRUMB_TOOLS_RUN_H
#define CRUMB_TOOLS_RUN_H

#include "tools/crumb/cli.h"

typedef enum run_end { RUN_EOS, RUN_LENGTH, RUN_CONTEXT, RUN_INTERRUPTED, RUN_OUTPUT } run_end;

typedef struct run_state {
    const cli_options *options;
    crumb_model *model;
    crumb_session *session;
    crumb_model_info info;
    char *given;        /* the prompt, where one was; NULL: none */
    const char *prompt; /* that, or the embedded model's own */
    size_t prompt_bytes;
    int32_t *tokens; /* of the prompt */
    size_t n_tokens, n_generated;
    uint64_t seed;
    bool chats;
    int32_t *context; /* [n_ctx] the tokens that the session holds */
    crumb_utf8_stream utf8;
    char last_byte; /* written to stdout: the text is made to end with a newline */
    char *answer;   /* what was generated since n_answer was 0, where the run chats */
    size_t n_answer, answer_capacity;
    uint64_t began_ns;
    double roof_before; /* GB/s of the processor's memory before anything was evaluated; 0: not measured */
    run_end end;
} run_state;

/* ---- run.c ------------------------------------------------------------------------------------------------- */

/* Evaluates tokens and notes them in r->context. */
crumb_status run_feed(run_state *r, const int32_t *tokens, size_t n, crumb_error *err);
/* Generates from the logits, up to `wanted` tokens, and sets r->end. Each token is shown before it is evaluated, and
 * the last one is not evaluated at all. */
crumb_status run_generate(run_state *r, uint64_t wanted, crumb_error *err);
uint64_t run_wanted(const run_state *r); /* what -n says */

/* ---- chat.c ------------------------------------------------------------------------------------------------ */

/* Whether options, terminal and model ask for a conversation; whether they may, as far as is known without the model.
 */
bool run_wants_chat(const run_state *r);
bool run_may_chat(const cli_options *options);
/* Messages from r->prompt, then from the terminal or standard input, and their answers. */
crumb_status run_chat(run_state *r, crumb_error *err);

/* ---- run_output.c ------------------------------------------------------------------------------------------ */

void run_print_header(const run_state *r);
void run_print_prompt(run_state *r);
crumb_status run_print_json_start(const run_state *r, crumb_error *err);
crumb_status run_put_event(const char *event, const char *key, const char *text, size_t n_bytes, crumb_error *err);
crumb_status run_put_token(run_state *r, int32_t token, crumb_error *err);
/* Completes what is shown so far: a character that was cut off, and a newline. */
crumb_status run_end_text(run_state *r, crumb_error *err);
extern const char *const run_end_names[];
/* GB/s that the processor's memory gives now, with --roofline; else 0. */
double run_roof(const run_state *r);
/* The last newline, the footer, and what --explain tells. */
crumb_status run_finish(run_state *r, crumb_error *err);

#endif
