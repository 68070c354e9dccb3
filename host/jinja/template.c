#include "host/jinja/template.h"

#include "host/base/memory.h"
#include "host/jinja/evaluate.h"

#include <stdlib.h>
#include <string.h>

struct crumb_jinja_template {
    crumb_arena arena;
    crumb_jinja_node *first;
};

enum { MAX_SOURCE_BYTES = 1 << 20, TREE_BYTES = 1 << 28 };

crumb_jinja_state crumb_jinja_state_default(crumb_arena *arena, crumb_error *err) {
    return (crumb_jinja_state){
        .arena = arena, .err = err, .max_depth = CRUMB_JINJA_DEPTH, .steps_left = CRUMB_JINJA_STEPS};
}

/* As Jinja reads a source: all line ends are \n, and the last one does not count. */
static crumb_status copy_source(crumb_jinja_state *s, const char *source, size_t n_bytes, char **out, size_t *n_out) {
    CRUMB_TRY(crumb_jinja_alloc(s, n_bytes + 1, 1, out));
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        const bool ends = source[i] == '\r';
        if (ends && i + 1 < n_bytes && source[i + 1] == '\n') continue;
        (*out)[n++] = (char)(ends ? '\n' : source[i]);
    }
    if (n && (*out)[n - 1] == '\n') n--;
    *n_out = n;
    return CRUMB_OK;
}

static crumb_status compile(crumb_jinja_template *t, const char *source, size_t n_bytes, crumb_error *err) {
    crumb_jinja_state s = crumb_jinja_state_default(&t->arena, err);
    char *copy;
    size_t n;
    if (n_bytes > MAX_SOURCE_BYTES)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "a template of %zu bytes is too long; at most %d", n_bytes,
                          MAX_SOURCE_BYTES);
    t->arena.limit_bytes = TREE_BYTES;
    CRUMB_TRY(copy_source(&s, source, n_bytes, &copy, &n));
    return crumb_jinja_parse(&s, copy, n, &t->first);
}

crumb_status crumb_jinja_compile(const char *source, size_t n_bytes, crumb_jinja_template **out, crumb_error *err) {
    crumb_jinja_template *t;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof *t, "a template", (void **)&t, err));
    const crumb_status status = compile(t, source, n_bytes, err);
    if (status == CRUMB_OK)
        *out = t;
    else
        crumb_jinja_destroy(t);
    return status;
}

void crumb_jinja_destroy(crumb_jinja_template *t) {
    if (!t) return;
    crumb_arena_free(&t->arena);
    free(t);
}

crumb_status crumb_jinja_render(const crumb_jinja_template *t, crumb_jinja_state *s, const crumb_jinja_value *variables,
                                crumb_jinja_text *out) {
    const crumb_jinja_scope context = {.names = *variables->as.dict};
    crumb_jinja_scope top = {.parent = &context};
    crumb_jinja_writer w = {.state = s};
    crumb_jinja_run r = {.state = s, .scope = &top, .out = &w};
    CRUMB_TRY(crumb_jinja_execute(&r, t->first));
    return crumb_jinja_finish_text(&w, out);
}
