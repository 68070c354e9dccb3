/* Members of a JSON object, read with what they must be: whatever is wrong with one is named, and nothing else is taken
 * for it. */
#include "host/checkpoint/internal.h"

#include <math.h>
#include <string.h>

/* "rope_scaling" and "." where the object is a member itself. */
static const char *within(const checkpoint_object *o) {
    return o->json && o->json->string ? o->json->string : "";
}

static const char *dot(const checkpoint_object *o) {
    return *within(o) ? "." : "";
}

crumb_status checkpoint_refuse(const checkpoint_object *o, crumb_status status, const char *key, const char *problem) {
    return crumb_fail(o->err, status, "%s: key '%s%s%.80s': %s", o->path, within(o), dot(o), key, problem);
}

crumb_status checkpoint_damaged(const checkpoint_object *o, const char *key, const char *problem) {
    return checkpoint_refuse(o, CRUMB_ERR_FORMAT, key, problem);
}

crumb_status checkpoint_unsupported(const checkpoint_object *o, const char *key, const char *value) {
    return crumb_fail(o->err, CRUMB_ERR_UNSUPPORTED, "%s: key '%s%s%.80s': '%.60s' is something that crumb does not do",
                      o->path, within(o), dot(o), key, value);
}

const cJSON *checkpoint_get(const cJSON *object, const char *key) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(v) ? NULL : v;
}

crumb_status checkpoint_get_integer(const checkpoint_object *o, const char *key, bool required, int32_t low,
                                    int32_t high, int32_t *out) {
    const cJSON *v = checkpoint_get(o->json, key);
    if (!v) return required ? checkpoint_damaged(o, key, "missing") : CRUMB_OK;
    if (!cJSON_IsNumber(v) || v->valuedouble != floor(v->valuedouble))
        return checkpoint_damaged(o, key, "not a whole number");
    if (!(v->valuedouble >= low) || !(v->valuedouble <= high))
        return crumb_fail(o->err, CRUMB_ERR_FORMAT, "%s: key '%s%s%.80s': not between %d and %d", o->path, within(o),
                          dot(o), key, low, high);
    *out = (int32_t)v->valuedouble;
    return CRUMB_OK;
}

crumb_status checkpoint_get_count(const checkpoint_object *o, const char *key, bool required, int32_t high,
                                  uint32_t *out) {
    int32_t value = 0;
    CRUMB_TRY(checkpoint_get_integer(o, key, required, 1, high, &value));
    if (value) *out = (uint32_t)value;
    return CRUMB_OK;
}

crumb_status checkpoint_get_real(const checkpoint_object *o, const char *key, bool required, float *out) {
    const cJSON *v = checkpoint_get(o->json, key);
    if (!v) return required ? checkpoint_damaged(o, key, "missing") : CRUMB_OK;
    if (!cJSON_IsNumber(v) || !((float)v->valuedouble > 0) || !isfinite((float)v->valuedouble))
        return checkpoint_damaged(o, key, "not a positive number");
    *out = (float)v->valuedouble;
    return CRUMB_OK;
}

crumb_status checkpoint_get_flag(const checkpoint_object *o, const char *key, bool *out) {
    const cJSON *v = checkpoint_get(o->json, key);
    if (v && !cJSON_IsBool(v)) return checkpoint_damaged(o, key, "neither true nor false");
    if (v) *out = cJSON_IsTrue(v);
    return CRUMB_OK;
}

crumb_status checkpoint_get_text(const checkpoint_object *o, const char *key, const char **out) {
    const cJSON *v = checkpoint_get(o->json, key);
    if (v && !cJSON_IsString(v)) return checkpoint_damaged(o, key, "not a string");
    if (v) *out = v->valuestring;
    return CRUMB_OK;
}

crumb_status checkpoint_get_object(const checkpoint_object *o, const char *key, checkpoint_object *out) {
    const cJSON *v = checkpoint_get(o->json, key);
    if (v && !cJSON_IsObject(v)) return checkpoint_damaged(o, key, "not an object");
    *out = (checkpoint_object){.path = o->path, .json = v, .err = o->err};
    return CRUMB_OK;
}

crumb_status checkpoint_get_names(const checkpoint_object *o, const char *key, const cJSON **out) {
    const cJSON *v = checkpoint_get(o->json, key), *name;
    if (v && !cJSON_IsArray(v)) return checkpoint_damaged(o, key, "not a list");
    cJSON_ArrayForEach(name, v) {
        if (!cJSON_IsString(name) || !*name->valuestring) return checkpoint_damaged(o, key, "an entry is no name");
    }
    *out = v;
    return CRUMB_OK;
}
