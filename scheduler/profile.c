#include "scheduler/profile.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 20, KEY_BYTES = 160, SCHEMA_VERSION = 1 };

static const char *const work_names[CRUMB_WORK_COUNT] = {"u1", "u2", "u3", "u4", "u8", "f16", "attention"};
static const unsigned work_bits[CRUMB_WORK_COUNT] = {1, 2, 3, 4, 8, 16, 16};
static const char *const kind_names[] = {"processor", "integrated", "discrete"};

const char *crumb_work_name(crumb_work work) {
    return work_names[work];
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *from, *kernels;
    char key[KEY_BYTES]; /* of the object that is read: "gpu0.kernels.crumb" */
    crumb_profile_figure_fn *fn;
    void *user;
    crumb_error *err;
} reader;

static crumb_status refuse(const reader *r, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static crumb_status refuse(const reader *r, const char *key, const char *format, ...) {
    char problem[256];
    va_list args;
    va_start(args, format);
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    return crumb_fail(r->err, CRUMB_ERR_FORMAT, "profile '%s': key '%s%s%s': %s", r->from, r->key, *r->key ? "." : "",
                      key, problem);
}

/* Goes into `key` of the object; returns how long the key was before, for leave(). */
static size_t enter(reader *r, const char *key) {
    const size_t n = strlen(r->key);
    snprintf(r->key + n, sizeof r->key - n, "%s%s", n ? "." : "", key);
    return n;
}
static void leave(reader *r, size_t n) {
    r->key[n] = 0;
}

/* Nothing but these keys: a figure whose name is mistyped must not be silently absent. `known` ends with NULL. */
static crumb_status only(const reader *r, const cJSON *object, const char *const *known) {
    for (const cJSON *item = object->child; item; item = item->next) {
        bool found = false;
        for (const char *const *k = known; *k && !found; k++) found = strcmp(*k, item->string) == 0;
        if (!found) return refuse(r, item->string, "is not known here");
    }
    return CRUMB_OK;
}

static crumb_status get_object(const reader *r, const cJSON *object, const char *key, const cJSON **out) {
    *out = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!*out) return refuse(r, key, "is missing");
    return cJSON_IsObject(*out) ? CRUMB_OK : refuse(r, key, "is not an object");
}

static crumb_status get_text(const reader *r, const cJSON *object, const char *key, char *out, size_t size) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    if (!text) return refuse(r, key, "is missing or not a text");
    if (strlen(text) >= size) return refuse(r, key, "is longer than %zu bytes", size - 1);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ') return refuse(r, key, "holds a control character");
    memcpy(out, text, strlen(text) + 1);
    return CRUMB_OK;
}

typedef struct figure_range {
    double least, most;
    bool optional; /* then 0 where it is missing */
} figure_range;

/* [value, "source"]. */
static crumb_status get_figure(const reader *r, const cJSON *object, const char *key, figure_range range, double *out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    *out = 0;
    if (!item) return range.optional ? CRUMB_OK : refuse(r, key, "is missing");
    const cJSON *value = cJSON_GetArrayItem(item, 0), *source = cJSON_GetArrayItem(item, 1);
    if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != 2 || !cJSON_IsNumber(value) || !cJSON_IsString(source) ||
        !*source->valuestring)
        return refuse(r, key, "is not [value, \"source\"]");
    const double v = value->valuedouble;
    if (!isfinite(v) || v < range.least || v > range.most)
        return refuse(r, key, "%g is not in %g..%g", v, range.least, range.most);
    *out = v;
    if (r->fn) {
        char name[2 * KEY_BYTES];
        snprintf(name, sizeof name, "%s.%s", r->key, key);
        r->fn(r->user, name, v, source->valuestring);
    }
    return CRUMB_OK;
}

static const figure_range rate = {1e-3, 1e9, false}, optional_rate = {1e-3, 1e9, true};
static const figure_range micros = {0, 1e6, false}, part = {1e-3, 1, false}, cycles = {1e-3, 1e6, false};
static const figure_range launches = {0, 1e4, false}, optional_micros = {0, 1e6, true};

/* ---- kernels ------------------------------------------------------------------------------------------------- */

