#include "host/checkpoint/checkpoint.h"

#include "host/base/file.h"
#include "host/checkpoint/internal.h"

#include <stdio.h>
#include <string.h>

enum { MAX_LISTED = 8 };

/* The only file of the folder whose name ends so: *found. Several are refused: none says which one is the model's. */
static crumb_status find_only(const char *folder, const char *end, char path[CHECKPOINT_MAX_PATH], bool *found,
                              crumb_error *err) {
    crumb_folder_entry files[MAX_LISTED];
    char names[200] = "";
    const size_t n = crumb_folder_list(folder, end, files, MAX_LISTED);
    *found = n > 0;
    if (n == 0) return CRUMB_OK;
    if (n == 1) return checkpoint_path(folder, files[0].name, path, err);
    for (size_t i = 0, length = 0; i < n && length < sizeof names; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "", files[i].name);
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                      "%s: none of several files is called model%s: %s; leave the one that the weights are in, or that "
                      "lists their files",
                      folder, end, names);
}

crumb_status crumb_checkpoint_find_weights(const char *folder, char *path, size_t size, crumb_error *err) {
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};
    enum { N_NAMES = sizeof names / sizeof *names };
    char each[CHECKPOINT_MAX_PATH];
    bool is_there = false;
    for (size_t i = 0; i < N_NAMES && !is_there; i++) {
        CRUMB_TRY(checkpoint_path(folder, names[i], each, err));
        is_there = crumb_file_exists(each);
    }
    for (size_t i = 0; i < N_NAMES && !is_there; i++)
        CRUMB_TRY(find_only(folder, names[i] + strlen("model"), each, &is_there, err));
    if (!is_there)
        return crumb_fail(err, CRUMB_ERR_IO,
                          "%s: no model.safetensors, no index of such files and none by another name in this folder; "
                          "other formats (pytorch_model.bin) are not read",
                          folder);
    if (strlen(each) >= size) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%s: the path is too long", folder);
    memcpy(path, each, strlen(each) + 1);
    return CRUMB_OK;
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
    char path[CHECKPOINT_MAX_PATH];
    CRUMB_TRY(checkpoint_config_read(root, c, keys, err));
    CRUMB_TRY(checkpoint_settings_read(folder, c, err));
    put_name(folder, keys);
    CRUMB_TRY(checkpoint_vocabulary_read(folder, root, c, keys, err));
    CRUMB_TRY(crumb_checkpoint_find_weights(folder, path, sizeof path, err));
    CRUMB_TRY(crumb_safetensors_open(path, &files, err));
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
