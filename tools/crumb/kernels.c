/* crumb kernels: what the options select, and the list. */
#include "tools/crumb/kernels.h"

#include "cpu/suite.h"
#include "host/engine/devices.h"
#include "host/engine/machine.h"
#include "host/engine/modules.h"
#include "tools/crumb/json_util.h"
#include "tools/crumb/kernels_scene.h"

#include <stdlib.h>
#include <string.h>

/* ---- selection --------------------------------------------------------------------------------------------- */

static crumb_status choose_formats(kernels_choice *c, crumb_error *err) {
    const cli_texts *given = &c->options->kernel_bits;
    for (size_t i = 0; i < given->n; i++) {
        c->formats[c->n_formats] = crumb_kernel_format_find(given->value[i]);
        if (!c->formats[c->n_formats++])
            return crumb_fail(err, CRUMB_ERR_ARGUMENT, "--bits: '%s' is not a format that kernels know; see --help",
                              given->value[i]);
    }
    for (; given->n == 0 && c->n_formats < crumb_n_kernel_formats; c->n_formats++)
        c->formats[c->n_formats] = &crumb_kernel_formats[c->n_formats];
    return CRUMB_OK;
}

/* "8192x2048x1", or "8192x2048" for one row. */
static crumb_status parse_shape(const char *text, kernels_shape *out, crumb_error *err) {
    unsigned long long value[3] = {0, 0, 1};
    const char *p = text;
    int n = 0;
    for (; n < 3; n++) {
        char *end;
        if (*p < '0' || *p > '9') break;
        value[n] = strtoull(p, &end, 10);
        p = *end == 'x' && n < 2 ? end + 1 : end;
    }
    if (n < 2 || *p || p[-1] == 'x' || !value[0] || !value[1] || !value[2] || value[0] > 1 << 24 || value[1] > 65536 ||
        value[2] > 65536)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "--shape: '%s' is not MxKxN, as in 8192x2048x1, with M to 16777216, K and N to 65536", text);
    *out = (kernels_shape){(uint32_t)value[0], (uint32_t)value[1], (uint32_t)value[2]};
    return CRUMB_OK;
}

/* Whether a target is a backend's: "ze", "ze:dpas". */
static bool is_target_of(const char *target, const char *backend) {
    const size_t n = strlen(backend);
    return target && strncmp(target, backend, n) == 0 && (target[n] == 0 || target[n] == ':');
}

const char *kernels_gpu_backend(const cli_options *o) {
    for (const char *const *name = crumb_engine_module_names; *name; name++)
        if ((o->backend && strcmp(o->backend, *name) == 0) || is_target_of(o->target, *name)) return *name;
    return o->device && strncmp(o->device, "gpu", 3) == 0 ? "auto" : NULL;
}

/* The device that the options name, also one that cannot be used: the suite knows whether its kernels can be tested. */
static crumb_status find_gpu(const cli_options *o, crumb_engine_device *out, crumb_error *err) {
    static crumb_engine_devices all;
    const char *backend = kernels_gpu_backend(o);
    const char *device = o->device ? o->device : "auto";
    crumb_engine_devices_find(&all);
    for (size_t i = 0; i < all.n; i++) {
        const crumb_engine_device *d = &all.device[i];
        const bool is_gpu = d->backend != &crumb_backend_cpu;
        const bool driven = is_gpu && (strcmp(backend, "auto") == 0 || strcmp(d->backend->name, backend) == 0);
        if (driven && (strcmp(device, "auto") == 0 || strcmp(device, d->name) == 0)) return *out = *d, CRUMB_OK;
    }
    crumb_engine_choice choice; /* says what there is instead */
    CRUMB_TRY(crumb_engine_device_choose(device, backend, o->target, &choice, err));
    *out = choice.device;
    return CRUMB_OK;
}

