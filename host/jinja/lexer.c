#include "host/jinja/lexer.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct lexer {
    crumb_jinja_state *state;
    const char *text;
    size_t at, n_bytes, counted; /* lines are counted up to `counted` */
    bool line_begins;            /* what was read last ended a line, or nothing was read yet */
    crumb_jinja_token *tokens;
    size_t n, capacity;
} lexer;

static crumb_status fail(const lexer *l, crumb_status status, const char *problem) {
    return crumb_jinja_fail(l->state, status, "%s", problem);
}

static void count_lines(lexer *l, size_t to) {
    for (; l->counted < to; l->counted++) l->state->line += l->text[l->counted] == '\n';
}

static crumb_status push(lexer *l, crumb_jinja_token_kind kind, uint16_t op, crumb_jinja_value value) {
    if (l->n == l->capacity) {
        crumb_jinja_token *room;
        l->capacity = l->capacity ? 2 * l->capacity : 256;
        CRUMB_TRY(crumb_jinja_alloc(l->state, l->capacity, sizeof *room, &room));
        if (l->n) memcpy(room, l->tokens, l->n * sizeof *room);
        l->tokens = room;
    }
    l->tokens[l->n++] = (crumb_jinja_token){.kind = kind, .line = l->state->line, .op = op, .value = value};
    return CRUMB_OK;
}

static bool looking_at(const lexer *l, size_t at, const char *word) {
    const size_t n = strlen(word);
    return at <= l->n_bytes && n <= l->n_bytes - at && memcmp(l->text + at, word, n) == 0;
}

static crumb_jinja_text whole(const lexer *l) {
    return (crumb_jinja_text){.bytes = l->text, .n_bytes = l->n_bytes};
}

static size_t skip_space(const lexer *l, size_t at) {
    const crumb_jinja_text t = whole(l);
    while (at < t.n_bytes && crumb_jinja_is_space(crumb_jinja_character(t, at)))
        at += crumb_jinja_character_bytes(t, at);
    return at;
}

/* Moves behind a tag's end, which is `end` with an optional sign before it. */
static bool accept_end(lexer *l, const char *end, bool trims, bool may_keep) {
    size_t at = l->at;
    const bool strips = looking_at(l, at, "-") && looking_at(l, at + 1, end);
    const bool keeps = may_keep && looking_at(l, at, "+") && looking_at(l, at + 1, end);
    if (!strips && !keeps && !looking_at(l, at, end)) return false;
    at += 2 + (size_t)(strips || keeps);
    if (strips)
        at = skip_space(l, at);
    else if (trims && !keeps && looking_at(l, at, "\n"))
        at++;
    l->at = at;
    l->line_begins = l->text[at - 1] == '\n';
    return true;
}

/* Text up to a tag at `end`, whose sign stands at sign_at. */
static crumb_status push_data(lexer *l, size_t end, size_t sign_at, bool is_output) {
    crumb_jinja_text t = crumb_jinja_text_part(whole(l), l->at, end);
    if (looking_at(l, sign_at, "-")) {
        t = crumb_jinja_text_strip(t, NULL, false, true);
    } else if (!looking_at(l, sign_at, "+") && !is_output) {
        const char *newline = t.n_bytes ? memrchr(t.bytes, '\n', t.n_bytes) : NULL;
        const size_t begin = newline ? (size_t)(newline - t.bytes) + 1 : 0;
        const crumb_jinja_text last = crumb_jinja_text_part(t, begin, t.n_bytes);
        const bool blank = crumb_jinja_text_strip(last, NULL, true, false).n_bytes == 0;
        if ((begin > 0 || l->line_begins) && blank) t.n_bytes = begin;
    }
    if (t.n_bytes) CRUMB_TRY(push(l, CRUMB_JINJA_DATA, 0, crumb_jinja_string(t)));
    return CRUMB_OK;
}

/* ---- inside tags ------------------------------------------------------------------------------------------- */

static int hex_value(const char *digits, size_t n, int32_t *out) {
    char text[9] = "";
    if (n > 8) return -1;
    memcpy(text, digits, n);
    if (strspn(text, "0123456789abcdefABCDEF") != n) return -1;
    const unsigned long value = strtoul(text, NULL, 16);
    *out = value <= 0x10ffff && (value < 0xd800 || value > 0xdfff) ? (int32_t)value : -1;
    return 0;
}

/* At the character behind a backslash, as Python's unicode-escape; what that does not know stays as it is. */
static crumb_status read_escape(lexer *l, size_t *at, size_t end, crumb_jinja_writer *w) {
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = l->text[(*at)++];
    const char *known = c ? strchr(letters, c) : NULL;
    const size_t n_hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    int32_t character = 0;
    if (c == 'N') return fail(l, CRUMB_ERR_UNSUPPORTED, "the escape \\N in a string is not supported");
    if (c == '\n') return CRUMB_OK;
    if (known) return crumb_jinja_write_bytes(w, &values[known - letters], 1, false), CRUMB_OK;
    if (n_hex) {
        if (end - *at < n_hex || hex_value(l->text + *at, n_hex, &character) != 0 || character < 0)
            return fail(l, CRUMB_ERR_FORMAT, "a string with a damaged escape");
        *at += n_hex;
    } else if (c >= '0' && c <= '7') {
        character = c - '0';
        for (int i = 0; i < 2 && *at < end && l->text[*at] >= '0' && l->text[*at] <= '7'; i++)
            character = 8 * character + l->text[(*at)++] - '0';
    } else {
        crumb_jinja_write_literal(w, "\\");
        return (*at)--, CRUMB_OK;
    }
    crumb_jinja_write_character(w, character, false);
    return CRUMB_OK;
}

