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
    crumb_kernel_machine *machine; /* the device that the options name; NULL: it is not open */
    const char *target;            /* tier whose kernels alone are wanted, "avx2", "dp4a"; NULL: all */
    const cli_options *options;
    const crumb_kernel_format *formats[CLI_LIST_MAX];
    kernels_shape shapes[CLI_LIST_MAX];
    uint32_t groups[CLI_LIST_MAX];
    size_t n_formats, n_shapes, n_groups;
} kernels_choice;

/* Opens the device and reads the options; fails with ARGUMENT or DEVICE, naming the option. Released by the caller in
 * any case. n_threads 0: one per core. */
crumb_status kernels_choose(const cli_options *options, int n_threads, const kernels_shape *standard_shapes,
                            size_t n_standard_shapes, const uint32_t *standard_groups, size_t n_standard_groups,
                            kernels_choice *out, crumb_error *err);
void kernels_release(kernels_choice *choice);
/* Whether the options name a GPU backend: "cl"; NULL: they mean the CPU. */
const char *kernels_gpu_backend(const cli_options *options);
/* For people: "gpu0: Intel(R) ... 26.05"; the processor's name. */
void kernels_device_name(const kernels_choice *choice, char out[160]);

/* The suite's entries with the choice's machine. */
static inline crumb_kernel_info kernels_info(const kernels_choice *c, size_t kernel) {
    return c->suite->info(c->machine, kernel);
}
static inline bool kernels_takes(const kernels_choice *c, size_t kernel, const crumb_kernel_problem *problem) {
    return c->suite->takes(c->machine, kernel, problem);
}
static inline size_t kernels_chosen(const kernels_choice *c, const crumb_kernel_problem *problem) {
    return c->suite->chosen(c->machine, problem);
}

/* By --op, --target, --filter and, where --bits is given, by format; not by problem. */
bool kernels_selected(const kernels_choice *choice, const crumb_kernel_info *info);
/* The problem as this kernel takes it: kernels that read floats get CRUMB_ACT_F32. */
crumb_kernel_problem kernels_problem(const kernels_choice *choice, const crumb_kernel_info *info,
                                     const crumb_kernel_format *format, uint32_t group, kernels_shape shape);
/* "u2", "c4", or the dense type's name; "-": it has no weights. */
const char *kernels_weights_name(const crumb_kernel_info *info, char buffer[16]);

/* ---- comparison with the reference (kernels_check.c) ------------------------------------------------------- */

/* What differed. `where` reads "y[3][17] is 1.5, not 1.25"; empty when all is well. */
typedef struct kernels_check {
    bool ok;
    double nmse;
    uint64_t n_values;
    char where[160];
} kernels_check;

/* Runs a kernel on random data of the problem and compares it with the scalar reference. `extreme` reaches the bounds
 * that its row states. Fails with MEMORY or DEVICE; a wrong result is no failure but out->ok false. */
crumb_status kernels_check_run(const kernels_choice *choice, size_t kernel, const char *knobs,
                               const crumb_kernel_problem *problem, uint64_t seed, bool extreme, kernels_check *out,
                               crumb_error *err);
/* The squared error of a kernel's results, as a part of their power, against the same weights times activations in full
 * precision: what quantizing activations costs, and for the papers' kernels their tables. Random data. */
crumb_status kernels_check_error(const kernels_choice *choice, size_t kernel, const crumb_kernel_problem *problem,
                                 uint64_t seed, double *nmse, crumb_error *err);

/* ---- tests of all kernels (kernels_test.c) ------------------------------------------------------------------ */

enum { KERNELS_FAILURE_BYTES = 640 };

/* Awkward shapes and all groups, unless options say otherwise. */
crumb_status kernels_choose_tests(const cli_options *options, kernels_choice *out, crumb_error *err);
/* All problems of the choice that one kernel takes; stops at its first failure, which is then told with how to see it
 * again. *n_values 0: none of them is for it. */
crumb_status kernels_test_one(const kernels_choice *choice, size_t kernel, uint64_t seed, uint64_t *n_values,
                              char failure[KERNELS_FAILURE_BYTES], crumb_error *err);

/* ---- subcommands ------------------------------------------------------------------------------------------- */

int kernels_test(const cli_options *options); /* kernels_test.c */
int kernels_perf(const cli_options *options); /* kernels_perf.c */

#endif