static crumb_status read_work(reader *r, const cJSON *work, crumb_profile_device *d) {
    static const char *const known[] = {"gops", "share", NULL};
    static const char *const names[] = {"u1", "u2", "u3", "u4", "u8", "f16", "attention", NULL};
    CRUMB_TRY(only(r, work, names));
    for (int w = 0; w < CRUMB_WORK_COUNT; w++) {
        const cJSON *item;
        if (!cJSON_GetObjectItemCaseSensitive(work, work_names[w])) continue;
        CRUMB_TRY(get_object(r, work, work_names[w], &item));
        const size_t n = enter(r, work_names[w]);
        CRUMB_TRY(only(r, item, known));
        CRUMB_TRY(get_figure(r, item, "gops", rate, &d->gops[w]));
        CRUMB_TRY(get_figure(r, item, "share", part, &d->share[w]));
        leave(r, n);
    }
    return CRUMB_OK;
}

static crumb_status read_gamma(reader *r, const cJSON *gamma, crumb_profile_device *d) {
    const char *known[CRUMB_PROFILE_MAX_CORES + 1] = {NULL};
    for (size_t i = 0; i < d->n_cores; i++) known[i] = d->cores[i].kind;
    CRUMB_TRY(only(r, gamma, known));
    for (size_t i = 0; i < d->n_cores; i++) {
        const cJSON *of_kind;
        if (!cJSON_GetObjectItemCaseSensitive(gamma, d->cores[i].kind)) continue;
        CRUMB_TRY(get_object(r, gamma, d->cores[i].kind, &of_kind));
        const size_t n = enter(r, d->cores[i].kind);
        static const char *const names[] = {"u1", "u2", "u3", "u4", "u8", NULL};
        CRUMB_TRY(only(r, of_kind, names));
        for (int w = CRUMB_WORK_U1; w <= CRUMB_WORK_U8; w++) {
            const figure_range range = {cycles.least, cycles.most, true};
            CRUMB_TRY(get_figure(r, of_kind, work_names[w], range, &d->cores[i].gamma[w]));
        }
        leave(r, n);
    }
    return CRUMB_OK;
}

static crumb_status read_kernels(reader *r, const cJSON *device, crumb_profile_device *d) {
    static const char *const known[] = {"launch_us", "layer_launches", "head_launches", "work", "gamma", NULL};
    const cJSON *sets, *set, *work, *gamma;
    CRUMB_TRY(get_object(r, device, "kernels", &sets));
    const size_t before_sets = enter(r, "kernels");
    CRUMB_TRY(get_object(r, sets, r->kernels, &set));
    const size_t before = enter(r, r->kernels);
    CRUMB_TRY(only(r, set, known));
    CRUMB_TRY(get_figure(r, set, "launch_us", micros, &d->launch_us));
    CRUMB_TRY(get_figure(r, set, "layer_launches", launches, &d->layer_launches));
    CRUMB_TRY(get_figure(r, set, "head_launches", launches, &d->head_launches));
    CRUMB_TRY(get_object(r, set, "work", &work));
    size_t n = enter(r, "work");
    CRUMB_TRY(read_work(r, work, d));
    leave(r, n);
    if (cJSON_GetObjectItemCaseSensitive(set, "gamma")) {
        CRUMB_TRY(get_object(r, set, "gamma", &gamma));
        n = enter(r, "gamma");
        CRUMB_TRY(read_gamma(r, gamma, d));
        leave(r, n);
    }
    leave(r, before);
    leave(r, before_sets);
    return CRUMB_OK;
}

/* ---- devices ------------------------------------------------------------------------------------------------- */

