/* Texts of templates: characters, and writing them with where each byte came from. */
#include "host/jinja/value.h"

#include "host/base/checked.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- characters -------------------------------------------------------------------------------------------- */

static int32_t read_character(crumb_jinja_text t, size_t offset, size_t *n_bytes) {
    utf8proc_int32_t c;
    const size_t left = t.n_bytes - offset;
    const utf8proc_ssize_t n =
        utf8proc_iterate((const utf8proc_uint8_t *)t.bytes + offset, left < 4 ? (utf8proc_ssize_t)left : 4, &c);
    *n_bytes = n > 0 ? (size_t)n : 1;
    return n > 0 ? c : -1;
}

size_t crumb_jinja_character_bytes(crumb_jinja_text t, size_t offset) {
    size_t n = 1;
    if ((unsigned char)t.bytes[offset] >= 0x80) read_character(t, offset, &n);
    return n;
}

int32_t crumb_jinja_character(crumb_jinja_text t, size_t offset) {
    size_t n;
    return read_character(t, offset, &n);
}

size_t crumb_jinja_text_length(crumb_jinja_text t) {
    size_t n = 0;
    for (size_t at = 0; at < t.n_bytes; n++) at += crumb_jinja_character_bytes(t, at);
    return n;
}

size_t crumb_jinja_text_offset(crumb_jinja_text t, size_t index) {
    size_t at = 0;
    while (at < t.n_bytes && index-- > 0) at += crumb_jinja_character_bytes(t, at);
    return at;
}

crumb_jinja_text crumb_jinja_text_part(crumb_jinja_text t, size_t begin, size_t end) {
    return (crumb_jinja_text){
        .bytes = t.bytes + begin, .from_input = t.from_input ? t.from_input + begin : NULL, .n_bytes = end - begin};
}

size_t crumb_jinja_text_find(crumb_jinja_text t, crumb_jinja_text what, size_t from) {
    if (from > t.n_bytes || what.n_bytes > t.n_bytes - from) return SIZE_MAX;
    if (what.n_bytes == 0) return from;
    const char *found = memmem(t.bytes + from, t.n_bytes - from, what.bytes, what.n_bytes);
    return found ? (size_t)(found - t.bytes) : SIZE_MAX;
}

bool crumb_jinja_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool is_in(crumb_jinja_text t, size_t at, const crumb_jinja_text *set) {
    if (!set) return crumb_jinja_is_space(crumb_jinja_character(t, at));
    const size_t n = crumb_jinja_character_bytes(t, at);
    for (size_t i = 0; i < set->n_bytes; i += crumb_jinja_character_bytes(*set, i))
        if (crumb_jinja_character_bytes(*set, i) == n && memcmp(set->bytes + i, t.bytes + at, n) == 0) return true;
    return false;
}

/* Where the character that ends at `end` begins. */
static size_t previous(crumb_jinja_text t, size_t end) {
    for (size_t n = 2; n <= 4 && n <= end; n++)
        if (crumb_jinja_character_bytes(t, end - n) == n) return end - n;
    return end - 1;
}

crumb_jinja_text crumb_jinja_text_strip(crumb_jinja_text t, const crumb_jinja_text *set, bool left, bool right) {
    size_t begin = 0, end = t.n_bytes;
    while (left && begin < end && is_in(t, begin, set)) begin += crumb_jinja_character_bytes(t, begin);
    while (right && end > begin && is_in(t, previous(t, end), set)) end = previous(t, end);
    return crumb_jinja_text_part(t, begin, end);
}

/* ---- writing ----------------------------------------------------------------------------------------------- */

/* Where the next n_more bytes go; NULL: no room. */
static char *reserve(crumb_jinja_writer *w, size_t n_more) {
    uint64_t need;
    if (w->failed) return NULL;
    w->failed = true; /* unless all goes well */
    if (!crumb_add_u64(w->n_bytes, n_more, &need)) return NULL;
    if (need > w->capacity) {
        const uint64_t capacity = need > 2 * (uint64_t)w->capacity ? need : 2 * (uint64_t)w->capacity;
        char *bytes = crumb_arena_alloc(w->state->arena, capacity, 1);
        char *from_input = bytes && w->from_input ? crumb_arena_alloc(w->state->arena, capacity, 1) : NULL;
        if (!bytes || (w->from_input && !from_input)) return NULL;
        if (w->n_bytes) memcpy(bytes, w->bytes, w->n_bytes);
        if (w->n_bytes && from_input) memcpy(from_input, w->from_input, w->n_bytes);
        w->bytes = bytes;
        w->from_input = from_input;
        w->capacity = (size_t)capacity;
    }
    w->failed = !w->bytes;
    return w->bytes ? w->bytes + w->n_bytes : NULL;
}

