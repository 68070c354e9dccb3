/* crumb kernels: which kernels and problems the options select. */
#ifndef CRUMB_TOOLS_KERNELS_H
#define CRUMB_TOOLS_KERNELS_H

#include "host/kernel/suite.h"
#include "tools/crumb/cli.h"

typedef struct kernels_shape {
    uint32_t m, k, n;
} kernels_shape;

/* The lists that --bits, --group and --shape give, or what a subcommand takes without them. */
typedef struct kernels_choice {
    const crumb_kernel_suite *suite;
    const cli_options *options;
    const crumb_kernel_format *formats[CLI_LIST_MAX];
    kernels_shape shapes[CLI_LIST_MAX];
    uint32_t groups[CLI_LIST_MAX];
    size_t n_formats, n_shapes, n_groups;
} kernels_choice;

/* Fails with ARGUMENT, naming the option. */
crumb_status kernels_choose(const cli_options *options, const kernels_shape *standard_shapes, size_t n_standard_shapes,
                            const uint32_t *standard_groups, size_t n_standard_groups, kernels_choice *out,
                            crumb_error *err);
/* By --op, --target, --filter and, where --bits is given, by format; not by problem. */
bool kernels_selected(const kernels_choice *choice, const crumb_kernel_info *info);
/* The problem as this kernel takes it: kernels that read floats get CRUMB_ACT_F32. */
crumb_kernel_problem kernels_problem(const kernels_choice *choice, const crumb_kernel_info *info,
                                     const crumb_kernel_format *format, uint32_t group, kernels_shape shape);
/* "u2", "c4", or the dense type's name. */
const char *kernels_weights_name(const crumb_kernel_info *info, char buffer[16]);

int kernels_test(const cli_options *options); /* kernels_test.c */
int kernels_perf(const cli_options *options); /* kernels_perf.c */

#endif