static crumb_status read_string(lexer *l) {
    const char quote = l->text[l->at];
    size_t end = l->at + 1;
    while (end < l->n_bytes && l->text[end] != quote) end += l->text[end] == '\\' ? 2 : 1;
    if (end >= l->n_bytes) return fail(l, CRUMB_ERR_FORMAT, "a string that does not end");
    crumb_jinja_value value;
    const crumb_jinja_text raw = crumb_jinja_text_part(whole(l), l->at + 1, end);
    if (raw.n_bytes == 0 || !memchr(raw.bytes, '\\', raw.n_bytes)) {
        value = crumb_jinja_string(raw);
    } else {
        crumb_jinja_writer w = {.state = l->state};
        for (size_t at = l->at + 1; at < end;) {
            if (l->text[at] == '\\') {
                at++;
                CRUMB_TRY(read_escape(l, &at, end, &w));
            } else {
                crumb_jinja_write_bytes(&w, l->text + at++, 1, false);
            }
        }
        CRUMB_TRY(crumb_jinja_finish(&w, &value));
    }
    CRUMB_TRY(push(l, CRUMB_JINJA_CONSTANT, 0, value));
    l->at = end + 1;
    return CRUMB_OK;
}

static size_t skip_digits(const lexer *l, size_t at) {
    while (at < l->n_bytes && isdigit((unsigned char)l->text[at])) at++;
    return at;
}

static bool digit_at(const lexer *l, size_t at) {
    return at < l->n_bytes && isdigit((unsigned char)l->text[at]);
}

static crumb_status read_number(lexer *l) {
    char text[64] = "", *parsed;
    size_t end = skip_digits(l, l->at);
    bool real = false;
    if (looking_at(l, end, ".") && digit_at(l, end + 1)) real = true, end = skip_digits(l, end + 1);
    if (looking_at(l, end, "e") || looking_at(l, end, "E")) {
        const size_t sign = (size_t)(looking_at(l, end + 1, "+") || looking_at(l, end + 1, "-"));
        if (digit_at(l, end + 1 + sign)) real = true, end = skip_digits(l, end + 1 + sign);
    }
    const bool glued = end < l->n_bytes && (isalnum((unsigned char)l->text[end]) || l->text[end] == '_');
    const bool octal = !real && l->text[l->at] == '0' && end - l->at > 1;
    if (end - l->at >= sizeof text || glued || octal)
        return fail(l, CRUMB_ERR_UNSUPPORTED, "a number that is neither decimal nor real is not supported");
    memcpy(text, l->text + l->at, end - l->at);
    errno = 0;
    const crumb_jinja_value value =
        real ? crumb_jinja_real(strtod(text, &parsed)) : crumb_jinja_integer(strtoll(text, &parsed, 10));
    if (errno) return fail(l, CRUMB_ERR_UNSUPPORTED, "a number of more than 64 bits is not supported");
    CRUMB_TRY(push(l, CRUMB_JINJA_CONSTANT, 0, value));
    l->at = end;
    return CRUMB_OK;
}

static crumb_status read_name(lexer *l) {
    size_t end = l->at;
    while (end < l->n_bytes && (isalnum((unsigned char)l->text[end]) || l->text[end] == '_')) end++;
    CRUMB_TRY(push(l, CRUMB_JINJA_WORD, 0, crumb_jinja_string(crumb_jinja_text_part(whole(l), l->at, end))));
    l->at = end;
    return CRUMB_OK;
}

static crumb_status read_operator(lexer *l, int *depth) {
    static const char pairs[][3] = {"//", "**", "==", "!=", ">=", "<="};
    const char c = l->text[l->at];
    uint16_t op = (unsigned char)c;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (looking_at(l, l->at, pairs[i])) op = CRUMB_JINJA_OP2(pairs[i][0], pairs[i][1]);
    if (!c || (op < 256 && !strchr("+-/*%~[](){}><=.:|,", c)))
        return crumb_jinja_fail(l->state, CRUMB_ERR_FORMAT, "unexpected character '%.*s'",
                                (int)crumb_jinja_character_bytes(whole(l), l->at), l->text + l->at);
    if (strchr("([{", c)) ++*depth;
    if (strchr(")]}", c)) --*depth;
    if (*depth < 0) return crumb_jinja_fail(l->state, CRUMB_ERR_FORMAT, "unexpected '%c'", c);
    CRUMB_TRY(push(l, CRUMB_JINJA_OPERATOR, op, crumb_jinja_none()));
    l->at += op < 256 ? 1 : 2;
    return CRUMB_OK;
}

