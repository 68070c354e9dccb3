/* Values of templates: Python's, as far as templates can tell. Immutable but for namespaces; they live in an arena.
 *
 * Texts are UTF-8 and indexed by character, as in Python; bytes that are no UTF-8 count as one character each. Every
 * byte of a text knows whether it came from the template or from its input (messages, tools), so that what a user
 * writes cannot turn into a control token: see crumb_jinja_text.
 */
#ifndef CRUMB_JINJA_VALUE_H
#define CRUMB_JINJA_VALUE_H

#include "host/base/arena.h"

/* What all of reading and running a template needs: where memory comes from, where failures go, and its bounds. */
typedef struct crumb_jinja_state {
    crumb_arena *arena;
    crumb_error *err;
    uint32_t line; /* of the template, for messages; 0: none */
    uint32_t depth, max_depth;
    uint64_t steps_left;
    int64_t now; /* seconds since 1970, for strftime_now */
} crumb_jinja_state;

/* "line N: ..." */
crumb_status crumb_jinja_fail(crumb_jinja_state *s, crumb_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__ /* as in host/base/error.h */
#define crumb_jinja_fail(s, status, ...) ((crumb_jinja_fail)(s, status, __VA_ARGS__), (status))
#endif
crumb_status crumb_jinja_alloc(crumb_jinja_state *s, uint64_t n, uint64_t size,
                               void *out); /* out: a pointer's address */
/* Work that is in proportion to n: the step that is too many fails. */
crumb_status crumb_jinja_spend(crumb_jinja_state *s, uint64_t n);
/* Around what may nest; enter fails when it is too deep. */
crumb_status crumb_jinja_enter(crumb_jinja_state *s);
static inline void crumb_jinja_leave(crumb_jinja_state *s) {
    s->depth--;
}

typedef struct crumb_jinja_text {
    const char *bytes;
    const char *from_input; /* [n_bytes] 1: came from the input; NULL: all from the template */
    size_t n_bytes;
} crumb_jinja_text;

typedef enum crumb_jinja_kind {
    CRUMB_JINJA_UNDEFINED, /* text: its name, for messages */
    CRUMB_JINJA_NONE,
    CRUMB_JINJA_BOOL,
    CRUMB_JINJA_INTEGER,
    CRUMB_JINJA_REAL,
    CRUMB_JINJA_STRING,
    CRUMB_JINJA_LIST,
    CRUMB_JINJA_DICT,
    CRUMB_JINJA_NAMESPACE, /* a dict whose members can be set */
    CRUMB_JINJA_LOOP,
    CRUMB_JINJA_CALLABLE,
} crumb_jinja_kind;

typedef struct crumb_jinja_value crumb_jinja_value;
typedef struct crumb_jinja_list {
    crumb_jinja_value *items;
    size_t n;
    bool is_tuple;
} crumb_jinja_list;

typedef struct crumb_jinja_entry crumb_jinja_entry;
typedef struct crumb_jinja_dict {
    crumb_jinja_entry *entries; /* in the order of insertion */
    size_t n, capacity;
} crumb_jinja_dict;

struct crumb_jinja_loop;     /* evaluate.h */
struct crumb_jinja_callable; /* evaluate.h */

struct crumb_jinja_value {
    crumb_jinja_kind kind;
    bool is_markup; /* a string behind the filter `safe`, which Python would escape others for */
    union {
        bool truth;
        int64_t integer;
        double real;
        crumb_jinja_text text;
        const crumb_jinja_list *list;
        crumb_jinja_dict *dict; /* written to only while it is made, and in namespaces */
        struct crumb_jinja_loop *loop;
        const struct crumb_jinja_callable *callable;
    } as;
};
struct crumb_jinja_entry {
    crumb_jinja_value key, value;
};

/* ---- making (value.c) -------------------------------------------------------------------------------------- */

static inline crumb_jinja_value crumb_jinja_none(void) {
    return (crumb_jinja_value){.kind = CRUMB_JINJA_NONE};
}
static inline crumb_jinja_value crumb_jinja_bool(bool b) {
    return (crumb_jinja_value){.kind = CRUMB_JINJA_BOOL, .as.truth = b};
}
static inline crumb_jinja_value crumb_jinja_integer(int64_t i) {
    return (crumb_jinja_value){.kind = CRUMB_JINJA_INTEGER, .as.integer = i};
}
static inline crumb_jinja_value crumb_jinja_real(double d) {
    return (crumb_jinja_value){.kind = CRUMB_JINJA_REAL, .as.real = d};
}
static inline crumb_jinja_value crumb_jinja_string(crumb_jinja_text t) {
    return (crumb_jinja_value){.kind = CRUMB_JINJA_STRING, .as.text = t};
}
crumb_jinja_value crumb_jinja_literal(const char *text);        /* a string of the template's own; not copied */
crumb_jinja_value crumb_jinja_undefined(crumb_jinja_text name); /* name: not copied */
/* A copy that counts as input. */
crumb_status crumb_jinja_input(crumb_jinja_state *s, const char *bytes, size_t n_bytes, crumb_jinja_value *out);
/* n items, undefined until the caller sets them through *items. */
crumb_status crumb_jinja_make_list(crumb_jinja_state *s, size_t n, bool is_tuple, crumb_jinja_value **items,
                                   crumb_jinja_value *out);
crumb_status crumb_jinja_make_dict(crumb_jinja_state *s, crumb_jinja_value *out);
/* Fails for what Python cannot hash, lists and dicts. */
crumb_status crumb_jinja_check_key(crumb_jinja_state *s, const crumb_jinja_value *key);
/* Adds, or replaces what has an equal key. */
crumb_status crumb_jinja_dict_set(crumb_jinja_state *s, crumb_jinja_dict *d, crumb_jinja_value key,
                                  crumb_jinja_value value);
crumb_status crumb_jinja_dict_set_name(crumb_jinja_state *s, crumb_jinja_dict *d, const char *name,
                                       crumb_jinja_value value); /* name: not copied */
crumb_status crumb_jinja_dict_find(crumb_jinja_state *s, const crumb_jinja_dict *d, const crumb_jinja_value *key,
                                   const crumb_jinja_value **out); /* NULL: there is none */

/* ---- asking (value.c) -------------------------------------------------------------------------------------- */

bool crumb_jinja_truth(const crumb_jinja_value *v);
const char *crumb_jinja_type_name(const crumb_jinja_value *v); /* Python's: "str" */
static inline bool crumb_jinja_is_number(const crumb_jinja_value *v) {
    return v->kind == CRUMB_JINJA_BOOL || v->kind == CRUMB_JINJA_INTEGER || v->kind == CRUMB_JINJA_REAL;
}
/* BOOL and INTEGER; false for others. */
bool crumb_jinja_get_integer(const crumb_jinja_value *v, int64_t *out);
double crumb_jinja_get_real(const crumb_jinja_value *v); /* of a number */
crumb_status crumb_jinja_equal(crumb_jinja_state *s, const crumb_jinja_value *a, const crumb_jinja_value *b, bool *out);
/* *out < 0, 0, > 0; fails for what Python cannot order. */
crumb_status crumb_jinja_compare(crumb_jinja_state *s, const crumb_jinja_value *a, const crumb_jinja_value *b,
                                 int *out);
bool crumb_jinja_text_is(crumb_jinja_text t, const char *word);
bool crumb_jinja_text_equal(crumb_jinja_text a, crumb_jinja_text b);

/* ---- texts (text.c) ---------------------------------------------------------------------------------------- */

/* Characters: how many there are, where the one at an index begins (n_bytes behind the last), and how long one is. */
size_t crumb_jinja_text_length(crumb_jinja_text t);
size_t crumb_jinja_text_offset(crumb_jinja_text t, size_t index);
size_t crumb_jinja_character_bytes(crumb_jinja_text t, size_t offset);
int32_t crumb_jinja_character(crumb_jinja_text t, size_t offset); /* its code point; -1: bytes that are none */
crumb_jinja_text crumb_jinja_text_part(crumb_jinja_text t, size_t begin, size_t end); /* bytes */
/* Where `what` is in t, from byte `from` on; SIZE_MAX: nowhere. */
size_t crumb_jinja_text_find(crumb_jinja_text t, crumb_jinja_text what, size_t from);
bool crumb_jinja_is_space(int32_t character); /* as str.isspace() */
/* Without the characters of `set` (NULL: white space) at the sides asked for. */
crumb_jinja_text crumb_jinja_text_strip(crumb_jinja_text t, const crumb_jinja_text *set, bool left, bool right);

/* Writes a text piece by piece. Failures are remembered, and told by finish. Starts as {.state = s}. */
typedef struct crumb_jinja_writer {
    crumb_jinja_state *state;
    char *bytes, *from_input;
    size_t n_bytes, capacity;
    bool failed;
} crumb_jinja_writer;
void crumb_jinja_write(crumb_jinja_writer *w, crumb_jinja_text t);
/* Makes room for so many bytes at once, where it is known how many will come. */
void crumb_jinja_expect(crumb_jinja_writer *w, size_t n_bytes);
void crumb_jinja_write_bytes(crumb_jinja_writer *w, const char *bytes, size_t n_bytes, bool from_input);
void crumb_jinja_write_literal(crumb_jinja_writer *w, const char *text);
void crumb_jinja_write_character(crumb_jinja_writer *w, int32_t character, bool from_input);
crumb_status crumb_jinja_finish_text(const crumb_jinja_writer *w, crumb_jinja_text *out);
crumb_status crumb_jinja_finish(const crumb_jinja_writer *w, crumb_jinja_value *out);

/* str(), and repr() as it shows in lists; json.dumps(); json.loads(). */
crumb_status crumb_jinja_write_str(crumb_jinja_writer *w, const crumb_jinja_value *v);
crumb_status crumb_jinja_write_repr(crumb_jinja_writer *w, const crumb_jinja_value *v);
crumb_status crumb_jinja_to_text(crumb_jinja_state *s, const crumb_jinja_value *v, crumb_jinja_text *out);
void crumb_jinja_format_real(double d, char out[32]); /* as repr(float) */

typedef struct crumb_jinja_json_style {
    int64_t indent; /* -1: all in one line */
    crumb_jinja_text item_separator, key_separator;
    bool ensure_ascii, sort_keys;
} crumb_jinja_json_style;
crumb_status crumb_jinja_write_json(crumb_jinja_writer *w, const crumb_jinja_value *v,
                                    const crumb_jinja_json_style *style);
/* All strings count as input. Fails with FORMAT, naming the byte. */
crumb_status crumb_jinja_read_json(crumb_jinja_state *s, const char *json, size_t n_bytes, crumb_jinja_value *out);

#endif
