#include "spirv/ocloc.h"

#include "host/base/module.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library's interface, of which its header need not be there. */
typedef int (*invoke_fn)(uint32_t n_arguments, const char **arguments, uint32_t n_sources, const uint8_t **sources,
                         const uint64_t *source_sizes, const char **source_names, uint32_t n_headers,
                         const uint8_t **headers, const uint64_t *header_sizes, const char **header_names,
                         uint32_t *n_outputs, uint8_t ***outputs, uint64_t **output_sizes, char ***output_names);
typedef int (*free_fn)(uint32_t *n_outputs, uint8_t ***outputs, uint64_t **output_sizes, char ***output_names);

/* A pointer to a function and one to data are different things to C, and the same to every system with Level Zero. */
static bool find(const char *name, void *out) {
    static const char *const files[] = {"libocloc.so", "libocloc.so.1"};
    const void *address = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files && !address; i++)
        if (crumb_module_open(files[i], name, &address, NULL) != CRUMB_OK) address = NULL;
    memcpy(out, &address, sizeof address);
    return address != NULL;
}

bool crumb_ze_ocloc_is_there(void) {
    invoke_fn invoke;
    return find("oclocInvoke", &invoke);
}

typedef struct outputs {
    uint32_t n;
    uint8_t **bytes;
    uint64_t *sizes;
    char **names;
} outputs;

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* The output whose name ends so, and its size; NULL: there is none. */
static const uint8_t *find_output(const outputs *all, const char *end, size_t *n_bytes) {
    for (uint32_t i = 0; i < all->n; i++) {
        if (!ends_with(all->names[i], end) || !all->sizes[i]) continue;
        *n_bytes = (size_t)all->sizes[i];
        return all->bytes[i];
    }
    return NULL;
}

/* What of its outputs ends with one of `ends`, freed by the caller; NULL: it does not compile. */
static void *compile(const char *device, const char *only, const char *const ends[2], const char *text,
                     const char *options, size_t *n_bytes, char *log, size_t log_size) {
    const char *arguments[] = {"ocloc", "compile",  "-q",    "-file",    "kernels.cl", "-device",
                               device,  "-options", options, "-out_dir", "out",        only};
    const uint32_t n_arguments = sizeof arguments / sizeof *arguments - (only ? 0 : 1);
    const uint64_t text_bytes = strlen(text) + 1;
    const uint8_t *source = (const uint8_t *)text, *made = NULL;
    const char *name = "kernels.cl";
    invoke_fn invoke;
    free_fn release;
    outputs all = {0};
    size_t n_log = 0;
    void *copy = NULL;
    if (!find("oclocInvoke", &invoke) || !find("oclocFreeOutput", &release)) {
        snprintf(log, log_size, "error: neither the driver compiles OpenCL C, nor is libocloc.so installed");
        return NULL;
    }
    const int code = invoke(n_arguments, arguments, 1, &source, &text_bytes, &name, 0, NULL, NULL, NULL, &all.n,
                            &all.bytes, &all.sizes, &all.names);
    for (int i = 0; i < 2 && code == 0 && !made; i++) made = find_output(&all, ends[i], n_bytes);
    const uint8_t *words = find_output(&all, "stdout.log", &n_log);
    if (made) copy = malloc(*n_bytes);
    if (copy) memcpy(copy, made, *n_bytes);
    if (!copy)
        snprintf(log, log_size, "%.*s (ocloc ended with %d)", words ? (int)n_log : 0, words ? (const char *)words : "",
                 code);
    release(&all.n, &all.bytes, &all.sizes, &all.names);
    return copy;
}

void *crumb_ze_ocloc_compile(uint64_t ip_version, const char *text, const char *options, size_t *n_bytes, char *log,
                             size_t log_size) {
    static const char *const ends[2] = {".spv", ".spv"};
    char device[40];
    snprintf(device, sizeof device, "%" PRIu64 ".%" PRIu64 ".%" PRIu64, ip_version >> 22, ip_version >> 14 & 0xff,
             ip_version & 0x3f);
    return compile(device, "-spv_only", ends, text, options, n_bytes, log, log_size);
}

void *crumb_ze_ocloc_compile_for(const char *devices, bool native, const char *text, const char *options,
                                 size_t *n_bytes, char *log, size_t log_size) {
    static const char *const ends[][2] = {{".spv", ".spv"}, {".ar", ".bin"}};
    return compile(devices, native ? NULL : "-spv_only", ends[native], text, options, n_bytes, log, log_size);
}
