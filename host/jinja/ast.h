/* A template as a tree, and what makes it: parser.c statements, expression.c expressions. */
#ifndef CRUMB_JINJA_AST_H
#define CRUMB_JINJA_AST_H

#include "host/jinja/lexer.h"

typedef enum crumb_jinja_node_kind {
    /* expressions */
    CRUMB_JINJA_NODE_CONSTANT,    /* value */
    CRUMB_JINJA_NODE_NAME,        /* name */
    CRUMB_JINJA_NODE_LIST,        /* [items] */
    CRUMB_JINJA_NODE_TUPLE,       /* (items) */
    CRUMB_JINJA_NODE_DICT,        /* {items}, each a PAIR */
    CRUMB_JINJA_NODE_PAIR,        /* a: b; in a comparison: op b; among arguments: name=a */
    CRUMB_JINJA_NODE_MEMBER,      /* a.name */
    CRUMB_JINJA_NODE_ITEM,        /* a[b] */
    CRUMB_JINJA_NODE_SLICE,       /* a[items: three, of which CONSTANT none is missing] */
    CRUMB_JINJA_NODE_CALL,        /* a(items); a PAIR is a keyword argument */
    CRUMB_JINJA_NODE_FILTER,      /* a | name(items); row: of crumb_jinja_filters. In a filter block a is NULL */
    CRUMB_JINJA_NODE_TEST,        /* a is name(items); row: of crumb_jinja_tests */
    CRUMB_JINJA_NODE_NOT,         /* not a */
    CRUMB_JINJA_NODE_SIGN,        /* op a */
    CRUMB_JINJA_NODE_BINARY,      /* a op b */
    CRUMB_JINJA_NODE_AND,         /* a and b */
    CRUMB_JINJA_NODE_OR,          /* a or b */
    CRUMB_JINJA_NODE_COMPARE,     /* a, then items of PAIR */
    CRUMB_JINJA_NODE_CONDITIONAL, /* a if b else c; c may be NULL */
    /* statements */
    CRUMB_JINJA_NODE_TEXT,         /* value, as it stands */
    CRUMB_JINJA_NODE_OUTPUT,       /* {{ a }} */
    CRUMB_JINJA_NODE_IF,           /* if a: body, else otherwise */
    CRUMB_JINJA_NODE_FOR,          /* for items (NAME) in a if b: body, else otherwise */
    CRUMB_JINJA_NODE_SET,          /* set items (NAME or MEMBER of a NAME) = a */
    CRUMB_JINJA_NODE_SET_BLOCK,    /* set items[0]: body, through the filters a */
    CRUMB_JINJA_NODE_MACRO,        /* macro name(items: NAME with default a or NULL): body */
    CRUMB_JINJA_NODE_FILTER_BLOCK, /* filter a: body */
    CRUMB_JINJA_NODE_SCOPE,        /* body, in a scope of its own: Hugging Face's {% generation %} */
    CRUMB_JINJA_NODE_BREAK,
    CRUMB_JINJA_NODE_CONTINUE,
} crumb_jinja_node_kind;

enum { CRUMB_JINJA_OP_IN = 'i', CRUMB_JINJA_OP_NOT_IN = 'n' }; /* among operators that are characters */

typedef struct crumb_jinja_node crumb_jinja_node;
struct crumb_jinja_node {
    crumb_jinja_node_kind kind;
    uint32_t line;
    uint16_t op, row;
    crumb_jinja_text name;
    crumb_jinja_value value;
    crumb_jinja_node *a, *b, *c;
    crumb_jinja_node *items, *body, *otherwise; /* the first of a list */
    crumb_jinja_node *next;                     /* in the list that this stands in */
};

typedef struct crumb_jinja_parser {
    crumb_jinja_state *state;
    const crumb_jinja_token *token; /* the current one */
    uint32_t n_loops;               /* around what is being read */
} crumb_jinja_parser;

/* All statements of a template. Fails with UNSUPPORTED and names what crumb does not have, with FORMAT for what is no
 * template; both say the line. */
crumb_status crumb_jinja_parse(crumb_jinja_state *s, const char *source, size_t n_bytes, crumb_jinja_node **out);

static inline crumb_status crumb_jinja_new_node(crumb_jinja_parser *p, crumb_jinja_node_kind kind,
                                                crumb_jinja_node **out) {
    crumb_jinja_node *n;
    CRUMB_TRY(crumb_jinja_alloc(p->state, 1, sizeof *n, &n));
    n->kind = kind;
    n->line = p->token->line;
    *out = n;
    return CRUMB_OK;
}

/* ---- expression.c ------------------------------------------------------------------------------------------ */

crumb_status crumb_jinja_unexpected(crumb_jinja_parser *p, const char *wanted); /* fails */
#ifdef __clang_analyzer__                                                       /* as in host/base/error.h */
#define crumb_jinja_unexpected(p, wanted) ((crumb_jinja_unexpected)(p, wanted), CRUMB_ERR_FORMAT)
#endif
bool crumb_jinja_at_word(const crumb_jinja_parser *p, const char *word);
bool crumb_jinja_accept_word(crumb_jinja_parser *p, const char *word);
bool crumb_jinja_accept_op(crumb_jinja_parser *p, uint16_t op);
crumb_status crumb_jinja_expect_op(crumb_jinja_parser *p, uint16_t op);
crumb_status crumb_jinja_expect_name(crumb_jinja_parser *p, crumb_jinja_text *out);
crumb_status crumb_jinja_parse_expression(crumb_jinja_parser *p, crumb_jinja_node **out);
crumb_status crumb_jinja_parse_condition(crumb_jinja_parser *p, crumb_jinja_node **out); /* without `a if b` */
/* a, or a tuple: a, b, c without parentheses */
crumb_status crumb_jinja_parse_tuple(crumb_jinja_parser *p, crumb_jinja_node **out);
/* Filters behind `input` (NULL: a filter block's body): | name(arguments) ...; `first`: the first has no bar. */
crumb_status crumb_jinja_parse_filters(crumb_jinja_parser *p, bool first, crumb_jinja_node *input,
                                       crumb_jinja_node **out);

/* Rows of the tables in filters.c and tests.c; -1: none of that name. */
int crumb_jinja_filter_find(crumb_jinja_text name);
int crumb_jinja_test_find(crumb_jinja_text name);

#endif
