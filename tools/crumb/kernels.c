/* crumb kernels: what the options select, and the listings. */
#include "tools/crumb/kernels.h"

#include "cpu/suite.h"
#include "tools/crumb/json_util.h"

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

crumb_status kernels_choose(const cli_options *options, const kernels_shape *standard_shapes, size_t n_standard_shapes,
                            const uint32_t *standard_groups, size_t n_standard_groups, kernels_choice *out,
                            crumb_error *err) {
    *out = (kernels_choice){.suite = &crumb_kernel_suite_cpu, .options = options};
    CRUMB_TRY(choose_formats(out, err));
    for (size_t i = 0; i < options->kernel_shapes.n; i++)
        CRUMB_TRY(parse_shape(options->kernel_shapes.value[i], &out->shapes[out->n_shapes++], err));
    for (size_t i = 0; options->kernel_shapes.n == 0 && i < n_standard_shapes; i++)
        out->shapes[out->n_shapes++] = standard_shapes[i];
    for (size_t i = 0; i < options->kernel_groups.n; i++)
        out->groups[out->n_groups++] = (uint32_t)options->kernel_groups.value[i];
    for (size_t i = 0; options->kernel_groups.n == 0 && i < n_standard_groups; i++)
        out->groups[out->n_groups++] = standard_groups[i];
    return CRUMB_OK;
}

static bool has_format(const kernels_choice *c, const crumb_kernel_info *info) {
    if (c->options->kernel_bits.n == 0) return true;
    for (size_t i = 0; i < c->n_formats; i++)
        if (info->bits == c->formats[i]->bits && info->codebook == (c->formats[i]->codebook != NULL)) return true;
    return false;
}

bool kernels_selected(const kernels_choice *c, const crumb_kernel_info *info) {
    const cli_options *o = c->options;
    const char *tier = o->target && strncmp(o->target, "cpu:", 4) == 0 ? o->target + 4 : o->target;
    if (o->kernel_op && strcmp(o->kernel_op, info->op) != 0) return false;
    if (tier && strcmp(tier, "cpu") != 0 && strcmp(tier, info->target) != 0) return false;
    if (o->kernel_filter && !strstr(info->name, o->kernel_filter)) return false;
    return has_format(c, info);
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
    json_add_text(entry, "bound", info->bound);
    json_add_real(entry, "max_nmse", info->max_nmse);
    return entry;
}

static int list(const cli_options *options) {
    crumb_error err = {0};
    kernels_choice c;
    if (kernels_choose(options, NULL, 0, NULL, 0, &c, &err) != CRUMB_OK) return cli_fail(&err);
    cJSON *document = options->json ? json_document() : NULL;
    cJSON *entries = document ? cJSON_AddArrayToObject(document, "kernels") : NULL;
    if (!document)
        cli_print("%-28s %-5s %-7s %-11s %-5s %-5s %-30s %s\n", "name", "op", "weights", "isa", "here", "rank",
                  "layout", "bound");
    for (size_t i = 0; i < c.suite->n_kernels(); i++) {
        const crumb_kernel_info info = c.suite->info(i);
        char buffer[16];
        if (!kernels_selected(&c, &info)) continue;
        if (document)
            cJSON_AddItemToArray(entries, kernel_json(&info));
        else
            cli_print("%-28s %-5s %-7s %-11s %-5s %-5d %-30s %s\n", info.name, info.op,
                      kernels_weights_name(&info, buffer), info.target, info.available ? "yes" : "no", info.rank,
                      info.layout, info.bound);
    }
    if (!document) return CLI_EXIT_OK;
    return json_print(document, false, "\n", &err) == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}

/* ---- support ----------------------------------------------------------------------------------------------- */

/* What a plan takes when nothing is tuned. */
static const char *chosen(const kernels_choice *c, const crumb_kernel_format *format, uint32_t n) {
    const crumb_kernel_info any = {.acts = 0};
    const crumb_kernel_problem p = kernels_problem(c, &any, format, 32, (kernels_shape){16, 256, n});
    size_t kernel = c->suite->chosen(&p);
    return kernel == SIZE_MAX ? "none" : c->suite->info(kernel).name;
}

static int support(const cli_options *options) {
    static const uint32_t batches[] = {1, 4, 512};
    enum { N_BATCHES = sizeof batches / sizeof batches[0] };
    crumb_error err = {0};
    kernels_choice c;
    if (kernels_choose(options, NULL, 0, NULL, 0, &c, &err) != CRUMB_OK) return cli_fail(&err);
    size_t here = 0, n = c.suite->n_kernels();
    for (size_t i = 0; i < n; i++) here += c.suite->info(i).available;
    cJSON *document = options->json ? json_document() : NULL;
    cJSON *entries = document ? cJSON_AddArrayToObject(document, "formats") : NULL;
    if (document) {
        json_add_text(document, "device", cli_cpu_name());
        json_add_u64(document, "kernels", n);
        json_add_u64(document, "kernels_here", here);
    } else {
        cli_print("cpu: %s\n%zu of %zu kernels run here.\n\n%-8s %-24s %-24s %s\n", cli_cpu_name(), here, n, "bits",
                  "1 row", "4 rows", "512 rows");
    }
    for (size_t f = 0; f < c.n_formats; f++) {
        const char *names[N_BATCHES];
        for (size_t b = 0; b < N_BATCHES; b++) names[b] = chosen(&c, c.formats[f], batches[b]);
        if (!document) {
            cli_print("%-8s %-24s %-24s %s\n", c.formats[f]->name, names[0], names[1], names[2]);
            continue;
        }
        cJSON *entry = cJSON_CreateObject();
        json_add_text(entry, "bits", c.formats[f]->name);
        json_add_text(entry, "rows_1", names[0]);
        json_add_text(entry, "rows_4", names[1]);
        json_add_text(entry, "rows_512", names[2]);
        cJSON_AddItemToArray(entries, entry);
    }
    if (!document) return CLI_EXIT_OK;
    return json_print(document, false, "\n", &err) == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}

int cli_kernels(const cli_options *options) {
    static const struct {
        const char *name;
        int (*run)(const cli_options *options);
    } actions[] = {{"list", list}, {"support", support}, {"test", kernels_test}, {"perf", kernels_perf}};
    const char *wanted = options->plain.n == 1 ? options->plain.value[0] : "";
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (strcmp(actions[i].name, wanted) == 0) return actions[i].run(options);
    cli_error("usage: crumb kernels list|support|test|perf [options]");
    return CLI_EXIT_USAGE;
}
