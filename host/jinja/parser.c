/* Statements of templates. */
#include "host/jinja/ast.h"

#include <stdio.h>
#include <string.h>

static void advance(crumb_jinja_parser *p) {
    if (p->token->kind != CRUMB_JINJA_END) p->token++;
    p->state->line = p->token->line;
}

static crumb_status expect_block_end(crumb_jinja_parser *p) {
    if (p->token->kind != CRUMB_JINJA_BLOCK_END) return crumb_jinja_unexpected(p, "the end of the block");
    advance(p);
    return CRUMB_OK;
}

/* Statements up to a block that begins with one of the words, which is left for the caller behind its {%. NULL words:
 * up to the template's end. */
static crumb_status parse_body(crumb_jinja_parser *p, const char *const *words, crumb_jinja_node **first);

static crumb_status parse_body_to(crumb_jinja_parser *p, const char *end, crumb_jinja_node **first) {
    const char *const words[] = {end, NULL};
    CRUMB_TRY(expect_block_end(p));
    CRUMB_TRY(parse_body(p, words, first));
    advance(p);
    return expect_block_end(p);
}

/* Behind `if` or `elif`. */
static crumb_status parse_if(crumb_jinja_parser *p, crumb_jinja_node **out) {
    static const char *const words[] = {"elif", "else", "endif", NULL};
    CRUMB_TRY(crumb_jinja_enter(p->state));
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_IF, out));
    CRUMB_TRY(crumb_jinja_parse_condition(p, &(*out)->a));
    CRUMB_TRY(expect_block_end(p));
    CRUMB_TRY(parse_body(p, words, &(*out)->body));
    if (crumb_jinja_accept_word(p, "elif")) {
        CRUMB_TRY(parse_if(p, &(*out)->otherwise));
    } else if (crumb_jinja_accept_word(p, "else")) {
        CRUMB_TRY(parse_body_to(p, "endif", &(*out)->otherwise));
    } else {
        advance(p);
        CRUMB_TRY(expect_block_end(p));
    }
    crumb_jinja_leave(p->state);
    return CRUMB_OK;
}

/* A name, or a namespace's member: ns.name. */
static crumb_status parse_target(crumb_jinja_parser *p, bool may_be_member, crumb_jinja_node **out) {
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_NAME, out));
    CRUMB_TRY(crumb_jinja_expect_name(p, &(*out)->name));
    if (!may_be_member || !crumb_jinja_accept_op(p, '.')) return CRUMB_OK;
    crumb_jinja_node *space = *out;
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_MEMBER, out));
    (*out)->a = space;
    return crumb_jinja_expect_name(p, &(*out)->name);
}

static crumb_status parse_targets(crumb_jinja_parser *p, bool may_be_member, crumb_jinja_node **first) {
    const bool wrapped = crumb_jinja_accept_op(p, '(');
    crumb_jinja_node **tail = first;
    do {
        CRUMB_TRY(parse_target(p, may_be_member, tail));
        tail = &(*tail)->next;
    } while (crumb_jinja_accept_op(p, ','));
    return wrapped ? crumb_jinja_expect_op(p, ')') : CRUMB_OK;
}

static crumb_status parse_for(crumb_jinja_parser *p, crumb_jinja_node **out) {
    static const char *const words[] = {"else", "endfor", NULL};
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_FOR, out));
    CRUMB_TRY(parse_targets(p, false, &(*out)->items));
    if (!crumb_jinja_accept_word(p, "in")) return crumb_jinja_unexpected(p, "'in'");
    CRUMB_TRY(crumb_jinja_parse_condition(p, &(*out)->a));
    if (crumb_jinja_accept_word(p, "if")) CRUMB_TRY(crumb_jinja_parse_expression(p, &(*out)->b));
    if (crumb_jinja_at_word(p, "recursive"))
        return crumb_jinja_fail(p->state, CRUMB_ERR_UNSUPPORTED, "a recursive loop is not supported");
    CRUMB_TRY(expect_block_end(p));
    p->n_loops++;
    CRUMB_TRY(parse_body(p, words, &(*out)->body));
    p->n_loops--;
    if (crumb_jinja_accept_word(p, "else")) return parse_body_to(p, "endfor", &(*out)->otherwise);
    advance(p);
    return expect_block_end(p);
}

static crumb_status parse_set(crumb_jinja_parser *p, crumb_jinja_node **out) {
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_SET, out));
    CRUMB_TRY(parse_targets(p, true, &(*out)->items));
    if (crumb_jinja_accept_op(p, '=')) {
        CRUMB_TRY(crumb_jinja_parse_tuple(p, &(*out)->a));
        return expect_block_end(p);
    }
    (*out)->kind = CRUMB_JINJA_NODE_SET_BLOCK;
    if ((*out)->items->next) return crumb_jinja_unexpected(p, "'='");
    CRUMB_TRY(crumb_jinja_parse_filters(p, false, NULL, &(*out)->a));
    return parse_body_to(p, "endset", &(*out)->body);
}

