#include "host/container/gguf_parse.h"

#include "host/base/checked.h"

#include <string.h>

/* A position in the metadata. Every read goes through take(). */
typedef struct cursor {
    const char *path;
    uint8_t *data;
    uint64_t size, at;
    crumb_error *err;
} cursor;

/* The next n bytes, or NULL with an error; `what` says what they are, `name` in which key or tensor (may be empty). */
static uint8_t *take(cursor *c, uint64_t n, const char *what, crumb_bytes name) {
    if (n > c->size - c->at) {
        crumb_fail(c->err, CRUMB_ERR_FORMAT,
                   "%s: %s%s%.*s%s at offset %llu needs %llu bytes, but only %llu follow; the file is truncated or "
                   "damaged",
                   c->path, what, name.size ? " of '" : "", GGUF_TEXT(name), name.size ? "'" : "",
                   (unsigned long long)c->at, (unsigned long long)n, (unsigned long long)(c->size - c->at));
        return NULL;
    }
    uint8_t *p = c->data + c->at;
    c->at += n;
    return p;
}

static crumb_status take_u32(cursor *c, const char *what, crumb_bytes name, uint32_t *out) {
    const uint8_t *p = take(c, 4, what, name);
    if (!p) return CRUMB_ERR_FORMAT;
    memcpy(out, p, 4);
    return CRUMB_OK;
}

static crumb_status take_u64(cursor *c, const char *what, crumb_bytes name, uint64_t *out) {
    const uint8_t *p = take(c, 8, what, name);
    if (!p) return CRUMB_ERR_FORMAT;
    memcpy(out, p, 8);
    return CRUMB_OK;
}

static crumb_status take_string(cursor *c, const char *what, crumb_bytes name, crumb_bytes *out) {
    uint64_t n;
    CRUMB_TRY(take_u64(c, what, name, &n));
    const uint8_t *p = take(c, n, what, name);
    if (!p) return CRUMB_ERR_FORMAT;
    *out = (crumb_bytes){(const char *)p, (size_t)n};
    return CRUMB_OK;
}

/* Names are compared as C strings and printed: no NUL, no control characters. */
static crumb_status take_name(cursor *c, const char *what, crumb_bytes *out) {
    uint64_t start = c->at;
    CRUMB_TRY(take_string(c, what, (crumb_bytes){0}, out));
    bool clean = out->size > 0;
    for (size_t i = 0; i < out->size; i++) clean = clean && (uint8_t)out->data[i] >= 0x20 && out->data[i] != 0x7f;
    if (clean) return CRUMB_OK;
    return crumb_fail(c->err, CRUMB_ERR_FORMAT, "%s: the %s at offset %llu %s", c->path, what,
                      (unsigned long long)start, out->size ? "contains control characters" : "is empty");
}

size_t gguf_value_bytes(crumb_gguf_value_type type) {
    static const uint8_t n_bytes[CRUMB_GGUF_VALUE_TYPE_COUNT] = {
        [CRUMB_GGUF_U8] = 1,  [CRUMB_GGUF_I8] = 1,  [CRUMB_GGUF_U16] = 2, [CRUMB_GGUF_I16] = 2,
        [CRUMB_GGUF_U32] = 4, [CRUMB_GGUF_I32] = 4, [CRUMB_GGUF_F32] = 4, [CRUMB_GGUF_BOOL] = 1,
        [CRUMB_GGUF_U64] = 8, [CRUMB_GGUF_I64] = 8, [CRUMB_GGUF_F64] = 8,
    };
    return n_bytes[type];
}

void gguf_load_number(const uint8_t *p, crumb_gguf_value *value) {
    uint64_t bits = 0;
    float f32;
    memcpy(&bits, p, gguf_value_bytes(value->type)); /* both sides are little endian */
    switch (value->type) {
    case CRUMB_GGUF_I8: value->i = (int8_t)bits; break;
    case CRUMB_GGUF_I16: value->i = (int16_t)bits; break;
    case CRUMB_GGUF_I32: value->i = (int32_t)bits; break;
    case CRUMB_GGUF_I64: value->i = (int64_t)bits; break;
    case CRUMB_GGUF_F32:
        memcpy(&f32, p, 4);
        value->f = (double)f32;
        break;
    case CRUMB_GGUF_F64: memcpy(&value->f, p, 8); break;
    default: value->u = bits; break;
    }
}

