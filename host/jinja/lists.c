/* Filters of lists: choosing, changing and ordering items. */
#include "host/jinja/evaluate.h"

#include <stdlib.h>
#include <string.h>

/* item.a.b.0, the attribute's parts being separated by dots. Where one is undefined, `fallback` (NULL: none) stands for
 * it. */
static crumb_status attribute_of(crumb_jinja_run *r, const crumb_jinja_value *item, const crumb_jinja_value *attribute,
                                 const crumb_jinja_value *fallback, crumb_jinja_value *out) {
    *out = *item;
    if (attribute->kind == CRUMB_JINJA_INTEGER) return crumb_jinja_item(r, item, attribute, out);
    if (attribute->kind != CRUMB_JINJA_STRING)
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "an attribute is neither a string nor an integer");
    const crumb_jinja_text dot = crumb_jinja_literal(".").as.text;
    for (crumb_jinja_text rest = attribute->as.text;;) {
        const size_t end = crumb_jinja_text_find(rest, dot, 0);
        const crumb_jinja_text part = crumb_jinja_text_part(rest, 0, end == SIZE_MAX ? rest.n_bytes : end);
        const bool index = part.n_bytes > 0 && part.n_bytes < 10 && part.bytes[0] >= '0' && part.bytes[0] <= '9';
        const crumb_jinja_value key = index ? crumb_jinja_integer(strtol(part.bytes, NULL, 10))
                                            : crumb_jinja_string(part),
                                of = *out;
        CRUMB_TRY(crumb_jinja_item(r, &of, &key, out));
        if (fallback && out->kind == CRUMB_JINJA_UNDEFINED) *out = *fallback;
        if (end == SIZE_MAX) return CRUMB_OK;
        rest = crumb_jinja_text_part(rest, end + 1, rest.n_bytes);
    }
}

static bool is_given(const crumb_jinja_value *arg) {
    return arg->kind != CRUMB_JINJA_UNDEFINED && arg->kind != CRUMB_JINJA_NONE;
}

/* A filter or test by a name that is none of crumb's, or by something else than a name. */
static crumb_status unknown(crumb_jinja_run *r, const char *what, const crumb_jinja_value *name) {
    const crumb_jinja_text t = name->kind == CRUMB_JINJA_STRING ? name->as.text : (crumb_jinja_text){.bytes = ""};
    return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "%s '%.*s' is not supported", what,
                            (int)(t.n_bytes < 60 ? t.n_bytes : 60), t.bytes);
}

/* ---- choosing ---------------------------------------------------------------------------------------------- */

/* select(test, arguments...), selectattr(attribute, test, arguments...): items for which the test holds, or does not;
 * without a test, those that are true. */
static crumb_status choose(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_arguments *all,
                           bool by_attribute, bool wanted, crumb_jinja_value *out) {
    const crumb_jinja_list *items;
    const size_t first = by_attribute;
    int row = -1;
    if (all->n < first) return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "selectattr: which attribute?");
    crumb_jinja_arguments rest = {.named = all->named, .n_named = all->n_named};
    if (all->n > first) {
        const crumb_jinja_value *name = &all->positional[first];
        if (name->kind == CRUMB_JINJA_STRING) row = crumb_jinja_test_find(name->as.text);
        if (row < 0) return unknown(r, "select: test", name);
        rest.positional = all->positional + first + 1;
        rest.n = all->n - first - 1;
    }
    CRUMB_TRY(crumb_jinja_iterate(r, in, &items));
    crumb_jinja_value *kept;
    crumb_jinja_list *list;
    CRUMB_TRY(crumb_jinja_alloc(r->state, 1, sizeof *list, &list));
    CRUMB_TRY(crumb_jinja_alloc(r->state, items->n, sizeof *kept, &kept));
    list->items = kept;
    for (size_t i = 0; i < items->n; i++) {
        crumb_jinja_value v = items->items[i];
        bool yes;
        CRUMB_TRY(crumb_jinja_spend(r->state, 1));
        if (by_attribute) CRUMB_TRY(attribute_of(r, &items->items[i], all->positional, NULL, &v));
        yes = crumb_jinja_truth(&v);
        if (row >= 0) CRUMB_TRY(crumb_jinja_test(r, row, &v, &rest, &yes));
        if (yes == wanted) kept[list->n++] = items->items[i];
    }
    *out = (crumb_jinja_value){.kind = CRUMB_JINJA_LIST, .as.list = list};
    return CRUMB_OK;
}

