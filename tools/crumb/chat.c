/* Conversations of `crumb run`: messages in, through the model's chat template, answers out. The context keeps what the
 * template makes of the conversation so far, so that only what is new is evaluated. */
#include "tools/crumb/run.h"

#include "host/base/error.h"
#include "host/base/memory.h"
#include "tools/crumb/lines.h"

#include <stdlib.h>
#include <string.h>

typedef struct chat {
    run_state *run;
    cli_lines *lines;
    const char *template;    /* NULL: the model's */
    char *template_text;     /* of --chat-template-file */
    char *tools;             /* of --tools; NULL: none */
    crumb_message *messages; /* their contents are ours */
    size_t n_messages, capacity;
    int32_t *tokens; /* [n_ctx] of the conversation, as the template renders it */
} chat;

bool run_may_chat(const cli_options *o) {
    if (o->no_conversation) return false;
    return o->conversation || o->single_turn || o->system_prompt ||
           (!o->prompt && !o->prompt_file && cli_is_terminal(stdin));
}

bool run_wants_chat(const run_state *r) {
    const cli_options *o = r->options;
    if (!run_may_chat(o)) return false;
    return o->conversation || o->single_turn || o->system_prompt || o->chat_template || o->chat_template_file ||
           crumb_model_chat_template(r->model);
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

/* Takes the content over, also when it fails. */
static crumb_status add_message(chat *c, const char *role, char *content, crumb_error *err) {
    if (c->n_messages == c->capacity) {
        const size_t capacity = c->capacity ? 2 * c->capacity : 16;
        crumb_message *larger = realloc(c->messages, capacity * sizeof *larger);
        if (!larger) {
            free(content);
            return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %zu messages", capacity);
        }
        c->messages = larger;
        c->capacity = capacity;
    }
    c->messages[c->n_messages++] = (crumb_message){.role = role, .content = content};
    return CRUMB_OK;
}

static void drop_message(chat *c) {
    free((char *)(uintptr_t)c->messages[--c->n_messages].content);
}

static crumb_status add_copy(chat *c, const char *role, const char *text, crumb_error *err) {
    char *copy = strdup(text);
    if (!copy) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for a message");
    return add_message(c, role, copy, err);
}

/* A message is a string: U+FFFD stands for a byte 0 of an answer, which would end it. */
static crumb_status add_answer(chat *c, const char *text, size_t n_bytes, crumb_error *err) {
    static const char instead[] = "\xef\xbf\xbd";
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) n += text[i] ? 1 : sizeof instead - 1;
    char *copy = calloc(n + 1, 1), *to = copy;
    if (!copy) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for a message");
    for (size_t i = 0; i < n_bytes; i++)
        if (text[i])
            *to++ = text[i];
        else
            to = stpcpy(to, instead);
    return add_message(c, "assistant", copy, err);
}

/* A line of the user's, and those behind it for as long as they end with a backslash. */
static crumb_status read_message(chat *c, char **text, cli_line_end *end, crumb_error *err) {
    char *line;
    CRUMB_TRY(cli_lines_next(c->lines, "> ", text, end, err));
    while (*end == CLI_LINE_READ && **text && (*text)[strlen(*text) - 1] == '\\') {
        const size_t n = strlen(*text);
        CRUMB_TRY(cli_lines_next(c->lines, "  ", &line, end, err));
        char *both = *end == CLI_LINE_READ ? realloc(*text, n + strlen(line) + 1) : NULL;
        if (both) {
            both[n - 1] = '\n';
            memcpy(both + n, line, strlen(line) + 1);
            *text = both;
        }
        free(line);
        if (*end == CLI_LINE_READ && !both) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for a message");
    }
    return CRUMB_OK;
}

/* The next message that is not empty; CLOSED, INTERRUPTED: there is none. */
static crumb_status next_message(chat *c, cli_line_end *end, crumb_error *err) {
    char *text = NULL;
    cli_rearm_interrupt(true);
    do {
        free(text);
        const crumb_status status = read_message(c, &text, end, err);
        if (status != CRUMB_OK || *end != CLI_LINE_READ) {
            free(text);
            return status;
        }
    } while (!*text);
    cli_rearm_interrupt(false);
    return add_message(c, "user", text, err);
}

/* ---- answers ----------------------------------------------------------------------------------------------- */

static crumb_status tokenize(chat *c, size_t *n, crumb_error *err) {
    crumb_chat all = crumb_chat_default();
    all.source = c->template;
    all.source_name = c->run->options->chat_template_file;
    all.messages = c->messages;
    all.n_messages = c->n_messages;
    all.tools = c->tools;
    return crumb_model_tokenize_chat(c->run->model, &all, c->tokens, crumb_session_capacity(c->run->session), n, err);
}

/* Feeds what the context does not hold yet of the conversation. *fits is false where it cannot hold all. */
static crumb_status feed(chat *c, bool *fits, crumb_error *err) {
    run_state *r = c->run;
    size_t n = 0, keep = 0;
    const size_t length = crumb_session_length(r->session), capacity = crumb_session_capacity(r->session);
    const crumb_status status = tokenize(c, &n, err);
    *fits = n <= capacity;
    if (!*fits) return CRUMB_OK;
    CRUMB_TRY(status);
    if (n == 0) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "the chat template makes nothing of the conversation");
    while (keep < length && keep + 1 < n && c->tokens[keep] == r->context[keep]) keep++;
    CRUMB_TRY(crumb_session_rewind(r->session, keep, err));
    return run_feed(r, c->tokens + keep, n - keep, err);
}

