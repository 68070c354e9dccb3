/* Expressions, with Jinja's precedence: if, or, and, not, comparisons, + -, ~, * / // %, **, signs, then what follows a
 * value: members, items, calls, filters, tests. */
#include "host/jinja/ast.h"

#include <stdio.h>
#include <string.h>

#undef crumb_jinja_unexpected /* what ast.h tells the static analyzer */

/* ---- tokens ------------------------------------------------------------------------------------------------ */

static void advance(crumb_jinja_parser *p) {
    if (p->token->kind != CRUMB_JINJA_END) p->token++;
    p->state->line = p->token->line;
}

crumb_status crumb_jinja_unexpected(crumb_jinja_parser *p, const char *wanted) {
    const crumb_jinja_token *t = p->token;
    char found[64] = "the end of the template";
    p->state->line = t->line;
    if (t->kind == CRUMB_JINJA_OPERATOR)
        snprintf(found, sizeof found, "'%c%c'", t->op & 0xff, t->op >> 8 ? t->op >> 8 : '\'');
    if (t->kind == CRUMB_JINJA_OPERATOR && t->op < 256) found[3] = 0;
    if (t->kind == CRUMB_JINJA_WORD)
        snprintf(found, sizeof found, "'%.*s'", (int)(t->value.as.text.n_bytes < 40 ? t->value.as.text.n_bytes : 40),
                 t->value.as.text.bytes);
    if (t->kind == CRUMB_JINJA_CONSTANT) snprintf(found, sizeof found, "a constant");
    if (t->kind == CRUMB_JINJA_OUTPUT_END || t->kind == CRUMB_JINJA_BLOCK_END)
        snprintf(found, sizeof found, "the end of the tag");
    return crumb_jinja_fail(p->state, CRUMB_ERR_FORMAT, "expected %s, not %s", wanted, found);
}

bool crumb_jinja_at_word(const crumb_jinja_parser *p, const char *word) {
    return p->token->kind == CRUMB_JINJA_WORD && crumb_jinja_text_is(p->token->value.as.text, word);
}

bool crumb_jinja_accept_word(crumb_jinja_parser *p, const char *word) {
    const bool yes = crumb_jinja_at_word(p, word);
    if (yes) advance(p);
    return yes;
}

static bool at_op(const crumb_jinja_parser *p, uint16_t op) {
    return p->token->kind == CRUMB_JINJA_OPERATOR && p->token->op == op;
}

bool crumb_jinja_accept_op(crumb_jinja_parser *p, uint16_t op) {
    const bool yes = at_op(p, op);
    if (yes) advance(p);
    return yes;
}

crumb_status crumb_jinja_expect_op(crumb_jinja_parser *p, uint16_t op) {
    char wanted[4] = {'\'', (char)op, '\'', 0};
    return crumb_jinja_accept_op(p, op) ? CRUMB_OK : crumb_jinja_unexpected(p, wanted);
}

crumb_status crumb_jinja_expect_name(crumb_jinja_parser *p, crumb_jinja_text *out) {
    if (p->token->kind != CRUMB_JINJA_WORD) return crumb_jinja_unexpected(p, "a name");
    *out = p->token->value.as.text;
    advance(p);
    return CRUMB_OK;
}

static crumb_status unsupported(crumb_jinja_parser *p, const char *what, crumb_jinja_text name) {
    return crumb_jinja_fail(p->state, CRUMB_ERR_UNSUPPORTED, "%s '%.*s' is not supported", what,
                            (int)(name.n_bytes < 60 ? name.n_bytes : 60), name.bytes);
}

/* ---- what values are made of ------------------------------------------------------------------------------- */

/* Expressions up to the closing operator, with or without a comma at the end. */
static crumb_status parse_items(crumb_jinja_parser *p, uint16_t close, crumb_jinja_node **first) {
    for (crumb_jinja_node **tail = first; !crumb_jinja_accept_op(p, close); tail = &(*tail)->next) {
        CRUMB_TRY(crumb_jinja_parse_expression(p, tail));
        if (!at_op(p, close)) CRUMB_TRY(crumb_jinja_expect_op(p, ','));
    }
    return CRUMB_OK;
}

