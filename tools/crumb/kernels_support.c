/* crumb kernels support: how many kernels run here, why the others do not, and which a plan takes. */
#include "tools/crumb/json_util.h"
#include "tools/crumb/kernels.h"

#include <string.h>

static const kernels_shape standard_shapes[] = {{1024, 4096, 1}, {1024, 4096, 4}, {1024, 4096, 512}};
enum { MAX_REASONS = 32 };

/* Kernels that do not run here, by the reason. */
typedef struct reasons {
    char text[MAX_REASONS][96];
    size_t count[MAX_REASONS], n, n_here;
} reasons;

static void count_reasons(const kernels_choice *c, reasons *out) {
    *out = (reasons){.n = 0};
    for (size_t i = 0; i < c->suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(c, i);
        size_t r = 0;
        out->n_here += info.available;
        if (info.available) continue;
        while (r < out->n && strcmp(out->text[r], info.why_not) != 0) r++;
        if (r == MAX_REASONS) continue;
        if (r == out->n) snprintf(out->text[out->n++], sizeof out->text[0], "%s", info.why_not);
        out->count[r]++;
    }
}

/* What a plan takes when nothing is tuned. */
static const char *chosen(const kernels_choice *c, const crumb_kernel_format *format, uint32_t group,
                          kernels_shape shape) {
    const crumb_kernel_info any = {.acts = 0};
    const crumb_kernel_problem p = kernels_problem(c, &any, format, group, shape);
    const size_t kernel = kernels_chosen(c, &p);
    return kernel == SIZE_MAX ? "none" : kernels_info(c, kernel).name;
}

/* Calls it for each format with each --group, or with the one that files of the format have. */
static void each_row(const kernels_choice *c,
                     void (*row)(const kernels_choice *c, const crumb_kernel_format *f, uint32_t group, cJSON *to),
                     cJSON *to) {
    for (size_t f = 0; f < c->n_formats; f++) {
        for (size_t g = 0; g < c->n_groups; g++) row(c, c->formats[f], c->groups[g], to);
        if (c->n_groups == 0) row(c, c->formats[f], c->formats[f]->group, to);
    }
}

static void add_row(const kernels_choice *c, const crumb_kernel_format *f, uint32_t group, cJSON *to) {
    cJSON *entry = cJSON_CreateObject(), *kernels = cJSON_AddArrayToObject(entry, "chosen");
    json_add_text(entry, "bits", f->name);
    json_add_u64(entry, "group", group);
    for (size_t s = 0; s < c->n_shapes; s++) {
        cJSON *one = cJSON_CreateObject();
        json_add_u64(one, "m", c->shapes[s].m);
        json_add_u64(one, "k", c->shapes[s].k);
        json_add_u64(one, "n", c->shapes[s].n);
        json_add_text(one, "kernel", chosen(c, f, group, c->shapes[s]));
        cJSON_AddItemToArray(kernels, one);
    }
    cJSON_AddItemToArray(to, entry);
}

static void print_row(const kernels_choice *c, const crumb_kernel_format *f, uint32_t group, cJSON *to) {
    char scales[16] = "row";
    (void)to;
    if (group) snprintf(scales, sizeof scales, "%u", group);
    cli_print("%-8s %-10s", f->name, scales);
    for (size_t s = 0; s < c->n_shapes; s++)
        cli_print(s + 1 < c->n_shapes ? " %-28s" : " %s\n", chosen(c, f, group, c->shapes[s]));
}

static crumb_status support_json(const kernels_choice *c, const reasons *r, const char *device, crumb_error *err) {
    cJSON *document = json_document(), *missing = cJSON_AddArrayToObject(document, "missing");
    json_add_text(document, "device", device);
    json_add_u64(document, "kernels", c->suite->n_kernels());
    json_add_u64(document, "kernels_here", r->n_here);
    for (size_t i = 0; i < r->n; i++) {
        cJSON *entry = cJSON_CreateObject();
        json_add_text(entry, "why_not", r->text[i]);
        json_add_u64(entry, "kernels", r->count[i]);
        cJSON_AddItemToArray(missing, entry);
    }
    each_row(c, add_row, cJSON_AddArrayToObject(document, "formats"));
    return json_print(document, false, "\n", err);
}

static crumb_status support(const kernels_choice *c, crumb_error *err) {
    char device[160];
    reasons r;
    count_reasons(c, &r);
    kernels_device_name(c, device);
    if (c->options->json) return support_json(c, &r, device, err);
    cli_print("%s: %s\n%zu of %zu kernels run here.\n", c->suite->backend, device, r.n_here, c->suite->n_kernels());
    for (size_t i = 0; i < r.n; i++) cli_print("%6zu do not: %s\n", r.count[i], r.text[i]);
    cli_print("\nWhat a plan takes when nothing is tuned, for outputs x inputs x rows of activations:\n%-8s %-10s",
              "bits", "scales per");
    for (size_t s = 0; s < c->n_shapes; s++) {
        char shape[40];
        snprintf(shape, sizeof shape, "%ux%ux%u", c->shapes[s].m, c->shapes[s].k, c->shapes[s].n);
        cli_print(s + 1 < c->n_shapes ? " %-28s" : " %s\n", shape);
    }
    each_row(c, print_row, NULL);
    return CRUMB_OK;
}

int kernels_support(const cli_options *options) {
    crumb_error err = {0};
    kernels_choice c;
    crumb_status status = kernels_choose(options, (int)options->n_threads, standard_shapes,
                                         sizeof standard_shapes / sizeof *standard_shapes, NULL, 0, &c, &err);
    if (status == CRUMB_OK) status = kernels_check_tier(&c, &err);
    if (status == CRUMB_OK) status = kernels_check_groups(&c, false, &err);
    if (status == CRUMB_OK) status = support(&c, &err);
    kernels_release(&c);
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
