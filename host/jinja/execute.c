/* Statements: output, branches, loops, assignments, macros. */
#include "host/jinja/evaluate.h"

/* ---- scopes ------------------------------------------------------------------------------------------------ */

static crumb_status set_name(crumb_jinja_run *r, crumb_jinja_text name, crumb_jinja_value value) {
    return crumb_jinja_dict_set(r->state, &r->scope->names, crumb_jinja_string(name), value);
}

/* In the arena, because a macro may keep it. */
static crumb_status new_scope(crumb_jinja_run *r, const crumb_jinja_scope *parent, crumb_jinja_scope **out) {
    CRUMB_TRY(crumb_jinja_alloc(r->state, 1, sizeof **out, out));
    (*out)->parent = parent;
    return CRUMB_OK;
}

static crumb_status execute_in(crumb_jinja_run *r, crumb_jinja_scope *scope, const crumb_jinja_node *body) {
    crumb_jinja_scope *outer = r->scope;
    r->scope = scope;
    CRUMB_TRY(crumb_jinja_execute(r, body));
    r->scope = outer;
    return CRUMB_OK;
}

/* What a body prints, as a value. */
static crumb_status capture(crumb_jinja_run *r, crumb_jinja_scope *scope, const crumb_jinja_node *body,
                            crumb_jinja_value *out) {
    crumb_jinja_writer w = {.state = r->state}, *outer = r->out;
    r->out = &w;
    CRUMB_TRY(execute_in(r, scope, body));
    r->out = outer;
    return crumb_jinja_finish(&w, out);
}

/* ---- assignments ------------------------------------------------------------------------------------------- */

static crumb_status assign_one(crumb_jinja_run *r, const crumb_jinja_node *target, crumb_jinja_value value) {
    crumb_jinja_value space;
    if (target->kind == CRUMB_JINJA_NODE_NAME) return set_name(r, target->name, value);
    CRUMB_TRY(crumb_jinja_evaluate(r, target->a, &space));
    if (space.kind != CRUMB_JINJA_NAMESPACE)
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "only a namespace's members can be set");
    return crumb_jinja_dict_set(r->state, space.as.dict, crumb_jinja_string(target->name), value);
}

/* One target takes the value, several its items. */
static crumb_status assign(crumb_jinja_run *r, const crumb_jinja_node *first, crumb_jinja_value value) {
    const crumb_jinja_list *items;
    size_t n = 0, i = 0;
    if (!first->next) return assign_one(r, first, value);
    for (const crumb_jinja_node *t = first; t; t = t->next) n++;
    CRUMB_TRY(crumb_jinja_iterate(r, &value, &items));
    if (items->n != n)
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "%zu values cannot be assigned to %zu names", items->n, n);
    for (const crumb_jinja_node *t = first; t; t = t->next) CRUMB_TRY(assign_one(r, t, items->items[i++]));
    return CRUMB_OK;
}

static crumb_status set(crumb_jinja_run *r, const crumb_jinja_node *n) {
    crumb_jinja_value value;
    CRUMB_TRY(crumb_jinja_evaluate(r, n->a, &value));
    r->state->line = n->line;
    return assign(r, n->items, value);
}

static crumb_status set_block(crumb_jinja_run *r, const crumb_jinja_node *n) {
    crumb_jinja_scope *scope;
    crumb_jinja_value value;
    CRUMB_TRY(new_scope(r, r->scope, &scope));
    CRUMB_TRY(capture(r, scope, n->body, &value));
    if (n->a) CRUMB_TRY(crumb_jinja_apply_filters(r, n->a, &value, &value));
    return assign(r, n->items, value);
}

static crumb_status filter_block(crumb_jinja_run *r, const crumb_jinja_node *n) {
    crumb_jinja_scope *scope;
    crumb_jinja_value value;
    CRUMB_TRY(new_scope(r, r->scope, &scope));
    CRUMB_TRY(capture(r, scope, n->body, &value));
    CRUMB_TRY(crumb_jinja_apply_filters(r, n->a, &value, &value));
    return crumb_jinja_write_str(r->out, &value);
}

