/* Filters of single values, and the table of all. */
#include "host/jinja/evaluate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                                                                   \
    static crumb_status name(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg,            \
                             const crumb_jinja_arguments *all, crumb_jinja_value *out)
#define UNUSED (void)r, (void)in, (void)arg, (void)all

static bool is_given(const crumb_jinja_value *arg) {
    return arg->kind != CRUMB_JINJA_UNDEFINED;
}

static bool is_set(const crumb_jinja_value *arg) {
    return is_given(arg) && crumb_jinja_truth(arg);
}

/* ---- texts ------------------------------------------------------------------------------------------------- */

static crumb_status change_case(crumb_jinja_run *r, const crumb_jinja_value *in, crumb_jinja_case kind,
                                crumb_jinja_value *out) {
    crumb_jinja_text t;
    CRUMB_TRY(crumb_jinja_to_text(r->state, in, &t));
    return crumb_jinja_change_case(r, t, kind, out);
}

FILTER(upper) {
    UNUSED;
    return change_case(r, in, CRUMB_JINJA_UPPER, out);
}
FILTER(lower) {
    UNUSED;
    return change_case(r, in, CRUMB_JINJA_LOWER, out);
}
FILTER(capitalize) {
    UNUSED;
    return change_case(r, in, CRUMB_JINJA_CAPITALIZE, out);
}
FILTER(title) {
    UNUSED;
    return change_case(r, in, CRUMB_JINJA_TITLE_FILTER, out);
}

FILTER(trim) {
    UNUSED;
    crumb_jinja_text t, set = {0};
    const bool given = is_given(arg) && arg->kind != CRUMB_JINJA_NONE;
    CRUMB_TRY(crumb_jinja_to_text(r->state, in, &t));
    if (given) CRUMB_TRY(crumb_jinja_to_text(r->state, arg, &set));
    CRUMB_TRY(crumb_jinja_spend(r->state, set.n_bytes / 8));
    *out = crumb_jinja_string(crumb_jinja_text_strip(t, given ? &set : NULL, true, true));
    return CRUMB_OK;
}

FILTER(replace) {
    UNUSED;
    crumb_jinja_text t;
    CRUMB_TRY(crumb_jinja_to_text(r->state, in, &t));
    return crumb_jinja_replace_text(r, t, arg, out);
}

FILTER(string) {
    UNUSED;
    crumb_jinja_text t;
    CRUMB_TRY(crumb_jinja_to_text(r->state, in, &t));
    *out = crumb_jinja_string(t);
    return CRUMB_OK;
}

FILTER(safe) {
    UNUSED;
    CRUMB_TRY(string(r, in, arg, all, out));
    out->is_markup = true;
    return CRUMB_OK;
}

/* Spaces before each line but the first (`first`: before that too), and before empty ones only with `blank`. */
FILTER(indent) {
    UNUSED;
    crumb_jinja_text t, space = {0};
    crumb_jinja_value lines;
    crumb_jinja_writer w = {.state = r->state}, pad = {.state = r->state}, whole = {.state = r->state};
    int64_t width = 4;
    if (arg[0].kind == CRUMB_JINJA_STRING)
        crumb_jinja_write(&pad, arg[0].as.text);
    else if (is_given(&arg[0]))
        CRUMB_TRY(crumb_jinja_to_integer(r, &arg[0], "indent", &width));
    CRUMB_TRY(crumb_jinja_spend(r->state, width > 0 ? (uint64_t)width : 0));
    for (int64_t i = 0; arg[0].kind != CRUMB_JINJA_STRING && i < width && !pad.failed; i++)
        crumb_jinja_write_literal(&pad, " ");
    CRUMB_TRY(crumb_jinja_finish_text(&pad, &space));
    CRUMB_TRY(crumb_jinja_to_text(r->state, in, &t));
    crumb_jinja_write(&whole, t);
    crumb_jinja_write_literal(&whole, "\n"); /* so that a line end at the end counts */
    CRUMB_TRY(crumb_jinja_finish_text(&whole, &t));
    CRUMB_TRY(crumb_jinja_split_lines(r, t, &lines));
    if (is_set(&arg[1])) crumb_jinja_write(&w, space);
    for (size_t i = 0; i < lines.as.list->n; i++) {
        const crumb_jinja_text line = lines.as.list->items[i].as.text;
        if (i) crumb_jinja_write_literal(&w, "\n");
        if (i && (line.n_bytes || is_set(&arg[2]))) crumb_jinja_write(&w, space);
        crumb_jinja_write(&w, line);
    }
    return crumb_jinja_finish(&w, out);
}