#define FILTER(name)                                                                                                   \
    crumb_status name(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg,                   \
                      const crumb_jinja_arguments *all, crumb_jinja_value *out)
#define UNUSED (void)r, (void)in, (void)arg, (void)all

FILTER(crumb_jinja_do_select) {
    UNUSED;
    return choose(r, in, all, false, true, out);
}
FILTER(crumb_jinja_do_reject) {
    UNUSED;
    return choose(r, in, all, false, false, out);
}
FILTER(crumb_jinja_do_selectattr) {
    UNUSED;
    return choose(r, in, all, true, true, out);
}
FILTER(crumb_jinja_do_rejectattr) {
    UNUSED;
    return choose(r, in, all, true, false, out);
}

/* ---- changing ---------------------------------------------------------------------------------------------- */

static crumb_status map_attribute(crumb_jinja_run *r, const crumb_jinja_list *items, const crumb_jinja_arguments *all,
                                  crumb_jinja_value *to) {
    crumb_jinja_value arg[2];
    CRUMB_TRY(crumb_jinja_bind(r, "map", "attribute default?", all, arg));
    for (size_t i = 0; i < items->n; i++) {
        CRUMB_TRY(crumb_jinja_spend(r->state, 1));
        CRUMB_TRY(attribute_of(r, &items->items[i], &arg[0], is_given(&arg[1]) ? &arg[1] : NULL, &to[i]));
    }
    return CRUMB_OK;
}

/* map(filter, arguments...) or map(attribute=name, default=value) */
FILTER(crumb_jinja_do_map) {
    UNUSED;
    const crumb_jinja_list *items;
    crumb_jinja_value *to;
    CRUMB_TRY(crumb_jinja_iterate(r, in, &items));
    CRUMB_TRY(crumb_jinja_make_list(r->state, items->n, false, &to, out));
    if (all->n == 0) return map_attribute(r, items, all, to);
    const int row =
        all->positional->kind == CRUMB_JINJA_STRING ? crumb_jinja_filter_find(all->positional->as.text) : -1;
    if (row < 0) return unknown(r, "map: filter", all->positional);
    const crumb_jinja_arguments rest = {
        .positional = all->positional + 1, .n = all->n - 1, .named = all->named, .n_named = all->n_named};
    CRUMB_TRY(crumb_jinja_enter(r->state));
    for (size_t i = 0; i < items->n; i++) {
        CRUMB_TRY(crumb_jinja_spend(r->state, 1));
        CRUMB_TRY(crumb_jinja_call_callee(r, &crumb_jinja_filters[row], &items->items[i], &rest, &to[i]));
    }
    crumb_jinja_leave(r->state);
    return CRUMB_OK;
}

FILTER(crumb_jinja_do_join) {
    UNUSED;
    const crumb_jinja_list *items;
    crumb_jinja_writer w = {.state = r->state};
    CRUMB_TRY(crumb_jinja_iterate(r, in, &items));
    for (size_t i = 0; i < items->n; i++) {
        crumb_jinja_value v = items->items[i];
        if (is_given(&arg[1])) CRUMB_TRY(attribute_of(r, &items->items[i], &arg[1], NULL, &v));
        if (i && arg[0].kind != CRUMB_JINJA_UNDEFINED) CRUMB_TRY(crumb_jinja_write_str(&w, &arg[0]));
        CRUMB_TRY(crumb_jinja_write_str(&w, &v));
    }
    return crumb_jinja_finish(&w, out);
}