/* Where the origins of the next bytes go. Most texts are the template's alone: origins are kept from the first byte of
 * the input on. */
static char *origins(crumb_jinja_writer *w) {
    if (!w->from_input) w->from_input = crumb_arena_alloc(w->state->arena, w->capacity, 1);
    w->failed = !w->from_input;
    return w->failed ? NULL : w->from_input + w->n_bytes;
}

void crumb_jinja_expect(crumb_jinja_writer *w, size_t n_bytes) {
    if (n_bytes) reserve(w, n_bytes);
}

void crumb_jinja_write(crumb_jinja_writer *w, crumb_jinja_text t) {
    char *to = t.n_bytes ? reserve(w, t.n_bytes) : NULL;
    if (!to) return;
    memcpy(to, t.bytes, t.n_bytes);
    char *origin = t.from_input ? origins(w) : NULL;
    if (origin) memcpy(origin, t.from_input, t.n_bytes);
    w->n_bytes += t.n_bytes;
}

void crumb_jinja_write_bytes(crumb_jinja_writer *w, const char *bytes, size_t n_bytes, bool from_input) {
    char *to = n_bytes ? reserve(w, n_bytes) : NULL;
    if (!to) return;
    memcpy(to, bytes, n_bytes);
    char *origin = from_input ? origins(w) : NULL;
    if (origin) memset(origin, 1, n_bytes);
    w->n_bytes += n_bytes;
}

void crumb_jinja_write_literal(crumb_jinja_writer *w, const char *text) {
    crumb_jinja_write_bytes(w, text, strlen(text), false);
}

void crumb_jinja_write_character(crumb_jinja_writer *w, int32_t character, bool from_input) {
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t n = utf8proc_encode_char(character, bytes);
    crumb_jinja_write_bytes(w, (const char *)bytes, n > 0 ? (size_t)n : 0, from_input);
}

crumb_status crumb_jinja_finish_text(const crumb_jinja_writer *w, crumb_jinja_text *out) {
    void *nothing;
    if (w->failed) return crumb_jinja_alloc(w->state, UINT64_MAX, 1, &nothing); /* says why */
    *out = (crumb_jinja_text){.bytes = w->bytes ? w->bytes : "", .from_input = w->from_input, .n_bytes = w->n_bytes};
    return CRUMB_OK;
}

crumb_status crumb_jinja_finish(const crumb_jinja_writer *w, crumb_jinja_value *out) {
    crumb_jinja_text t = {0};
    CRUMB_TRY(crumb_jinja_finish_text(w, &t));
    *out = crumb_jinja_string(t);
    return CRUMB_OK;
}

/* ---- str and repr ------------------------------------------------------------------------------------------ */