static crumb_status check_bools(const cursor *c, crumb_bytes key, const uint8_t *p, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1)
            return crumb_fail(c->err, CRUMB_ERR_FORMAT, "%s: key '%.*s': %u is not a bool", c->path, GGUF_TEXT(key),
                              p[i]);
    return CRUMB_OK;
}

static crumb_status take_value_type(cursor *c, crumb_bytes key, crumb_gguf_value_type *out) {
    uint32_t type;
    CRUMB_TRY(take_u32(c, "the type", key, &type));
    if (type >= CRUMB_GGUF_VALUE_TYPE_COUNT)
        return crumb_fail(c->err, CRUMB_ERR_FORMAT, "%s: key '%.*s' has value type %u, which GGUF does not have",
                          c->path, GGUF_TEXT(key), type);
    *out = (crumb_gguf_value_type)type;
    return CRUMB_OK;
}

static crumb_status take_array(cursor *c, crumb_gguf_value *v) {
    uint64_t n_bytes;
    CRUMB_TRY(take_value_type(c, v->key, &v->array.type));
    CRUMB_TRY(take_u64(c, "the length", v->key, &v->array.n));
    if (v->array.type == CRUMB_GGUF_ARRAY)
        return crumb_fail(c->err, CRUMB_ERR_UNSUPPORTED, "%s: key '%.*s' is an array of arrays", c->path,
                          GGUF_TEXT(v->key));
    v->array.data = c->data + c->at;
    if (v->array.type == CRUMB_GGUF_STRING) {
        crumb_bytes string;
        for (uint64_t i = 0; i < v->array.n; i++) CRUMB_TRY(take_string(c, "a string", v->key, &string));
        return CRUMB_OK;
    }
    if (!crumb_mul_u64(v->array.n, gguf_value_bytes(v->array.type), &n_bytes)) n_bytes = UINT64_MAX;
    const uint8_t *p = take(c, n_bytes, "the array", v->key);
    if (!p) return CRUMB_ERR_FORMAT;
    return v->array.type == CRUMB_GGUF_BOOL ? check_bools(c, v->key, p, v->array.n) : CRUMB_OK;
}

static crumb_status take_value(cursor *c, crumb_gguf_value *v) {
    memset(v, 0, sizeof *v);
    CRUMB_TRY(take_name(c, "key", &v->key));
    CRUMB_TRY(take_value_type(c, v->key, &v->type));
    if (v->type == CRUMB_GGUF_STRING) return take_string(c, "the string", v->key, &v->string);
    if (v->type == CRUMB_GGUF_ARRAY) return take_array(c, v);
    const uint8_t *p = take(c, gguf_value_bytes(v->type), "the value", v->key);
    if (!p) return CRUMB_ERR_FORMAT;
    gguf_load_number(p, v);
    return v->type == CRUMB_GGUF_BOOL ? check_bools(c, v->key, p, 1) : CRUMB_OK;
}

static crumb_status take_dims(cursor *c, crumb_bytes name, crumb_gguf_tensor *t) {
    uint64_t n_weights = 1;
    CRUMB_TRY(take_u32(c, "the number of dimensions", name, &t->n_dims));
    if (t->n_dims < 1 || t->n_dims > 4)
        return crumb_fail(c->err, CRUMB_ERR_FORMAT, "%s: tensor '%.*s' has %u dimensions; 1 to 4 are possible", c->path,
                          GGUF_TEXT(name), t->n_dims);
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims) CRUMB_TRY(take_u64(c, "a dimension", name, &t->dims[i]));
        if (t->dims[i] == 0)
            return crumb_fail(c->err, CRUMB_ERR_FORMAT, "%s: tensor '%.*s': dimension %u is zero", c->path,
                              GGUF_TEXT(name), i);
        if (!crumb_mul_u64(n_weights, t->dims[i], &n_weights) || n_weights > INT64_MAX)
            return crumb_fail(c->err, CRUMB_ERR_FORMAT, "%s: tensor '%.*s': the product of its dimensions overflows",
                              c->path, GGUF_TEXT(name));
    }
    return CRUMB_OK;
}

