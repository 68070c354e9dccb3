/* Methods of strings, lists and dicts. Those that change a list or dict, Jinja's sandbox refuses as well. */
#include "host/jinja/evaluate.h"

#include <string.h>
#include <utf8proc.h>

#define METHOD(name)                                                                                                   \
    static crumb_status name(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg,            \
                             const crumb_jinja_arguments *all, crumb_jinja_value *out)
#define UNUSED (void)r, (void)in, (void)arg, (void)all

static crumb_status need_text(crumb_jinja_run *r, const crumb_jinja_value *v, crumb_jinja_text *out) {
    *out = v->as.text;
    if (v->kind == CRUMB_JINJA_STRING) return CRUMB_OK;
    return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "expected a string, not a value of type %s",
                            crumb_jinja_type_name(v));
}

crumb_status crumb_jinja_to_integer(crumb_jinja_run *r, const crumb_jinja_value *v, const char *what, int64_t *out) {
    if (crumb_jinja_get_integer(v, out)) return CRUMB_OK;
    return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "%s: expected an integer, not a value of type %s", what,
                            crumb_jinja_type_name(v));
}

/* ---- case -------------------------------------------------------------------------------------------------- */

static bool is_letter(int32_t c) {
    const utf8proc_category_t k = c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

static bool begins_word(crumb_jinja_case kind, int32_t previous, bool first) {
    if (kind == CRUMB_JINJA_CAPITALIZE) return first;
    if (kind == CRUMB_JINJA_TITLE_METHOD) return !is_letter(previous);
    return first || crumb_jinja_is_space(previous) || (previous > 0 && previous < 128 && strchr("-({[<", previous));
}

/* Writes a letter in upper or in title case. Some become several letters: what folding their case makes of them, the
 * first of which is large, or all are ("ß": "Ss", "SS"). */
static void write_large(crumb_jinja_writer *w, crumb_jinja_text letter, int32_t c, bool whole, bool from_input) {
    int32_t folded[8]; /* Unicode has none of more than 3 */
    int boundclass = 0;
    const int32_t simple = whole ? utf8proc_toupper(c) : utf8proc_totitle(c);
    const bool may_fold =
        whole ? utf8proc_category(c) != UTF8PROC_CATEGORY_LU
              : utf8proc_category(c) == UTF8PROC_CATEGORY_LL && utf8proc_category(simple) != UTF8PROC_CATEGORY_LT;
    const utf8proc_ssize_t n = may_fold ? utf8proc_decompose_char(c, folded, 8, UTF8PROC_CASEFOLD, &boundclass) : 1;
    for (utf8proc_ssize_t i = 0; i < n && n > 1; i++)
        crumb_jinja_write_character(w, whole || i == 0 ? utf8proc_toupper(folded[i]) : folded[i], from_input);
    if (n > 1) return;
    if (simple == c)
        crumb_jinja_write(w, letter);
    else
        crumb_jinja_write_character(w, simple, from_input);
}

static void write_small(crumb_jinja_writer *w, crumb_jinja_text letter, int32_t c, bool from_input) {
    enum { DOTTED_I = 0x130, DOT_ABOVE = 0x307 };
    const int32_t simple = utf8proc_tolower(c);
    if (simple == c)
        crumb_jinja_write(w, letter);
    else
        crumb_jinja_write_character(w, simple, from_input);
    if (c == DOTTED_I) crumb_jinja_write_character(w, DOT_ABOVE, from_input);
}

crumb_status crumb_jinja_change_case(crumb_jinja_run *r, crumb_jinja_text in, crumb_jinja_case kind,
                                     crumb_jinja_value *out) {
    crumb_jinja_writer w = {.state = r->state};
    int32_t previous = -1;
    for (size_t at = 0, n; at < in.n_bytes; at += n) {
        const int32_t c = crumb_jinja_character(in, at);
        n = crumb_jinja_character_bytes(in, at);
        const crumb_jinja_text letter = crumb_jinja_text_part(in, at, at + n);
        const bool large =
            kind == CRUMB_JINJA_UPPER || (kind != CRUMB_JINJA_LOWER && begins_word(kind, previous, at == 0));
        const bool from_input = in.from_input && in.from_input[at];
        if (c < 0)
            crumb_jinja_write(&w, letter);
        else if (large)
            write_large(&w, letter, c, kind == CRUMB_JINJA_UPPER || kind == CRUMB_JINJA_TITLE_FILTER, from_input);
        else
            write_small(&w, letter, c, from_input);
        previous = c;
    }
    return crumb_jinja_finish(&w, out);
}

METHOD(upper) {
    UNUSED;
    return crumb_jinja_change_case(r, in->as.text, CRUMB_JINJA_UPPER, out);
}
METHOD(lower) {
    UNUSED;
    return crumb_jinja_change_case(r, in->as.text, CRUMB_JINJA_LOWER, out);
}
METHOD(title) {
    UNUSED;
    return crumb_jinja_change_case(r, in->as.text, CRUMB_JINJA_TITLE_METHOD, out);
}
METHOD(capitalize) {
    UNUSED;
    return crumb_jinja_change_case(r, in->as.text, CRUMB_JINJA_CAPITALIZE, out);
}

/* ---- strip and split --------------------------------------------------------------------------------------- */

static crumb_status strip_sides(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg,
                                bool left, bool right, crumb_jinja_value *out) {
    crumb_jinja_text set = {0};
    const bool given = arg->kind != CRUMB_JINJA_UNDEFINED && arg->kind != CRUMB_JINJA_NONE;
    if (given) CRUMB_TRY(need_text(r, arg, &set));
    CRUMB_TRY(crumb_jinja_spend(r->state, set.n_bytes / 8));
    *out = crumb_jinja_string(crumb_jinja_text_strip(in->as.text, given ? &set : NULL, left, right));
    return CRUMB_OK;
}

METHOD(strip) {
    UNUSED;
    return strip_sides(r, in, arg, true, true, out);
}
METHOD(lstrip) {
    UNUSED;
    return strip_sides(r, in, arg, true, false, out);
}
METHOD(rstrip) {
    UNUSED;
    return strip_sides(r, in, arg, false, true, out);
}

/* A list that grows: its pieces are counted first, by the same function. */
typedef size_t split_fn(crumb_jinja_text in, crumb_jinja_text separator, int64_t most, crumb_jinja_value *pieces);

static size_t split_at(crumb_jinja_text in, crumb_jinja_text separator, int64_t most, crumb_jinja_value *pieces) {
    size_t n = 0, at = 0;
    while (most < 0 || n < (size_t)most) {
        const size_t found = crumb_jinja_text_find(in, separator, at);
        if (found == SIZE_MAX) break;
        if (pieces) pieces[n] = crumb_jinja_string(crumb_jinja_text_part(in, at, found));
        n++;
        at = found + separator.n_bytes;
    }
    if (pieces) pieces[n] = crumb_jinja_string(crumb_jinja_text_part(in, at, in.n_bytes));
    return n + 1;
}

/* From the right: pieces stand in reverse until the caller turns them round. */
static size_t split_at_right(crumb_jinja_text in, crumb_jinja_text separator, int64_t most, crumb_jinja_value *pieces) {
    size_t n = 0, end = in.n_bytes;
    for (size_t at = end + 1; at-- > 0 && (most < 0 || n < (size_t)most);) {
        if (separator.n_bytes > end - at || memcmp(in.bytes + at, separator.bytes, separator.n_bytes) != 0) continue;
        if (pieces) pieces[n] = crumb_jinja_string(crumb_jinja_text_part(in, at + separator.n_bytes, end));
        n++;
        end = at;
    }
    if (pieces) pieces[n] = crumb_jinja_string(crumb_jinja_text_part(in, 0, end));
    return n + 1;
}

/* At runs of white space, which the separator does not tell. */
static size_t split_words(crumb_jinja_text in, crumb_jinja_text separator, int64_t most, crumb_jinja_value *pieces) {
    (void)separator;
    size_t n = 0;
    for (;;) {
        in = crumb_jinja_text_strip(in, NULL, true, false);
        if (in.n_bytes == 0) return n;
        size_t end = 0;
        while (end < in.n_bytes && !crumb_jinja_is_space(crumb_jinja_character(in, end)))
            end += crumb_jinja_character_bytes(in, end);
        if (most >= 0 && n == (size_t)most) end = in.n_bytes;
        if (pieces) pieces[n] = crumb_jinja_string(crumb_jinja_text_part(in, 0, end));
        n++;
        in = crumb_jinja_text_part(in, end, in.n_bytes);
    }
}

static size_t split_line_ends(crumb_jinja_text in, crumb_jinja_text separator, int64_t most,
                              crumb_jinja_value *pieces) {
    (void)separator, (void)most;
    size_t n = 0, begin = 0;
    for (size_t at = 0, size; at < in.n_bytes;) {
        const int32_t c = crumb_jinja_character(in, at);
        size = crumb_jinja_character_bytes(in, at);
        const bool ends = (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
        if (ends && pieces) pieces[n] = crumb_jinja_string(crumb_jinja_text_part(in, begin, at));
        if (c == '\r' && at + 1 < in.n_bytes && in.bytes[at + 1] == '\n') size = 2;
        at += size;
        if (!ends) continue;
        n++;
        begin = at;
    }
    if (begin < in.n_bytes && pieces) pieces[n] = crumb_jinja_string(crumb_jinja_text_part(in, begin, in.n_bytes));
    return n + (begin < in.n_bytes);
}

static crumb_status split_by(crumb_jinja_run *r, split_fn *fn, crumb_jinja_text in, crumb_jinja_text separator,
                             int64_t most, crumb_jinja_value *out) {
    crumb_jinja_value *pieces;
    CRUMB_TRY(crumb_jinja_spend(r->state, in.n_bytes / 64));
    CRUMB_TRY(crumb_jinja_make_list(r->state, fn(in, separator, most, NULL), false, &pieces, out));
    const size_t n = fn(in, separator, most, pieces);
    for (size_t i = 0; fn == split_at_right && i < n / 2; i++) {
        const crumb_jinja_value other = pieces[i];
        pieces[i] = pieces[n - 1 - i];
        pieces[n - 1 - i] = other;
    }
    return CRUMB_OK;
}

crumb_status crumb_jinja_split_lines(crumb_jinja_run *r, crumb_jinja_text in, crumb_jinja_value *out) {
    return split_by(r, split_line_ends, in, (crumb_jinja_text){0}, -1, out);
}

static crumb_status split_from(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg,
                               bool right, crumb_jinja_value *out) {
    crumb_jinja_text separator;
    int64_t most = -1;
    if (arg[1].kind != CRUMB_JINJA_UNDEFINED) CRUMB_TRY(crumb_jinja_to_integer(r, &arg[1], "split", &most));
    if (arg[0].kind == CRUMB_JINJA_UNDEFINED || arg[0].kind == CRUMB_JINJA_NONE) {
        if (right && most >= 0)
            return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "rsplit at white space is not supported");
        return split_by(r, split_words, in->as.text, (crumb_jinja_text){0}, most, out);
    }
    CRUMB_TRY(need_text(r, &arg[0], &separator));
    if (separator.n_bytes == 0) return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "split: an empty separator");
    return split_by(r, right ? split_at_right : split_at, in->as.text, separator, most, out);
}