static crumb_status read_cores(reader *r, const cJSON *device, crumb_profile_device *d) {
    static const char *const known[] = {"kind", "count", "clock_ghz", NULL};
    const figure_range many = {1, 1024, false}, clock = {0.1, 20, false};
    const cJSON *cores = cJSON_GetObjectItemCaseSensitive(device, "cores"), *item;
    if (!cores) return CRUMB_OK;
    if (!cJSON_IsArray(cores) || cJSON_GetArraySize(cores) > CRUMB_PROFILE_MAX_CORES)
        return refuse(r, "cores", "is not a list of at most %d kinds", CRUMB_PROFILE_MAX_CORES);
    const size_t n = enter(r, "cores");
    cJSON_ArrayForEach(item, cores) {
        crumb_profile_cores *c = &d->cores[d->n_cores];
        double count;
        if (!cJSON_IsObject(item)) return refuse(r, "", "holds something that is not an object");
        CRUMB_TRY(only(r, item, known));
        CRUMB_TRY(get_text(r, item, "kind", c->kind, sizeof c->kind));
        CRUMB_TRY(get_figure(r, item, "count", many, &count));
        CRUMB_TRY(get_figure(r, item, "clock_ghz", clock, &c->clock_ghz));
        c->count = (uint32_t)count;
        d->n_cores++;
    }
    leave(r, n);
    return CRUMB_OK;
}

static crumb_status read_kind(const reader *r, const cJSON *device, crumb_profile_kind *out) {
    char text[16];
    CRUMB_TRY(get_text(r, device, "kind", text, sizeof text));
    for (int k = 0; k < 3; k++)
        if (strcmp(text, kind_names[k]) == 0) return *out = (crumb_profile_kind)k, CRUMB_OK;
    return refuse(r, "kind", "'%s' is none of processor, integrated, discrete", text);
}

static crumb_status read_by_name(const reader *r, const cJSON *device, bool *out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(device, "by_name");
    *out = cJSON_IsTrue(item);
    return !item || cJSON_IsBool(item) ? CRUMB_OK : refuse(r, "by_name", "is neither true nor false");
}

static crumb_status read_device(reader *r, const cJSON *device, crumb_profile_device *d) {
    static const char *const known[] = {"name",          "detail",        "kind",        "memory_gb",   "read_gb_s",
                                        "together_gb_s", "transfer_gb_s", "transfer_us", "exchange_us", "cores",
                                        "kernels",       "by_name",       NULL};
    double gb;
    if (!cJSON_IsObject(device)) return refuse(r, "devices", "holds something that is not an object");
    CRUMB_TRY(get_text(r, device, "name", d->name, sizeof d->name));
    const size_t n = enter(r, d->name);
    CRUMB_TRY(only(r, device, known));
    CRUMB_TRY(get_text(r, device, "detail", d->detail, sizeof d->detail));
    CRUMB_TRY(read_kind(r, device, &d->kind));
    CRUMB_TRY(read_by_name(r, device, &d->by_name));
    CRUMB_TRY(get_figure(r, device, "memory_gb", rate, &gb));
    d->memory_bytes = (uint64_t)(gb * 1e9);
    CRUMB_TRY(get_figure(r, device, "read_gb_s", rate, &d->read_gb_s));
    CRUMB_TRY(get_figure(r, device, "together_gb_s", rate, &d->together_gb_s));
    const bool discrete = d->kind == CRUMB_PROFILE_DISCRETE;
    CRUMB_TRY(get_figure(r, device, "transfer_gb_s", discrete ? rate : optional_rate, &d->transfer_gb_s));
    CRUMB_TRY(get_figure(r, device, "transfer_us", discrete ? micros : optional_micros, &d->transfer_us));
    CRUMB_TRY(get_figure(r, device, "exchange_us", micros, &d->exchange_us));
    CRUMB_TRY(read_cores(r, device, d));
    CRUMB_TRY(read_kernels(r, device, d));
    snprintf(d->kernels, sizeof d->kernels, "%s", r->kernels);
    leave(r, n);
    return CRUMB_OK;
}

static crumb_status check_device(const reader *r, const crumb_profile *p, size_t i) {
    const crumb_profile_device *d = &p->device[i];
    for (size_t j = 0; j < i; j++)
        if (strcmp(p->device[j].name, d->name) == 0)
            return refuse(r, "devices", "there are two of the name '%s'", d->name);
    if ((i == 0) != (d->kind == CRUMB_PROFILE_PROCESSOR))
        return refuse(r, "devices", "the first, and only that, is the processor; '%s' is not", d->name);
    if (d->together_gb_s > d->read_gb_s)
        return refuse(r, "devices", "'%s' reads %g GB/s together with others, but alone %g", d->name, d->together_gb_s,
                      d->read_gb_s);
    return CRUMB_OK;
}

