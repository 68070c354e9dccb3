#include "cl/discover.h"

#include "cl/advice.h"
#include "cl/driver.h"
#include "host/base/cache.h"
#include "host/base/file.h"
#include "host/base/module.h"
#include "host/base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEY_SIZE = 16 * 1024, HOLD_SIZE = 64, ANSWER_SIZE = 64 * 1024, LIMIT_MS = 10000 };
/* A minute, eight, an hour, eight hours; then once a day. */
enum { FIRST_HOLD_S = 60, HOLD_GROWS = 8, LAST_HOLD_S = 24 * 3600 };
static const char failed[] = "failed\n", key_end[] = "----\n", holds[] = "until ";

/* ---- what the answer depends on ------------------------------------------------------------------------------ */

typedef struct key {
    char text[KEY_SIZE + sizeof key_end];
    size_t used;
} key;

static void key_add(key *k, const char *name, const char *value) {
    int n = snprintf(k->text + k->used, KEY_SIZE - k->used, "%s=%s\n", name, value ? value : "");
    if (n > 0 && (size_t)n < KEY_SIZE - k->used) k->used += (size_t)n;
}

static void key_add_entry(key *k, const crumb_folder_entry *e, const char *more) {
    char text[128];
    snprintf(text, sizeof text, "%lld %llu %s", (long long)e->modified_ns, (unsigned long long)e->size, more);
    key_add(k, e->name, text);
}

static void key_add_file(key *k, const char *path) {
    char line[256] = "";
    FILE *f = fopen(path, "r");
    if (f && !fgets(line, sizeof line, f)) line[0] = 0;
    if (f) fclose(f);
    line[strcspn(line, "\n")] = 0;
    key_add(k, path, line);
}

static void make_key(key *k, const crumb_cl_driver_files *found, const char *program_folder) {
    /* what loaders and drivers read; without these the same machine may well have other devices */
    static const char *const variables[] = {"OCL_ICD_VENDORS",
                                            "OCL_ICD_FILENAMES",
                                            "OPENCL_VENDOR_PATH",
                                            "LD_LIBRARY_PATH",
                                            "ZE_ENABLE_ALT_DRIVERS",
                                            "ZE_ENABLE_PARAMETER_VALIDATION",
                                            "ZE_FLAT_DEVICE_HIERARCHY",
                                            "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
                                            "OPENCL_LAYERS",
                                            "NEOReadDebugKeys",
                                            "ProductFamilyOverride",
                                            "SetCommandStreamReceiver",
                                            "HardwareInfoOverride",
                                            "ZE_AFFINITY_MASK",
                                            "POCL_DEVICES",
                                            "POCL_WORK_GROUP_METHOD",
                                            "CUDA_VISIBLE_DEVICES",
                                            "CL_CONFIG_CPU_TARGET_ARCH",
                                            "ONEAPI_DEVICE_SELECTOR"};
    crumb_folder_entry nodes[64];
    k->used = 0;
    key_add(k, "crumb", crumb_version());
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) key_add(k, variables[i], getenv(variables[i]));
    for (size_t i = 0; i < found->n; i++) {
        key_add_entry(k, &found->file[i].entry, "");
        if (found->file[i].is_text) key_add_file(k, found->file[i].path);
    }
    for (size_t i = 0, n = crumb_folder_list("/dev/dri", "", nodes, 64); i < n; i++) {
        char path[160];
        snprintf(path, sizeof path, "/dev/dri/%.127s", nodes[i].name);
        key_add(k, path, crumb_file_writable(path) ? "open" : "closed");
    }
    for (size_t i = 0, n = crumb_folder_list(program_folder, crumb_cl_api_used.survey, nodes, 64); i < n; i++)
        key_add_entry(k, &nodes[i], "");
    key_add_file(k, "/proc/sys/kernel/osrelease");
    memcpy(k->text + k->used, key_end, sizeof key_end);
    k->used += strlen(key_end);
}

