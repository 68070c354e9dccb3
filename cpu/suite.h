/* The CPU's kernels for `crumb kernels` and `crumb tune`. */
#ifndef CRUMB_CPU_SUITE_H
#define CRUMB_CPU_SUITE_H

#include "cpu/trial.h"
#include "host/kernel/suite.h"

extern const crumb_kernel_suite crumb_kernel_suite_cpu;

/* What its parts share (suite.c): a kernel's row. */
const crumb_cpu_kernel *crumb_suite_row(size_t kernel);

/* Its entries in suite_bench.c. */
crumb_status crumb_suite_machine_create(const crumb_kernel_machine_params *params, crumb_kernel_machine **out,
                                        crumb_error *err);
void crumb_suite_machine_destroy(crumb_kernel_machine *machine);
int crumb_suite_machine_threads(const crumb_kernel_machine *machine);
void crumb_suite_machine_roofs(crumb_kernel_machine *machine, size_t kernel, crumb_kernel_roofs *out);
crumb_status crumb_suite_run(crumb_kernel_machine *machine, size_t kernel, const char *knobs, crumb_trial *trial,
                             float *y, crumb_error *err);
crumb_status crumb_suite_bench_create(crumb_kernel_machine *machine, const crumb_kernel_problem *problem,
                                      crumb_kernel_bench **out, crumb_error *err);
void crumb_suite_bench_destroy(crumb_kernel_bench *bench);
crumb_status crumb_suite_bench_run(crumb_kernel_bench *bench, size_t kernel, const char *knobs, unsigned how,
                                   double *ns, crumb_error *err);
crumb_status crumb_suite_bench_run_near(crumb_kernel_bench *bench, size_t kernel, double *ns, double *share,
                                        crumb_error *err);
uint64_t crumb_suite_bench_bytes(const crumb_kernel_bench *bench, size_t kernel);

#endif