static crumb_status open_gpu(const cli_options *o, kernels_choice *c, crumb_error *err) {
    const crumb_module *module;
    crumb_engine_device device;
    const char *name = kernels_gpu_backend(o);
    const crumb_status found = find_gpu(o, &device, err);
    if (found == CRUMB_OK) name = device.backend->name;
    if (strcmp(name, "auto") == 0) name = "cl"; /* its kernels can be listed without a device */
    CRUMB_TRY(crumb_engine_module_load(name, &module, found == CRUMB_OK ? err : NULL));
    if (!module->suite) return crumb_fail(err, CRUMB_ERR_DEVICE, "the backend '%s' does not tell of its kernels", name);
    c->suite = module->suite;
    c->backend = module->suite->plan_record ? module->backend : NULL;
    CRUMB_TRY(found);
    const crumb_kernel_machine_params params = {.device = device.listing.name, .target = o->target};
    return c->suite->machine_create(&params, &c->machine, err);
}

/* The CPU, or the device and backend that are named. */
static crumb_status open_machine(const cli_options *o, int n_threads, kernels_choice *c, crumb_error *err) {
    crumb_engine_choice checked;
    const char *colon = o->target ? strchr(o->target, ':') : NULL;
    c->target = colon ? colon + 1 : o->target;
    if (c->target && (strcmp(c->target, "cpu") == 0 || (!colon && kernels_gpu_backend(o)))) c->target = NULL;
    if (kernels_gpu_backend(o)) return open_gpu(o, c, err);
    c->suite = &crumb_kernel_suite_cpu;
    c->backend = &crumb_backend_cpu;
    const char *device = o->device ? o->device : "auto", *backend = o->backend ? o->backend : "auto";
    if (strcmp(device, "auto") != 0 || strcmp(backend, "auto") != 0) /* names that are wrong */
        CRUMB_TRY(crumb_engine_device_choose(device, backend, "cpu", &checked, err));
    crumb_kernel_machine_params params = {.target = o->target, .n_threads = n_threads, .cpu_kind = o->cpu_kind};
    CRUMB_TRY(crumb_engine_profile_cores(o->profile, &params.cores, err));
    return c->suite->machine_create(&params, &c->machine, err);
}

void kernels_release(kernels_choice *c) {
    if (c->suite) c->suite->machine_destroy(c->machine);
    c->machine = NULL;
}

void kernels_device_name(const kernels_choice *c, char out[160]) {
    char device[96], target[32], source[20];
    c->suite->identify(c->machine, device, target, source);
    snprintf(out, 160, "%s", device);
}

void kernels_machine_flags(const kernels_choice *c, char out[KERNELS_FLAGS_BYTES]) {
    const cli_options *o = c->options;
    char gpu[64] = "", target[48] = "", threads[32] = "";
    if (kernels_gpu_backend(o))
        snprintf(gpu, sizeof gpu, " --backend %.8s --device %.32s", c->suite->backend, o->device ? o->device : "gpu0");
    if (o->target) snprintf(target, sizeof target, " --target %.32s", o->target);
    if (o->n_threads > 0) snprintf(threads, sizeof threads, " --threads %lld", (long long)o->n_threads);
    snprintf(out, KERNELS_FLAGS_BYTES, "%s%s%s", gpu, target, threads);
}

/* A number that no form of problem has, of low-bit products or of ops in plans, would select nothing. */
static crumb_status check_form(const cli_options *options, crumb_error *err) {
    const size_t n = kernels_n_forms > KERNELS_N_SCALES ? kernels_n_forms : KERNELS_N_SCALES;
    if ((uint64_t)options->kernel_form <= n) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "--form %lld: there are forms 1 to %zu, and 0 for all",
                      (long long)options->kernel_form, n);
}

crumb_status kernels_choose(const cli_options *options, int n_threads, const kernels_shape *standard_shapes,
                            size_t n_standard_shapes, const uint32_t *standard_groups, size_t n_standard_groups,
                            kernels_choice *out, crumb_error *err) {
    *out = (kernels_choice){.options = options};
    CRUMB_TRY(check_form(options, err));
    CRUMB_TRY(choose_formats(out, err));
    for (size_t i = 0; i < options->kernel_shapes.n; i++)
        CRUMB_TRY(parse_shape(options->kernel_shapes.value[i], &out->shapes[out->n_shapes++], err));
    for (size_t i = 0; options->kernel_shapes.n == 0 && i < n_standard_shapes; i++)
        out->shapes[out->n_shapes++] = standard_shapes[i];
    for (size_t i = 0; i < options->kernel_groups.n; i++)
        out->groups[out->n_groups++] = (uint32_t)options->kernel_groups.value[i];
    for (size_t i = 0; options->kernel_groups.n == 0 && i < n_standard_groups; i++)
        out->groups[out->n_groups++] = standard_groups[i];
    return open_machine(options, n_threads, out, err);
}

