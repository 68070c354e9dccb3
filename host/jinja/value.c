#include "host/jinja/value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#undef crumb_jinja_fail /* what value.h tells the static analyzer */

crumb_status crumb_jinja_fail(crumb_jinja_state *s, crumb_status status, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (s->line) return crumb_fail(s->err, status, "line %u: %s", s->line, text);
    return crumb_fail(s->err, status, "%s", text);
}

crumb_status crumb_jinja_alloc(crumb_jinja_state *s, uint64_t n, uint64_t size, void *out) {
    void *p = crumb_arena_alloc(s->arena, n, size);
    memcpy(out, &p, sizeof p);
    if (p) return CRUMB_OK;
    return crumb_jinja_fail(s, CRUMB_ERR_MEMORY, "the template takes more than its %llu MB of memory",
                            (unsigned long long)(s->arena->limit_bytes >> 20));
}

crumb_status crumb_jinja_spend(crumb_jinja_state *s, uint64_t n) {
    if (n >= s->steps_left) {
        s->steps_left = 0;
        return crumb_jinja_fail(s, CRUMB_ERR_FORMAT, "the template takes too many steps");
    }
    s->steps_left -= n;
    return CRUMB_OK;
}

crumb_status crumb_jinja_enter(crumb_jinja_state *s) {
    if (s->depth >= s->max_depth)
        return crumb_jinja_fail(s, CRUMB_ERR_FORMAT, "nested more than %u levels deep", s->max_depth);
    s->depth++;
    return CRUMB_OK;
}

/* ---- making ------------------------------------------------------------------------------------------------ */

crumb_jinja_value crumb_jinja_literal(const char *text) {
    return crumb_jinja_string((crumb_jinja_text){.bytes = text, .n_bytes = strlen(text)});
}

crumb_jinja_value crumb_jinja_undefined(crumb_jinja_text name) {
    return (crumb_jinja_value){.kind = CRUMB_JINJA_UNDEFINED, .as.text = name};
}

crumb_status crumb_jinja_input(crumb_jinja_state *s, const char *bytes, size_t n_bytes, crumb_jinja_value *out) {
    crumb_jinja_writer w = {.state = s};
    crumb_jinja_write_bytes(&w, bytes, n_bytes, true);
    return crumb_jinja_finish(&w, out);
}

crumb_status crumb_jinja_make_list(crumb_jinja_state *s, size_t n, bool is_tuple, crumb_jinja_value **items,
                                   crumb_jinja_value *out) {
    crumb_jinja_list *list;
    CRUMB_TRY(crumb_jinja_alloc(s, 1, sizeof *list, &list));
    CRUMB_TRY(crumb_jinja_alloc(s, n, sizeof *list->items, &list->items));
    list->n = n;
    list->is_tuple = is_tuple;
    *items = list->items;
    *out = (crumb_jinja_value){.kind = CRUMB_JINJA_LIST, .as.list = list};
    return CRUMB_OK;
}

crumb_status crumb_jinja_make_dict(crumb_jinja_state *s, crumb_jinja_value *out) {
    crumb_jinja_dict *dict;
    CRUMB_TRY(crumb_jinja_alloc(s, 1, sizeof *dict, &dict));
    *out = (crumb_jinja_value){.kind = CRUMB_JINJA_DICT, .as.dict = dict};
    return CRUMB_OK;
}

crumb_status crumb_jinja_dict_find(crumb_jinja_state *s, const crumb_jinja_dict *d, const crumb_jinja_value *key,
                                   const crumb_jinja_value **out) {
    *out = NULL;
    CRUMB_TRY(crumb_jinja_spend(s, d->n / 8));
    for (size_t i = 0; i < d->n; i++) {
        bool same;
        CRUMB_TRY(crumb_jinja_equal(s, &d->entries[i].key, key, &same));
        if (!same) continue;
        *out = &d->entries[i].value;
        return CRUMB_OK;
    }
    return CRUMB_OK;
}

crumb_status crumb_jinja_check_key(crumb_jinja_state *s, const crumb_jinja_value *key) {
    const bool plain = key->kind == CRUMB_JINJA_STRING || key->kind == CRUMB_JINJA_NONE || crumb_jinja_is_number(key);
    if (plain || (key->kind == CRUMB_JINJA_LIST && key->as.list->is_tuple)) return CRUMB_OK;
    return crumb_jinja_fail(s, CRUMB_ERR_FORMAT, "a value of type %s cannot be a key", crumb_jinja_type_name(key));
}

