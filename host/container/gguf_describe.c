#include "host/container/gguf_describe.h"

#include "host/container/gguf_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *crumb_gguf_value_type_name(crumb_gguf_value_type type) {
    static const char *const names[CRUMB_GGUF_VALUE_TYPE_COUNT] = {
        "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64",
    };
    return names[type];
}

const char *crumb_gguf_tensor_type_name(const crumb_gguf_tensor *t, char buffer[24]) {
    const char *name = t->supported ? crumb_type_get_info(t->type)->name : crumb_type_gguf_name(t->type_id);
    if (name) return name;
    snprintf(buffer, 24, "type %u", t->type_id);
    return buffer;
}

crumb_gguf_value crumb_gguf_array_number(const crumb_gguf_value *array, uint64_t i) {
    crumb_gguf_value element = {.key = array->key, .type = array->array.type};
    gguf_load_number(array->array.data + i * gguf_value_bytes(element.type), &element);
    return element;
}

/* A text being written: what does not fit is counted, not kept. */
typedef struct text {
    char *out;
    size_t size, used;
} text;

__attribute__((format(printf, 2, 3))) static void add(text *t, const char *format, ...) {
    va_list args;
    size_t room = t->used < t->size ? t->size - t->used : 0;
    va_start(args, format);
    int n = vsnprintf(room ? t->out + t->used : NULL, room, format, args);
    va_end(args);
    if (n > 0) t->used += (size_t)n;
}

/* Bytes of the UTF-8 character at s, or 0 where there is none that is well formed. */
static size_t utf8_length(const uint8_t *s, size_t n) {
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf8 ? 4 : 0;
    if (length <= 1 || length > n) return length <= 1 ? length : 0;
    uint32_t code = s[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    bool surrogate = code >= 0xd800 && code < 0xe000;
    return code >= smallest[length] && code <= 0x10ffff && !surrogate ? length : 0;
}

static void add_string(text *t, crumb_bytes string, size_t max) {
    const uint8_t *s = (const uint8_t *)string.data;
    size_t at = 0;
    add(t, "\"");
    while (at < string.size && at < max) {
        size_t n = utf8_length(s + at, string.size - at);
        bool c1 = n == 2 && s[at] == 0xc2 && s[at + 1] < 0xa0; /* control characters of ISO 6429 */
        if (n == 0 || c1 || s[at] < 0x20 || s[at] == 0x7f) {
            for (size_t end = at + (n ? n : 1); at < end; at++) {
                if (s[at] == '\n')
                    add(t, "\\n");
                else if (s[at] == '\t')
                    add(t, "\\t");
                else
                    add(t, "\\x%02x", s[at]);
            }
            continue;
        }
        if (s[at] == '"' || s[at] == '\\') add(t, "\\");
        add(t, "%.*s", (int)n, string.data + at);
        at += n;
    }
    add(t, at < string.size ? "\"..." : "\"");
}

/* The fewest digits that read back as the same number. */
static void add_float(text *t, double f, bool is_f32) {
    char digits[40];
    for (int precision = is_f32 ? 6 : 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, f);
        if (is_f32 ? strtof(digits, NULL) == (float)f : strtod(digits, NULL) == f) break;
    }
    add(t, "%s", digits);
}

static void add_value(text *t, const crumb_gguf_value *v, size_t max_string);

static void add_array(text *t, const crumb_gguf_value *v, size_t max_string, uint64_t max_items) {
    const uint8_t *cursor = v->array.data;
    add(t, "[%llu] = {", (unsigned long long)v->array.n);
    for (uint64_t i = 0; i < v->array.n && i < max_items; i++) {
        crumb_gguf_value element = {.type = CRUMB_GGUF_STRING};
        if (v->array.type == CRUMB_GGUF_STRING)
            element.string = crumb_gguf_next_string(&cursor);
        else
            element = crumb_gguf_array_number(v, i);
        if (i > 0) add(t, ", ");
        add_value(t, &element, max_string);
    }
    if (v->array.n > max_items) add(t, max_items ? ", ..." : "...");
    add(t, "}");
}

static void add_value(text *t, const crumb_gguf_value *v, size_t max_string) {
    switch (v->type) {
    case CRUMB_GGUF_I8:
    case CRUMB_GGUF_I16:
    case CRUMB_GGUF_I32:
    case CRUMB_GGUF_I64: add(t, "%lld", (long long)v->i); break;
    case CRUMB_GGUF_F32:
    case CRUMB_GGUF_F64: add_float(t, v->f, v->type == CRUMB_GGUF_F32); break;
    case CRUMB_GGUF_BOOL: add(t, "%s", v->u ? "true" : "false"); break;
    case CRUMB_GGUF_STRING: add_string(t, v->string, max_string); break;
    default: add(t, "%llu", (unsigned long long)v->u); break;
    }
}

size_t crumb_gguf_value_text(const crumb_gguf_value *v, size_t max_string, uint64_t max_items, char *out, size_t size) {
    text t = {out, size, 0};
    if (size > 0) out[0] = 0;
    if (v->type == CRUMB_GGUF_ARRAY)
        add_array(&t, v, max_string, max_items);
    else
        add_value(&t, v, max_string);
    return t.used;
}