/* ---- asking -------------------------------------------------------------------------------------------------- */

bool crumb_cl_survey_program(char *out, size_t size) {
    char folder[600];
    if (!crumb_module_folder((const void *)failed, folder, sizeof folder)) return false;
    snprintf(out, size, "%s/%s", folder, crumb_cl_api_used.survey);
    return true;
}

/* NULL, or how the survey went wrong. */
static const char *run_survey(const char *program, const char *alone, char *answer, crumb_cl_survey *out) {
    const char *const argv[] = {program, alone, NULL};
    crumb_process_end end;
    int code;
    if (crumb_process_run(argv, LIMIT_MS, answer, ANSWER_SIZE, &end, &code, NULL) != CRUMB_OK) return "cannot be asked";
    if (end == CRUMB_PROCESS_TIMED_OUT) return "hangs when it is asked for its devices";
    if (end == CRUMB_PROCESS_KILLED) return "crashes when it is asked for its devices";
    if (!crumb_cl_survey_parse(answer, out)) return "ends the process that asks it for its devices";
    return NULL;
}

/* The survey of all drivers went wrong: which one is it? False: none does, when it is asked alone. */
static bool name_culprit(const char *program, const crumb_cl_driver_files *found, char *answer, char *note,
                         size_t size) {
    crumb_cl_survey *ignored = calloc(1, sizeof *ignored);
    for (size_t i = 0; ignored && i < found->n; i++) {
        if (!found->file[i].is_driver) continue;
        const char *path = found->file[i].path, *alone = run_survey(program, path, answer, ignored);
        if (!alone) continue;
        snprintf(note, size, "the %s driver of %.200s %s; %s", crumb_cl_api_used.name, path, alone,
                 crumb_cl_api_used.without_driver);
        free(ignored);
        return true;
    }
    free(ignored);
    return false;
}

/* The answer's text is the survey's, or `failed` and a note. False: it is not to be kept. */
static bool ask(const char *folder, const crumb_cl_driver_files *found, char *answer, crumb_cl_survey *out, char *note,
                size_t size) {
    char program[800];
    snprintf(program, sizeof program, "%s/%s", folder, crumb_cl_api_used.survey);
    if (!crumb_file_exists(program)) {
        snprintf(note, size, "%.300s is missing; install crumb's modules together", program);
        return false;
    }
    const char *how = run_survey(program, NULL, answer, out);
    if (how && !name_culprit(program, found, answer, note, size)) {
        how = run_survey(program, NULL, answer, out); /* none fails alone: it may have been chance */
        if (how) snprintf(note, size, "one of %zu %s drivers %s", found->n, crumb_cl_api_used.name, how);
    }
    if (!how) return !out->is_partial;
    *out = (crumb_cl_survey){0};
    snprintf(answer, ANSWER_SIZE, "%s%s\n", failed, note);
    return true;
}

/* ---- what is kept of it -------------------------------------------------------------------------------------- */

/* How long an answer holds. */
typedef struct hold {
    long long until_s; /* since 1970; 0: as long as its key */
    int n_s;           /* what that was when it was written */
} hold;

static bool is_over(const hold *h) {
    const long long now = (long long)time(NULL);
    return h->until_s && (now >= h->until_s || now < h->until_s - h->n_s); /* or the clock has been set back */
}

static bool parse_hold(const char *text, hold *out, const char **behind) {
    char *end;
    if (strncmp(text, holds, strlen(holds)) != 0) return false;
    out->until_s = strtoll(text + strlen(holds), &end, 10);
    out->n_s = (int)strtol(end, &end, 10);
    *behind = end + 1;
    return *end == '\n' && out->n_s >= 0 && out->n_s <= LAST_HOLD_S;
}

/* A driver that has failed, or that offers nothing, may do better the next time without any change that the key knows:
 * the answer is for a while, each time for a longer one. */