/* From behind the tag's begin to behind its end. */
static crumb_status read_tag(lexer *l, bool is_output) {
    int depth = 0;
    CRUMB_TRY(push(l, is_output ? CRUMB_JINJA_OUTPUT_BEGIN : CRUMB_JINJA_BLOCK_BEGIN, 0, crumb_jinja_none()));
    for (;;) {
        l->at = skip_space(l, l->at);
        count_lines(l, l->at);
        if (l->at >= l->n_bytes) return fail(l, CRUMB_ERR_FORMAT, "the template ends inside a tag");
        const unsigned char c = (unsigned char)l->text[l->at];
        if (depth == 0 && accept_end(l, is_output ? "}}" : "%}", !is_output, !is_output)) break;
        if (isdigit(c))
            CRUMB_TRY(read_number(l));
        else if (isalpha(c) || c == '_')
            CRUMB_TRY(read_name(l));
        else if (c == '\'' || c == '"')
            CRUMB_TRY(read_string(l));
        else
            CRUMB_TRY(read_operator(l, &depth));
    }
    return push(l, is_output ? CRUMB_JINJA_OUTPUT_END : CRUMB_JINJA_BLOCK_END, 0, crumb_jinja_none());
}

/* ---- between tags ------------------------------------------------------------------------------------------ */

static crumb_status skip_comment(lexer *l) {
    const crumb_jinja_text end = crumb_jinja_literal("#}").as.text;
    const size_t found = crumb_jinja_text_find(whole(l), end, l->at);
    if (found == SIZE_MAX) return fail(l, CRUMB_ERR_FORMAT, "a comment that does not end");
    const bool signed_end = found > l->at && (l->text[found - 1] == '-' || l->text[found - 1] == '+');
    l->at = found - (size_t)signed_end;
    accept_end(l, "#}", true, true);
    return CRUMB_OK;
}

/* Whether a block at `at` (behind its sign) is `word` alone, and then where its end is. */
static bool is_block_of(const lexer *l, size_t at, const char *word, size_t *end) {
    at = skip_space(l, at);
    if (!looking_at(l, at, word)) return false;
    *end = skip_space(l, at + strlen(word));
    return looking_at(l, *end, "%}") || looking_at(l, *end, "-%}") || looking_at(l, *end, "+%}");
}

static size_t behind_sign(const lexer *l, size_t tag) {
    return tag + 2 + (size_t)(looking_at(l, tag + 2, "-") || looking_at(l, tag + 2, "+"));
}

/* Behind {% raw %}: everything to {% endraw %} is text. Jinja lets it be missing where nothing follows. */
static crumb_status read_raw(lexer *l) {
    const crumb_jinja_text begin = crumb_jinja_literal("{%").as.text;
    for (size_t from = l->at, end; l->at < l->n_bytes;) {
        const size_t tag = crumb_jinja_text_find(whole(l), begin, from);
        if (tag == SIZE_MAX) return fail(l, CRUMB_ERR_FORMAT, "{% raw %} without {% endraw %}");
        from = tag + 1;
        if (!is_block_of(l, behind_sign(l, tag), "endraw", &end)) continue;
        CRUMB_TRY(push_data(l, tag, tag + 2, false));
        l->at = end;
        accept_end(l, "%}", true, true);
        return CRUMB_OK;
    }
    return CRUMB_OK;
}

static size_t find_tag(const lexer *l) {
    for (size_t at = l->at; at + 1 < l->n_bytes; at++)
        if (l->text[at] == '{' && strchr("{%#", l->text[at + 1]) && l->text[at + 1]) return at;
    return SIZE_MAX;
}

crumb_status crumb_jinja_lex(crumb_jinja_state *s, const char *source, size_t n_bytes, crumb_jinja_token **out,
                             size_t *n_tokens) {
    lexer l = {.state = s, .text = source, .n_bytes = n_bytes, .line_begins = true};
    s->line = 1;
    while (l.at < n_bytes) {
        size_t raw_end;
        const size_t tag = find_tag(&l);
        if (tag == SIZE_MAX) {
            CRUMB_TRY(
                push(&l, CRUMB_JINJA_DATA, 0, crumb_jinja_string(crumb_jinja_text_part(whole(&l), l.at, n_bytes))));
            break;
        }
        const char kind = source[tag + 1];
        CRUMB_TRY(push_data(&l, tag, tag + 2, kind == '{'));
        count_lines(&l, tag);
        l.at = behind_sign(&l, tag);
        l.line_begins = false;
        if (kind == '#') {
            CRUMB_TRY(skip_comment(&l));
        } else if (kind == '%' && is_block_of(&l, l.at, "raw", &raw_end)) {
            l.at = raw_end;
            accept_end(&l, "%}", false, true);
            CRUMB_TRY(read_raw(&l));
        } else {
            CRUMB_TRY(read_tag(&l, kind == '{'));
        }
        count_lines(&l, l.at);
    }
    CRUMB_TRY(push(&l, CRUMB_JINJA_END, 0, crumb_jinja_none()));
    *out = l.tokens;
    *n_tokens = l.n;
    return CRUMB_OK;
}
