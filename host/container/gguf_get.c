/* Typed reads of GGUF keys. */
#include "host/container/gguf_describe.h"
#include "host/container/gguf_parse.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The key's value, or NULL (with *status an error if it is required). */
static const crumb_gguf_value *find(const crumb_gguf *g, const char *key, bool required, crumb_status *status,
                                    crumb_error *err) {
    const crumb_gguf_value *v = crumb_gguf_find(g, key);
    *status = CRUMB_OK;
    if (!v && required) *status = crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s' is missing", key);
    return v;
}

static crumb_status wrong_type(const crumb_gguf_value *v, const char *key, const char *wanted, crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s' is of type %s, not %s", key, crumb_gguf_value_type_name(v->type),
                      wanted);
}

static bool is_signed(crumb_gguf_value_type type) {
    return type == CRUMB_GGUF_I8 || type == CRUMB_GGUF_I16 || type == CRUMB_GGUF_I32 || type == CRUMB_GGUF_I64;
}
static bool is_unsigned(crumb_gguf_value_type type) {
    return type == CRUMB_GGUF_U8 || type == CRUMB_GGUF_U16 || type == CRUMB_GGUF_U32 || type == CRUMB_GGUF_U64;
}

/* An integer of any width in [low, high]. */
static crumb_status get_integer(const crumb_gguf_value *v, const char *key, int64_t low, int64_t high, int64_t *out,
                                crumb_error *err) {
    if (!is_signed(v->type) && !is_unsigned(v->type)) return wrong_type(v, key, "an integer", err);
    bool too_large = is_unsigned(v->type) ? v->u > (uint64_t)high : v->i > high;
    bool too_small = is_signed(v->type) && v->i < low;
    if (too_small || too_large)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s' is out of range (%lld to %lld)", key, (long long)low,
                          (long long)high);
    *out = is_unsigned(v->type) ? (int64_t)v->u : v->i;
    return CRUMB_OK;
}

crumb_status crumb_gguf_get_u32(const crumb_gguf *g, const char *key, bool required, uint32_t *out, crumb_error *err) {
    crumb_status status;
    int64_t value;
    const crumb_gguf_value *v = find(g, key, required, &status, err);
    if (!v) return status;
    CRUMB_TRY(get_integer(v, key, 0, UINT32_MAX, &value, err));
    *out = (uint32_t)value;
    return CRUMB_OK;
}

crumb_status crumb_gguf_get_i32(const crumb_gguf *g, const char *key, bool required, int32_t *out, crumb_error *err) {
    crumb_status status;
    int64_t value;
    const crumb_gguf_value *v = find(g, key, required, &status, err);
    if (!v) return status;
    CRUMB_TRY(get_integer(v, key, INT32_MIN, INT32_MAX, &value, err));
    *out = (int32_t)value;
    return CRUMB_OK;
}

crumb_status crumb_gguf_get_f32(const crumb_gguf *g, const char *key, bool required, float *out, crumb_error *err) {
    crumb_status status;
    const crumb_gguf_value *v = find(g, key, required, &status, err);
    if (!v) return status;
    if (v->type != CRUMB_GGUF_F32 && v->type != CRUMB_GGUF_F64) return wrong_type(v, key, "a float", err);
    if (!(fabs(v->f) <= (double)FLT_MAX))
        return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s' is NaN, infinite or too large", key);
    *out = (float)v->f;
    return CRUMB_OK;
}

crumb_status crumb_gguf_get_bool(const crumb_gguf *g, const char *key, bool required, bool *out, crumb_error *err) {
    crumb_status status;
    const crumb_gguf_value *v = find(g, key, required, &status, err);
    if (!v) return status;
    if (v->type != CRUMB_GGUF_BOOL) return wrong_type(v, key, "a bool", err);
    *out = v->u != 0;
    return CRUMB_OK;
}

crumb_status crumb_gguf_get_string(const crumb_gguf *g, const char *key, bool required, crumb_bytes *out,
                                   crumb_error *err) {
    crumb_status status;
    const crumb_gguf_value *v = find(g, key, required, &status, err);
    if (!v) return status;
    if (v->type != CRUMB_GGUF_STRING) return wrong_type(v, key, "a string", err);
    *out = v->string;
    return CRUMB_OK;
}

crumb_status crumb_gguf_get_array(const crumb_gguf *g, const char *key, bool required, crumb_gguf_value_type element,
                                  const crumb_gguf_value **out, crumb_error *err) {
    crumb_status status;
    const crumb_gguf_value *v = find(g, key, required, &status, err);
    *out = NULL;
    if (!v) return status;
    if (v->type != CRUMB_GGUF_ARRAY || v->array.type != element)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s' is not an array of %s", key,
                          crumb_gguf_value_type_name(element));
    *out = v;
    return CRUMB_OK;
}

crumb_bytes crumb_gguf_next_string(const uint8_t **cursor) {
    uint64_t n;
    memcpy(&n, *cursor, 8);
    crumb_bytes string = {(const char *)*cursor + 8, (size_t)n};
    *cursor += 8 + n;
    return string;
}
