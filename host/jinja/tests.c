/* What stands behind `is`. */
#include "host/jinja/evaluate.h"

typedef struct test_row {
    const char *name;
    bool (*holds)(const crumb_jinja_value *v); /* NULL: `op` or `special` decide */
    uint16_t op;                               /* v op argument */
    char special;
} test_row;

static bool is_defined(const crumb_jinja_value *v) {
    return v->kind != CRUMB_JINJA_UNDEFINED;
}
static bool is_undefined(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_UNDEFINED;
}
static bool is_none(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_NONE;
}
static bool is_string(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_STRING;
}
static bool is_number(const crumb_jinja_value *v) {
    return crumb_jinja_is_number(v);
}
static bool is_integer(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_INTEGER;
}
static bool is_float(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_REAL;
}
static bool is_boolean(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_BOOL;
}
static bool is_true(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_BOOL && v->as.truth;
}
static bool is_false(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_BOOL && !v->as.truth;
}
static bool is_mapping(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_DICT;
}
static bool is_callable(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_CALLABLE || v->kind == CRUMB_JINJA_UNDEFINED; /* Python's undefined is, too */
}
/* Python asks whether it has a length and items, which undefined values have as well. */
static bool is_sequence(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_STRING || v->kind == CRUMB_JINJA_LIST || v->kind == CRUMB_JINJA_DICT ||
           v->kind == CRUMB_JINJA_UNDEFINED;
}
static bool is_iterable(const crumb_jinja_value *v) {
    return is_sequence(v) || v->kind == CRUMB_JINJA_LOOP;
}

static const test_row rows[] = {
    {.name = "defined", .holds = is_defined},
    {.name = "undefined", .holds = is_undefined},
    {.name = "none", .holds = is_none},
    {.name = "string", .holds = is_string},
    {.name = "number", .holds = is_number},
    {.name = "integer", .holds = is_integer},
    {.name = "float", .holds = is_float},
    {.name = "boolean", .holds = is_boolean},
    {.name = "true", .holds = is_true},
    {.name = "false", .holds = is_false},
    {.name = "mapping", .holds = is_mapping},
    {.name = "sequence", .holds = is_sequence},
    {.name = "iterable", .holds = is_iterable},
    {.name = "callable", .holds = is_callable},
    {.name = "eq", .op = CRUMB_JINJA_OP2('=', '=')},
    {.name = "equalto", .op = CRUMB_JINJA_OP2('=', '=')},
    {.name = "==", .op = CRUMB_JINJA_OP2('=', '=')},
    {.name = "ne", .op = CRUMB_JINJA_OP2('!', '=')},
    {.name = "!=", .op = CRUMB_JINJA_OP2('!', '=')},
    {.name = "lt", .op = '<'},
    {.name = "lessthan", .op = '<'},
    {.name = "<", .op = '<'},
    {.name = "le", .op = CRUMB_JINJA_OP2('<', '=')},
    {.name = "<=", .op = CRUMB_JINJA_OP2('<', '=')},
    {.name = "gt", .op = '>'},
    {.name = "greaterthan", .op = '>'},
    {.name = ">", .op = '>'},
    {.name = "ge", .op = CRUMB_JINJA_OP2('>', '=')},
    {.name = ">=", .op = CRUMB_JINJA_OP2('>', '=')},
    {.name = "in", .op = CRUMB_JINJA_OP_IN},
    {.name = "even", .special = 'e'},
    {.name = "odd", .special = 'o'},
    {.name = "divisibleby", .special = 'd'},
    {.name = "lower", .special = 'l'},
    {.name = "upper", .special = 'u'},
};

int crumb_jinja_test_find(crumb_jinja_text name) {
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++)
        if (crumb_jinja_text_is(name, rows[i].name)) return i;
    return -1;
}

static crumb_status divides(crumb_jinja_run *r, const crumb_jinja_value *v, int64_t by, int64_t wanted, bool *out) {
    int64_t i;
    CRUMB_TRY(crumb_jinja_to_integer(r, v, "a test", &i));
    if (by == 0) return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "division by zero");
    *out = by == -1 ? wanted == 0 : (i % by != 0) == (wanted != 0);
    return CRUMB_OK;
}

/* str.islower(), str.isupper(): some letter has that case, and none has the other. */
static crumb_status has_case(crumb_jinja_run *r, const crumb_jinja_value *v, bool upper, bool *out) {
    crumb_jinja_text t;
    crumb_jinja_value same, other;
    CRUMB_TRY(crumb_jinja_to_text(r->state, v, &t));
    CRUMB_TRY(crumb_jinja_change_case(r, t, upper ? CRUMB_JINJA_UPPER : CRUMB_JINJA_LOWER, &same));
    CRUMB_TRY(crumb_jinja_change_case(r, t, upper ? CRUMB_JINJA_LOWER : CRUMB_JINJA_UPPER, &other));
    *out = crumb_jinja_text_equal(t, same.as.text) && !crumb_jinja_text_equal(t, other.as.text);
    return CRUMB_OK;
}

crumb_status crumb_jinja_test(crumb_jinja_run *r, int row, const crumb_jinja_value *v,
                              const crumb_jinja_arguments *arguments, bool *out) {
    const test_row *t = &rows[row];
    crumb_jinja_value arg[1];
    int64_t by = 2;
    CRUMB_TRY(crumb_jinja_bind(r, t->name, t->op || t->special == 'd' ? "other" : "", arguments, arg));
    if (t->holds) return *out = t->holds(v), CRUMB_OK;
    if (t->op) return crumb_jinja_relation(r, t->op, v, &arg[0], out);
    if (t->special == 'l' || t->special == 'u') return has_case(r, v, t->special == 'u', out);
    if (t->special == 'd') CRUMB_TRY(crumb_jinja_to_integer(r, &arg[0], "divisibleby", &by));
    return divides(r, v, by, t->special == 'o', out);
}
