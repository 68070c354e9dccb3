#include "scheduler/history.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SCHEMA_VERSION = 1, ID_BYTES = 20, MAX_SESSIONS = 1000000 };

static const double least = 0.25, most = 4;
static const char *const kind_names[CRUMB_HISTORY_KINDS] = {"prefill", "decode", "together"};

/* ---- learning ------------------------------------------------------------------------------------------------ */

static double middle_of_three(const double v[CRUMB_HISTORY_SESSIONS]) {
    const double a = v[0] > 0 ? v[0] : 1, b = v[1] > 0 ? v[1] : 1, c = v[2] > 0 ? v[2] : 1;
    return fmax(fmin(a, b), fmin(fmax(a, b), c));
}

void crumb_history_note(crumb_history *h, size_t device, int kind, double ratio) {
    crumb_history_entry *e = &h->entry[device][kind];
    if (!(ratio > 0) || !isfinite(ratio)) return;
    e->last[e->n % CRUMB_HISTORY_SESSIONS] = fmin(fmax(ratio, least), most);
    if (e->n < MAX_SESSIONS) e->n++;
    crumb_correction c = {0};
    c.factor[0][0][CRUMB_SPAN_LAYERS] = e->factor > 0 ? e->factor : 1;
    crumb_correction_update(&c, 0, CRUMB_PHASE_PREFILL, CRUMB_SPAN_LAYERS, 1, middle_of_three(e->last));
    e->factor = c.factor[0][0][CRUMB_SPAN_LAYERS];
}

/* Layers and head alike: they are measured together wherever one device has them all. */
void crumb_history_correct(const crumb_history *h, crumb_correction *out) {
    *out = (crumb_correction){0};
    for (size_t d = 0; d < CRUMB_PROFILE_MAX_DEVICES; d++) {
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
            for (int kind = 0; kind < CRUMB_SPAN_COUNT; kind++) out->factor[d][phase][kind] = h->entry[d][phase].factor;
        out->together[d] = h->entry[d][CRUMB_HISTORY_TOGETHER].factor;
    }
}

/* ---- the text ------------------------------------------------------------------------------------------------ */

static crumb_status refuse(crumb_error *err, const char *what) {
    return crumb_fail(err, CRUMB_ERR_FORMAT, "corrections of a profile: %s", what);
}

static bool get_factor(const cJSON *item, double *out) {
    *out = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    return *out >= least && *out <= most;
}

static crumb_status read_entry(const cJSON *item, crumb_history_entry *e, crumb_error *err) {
    const cJSON *last = cJSON_GetObjectItemCaseSensitive(item, "last"),
                *n = cJSON_GetObjectItemCaseSensitive(item, "sessions");
    if (!get_factor(cJSON_GetObjectItemCaseSensitive(item, "factor"), &e->factor))
        return refuse(err, "'factor' is missing or not in 0.25..4");
    if (!cJSON_IsNumber(n) || !(n->valuedouble >= 1 && n->valuedouble <= MAX_SESSIONS))
        return refuse(err, "'sessions' is missing or out of range");
    e->n = (uint32_t)n->valuedouble;
    const int n_last = e->n < CRUMB_HISTORY_SESSIONS ? (int)e->n : CRUMB_HISTORY_SESSIONS;
    if (!cJSON_IsArray(last) || cJSON_GetArraySize(last) != n_last)
        return refuse(err, "'last' is not a list of as many sessions as there were, or 3");
    for (int i = 0; i < n_last; i++)
        if (!get_factor(cJSON_GetArrayItem(last, i), &e->last[i])) return refuse(err, "'last' is not within 0.25..4");
    return CRUMB_OK;
}

static crumb_status read_devices(const cJSON *devices, const crumb_profile *profile, crumb_history *out,
                                 crumb_error *err) {
    for (size_t d = 0; d < profile->n_devices; d++) {
        const cJSON *device = cJSON_GetObjectItemCaseSensitive(devices, profile->device[d].name);
        for (int kind = 0; kind < CRUMB_HISTORY_KINDS; kind++) {
            const cJSON *item = cJSON_GetObjectItemCaseSensitive(device, kind_names[kind]);
            crumb_history_entry e = {.n = 0};
            if (!item) continue;
            CRUMB_TRY(read_entry(item, &e, err));
            out->entry[d][kind] = e;
        }
    }
    return CRUMB_OK;
}

crumb_status crumb_history_parse(const char *text, size_t n_bytes, const crumb_profile *profile, uint64_t id,
                                 crumb_history *out, crumb_error *err) {
    char wanted[ID_BYTES];
    *out = (crumb_history){0};
    if (n_bytes > CRUMB_HISTORY_MAX_BYTES) return refuse(err, "the text is too long");
    cJSON *root = cJSON_ParseWithLength(text, n_bytes);
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(root, "schema_version");
    const char *of = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "profile"));
    crumb_status status = CRUMB_OK;
    snprintf(wanted, sizeof wanted, "%016llx", (unsigned long long)id);
    if (!root)
        status = refuse(err, "the text is not JSON");
    else if (!cJSON_IsNumber(version) || version->valuedouble != SCHEMA_VERSION || !of)
        status = refuse(err, "the text is of another version");
    else if (strcmp(of, wanted) == 0)
        status = read_devices(cJSON_GetObjectItemCaseSensitive(root, "devices"), profile, out, err);
    cJSON_Delete(root);
    if (status != CRUMB_OK) *out = (crumb_history){0};
    return status;
}

static void add_entry(cJSON *device, const char *name, const crumb_history_entry *e) {
    cJSON *item = cJSON_AddObjectToObject(device, name);
    cJSON_AddNumberToObject(item, "factor", e->factor);
    cJSON_AddNumberToObject(item, "sessions", e->n);
    cJSON *last = cJSON_AddArrayToObject(item, "last");
    for (uint32_t i = 0; i < CRUMB_HISTORY_SESSIONS && i < e->n; i++)
        cJSON_AddItemToArray(last, cJSON_CreateNumber(e->last[i]));
}

char *crumb_history_print(const crumb_history *h, const crumb_profile *profile, uint64_t id) {
    char text[ID_BYTES];
    cJSON *root = cJSON_CreateObject();
    snprintf(text, sizeof text, "%016llx", (unsigned long long)id);
    cJSON_AddNumberToObject(root, "schema_version", SCHEMA_VERSION);
    cJSON_AddStringToObject(root, "profile", text);
    cJSON *devices = cJSON_AddObjectToObject(root, "devices");
    for (size_t d = 0; d < profile->n_devices; d++) {
        cJSON *device = cJSON_AddObjectToObject(devices, profile->device[d].name);
        for (int kind = 0; kind < CRUMB_HISTORY_KINDS; kind++)
            if (h->entry[d][kind].n) add_entry(device, kind_names[kind], &h->entry[d][kind]);
    }
    char *out = cJSON_Print(root);
    cJSON_Delete(root);
    return out;
}
