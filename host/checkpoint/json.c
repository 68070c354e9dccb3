#include "host/base/json.h"
#include "host/base/file.h"
#include "host/base/memory.h"
#include "host/checkpoint/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 512 << 20 };

crumb_status checkpoint_path(const char *folder, const char *name, char out[CHECKPOINT_MAX_PATH], crumb_error *err) {
    const size_t n = strlen(folder);
    const int written =
        snprintf(out, CHECKPOINT_MAX_PATH, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
    if (written > 0 && written < CHECKPOINT_MAX_PATH) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%s: the path is too long", folder);
}

typedef struct text_copy {
    crumb_file_map map;
    char *to;
} text_copy;

/* Runs inside crumb_file_guard. */
static crumb_status copy_text(void *ctx, crumb_error *err) {
    (void)err;
    const text_copy *copy = ctx;
    memcpy(copy->to, copy->map.data, copy->map.size);
    return CRUMB_OK;
}

static crumb_status read_mapped(const char *path, text_copy *copy, crumb_error *err) {
    if (copy->map.size > MAX_FILE_BYTES)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: too large for such a file", path);
    CRUMB_TRY(crumb_calloc(copy->map.size + 1, 1, "a checkpoint's file", (void **)&copy->to, err));
    return crumb_file_guard(path, copy_text, copy, err);
}

crumb_status checkpoint_read(const char *folder, const char *name, bool required, char **text, size_t *n_bytes,
                             crumb_error *err) {
    char path[CHECKPOINT_MAX_PATH];
    text_copy copy = {.to = NULL};
    *text = NULL;
    *n_bytes = 0;
    CRUMB_TRY(checkpoint_path(folder, name, path, err));
    if (!required && !crumb_file_exists(path)) return CRUMB_OK;
    CRUMB_TRY(crumb_file_map_open(path, &copy.map, err));
    const crumb_status status = read_mapped(path, &copy, err);
    *n_bytes = copy.map.size;
    crumb_file_map_close(&copy.map);
    if (status == CRUMB_OK)
        *text = copy.to;
    else
        free(copy.to);
    return status;
}

crumb_status checkpoint_read_json(const char *folder, const char *name, bool required, cJSON **out, crumb_error *err) {
    char *text;
    size_t n_bytes;
    *out = NULL;
    CRUMB_TRY(checkpoint_read(folder, name, required, &text, &n_bytes, err));
    if (!text) return CRUMB_OK;
    const crumb_status status = crumb_json_parse_object(text, n_bytes, out, err);
    free(text);
    return status == CRUMB_OK ? CRUMB_OK : crumb_fail_prefix(err, status, "%s/%s", folder, name);
}