crumb_status kernels_check_tier(const kernels_choice *c, crumb_error *err) {
    char device[96], target[32], source[20];
    c->suite->identify(c->machine, device, target, source);
    if (kernels_gpu_backend(c->options) || !c->target || strcmp(c->target, target) == 0) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_DEVICE, "--target %s: this processor cannot run it; its best is %s",
                      c->options->target, target);
}

/* Whether a row has whole groups of that size; `padded`: or has them with zeros behind it. */
static bool goes_with(uint32_t group, uint32_t k, bool padded) {
    return crumb_problem_fits(&(crumb_kernel_problem){.k = k, .group = group}) &&
           (padded || group == 0 || k % group == 0);
}

crumb_status kernels_check_groups(const kernels_choice *c, bool padded, crumb_error *err) {
    size_t of_group[CLI_LIST_MAX] = {0}, of_shape[CLI_LIST_MAX] = {0};
    for (size_t g = 0; g < c->n_groups; g++)
        for (size_t s = 0; s < c->n_shapes; s++) {
            const bool fit = goes_with(c->groups[g], c->shapes[s].k, padded);
            of_group[g] += fit;
            of_shape[s] += fit;
        }
    for (size_t g = 0; g < c->n_groups; g++)
        for (size_t s = 0; s < c->n_shapes; s++)
            if ((c->options->kernel_groups.n && !of_group[g]) || (c->options->kernel_shapes.n && !of_shape[s]))
                return crumb_problem_refuse(&(crumb_kernel_problem){.k = c->shapes[s].k, .group = c->groups[g]}, err);
    return CRUMB_OK;
}

static bool has_format(const kernels_choice *c, const crumb_kernel_info *info) {
    if (c->options->kernel_bits.n == 0) return true;
    for (size_t i = 0; i < c->n_formats; i++)
        if (info->bits == c->formats[i]->bits && info->codebook == (c->formats[i]->codebook != NULL)) return true;
    return false;
}

/* --target says: "dpas", of a GPU perhaps with what plans are to have besides: "dpas+bf16". */
static bool has_target(const kernels_choice *c, const crumb_kernel_info *info) {
    const size_t n = c->target ? strcspn(c->target, "+") : 0;
    if (!c->target) return true;
    if (strstr(c->target, "+bf16") && !info->bf16) return false;
    return strlen(info->target) == n && strncmp(c->target, info->target, n) == 0;
}

bool kernels_selected(const kernels_choice *c, const crumb_kernel_info *info) {
    const cli_options *o = c->options;
    if (o->kernel_op && strcmp(o->kernel_op, info->op) != 0) return false;
    if (!has_target(c, info)) return false;
    if (o->kernel_filter && !strstr(info->name, o->kernel_filter)) return false;
    if (o->kernel_filter && info->bf16 && !strstr(o->kernel_filter, "bf16")) return false; /* another's, but for bf16 */
    return has_format(c, info);
}

bool kernels_timed(const kernels_choice *c, const crumb_kernel_info *info) {
    return info->available && (!info->bf16 || info->eligible || c->options->kernel_filter) && kernels_selected(c, info);
}

/* Models trained with few bits have one activation scale per row, others one per weight group. */
static crumb_act_quant activation(const cli_options *o, const crumb_kernel_format *format) {
    if (strcmp(o->activation, "row") == 0) return CRUMB_ACT_ROW;
    if (strcmp(o->activation, "group") == 0) return CRUMB_ACT_GROUP;
    if (strcmp(o->activation, "float") == 0) return CRUMB_ACT_F32;
    return format->bits <= 2 ? CRUMB_ACT_ROW : CRUMB_ACT_GROUP;
}