static hold hold_of(const crumb_cl_survey *s, const crumb_cl_driver_files *found, const hold *before) {
    bool offers[CRUMB_CL_MAX_DEVICES] = {false};
    size_t n_offer = 0, n_drivers = 0;
    for (size_t i = 0; i < s->n_devices; i++) {
        const unsigned platform = (unsigned)s->device[i].platform;
        if (platform >= CRUMB_CL_MAX_DEVICES || offers[platform]) continue;
        offers[platform] = true;
        n_offer++;
    }
    for (size_t i = 0; i < found->n; i++) n_drivers += found->file[i].is_driver;
    if (s->n_devices && n_offer >= n_drivers) return (hold){0, 0};
    const int longer = before->n_s ? before->n_s * HOLD_GROWS : FIRST_HOLD_S;
    const int n_s = longer < LAST_HOLD_S ? longer : LAST_HOLD_S;
    return (hold){(long long)time(NULL) + n_s, n_s};
}

/* Says so of drivers that have failed. */
static void add_hold(const hold *h, char *note, size_t size) {
    const long long left_s = h->until_s - (long long)time(NULL), minutes = left_s > 60 ? (left_s + 59) / 60 : 1;
    const size_t used = strlen(note);
    if (used && h->until_s) snprintf(note + used, size - used, " (asked again in %lld min)", minutes);
}

/* `h` gets how long the answer held also where it does so no longer; zeros: there is none. */
static bool recall(const char *path, const key *k, crumb_cl_survey *out, hold *h, char *note, size_t size) {
    void *bytes;
    size_t n;
    *h = (hold){0, 0};
    if (crumb_cache_read(path, KEY_SIZE + HOLD_SIZE + ANSWER_SIZE, &bytes, &n, NULL) != CRUMB_OK) return false;
    const char *text = bytes, *answer = "";
    bool known = n > k->used && strlen(text) == n && memcmp(text, k->text, k->used) == 0 &&
                 parse_hold(text + k->used, h, &answer) && !is_over(h);
    if (known && strncmp(answer, failed, strlen(failed)) == 0)
        snprintf(note, size, "%.*s", (int)strcspn(answer + strlen(failed), "\n"), answer + strlen(failed));
    else if (known)
        known = crumb_cl_survey_parse(answer, out);
    free(bytes);
    return known;
}

/* A cache that cannot be written costs time and nothing else. */
static void remember(const char *path, const key *k, const hold *h, const char *answer) {
    const size_t size = k->used + HOLD_SIZE + strlen(answer);
    char *text = malloc(size);
    if (!text) return;
    memcpy(text, k->text, k->used);
    const int n = snprintf(text + k->used, size - k->used, "%s%lld %d\n%s", holds, h->until_s, h->n_s, answer);
    crumb_cache_write(path, text, k->used + (size_t)n, NULL);
    free(text);
}

typedef struct discovery {
    crumb_cl_driver_files found;
    key k;
    crumb_cl_survey survey;
    char answer[ANSWER_SIZE];
} discovery;

/* A device was not where the last answer had it. */
static bool is_discarded(const char *path) {
    void *bytes;
    size_t n;
    if (crumb_cache_read(path, 0, &bytes, &n, NULL) != CRUMB_OK) return false;
    free(bytes);
    return true;
}

