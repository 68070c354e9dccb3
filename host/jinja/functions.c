/* Functions that templates call by name. */
#include "host/jinja/evaluate.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MAX_RANGE = 100000 }; /* Jinja's own, in its sandbox */

static crumb_status raise_exception(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg,
                                    const crumb_jinja_arguments *all, crumb_jinja_value *out) {
    (void)in, (void)all, (void)out;
    crumb_jinja_text t;
    CRUMB_TRY(crumb_jinja_to_text(r->state, arg, &t));
    return crumb_jinja_fail(r->state, CRUMB_ERR_ARGUMENT, "the template refuses this: %.*s",
                            (int)(t.n_bytes < 400 ? t.n_bytes : 400), t.bytes);
}

static crumb_status strftime_now(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg,
                                 const crumb_jinja_arguments *all, crumb_jinja_value *out) {
    (void)in, (void)all;
    char format[128], text[512];
    struct tm tm;
    const time_t now = (time_t)r->state->now;
    crumb_jinja_writer w = {.state = r->state};
    if (arg->kind != CRUMB_JINJA_STRING || arg->as.text.n_bytes >= sizeof format || !localtime_r(&now, &tm))
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "strftime_now: not a format");
    snprintf(format, sizeof format, "%.*s", (int)arg->as.text.n_bytes, arg->as.text.bytes);
    const size_t n = strftime(text, sizeof text, format, &tm);
    if (n == 0 && *format) return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "strftime_now: the result is too long");
    crumb_jinja_write_bytes(&w, text, n, false);
    return crumb_jinja_finish(&w, out);
}

static crumb_status make_range(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg,
                               const crumb_jinja_arguments *all, crumb_jinja_value *out) {
    (void)in;
    int64_t begin = 0, end, step = 1;
    CRUMB_TRY(crumb_jinja_to_integer(r, &arg[0], "range", &end));
    if (all->n > 1) {
        begin = end;
        CRUMB_TRY(crumb_jinja_to_integer(r, &arg[1], "range", &end));
    }
    if (all->n > 2) CRUMB_TRY(crumb_jinja_to_integer(r, &arg[2], "range", &step));
    if (step == 0) return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "range: the step is zero");
    int64_t n = 0;
    for (int64_t i = begin; (step > 0 ? i < end : i > end) && n <= MAX_RANGE; n++)
        if (__builtin_add_overflow(i, step, &i)) i = end; /* no number is behind it */
    if (n > MAX_RANGE) return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "range: more than %d numbers", MAX_RANGE);
    crumb_jinja_value *items;
    CRUMB_TRY(crumb_jinja_make_list(r->state, (size_t)n, false, &items, out));
    for (int64_t i = 0; i < n; i++) items[i] = crumb_jinja_integer(begin + i * step);
    return CRUMB_OK;
}

/* dict(name=value, ...), and from another dict. */
static crumb_status make_dict(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg,
                              const crumb_jinja_arguments *all, crumb_jinja_value *out) {
    (void)in, (void)arg;
    CRUMB_TRY(crumb_jinja_make_dict(r->state, out));
    if (all->n > 1 || (all->n && all->positional->kind != CRUMB_JINJA_DICT))
        return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED,
                                "making a dict from other than a dict is not supported");
    const crumb_jinja_dict *from = all->n ? all->positional->as.dict : NULL;
    for (size_t i = 0; from && i < from->n; i++)
        CRUMB_TRY(crumb_jinja_dict_set(r->state, out->as.dict, from->entries[i].key, from->entries[i].value));
    for (size_t i = 0; i < all->n_named; i++)
        CRUMB_TRY(crumb_jinja_dict_set(r->state, out->as.dict, all->named[i].key, all->named[i].value));
    return CRUMB_OK;
}

static crumb_status make_namespace(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg,
                                   const crumb_jinja_arguments *all, crumb_jinja_value *out) {
    CRUMB_TRY(make_dict(r, in, arg, all, out));
    out->kind = CRUMB_JINJA_NAMESPACE;
    return CRUMB_OK;
}

static const crumb_jinja_callee functions[] = {
    {"raise_exception", raise_exception, "message"},
    {"strftime_now", strftime_now, "format"},
    {"range", make_range, "begin end? step?"},
    {"dict", make_dict, NULL},
    {"namespace", make_namespace, NULL},
    {NULL, NULL, NULL},
};

const crumb_jinja_callee *crumb_jinja_find_callee(const crumb_jinja_callee *table, crumb_jinja_text name) {
    for (const crumb_jinja_callee *c = table; c->name; c++)
        if (crumb_jinja_text_is(name, c->name)) return c;
    return NULL;
}

const crumb_jinja_callee *crumb_jinja_function_find(crumb_jinja_text name) {
    return crumb_jinja_find_callee(functions, name);
}
