/* Expressions: names, members, calls. */
#include "host/jinja/evaluate.h"

#include <string.h>

#define NAME_ARGS(t) (int)((t).n_bytes < 60 ? (t).n_bytes : 60), (t).bytes

/* ---- names and members ------------------------------------------------------------------------------------- */

static crumb_status make_callable(crumb_jinja_run *r, crumb_jinja_callable callable, crumb_jinja_value *out) {
    crumb_jinja_callable *c;
    CRUMB_TRY(crumb_jinja_alloc(r->state, 1, sizeof *c, &c));
    *c = callable;
    *out = (crumb_jinja_value){.kind = CRUMB_JINJA_CALLABLE, .as.callable = c};
    return CRUMB_OK;
}

static crumb_status find_name(crumb_jinja_run *r, crumb_jinja_text name, crumb_jinja_value *out) {
    const crumb_jinja_value key = crumb_jinja_string(name), *found;
    for (const crumb_jinja_scope *s = r->scope; s; s = s->parent) {
        CRUMB_TRY(crumb_jinja_dict_find(r->state, &s->names, &key, &found));
        if (found) return *out = *found, CRUMB_OK;
    }
    const crumb_jinja_callee *function = crumb_jinja_function_find(name);
    if (function) return make_callable(r, (crumb_jinja_callable){.callee = function}, out);
    *out = crumb_jinja_undefined(name);
    return CRUMB_OK;
}

/* The depth is that of recursive loops, which are not supported. */
static bool loop_member(const crumb_jinja_loop *l, crumb_jinja_text name, crumb_jinja_value *out) {
    const int64_t i = (int64_t)l->index, n = (int64_t)l->items->n;
    const struct {
        const char *name;
        crumb_jinja_value value;
    } members[] = {
        {"index", crumb_jinja_integer(i + 1)},
        {"index0", crumb_jinja_integer(i)},
        {"revindex", crumb_jinja_integer(n - i)},
        {"revindex0", crumb_jinja_integer(n - i - 1)},
        {"first", crumb_jinja_bool(i == 0)},
        {"last", crumb_jinja_bool(i == n - 1)},
        {"length", crumb_jinja_integer(n)},
        {"depth", crumb_jinja_integer(1)},
        {"depth0", crumb_jinja_integer(0)},
        {"previtem", i > 0 ? l->items->items[i - 1] : crumb_jinja_undefined(name)},
        {"nextitem", i + 1 < n ? l->items->items[i + 1] : crumb_jinja_undefined(name)},
    };
    for (size_t m = 0; m < sizeof members / sizeof *members; m++)
        if (crumb_jinja_text_is(name, members[m].name)) return *out = members[m].value, true;
    return false;
}

crumb_status crumb_jinja_member(crumb_jinja_run *r, const crumb_jinja_value *of, crumb_jinja_text name,
                                crumb_jinja_value *out) {
    const crumb_jinja_callee *method = crumb_jinja_method_find(of, name);
    const crumb_jinja_value key = crumb_jinja_string(name), *found = NULL;
    *out = crumb_jinja_undefined(name);
    if (of->kind == CRUMB_JINJA_UNDEFINED)
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "'%.*s' is undefined, and has no member '%.*s'",
                                NAME_ARGS(of->as.text), NAME_ARGS(name));
    if (method) return make_callable(r, (crumb_jinja_callable){.callee = method, .self = *of}, out);
    if (of->kind == CRUMB_JINJA_LOOP && !loop_member(of->as.loop, name, out))
        return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "loop.%.*s is not supported", NAME_ARGS(name));
    if (of->kind == CRUMB_JINJA_DICT || of->kind == CRUMB_JINJA_NAMESPACE)
        CRUMB_TRY(crumb_jinja_dict_find(r->state, of->as.dict, &key, &found));
    if (found) *out = *found;
    return CRUMB_OK;
}

static bool list_item(const crumb_jinja_list *list, int64_t i, crumb_jinja_value *out) {
    if (i < 0) i += (int64_t)list->n;
    if (i < 0 || (uint64_t)i >= list->n) return false;
    *out = list->items[i];
    return true;
}

