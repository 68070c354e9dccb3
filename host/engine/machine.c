#include "host/engine/machine.h"

#include "cpu/suite.h"
#include "host/base/cache.h"
#include "host/base/file.h"
#include "host/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 18 };
/* Another number whenever other figures are measured, or in another way: a profile that an earlier crumb has stored is
 * void then. 2: exchanges, dense weights and attention are measured and no longer estimated. */
enum { MEASURED_BY = 2 };

bool crumb_engine_profile_path(char *out, size_t size) {
    return crumb_cache_path("profile.json", out, size);
}

void crumb_engine_profile_key(const crumb_engine_devices *all, char key[CRUMB_ENGINE_KEY_BYTES]) {
    uint64_t hash = CRUMB_HASH_SEED;
    char device[96], target[32], source[20], text[512];
    crumb_kernel_suite_cpu.identify(NULL, device, target, source);
    snprintf(text, sizeof text, "%d|%s|%s|%s|%s|%llu", MEASURED_BY, crumb_version(), device, target, source,
             (unsigned long long)crumb_memory_total_bytes());
    hash = crumb_hash(hash, text, strlen(text));
    for (size_t i = 0; i < all->n; i++) {
        const crumb_device_listing *l = &all->device[i].listing;
        if (all->device[i].backend == &crumb_backend_cpu) continue;
        snprintf(text, sizeof text, "|%s|%s|%s|%s", l->name, l->detail, l->driver, *l->unusable ? "" : l->target);
        hash = crumb_hash(hash, text, strlen(text));
    }
    snprintf(key, CRUMB_ENGINE_KEY_BYTES, "%016llx", (unsigned long long)hash);
}

/* ---- the stored profile ---------------------------------------------------------------------------------------- */

static crumb_status read_stored(char path[512], char **text, size_t *n_bytes, crumb_error *err) {
    void *bytes;
    if (!crumb_engine_profile_path(path, 512))
        return crumb_fail(err, CRUMB_ERR_IO, "neither XDG_CACHE_HOME nor HOME is set");
    if (crumb_cache_read(path, MAX_BYTES, &bytes, n_bytes, NULL) != CRUMB_OK)
        return crumb_fail(
            err, CRUMB_ERR_DEVICE,
            "this machine has not been measured: 'crumb devices --measure' does that in a few seconds; or name "
            "another (--profile lnl)");
    *text = malloc(*n_bytes + 1);
    if (*text) {
        memcpy(*text, bytes, *n_bytes);
        (*text)[*n_bytes] = 0;
    }
    free(bytes);
    return *text ? CRUMB_OK : crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for a profile");
}

static crumb_status is_of_this_machine(const char *text, bool *out, crumb_error *err) {
    char key[CRUMB_ENGINE_KEY_BYTES], wanted[CRUMB_ENGINE_KEY_BYTES + 4];
    void *memory;
    CRUMB_TRY(crumb_calloc(1, sizeof(crumb_engine_devices), "the devices", &memory, err));
    crumb_engine_devices_find(memory);
    crumb_engine_profile_key(memory, key);
    free(memory);
    snprintf(wanted, sizeof wanted, "\"%s\"", key);
    *out = strstr(text, wanted) != NULL;
    return CRUMB_OK;
}

crumb_status crumb_engine_profile_read(char **text, size_t *n_bytes, crumb_error *err) {
    char path[512];
    bool mine = false;
    CRUMB_TRY(read_stored(path, text, n_bytes, err));
    crumb_status status = is_of_this_machine(*text, &mine, err);
    if (status == CRUMB_OK && !mine)
        status = crumb_fail(
            err, CRUMB_ERR_DEVICE,
            "this machine was measured with other devices, drivers or kernels, or by an earlier crumb: 'crumb devices "
            "--measure' does it anew (%s)",
            path);
    if (status == CRUMB_OK) return status;
    free(*text);
    *text = NULL;
    return status;
}

/* ---- by name --------------------------------------------------------------------------------------------------- */

typedef struct parsing {
    const char *name, *kernels;
    crumb_profile_figure_fn *fn;
    void *user;
    crumb_profile *out;
    uint64_t *id;
} parsing;

static crumb_status parse(const parsing *p, const char *text, size_t n_bytes, crumb_error *err) {
    *p->id = crumb_hash(CRUMB_HASH_SEED, text, n_bytes);
    return crumb_profile_parse(text, n_bytes, p->name, p->kernels, p->fn, p->user, p->out, err);
}

static crumb_status parse_stored(const parsing *p, crumb_error *err) {
    char *text;
    size_t n;
    CRUMB_TRY(crumb_engine_profile_read(&text, &n, err));
    const crumb_status status = parse(p, text, n, err);
    free(text);
    return status;
}

