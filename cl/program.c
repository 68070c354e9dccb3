#include "cl/program.h"

#include "host/base/cache.h"
#include "host/base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the cache ----------------------------------------------------------------------------------------------- *
 * A file is its key as text, NUL, the binary's length and hash, and the binary. */

typedef struct blob_head {
    uint64_t n_bytes, hash;
} blob_head;

enum { MAX_BINARY = 64 << 20, KEY_SIZE = 2048 };

static void cache_file(const char *key, char *path, size_t size) {
    char name[64];
    uint64_t a = crumb_hash(CRUMB_HASH_SEED, key, strlen(key));
    snprintf(name, sizeof name, "%.20s/%016" PRIx64 "%016" PRIx64, crumb_cl_api_used.programs, a,
             crumb_hash(a, key, strlen(key)));
    if (!crumb_cache_path(name, path, size)) path[0] = 0;
}

/* NULL: nothing there, or nothing that can be trusted. */
static unsigned char *recall(const char *path, const char *key, size_t *n_binary) {
    void *bytes;
    size_t n, n_key = strlen(key) + 1;
    if (!*path || crumb_cache_read(path, MAX_BINARY + KEY_SIZE, &bytes, &n, NULL) != CRUMB_OK) return NULL;
    unsigned char *all = bytes, *binary = NULL;
    blob_head head;
    if (n > n_key + sizeof head && memcmp(all, key, n_key) == 0) {
        memcpy(&head, all + n_key, sizeof head);
        size_t left = n - n_key - sizeof head;
        if (head.n_bytes == left && head.hash == crumb_hash(CRUMB_HASH_SEED, all + n - left, left)) {
            binary = all;
            memmove(binary, all + n - left, left);
            *n_binary = left;
        }
    }
    if (!binary) free(all);
    return binary;
}

/* Without it every start builds all programs again: seconds, which the user should know the reason of. */
static void say_unkept(crumb_device *d, const char *why) {
    char line[1200];
    if (d->unkept || !d->log) return;
    d->unkept = true;
    snprintf(line, sizeof line, "%.100s: its programs are not kept, and every start builds them again: %.1000s",
             d->label, why);
    d->log(d->log_user, CRUMB_LOG_WARN, line);
}

static void remember(crumb_device *d, const char *path, const char *key, crumb_cl_built built) {
    size_t n_binary = 0, n_key = strlen(key) + 1;
    void *binary = *path ? crumb_cl_built_binary(built, &n_binary) : NULL;
    const size_t n = n_key + sizeof(blob_head) + n_binary;
    char *all = binary && n_binary && n_binary <= MAX_BINARY ? malloc(n) : NULL;
    if (all) {
        const blob_head head = {n_binary, crumb_hash(CRUMB_HASH_SEED, binary, n_binary)};
        memcpy(all, key, n_key);
        memcpy(all + n_key, &head, sizeof head);
        memcpy(all + n_key + sizeof head, binary, n_binary);
        crumb_error err = {0};
        if (crumb_cache_write(path, all, n, &err) != CRUMB_OK) say_unkept(d, err.message);
    }
    free(all);
    free(binary);
}

/* ---- building ------------------------------------------------------------------------------------------------ */

static crumb_cl_built from_binary(crumb_device *d, const char *path, const char *key, const char *options) {
    size_t n_binary;
    unsigned char *binary = recall(path, key, &n_binary);
    crumb_cl_built built = binary ? crumb_cl_built_load(d, binary, n_binary, options) : NULL;
    free(binary);
    return built;
}

/* The line of a compiler's log that its first error begins in: it says where. */
static const char *first_error(const char *log) {
    const char *first = strstr(log, "error");
    while (first && first > log && first[-1] != '\n') first--;
    return first ? first : log;
}

static crumb_status from_source(crumb_device *d, const char *file, const char *options, crumb_cl_built *out,
                                crumb_error *err) {
    enum { LOG_SIZE = 1 << 16 };
    const char *const texts[] = {crumb_cl_text("common.cl"), "\n", crumb_cl_text(file), NULL};
    char *log = calloc(1, LOG_SIZE);
    if (!log) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a program");
    const crumb_cl_code code = crumb_cl_built_compile(d, texts, options, out, log, LOG_SIZE);
    crumb_status status = CRUMB_OK;
    const char *first = first_error(log);
    for (char *p = log; *p; p++)
        if (*p == '\n') *p = ' ';
    if (crumb_cl_is_refusal(code)) d->refused = true;
    if (code != CRUMB_CL_OK)
        status = crumb_fail(err, CRUMB_ERR_DEVICE, "%s: its driver (%.60s) does not build %s with %.300s: %s: %.400s",
                            d->label, d->facts.driver, file, options, crumb_cl_error_name(code), first);
    free(log);
    return status;
}

