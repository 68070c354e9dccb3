/* crumb inspect of safetensors files: the tensors of one file, or of all files of an index or folder. Names come from
 * the file and are escaped. */
#include "host/checkpoint/checkpoint.h"
#include "host/container/safetensors.h"
#include "tools/crumb/json_util.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool ends_with(const char *text, const char *end) {
    const size_t n_text = strlen(text), n_end = strlen(end);
    return n_text >= n_end && strcmp(text + n_text - n_end, end) == 0;
}

bool cli_find_safetensors(const char *model, char *path, size_t size) {
    struct stat info;
    if (!model || stat(model, &info) != 0) return false;
    if (!S_ISDIR(info.st_mode)) {
        const int n = snprintf(path, size, "%s", model);
        return n > 0 && (size_t)n < size &&
               (ends_with(model, ".safetensors") || ends_with(model, ".safetensors.index.json"));
    }
    return crumb_checkpoint_find_weights(model, path, size, NULL) == CRUMB_OK;
}

typedef struct dtype_total {
    uint64_t n_tensors, n_values, n_bytes;
} dtype_total;

static void add_up(const crumb_safetensors *s, dtype_total totals[CRUMB_DTYPE_COUNT]) {
    for (size_t i = 0; i < crumb_safetensors_n(s); i++) {
        const crumb_safetensor *t = crumb_safetensors_at(s, i);
        totals[t->dtype].n_tensors++;
        totals[t->dtype].n_values += t->n_values;
        totals[t->dtype].n_bytes += t->n_bytes;
    }
}

static void print_tensors(const crumb_safetensors *s) {
    for (size_t i = 0; i < crumb_safetensors_n(s); i++) {
        const crumb_safetensor *t = crumb_safetensors_at(s, i);
        char shape[8 * 24] = "";
        size_t length = 0;
        for (uint32_t d = 0; d < t->n_dims; d++)
            length += (size_t)snprintf(shape + length, sizeof shape - length, "%s%" PRIu64, d ? " x " : "", t->dims[d]);
        char *name = cli_printable(t->name, strlen(t->name));
        cli_print("%-56s %-8s %20s %14" PRIu64 "\n", name ? name : "", crumb_dtype_name(t->dtype), shape, t->n_bytes);
        free(name);
    }
    dtype_total totals[CRUMB_DTYPE_COUNT] = {{0}};
    add_up(s, totals);
    cli_print("\n");
    for (int i = 0; i < CRUMB_DTYPE_COUNT; i++)
        if (totals[i].n_tensors)
            cli_print("%-8s %6" PRIu64 " tensors %16" PRIu64 " values %16" PRIu64 " bytes\n",
                      crumb_dtype_name((crumb_dtype)i), totals[i].n_tensors, totals[i].n_values, totals[i].n_bytes);
}

static crumb_status print_json(const crumb_safetensors *s, const char *path, crumb_error *err) {
    cJSON *document = json_document(), *tensors;
    json_add_text(document, "file", path);
    tensors = cJSON_AddArrayToObject(document, "tensors");
    for (size_t i = 0; i < crumb_safetensors_n(s); i++) {
        const crumb_safetensor *t = crumb_safetensors_at(s, i);
        cJSON *entry = cJSON_CreateObject(), *shape;
        json_add_text(entry, "name", t->name);
        json_add_text(entry, "type", crumb_dtype_name(t->dtype));
        shape = cJSON_AddArrayToObject(entry, "shape");
        for (uint32_t d = 0; d < t->n_dims; d++) cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->dims[d]));
        json_add_text(entry, "file", crumb_safetensors_path(s, t));
        json_add_u64(entry, "offset", t->offset);
        json_add_u64(entry, "n_bytes", t->n_bytes);
        cJSON_AddItemToArray(tensors, entry);
    }
    return json_print(document, false, "\n", err);
}

crumb_status cli_inspect_safetensors(const char *path, bool json, crumb_error *err) {
    crumb_safetensors *s;
    CRUMB_TRY(crumb_safetensors_open(path, &s, err));
    crumb_status status = CRUMB_OK;
    if (json)
        status = print_json(s, path, err);
    else
        print_tensors(s);
    crumb_safetensors_close(s);
    return status;
}
