/* JSON of templates: tojson as Hugging Face sets it (json.dumps), and reading what templates are applied to. cJSON does
 * not serve: it forgets whether a number was an integer, which Python shows, and cuts strings at U+0000. */
#include "host/jinja/value.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MEMBERS = 4096 }; /* of an object: each new key is compared with all before it */

/* ---- writing ----------------------------------------------------------------------------------------------- */

static void write_unit(crumb_jinja_writer *w, unsigned unit, bool from_input) {
    char escape[8];
    snprintf(escape, sizeof escape, "\\u%04x", unit & 0xffff);
    crumb_jinja_write_bytes(w, escape, 6, from_input);
}

static void write_string(crumb_jinja_writer *w, crumb_jinja_text t, bool ensure_ascii) {
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    crumb_jinja_write_literal(w, "\"");
    for (size_t at = 0, n; at < t.n_bytes; at += n) {
        const int32_t c = crumb_jinja_character(t, at);
        const bool from_input = t.from_input && t.from_input[at];
        const char *known = c > 0 && c < 128 ? strchr(plain, c) : NULL;
        n = crumb_jinja_character_bytes(t, at);
        if (known) {
            const char escape[2] = {'\\', letters[known - plain]};
            crumb_jinja_write_bytes(w, escape, 2, from_input);
        } else if ((c >= 0 && c < 0x20) || (ensure_ascii && c >= 0x7f && c < 0x10000 && c != 0x7f)) {
            write_unit(w, (unsigned)c, from_input);
        } else if (ensure_ascii && c >= 0x10000) {
            write_unit(w, 0xd7c0 + ((unsigned)c >> 10), from_input);
            write_unit(w, 0xdc00 + ((unsigned)c & 0x3ff), from_input);
        } else {
            crumb_jinja_write(w, crumb_jinja_text_part(t, at, at + n));
        }
    }
    crumb_jinja_write_literal(w, "\"");
}

static void write_number(crumb_jinja_writer *w, const crumb_jinja_value *v) {
    char number[32];
    if (v->kind == CRUMB_JINJA_INTEGER)
        snprintf(number, sizeof number, "%lld", (long long)v->as.integer);
    else if (isnan(v->as.real) || isinf(v->as.real))
        snprintf(number, sizeof number, "%s", isnan(v->as.real) ? "NaN" : v->as.real < 0 ? "-Infinity" : "Infinity");
    else
        crumb_jinja_format_real(v->as.real, number);
    crumb_jinja_write_literal(w, number);
}

static void new_line(crumb_jinja_writer *w, const crumb_jinja_json_style *style, unsigned level) {
    if (style->indent < 0) return;
    crumb_jinja_write_literal(w, "\n");
    for (uint64_t i = 0; i < (uint64_t)style->indent * level && !w->failed; i++) crumb_jinja_write_literal(w, " ");
}

static crumb_status write_value(crumb_jinja_writer *w, const crumb_jinja_value *v, const crumb_jinja_json_style *style,
                                unsigned level);

static crumb_status write_array(crumb_jinja_writer *w, const crumb_jinja_list *list,
                                const crumb_jinja_json_style *style, unsigned level) {
    crumb_jinja_write_literal(w, "[");
    for (size_t i = 0; i < list->n; i++) {
        if (i) crumb_jinja_write(w, style->item_separator);
        new_line(w, style, level + 1);
        CRUMB_TRY(write_value(w, &list->items[i], style, level + 1));
    }
    if (list->n) new_line(w, style, level);
    crumb_jinja_write_literal(w, "]");
    return CRUMB_OK;
}

/* Keys become strings; what Python refuses is refused. */
static crumb_status write_key(crumb_jinja_writer *w, const crumb_jinja_value *key, bool ensure_ascii) {
    if (key->kind == CRUMB_JINJA_STRING) return write_string(w, key->as.text, ensure_ascii), CRUMB_OK;
    if (key->kind == CRUMB_JINJA_LIST)
        return crumb_jinja_fail(w->state, CRUMB_ERR_FORMAT, "tojson: a key cannot be a tuple");
    const crumb_jinja_json_style style = {.indent = -1};
    crumb_jinja_write_literal(w, "\"");
    CRUMB_TRY(write_value(w, key, &style, 0));
    crumb_jinja_write_literal(w, "\"");
    return CRUMB_OK;
}

static crumb_status sort_members(crumb_jinja_state *s, const crumb_jinja_dict *dict, crumb_jinja_entry **out) {
    CRUMB_TRY(crumb_jinja_alloc(s, dict->n, sizeof **out, out));
    for (size_t i = 0; i < dict->n; i++) {
        size_t at = i;
        for (int order; at > 0; at--) {
            CRUMB_TRY(crumb_jinja_spend(s, 1));
            CRUMB_TRY(crumb_jinja_compare(s, &(*out)[at - 1].key, &dict->entries[i].key, &order));
            if (order <= 0) break;
            (*out)[at] = (*out)[at - 1];
        }
        (*out)[at] = dict->entries[i];
    }
    return CRUMB_OK;
}

