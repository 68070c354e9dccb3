/* crumb kernels: which kernels and problems the options select. */
#ifndef CRUMB_TOOLS_KERNELS_H
#define CRUMB_TOOLS_KERNELS_H

#include "host/kernel/suite.h"
#include "host/kernel/trial.h"
#include "tools/crumb/cli.h"

typedef struct kernels_shape {
    uint32_t m, k, n;
} kernels_shape;

enum { KERNELS_FLAGS_BYTES = 160 };

/* The lists that --bits, --group and --shape give, or what a subcommand takes without them. */
typedef struct kernels_choice {
    const crumb_kernel_suite *suite;
    const crumb_backend *backend;  /* the suite's, where kernels run in plans of it; else NULL */
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
/* Fails with DEVICE where --target names a tier of the CPU that does not run here, and plans would be another one's. */
crumb_status kernels_check_tier(const kernels_choice *choice, crumb_error *err);
/* Fails with ARGUMENT where a --group goes with none of the shapes, or a --shape with none of the groups. `padded`:
 * groups that a row has only with zeros behind it, as kernels get it, do. */
crumb_status kernels_check_groups(const kernels_choice *choice, bool padded, crumb_error *err);
/* The options that name the same device, tier and threads again, with a space in front; empty for the CPU by default.
 */
void kernels_machine_flags(const kernels_choice *c, char out[KERNELS_FLAGS_BYTES]);
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

/* By --op, --target, --filter and, where --bits is given, by format; not by problem. A filter finds kernels for values
 * in bf16 where it says bf16. */
bool kernels_selected(const kernels_choice *choice, const crumb_kernel_info *info);
/* And runs here, and, unless a filter names it, computes with values as the device's plans have them. */
bool kernels_timed(const kernels_choice *choice, const crumb_kernel_info *info);
/* The problem as this kernel takes it: kernels that read floats get CRUMB_ACT_F32. */
crumb_kernel_problem kernels_problem(const kernels_choice *choice, const crumb_kernel_info *info,
                                     const crumb_kernel_format *format, uint32_t group, kernels_shape shape);
/* "u2", "c4", or the dense type's name, "dense" for any; "-": it has no weights, or they are of no importance. */
const char *kernels_weights_name(const crumb_kernel_info *info, char buffer[16]);

/* ---- comparison with the reference (kernels_check.c) ------------------------------------------------------- */

/* What differed. `where` reads "y[3][17] is 1.5, not 1.25"; empty when all is well. */
typedef struct kernels_check {
    bool ok;
    double nmse;
    uint64_t n_values;
    char where[160];
} kernels_check;

/* Forms of scales, as files have them: in f16, in f32, or in two levels; and the same with mins. For people from 1. */
enum {
    KERNELS_SCALES_F16,
    KERNELS_SCALES_F32,
    KERNELS_SCALES_TWO_LEVELS,
    KERNELS_SCALES_WITH_MINS, /* added to one of those before */
    KERNELS_N_SCALES = 2 * KERNELS_SCALES_WITH_MINS
};

/* Whether weights of a problem can have that form, and the kernel takes them so: codebooks have no mins, and two levels
 * are for groups that make up 256 weights. */
bool kernels_check_takes(const kernels_choice *choice, size_t kernel, const crumb_kernel_problem *problem,
                         unsigned scales);
/* Any number's form, all that fit in turn. */
unsigned kernels_check_scales(const kernels_choice *choice, size_t kernel, const crumb_kernel_problem *problem,
                              uint64_t number);

/* A problem's random data, and what the scalar reference makes of them. */
typedef struct kernels_sample_params {
    const crumb_kernel_problem *problem;
    unsigned scales; /* of a form that fits */
    uint64_t seed;
    bool extreme;   /* they reach the bounds that kernels state */
    bool quantized; /* the int8 activations are those that the floats become: some settings make a kernel quantize */
    bool bf16;      /* for kernels of that */
} kernels_sample_params;

typedef struct kernels_sample {
    crumb_trial trial;
    float *expected; /* [n_values], and as many for what kernels compute */
    uint64_t n_values;
} kernels_sample;

/* Fails with MEMORY. Destroyed by the caller in any case. */
crumb_status kernels_sample_create(const kernels_sample_params *sample, kernels_sample *out, crumb_error *err);
void kernels_sample_destroy(kernels_sample *sample);
/* Compares what a kernel computes with what is expected. Fails with MEMORY or DEVICE; a wrong result is no failure but
 * out->ok false. */
crumb_status kernels_check_sample(const kernels_choice *choice, size_t kernel, const char *knobs,
                                  kernels_sample *sample, kernels_check *out, crumb_error *err);
/* The same with a sample for this kernel alone. */
crumb_status kernels_check_run(const kernels_choice *choice, size_t kernel, const char *knobs,
                               const crumb_kernel_problem *problem, unsigned scales, uint64_t seed, bool extreme,
                               kernels_check *out, crumb_error *err);
/* The squared error of a kernel's results, as a part of their power. */
typedef struct kernels_error {
    double of_codes;   /* against the same codes and scales times activations in full precision: what quantizing
                        * activations costs, and for the papers' kernels their tables */
    double of_weights; /* against the weights that the codes were rounded from: with what rounding them costs */
} kernels_error;
/* On random weights and activations of a normal distribution. */
crumb_status kernels_check_error(const kernels_choice *choice, size_t kernel, const crumb_kernel_problem *problem,
                                 uint64_t seed, kernels_error *out, crumb_error *err);

/* ---- kernels that run in plans (kernels_plans.c) ----------------------------------------------------------- */

enum { KERNELS_FAILURE_BYTES = 640 };

/* As kernels_test_one, for a kernel that is in_plans. */
crumb_status kernels_plans_test(const kernels_choice *choice, size_t kernel, uint64_t seed, uint64_t *n_values,
                                char failure[KERNELS_FAILURE_BYTES], crumb_error *err);

/* What a kernel takes for an op of a model's size, beside what the machine can do in the same seconds. */
typedef struct kernels_plans_time {
    crumb_kernel_info info;
    char problem[64]; /* "F16 8192 x 2048, 1 row" */
    uint32_t m, k, n;
    double ns; /* median */
    uint64_t
        n_bytes; /* of weights, keys and values, and activations: they may come from a cache; 0: others move them */
    double gb_s, gflops; /* 0 likewise */
    double read_gb_s;    /* 0: unknown */
    double peak_gops;    /* int8's, of kernels with such products; 0: none, or unknown */
    bool cold;           /* nothing of what it reads was in a cache */
    uint64_t cold_bytes; /* that were taken out of caches before a run: the least of all rounds */
    double warm_ns;      /* where it was cold: what it takes when that is not so; 0: not asked */
    const char *limit;   /* "bandwidth", "compute", "port", "latency"; "-": nothing says */
} kernels_plans_time;
typedef void kernels_plans_time_fn(void *user, const kernels_plans_time *time);

/* Times such a kernel on all forms that it takes. Fails with DEVICE where the device tells no times. */
crumb_status kernels_plans_perf(const kernels_choice *choice, size_t kernel, kernels_plans_time_fn *emit, void *user,
                                crumb_error *err);

/* ---- tests of all kernels (kernels_test.c) ------------------------------------------------------------------ */

/* Awkward shapes and all groups, unless options say otherwise. */
crumb_status kernels_choose_tests(const cli_options *options, kernels_choice *out, crumb_error *err);
/* Whether a kernel can be run: those of dense weights on the CPU have tests of their own. */
bool kernels_can_test(const crumb_kernel_info *info);
/* All problems of the choice that one kernel takes, which between them have activations of each kind and scales of each
 * form that it takes; stops at its first failure, which is then told with how to see it again. *n_values 0: none of
 * them is for it. */
crumb_status kernels_test_one(const kernels_choice *choice, size_t kernel, uint64_t seed, uint64_t *n_values,
                              char failure[KERNELS_FAILURE_BYTES], crumb_error *err);

/* ---- subcommands ------------------------------------------------------------------------------------------- */

int kernels_support(const cli_options *options); /* kernels_support.c */
int kernels_test(const cli_options *options);    /* kernels_test.c */
int kernels_perf(const cli_options *options);    /* kernels_perf.c */

#endif
