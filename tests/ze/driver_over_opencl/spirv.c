/* What kernels a SPIR-V module has, and what their parameters are: OpenCL sets pointers and values by different
 * functions, and Level Zero does not say which is which. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

/* Of the specification, "SPIR-V", version 1.6: numbers of instructions, storage classes, decorations. */
enum {
    MAGIC = 0x07230203,
    HEADER_WORDS = 5,
    OP_ENTRY_POINT = 15,
    OP_TYPE_INT = 21,
    OP_TYPE_FLOAT = 22,
    OP_TYPE_POINTER = 32,
    OP_TYPE_FUNCTION = 33,
    OP_FUNCTION = 54,
    OP_DECORATE = 71,
    STORAGE_WORKGROUP = 4,
    STORAGE_CROSS_WORKGROUP = 5,
    LINKAGE_ATTRIBUTES = 41,
    LINKAGE_IMPORT = 1
};

typedef struct reader {
    const uint32_t *words;
    size_t n;
    uint32_t bound;  /* ids are below it */
    size_t *defined; /* where an id's type or function is; 0: nowhere */
} reader;

static uint32_t op_at(const reader *r, size_t at) {
    return r->words[at] & 0xffff;
}

/* The next instruction behind `at`, n at the end; 0: there is no whole one at `at`. */
static size_t next(const reader *r, size_t at) {
    const size_t n = r->words[at] >> 16;
    return n && n <= r->n - at ? at + n : 0;
}

/* Notes where types and functions are; false: the module is damaged. */
static bool define(reader *r) {
    for (size_t at = HEADER_WORDS, after; at < r->n; at = after) {
        after = next(r, at);
        if (!after) return false;
        const uint32_t op = op_at(r, at);
        const bool is_type =
            op == OP_TYPE_INT || op == OP_TYPE_FLOAT || op == OP_TYPE_POINTER || op == OP_TYPE_FUNCTION;
        if (!is_type && op != OP_FUNCTION) continue;
        const uint32_t id = r->words[at + (is_type ? 1 : 2)];
        if (id >= r->bound) return false;
        r->defined[id] = at;
    }
    return true;
}

static size_t definition(const reader *r, uint32_t id) {
    return id < r->bound ? r->defined[id] : 0;
}

static bool read_parameter(const reader *r, uint32_t type, parameter *out) {
    const size_t at = definition(r, type);
    *out = (parameter){.kind = PARAMETER_VALUE};
    if (!at) return false;
    const uint32_t detail = r->words[at + 2];
    if (op_at(r, at) == OP_TYPE_INT || op_at(r, at) == OP_TYPE_FLOAT) {
        out->n_bytes = detail / 8;
        return out->n_bytes && out->n_bytes <= sizeof out->value;
    }
    if (op_at(r, at) != OP_TYPE_POINTER || (detail != STORAGE_WORKGROUP && detail != STORAGE_CROSS_WORKGROUP))
        return false;
    out->kind = detail == STORAGE_WORKGROUP ? PARAMETER_LOCAL : PARAMETER_GLOBAL;
    return true;
}

/* Of the entry point at `at`. */
static bool read_kernel(const reader *r, size_t at, signature *out) {
    const char *name = (const char *)&r->words[at + 3];
    const size_t function = definition(r, r->words[at + 2]);
    const size_t type = function ? definition(r, r->words[function + 4]) : 0;
    if (!type || op_at(r, type) != OP_TYPE_FUNCTION || strnlen(name, sizeof out->name) == sizeof out->name)
        return false;
    const size_t n = next(r, type) - type - 3;
    if (n > MAX_PARAMETERS) return false;
    *out = (signature){.n = (uint32_t)n};
    memcpy(out->name, name, strlen(name));
    for (size_t i = 0; i < n; i++)
        if (!read_parameter(r, r->words[type + 3 + i], &out->parameter[i])) return false;
    return true;
}

/* Variables that stand for work-items' numbers are imported by name as well. */
static bool is_imported_function(const reader *r, size_t at) {
    static const char variable[] = "__spirv_";
    return op_at(r, at) == OP_DECORATE && r->words[at + 2] == LINKAGE_ATTRIBUTES &&
           r->words[next(r, at) - 1] == LINKAGE_IMPORT &&
           strncmp((const char *)&r->words[at + 3], variable, strlen(variable)) != 0;
}

static size_t read_kernels(reader *r, signature out[MAX_KERNELS], bool *imports) {
    size_t n = 0;
    if (!define(r)) return 0;
    for (size_t at = HEADER_WORDS; at < r->n; at = next(r, at)) {
        if (is_imported_function(r, at)) *imports = true;
        if (op_at(r, at) != OP_ENTRY_POINT) continue;
        if (n == MAX_KERNELS || !read_kernel(r, at, &out[n])) return 0;
        n++;
    }
    return n;
}

size_t spirv_read(const uint32_t *words, size_t n_words, signature out[MAX_KERNELS], bool *imports) {
    reader r = {.words = words, .n = n_words};
    *imports = false;
    if (n_words < HEADER_WORDS || words[0] != MAGIC) return 0;
    r.bound = words[3];
    r.defined = calloc(r.bound, sizeof *r.defined);
    if (!r.defined) return 0;
    const size_t n = read_kernels(&r, out, imports);
    free(r.defined);
    return n;
}