FILTER(wordcount) {
    UNUSED;
    crumb_jinja_text t;
    int64_t n = 0;
    bool inside = false;
    CRUMB_TRY(crumb_jinja_to_text(r->state, in, &t));
    for (size_t at = 0; at < t.n_bytes; at += crumb_jinja_character_bytes(t, at)) {
        const int32_t c = crumb_jinja_character(t, at);
        if (c >= 0x80)
            return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "wordcount of other than ASCII is not supported");
        const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        n += word && !inside;
        inside = word;
    }
    *out = crumb_jinja_integer(n);
    return CRUMB_OK;
}

/* ---- JSON -------------------------------------------------------------------------------------------------- */

/* As Hugging Face defines it: json.dumps(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False). */
FILTER(tojson) {
    UNUSED;
    crumb_jinja_json_style style = {.indent = -1,
                                    .ensure_ascii = is_set(&arg[0]),
                                    .sort_keys = is_set(&arg[3]),
                                    .key_separator = crumb_jinja_literal(": ").as.text};
    crumb_jinja_writer w = {.state = r->state};
    if (is_given(&arg[1]) && arg[1].kind != CRUMB_JINJA_NONE)
        CRUMB_TRY(crumb_jinja_to_integer(r, &arg[1], "tojson", &style.indent));
    if (arg[1].kind == CRUMB_JINJA_INTEGER && style.indent < 0) style.indent = 0;
    if (style.indent > 64) return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "tojson: more than 64 spaces");
    style.item_separator = crumb_jinja_literal(style.indent >= 0 ? "," : ", ").as.text;
    if (arg[2].kind == CRUMB_JINJA_LIST) {
        const crumb_jinja_list *two = arg[2].as.list;
        if (two->n != 2 || two->items[0].kind != CRUMB_JINJA_STRING || two->items[1].kind != CRUMB_JINJA_STRING)
            return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "tojson: separators are not two strings");
        style.item_separator = two->items[0].as.text;
        style.key_separator = two->items[1].as.text;
    }
    CRUMB_TRY(crumb_jinja_write_json(&w, in, &style));
    return crumb_jinja_finish(&w, out);
}

/* ---- numbers ----------------------------------------------------------------------------------------------- */

/* The whole of a text, white space around it aside, as a number; false: it is none. */
static bool read_number(crumb_jinja_text t, bool whole, crumb_jinja_value *out) {
    char text[64] = "", *end;
    t = crumb_jinja_text_strip(t, NULL, true, true);
    if (t.n_bytes == 0 || t.n_bytes >= sizeof text) return false;
    memcpy(text, t.bytes, t.n_bytes);
    if (strspn(text, whole ? "+-0123456789" : "+-0123456789.eE") != t.n_bytes) return false;
    errno = 0;
    *out = whole ? crumb_jinja_integer(strtoll(text, &end, 10)) : crumb_jinja_real(strtod(text, &end));
    return *end == 0 && (!whole || errno == 0);
}

FILTER(to_int) {
    UNUSED;
    crumb_jinja_value number;
    *out = is_given(&arg[0]) ? arg[0] : crumb_jinja_integer(0);
    if (is_given(&arg[1]) && !(arg[1].kind == CRUMB_JINJA_INTEGER && arg[1].as.integer == 10))
        return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "int with a base is not supported");
    if (crumb_jinja_get_integer(in, &number.as.integer)) return *out = crumb_jinja_integer(number.as.integer), CRUMB_OK;
    if (in->kind == CRUMB_JINJA_STRING && read_number(in->as.text, true, &number)) return *out = number, CRUMB_OK;
    double real = NAN;
    if (in->kind == CRUMB_JINJA_REAL) real = in->as.real;
    if (in->kind == CRUMB_JINJA_STRING && read_number(in->as.text, false, &number)) real = number.as.real;
    if (isnan(real)) return CRUMB_OK;
    if (fabs(real) >= 9.2e18)
        return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "a number of more than 64 bits is not supported");
    *out = crumb_jinja_integer((int64_t)real);
    return CRUMB_OK;
}

FILTER(to_float) {
    UNUSED;
    crumb_jinja_value number;
    *out = is_given(&arg[0]) ? arg[0] : crumb_jinja_real(0);
    if (crumb_jinja_is_number(in)) return *out = crumb_jinja_real(crumb_jinja_get_real(in)), CRUMB_OK;
    if (in->kind == CRUMB_JINJA_STRING && read_number(in->as.text, false, &number)) *out = number;
    return CRUMB_OK;
}

FILTER(absolute) {
    UNUSED;
    int64_t i;
    if (crumb_jinja_get_integer(in, &i) && i > INT64_MIN) return *out = crumb_jinja_integer(i < 0 ? -i : i), CRUMB_OK;
    if (in->kind == CRUMB_JINJA_REAL) return *out = crumb_jinja_real(fabs(in->as.real)), CRUMB_OK;
    return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "abs: not a number");
}