static crumb_status parse_dict(crumb_jinja_parser *p, crumb_jinja_node **out) {
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_DICT, out));
    for (crumb_jinja_node **tail = &(*out)->items; !crumb_jinja_accept_op(p, '}'); tail = &(*tail)->next) {
        CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_PAIR, tail));
        CRUMB_TRY(crumb_jinja_parse_expression(p, &(*tail)->a));
        CRUMB_TRY(crumb_jinja_expect_op(p, ':'));
        CRUMB_TRY(crumb_jinja_parse_expression(p, &(*tail)->b));
        if (!at_op(p, '}')) CRUMB_TRY(crumb_jinja_expect_op(p, ','));
    }
    return CRUMB_OK;
}

/* Behind '(': a value in parentheses, or a tuple. */
static crumb_status parse_parentheses(crumb_jinja_parser *p, crumb_jinja_node **out) {
    if (at_op(p, ')')) {
        CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_TUPLE, out));
    } else {
        CRUMB_TRY(crumb_jinja_parse_expression(p, out));
        if (at_op(p, ',')) {
            crumb_jinja_node *first = *out;
            CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_TUPLE, out));
            (*out)->items = first;
            advance(p);
            return parse_items(p, ')', &first->next);
        }
    }
    return crumb_jinja_expect_op(p, ')');
}

/* Strings that stand side by side are one. */
static crumb_status parse_constant(crumb_jinja_parser *p, crumb_jinja_node **out) {
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_CONSTANT, out));
    (*out)->value = p->token->value;
    advance(p);
    while ((*out)->value.kind == CRUMB_JINJA_STRING && p->token->kind == CRUMB_JINJA_CONSTANT &&
           p->token->value.kind == CRUMB_JINJA_STRING) {
        crumb_jinja_writer w = {.state = p->state};
        crumb_jinja_write(&w, (*out)->value.as.text);
        crumb_jinja_write(&w, p->token->value.as.text);
        CRUMB_TRY(crumb_jinja_finish(&w, &(*out)->value));
        advance(p);
    }
    return CRUMB_OK;
}

static crumb_status parse_name(crumb_jinja_parser *p, crumb_jinja_node **out) {
    static const struct {
        const char *word;
        crumb_jinja_value value;
    } constants[] = {
        {"true", {.kind = CRUMB_JINJA_BOOL, .as.truth = true}},
        {"True", {.kind = CRUMB_JINJA_BOOL, .as.truth = true}},
        {"false", {.kind = CRUMB_JINJA_BOOL, .as.truth = false}},
        {"False", {.kind = CRUMB_JINJA_BOOL, .as.truth = false}},
        {"none", {.kind = CRUMB_JINJA_NONE}},
        {"None", {.kind = CRUMB_JINJA_NONE}},
    };
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_NAME, out));
    CRUMB_TRY(crumb_jinja_expect_name(p, &(*out)->name));
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (!crumb_jinja_text_is((*out)->name, constants[i].word)) continue;
        (*out)->kind = CRUMB_JINJA_NODE_CONSTANT;
        (*out)->value = constants[i].value;
    }
    return CRUMB_OK;
}

static crumb_status parse_primary(crumb_jinja_parser *p, crumb_jinja_node **out) {
    if (p->token->kind == CRUMB_JINJA_CONSTANT) return parse_constant(p, out);
    if (p->token->kind == CRUMB_JINJA_WORD) return parse_name(p, out);
    if (crumb_jinja_accept_op(p, '(')) return parse_parentheses(p, out);
    if (crumb_jinja_accept_op(p, '{')) return parse_dict(p, out);
    if (!crumb_jinja_accept_op(p, '[')) return crumb_jinja_unexpected(p, "an expression");
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_LIST, out));
    return parse_items(p, ']', &(*out)->items);
}

/* ---- what follows a value ---------------------------------------------------------------------------------- */

/* Behind '('. Keyword arguments are items with a name. */
static crumb_status parse_arguments(crumb_jinja_parser *p, crumb_jinja_node **first) {
    for (crumb_jinja_node **tail = first; !crumb_jinja_accept_op(p, ')'); tail = &(*tail)->next) {
        crumb_jinja_text name = {0};
        if (at_op(p, '*') || at_op(p, CRUMB_JINJA_OP2('*', '*')))
            return crumb_jinja_fail(p->state, CRUMB_ERR_UNSUPPORTED, "arguments with * or ** are not supported");
        const crumb_jinja_token *ahead = p->token->kind == CRUMB_JINJA_WORD ? p->token + 1 : p->token;
        if (ahead->kind == CRUMB_JINJA_OPERATOR && ahead->op == '=') {
            CRUMB_TRY(crumb_jinja_expect_name(p, &name));
            advance(p);
        }
        CRUMB_TRY(crumb_jinja_parse_expression(p, tail));
        if (name.n_bytes) {
            crumb_jinja_node *value = *tail;
            CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_PAIR, tail));
            (*tail)->name = name;
            (*tail)->a = value;
        }
        if (!at_op(p, ')')) CRUMB_TRY(crumb_jinja_expect_op(p, ','));
    }
    return CRUMB_OK;
}