static bool text_item(crumb_jinja_text t, int64_t i, crumb_jinja_value *out) {
    if (i < 0) i += (int64_t)crumb_jinja_text_length(t);
    const size_t at = i < 0 ? t.n_bytes : crumb_jinja_text_offset(t, (size_t)i);
    if (at >= t.n_bytes) return false;
    *out = crumb_jinja_string(crumb_jinja_text_part(t, at, at + crumb_jinja_character_bytes(t, at)));
    return true;
}

crumb_status crumb_jinja_item(crumb_jinja_run *r, const crumb_jinja_value *of, const crumb_jinja_value *key,
                              crumb_jinja_value *out) {
    const crumb_jinja_value *found = NULL;
    int64_t i;
    if (of->kind == CRUMB_JINJA_DICT) {
        CRUMB_TRY(crumb_jinja_dict_find(r->state, of->as.dict, key, &found));
        if (found) return *out = *found, CRUMB_OK;
    }
    if (key->kind == CRUMB_JINJA_STRING) return crumb_jinja_member(r, of, key->as.text, out);
    if (of->kind == CRUMB_JINJA_UNDEFINED) return crumb_jinja_member(r, of, crumb_jinja_literal("[]").as.text, out);
    *out = crumb_jinja_undefined(crumb_jinja_literal("item").as.text);
    if (!crumb_jinja_get_integer(key, &i)) return CRUMB_OK;
    if (of->kind == CRUMB_JINJA_STRING) CRUMB_TRY(crumb_jinja_spend(r->state, of->as.text.n_bytes / 256));
    if (of->kind == CRUMB_JINJA_LIST) list_item(of->as.list, i, out);
    if (of->kind == CRUMB_JINJA_STRING) text_item(of->as.text, i, out);
    return CRUMB_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------- */

static crumb_status evaluate_arguments(crumb_jinja_run *r, const crumb_jinja_node *first, crumb_jinja_arguments *out) {
    size_t n = 0;
    *out = (crumb_jinja_arguments){0};
    for (const crumb_jinja_node *i = first; i; i = i->next) n++;
    if (n == 0) return CRUMB_OK;
    CRUMB_TRY(crumb_jinja_alloc(r->state, n, sizeof *out->positional, &out->positional));
    CRUMB_TRY(crumb_jinja_alloc(r->state, n, sizeof *out->named, &out->named));
    for (const crumb_jinja_node *i = first; i; i = i->next) {
        if (i->kind == CRUMB_JINJA_NODE_PAIR) {
            crumb_jinja_entry *entry = &out->named[out->n_named++];
            entry->key = crumb_jinja_string(i->name);
            CRUMB_TRY(crumb_jinja_evaluate(r, i->a, &entry->value));
        } else if (out->n_named) {
            return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "a positional argument behind a keyword argument");
        } else {
            CRUMB_TRY(crumb_jinja_evaluate(r, i, &out->positional[out->n++]));
        }
    }
    return CRUMB_OK;
}

/* Copies the next word of "old new count?" and says whether it had its question mark. */
static bool next_parameter(const char **cursor, char *name, size_t size, bool *optional) {
    const size_t n = strcspn(*cursor, " ");
    if (n == 0 || n >= size) return false;
    memcpy(name, *cursor, n);
    *optional = name[n - 1] == '?';
    name[*optional ? n - 1 : n] = 0;
    *cursor += n + ((*cursor)[n] == ' ');
    return true;
}

crumb_status crumb_jinja_bind(crumb_jinja_run *r, const char *what, const char *parameters,
                              const crumb_jinja_arguments *arguments, crumb_jinja_value out[]) {
    char name[32];
    bool optional;
    size_t i = 0, n_used = 0;
    for (const char *cursor = parameters; next_parameter(&cursor, name, sizeof name, &optional); i++) {
        bool given = i < arguments->n;
        out[i] = given ? arguments->positional[i] : crumb_jinja_undefined((crumb_jinja_text){.bytes = ""});
        for (size_t k = 0; k < arguments->n_named; k++) {
            if (!crumb_jinja_text_is(arguments->named[k].key.as.text, name)) continue;
            if (given)
                return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "%s: argument '%s' is given twice", what, name);
            out[i] = arguments->named[k].value;
            given = true;
            n_used++;
        }
        if (!given && !optional)
            return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "%s: argument '%s' is missing", what, name);
    }
    if (arguments->n > i)
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "%s takes at most %zu arguments, not %zu", what, i,
                                arguments->n);
    if (arguments->n_named > n_used)
        return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "%s: a keyword argument that is not supported", what);
    return CRUMB_OK;
}

