/* crumb kernels list: the rows of the kernel registry. */
#include "cpu/kernels.h"
#include "tools/crumb/json_util.h"

#include <string.h>

/* What the weights are: "u2", or the dense type's name. */
static const char *weights_name(const crumb_cpu_kernel *k, char buffer[16]) {
    if (k->bits == 0) return crumb_type_get_info(k->dense_type)->name;
    snprintf(buffer, 16, "u%u", k->bits);
    return buffer;
}

static const char *op_name(const crumb_cpu_kernel *k) {
    return k->op == CRUMB_CPU_GEMV ? "gemv" : "gemm";
}

static crumb_status print_json(const crumb_cpu_kernel *kernels, size_t n, crumb_error *err) {
    cJSON *document = json_document(), *list = cJSON_AddArrayToObject(document, "kernels");
    for (size_t i = 0; i < n; i++) {
        char buffer[16];
        cJSON *entry = cJSON_CreateObject();
        json_add_text(entry, "name", kernels[i].name);
        json_add_text(entry, "op", op_name(&kernels[i]));
        json_add_text(entry, "weights", weights_name(&kernels[i], buffer));
        json_add_text(entry, "isa", crumb_isa_name(kernels[i].isa));
        json_add_u64(entry, "rank", (uint64_t)kernels[i].rank);
        cJSON_AddBoolToObject(entry, "runs_here", crumb_isa_available(kernels[i].isa));
        json_add_text(entry, "bound", kernels[i].bound);
        cJSON_AddItemToArray(list, entry);
    }
    return json_print(document, false, "\n", err);
}

int cli_kernels(const cli_options *options) {
    crumb_error err = {0};
    size_t n;
    const crumb_cpu_kernel *kernels = crumb_cpu_kernels(&n);
    if (options->plain.n != 1 || strcmp(options->plain.value[0], "list") != 0) {
        cli_error("usage: crumb kernels list");
        return CLI_EXIT_USAGE;
    }
    if (options->json) return print_json(kernels, n, &err) == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
    cli_print("%-32s %-5s %-8s %-11s %-5s %s\n", "name", "op", "weights", "isa", "here", "bound");
    for (size_t i = 0; i < n; i++) {
        char buffer[16];
        const char *here = crumb_isa_available(kernels[i].isa) ? "yes" : "no";
        cli_print("%-32s %-5s %-8s %-11s %-5s %s\n", kernels[i].name, op_name(&kernels[i]),
                  weights_name(&kernels[i], buffer), crumb_isa_name(kernels[i].isa), here,
                  kernels[i].bound ? kernels[i].bound : "");
    }
    return CLI_EXIT_OK;
}
