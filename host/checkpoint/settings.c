/* Folders from before transformers knew of packed weights: AutoGPTQ and AutoAWQ wrote the settings into a file of their
 * own, and newer writers do so beside config.json's quantization_config. transformers reads config.json alone, these
 * libraries their own file: where the two do not say the same, either may be wrong. */
#include "host/checkpoint/internal.h"

#include <string.h>

/* The files, and what packed the weights where one does not say. */
static const struct known_file {
    const char *name, *method;
} known_files[] = {{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}};

static const char *default_method(const struct known_file *known, const cJSON *json,
                                  const struct checkpoint_packing *said) {
    if (said->method == CHECKPOINT_GPTQ) return "gptq";
    if (said->method == CHECKPOINT_AWQ) return "awq";
    return checkpoint_get(json, "w_bit") ? "awq" : known->method;
}

/* The key that has another value than an earlier file's; NULL: none. What the file does not say is not compared. */
static const char *find_difference(const cJSON *json, const struct checkpoint_packing *here,
                                   const struct checkpoint_packing *said) {
    const char *format = checkpoint_get(json, "checkpoint_format") ? "checkpoint_format" : "format";
    if (here->method != said->method) return "quant_method";
    if (here->bits != said->bits) return checkpoint_bits_key(json);
    if (here->group != said->group) return checkpoint_group_key(json);
    if (checkpoint_get(json, "desc_act") && here->act_order != said->act_order) return "desc_act";
    if (checkpoint_get(json, format) && here->zeros_less_one != said->zeros_less_one) return format;
    return NULL;
}

static crumb_status take(const checkpoint_object *file, const char *said_by, struct checkpoint_packing *packing) {
    struct checkpoint_packing here;
    const char *method = "";
    CRUMB_TRY(checkpoint_get_text(file, "quant_method", &method));
    if (strcmp(method, "gptq") != 0 && strcmp(method, "awq") != 0)
        return checkpoint_unsupported(file, "quant_method", method);
    CRUMB_TRY(checkpoint_refuse_transforms(file));
    CRUMB_TRY(checkpoint_packing_read(file, &here));
    if (packing->method == CHECKPOINT_PLAIN) return *packing = here, CRUMB_OK;
    const char *key = find_difference(file->json, &here, packing);
    if (!key) return CRUMB_OK;
    return crumb_fail(file->err, CRUMB_ERR_FORMAT,
                      "%s: key '%s': another value than %s has; which one the weights follow is not known", file->path,
                      key, said_by);
}

crumb_status checkpoint_settings_read(const char *folder, checkpoint_config *c, crumb_error *err) {
    char paths[sizeof known_files / sizeof *known_files][CHECKPOINT_MAX_PATH];
    const char *said_by = c->path;
    for (size_t i = 0; i < sizeof known_files / sizeof *known_files; i++) {
        cJSON *json;
        CRUMB_TRY(checkpoint_path(folder, known_files[i].name, paths[i], err));
        CRUMB_TRY(checkpoint_read_json(folder, known_files[i].name, false, &json, err));
        if (!json) continue;
        if (!checkpoint_get(json, "quant_method")) {
            cJSON_DeleteItemFromObjectCaseSensitive(json, "quant_method"); /* a null */
            cJSON_AddStringToObject(json, "quant_method", default_method(&known_files[i], json, &c->packing));
        }
        if (c->packing.method == CHECKPOINT_PLAIN) said_by = paths[i];
        const checkpoint_object file = {.path = paths[i], .json = json, .err = err};
        const crumb_status status = take(&file, said_by, &c->packing);
        cJSON_Delete(json);
        CRUMB_TRY(status);
    }
    return CRUMB_OK;
}