METHOD(split) {
    UNUSED;
    return split_from(r, in, arg, false, out);
}
METHOD(rsplit) {
    UNUSED;
    return split_from(r, in, arg, true, out);
}
METHOD(splitlines) {
    UNUSED;
    return crumb_jinja_split_lines(r, in->as.text, out);
}

/* ---- looking and replacing --------------------------------------------------------------------------------- */

static bool has_end(crumb_jinja_text t, crumb_jinja_text end, bool at_begin) {
    if (end.n_bytes > t.n_bytes) return false;
    return end.n_bytes == 0 || memcmp(t.bytes + (at_begin ? 0 : t.n_bytes - end.n_bytes), end.bytes, end.n_bytes) == 0;
}

/* One string, or a tuple of them. */
static crumb_status has_one_end(crumb_jinja_run *r, crumb_jinja_text t, const crumb_jinja_value *arg, bool at_begin,
                                crumb_jinja_value *out) {
    const bool tuple = arg->kind == CRUMB_JINJA_LIST && arg->as.list->is_tuple;
    bool yes = false;
    for (size_t i = 0; i < (tuple ? arg->as.list->n : 1) && !yes; i++) {
        crumb_jinja_text end;
        CRUMB_TRY(need_text(r, tuple ? &arg->as.list->items[i] : arg, &end));
        yes = has_end(t, end, at_begin);
    }
    *out = crumb_jinja_bool(yes);
    return CRUMB_OK;
}

