/* A folder of transformers with files from any bytes: refused with a reason that names the folder, or a model whose
 * tensors can all be made. The input's first line names a folder of tests/oracle/checkpoints; a line "@ config.json"
 * begins a file that stands there in place of that folder's; one with nothing in it takes that folder's away. */
#include "host/checkpoint/checkpoint.h"
#include "host/model/hparams.h"
#include "host/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const models[] = {
    "llama-f16",
    "llama-q4_0+gptq",
    "llama-q4_0+order",
    "llama-q4_0+awq",
    "bitnet-b1.58-i2_s+auto",
    "bitnet-b1.58-i2_s+divides",
    "qwen2-f16-yarn",
    "qwen3-q4_1",
    "bitnet-f32",
    "llama-q2_0+gptq",
};

static const char *const names[] = {
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.safetensors",
    "quantize_config.json",
    "quant_config.json",
    "generation_config.json",
    "chat_template.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
    "other.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
};
enum { N_MODELS = sizeof models / sizeof *models, N_NAMES = sizeof names / sizeof *names };

static char folder[64];

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

/* ---- the folder ---------------------------------------------------------------------------------------------- */

static void path_of(const char *name, char out[128]) {
    snprintf(out, 128, "%s/%s", folder, name);
}

static void remove_files(void) {
    char path[128];
    for (size_t i = 0; i < N_NAMES; i++) {
        path_of(names[i], path);
        unlink(path);
    }
}

static void remove_folder(void) {
    remove_files();
    rmdir(folder);
}

static void make_folder(void) {
    if (*folder) return;
    snprintf(folder, sizeof folder, "/tmp/crumb-fuzz-XXXXXX");
    require(mkdtemp(folder) != NULL, "there is a folder to work in");
    atexit(remove_folder);
}

/* Which of the names the line is; n_names: none. */
static size_t find_name(const char *const *list, size_t n_names, const uint8_t *line, size_t n) {
    size_t i = 0;
    while (i < n_names && (strlen(list[i]) != n || memcmp(list[i], line, n) != 0)) i++;
    return i;
}

static void write_file(const char *name, const uint8_t *data, size_t size) {
    char path[128];
    path_of(name, path);
    unlink(path);
    if (size == 0) return;
    FILE *f = fopen(path, "wb");
    require(f && fwrite(data, 1, size, f) == size, "a file can be written");
    fclose(f);
}

static size_t line_length(const uint8_t *data, size_t size) {
    const uint8_t *end = memchr(data, '\n', size);
    return end ? (size_t)(end - data) : size;
}

/* The file that begins at data, behind its name: up to the next line that begins one. */
static size_t file_length(const uint8_t *data, size_t size) {
    size_t n = 0;
    while (n < size && !(size - n > 2 && data[n] == '@' && data[n + 1] == ' ')) {
        n += line_length(data + n, size - n);
        n += n < size;
    }
    return n;
}

static bool fill_folder(const uint8_t *data, size_t size) {
    const size_t n = line_length(data, size), model = find_name(models, N_MODELS, data, n);
    char path[128], target[512];
    if (model == N_MODELS) return false;
    for (size_t i = 0; i < N_NAMES; i++) {
        path_of(names[i], path);
        snprintf(target, sizeof target, CRUMB_SOURCE_FOLDER "/tests/oracle/checkpoints/%s/%s", models[model], names[i]);
        if (access(target, R_OK) == 0) require(symlink(target, path) == 0, "a file can be linked");
    }
    for (size_t at = n + 1; at + 2 < size;) {
        const size_t n_line = line_length(data + at, size - at);
        const size_t name = find_name(names, N_NAMES, data + at + 2, n_line > 2 ? n_line - 2 : 0);
        at += n_line + 1;
        if (at > size) break;
        const size_t n_file = file_length(data + at, size - at);
        if (name < N_NAMES) write_file(names[name], data + at, n_file);
        at += n_file;
    }
    return true;
}

/* ---- what is in it ------------------------------------------------------------------------------------------- */

static void read_all(const crumb_gguf *g) {
    crumb_error err = {0};
    crumb_hparams h;
    crumb_tokenizer *t;
    crumb_bytes architecture = {0};
    char name[64];
    require(crumb_gguf_get_string(g, "general.architecture", true, &architecture, &err) == CRUMB_OK, "it has a kind");
    snprintf(name, sizeof name, "%.*s", (int)architecture.size, (const char *)architecture.data);
    if (crumb_hparams_read(g, name, &h, &err) != CRUMB_OK) require(err.message[0], "a refusal says why");
    if (crumb_tokenizer_open(g, &t, &err) == CRUMB_OK)
        crumb_tokenizer_close(t);
    else
        require(err.message[0], "a refusal says why");
    for (size_t i = 0; i < crumb_gguf_n_tensors(g); i++) {
        const crumb_gguf_tensor *tensor = crumb_gguf_tensor_at(g, i);
        unsigned sum = 0;
        if (crumb_gguf_tensor_hold(g, tensor, &err) != CRUMB_OK) {
            require(strstr(err.message, "tensor '") != NULL, "a refusal names the tensor");
            continue;
        }
        for (uint64_t b = 0; b < tensor->n_bytes; b++) sum += crumb_gguf_tensor_data(g, tensor)[b];
        require(sum <= 255 * tensor->n_bytes, "its bytes can be read");
        crumb_gguf_tensor_drop(g, tensor);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    crumb_gguf *g;
    crumb_error err = {0};
    make_folder();
    remove_files();
    if (!fill_folder(data, size)) return 0;
    const crumb_status status = crumb_checkpoint_open(folder, &g, &err);
    if (status == CRUMB_OK)
        read_all(g);
    else
        require(!g && err.status == status && strncmp(err.message, folder, strlen(folder)) == 0, "a refusal says why");
    crumb_gguf_close(g);
    return 0;
}