/* ---- any value --------------------------------------------------------------------------------------------- */

FILTER(fallback) {
    UNUSED;
    const bool replaces = in->kind == CRUMB_JINJA_UNDEFINED || (is_set(&arg[1]) && !crumb_jinja_truth(in));
    *out = !replaces ? *in : all->n || all->n_named ? arg[0] : crumb_jinja_literal("");
    return CRUMB_OK;
}

FILTER(length) {
    UNUSED;
    const crumb_jinja_list *items;
    if (in->kind == CRUMB_JINJA_STRING)
        return *out = crumb_jinja_integer((int64_t)crumb_jinja_text_length(in->as.text)),
               crumb_jinja_spend(r->state, in->as.text.n_bytes / 256);
    CRUMB_TRY(crumb_jinja_iterate(r, in, &items));
    *out = crumb_jinja_integer((int64_t)items->n);
    return CRUMB_OK;
}

static crumb_status pick(crumb_jinja_run *r, const crumb_jinja_value *in, bool last, crumb_jinja_value *out) {
    const crumb_jinja_list *items;
    CRUMB_TRY(crumb_jinja_iterate(r, in, &items));
    *out = crumb_jinja_undefined(crumb_jinja_literal("an item of nothing").as.text);
    if (items->n) *out = items->items[last ? items->n - 1 : 0];
    return CRUMB_OK;
}

FILTER(first) {
    UNUSED;
    return pick(r, in, false, out);
}
FILTER(last) {
    UNUSED;
    return pick(r, in, true, out);
}

FILTER(list) {
    UNUSED;
    const crumb_jinja_list *items;
    crumb_jinja_value *copy;
    CRUMB_TRY(crumb_jinja_iterate(r, in, &items));
    CRUMB_TRY(crumb_jinja_make_list(r->state, items->n, false, &copy, out));
    if (items->n) memcpy(copy, items->items, items->n * sizeof *copy);
    return CRUMB_OK;
}

FILTER(items) {
    UNUSED;
    crumb_jinja_value *none;
    if (in->kind == CRUMB_JINJA_UNDEFINED) return crumb_jinja_make_list(r->state, 0, false, &none, out);
    if (in->kind != CRUMB_JINJA_DICT)
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "items: a value of type %s is no mapping",
                                crumb_jinja_type_name(in));
    const crumb_jinja_callee *method = crumb_jinja_method_find(in, crumb_jinja_literal("items").as.text);
    return crumb_jinja_call_callee(r, method, in, all, out);
}

const crumb_jinja_callee crumb_jinja_filters[] = {
    {"abs", absolute, ""},
    {"capitalize", capitalize, ""},
    {"count", length, ""},
    {"d", fallback, "default_value? boolean?"},
    {"default", fallback, "default_value? boolean?"},
    {"dictsort", crumb_jinja_do_dictsort, "case_sensitive? by? reverse?"},
    {"first", first, ""},
    {"float", to_float, "default?"},
    {"indent", indent, "width? first? blank?"},
    {"int", to_int, "default? base?"},
    {"items", items, ""},
    {"join", crumb_jinja_do_join, "d? attribute?"},
    {"last", last, ""},
    {"length", length, ""},
    {"list", list, ""},
    {"lower", lower, ""},
    {"map", crumb_jinja_do_map, NULL},
    {"max", crumb_jinja_do_max, "case_sensitive? attribute?"},
    {"min", crumb_jinja_do_min, "case_sensitive? attribute?"},
    {"reject", crumb_jinja_do_reject, NULL},
    {"rejectattr", crumb_jinja_do_rejectattr, NULL},
    {"replace", replace, "old new count?"},
    {"reverse", crumb_jinja_do_reverse, ""},
    {"safe", safe, ""},
    {"select", crumb_jinja_do_select, NULL},
    {"selectattr", crumb_jinja_do_selectattr, NULL},
    {"sort", crumb_jinja_do_sort, "reverse? case_sensitive? attribute?"},
    {"string", string, ""},
    {"sum", crumb_jinja_do_sum, "attribute? start?"},
    {"title", title, ""},
    {"tojson", tojson, "ensure_ascii? indent? separators? sort_keys?"},
    {"trim", trim, "chars?"},
    {"unique", crumb_jinja_do_unique, "case_sensitive? attribute?"},
    {"upper", upper, ""},
    {"wordcount", wordcount, ""},
    {NULL, NULL, NULL},
};

int crumb_jinja_filter_find(crumb_jinja_text name) {
    const crumb_jinja_callee *found = crumb_jinja_find_callee(crumb_jinja_filters, name);
    return found ? (int)(found - crumb_jinja_filters) : -1;
}