METHOD(startswith) {
    UNUSED;
    return has_one_end(r, in->as.text, arg, true, out);
}
METHOD(endswith) {
    UNUSED;
    return has_one_end(r, in->as.text, arg, false, out);
}

static crumb_status remove_end(crumb_jinja_run *r, crumb_jinja_text t, const crumb_jinja_value *arg, bool at_begin,
                               crumb_jinja_value *out) {
    crumb_jinja_text end;
    CRUMB_TRY(need_text(r, arg, &end));
    const size_t n = has_end(t, end, at_begin) ? end.n_bytes : 0;
    *out = crumb_jinja_string(crumb_jinja_text_part(t, at_begin ? n : 0, at_begin ? t.n_bytes : t.n_bytes - n));
    return CRUMB_OK;
}

METHOD(removeprefix) {
    UNUSED;
    return remove_end(r, in->as.text, arg, true, out);
}
METHOD(removesuffix) {
    UNUSED;
    return remove_end(r, in->as.text, arg, false, out);
}

crumb_status crumb_jinja_replace_text(crumb_jinja_run *r, crumb_jinja_text in, const crumb_jinja_value arg[3],
                                      crumb_jinja_value *out) {
    crumb_jinja_writer w = {.state = r->state};
    crumb_jinja_text old, new;
    int64_t left = -1;
    CRUMB_TRY(need_text(r, &arg[0], &old));
    CRUMB_TRY(need_text(r, &arg[1], &new));
    if (arg[2].kind != CRUMB_JINJA_UNDEFINED && arg[2].kind != CRUMB_JINJA_NONE)
        CRUMB_TRY(crumb_jinja_to_integer(r, &arg[2], "replace", &left));
    if (old.n_bytes == 0)
        return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "replacing the empty string is not supported");
    for (size_t at = 0;; left--) {
        const size_t found = left == 0 ? SIZE_MAX : crumb_jinja_text_find(in, old, at);
        crumb_jinja_write(&w, crumb_jinja_text_part(in, at, found == SIZE_MAX ? in.n_bytes : found));
        if (found == SIZE_MAX) return crumb_jinja_finish(&w, out);
        crumb_jinja_write(&w, new);
        at = found + old.n_bytes;
    }
}