FILTER(crumb_jinja_do_reverse) {
    UNUSED;
    const crumb_jinja_value back[3] = {crumb_jinja_none(), crumb_jinja_none(), crumb_jinja_integer(-1)};
    if (in->kind == CRUMB_JINJA_STRING) return crumb_jinja_slice(r, in, back, out);
    const crumb_jinja_list *items;
    crumb_jinja_value *to;
    CRUMB_TRY(crumb_jinja_iterate(r, in, &items));
    CRUMB_TRY(crumb_jinja_make_list(r->state, items->n, false, &to, out));
    for (size_t i = 0; i < items->n; i++) to[i] = items->items[items->n - 1 - i];
    return CRUMB_OK;
}

FILTER(crumb_jinja_do_sum) {
    UNUSED;
    const crumb_jinja_list *items;
    crumb_jinja_value sum = arg[1].kind == CRUMB_JINJA_UNDEFINED ? crumb_jinja_integer(0) : arg[1];
    CRUMB_TRY(crumb_jinja_iterate(r, in, &items));
    for (size_t i = 0; i < items->n; i++) {
        crumb_jinja_value v = items->items[i];
        const crumb_jinja_value before = sum;
        if (is_given(&arg[0])) CRUMB_TRY(attribute_of(r, &items->items[i], &arg[0], NULL, &v));
        CRUMB_TRY(crumb_jinja_binary(r, '+', &before, &v, &sum));
    }
    *out = sum;
    return CRUMB_OK;
}

/* ---- ordering ---------------------------------------------------------------------------------------------- */

/* What an item is ordered by: itself or its attribute, in lower case unless case counts. */
static crumb_status key_of(crumb_jinja_run *r, const crumb_jinja_value *item, const crumb_jinja_value *attribute,
                           bool case_sensitive, crumb_jinja_value *out) {
    *out = *item;
    if (is_given(attribute)) CRUMB_TRY(attribute_of(r, item, attribute, NULL, out));
    if (case_sensitive || out->kind != CRUMB_JINJA_STRING) return CRUMB_OK;
    return crumb_jinja_change_case(r, out->as.text, CRUMB_JINJA_LOWER, out);
}

typedef struct keyed {
    crumb_jinja_value key, value;
} keyed;

/* Merges the sorted halves of items[0, n) by way of `room`; equal ones keep their order. */
static crumb_status merge_sort(crumb_jinja_run *r, keyed *items, keyed *room, size_t n, bool reverse) {
    const size_t half = n / 2;
    size_t i = 0, j = half;
    if (n < 2) return CRUMB_OK;
    CRUMB_TRY(merge_sort(r, items, room, half, reverse));
    CRUMB_TRY(merge_sort(r, items + half, room, n - half, reverse));
    for (size_t k = 0; k < n; k++) {
        int order = i == half ? 1 : -1;
        CRUMB_TRY(crumb_jinja_spend(r->state, 1));
        if (i < half && j < n) {
            CRUMB_TRY(crumb_jinja_compare(r->state, &items[i].key, &items[j].key, &order));
            if (reverse) order = -order;
        }
        room[k] = order > 0 ? items[j++] : items[i++];
    }
    memcpy(items, room, n * sizeof *items);
    return CRUMB_OK;
}

static crumb_status sort_by(crumb_jinja_run *r, const crumb_jinja_list *list, const crumb_jinja_value *attribute,
                            bool case_sensitive, bool reverse, crumb_jinja_value *out) {
    keyed *items, *room;
    crumb_jinja_value *to;
    CRUMB_TRY(crumb_jinja_alloc(r->state, list->n, sizeof *items, &items));
    CRUMB_TRY(crumb_jinja_alloc(r->state, list->n, sizeof *room, &room));
    for (size_t i = 0; i < list->n; i++) {
        items[i].value = list->items[i];
        CRUMB_TRY(key_of(r, &list->items[i], attribute, case_sensitive, &items[i].key));
    }
    CRUMB_TRY(merge_sort(r, items, room, list->n, reverse));
    CRUMB_TRY(crumb_jinja_make_list(r->state, list->n, false, &to, out));
    for (size_t i = 0; i < list->n; i++) to[i] = items[i].value;
    return CRUMB_OK;
}

