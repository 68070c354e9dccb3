#include "tools/crumb/json_util.h"

#include "host/base/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

cJSON *json_document(void) {
    cJSON *object = cJSON_CreateObject();
    json_add_u64(object, "schema_version", CLI_SCHEMA_VERSION);
    return object;
}

cJSON *json_text(const char *bytes, size_t n_bytes) {
    char *clean = n_bytes < SIZE_MAX / 4 ? malloc(3 * n_bytes + 8) : NULL;
    if (!clean) return NULL;
    crumb_utf8_stream stream = {.n_pending = 0};
    size_t used = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        /* A byte that never occurs in UTF-8 stands for NUL, which a C string cannot hold. */
        char byte = '\xff';
        if (bytes[i]) byte = bytes[i];
        used += crumb_utf8_stream_push(&stream, &byte, 1, clean + used, 3 * n_bytes + 8 - used);
    }
    if (stream.n_pending) {
        memcpy(clean + used, "\xef\xbf\xbd", 3);
        used += 3;
    }
    clean[used] = 0;
    cJSON *text = cJSON_CreateString(clean);
    free(clean);
    return text;
}

cJSON *json_u64(uint64_t value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    return cJSON_CreateRaw(digits);
}

cJSON *json_i64(int64_t value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, value);
    return cJSON_CreateRaw(digits);
}

cJSON *json_real(double value, int digits) {
    char text[40];
    if (!isfinite(value)) return cJSON_CreateNull();
    snprintf(text, sizeof text, "%.*g", digits, value);
    return cJSON_CreateRaw(text);
}

void json_add_text(cJSON *object, const char *key, const char *text) {
    cJSON_AddItemToObject(object, key, text ? json_text(text, strlen(text)) : cJSON_CreateNull());
}

void json_add_u64(cJSON *object, const char *key, uint64_t value) {
    cJSON_AddItemToObject(object, key, json_u64(value));
}

void json_add_real(cJSON *object, const char *key, double value) {
    cJSON_AddItemToObject(object, key, json_real(value, 9));
}

crumb_status json_print(cJSON *object, bool one_line, const char *end, crumb_error *err) {
    char *text = object ? one_line ? cJSON_PrintUnformatted(object) : cJSON_Print(object) : NULL;
    cJSON_Delete(object);
    if (!text) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for the JSON output");
    cli_print("%s%s", text, end);
    cJSON_free(text);
    return CRUMB_OK;
}