void crumb_jinja_format_real(double d, char out[32]) {
    char digits[32];
    if (isnan(d) || isinf(d)) {
        snprintf(out, 32, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
        return;
    }
    for (int n = 0; n < 17; n++) { /* the fewest digits that read back as the same number */
        snprintf(digits, sizeof digits, "%.*e", n, d);
        if (strtod(digits, NULL) == d) break;
    }
    const char *e = strchr(digits, 'e');
    const int exponent = (int)strtol(e + 1, NULL, 10),
              n_fraction = e[-1] == '.' || !strchr(digits, '.') ? 0 : (int)(e - strchr(digits, '.') - 1);
    if (exponent < -4 || exponent >= 16) {
        snprintf(out, 32, "%.*se%c%02d", (int)(e - digits), digits, exponent < 0 ? '-' : '+', abs(exponent));
    } else {
        const int decimals = n_fraction - exponent;
        snprintf(out, 32, "%.*f", decimals > 1 ? decimals : 1, d);
    }
}

static bool is_printable(int32_t c) {
    if (c == ' ') return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static void write_quoted(crumb_jinja_writer *w, crumb_jinja_text t) {
    const bool single = t.n_bytes && memchr(t.bytes, '\'', t.n_bytes),
               has_double = t.n_bytes && memchr(t.bytes, '"', t.n_bytes);
    const char quote = single && !has_double ? '"' : '\'';
    crumb_jinja_write_bytes(w, &quote, 1, false);
    for (size_t at = 0, n; at < t.n_bytes; at += n) {
        const int32_t c = read_character(t, at, &n);
        const bool from_input = t.from_input && t.from_input[at];
        char escape[16] = "";
        if (c == quote || c == '\\') {
            snprintf(escape, sizeof escape, "\\%c", (char)c);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        } else if (c >= 0 && !is_printable(c)) {
            snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
        }
        if (*escape)
            crumb_jinja_write_bytes(w, escape, strlen(escape), from_input);
        else
            crumb_jinja_write(w, crumb_jinja_text_part(t, at, at + n));
    }
    crumb_jinja_write_bytes(w, &quote, 1, false);
}

static crumb_status write_list(crumb_jinja_writer *w, const crumb_jinja_list *list) {
    crumb_jinja_write_literal(w, list->is_tuple ? "(" : "[");
    for (size_t i = 0; i < list->n; i++) {
        if (i) crumb_jinja_write_literal(w, ", ");
        CRUMB_TRY(crumb_jinja_write_repr(w, &list->items[i]));
    }
    if (list->is_tuple && list->n == 1) crumb_jinja_write_literal(w, ",");
    crumb_jinja_write_literal(w, list->is_tuple ? ")" : "]");
    return CRUMB_OK;
}

static crumb_status write_dict(crumb_jinja_writer *w, const crumb_jinja_dict *dict) {
    crumb_jinja_write_literal(w, "{");
    for (size_t i = 0; i < dict->n; i++) {
        if (i) crumb_jinja_write_literal(w, ", ");
        CRUMB_TRY(crumb_jinja_write_repr(w, &dict->entries[i].key));
        crumb_jinja_write_literal(w, ": ");
        CRUMB_TRY(crumb_jinja_write_repr(w, &dict->entries[i].value));
    }
    crumb_jinja_write_literal(w, "}");
    return CRUMB_OK;
}

static crumb_status write_compound(crumb_jinja_writer *w, const crumb_jinja_value *v) {
    CRUMB_TRY(crumb_jinja_enter(w->state));
    CRUMB_TRY(v->kind == CRUMB_JINJA_LIST ? write_list(w, v->as.list) : write_dict(w, v->as.dict));
    crumb_jinja_leave(w->state);
    return CRUMB_OK;
}

crumb_status crumb_jinja_write_repr(crumb_jinja_writer *w, const crumb_jinja_value *v) {
    char number[32];
    CRUMB_TRY(crumb_jinja_spend(w->state, 1));
    switch (v->kind) {
    case CRUMB_JINJA_UNDEFINED: crumb_jinja_write_literal(w, "Undefined"); break;
    case CRUMB_JINJA_NONE: crumb_jinja_write_literal(w, "None"); break;
    case CRUMB_JINJA_BOOL: crumb_jinja_write_literal(w, v->as.truth ? "True" : "False"); break;
    case CRUMB_JINJA_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)v->as.integer);
        crumb_jinja_write_literal(w, number);
        break;
    case CRUMB_JINJA_REAL:
        crumb_jinja_format_real(v->as.real, number);
        crumb_jinja_write_literal(w, number);
        break;
    case CRUMB_JINJA_STRING: write_quoted(w, v->as.text); break;
    case CRUMB_JINJA_LIST:
    case CRUMB_JINJA_DICT: return write_compound(w, v);
    default:
        return crumb_jinja_fail(w->state, CRUMB_ERR_UNSUPPORTED, "printing a value of type %s is not supported",
                                crumb_jinja_type_name(v));
    }
    return CRUMB_OK;
}

crumb_status crumb_jinja_write_str(crumb_jinja_writer *w, const crumb_jinja_value *v) {
    if (v->kind == CRUMB_JINJA_UNDEFINED) return CRUMB_OK;
    if (v->kind != CRUMB_JINJA_STRING) return crumb_jinja_write_repr(w, v);
    crumb_jinja_write(w, v->as.text);
    return CRUMB_OK;
}

crumb_status crumb_jinja_to_text(crumb_jinja_state *s, const crumb_jinja_value *v, crumb_jinja_text *out) {
    *out = v->as.text;
    if (v->kind == CRUMB_JINJA_STRING) return CRUMB_OK;
    crumb_jinja_writer w = {.state = s};
    CRUMB_TRY(crumb_jinja_write_str(&w, v));
    return crumb_jinja_finish_text(&w, out);
}