/* Behind '[': an index, or begin:end:step. */
static crumb_status parse_subscript(crumb_jinja_parser *p, crumb_jinja_node *value, crumb_jinja_node **out) {
    crumb_jinja_node *parts[3] = {0};
    int n = 0;
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_ITEM, out));
    (*out)->a = value;
    for (;;) {
        if (!at_op(p, ':') && !at_op(p, ']')) CRUMB_TRY(crumb_jinja_parse_expression(p, &parts[n]));
        if (n == 2 || !crumb_jinja_accept_op(p, ':')) break;
        n++;
    }
    if (at_op(p, ',')) return crumb_jinja_fail(p->state, CRUMB_ERR_UNSUPPORTED, "a tuple as an index is not supported");
    CRUMB_TRY(crumb_jinja_expect_op(p, ']'));
    if (n == 0) return (*out)->b = parts[0], parts[0] ? CRUMB_OK : crumb_jinja_unexpected(p, "an index");
    (*out)->kind = CRUMB_JINJA_NODE_SLICE;
    crumb_jinja_node **tail = &(*out)->items;
    for (int i = 0; i < 3; i++, tail = &(*tail)->next) {
        *tail = parts[i];
        if (parts[i]) continue;
        CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_CONSTANT, tail));
        (*tail)->value = crumb_jinja_none();
    }
    return CRUMB_OK;
}

/* Behind '.'. */
static crumb_status parse_member(crumb_jinja_parser *p, crumb_jinja_node *value, crumb_jinja_node **out) {
    const bool is_index = p->token->kind == CRUMB_JINJA_CONSTANT && p->token->value.kind == CRUMB_JINJA_INTEGER;
    CRUMB_TRY(crumb_jinja_new_node(p, is_index ? CRUMB_JINJA_NODE_ITEM : CRUMB_JINJA_NODE_MEMBER, out));
    (*out)->a = value;
    return is_index ? parse_constant(p, &(*out)->b) : crumb_jinja_expect_name(p, &(*out)->name);
}

static crumb_status parse_call(crumb_jinja_parser *p, crumb_jinja_node *value, crumb_jinja_node **out) {
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_CALL, out));
    (*out)->a = value;
    return parse_arguments(p, &(*out)->items);
}

/* Long chains are no deeper than short ones for us, but evaluating them recurses. */
static crumb_status parse_postfix(crumb_jinja_parser *p, crumb_jinja_node **value) {
    uint32_t n = 0;
    for (;; n++) {
        crumb_jinja_node *inner = *value;
        if (crumb_jinja_accept_op(p, '.'))
            CRUMB_TRY(parse_member(p, inner, value));
        else if (crumb_jinja_accept_op(p, '['))
            CRUMB_TRY(parse_subscript(p, inner, value));
        else if (crumb_jinja_accept_op(p, '('))
            CRUMB_TRY(parse_call(p, inner, value));
        else
            return CRUMB_OK;
        if (n > p->state->max_depth) return crumb_jinja_unexpected(p, "a shorter chain");
    }
}

crumb_status crumb_jinja_parse_filters(crumb_jinja_parser *p, bool first, crumb_jinja_node *input,
                                       crumb_jinja_node **out) {
    *out = input;
    for (uint32_t n = 0; first || crumb_jinja_accept_op(p, '|'); first = false, n++) {
        crumb_jinja_node *f;
        CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_FILTER, &f));
        CRUMB_TRY(crumb_jinja_expect_name(p, &f->name));
        const int row = crumb_jinja_filter_find(f->name);
        if (row < 0) return unsupported(p, "filter", f->name);
        if (n > p->state->max_depth) return crumb_jinja_unexpected(p, "a shorter chain");
        f->row = (uint16_t)row;
        f->a = *out;
        if (crumb_jinja_accept_op(p, '(')) CRUMB_TRY(parse_arguments(p, &f->items));
        *out = f;
    }
    return CRUMB_OK;
}