static crumb_status write_object(crumb_jinja_writer *w, const crumb_jinja_dict *dict,
                                 const crumb_jinja_json_style *style, unsigned level) {
    crumb_jinja_entry *entries = dict->entries;
    if (style->sort_keys) CRUMB_TRY(sort_members(w->state, dict, &entries));
    crumb_jinja_write_literal(w, "{");
    for (size_t i = 0; i < dict->n; i++) {
        if (i) crumb_jinja_write(w, style->item_separator);
        new_line(w, style, level + 1);
        CRUMB_TRY(write_key(w, &entries[i].key, style->ensure_ascii));
        crumb_jinja_write(w, style->key_separator);
        CRUMB_TRY(write_value(w, &entries[i].value, style, level + 1));
    }
    if (dict->n) new_line(w, style, level);
    crumb_jinja_write_literal(w, "}");
    return CRUMB_OK;
}

static crumb_status write_value(crumb_jinja_writer *w, const crumb_jinja_value *v, const crumb_jinja_json_style *style,
                                unsigned level) {
    CRUMB_TRY(crumb_jinja_spend(w->state, 1));
    switch (v->kind) {
    case CRUMB_JINJA_NONE: crumb_jinja_write_literal(w, "null"); break;
    case CRUMB_JINJA_BOOL: crumb_jinja_write_literal(w, v->as.truth ? "true" : "false"); break;
    case CRUMB_JINJA_INTEGER:
    case CRUMB_JINJA_REAL: write_number(w, v); break;
    case CRUMB_JINJA_STRING: write_string(w, v->as.text, style->ensure_ascii); break;
    case CRUMB_JINJA_LIST:
    case CRUMB_JINJA_DICT:
        CRUMB_TRY(crumb_jinja_enter(w->state));
        CRUMB_TRY(v->kind == CRUMB_JINJA_LIST ? write_array(w, v->as.list, style, level)
                                              : write_object(w, v->as.dict, style, level));
        crumb_jinja_leave(w->state);
        break;
    default:
        return crumb_jinja_fail(w->state, CRUMB_ERR_FORMAT, "tojson: a value of type %s has no JSON",
                                crumb_jinja_type_name(v));
    }
    return CRUMB_OK;
}

crumb_status crumb_jinja_write_json(crumb_jinja_writer *w, const crumb_jinja_value *v,
                                    const crumb_jinja_json_style *style) {
    return write_value(w, v, style, 0);
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

typedef struct reader {
    crumb_jinja_state *state;
    const char *text;
    size_t at, n_bytes;
} reader;

static crumb_status damaged(const reader *r, const char *problem) {
    return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "JSON, byte %zu: %s", r->at, problem);
}

static void skip_space(reader *r) {
    while (r->at < r->n_bytes && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at]) r->at++;
}