crumb_status crumb_jinja_dict_set(crumb_jinja_state *s, crumb_jinja_dict *d, crumb_jinja_value key,
                                  crumb_jinja_value value) {
    const crumb_jinja_value *found;
    CRUMB_TRY(crumb_jinja_check_key(s, &key));
    CRUMB_TRY(crumb_jinja_dict_find(s, d, &key, &found));
    if (found) {
        for (size_t i = 0; i < d->n; i++)
            if (&d->entries[i].value == found) d->entries[i].value = value;
        return CRUMB_OK;
    }
    if (d->n == d->capacity) {
        const size_t capacity = d->capacity ? 2 * d->capacity : 8;
        crumb_jinja_entry *entries;
        CRUMB_TRY(crumb_jinja_alloc(s, capacity, sizeof *entries, &entries));
        if (d->n) memcpy(entries, d->entries, d->n * sizeof *entries);
        d->entries = entries;
        d->capacity = capacity;
    }
    d->entries[d->n++] = (crumb_jinja_entry){key, value};
    return CRUMB_OK;
}

crumb_status crumb_jinja_dict_set_name(crumb_jinja_state *s, crumb_jinja_dict *d, const char *name,
                                       crumb_jinja_value value) {
    return crumb_jinja_dict_set(s, d, crumb_jinja_literal(name), value);
}

/* ---- asking ------------------------------------------------------------------------------------------------ */

bool crumb_jinja_truth(const crumb_jinja_value *v) {
    switch (v->kind) {
    case CRUMB_JINJA_UNDEFINED:
    case CRUMB_JINJA_NONE: return false;
    case CRUMB_JINJA_BOOL: return v->as.truth;
    case CRUMB_JINJA_INTEGER: return v->as.integer != 0;
    case CRUMB_JINJA_REAL: return v->as.real != 0;
    case CRUMB_JINJA_STRING: return v->as.text.n_bytes > 0;
    case CRUMB_JINJA_LIST: return v->as.list->n > 0;
    case CRUMB_JINJA_DICT: return v->as.dict->n > 0;
    default: return true;
    }
}

const char *crumb_jinja_type_name(const crumb_jinja_value *v) {
    static const char *const names[] = {
        [CRUMB_JINJA_UNDEFINED] = "Undefined", [CRUMB_JINJA_NONE] = "NoneType",
        [CRUMB_JINJA_BOOL] = "bool",           [CRUMB_JINJA_INTEGER] = "int",
        [CRUMB_JINJA_REAL] = "float",          [CRUMB_JINJA_STRING] = "str",
        [CRUMB_JINJA_LIST] = "list",           [CRUMB_JINJA_DICT] = "dict",
        [CRUMB_JINJA_LOOP] = "LoopContext",    [CRUMB_JINJA_CALLABLE] = "function",
        [CRUMB_JINJA_NAMESPACE] = "Namespace",
    };
    return v->kind == CRUMB_JINJA_LIST && v->as.list->is_tuple ? "tuple" : names[v->kind];
}

bool crumb_jinja_get_integer(const crumb_jinja_value *v, int64_t *out) {
    if (v->kind != CRUMB_JINJA_BOOL && v->kind != CRUMB_JINJA_INTEGER) return false;
    *out = v->kind == CRUMB_JINJA_BOOL ? v->as.truth : v->as.integer;
    return true;
}

double crumb_jinja_get_real(const crumb_jinja_value *v) {
    int64_t i = 0;
    return crumb_jinja_get_integer(v, &i) ? (double)i : v->as.real;
}

bool crumb_jinja_text_equal(crumb_jinja_text a, crumb_jinja_text b) {
    return a.n_bytes == b.n_bytes && (a.n_bytes == 0 || memcmp(a.bytes, b.bytes, a.n_bytes) == 0);
}

bool crumb_jinja_text_is(crumb_jinja_text t, const char *word) {
    return crumb_jinja_text_equal(t, (crumb_jinja_text){.bytes = word, .n_bytes = strlen(word)});
}

/* Of numbers; exact also where a double cannot hold the integer. NaN is neither less nor equal: *ordered is false. */
static int compare_numbers(const crumb_jinja_value *a, const crumb_jinja_value *b, bool *ordered) {
    int64_t i, j;
    *ordered = true;
    if (crumb_jinja_get_integer(a, &i) && crumb_jinja_get_integer(b, &j)) return (i > j) - (i < j);
    const double x = crumb_jinja_get_real(a), y = crumb_jinja_get_real(b);
    *ordered = !isnan(x) && !isnan(y);
    return (x > y) - (x < y);
}

static int compare_texts(crumb_jinja_text a, crumb_jinja_text b) {
    const size_t n = a.n_bytes < b.n_bytes ? a.n_bytes : b.n_bytes;
    const int order = n ? memcmp(a.bytes, b.bytes, n) : 0; /* UTF-8 sorts as code points do */
    return order ? order : (a.n_bytes > b.n_bytes) - (a.n_bytes < b.n_bytes);
}