/* A test's single argument may stand without parentheses. */
static bool at_bare_argument(const crumb_jinja_parser *p) {
    if (p->token->kind == CRUMB_JINJA_OPERATOR) return at_op(p, '[') || at_op(p, '{');
    return p->token->kind == CRUMB_JINJA_CONSTANT ||
           (p->token->kind == CRUMB_JINJA_WORD && !crumb_jinja_at_word(p, "else") && !crumb_jinja_at_word(p, "or") &&
            !crumb_jinja_at_word(p, "and"));
}

/* Behind `is`. */
static crumb_status parse_test(crumb_jinja_parser *p, crumb_jinja_node **value) {
    crumb_jinja_node *test, *inner = *value;
    const bool negated = crumb_jinja_accept_word(p, "not");
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_TEST, &test));
    CRUMB_TRY(crumb_jinja_expect_name(p, &test->name));
    const int row = crumb_jinja_test_find(test->name);
    if (row < 0) return unsupported(p, "test", test->name);
    test->row = (uint16_t)row;
    test->a = inner;
    if (crumb_jinja_accept_op(p, '(')) {
        CRUMB_TRY(parse_arguments(p, &test->items));
    } else if (at_bare_argument(p)) {
        if (crumb_jinja_at_word(p, "is")) return crumb_jinja_unexpected(p, "one test, not a chain of them");
        CRUMB_TRY(parse_primary(p, &test->items));
        CRUMB_TRY(parse_postfix(p, &test->items));
    }
    *value = test;
    if (!negated) return CRUMB_OK;
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_NOT, value));
    (*value)->a = test;
    return CRUMB_OK;
}

static crumb_status parse_filters_and_tests(crumb_jinja_parser *p, crumb_jinja_node **value) {
    for (uint32_t n = 0;; n++) {
        crumb_jinja_node *inner = *value;
        if (at_op(p, '|'))
            CRUMB_TRY(crumb_jinja_parse_filters(p, false, inner, value));
        else if (crumb_jinja_accept_word(p, "is"))
            CRUMB_TRY(parse_test(p, value));
        else if (crumb_jinja_accept_op(p, '('))
            CRUMB_TRY(parse_call(p, inner, value));
        else
            return CRUMB_OK;
        if (n > p->state->max_depth) return crumb_jinja_unexpected(p, "a shorter chain");
    }
}

/* ---- operators --------------------------------------------------------------------------------------------- */

static crumb_status parse_unary(crumb_jinja_parser *p, bool with_filters, crumb_jinja_node **out) {
    CRUMB_TRY(crumb_jinja_enter(p->state));
    if (at_op(p, '-') || at_op(p, '+')) {
        CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_SIGN, out));
        (*out)->op = p->token->op;
        advance(p);
        CRUMB_TRY(parse_unary(p, false, &(*out)->a));
    } else {
        CRUMB_TRY(parse_primary(p, out));
    }
    CRUMB_TRY(parse_postfix(p, out));
    if (with_filters) CRUMB_TRY(parse_filters_and_tests(p, out));
    crumb_jinja_leave(p->state);
    return CRUMB_OK;
}

/* Operators that bind to the left, loosest first; 0 ends a level. */
static const uint16_t levels[][5] = {
    {'+', '-'}, {'~'}, {'*', '/', CRUMB_JINJA_OP2('/', '/'), '%'}, {CRUMB_JINJA_OP2('*', '*')}};
enum { N_LEVELS = sizeof levels / sizeof *levels };

static crumb_status parse_level(crumb_jinja_parser *p, int level, crumb_jinja_node **out) {
    if (level == N_LEVELS) return parse_unary(p, true, out);
    CRUMB_TRY(parse_level(p, level + 1, out));
    for (uint32_t n = 0;; n++) {
        uint16_t op = 0;
        for (const uint16_t *o = levels[level]; *o && !op; o++)
            if (crumb_jinja_accept_op(p, *o)) op = *o;
        if (!op) return CRUMB_OK;
        crumb_jinja_node *left = *out;
        CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_BINARY, out));
        (*out)->op = op;
        (*out)->a = left;
        CRUMB_TRY(parse_level(p, level + 1, &(*out)->b));
        if (n > p->state->max_depth) return crumb_jinja_unexpected(p, "a shorter chain");
    }
}

