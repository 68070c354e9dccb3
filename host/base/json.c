#include "host/base/json.h"

#include "host/base/memory.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static crumb_status check_names(const cJSON *object, const char **names, size_t n, crumb_error *err) {
    const cJSON *v;
    size_t i = 0;
    cJSON_ArrayForEach(v, object) names[i++] = v->string;
    qsort(names, n, sizeof *names, compare_names);
    for (i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%.80s': it is there twice", names[i]);
    return CRUMB_OK;
}

/* As deep as cJSON parses, which is 1000. */
static crumb_status check_members(const cJSON *v, crumb_error *err) {
    const cJSON *member;
    size_t n = 0;
    cJSON_ArrayForEach(member, v) {
        if (member->child) CRUMB_TRY(check_members(member, err));
        n++;
    }
    if (!cJSON_IsObject(v) || n < 2) return CRUMB_OK;
    const char **names;
    CRUMB_TRY(crumb_calloc(n, sizeof *names, "the names in a JSON object", (void **)&names, err));
    const crumb_status status = check_names(v, names, n, err);
    free(names);
    return status;
}

static bool is_blank(const char *text, const char *end) {
    while (text < end && strchr(" \t\r\n", *text) && *text) text++;
    return text == end;
}

crumb_status crumb_json_parse_object(const char *text, size_t n_bytes, cJSON **out, crumb_error *err) {
    const char *end = NULL;
    crumb_status status;
    *out = cJSON_ParseWithLengthOpts(text, n_bytes, &end, false);
    if (!cJSON_IsObject(*out))
        status = crumb_fail(err, CRUMB_ERR_FORMAT, "not a JSON object, or cut off, or too deep");
    else if (!is_blank(end, text + n_bytes))
        status = crumb_fail(err, CRUMB_ERR_FORMAT, "something stands behind the JSON object");
    else
        status = check_members(*out, err);
    if (status == CRUMB_OK) return CRUMB_OK;
    cJSON_Delete(*out);
    *out = NULL;
    return status;
}