/* The name's end; overwriting it with NUL is safe once the byte there, the first of n_dims, has been read. */
static crumb_status take_tensor(cursor *c, crumb_gguf_tensor *t, uint8_t **name_end) {
    crumb_bytes name;
    memset(t, 0, sizeof *t);
    CRUMB_TRY(take_name(c, "tensor name", &name));
    t->name = name.data;
    *name_end = c->data + c->at;
    CRUMB_TRY(take_dims(c, name, t));
    CRUMB_TRY(take_u32(c, "the type", name, &t->type_id));
    return take_u64(c, "the data offset", name, &t->offset);
}

static crumb_status check_version(const cursor *c, uint32_t version) {
    if (version == 2 || version == 3) return CRUMB_OK;
    if (version != 0 && (version & 0xffff) == 0)
        return crumb_fail(c->err, CRUMB_ERR_UNSUPPORTED,
                          "%s: a big-endian GGUF file; convert the model again for "
                          "little endian",
                          c->path);
    return crumb_fail(c->err, CRUMB_ERR_UNSUPPORTED,
                      "%s: GGUF version %u; crumb reads versions 2 and 3: convert the "
                      "model again with a current converter",
                      c->path, version);
}

static crumb_status take_header(cursor *c, gguf_header *header) {
    const crumb_bytes none = {0};
    const uint8_t *magic = take(c, 4, "the GGUF magic", none);
    if (!magic) return CRUMB_ERR_FORMAT;
    if (memcmp(magic, "GGUF", 4) != 0)
        return crumb_fail(c->err, CRUMB_ERR_FORMAT, "%s: not a GGUF file (it begins with %02x %02x %02x %02x)", c->path,
                          magic[0], magic[1], magic[2], magic[3]);
    CRUMB_TRY(take_u32(c, "the version", none, &header->version));
    CRUMB_TRY(check_version(c, header->version));
    CRUMB_TRY(take_u64(c, "the number of tensors", none, &header->n_tensors));
    CRUMB_TRY(take_u64(c, "the number of keys", none, &header->n_values));
    /* The smallest pair takes 14 bytes and the smallest tensor 33: larger counts are refused before any loop. */
    uint64_t rest = c->size - c->at;
    if (header->n_values > rest / 14 || header->n_tensors > rest / 33)
        return crumb_fail(c->err, CRUMB_ERR_FORMAT,
                          "%s: %llu keys and %llu tensors cannot lie in %llu bytes; the "
                          "file is truncated or damaged",
                          c->path, (unsigned long long)header->n_values, (unsigned long long)header->n_tensors,
                          (unsigned long long)c->size);
    return CRUMB_OK;
}

crumb_status gguf_walk(const char *path, uint8_t *data, uint64_t size, gguf_header *header, crumb_gguf_value *values,
                       crumb_gguf_tensor *tensors, crumb_error *err) {
    cursor c = {.path = path, .data = data, .size = size, .err = err};
    CRUMB_TRY(take_header(&c, header));
    for (uint64_t i = 0; i < header->n_values; i++) {
        crumb_gguf_value value;
        CRUMB_TRY(take_value(&c, values ? &values[i] : &value));
    }
    for (uint64_t i = 0; i < header->n_tensors; i++) {
        crumb_gguf_tensor tensor;
        uint8_t *name_end;
        CRUMB_TRY(take_tensor(&c, tensors ? &tensors[i] : &tensor, &name_end));
        if (tensors) *name_end = 0;
    }
    header->n_bytes = c.at;
    return CRUMB_OK;
}