static crumb_status lists_equal(crumb_jinja_state *s, const crumb_jinja_list *a, const crumb_jinja_list *b, bool *out) {
    *out = a->n == b->n && a->is_tuple == b->is_tuple;
    for (size_t i = 0; *out && i < a->n; i++) CRUMB_TRY(crumb_jinja_equal(s, &a->items[i], &b->items[i], out));
    return CRUMB_OK;
}

static crumb_status dicts_equal(crumb_jinja_state *s, const crumb_jinja_dict *a, const crumb_jinja_dict *b, bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        const crumb_jinja_value *other;
        CRUMB_TRY(crumb_jinja_dict_find(s, b, &a->entries[i].key, &other));
        *out = other != NULL;
        if (other) CRUMB_TRY(crumb_jinja_equal(s, &a->entries[i].value, other, out));
    }
    return CRUMB_OK;
}

static crumb_status same_kind_equal(crumb_jinja_state *s, const crumb_jinja_value *a, const crumb_jinja_value *b,
                                    bool *out) {
    switch (a->kind) {
    case CRUMB_JINJA_STRING:
        *out = crumb_jinja_text_equal(a->as.text, b->as.text);
        return crumb_jinja_spend(s, a->as.text.n_bytes / 256);
    case CRUMB_JINJA_LIST: return lists_equal(s, a->as.list, b->as.list, out);
    case CRUMB_JINJA_DICT: return dicts_equal(s, a->as.dict, b->as.dict, out);
    case CRUMB_JINJA_NAMESPACE: *out = a->as.dict == b->as.dict; return CRUMB_OK;
    case CRUMB_JINJA_LOOP: *out = a->as.loop == b->as.loop; return CRUMB_OK;
    case CRUMB_JINJA_CALLABLE: *out = a->as.callable == b->as.callable; return CRUMB_OK;
    default: *out = true; return CRUMB_OK; /* none, undefined */
    }
}

crumb_status crumb_jinja_equal(crumb_jinja_state *s, const crumb_jinja_value *a, const crumb_jinja_value *b,
                               bool *out) {
    *out = false;
    if (crumb_jinja_is_number(a) && crumb_jinja_is_number(b)) {
        bool ordered;
        const bool same = compare_numbers(a, b, &ordered) == 0;
        *out = ordered && same;
        return CRUMB_OK;
    }
    if (a->kind != b->kind) return CRUMB_OK;
    CRUMB_TRY(crumb_jinja_enter(s));
    CRUMB_TRY(crumb_jinja_spend(s, 1));
    CRUMB_TRY(same_kind_equal(s, a, b, out));
    crumb_jinja_leave(s);
    return CRUMB_OK;
}

static crumb_status compare_lists(crumb_jinja_state *s, const crumb_jinja_list *a, const crumb_jinja_list *b,
                                  int *out) {
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        CRUMB_TRY(crumb_jinja_equal(s, &a->items[i], &b->items[i], &same));
        if (same) continue;
        CRUMB_TRY(crumb_jinja_enter(s));
        CRUMB_TRY(crumb_jinja_compare(s, &a->items[i], &b->items[i], out));
        crumb_jinja_leave(s);
        return CRUMB_OK;
    }
    *out = (a->n > b->n) - (a->n < b->n);
    return CRUMB_OK;
}

crumb_status crumb_jinja_compare(crumb_jinja_state *s, const crumb_jinja_value *a, const crumb_jinja_value *b,
                                 int *out) {
    *out = 0;
    if (crumb_jinja_is_number(a) && crumb_jinja_is_number(b)) {
        bool ordered;
        *out = compare_numbers(a, b, &ordered);
        if (ordered) return CRUMB_OK;
        return crumb_jinja_fail(s, CRUMB_ERR_UNSUPPORTED, "the order of NaN is not supported");
    }
    if (a->kind == CRUMB_JINJA_STRING && b->kind == CRUMB_JINJA_STRING) {
        *out = compare_texts(a->as.text, b->as.text);
        return crumb_jinja_spend(s, a->as.text.n_bytes / 256);
    }
    if (a->kind == CRUMB_JINJA_LIST && b->kind == CRUMB_JINJA_LIST && a->as.list->is_tuple == b->as.list->is_tuple)
        return compare_lists(s, a->as.list, b->as.list, out);
    return crumb_jinja_fail(s, CRUMB_ERR_FORMAT, "values of type %s and %s have no order", crumb_jinja_type_name(a),
                            crumb_jinja_type_name(b));
}