METHOD(replace) {
    UNUSED;
    return crumb_jinja_replace_text(r, in->as.text, arg, out);
}

METHOD(find) {
    UNUSED;
    crumb_jinja_text what;
    CRUMB_TRY(need_text(r, arg, &what));
    CRUMB_TRY(crumb_jinja_spend(r->state, in->as.text.n_bytes / 64));
    const size_t at = crumb_jinja_text_find(in->as.text, what, 0);
    *out = crumb_jinja_integer(
        at == SIZE_MAX ? -1 : (int64_t)crumb_jinja_text_length(crumb_jinja_text_part(in->as.text, 0, at)));
    return CRUMB_OK;
}

METHOD(count) {
    UNUSED;
    crumb_jinja_text what;
    CRUMB_TRY(need_text(r, arg, &what));
    CRUMB_TRY(crumb_jinja_spend(r->state, in->as.text.n_bytes / 64));
    const bool empty = what.n_bytes == 0; /* one before each character, and one at the end */
    *out = crumb_jinja_integer(empty ? (int64_t)crumb_jinja_text_length(in->as.text) + 1
                                     : (int64_t)split_at(in->as.text, what, -1, NULL) - 1);
    return CRUMB_OK;
}

METHOD(join) {
    UNUSED;
    const crumb_jinja_list *items;
    crumb_jinja_writer w = {.state = r->state};
    CRUMB_TRY(crumb_jinja_iterate(r, arg, &items));
    for (size_t i = 0; i < items->n; i++) {
        crumb_jinja_text t;
        CRUMB_TRY(need_text(r, &items->items[i], &t));
        if (i) crumb_jinja_write(&w, in->as.text);
        crumb_jinja_write(&w, t);
    }
    return crumb_jinja_finish(&w, out);
}