static uint16_t accept_comparison(crumb_jinja_parser *p) {
    static const uint16_t ops[] = {CRUMB_JINJA_OP2('=', '='),
                                   CRUMB_JINJA_OP2('!', '='),
                                   CRUMB_JINJA_OP2('<', '='),
                                   CRUMB_JINJA_OP2('>', '='),
                                   '<',
                                   '>'};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (crumb_jinja_accept_op(p, ops[i])) return ops[i];
    if (crumb_jinja_accept_word(p, "in")) return CRUMB_JINJA_OP_IN;
    const crumb_jinja_token *ahead = p->token + (p->token->kind != CRUMB_JINJA_END);
    const bool not_in = crumb_jinja_at_word(p, "not") && ahead->kind == CRUMB_JINJA_WORD &&
                        crumb_jinja_text_is(ahead->value.as.text, "in");
    if (!not_in) return 0;
    advance(p);
    advance(p);
    return CRUMB_JINJA_OP_NOT_IN;
}

static crumb_status parse_comparison(crumb_jinja_parser *p, crumb_jinja_node **out) {
    CRUMB_TRY(parse_level(p, 0, out));
    crumb_jinja_node **tail = NULL;
    for (uint16_t op; (op = accept_comparison(p)) != 0; tail = &(*tail)->next) {
        if (!tail) {
            crumb_jinja_node *left = *out;
            CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_COMPARE, out));
            (*out)->a = left;
            tail = &(*out)->items;
        }
        CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_PAIR, tail));
        (*tail)->op = op;
        CRUMB_TRY(parse_level(p, 0, &(*tail)->b));
    }
    return CRUMB_OK;
}

static crumb_status parse_not(crumb_jinja_parser *p, crumb_jinja_node **out) {
    if (!crumb_jinja_at_word(p, "not")) return parse_comparison(p, out);
    CRUMB_TRY(crumb_jinja_enter(p->state));
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_NOT, out));
    advance(p);
    CRUMB_TRY(parse_not(p, &(*out)->a));
    crumb_jinja_leave(p->state);
    return CRUMB_OK;
}

static crumb_status parse_logic(crumb_jinja_parser *p, bool is_or, crumb_jinja_node **out) {
    CRUMB_TRY(is_or ? parse_logic(p, false, out) : parse_not(p, out));
    for (uint32_t n = 0; crumb_jinja_accept_word(p, is_or ? "or" : "and"); n++) {
        crumb_jinja_node *left = *out;
        CRUMB_TRY(crumb_jinja_new_node(p, is_or ? CRUMB_JINJA_NODE_OR : CRUMB_JINJA_NODE_AND, out));
        (*out)->a = left;
        CRUMB_TRY(is_or ? parse_logic(p, false, &(*out)->b) : parse_not(p, &(*out)->b));
        if (n > p->state->max_depth) return crumb_jinja_unexpected(p, "a shorter chain");
    }
    return CRUMB_OK;
}

crumb_status crumb_jinja_parse_condition(crumb_jinja_parser *p, crumb_jinja_node **out) {
    return parse_logic(p, true, out);
}

crumb_status crumb_jinja_parse_expression(crumb_jinja_parser *p, crumb_jinja_node **out) {
    CRUMB_TRY(crumb_jinja_enter(p->state));
    CRUMB_TRY(crumb_jinja_parse_condition(p, out));
    for (uint32_t n = 0; crumb_jinja_accept_word(p, "if"); n++) {
        crumb_jinja_node *value = *out;
        CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_CONDITIONAL, out));
        (*out)->a = value;
        CRUMB_TRY(crumb_jinja_parse_condition(p, &(*out)->b));
        if (crumb_jinja_accept_word(p, "else")) CRUMB_TRY(crumb_jinja_parse_expression(p, &(*out)->c));
        if (n > p->state->max_depth) return crumb_jinja_unexpected(p, "a shorter chain");
    }
    crumb_jinja_leave(p->state);
    return CRUMB_OK;
}

crumb_status crumb_jinja_parse_tuple(crumb_jinja_parser *p, crumb_jinja_node **out) {
    CRUMB_TRY(crumb_jinja_parse_expression(p, out));
    if (!at_op(p, ',')) return CRUMB_OK;
    crumb_jinja_node *first = *out, **tail = &first->next;
    CRUMB_TRY(crumb_jinja_new_node(p, CRUMB_JINJA_NODE_TUPLE, out));
    (*out)->items = first;
    while (crumb_jinja_accept_op(p, ',') && p->token->kind != CRUMB_JINJA_BLOCK_END &&
           p->token->kind != CRUMB_JINJA_OUTPUT_END) {
        CRUMB_TRY(crumb_jinja_parse_expression(p, tail));
        tail = &(*tail)->next;
    }
    return CRUMB_OK;
}