static crumb_status build(crumb_device *d, const char *file, const char *options, crumb_cl_built *out,
                          crumb_error *err) {
    char key[KEY_SIZE], path[1024];
    const char *common = crumb_cl_text("common.cl"), *own = crumb_cl_text(file);
    if (!common || !own) return crumb_fail(err, CRUMB_ERR_INTERNAL, "this build has no kernel text %s", file);
    uint64_t text = crumb_hash(crumb_hash(CRUMB_HASH_SEED, common, strlen(common)), own, strlen(own));
    snprintf(key, sizeof key, "crumb-cl-program 1\n%s\n%s\n%s\n%s\n%" PRIx64 "\n%s\n%016" PRIx64 "\n%.1000s\n",
             d->facts.platform_name, d->facts.name, d->facts.driver, d->facts.version, d->facts.ip_version, file, text,
             options);
    cache_file(key, path, sizeof path);
    *out = from_binary(d, path, key, options);
    if (*out) return CRUMB_OK;
    CRUMB_TRY(from_source(d, file, options, out, err));
    remember(d, path, key, *out);
    return CRUMB_OK;
}

static crumb_status find_program(crumb_device *d, const char *file, const char *options, crumb_cl_built *out,
                                 crumb_error *err) {
    char key[KEY_SIZE];
    snprintf(key, sizeof key, "%s %s", file, options);
    for (size_t i = 0; i < d->n_programs; i++)
        if (strcmp(d->programs[i].key, key) == 0) return *out = d->programs[i].built, CRUMB_OK;
    crumb_cl_program *grown = realloc(d->programs, (d->n_programs + 1) * sizeof *grown);
    if (!grown) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a program");
    d->programs = grown;
    char *kept = malloc(strlen(key) + 1);
    if (!kept) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a program");
    memcpy(kept, key, strlen(key) + 1);
    crumb_status status = build(d, file, options, out, err);
    if (status == CRUMB_OK)
        d->programs[d->n_programs++] = (crumb_cl_program){.key = kept, .built = *out};
    else
        free(kept);
    return status;
}

crumb_status crumb_cl_kernel_create(crumb_device *d, const char *file, const char *options, const char *name,
                                    crumb_cl_call *out, crumb_error *err) {
    char all[1024];
    crumb_cl_built built = NULL;
    /* A device that cannot round division correctly refuses to be asked for it; kernels then do. */
    snprintf(all, sizeof all, "%s %s", d->facts.rounds_division ? CRUMB_CL_BUILD_OPTIONS : CRUMB_CL_ROUND_DIVISION,
             options);
    CRUMB_TRY(find_program(d, file, all, &built, err));
    const crumb_cl_code code = crumb_cl_call_create(built, name, out);
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, d->label, name, code);
}

void crumb_cl_kernels_id(const crumb_device *d, char *out, size_t size) {
    const crumb_cl_facts *f = &d->facts;
    const char *const facts[] = {f->platform_name, f->name, f->driver, f->version, CRUMB_CL_BUILD_OPTIONS};
    uint64_t hash = crumb_hash(CRUMB_HASH_SEED, &f->ip_version, sizeof f->ip_version);
    const char *text;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) hash = crumb_hash(hash, facts[i], strlen(facts[i]) + 1);
    for (size_t i = 0; (text = crumb_cl_text_at(i)); i++) hash = crumb_hash(hash, text, strlen(text) + 1);
    hash = crumb_hash(hash, &d->ladder.bf16, sizeof d->ladder.bf16);
    snprintf(out, size, "%s %016" PRIx64, crumb_cl_api_used.backend, hash);
}

bool crumb_cl_chooses_registers(const crumb_device *d) {
    return d->facts.vendor_id == CRUMB_CL_VENDOR_INTEL && d->facts.is_gpu;
}

void crumb_cl_linear_program(const crumb_device *d, const crumb_cl_kernel *kernel, const crumb_cl_linear *use,
                             char out[CRUMB_CL_LINEAR_OPTIONS_MAX]) {
    crumb_cl_linear_options(kernel, use, out);
    const size_t used = strlen(out);
    if (kernel->registers == 256 && crumb_cl_chooses_registers(d))
        snprintf(out + used, CRUMB_CL_LINEAR_OPTIONS_MAX - used, " %s", CRUMB_CL_LARGE_REGISTERS);
}

void crumb_cl_programs_free(crumb_device *d) {
    for (size_t i = 0; i < d->n_programs; i++) {
        crumb_cl_built_release(d->programs[i].built);
        free(d->programs[i].key);
    }
    free(d->programs);
}