static crumb_jinja_value all_are(crumb_jinja_text t, bool (*is)(int32_t c)) {
    bool yes = t.n_bytes > 0;
    for (size_t at = 0; yes && at < t.n_bytes; at += crumb_jinja_character_bytes(t, at))
        yes = is(crumb_jinja_character(t, at));
    return crumb_jinja_bool(yes);
}

static bool is_alphabetic(int32_t c) {
    return is_letter(c) ||
           (c >= 0 && (utf8proc_category(c) == UTF8PROC_CATEGORY_LM || utf8proc_category(c) == UTF8PROC_CATEGORY_LO));
}

static bool is_digit(int32_t c) {
    return c >= 0 && utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}

METHOD(all_space) {
    UNUSED;
    *out = all_are(in->as.text, crumb_jinja_is_space);
    return CRUMB_OK;
}
METHOD(all_letters) {
    UNUSED;
    *out = all_are(in->as.text, is_alphabetic);
    return CRUMB_OK;
}
METHOD(all_digits) {
    UNUSED;
    *out = all_are(in->as.text, is_digit);
    return CRUMB_OK;
}

/* ---- lists and dicts --------------------------------------------------------------------------------------- */

METHOD(list_count) {
    UNUSED;
    int64_t n = 0;
    for (size_t i = 0; i < in->as.list->n; i++) {
        bool same;
        CRUMB_TRY(crumb_jinja_equal(r->state, &in->as.list->items[i], arg, &same));
        n += same;
    }
    *out = crumb_jinja_integer(n);
    return CRUMB_OK;
}

METHOD(list_index) {
    UNUSED;
    for (size_t i = 0; i < in->as.list->n; i++) {
        bool same;
        CRUMB_TRY(crumb_jinja_equal(r->state, &in->as.list->items[i], arg, &same));
        if (same) return *out = crumb_jinja_integer((int64_t)i), CRUMB_OK;
    }
    return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "index: the value is not in the list");
}

METHOD(dict_get) {
    UNUSED;
    const crumb_jinja_value *found;
    CRUMB_TRY(crumb_jinja_check_key(r->state, &arg[0]));
    CRUMB_TRY(crumb_jinja_dict_find(r->state, in->as.dict, &arg[0], &found));
    *out = found ? *found : all->n > 1 || all->n_named ? arg[1] : crumb_jinja_none();
    return CRUMB_OK;
}

METHOD(dict_items) {
    UNUSED;
    crumb_jinja_value *items, *pair;
    CRUMB_TRY(crumb_jinja_make_list(r->state, in->as.dict->n, false, &items, out));
    for (size_t i = 0; i < in->as.dict->n; i++) {
        CRUMB_TRY(crumb_jinja_make_list(r->state, 2, true, &pair, &items[i]));
        pair[0] = in->as.dict->entries[i].key;
        pair[1] = in->as.dict->entries[i].value;
    }
    return CRUMB_OK;
}