crumb_status crumb_jinja_call_callee(crumb_jinja_run *r, const crumb_jinja_callee *callee, const crumb_jinja_value *in,
                                     const crumb_jinja_arguments *arguments, crumb_jinja_value *out) {
    crumb_jinja_value bound[CRUMB_JINJA_MAX_PARAMETERS];
    if (!callee->fn)
        return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "'%s' of a value of type %s is not supported",
                                callee->name, crumb_jinja_type_name(in));
    if (callee->parameters) CRUMB_TRY(crumb_jinja_bind(r, callee->name, callee->parameters, arguments, bound));
    return callee->fn(r, in, callee->parameters ? bound : NULL, arguments, out);
}

static crumb_status call(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    crumb_jinja_value f;
    crumb_jinja_arguments arguments;
    CRUMB_TRY(crumb_jinja_evaluate(r, n->a, &f));
    CRUMB_TRY(evaluate_arguments(r, n->items, &arguments));
    r->state->line = n->line;
    if (f.kind == CRUMB_JINJA_UNDEFINED)
        return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "the function '%.*s' is not supported",
                                NAME_ARGS(f.as.text));
    if (f.kind != CRUMB_JINJA_CALLABLE)
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "a value of type %s cannot be called",
                                crumb_jinja_type_name(&f));
    const crumb_jinja_callable *c = f.as.callable;
    if (c->macro) return crumb_jinja_call_macro(r, c, &arguments, out);
    return crumb_jinja_call_callee(r, c->callee, &c->self, &arguments, out);
}

/* The input of the innermost filter is `in`, or, where that is NULL, its own expression. */
crumb_status crumb_jinja_apply_filters(crumb_jinja_run *r, const crumb_jinja_node *n, const crumb_jinja_value *in,
                                       crumb_jinja_value *out) {
    crumb_jinja_value input;
    crumb_jinja_arguments arguments;
    if (!n->a)
        input = in ? *in : crumb_jinja_none();
    else if (n->a->kind == CRUMB_JINJA_NODE_FILTER)
        CRUMB_TRY(crumb_jinja_apply_filters(r, n->a, in, &input));
    else
        CRUMB_TRY(crumb_jinja_evaluate(r, n->a, &input));
    CRUMB_TRY(evaluate_arguments(r, n->items, &arguments));
    r->state->line = n->line;
    return crumb_jinja_call_callee(r, &crumb_jinja_filters[n->row], &input, &arguments, out);
}

static crumb_status test(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    crumb_jinja_value input;
    crumb_jinja_arguments arguments;
    bool yes;
    CRUMB_TRY(crumb_jinja_evaluate(r, n->a, &input));
    CRUMB_TRY(evaluate_arguments(r, n->items, &arguments));
    CRUMB_TRY(crumb_jinja_test(r, n->row, &input, &arguments, &yes));
    *out = crumb_jinja_bool(yes);
    return CRUMB_OK;
}

/* ---- everything else --------------------------------------------------------------------------------------- */

static crumb_status make_list(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    crumb_jinja_value *items;
    size_t n_items = 0;
    for (const crumb_jinja_node *i = n->items; i; i = i->next) n_items++;
    CRUMB_TRY(crumb_jinja_make_list(r->state, n_items, n->kind == CRUMB_JINJA_NODE_TUPLE, &items, out));
    for (const crumb_jinja_node *i = n->items; i; i = i->next) CRUMB_TRY(crumb_jinja_evaluate(r, i, items++));
    return CRUMB_OK;
}

static crumb_status make_dict(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    CRUMB_TRY(crumb_jinja_make_dict(r->state, out));
    for (const crumb_jinja_node *i = n->items; i; i = i->next) {
        crumb_jinja_value key, value;
        CRUMB_TRY(crumb_jinja_evaluate(r, i->a, &key));
        CRUMB_TRY(crumb_jinja_evaluate(r, i->b, &value));
        CRUMB_TRY(crumb_jinja_dict_set(r->state, out->as.dict, key, value));
    }
    return CRUMB_OK;
}

static crumb_status slice(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    crumb_jinja_value of, part[3];
    CRUMB_TRY(crumb_jinja_evaluate(r, n->a, &of));
    size_t i = 0;
    for (const crumb_jinja_node *p = n->items; p; p = p->next) CRUMB_TRY(crumb_jinja_evaluate(r, p, &part[i++]));
    return crumb_jinja_slice(r, &of, part, out);
}