FILTER(crumb_jinja_do_sort) {
    UNUSED;
    const crumb_jinja_list *list;
    CRUMB_TRY(crumb_jinja_iterate(r, in, &list));
    return sort_by(r, list, &arg[2], is_given(&arg[1]) && crumb_jinja_truth(&arg[1]),
                   is_given(&arg[0]) && crumb_jinja_truth(&arg[0]), out);
}

/* Pairs of a dict, by key or by value. */
FILTER(crumb_jinja_do_dictsort) {
    UNUSED;
    crumb_jinja_value pairs;
    const bool by_value = arg[1].kind == CRUMB_JINJA_STRING && crumb_jinja_text_is(arg[1].as.text, "value");
    const crumb_jinja_value side = crumb_jinja_integer(by_value);
    const crumb_jinja_callee *method = crumb_jinja_method_find(in, crumb_jinja_literal("items").as.text);
    const crumb_jinja_arguments none = {0};
    if (!method) return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "dictsort: not a dict");
    CRUMB_TRY(crumb_jinja_call_callee(r, method, in, &none, &pairs));
    return sort_by(r, pairs.as.list, &side, is_given(&arg[0]) && crumb_jinja_truth(&arg[0]),
                   is_given(&arg[2]) && crumb_jinja_truth(&arg[2]), out);
}

static crumb_status extreme(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg, int sign,
                            crumb_jinja_value *out) {
    const crumb_jinja_list *list;
    crumb_jinja_value best = {0}, key;
    const bool case_sensitive = is_given(&arg[0]) && crumb_jinja_truth(&arg[0]);
    CRUMB_TRY(crumb_jinja_iterate(r, in, &list));
    *out = crumb_jinja_undefined(crumb_jinja_literal("an item of nothing").as.text);
    for (size_t i = 0; i < list->n; i++) {
        int order = 1;
        CRUMB_TRY(crumb_jinja_spend(r->state, 1));
        CRUMB_TRY(key_of(r, &list->items[i], &arg[1], case_sensitive, &key));
        if (i) CRUMB_TRY(crumb_jinja_compare(r->state, &key, &best, &order));
        if (i && order * sign <= 0) continue;
        best = key;
        *out = list->items[i];
    }
    return CRUMB_OK;
}

FILTER(crumb_jinja_do_max) {
    UNUSED;
    return extreme(r, in, arg, 1, out);
}
FILTER(crumb_jinja_do_min) {
    UNUSED;
    return extreme(r, in, arg, -1, out);
}

FILTER(crumb_jinja_do_unique) {
    UNUSED;
    const crumb_jinja_list *list;
    crumb_jinja_value *keys, key;
    crumb_jinja_list *kept;
    CRUMB_TRY(crumb_jinja_iterate(r, in, &list));
    CRUMB_TRY(crumb_jinja_alloc(r->state, 1, sizeof *kept, &kept));
    CRUMB_TRY(crumb_jinja_alloc(r->state, list->n, sizeof *keys, &keys));
    CRUMB_TRY(crumb_jinja_alloc(r->state, list->n, sizeof *kept->items, &kept->items));
    for (size_t i = 0; i < list->n; i++) {
        bool seen = false;
        CRUMB_TRY(crumb_jinja_spend(r->state, 1 + kept->n / 8));
        CRUMB_TRY(key_of(r, &list->items[i], &arg[1], is_given(&arg[0]) && crumb_jinja_truth(&arg[0]), &key));
        for (size_t k = 0; k < kept->n && !seen; k++) CRUMB_TRY(crumb_jinja_equal(r->state, &keys[k], &key, &seen));
        if (seen) continue;
        keys[kept->n] = key;
        kept->items[kept->n++] = list->items[i];
    }
    *out = (crumb_jinja_value){.kind = CRUMB_JINJA_LIST, .as.list = kept};
    return CRUMB_OK;
}
