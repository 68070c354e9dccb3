/* The CPU's kernels for `crumb kernels` and `crumb tune`. */
#ifndef CRUMB_CPU_SUITE_H
#define CRUMB_CPU_SUITE_H

#include "cpu/trial.h"
#include "host/kernel/suite.h"

extern const crumb_kernel_suite crumb_kernel_suite_cpu;

/* What its parts share (suite.c): a kernel's row, the trial that a problem is, whether its groups divide its K. */
const crumb_cpu_kernel *crumb_suite_row(size_t kernel);
crumb_trial_params crumb_suite_trial(const crumb_kernel_problem *problem);
bool crumb_suite_fits(const crumb_kernel_problem *problem);

/* Its entries in suite_check.c ... */
crumb_status crumb_suite_check(size_t kernel, const char *knobs, const crumb_kernel_problem *problem, uint64_t seed,
                               bool extreme, crumb_kernel_check *out, crumb_error *err);
crumb_status crumb_suite_error(size_t kernel, const crumb_kernel_problem *problem, uint64_t seed, double *nmse,
                               crumb_error *err);

/* ... and in suite_bench.c. */
crumb_status crumb_suite_machine_create(int n_threads, crumb_kernel_machine **out, crumb_error *err);
void crumb_suite_machine_destroy(crumb_kernel_machine *machine);
int crumb_suite_machine_threads(const crumb_kernel_machine *machine);
void crumb_suite_machine_roofs(crumb_kernel_machine *machine, size_t kernel, crumb_kernel_roofs *out);
crumb_status crumb_suite_bench_create(crumb_kernel_machine *machine, const crumb_kernel_problem *problem,
                                      crumb_kernel_bench **out, crumb_error *err);
void crumb_suite_bench_destroy(crumb_kernel_bench *bench);
crumb_status crumb_suite_bench_run(crumb_kernel_bench *bench, size_t kernel, const char *knobs, bool cold, double *ns,
                                   crumb_error *err);
crumb_status crumb_suite_bench_run_near(crumb_kernel_bench *bench, size_t kernel, double *ns, double *share,
                                        crumb_error *err);
uint64_t crumb_suite_bench_bytes(const crumb_kernel_bench *bench, size_t kernel);

#endif