static crumb_status tell_turn(const chat *c, crumb_error *err) {
    const char *text = c->messages[c->n_messages - 1].content;
    return c->run->options->json ? run_put_event("message", "text", text, strlen(text), err) : CRUMB_OK;
}

/* Answers the last message. Where that is interrupted, what has been said is kept, and a message that nothing was said
 * to is forgotten. */
static crumb_status answer(chat *c, crumb_error *err) {
    run_state *r = c->run;
    bool fits;
    r->n_answer = 0;
    CRUMB_TRY(tell_turn(c, err));
    crumb_status status = feed(c, &fits, err);
    if (status == CRUMB_OK && !fits) return r->end = RUN_CONTEXT, CRUMB_OK;
    if (status == CRUMB_OK) status = run_generate(r, run_wanted(r), err);
    if (status != CRUMB_OK && status != CRUMB_ERR_INTERRUPTED) return status;
    if (status == CRUMB_ERR_INTERRUPTED) r->end = RUN_INTERRUPTED;
    if (r->end == RUN_INTERRUPTED) r->last_byte = 'C'; /* of ^C, which terminals show: the prompt wants another line */
    CRUMB_TRY(run_end_text(r, err));
    if (r->options->json) {
        const char *reason = run_end_names[r->end];
        CRUMB_TRY(run_put_event("answered", "reason", reason, strlen(reason), err));
    }
    cli_flush();
    if (r->end == RUN_INTERRUPTED && r->n_answer == 0) return drop_message(c), CRUMB_OK;
    return add_answer(c, r->answer, r->n_answer, err);
}

/* ---- the conversation -------------------------------------------------------------------------------------- */

/* A text ends at a byte 0, and nobody would see what is cut off. */
static crumb_status read_text(const char *path, char **text, crumb_error *err) {
    size_t n;
    CRUMB_TRY(cli_read_file(path, text, &n, err));
    if (strlen(*text) == n) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: a byte 0 in it; the file is damaged", path);
}

static crumb_status read_options(chat *c, crumb_error *err) {
    const cli_options *o = c->run->options;
    if (o->tools) CRUMB_TRY(read_text(o->tools, &c->tools, err));
    if (o->chat_template_file) CRUMB_TRY(read_text(o->chat_template_file, &c->template_text, err));
    c->template = o->chat_template_file ? c->template_text : o->chat_template;
    if (!o->system_prompt) return CRUMB_OK;
    CRUMB_TRY(add_copy(c, "system", o->system_prompt, err));
    if (o->escape) cli_unescape((char *)(uintptr_t)c->messages[0].content, strlen(c->messages[0].content));
    return CRUMB_OK;
}

/* A template that does not work says so before anybody has typed anything. */
static crumb_status try_template(chat *c, crumb_error *err) {
    size_t n = 0;
    CRUMB_TRY(add_copy(c, "user", "hello", err));
    const crumb_status status = tokenize(c, &n, err);
    drop_message(c);
    return n > 0 ? CRUMB_OK : status;
}

/* Messages and answers until there are no more. RUN_EOS: the conversation ended as it should. */
static crumb_status talk(chat *c, crumb_error *err) {
    run_state *r = c->run;
    cli_line_end end = CLI_LINE_READ;
    if (r->prompt && memchr(r->prompt, 0, r->prompt_bytes))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "the prompt: a byte 0 in it, which a message cannot have");
    if (r->prompt) CRUMB_TRY(add_copy(c, "user", r->prompt, err));
    for (bool given = r->prompt != NULL;; given = false) {
        if (!given) CRUMB_TRY(next_message(c, &end, err));
        if (end != CLI_LINE_READ) return r->end = end == CLI_LINE_CLOSED ? RUN_EOS : RUN_INTERRUPTED, CRUMB_OK;
        CRUMB_TRY(answer(c, err));
        if (r->end == RUN_CONTEXT || r->end == RUN_OUTPUT || r->options->single_turn) return CRUMB_OK;
    }
}

crumb_status run_chat(run_state *r, crumb_error *err) {
    chat c = {.run = r};
    crumb_status status =
        crumb_calloc(crumb_session_capacity(r->session), sizeof *c.tokens, "the conversation", (void **)&c.tokens, err);
    if (status == CRUMB_OK) status = cli_lines_open(&c.lines, err);
    if (status == CRUMB_OK) status = read_options(&c, err);
    if (status == CRUMB_OK) status = try_template(&c, err);
    if (status == CRUMB_OK && cli_lines_edited(c.lines) && !r->options->single_turn)
        cli_note("chat: Ctrl-C stops an answer, Ctrl-D ends; a line that ends with \\ goes on in the next");
    if (status == CRUMB_OK) status = talk(&c, err);
    cli_lines_close(c.lines);
    while (c.n_messages) drop_message(&c);
    free(c.messages);
    free(c.template_text);
    free(c.tools);
    free(c.tokens);
    return status;
}