static crumb_status parse_macro(crumb_jinja_parser *p, crumb_jinja_node **out) {
    const uint32_t n_loops = p->n_loops;
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_MACRO, out));
    CRUMB_TRY(crumb_jinja_expect_name(p, &(*out)->name));
    CRUMB_TRY(crumb_jinja_expect_op(p, '('));
    for (crumb_jinja_node **tail = &(*out)->items; !crumb_jinja_accept_op(p, ')'); tail = &(*tail)->next) {
        CRUMB_TRY(parse_target(p, false, tail));
        if (crumb_jinja_accept_op(p, '=')) CRUMB_TRY(crumb_jinja_parse_expression(p, &(*tail)->a));
        if (p->token->kind == CRUMB_JINJA_OPERATOR && p->token->op == ')') continue;
        CRUMB_TRY(crumb_jinja_expect_op(p, ','));
    }
    p->n_loops = 0;
    CRUMB_TRY(parse_body_to(p, "endmacro", &(*out)->body));
    p->n_loops = n_loops;
    return CRUMB_OK;
}

static crumb_status parse_filter_block(crumb_jinja_parser *p, crumb_jinja_node **out) {
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_FILTER_BLOCK, out));
    CRUMB_TRY(crumb_jinja_parse_filters(p, true, NULL, &(*out)->a));
    return parse_body_to(p, "endfilter", &(*out)->body);
}

static crumb_status parse_generation(crumb_jinja_parser *p, crumb_jinja_node **out) {
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_SCOPE, out));
    return parse_body_to(p, "endgeneration", &(*out)->body);
}

static crumb_status parse_jump(crumb_jinja_parser *p, crumb_jinja_node_kind kind, crumb_jinja_node **out) {
    if (p->n_loops == 0) return crumb_jinja_fail(p->state, CRUMB_ERR_FORMAT, "break or continue outside a loop");
    CRUMB_TRY(crumb_jinja_new_node(p, kind, out));
    return expect_block_end(p);
}

static crumb_status parse_statement(crumb_jinja_parser *p, crumb_jinja_node **out) {
    const crumb_jinja_token *word = p->token;
    if (crumb_jinja_accept_word(p, "if")) return parse_if(p, out);
    if (crumb_jinja_accept_word(p, "for")) return parse_for(p, out);
    if (crumb_jinja_accept_word(p, "set")) return parse_set(p, out);
    if (crumb_jinja_accept_word(p, "macro")) return parse_macro(p, out);
    if (crumb_jinja_accept_word(p, "filter")) return parse_filter_block(p, out);
    if (crumb_jinja_accept_word(p, "generation")) return parse_generation(p, out);
    if (crumb_jinja_accept_word(p, "break")) return parse_jump(p, CRUMB_JINJA_NODE_BREAK, out);
    if (crumb_jinja_accept_word(p, "continue")) return parse_jump(p, CRUMB_JINJA_NODE_CONTINUE, out);
    if (word->kind != CRUMB_JINJA_WORD) return crumb_jinja_unexpected(p, "a statement");
    const crumb_jinja_text name = word->value.as.text;
    const bool ends = name.n_bytes > 3 && (memcmp(name.bytes, "end", 3) == 0 || crumb_jinja_text_is(name, "else") ||
                                           crumb_jinja_text_is(name, "elif"));
    if (ends) return crumb_jinja_unexpected(p, "a statement");
    return crumb_jinja_fail(p->state, CRUMB_ERR_UNSUPPORTED, "the statement '%.*s' is not supported",
                            (int)(name.n_bytes < 60 ? name.n_bytes : 60), name.bytes);
}

static crumb_status parse_output(crumb_jinja_parser *p, crumb_jinja_node **out) {
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_OUTPUT, out));
    CRUMB_TRY(crumb_jinja_parse_tuple(p, &(*out)->a));
    if (p->token->kind != CRUMB_JINJA_OUTPUT_END) return crumb_jinja_unexpected(p, "'}}'");
    advance(p);
    return CRUMB_OK;
}

static bool at_one_of(const crumb_jinja_parser *p, const char *const *words) {
    while (words && *words)
        if (crumb_jinja_at_word(p, *words++)) return true;
    return false;
}

static crumb_status parse_body(crumb_jinja_parser *p, const char *const *words, crumb_jinja_node **first) {
    CRUMB_TRY(crumb_jinja_enter(p->state));
    for (crumb_jinja_node **tail = first;; tail = &(*tail)->next) {
        const crumb_jinja_token *t = p->token;
        if (t->kind == CRUMB_JINJA_END) {
            if (words) return crumb_jinja_unexpected(p, words[0]);
            break;
        }
        if (t->kind == CRUMB_JINJA_BLOCK_BEGIN) {
            advance(p);
            if (at_one_of(p, words)) break;
            CRUMB_TRY(parse_statement(p, tail));
        } else if (t->kind == CRUMB_JINJA_OUTPUT_BEGIN) {
            advance(p);
            CRUMB_TRY(parse_output(p, tail));
        } else {
            CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_TEXT, tail));
            (*tail)->value = t->value;
            advance(p);
        }
    }
    crumb_jinja_leave(p->state);
    return CRUMB_OK;
}

crumb_status crumb_jinja_parse(crumb_jinja_state *s, const char *source, size_t n_bytes, crumb_jinja_node **out) {
    crumb_jinja_token *tokens;
    size_t n_tokens;
    *out = NULL;
    CRUMB_TRY(crumb_jinja_lex(s, source, n_bytes, &tokens, &n_tokens));
    crumb_jinja_parser p = {.state = s, .token = tokens};
    s->line = tokens->line;
    return parse_body(&p, NULL, out);
}