static bool accept(reader *r, const char *word) {
    const size_t n = strlen(word);
    if (n > r->n_bytes - r->at || memcmp(r->text + r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static bool read_unit(reader *r, unsigned *unit) {
    char digits[5] = "";
    if (r->n_bytes - r->at < 4) return false;
    memcpy(digits, r->text + r->at, 4);
    if (strspn(digits, "0123456789abcdefABCDEF") != 4) return false;
    *unit = (unsigned)strtoul(digits, NULL, 16);
    r->at += 4;
    return true;
}

/* Behind the backslash. Half a surrogate pair becomes U+FFFD. */
static crumb_status read_escape(reader *r, crumb_jinja_writer *w) {
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char c = r->at < r->n_bytes ? r->text[r->at++] : 0;
    const char *known = c ? strchr(letters, c) : NULL;
    unsigned unit, low = 0;
    if (known) return crumb_jinja_write_bytes(w, &values[known - letters], 1, true), CRUMB_OK;
    if (c != 'u' || !read_unit(r, &unit)) return damaged(r, "an escape that JSON does not have");
    const size_t after = r->at;
    const bool paired =
        unit >= 0xd800 && unit < 0xdc00 && accept(r, "\\u") && read_unit(r, &low) && low >= 0xdc00 && low < 0xe000;
    if (!paired) r->at = after;
    int32_t character = (int32_t)unit;
    if (paired)
        character = (int32_t)(((unit - 0xd7c0) << 10) + (low & 0x3ff));
    else if (unit >= 0xd800 && unit < 0xe000)
        character = 0xfffd;
    crumb_jinja_write_character(w, character, true);
    return CRUMB_OK;
}

/* Behind the quotation mark. */
static crumb_status read_string(reader *r, crumb_jinja_value *out) {
    crumb_jinja_writer w = {.state = r->state};
    for (;;) {
        const size_t begin = r->at;
        while (r->at < r->n_bytes && r->text[r->at] != '"' && r->text[r->at] != '\\' &&
               (unsigned char)r->text[r->at] >= 0x20)
            r->at++;
        crumb_jinja_write_bytes(&w, r->text + begin, r->at - begin, true);
        if (accept(r, "\"")) return crumb_jinja_finish(&w, out);
        if (!accept(r, "\\")) return damaged(r, "a string that does not end, or holds a control character");
        CRUMB_TRY(read_escape(r, &w));
    }
}

static crumb_status read_number(reader *r, crumb_jinja_value *out) {
    char text[64] = "";
    const size_t begin = r->at;
    while (r->at < r->n_bytes && r->text[r->at] && strchr("+-0123456789.eE", r->text[r->at])) r->at++;
    const size_t n = r->at - begin;
    if (n == 0 || n >= sizeof text) return r->at = begin, damaged(r, "no value");
    memcpy(text, r->text + begin, n);
    char *end;
    errno = 0;
    if (strcspn(text, ".eE") == n)
        *out = crumb_jinja_integer(strtoll(text, &end, 10));
    else
        *out = crumb_jinja_real(strtod(text, &end));
    return *end || errno ? (r->at = begin, damaged(r, "a number out of range")) : CRUMB_OK;
}

static crumb_status read_value(reader *r, crumb_jinja_value *out);

/* Behind the bracket. Items are kept in a list that doubles. */
static crumb_status read_array(reader *r, crumb_jinja_value *out) {
    crumb_jinja_value *items = NULL, *room;
    size_t n = 0, capacity = 0;
    skip_space(r);
    for (bool more = !accept(r, "]"); more;) {
        if (n == capacity) {
            capacity = capacity ? 2 * capacity : 8;
            CRUMB_TRY(crumb_jinja_alloc(r->state, capacity, sizeof *room, &room));
            if (n) memcpy(room, items, n * sizeof *room);
            items = room;
        }
        CRUMB_TRY(read_value(r, &items[n++]));
        skip_space(r);
        more = accept(r, ",");
        if (!more && !accept(r, "]")) return damaged(r, "expected ',' or ']'");
    }
    CRUMB_TRY(crumb_jinja_make_list(r->state, n, false, &room, out));
    if (n) memcpy(room, items, n * sizeof *room);
    return CRUMB_OK;
}

/* Behind the brace. */
static crumb_status read_object(reader *r, crumb_jinja_value *out) {
    CRUMB_TRY(crumb_jinja_make_dict(r->state, out));
    skip_space(r);
    for (bool more = !accept(r, "}"); more;) {
        crumb_jinja_value key, value;
        skip_space(r);
        if (!accept(r, "\"")) return damaged(r, "expected a member's name");
        CRUMB_TRY(read_string(r, &key));
        skip_space(r);
        if (!accept(r, ":")) return damaged(r, "expected ':'");
        CRUMB_TRY(read_value(r, &value));
        if (out->as.dict->n == MAX_MEMBERS) return damaged(r, "an object with more than 4096 members");
        CRUMB_TRY(crumb_jinja_dict_set(r->state, out->as.dict, key, value));
        skip_space(r);
        more = accept(r, ",");
        if (!more && !accept(r, "}")) return damaged(r, "expected ',' or '}'");
    }
    return CRUMB_OK;
}

static crumb_status read_value(reader *r, crumb_jinja_value *out) {
    crumb_status status;
    *out = crumb_jinja_none();
    skip_space(r);
    CRUMB_TRY(crumb_jinja_enter(r->state));
    if (accept(r, "{"))
        status = read_object(r, out);
    else if (accept(r, "["))
        status = read_array(r, out);
    else if (accept(r, "\""))
        status = read_string(r, out);
    else if (accept(r, "true") || accept(r, "null"))
        status = (*out = r->text[r->at - 1] == 'e' ? crumb_jinja_bool(true) : crumb_jinja_none(), CRUMB_OK);
    else if (accept(r, "false"))
        status = (*out = crumb_jinja_bool(false), CRUMB_OK);
    else
        status = read_number(r, out);
    crumb_jinja_leave(r->state);
    return status;
}

crumb_status crumb_jinja_read_json(crumb_jinja_state *s, const char *json, size_t n_bytes, crumb_jinja_value *out) {
    reader r = {.state = s, .text = json, .n_bytes = n_bytes};
    CRUMB_TRY(read_value(&r, out));
    skip_space(&r);
    return r.at == n_bytes ? CRUMB_OK : damaged(&r, "something behind the value");
}