crumb_status crumb_engine_profile_open(const char *name, const char *kernels, crumb_profile_figure_fn *fn, void *user,
                                       crumb_profile *out, uint64_t *id, crumb_error *err) {
    const parsing p = {name, kernels, fn, user, out, id};
    crumb_file_map file;
    size_t n;
    *out = (crumb_profile){.n_devices = 0};
    if (strcmp(name, "this") == 0) return parse_stored(&p, err);
    const char *embedded = crumb_profile_embedded(name, &n);
    if (embedded) return parse(&p, embedded, n, err);
    if (!strchr(name, '/') && !strchr(name, '.') && !crumb_file_exists(name))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "no machine '%s': --profile takes this, arl, arlh, lnl, bmg, a770, ptl or a file", name);
    CRUMB_TRY(crumb_file_map_open(name, &file, err));
    const crumb_status status = parse(&p, (const char *)file.data, file.size, err);
    crumb_file_map_close(&file);
    return status;
}

/* Cores of several kinds count by their number. */
static crumb_core_speeds cores_of(const crumb_profile_device *cpu) {
    double n = 0, ghz = 0;
    for (size_t i = 0; i < cpu->n_cores; i++) {
        n += cpu->cores[i].count;
        ghz += cpu->cores[i].count * cpu->cores[i].clock_ghz;
    }
    return (crumb_core_speeds){.memory_gb_s = cpu->read_gb_s, .clock_ghz = n > 0 ? ghz / n : 0};
}

/* Of the stored profile, whatever GPUs there are now, as long as the processor is the same. */
static crumb_core_speeds stored_cores(void) {
    char path[512], processor[96], target[32], source[20], *text;
    crumb_profile machine;
    uint64_t id;
    size_t n;
    const parsing p = {"this", "crumb", NULL, NULL, &machine, &id};
    const crumb_core_speeds unknown = {0, 0};
    if (read_stored(path, &text, &n, NULL) != CRUMB_OK) return unknown;
    const crumb_status status = parse(&p, text, n, NULL);
    free(text);
    crumb_kernel_suite_cpu.identify(NULL, processor, target, source);
    const bool same = status == CRUMB_OK && strcmp(machine.device[0].detail, processor) == 0;
    return same ? cores_of(&machine.device[0]) : unknown;
}

crumb_status crumb_engine_profile_cores(const char *name, crumb_core_speeds *out, crumb_error *err) {
    crumb_profile machine;
    uint64_t id;
    *out = (crumb_core_speeds){0, 0};
    if (name && strcmp(name, "none") == 0) return CRUMB_OK;
    if (!name || strcmp(name, "this") == 0) return *out = stored_cores(), CRUMB_OK;
    CRUMB_TRY(crumb_engine_profile_open(name, "crumb", NULL, NULL, &machine, &id, err));
    *out = cores_of(&machine.device[0]);
    return CRUMB_OK;
}

/* ---- what sessions have found ---------------------------------------------------------------------------------- */

static bool history_path(char *out, size_t size) {
    return crumb_cache_path("corrections.json", out, size);
}

void crumb_engine_history_read(const crumb_profile *profile, uint64_t id, crumb_history *out) {
    char path[512];
    void *bytes;
    size_t n;
    *out = (crumb_history){0};
    if (!history_path(path, sizeof path)) return;
    if (crumb_cache_read(path, CRUMB_HISTORY_MAX_BYTES, &bytes, &n, NULL) != CRUMB_OK) return;
    crumb_history_parse(bytes, n, profile, id, out, NULL);
    free(bytes);
}

crumb_status crumb_engine_history_note(const crumb_profile *profile, uint64_t id,
                                       const double ratios[CRUMB_PROFILE_MAX_DEVICES][CRUMB_HISTORY_KINDS],
                                       crumb_error *err) {
    crumb_history history;
    char path[512];
    crumb_engine_history_read(profile, id, &history);
    for (size_t d = 0; d < profile->n_devices; d++)
        for (int kind = 0; kind < CRUMB_HISTORY_KINDS; kind++) crumb_history_note(&history, d, kind, ratios[d][kind]);
    if (!history_path(path, sizeof path))
        return crumb_fail(err, CRUMB_ERR_IO, "neither XDG_CACHE_HOME nor HOME is set");
    char *text = crumb_history_print(&history, profile, id);
    if (!text) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for a profile's corrections");
    const crumb_status status = crumb_cache_write(path, text, strlen(text), err);
    free(text);
    return status;
}