static void take_survey(discovery *d, char *note, size_t size) {
    char path[1024], folder[600];
    if (!crumb_module_folder((const void *)failed, folder, sizeof folder)) return;
    make_key(&d->k, &d->found, folder);
    bool has_cache = crumb_cache_path(crumb_cl_api_used.survey_cache, path, sizeof path);
    hold h = {0, 0};
    const bool known = has_cache && recall(path, &d->k, &d->survey, &h, note, size);
    if (known) return add_hold(&h, note, size);
    const bool asked = ask(folder, &d->found, d->answer, &d->survey, note, size);
    /* One that is gone may come back without a change of the key: a driver that fails, and does not the next time. */
    if (!asked || !has_cache || (!d->survey.n_devices && is_discarded(path))) return;
    h = hold_of(&d->survey, &d->found, &h);
    remember(path, &d->k, &h, d->answer);
    add_hold(&h, note, size);
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

static int order_of(const crumb_cl_facts *f) {
    return f->is_cpu || !f->is_gpu ? 2 : f->unified ? 1 : 0;
}

void crumb_cl_discover(crumb_cl_found *out) {
    *out = (crumb_cl_found){0};
    discovery *d = calloc(1, sizeof *d);
    if (!d) {
        snprintf(out->note, sizeof out->note, "there is not enough memory to look for %s devices",
                 crumb_cl_api_used.name);
        return;
    }
    crumb_cl_driver_files_find(&d->found);
    if (d->found.n || d->found.more) take_survey(d, out->note, sizeof out->note);
    for (int order = 0; order < 3; order++)
        for (size_t i = 0; i < d->survey.n_devices; i++)
            if (order_of(&d->survey.device[i]) == order) out->device[out->n++] = d->survey.device[i];
    bool has_gpu = out->n && order_of(&out->device[0]) < 2;
    if (!has_gpu && !*out->note && !crumb_cl_driver_advise(out->note, sizeof out->note)) {
        crumb_cl_machine machine;
        crumb_cl_machine_look("", d->found.more ? (size_t)d->survey.n_platforms : d->found.n, &machine);
        crumb_cl_advise(&machine, out->note, sizeof out->note);
    }
    free(d);
}

void crumb_cl_discover_again(void) {
    char path[1024];
    if (crumb_cache_path(crumb_cl_api_used.survey_cache, path, sizeof path)) crumb_cache_write(path, "", 0, NULL);
}

void crumb_cl_device_name(size_t index, char out[16]) {
    snprintf(out, 16, "gpu%u", (unsigned)index % 1000);
}

static void describe_features(const crumb_cl_facts *f, char *out, size_t size) {
    const struct {
        bool has;
        const char *name;
    } features[] = {{f->has_f16, "f16"},
                    {f->has_bf16, "bf16"},
                    {f->has_dot_product, "dp4a"},
                    {f->has_matrix, "dpas"},
                    {f->has_2d_blocks, "2d blocks"},
                    {f->has_usm, "usm"},
                    {f->has_command_buffer, "command buffers"}};
    size_t used =
        (size_t)snprintf(out, size, "%s%.80s", *f->sub_groups ? "sub-groups " : "no sub-groups", f->sub_groups);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (features[i].has && used < size) used += (size_t)snprintf(out + used, size - used, ", %s", features[i].name);
}

void crumb_cl_describe(const crumb_cl_facts *f, size_t index, crumb_device_listing *out) {
    *out = (crumb_device_listing){.kind = order_of(f) == 2   ? CRUMB_DEVICE_PROCESSOR
                                          : order_of(f) == 1 ? CRUMB_DEVICE_INTEGRATED
                                                             : CRUMB_DEVICE_DISCRETE,
                                  .intel = f->vendor_id == CRUMB_CL_VENDOR_INTEL,
                                  .n_units = (uint32_t)(f->xe_cores ? f->xe_cores : f->units),
                                  .memory_bytes = f->memory_bytes,
                                  .max_alloc_bytes = f->max_alloc_bytes};
    crumb_cl_device_name(index, out->name);
    snprintf(out->detail, sizeof out->detail, "%.90s", crumb_cl_shown_name(f));
    snprintf(out->driver, sizeof out->driver, "%.80s %.60s", f->platform_name, f->driver);
    snprintf(out->pci, sizeof out->pci, "%.20s", f->pci);
    snprintf(out->unusable, sizeof out->unusable, "%s", f->unusable);
    snprintf(out->units, sizeof out->units, "%s", f->xe_cores ? "Xe-cores" : "compute units");
    describe_features(f, out->features, sizeof out->features);
    crumb_cl_advise_device(f, crumb_cl_pci_region("", f->pci), out->advice, sizeof out->advice);
}
