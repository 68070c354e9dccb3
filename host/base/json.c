#include "host/base/json.h"

#include "host/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- U+0000 in strings, at which cJSON's end ------------------------------------------------------------------ */

/* How many strings, names and values, stand in front of the first one that U+0000 is in, as an escape or as it is;
 * SIZE_MAX: it is in none. The text is one that cJSON has parsed. */
static size_t find_nul(const char *text, size_t n_bytes) {
    size_t n_before = 0;
    bool inside = false;
    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] == '"') {
            n_before += inside;
            inside = !inside;
        } else if (inside && text[i] == '\\') {
            if (n_bytes - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0) return n_before;
            i++;
        } else if (inside && text[i] == 0) {
            return n_before;
        }
    }
    return SIZE_MAX;
}

typedef struct place {
    size_t n_before; /* strings in front of the one that is looked for */
    char path[160];  /* "model.vocab" and "added_tokens[3].content" */
} place;

/* Goes through the strings of v's members in the order of the text; whether the one that is looked for was among them,
 * whose path is then the place's. As deep as cJSON parses, which is 1000. */
static bool find_string(const cJSON *v, place *p) {
    const size_t n = strlen(p->path), room = sizeof p->path - n;
    const cJSON *member;
    size_t index = 0;
    cJSON_ArrayForEach(member, v) {
        if (cJSON_IsArray(v))
            snprintf(p->path + n, room, "[%zu]", index++);
        else
            snprintf(p->path + n, room, "%s%s", n ? "." : "", member->string);
        if (cJSON_IsObject(v) && p->n_before-- == 0) return true;
        if (cJSON_IsString(member) && p->n_before-- == 0) return true;
        if (find_string(member, p)) return true;
    }
    p->path[n] = 0;
    return false;
}

static crumb_status check_strings(const char *text, size_t n_bytes, const cJSON *root, crumb_error *err) {
    place p = {.n_before = find_nul(text, n_bytes)};
    if (p.n_before == SIZE_MAX || !find_string(root, &p)) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s': a byte 0 in its name or text, which would end there", p.path);
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

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

/* ---- a document ------------------------------------------------------------------------------------------------ */

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
    else if ((status = check_strings(text, n_bytes, *out, err)) == CRUMB_OK)
        status = check_members(*out, err);
    if (status == CRUMB_OK) return CRUMB_OK;
    cJSON_Delete(*out);
    *out = NULL;
    return status;
}