/* ---- macros ------------------------------------------------------------------------------------------------ */

static crumb_status define_macro(crumb_jinja_run *r, const crumb_jinja_node *n) {
    crumb_jinja_callable *macro;
    CRUMB_TRY(crumb_jinja_alloc(r->state, 1, sizeof *macro, &macro));
    *macro = (crumb_jinja_callable){.macro = n, .scope = r->scope};
    return set_name(r, n->name, (crumb_jinja_value){.kind = CRUMB_JINJA_CALLABLE, .as.callable = macro});
}

static const crumb_jinja_value *find_named(const crumb_jinja_arguments *arguments, crumb_jinja_text name) {
    for (size_t i = 0; i < arguments->n_named; i++)
        if (crumb_jinja_text_equal(arguments->named[i].key.as.text, name)) return &arguments->named[i].value;
    return NULL;
}

/* Arguments by place, then by name, then defaults, which see the parameters before them. */
static crumb_status bind_parameters(crumb_jinja_run *r, const crumb_jinja_node *macro,
                                    const crumb_jinja_arguments *arguments) {
    size_t i = 0, n_named = 0;
    for (const crumb_jinja_node *p = macro->items; p; p = p->next, i++) {
        const crumb_jinja_value *named = find_named(arguments, p->name);
        crumb_jinja_value value = crumb_jinja_undefined(p->name);
        n_named += named != NULL;
        if (i < arguments->n && named)
            return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "a macro's argument is given twice");
        if (i < arguments->n)
            value = arguments->positional[i];
        else if (named)
            value = *named;
        else if (p->a)
            CRUMB_TRY(crumb_jinja_evaluate(r, p->a, &value));
        CRUMB_TRY(set_name(r, p->name, value));
    }
    if (arguments->n > i || arguments->n_named > n_named)
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "the macro '%.*s' has no place for an argument",
                                (int)(macro->name.n_bytes < 60 ? macro->name.n_bytes : 60), macro->name.bytes);
    return CRUMB_OK;
}

crumb_status crumb_jinja_call_macro(crumb_jinja_run *r, const crumb_jinja_callable *macro,
                                    const crumb_jinja_arguments *arguments, crumb_jinja_value *out) {
    crumb_jinja_scope *outer = r->scope, *scope;
    CRUMB_TRY(crumb_jinja_enter(r->state));
    CRUMB_TRY(new_scope(r, macro->scope, &scope));
    r->scope = scope;
    CRUMB_TRY(bind_parameters(r, macro->macro, arguments));
    CRUMB_TRY(capture(r, scope, macro->macro->body, out));
    r->scope = outer;
    crumb_jinja_leave(r->state);
    return CRUMB_OK;
}

/* ---- loops ------------------------------------------------------------------------------------------------- */

/* The items for which the loop's condition holds. */
static crumb_status select_items(crumb_jinja_run *r, const crumb_jinja_node *n, const crumb_jinja_list *all,
                                 const crumb_jinja_list **out) {
    crumb_jinja_scope *outer = r->scope;
    crumb_jinja_value *kept, list, holds;
    size_t n_kept = 0;
    CRUMB_TRY(crumb_jinja_alloc(r->state, all->n, sizeof *kept, &kept));
    CRUMB_TRY(new_scope(r, outer, &r->scope));
    for (size_t i = 0; i < all->n; i++) {
        CRUMB_TRY(assign(r, n->items, all->items[i]));
        CRUMB_TRY(crumb_jinja_evaluate(r, n->b, &holds));
        if (crumb_jinja_truth(&holds)) kept[n_kept++] = all->items[i];
    }
    r->scope = outer;
    crumb_jinja_value *items;
    CRUMB_TRY(crumb_jinja_make_list(r->state, n_kept, false, &items, &list));
    for (size_t i = 0; i < n_kept; i++) items[i] = kept[i];
    *out = list.as.list;
    return CRUMB_OK;
}

