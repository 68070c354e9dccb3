/* A measurement as a JSON object: what `crumb tune export` prints, and what import reads from anywhere. */
#include "host/kernel/tuning.h"

#include <cjson/cJSON.h>

#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef enum field_kind { FIELD_TEXT, FIELD_COUNT, FIELD_SIZE, FIELD_REAL } field_kind; /* counts may be 0 */

typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset, size;
} field;

#define FIELD(name, kind, member)                                                                                      \
    {name, kind, offsetof(crumb_tuning_record, member), sizeof(((crumb_tuning_record *)0)->member)}

static const field fields[] = {
    FIELD("device", FIELD_TEXT, key.device), FIELD("target", FIELD_TEXT, key.target),
    FIELD("source", FIELD_TEXT, key.source), FIELD("weights", FIELD_TEXT, key.weights),
    FIELD("m", FIELD_SIZE, key.m),           FIELD("k", FIELD_SIZE, key.k),
    FIELD("n", FIELD_SIZE, key.n),           FIELD("group", FIELD_COUNT, key.group),
    FIELD("act", FIELD_COUNT, key.act),      FIELD("threads", FIELD_COUNT, key.n_threads),
    FIELD("kernel", FIELD_TEXT, kernel),     FIELD("knobs", FIELD_TEXT, knobs),
    FIELD("ratio", FIELD_REAL, ratio),       FIELD("ns", FIELD_REAL, ns),
    FIELD("rounds", FIELD_COUNT, rounds),
};

static bool take_text(const cJSON *item, char *out, size_t size) {
    const char *text = cJSON_GetStringValue(item);
    return text && strlen(text) < size && snprintf(out, size, "%s", text) >= 0;
}

static bool take_number(const cJSON *item, field_kind kind, void *out) {
    if (!cJSON_IsNumber(item)) return false;
    const double value = item->valuedouble;
    if (kind == FIELD_REAL) {
        if (!(value > 0) || value > 1e300) return false;
        memcpy(out, &value, sizeof value);
        return true;
    }
    if (!(value >= (kind == FIELD_SIZE)) || value > UINT32_MAX || value != (double)(uint32_t)value) return false;
    const uint32_t whole = (uint32_t)value;
    memcpy(out, &whole, sizeof whole);
    return true;
}

crumb_status crumb_tuning_parse(const char *text, crumb_tuning_record *out, crumb_error *err) {
    *out = (crumb_tuning_record){0};
    cJSON *object = cJSON_Parse(text);
    if (!cJSON_IsObject(object)) {
        cJSON_Delete(object);
        return crumb_fail(err, CRUMB_ERR_FORMAT, "not a line of 'crumb tune export'");
    }
    crumb_status status = CRUMB_OK;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && status == CRUMB_OK; i++) {
        const field *f = &fields[i];
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, f->name);
        void *to = (char *)out + f->offset;
        if (!(f->kind == FIELD_TEXT ? take_text(item, to, f->size) : take_number(item, f->kind, to)))
            status = crumb_fail(err, CRUMB_ERR_FORMAT, "not a line of 'crumb tune export': its '%s' is %s", f->name,
                                item ? "out of range" : "missing");
    }
    cJSON_Delete(object);
    if (status == CRUMB_OK && out->key.act > CRUMB_ACT_GROUP)
        status = crumb_fail(err, CRUMB_ERR_FORMAT, "not a line of 'crumb tune export': its 'act' is out of range");
    return status;
}
