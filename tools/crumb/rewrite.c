#include "tools/crumb/rewrite.h"

#include "host/base/cache.h"
#include "host/base/file.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/checkpoint/checkpoint.h"
#include "host/model/rewrite.h"
#include "tools/crumb/json_util.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static crumb_folder_entry entries[4096]; /* of the folder that a model is read from */

static size_t list_files(const char *model) {
    return crumb_folder_list(model, "", entries, sizeof entries / sizeof *entries);
}

static bool is_in_folder(const char *model, const char *file) {
    char path[4096];
    const size_t n = list_files(model);
    for (size_t i = 0; i < n; i++) {
        const int length = snprintf(path, sizeof path, "%s/%s", model, entries[i].name);
        if (length > 0 && (size_t)length < sizeof path && crumb_file_same(path, file)) return true;
    }
    return false;
}

/* Writing over what is read would leave no model with the weights that there were. */
static crumb_status check_not_read(const rewriting *r, crumb_error *err) {
    const char *model = r->options->model;
    bool is_read = crumb_folder_exists(model) && is_in_folder(model, r->out);
    for (uint32_t i = 0; i < crumb_gguf_n_parts(r->from); i++)
        is_read = is_read || crumb_file_same(crumb_gguf_part_path(r->from, i), r->out);
    if (!is_read) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%s: is a file of the model that is read; give another one to write",
                      r->out);
}

crumb_status rewriting_open(rewriting *r, const char *out, crumb_error *err) {
    cli_catch_interrupt();
    r->out = out;
    if (crumb_folder_exists(out))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%s: is a folder; give the name of a file to write", out);
    CRUMB_TRY(crumb_checkpoint_open_any(r->options->model, &r->from, err));
    CRUMB_TRY(check_not_read(r, err));
    const size_t n = crumb_gguf_n_tensors(r->from);
    CRUMB_TRY(crumb_calloc(n, sizeof *r->types, "the list of tensors", (void **)&r->types, err));
    CRUMB_TRY(crumb_calloc(n, sizeof *r->methods, "the list of tensors", (void **)&r->methods, err));
    for (size_t i = 0; i < n; i++)
        CRUMB_TRY(
            crumb_rewrite_same_type(r->from, crumb_gguf_tensor_at(r->from, i), &r->types[i], &r->methods[i], err));
    return CRUMB_OK;
}

void rewriting_close(rewriting *r) {
    crumb_gguf_close(r->from);
    free(r->types);
    free(r->methods);
}

static uint64_t add_stamp(uint64_t hash, const char *name, uint64_t size, int64_t modified_ns) {
    hash = crumb_hash(hash, name, strlen(name) + 1);
    hash = crumb_hash(hash, &size, sizeof size);
    return crumb_hash(hash, &modified_ns, sizeof modified_ns);
}

/* Of the files that the model is read from: another size or time means another model. */
uint64_t rewriting_identity(const char *model) {
    uint64_t hash = 0xcbf29ce484222325u, size;
    int64_t modified_ns;
    if (!crumb_folder_exists(model)) {
        crumb_file_stamp(model, &size, &modified_ns);
        return add_stamp(hash, "", size, modified_ns);
    }
    const size_t n = list_files(model);
    for (size_t i = 0; i < n; i++) hash = add_stamp(hash, entries[i].name, entries[i].size, entries[i].modified_ns);
    return hash;
}

int rewriting_threads(const cli_options *options) {
    int cpus[256];
    return options->n_threads ? (int)options->n_threads : crumb_cpu_physical(cpus, 256);
}

static crumb_status print_result(const rewriting *r, uint64_t n_kept, crumb_error *err) {
    uint64_t n_bytes;
    int64_t modified_ns;
    crumb_file_stamp(r->out, &n_bytes, &modified_ns);
    if (r->options->json) {
        cJSON *o = json_document();
        json_add_text(o, "model_filename", r->options->model);
        json_add_text(o, "out_filename", r->out);
        json_add_u64(o, "n_tensors", crumb_gguf_n_tensors(r->from));
        json_add_u64(o, "n_tensors_taken_up", n_kept);
        json_add_u64(o, "n_bytes_before", crumb_gguf_data_bytes(r->from));
        json_add_u64(o, "n_bytes", n_bytes);
        return json_print(o, false, "\n", err);
    }
    if (n_kept) cli_note("%" PRIu64 " tensors were there from an earlier run", n_kept);
    cli_note("%s: %zu tensors, %.2f MB of weights became a file of %.2f MB", r->out, crumb_gguf_n_tensors(r->from),
             (double)crumb_gguf_data_bytes(r->from) / 1e6, (double)n_bytes / 1e6);
    return CRUMB_OK;
}

crumb_status rewriting_run(rewriting *r, crumb_error *err) {
    uint64_t n_kept;
    const crumb_rewrite rewrite = {.from = r->from,
                                   .path = r->out,
                                   .types = r->types,
                                   .methods = r->methods,
                                   .identity = rewriting_identity(r->options->model),
                                   .n_threads = rewriting_threads(r->options),
                                   .progress = cli_progress,
                                   .progress_user = (void *)(uintptr_t)r->verb};
    const crumb_status status = crumb_rewrite_run(&rewrite, &n_kept, err);
    cli_progress_clear();
    if (status == CRUMB_ERR_INTERRUPTED)
        cli_note("interrupted: what is done is in %s.partial, and the same command goes on from there", r->out);
    CRUMB_TRY(status);
    return print_result(r, n_kept, err);
}