static crumb_status loop(crumb_jinja_run *r, const crumb_jinja_node *n) {
    crumb_jinja_value over;
    const crumb_jinja_list *items;
    crumb_jinja_loop *l;
    crumb_jinja_scope *outer = r->scope, *scope;
    CRUMB_TRY(crumb_jinja_evaluate(r, n->a, &over));
    CRUMB_TRY(crumb_jinja_iterate(r, &over, &items));
    if (n->b) CRUMB_TRY(select_items(r, n, items, &items));
    CRUMB_TRY(new_scope(r, outer, &scope));
    if (items->n == 0) return execute_in(r, scope, n->otherwise);
    CRUMB_TRY(crumb_jinja_alloc(r->state, 1, sizeof *l, &l));
    *l = (crumb_jinja_loop){.items = items};
    for (; l->index < items->n && r->flow != CRUMB_JINJA_BREAK; l->index++) {
        CRUMB_TRY(crumb_jinja_spend(r->state, 1));
        scope->names.n = 0; /* what a turn sets, the next does not see */
        r->scope = scope;
        r->flow = CRUMB_JINJA_GO_ON;
        CRUMB_TRY(set_name(r, crumb_jinja_literal("loop").as.text,
                           (crumb_jinja_value){.kind = CRUMB_JINJA_LOOP, .as.loop = l}));
        CRUMB_TRY(assign(r, n->items, items->items[l->index]));
        CRUMB_TRY(crumb_jinja_execute(r, n->body));
        r->scope = outer;
    }
    r->flow = CRUMB_JINJA_GO_ON;
    return CRUMB_OK;
}

/* ---- all --------------------------------------------------------------------------------------------------- */

static crumb_status output(crumb_jinja_run *r, const crumb_jinja_node *n) {
    crumb_jinja_value value;
    CRUMB_TRY(crumb_jinja_evaluate(r, n->a, &value));
    return crumb_jinja_write_str(r->out, &value);
}

static crumb_status branch(crumb_jinja_run *r, const crumb_jinja_node *n) {
    crumb_jinja_value condition;
    CRUMB_TRY(crumb_jinja_evaluate(r, n->a, &condition));
    return crumb_jinja_execute(r, crumb_jinja_truth(&condition) ? n->body : n->otherwise);
}

static crumb_status scope_block(crumb_jinja_run *r, const crumb_jinja_node *n) {
    crumb_jinja_scope *scope;
    CRUMB_TRY(new_scope(r, r->scope, &scope));
    return execute_in(r, scope, n->body);
}

static crumb_status execute_one(crumb_jinja_run *r, const crumb_jinja_node *n) {
    switch (n->kind) {
    case CRUMB_JINJA_NODE_TEXT: crumb_jinja_write(r->out, n->value.as.text); return CRUMB_OK;
    case CRUMB_JINJA_NODE_OUTPUT: return output(r, n);
    case CRUMB_JINJA_NODE_IF: return branch(r, n);
    case CRUMB_JINJA_NODE_FOR: return loop(r, n);
    case CRUMB_JINJA_NODE_SET: return set(r, n);
    case CRUMB_JINJA_NODE_SET_BLOCK: return set_block(r, n);
    case CRUMB_JINJA_NODE_MACRO: return define_macro(r, n);
    case CRUMB_JINJA_NODE_FILTER_BLOCK: return filter_block(r, n);
    case CRUMB_JINJA_NODE_SCOPE: return scope_block(r, n);
    default: r->flow = n->kind == CRUMB_JINJA_NODE_BREAK ? CRUMB_JINJA_BREAK : CRUMB_JINJA_CONTINUE; return CRUMB_OK;
    }
}

crumb_status crumb_jinja_execute(crumb_jinja_run *r, const crumb_jinja_node *first) {
    CRUMB_TRY(crumb_jinja_enter(r->state));
    for (const crumb_jinja_node *n = first; n && r->flow == CRUMB_JINJA_GO_ON; n = n->next) {
        CRUMB_TRY(crumb_jinja_spend(r->state, 1));
        r->state->line = n->line;
        CRUMB_TRY(execute_one(r, n));
        if (r->out->failed) return crumb_jinja_finish_text(r->out, &(crumb_jinja_text){0});
    }
    crumb_jinja_leave(r->state);
    return CRUMB_OK;
}
