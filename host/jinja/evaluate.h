/* Running a template: evaluate.c expressions, execute.c statements, and what they call: filters, tests, methods and
 * functions. */
#ifndef CRUMB_JINJA_EVALUATE_H
#define CRUMB_JINJA_EVALUATE_H

#include "host/jinja/ast.h"

typedef struct crumb_jinja_scope {
    crumb_jinja_dict names;
    const struct crumb_jinja_scope *parent;
} crumb_jinja_scope;

typedef enum crumb_jinja_flow { CRUMB_JINJA_GO_ON, CRUMB_JINJA_BREAK, CRUMB_JINJA_CONTINUE } crumb_jinja_flow;

typedef struct crumb_jinja_run {
    crumb_jinja_state *state;
    crumb_jinja_scope *scope;
    crumb_jinja_writer *out;
    crumb_jinja_flow flow;
} crumb_jinja_run;

typedef struct crumb_jinja_loop {
    const crumb_jinja_list *items;
    size_t index; /* of the current item, from 0 */
} crumb_jinja_loop;

typedef struct crumb_jinja_arguments {
    crumb_jinja_value *positional;
    size_t n;
    crumb_jinja_entry *named; /* keys are strings */
    size_t n_named;
} crumb_jinja_arguments;

enum { CRUMB_JINJA_MAX_PARAMETERS = 6 };
/* Puts arguments into out[] in the order of `parameters`: "old new count?", where ? may be missing, which is UNDEFINED.
 * `what` names the callee in messages. */
crumb_status crumb_jinja_bind(crumb_jinja_run *r, const char *what, const char *parameters,
                              const crumb_jinja_arguments *arguments, crumb_jinja_value out[]);

/* What is called as in(arg...): a function (in is unused), or a method of in. `all` are the same arguments unbound. */
typedef crumb_status crumb_jinja_fn(crumb_jinja_run *r, const crumb_jinja_value *in, const crumb_jinja_value *arg,
                                    const crumb_jinja_arguments *all, crumb_jinja_value *out);
typedef struct crumb_jinja_callee {
    const char *name;
    crumb_jinja_fn *fn;     /* NULL: Python has it, crumb does not */
    const char *parameters; /* see crumb_jinja_bind; NULL: fn looks at `all` itself */
} crumb_jinja_callee;

typedef struct crumb_jinja_callable {
    const crumb_jinja_callee *callee; /* a function, or a method of self */
    crumb_jinja_value self;
    const crumb_jinja_node *macro; /* else: a macro, with the scope that it was defined in */
    const crumb_jinja_scope *scope;
} crumb_jinja_callable;

crumb_status crumb_jinja_call_callee(crumb_jinja_run *r, const crumb_jinja_callee *callee, const crumb_jinja_value *in,
                                     const crumb_jinja_arguments *arguments, crumb_jinja_value *out);

/* ---- evaluate.c, operators.c ------------------------------------------------------------------------------- */

crumb_status crumb_jinja_evaluate(crumb_jinja_run *r, const crumb_jinja_node *n, crumb_jinja_value *out);
/* Applies a FILTER node's chain to a value in place of its innermost input. */
crumb_status crumb_jinja_apply_filters(crumb_jinja_run *r, const crumb_jinja_node *n, const crumb_jinja_value *in,
                                       crumb_jinja_value *out);
crumb_status crumb_jinja_member(crumb_jinja_run *r, const crumb_jinja_value *of, crumb_jinja_text name,
                                crumb_jinja_value *out);
crumb_status crumb_jinja_item(crumb_jinja_run *r, const crumb_jinja_value *of, const crumb_jinja_value *key,
                              crumb_jinja_value *out);
/* part: begin, end, step; none where missing. */
crumb_status crumb_jinja_slice(crumb_jinja_run *r, const crumb_jinja_value *of, const crumb_jinja_value part[3],
                               crumb_jinja_value *out);
crumb_status crumb_jinja_binary(crumb_jinja_run *r, uint16_t op, const crumb_jinja_value *a, const crumb_jinja_value *b,
                                crumb_jinja_value *out);
/* ==, <, in and so on. */
crumb_status crumb_jinja_relation(crumb_jinja_run *r, uint16_t op, const crumb_jinja_value *a,
                                  const crumb_jinja_value *b, bool *out);
/* What a loop runs over: items, keys, characters. */
crumb_status crumb_jinja_iterate(crumb_jinja_run *r, const crumb_jinja_value *v, const crumb_jinja_list **out);

/* ---- execute.c --------------------------------------------------------------------------------------------- */

crumb_status crumb_jinja_execute(crumb_jinja_run *r, const crumb_jinja_node *first);
crumb_status crumb_jinja_call_macro(crumb_jinja_run *r, const crumb_jinja_callable *macro,
                                    const crumb_jinja_arguments *arguments, crumb_jinja_value *out);

/* ---- tables ------------------------------------------------------------------------------------------------ */

extern const crumb_jinja_callee crumb_jinja_filters[];
crumb_status crumb_jinja_test(crumb_jinja_run *r, int row, const crumb_jinja_value *v,
                              const crumb_jinja_arguments *arguments, bool *out);
const crumb_jinja_callee *crumb_jinja_find_callee(const crumb_jinja_callee *table, crumb_jinja_text name);
const crumb_jinja_callee *crumb_jinja_method_find(const crumb_jinja_value *of, crumb_jinja_text name); /* NULL: none */
const crumb_jinja_callee *crumb_jinja_function_find(crumb_jinja_text name);

/* Filters that lists have, in lists.c. */
crumb_jinja_fn crumb_jinja_do_dictsort, crumb_jinja_do_join, crumb_jinja_do_map, crumb_jinja_do_max, crumb_jinja_do_min,
    crumb_jinja_do_reject, crumb_jinja_do_rejectattr, crumb_jinja_do_reverse, crumb_jinja_do_select,
    crumb_jinja_do_selectattr, crumb_jinja_do_sort, crumb_jinja_do_sum, crumb_jinja_do_unique;
/* Both a filter and a method. */
crumb_status crumb_jinja_replace_text(crumb_jinja_run *r, crumb_jinja_text in, const crumb_jinja_value arg[3],
                                      crumb_jinja_value *out);
typedef enum crumb_jinja_case {
    CRUMB_JINJA_UPPER,
    CRUMB_JINJA_LOWER,
    CRUMB_JINJA_CAPITALIZE,
    CRUMB_JINJA_TITLE_METHOD, /* letters behind what is no letter */
    CRUMB_JINJA_TITLE_FILTER, /* what follows white space, - ( { [ < */
} crumb_jinja_case;
/* As Python does, but that a sigma at a word's end becomes the small one that stands within words, and that ten letters
 * of n with an apostrophe and of Greek with an iota below have no title case as Python's. */
crumb_status crumb_jinja_change_case(crumb_jinja_run *r, crumb_jinja_text in, crumb_jinja_case kind,
                                     crumb_jinja_value *out);
crumb_status crumb_jinja_split_lines(crumb_jinja_run *r, crumb_jinja_text in, crumb_jinja_value *out);
crumb_status crumb_jinja_to_integer(crumb_jinja_run *r, const crumb_jinja_value *v, const char *what, int64_t *out);

#endif