crumb_kernel_problem kernels_problem(const kernels_choice *c, const crumb_kernel_info *info,
                                     const crumb_kernel_format *format, uint32_t group, kernels_shape shape) {
    crumb_kernel_problem p = {.format = format,
                              .m = shape.m,
                              .k = shape.k,
                              .n = shape.n,
                              .group = group,
                              .act = activation(c->options, format)};
    if (info->acts == 1u << CRUMB_ACT_F32) p.act = CRUMB_ACT_F32;
    return p;
}

const char *kernels_weights_name(const crumb_kernel_info *info, char buffer[16]) {
    if (info->bits == 0 && strcmp(info->layout, "dense") != 0) return "-";
    if (info->bits == 0 && info->in_plans && info->dense_type == CRUMB_TYPE_F32) return "dense";
    if (info->bits == 0) return crumb_type_get_info(info->dense_type)->name;
    snprintf(buffer, 16, "%s%u", info->codebook ? "c" : "u", info->bits);
    return buffer;
}

/* ---- list -------------------------------------------------------------------------------------------------- */

static cJSON *kernel_json(const crumb_kernel_info *info) {
    char buffer[16];
    cJSON *entry = cJSON_CreateObject();
    json_add_text(entry, "name", info->name);
    json_add_text(entry, "op", info->op);
    json_add_text(entry, "weights", kernels_weights_name(info, buffer));
    json_add_text(entry, "layout", info->layout);
    json_add_text(entry, "isa", info->target);
    cJSON_AddItemToObject(entry, "rank", json_i64(info->rank));
    cJSON_AddBoolToObject(entry, "runs_here", info->available);
    json_add_text(entry, "why_not", info->why_not);
    json_add_text(entry, "bound", info->bound);
    json_add_real(entry, "max_nmse", info->max_nmse);
    return entry;
}

static void print_kernel(const crumb_kernel_info *info) {
    char buffer[16];
    cli_print("%-28s %-9s %-7s %-11s %-5s %-5d %-30s %s\n", info->name, info->op, kernels_weights_name(info, buffer),
              info->target, info->available ? "yes" : "no", info->rank, info->layout, info->bound);
}

static crumb_status list(const kernels_choice *c, crumb_error *err) {
    cJSON *document = c->options->json ? json_document() : NULL;
    cJSON *entries = document ? cJSON_AddArrayToObject(document, "kernels") : NULL;
    if (!document)
        cli_print("%-28s %-9s %-7s %-11s %-5s %-5s %-30s %s\n", "name", "op", "weights", "isa", "here", "rank",
                  "layout", "bound");
    for (size_t i = 0; i < c->suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(c, i);
        if (!kernels_selected(c, &info)) continue;
        if (document)
            cJSON_AddItemToArray(entries, kernel_json(&info));
        else
            print_kernel(&info);
    }
    return document ? json_print(document, false, "\n", err) : CRUMB_OK;
}

/* ---- the subcommand ---------------------------------------------------------------------------------------- */

/* Also without a device: then none of a backend's kernels runs here. */
static int kernels_list(const cli_options *options) {
    crumb_error err = {0};
    kernels_choice c;
    crumb_status status = kernels_choose(options, (int)options->n_threads, NULL, 0, NULL, 0, &c, &err);
    if (status == CRUMB_ERR_DEVICE && c.suite) {
        cli_note("%s", err.message);
        status = CRUMB_OK;
    }
    if (status == CRUMB_OK) status = list(&c, &err);
    kernels_release(&c);
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}

int cli_kernels(const cli_options *options) {
    static const struct {
        const char *name;
        int (*run)(const cli_options *options);
    } actions[] = {
        {"list", kernels_list}, {"support", kernels_support}, {"test", kernels_test}, {"perf", kernels_perf}};
    const char *wanted = options->plain.n == 1 ? options->plain.value[0] : "";
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (strcmp(actions[i].name, wanted) == 0) return actions[i].run(options);
    cli_error("usage: crumb kernels list|support|test|perf [options]");
    return CLI_EXIT_USAGE;
}
