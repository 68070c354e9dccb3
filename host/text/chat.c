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

static crumb_status add_messages(crumb_jinja_state *s, const crumb_message *messages, size_t n, crumb_jinja_dict *to) {
    crumb_jinja_value *items, list, content;
    CRUMB_TRY(crumb_jinja_make_list(s, n, false, &items, &list));
    for (size_t i = 0; i < n; i++) {
        CRUMB_TRY(crumb_jinja_make_dict(s, &items[i]));
        CRUMB_TRY(crumb_jinja_input(s, messages[i].content, strlen(messages[i].content), &content));
        CRUMB_TRY(crumb_jinja_dict_set_name(s, items[i].as.dict, "role", crumb_jinja_literal(messages[i].role)));
        CRUMB_TRY(crumb_jinja_dict_set_name(s, items[i].as.dict, "content", content));
    }
    return crumb_jinja_dict_set_name(s, to, "messages", list);
}

/* The variables that transformers gives to templates. */
static crumb_status make_variables(crumb_jinja_state *s, const crumb_tokenizer *t, const crumb_message *messages,
                                   size_t n_messages, bool answer, crumb_jinja_value *out) {
    const struct {
        const char *name;
        crumb_jinja_value value;
    } variables[] = {
        {"bos_token", token_text(t, crumb_tokenizer_bos(t))},
        {"eos_token", token_text(t, crumb_tokenizer_eos(t))},
        {"add_generation_prompt", crumb_jinja_bool(answer)},
        {"tools", crumb_jinja_none()},
        {"documents", crumb_jinja_none()},
    };
    CRUMB_TRY(crumb_jinja_make_dict(s, out));
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        CRUMB_TRY(crumb_jinja_dict_set_name(s, out->as.dict, variables[i].name, variables[i].value));
    return add_messages(s, messages, n_messages, out->as.dict);
}

static crumb_status render(crumb_jinja_state *s, const char *source, const crumb_tokenizer *t,
                           const crumb_message *messages, size_t n_messages, bool answer, crumb_jinja_text *out) {
    crumb_jinja_template *template;
    crumb_jinja_value variables;
    CRUMB_TRY(make_variables(s, t, messages, n_messages, answer, &variables));
    CRUMB_TRY(crumb_jinja_compile(source, strlen(source), &template, s->err));
    const crumb_status status = crumb_jinja_render(template, s, &variables, out);
    crumb_jinja_destroy(template);
    return status;
}

crumb_status crumb_chat_tokenize(const crumb_tokenizer *t, const char *source, const crumb_message *messages,
                                 size_t n_messages, bool answer, int32_t *tokens, size_t capacity, size_t *n_tokens,
                                 crumb_error *err) {
    crumb_error reason = {0};
    crumb_arena arena = {.limit_bytes = CRUMB_JINJA_MEMORY_BYTES};
    crumb_jinja_state s = crumb_jinja_state_default(&arena, &reason);
    crumb_jinja_text text = {0};
    *n_tokens = 0;
    CRUMB_TRY(find_source(source, &source, err));
    s.now = (int64_t)time(NULL);
    crumb_status status = render(&s, source, t, messages, n_messages, answer, &text);
    if (status == CRUMB_OK)
        status =
            crumb_tokenizer_encode_chat(t, text.bytes, text.from_input, text.n_bytes, tokens, capacity, n_tokens, err);
    else if (err)
        crumb_fail(err, status, "chat template, %s", reason.message);
    crumb_arena_free(&arena);
    return status;
}
