#include "host/text/chat.h"

#include "host/jinja/template.h"

#include <string.h>
#include <time.h>

/* What --chat-template and its like may name instead of giving a template. */
static const struct {
    const char *name, *source;
} known_templates[] = {
    {"chatml",
     "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
};

static crumb_status find_source(const char *source, const char **out, crumb_error *err) {
    *out = source;
    if (strchr(source, '{')) return CRUMB_OK;
    for (size_t i = 0; i < sizeof known_templates / sizeof *known_templates; i++)
        if (strcmp(source, known_templates[i].name) == 0) return *out = known_templates[i].source, CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                      "chat template '%.60s' is neither the text of one nor a name that crumb knows (chatml)", source);
}

/* The text of a token, as the template writes it; "" where the model has none. */
static crumb_jinja_value token_text(const crumb_tokenizer *t, int32_t token) {
    crumb_jinja_text text = {0};
    text.bytes = crumb_tokenizer_token_bytes(t, token, true, &text.n_bytes);
    return crumb_jinja_string(text);
}

/* A list that JSON says. `what` it is, for messages. */
static crumb_status read_list(crumb_jinja_state *s, const char *json, const char *what, crumb_jinja_value *out) {
    crumb_status status = crumb_jinja_read_json(s, json, strlen(json), out);
    if (status == CRUMB_OK && out->kind != CRUMB_JINJA_LIST)
        status = crumb_fail(s->err, CRUMB_ERR_FORMAT, "not a list");
    return status == CRUMB_OK ? status : crumb_fail_prefix(s->err, status, "%s", what);
}

static crumb_status set_input(crumb_jinja_state *s, crumb_jinja_dict *to, const char *name, const char *text) {
    crumb_jinja_value value;
    if (!text) return CRUMB_OK;
    CRUMB_TRY(crumb_jinja_input(s, text, strlen(text), &value));
    return crumb_jinja_dict_set_name(s, to, name, value);
}

static crumb_status add_message(crumb_jinja_state *s, const crumb_message *m, crumb_jinja_value *out) {
    crumb_jinja_value calls;
    CRUMB_TRY(crumb_jinja_make_dict(s, out));
    crumb_jinja_dict *dict = out->as.dict;
    CRUMB_TRY(crumb_jinja_dict_set_name(s, dict, "role", crumb_jinja_literal(m->role)));
    CRUMB_TRY(set_input(s, dict, "content", m->content));
    CRUMB_TRY(set_input(s, dict, "name", m->name));
    CRUMB_TRY(set_input(s, dict, "tool_call_id", m->tool_call_id));
    if (!m->tool_calls) return CRUMB_OK;
    CRUMB_TRY(read_list(s, m->tool_calls, "a message's tool_calls", &calls));
    return crumb_jinja_dict_set_name(s, dict, "tool_calls", calls);
}

static crumb_status add_messages(crumb_jinja_state *s, const crumb_chat *chat, crumb_jinja_dict *to) {
    crumb_jinja_value *items, list;
    CRUMB_TRY(crumb_jinja_make_list(s, chat->n_messages, false, &items, &list));
    for (size_t i = 0; i < chat->n_messages; i++) CRUMB_TRY(add_message(s, &chat->messages[i], &items[i]));
    return crumb_jinja_dict_set_name(s, to, "messages", list);
}

/* The variables that transformers gives to templates. */
static crumb_status make_variables(crumb_jinja_state *s, const crumb_tokenizer *t, const crumb_chat *chat,
                                   crumb_jinja_value *out) {
    crumb_jinja_value tools = crumb_jinja_none();
    if (chat->tools) CRUMB_TRY(read_list(s, chat->tools, "tools", &tools));
    const struct {
        const char *name;
        crumb_jinja_value value;
    } variables[] = {
        {"bos_token", token_text(t, crumb_tokenizer_bos(t))},
        {"eos_token", token_text(t, crumb_tokenizer_eos(t))},
        {"add_generation_prompt", crumb_jinja_bool(chat->answer)},
        {"tools", tools},
        {"documents", crumb_jinja_none()},
    };
    CRUMB_TRY(crumb_jinja_make_dict(s, out));
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        CRUMB_TRY(crumb_jinja_dict_set_name(s, out->as.dict, variables[i].name, variables[i].value));
    return add_messages(s, chat, out->as.dict);
}

static crumb_status render(crumb_jinja_state *s, const char *source, const crumb_jinja_value *variables,
                           crumb_jinja_text *out) {
    crumb_jinja_template *template;
    CRUMB_TRY(crumb_jinja_compile(source, strlen(source), &template, s->err));
    const crumb_status status = crumb_jinja_render(template, s, variables, out);
    crumb_jinja_destroy(template);
    return status;
}

crumb_status crumb_chat_tokenize(const crumb_tokenizer *t, const crumb_chat *chat, int32_t *tokens, size_t capacity,
                                 size_t *n_tokens, crumb_error *err) {
    crumb_error reason = {0};
    crumb_arena arena = {.limit_bytes = CRUMB_JINJA_MEMORY_BYTES};
    crumb_jinja_state s = crumb_jinja_state_default(&arena, &reason);
    crumb_jinja_text text = {0};
    crumb_jinja_value variables;
    const char *source;
    *n_tokens = 0;
    CRUMB_TRY(find_source(chat->source, &source, err));
    s.now = (int64_t)time(NULL);
    crumb_status status = make_variables(&s, t, chat, &variables);
    const bool is_read = status == CRUMB_OK;
    if (is_read) status = render(&s, source, &variables, &text);
    if (status == CRUMB_OK)
        status =
            crumb_tokenizer_encode_chat(t, text.bytes, text.from_input, text.n_bytes, tokens, capacity, n_tokens, err);
    else if (err)
        crumb_fail(err, status, "%s%s%s%s", is_read && chat->source_name ? chat->source_name : "",
                   is_read && chat->source_name ? ": " : "", is_read ? "chat template, " : "", reason.message);
    crumb_arena_free(&arena);
    return status;
}