/* Never the processor, without which nothing can be placed. */
static bool leave_out(const reader *r, const cJSON *device, crumb_profile *out) {
    const cJSON *kernels = cJSON_GetObjectItemCaseSensitive(device, "kernels");
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(device, "name"));
    if (out->n_devices == 0 || !name || !cJSON_IsObject(kernels) ||
        cJSON_GetObjectItemCaseSensitive(kernels, r->kernels))
        return false;
    const size_t used = strlen(out->left_out);
    snprintf(out->left_out + used, sizeof out->left_out - used, "%s%.15s", used ? ", " : "", name);
    return true;
}

static crumb_status read_profile(reader *r, const cJSON *root, crumb_profile *out) {
    static const char *const known[] = {"schema_version", "name", "detail", "key", "devices", NULL};
    if (!cJSON_IsObject(root))
        return crumb_fail(r->err, CRUMB_ERR_FORMAT, "profile '%s' is not a JSON object", r->from);
    CRUMB_TRY(only(r, root, known));
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(root, "schema_version"), *item;
    if (!cJSON_IsNumber(version) || version->valuedouble != SCHEMA_VERSION)
        return refuse(r, "schema_version", "is not %d", SCHEMA_VERSION);
    CRUMB_TRY(get_text(r, root, "name", out->name, sizeof out->name));
    CRUMB_TRY(get_text(r, root, "detail", out->detail, sizeof out->detail));
    const cJSON *devices = cJSON_GetObjectItemCaseSensitive(root, "devices");
    if (!cJSON_IsArray(devices) || cJSON_GetArraySize(devices) < 1 ||
        cJSON_GetArraySize(devices) > CRUMB_PROFILE_MAX_DEVICES)
        return refuse(r, "devices", "is not a list of 1 to %d devices", CRUMB_PROFILE_MAX_DEVICES);
    cJSON_ArrayForEach(item, devices) {
        if (leave_out(r, item, out)) continue;
        CRUMB_TRY(read_device(r, item, &out->device[out->n_devices]));
        CRUMB_TRY(check_device(r, out, out->n_devices));
        out->n_devices++;
    }
    return CRUMB_OK;
}

crumb_status crumb_profile_parse(const char *text, size_t n_bytes, const char *from, const char *kernels,
                                 crumb_profile_figure_fn *fn, void *user, crumb_profile *out, crumb_error *err) {
    reader r = {.from = from, .kernels = kernels, .fn = fn, .user = user, .err = err};
    const char *end = NULL;
    *out = (crumb_profile){.n_devices = 0};
    if (n_bytes > MAX_TEXT_BYTES)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "profile '%s': %zu bytes are more than a profile can have", from,
                          n_bytes);
    cJSON *root = cJSON_ParseWithLengthOpts(text, n_bytes, &end, false);
    if (!root)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "profile '%s' is not JSON (at byte %zu)", from,
                          end ? (size_t)(end - text) : 0);
    const crumb_status status = read_profile(&r, root, out);
    cJSON_Delete(root);
    return status;
}

/* ---- what is made of it -------------------------------------------------------------------------------------- */

int crumb_profile_find(const crumb_profile *p, const char *name) {
    for (size_t i = 0; i < p->n_devices; i++)
        if (strcmp(p->device[i].name, name) == 0) return (int)i;
    return -1;
}

double crumb_work_vector_bytes(crumb_work work) {
    return 32 * work_bits[work] / 8.0;
}

double crumb_profile_work_gb_s(const crumb_profile_device *d, crumb_work work, double available_gb_s) {
    const double vector_bytes = crumb_work_vector_bytes(work);
    double n_cores = 0, sum = 0;
    for (size_t i = 0; i < d->n_cores; i++) n_cores += d->cores[i].count;
    if (n_cores == 0) return available_gb_s * d->share[work];
    for (size_t i = 0; i < d->n_cores; i++) {
        const crumb_profile_cores *c = &d->cores[i];
        const double drawn = available_gb_s / n_cores;
        const double made = c->gamma[work] > 0 ? vector_bytes / c->gamma[work] * c->clock_ghz : drawn;
        sum += c->count * (made < drawn ? made : drawn);
    }
    return sum * d->share[work];
}