/* a < b < c: each neighbour, up to the first that does not hold. */
static crumb_status compare(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    crumb_jinja_value left, right;
    bool holds = true;
    CRUMB_TRY(crumb_jinja_evaluate(r, n->a, &left));
    for (const crumb_jinja_node *p = n->items; p && holds; p = p->next) {
        CRUMB_TRY(crumb_jinja_evaluate(r, p->b, &right));
        r->state->line = n->line;
        CRUMB_TRY(crumb_jinja_relation(r, p->op, &left, &right, &holds));
        left = right;
    }
    *out = crumb_jinja_bool(holds);
    return CRUMB_OK;
}

static crumb_status choose(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    crumb_jinja_value condition;
    CRUMB_TRY(crumb_jinja_evaluate(r, n->b, &condition));
    if (crumb_jinja_truth(&condition)) return crumb_jinja_evaluate(r, n->a, out);
    if (n->c) return crumb_jinja_evaluate(r, n->c, out);
    *out = crumb_jinja_undefined(crumb_jinja_literal("the missing else").as.text);
    return CRUMB_OK;
}

static crumb_status logic(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    CRUMB_TRY(crumb_jinja_evaluate(r, n->a, out));
    if (crumb_jinja_truth(out) == (n->kind == CRUMB_JINJA_NODE_OR)) return CRUMB_OK;
    return crumb_jinja_evaluate(r, n->b, out);
}

static crumb_status binary(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    crumb_jinja_value a, b;
    CRUMB_TRY(crumb_jinja_evaluate(r, n->a, &a));
    CRUMB_TRY(crumb_jinja_evaluate(r, n->b, &b));
    r->state->line = n->line;
    return crumb_jinja_binary(r, n->op, &a, &b, out);
}

/* not a, -a, +a, a.name, a[b] */
static crumb_status from_one(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    crumb_jinja_value a, b;
    CRUMB_TRY(crumb_jinja_evaluate(r, n->a, &a));
    switch (n->kind) {
    case CRUMB_JINJA_NODE_NOT: *out = crumb_jinja_bool(!crumb_jinja_truth(&a)); return CRUMB_OK;
    case CRUMB_JINJA_NODE_SIGN: b = crumb_jinja_integer(0); return crumb_jinja_binary(r, n->op, &b, &a, out);
    case CRUMB_JINJA_NODE_MEMBER: return crumb_jinja_member(r, &a, n->name, out);
    default: CRUMB_TRY(crumb_jinja_evaluate(r, n->b, &b)); return crumb_jinja_item(r, &a, &b, out);
    }
}

static crumb_status evaluate(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    switch (n->kind) {
    case CRUMB_JINJA_NODE_CONSTANT: *out = n->value; return CRUMB_OK;
    case CRUMB_JINJA_NODE_NAME: return find_name(r, n->name, out);
    case CRUMB_JINJA_NODE_LIST:
    case CRUMB_JINJA_NODE_TUPLE: return make_list(r, n, out);
    case CRUMB_JINJA_NODE_DICT: return make_dict(r, n, out);
    case CRUMB_JINJA_NODE_SLICE: return slice(r, n, out);
    case CRUMB_JINJA_NODE_CALL: return call(r, n, out);
    case CRUMB_JINJA_NODE_FILTER: return crumb_jinja_apply_filters(r, n, NULL, out);
    case CRUMB_JINJA_NODE_TEST: return test(r, n, out);
    case CRUMB_JINJA_NODE_BINARY: return binary(r, n, out);
    case CRUMB_JINJA_NODE_AND:
    case CRUMB_JINJA_NODE_OR: return logic(r, n, out);
    case CRUMB_JINJA_NODE_COMPARE: return compare(r, n, out);
    case CRUMB_JINJA_NODE_CONDITIONAL: return choose(r, n, out);
    default: return from_one(r, n, out);
    }
}

crumb_status crumb_jinja_evaluate(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out) {
    CRUMB_TRY(crumb_jinja_spend(r->state, 1));
    CRUMB_TRY(crumb_jinja_enter(r->state));
    r->state->line = n->line;
    CRUMB_TRY(evaluate(r, n, out));
    crumb_jinja_leave(r->state);
    return CRUMB_OK;
}