static crumb_status members(crumb_jinja_run *r, const crumb_jinja_dict *d, bool keys, crumb_jinja_value *out) {
    crumb_jinja_value *items;
    CRUMB_TRY(crumb_jinja_make_list(r->state, d->n, false, &items, out));
    for (size_t i = 0; i < d->n; i++) items[i] = keys ? d->entries[i].key : d->entries[i].value;
    return CRUMB_OK;
}

METHOD(dict_keys) {
    UNUSED;
    return members(r, in->as.dict, true, out);
}
METHOD(dict_values) {
    UNUSED;
    return members(r, in->as.dict, false, out);
}
METHOD(dict_copy) {
    UNUSED;
    *out = *in;
    return CRUMB_OK;
} /* dicts do not change */

/* ---- tables ------------------------------------------------------------------------------------------------ */

static const crumb_jinja_callee string_methods[] = {
    {"strip", strip, "chars?"},
    {"lstrip", lstrip, "chars?"},
    {"rstrip", rstrip, "chars?"},
    {"split", split, "sep? maxsplit?"},
    {"rsplit", rsplit, "sep? maxsplit?"},
    {"splitlines", splitlines, ""},
    {"startswith", startswith, "prefix"},
    {"endswith", endswith, "suffix"},
    {"removeprefix", removeprefix, "prefix"},
    {"removesuffix", removesuffix, "suffix"},
    {"replace", replace, "old new count?"},
    {"upper", upper, ""},
    {"lower", lower, ""},
    {"title", title, ""},
    {"capitalize", capitalize, ""},
    {"find", find, "sub"},
    {"count", count, "sub"},
    {"join", join, "iterable"},
    {"isspace", all_space, ""},
    {"isalpha", all_letters, ""},
    {"isdigit", all_digits, ""},
    {.name = "casefold"},
    {.name = "center"},
    {.name = "encode"},
    {.name = "expandtabs"},
    {.name = "format"},
    {.name = "format_map"},
    {.name = "index"},
    {.name = "isalnum"},
    {.name = "isascii"},
    {.name = "isdecimal"},
    {.name = "isidentifier"},
    {.name = "islower"},
    {.name = "isnumeric"},
    {.name = "isprintable"},
    {.name = "istitle"},
    {.name = "isupper"},
    {.name = "ljust"},
    {.name = "maketrans"},
    {.name = "partition"},
    {.name = "rfind"},
    {.name = "rindex"},
    {.name = "rjust"},
    {.name = "rpartition"},
    {.name = "swapcase"},
    {.name = "translate"},
    {.name = "zfill"},
    {.name = NULL},
};
static const crumb_jinja_callee list_methods[] = {
    {"count", list_count, "value"},
    {"index", list_index, "value"},
    {.name = "append"},
    {.name = "clear"},
    {.name = "copy"},
    {.name = "extend"},
    {.name = "insert"},
    {.name = "pop"},
    {.name = "remove"},
    {.name = "reverse"},
    {.name = "sort"},
    {.name = NULL},
};
static const crumb_jinja_callee dict_methods[] = {
    {"get", dict_get, "key default?"},
    {"items", dict_items, ""},
    {"keys", dict_keys, ""},
    {"values", dict_values, ""},
    {"copy", dict_copy, ""},
    {.name = "clear"},
    {.name = "fromkeys"},
    {.name = "pop"},
    {.name = "popitem"},
    {.name = "setdefault"},
    {.name = "update"},
    {.name = NULL},
};

const crumb_jinja_callee *crumb_jinja_method_find(const crumb_jinja_value *of, crumb_jinja_text name) {
    if (of->kind == CRUMB_JINJA_STRING) return crumb_jinja_find_callee(string_methods, name);
    if (of->kind == CRUMB_JINJA_LIST) return crumb_jinja_find_callee(list_methods, name);
    return of->kind == CRUMB_JINJA_DICT ? crumb_jinja_find_callee(dict_methods, name) : NULL;
}
