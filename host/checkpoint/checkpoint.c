#include "host/checkpoint/checkpoint.h"

#include "host/base/file.h"
#include "host/checkpoint/internal.h"

#include <stdio.h>
#include <string.h>

/* One file, or an index of several. */
crumb_status checkpoint_files_open(const char *folder, crumb_safetensors **out, crumb_error *err) {
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};
    char path[CHECKPOINT_MAX_PATH];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CRUMB_TRY(checkpoint_path(folder, names[i], path, err));
        if (crumb_file_exists(path)) return crumb_safetensors_open(path, out, err);
    }
    return crumb_fail(err, CRUMB_ERR_IO,
                      "%s: no model.safetensors and no index of such files in this folder; other names and formats "
                      "(pytorch_model.bin) are not read",
                      folder);
}

/* The folder's own name stands for the model's. */
static void put_name(const char *folder, crumb_gguf_builder *keys) {
    size_t n = strlen(folder), begin;
    char name[256];
    while (n > 1 && folder[n - 1] == '/') n--;
    for (begin = n; begin > 0 && folder[begin - 1] != '/';) begin--;
    snprintf(name, sizeof name, "%.*s", (int)(n - begin < 255 ? n - begin : 255), folder + begin);
    crumb_gguf_build_string(keys, "general.name", name);
}

static crumb_status open_all(const char *folder, const cJSON *root, checkpoint_config *c, crumb_gguf_builder *keys,
                             crumb_gguf **out, crumb_error *err) {
    crumb_safetensors *files;
    crumb_gguf_source source;
    CRUMB_TRY(checkpoint_config_read(root, c, keys, err));
    put_name(folder, keys);
    CRUMB_TRY(checkpoint_vocabulary_read(folder, root, c, keys, err));
    CRUMB_TRY(checkpoint_files_open(folder, &files, err));
    CRUMB_TRY(checkpoint_tensors_open(c, files, &source, err));
    return crumb_gguf_open_source(keys, folder, &source, out, err);
}

crumb_status crumb_checkpoint_open(const char *folder, crumb_gguf **out, crumb_error *err) {
    checkpoint_config c = {.architecture = ""};
    crumb_gguf_builder keys;
    cJSON *root;
    *out = NULL;
    CRUMB_TRY(checkpoint_path(folder, "config.json", c.path, err));
    if (!crumb_file_exists(c.path))
        return crumb_fail(err, CRUMB_ERR_IO,
                          "%s: no config.json in this folder: give a GGUF file, or a folder as transformers writes it",
                          folder);
    CRUMB_TRY(checkpoint_read_json(folder, "config.json", true, &root, err));
    crumb_gguf_build_begin(&keys, err);
    const crumb_status status = open_all(folder, root, &c, &keys, out, err);
    crumb_gguf_build_free(&keys);
    cJSON_Delete(root);
    return status;
}

crumb_status crumb_checkpoint_open_any(const char *path, crumb_gguf **out, crumb_error *err) {
    return crumb_folder_exists(path) ? crumb_checkpoint_open(path, out, err) : crumb_gguf_open(path, out, err);
}
