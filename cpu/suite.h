/* The CPU's kernels for `crumb kernels` and `crumb tune`. */
#ifndef CRUMB_CPU_SUITE_H
#define CRUMB_CPU_SUITE_H

#include "cpu/op_kernels.h"
#include "cpu/trial.h"
#include "host/kernel/suite.h"

extern const crumb_kernel_suite crumb_kernel_suite_cpu;

/* What its parts share (suite.c): a kernel's row, which is a product's or, behind all of these, another op's: else
 * NULL.
 */
const crumb_cpu_kernel *crumb_suite_row(size_t kernel);
const crumb_cpu_op_kernel *crumb_suite_op_row(size_t kernel);
crumb_isa crumb_suite_isa(size_t kernel);

/* The tier of the plans that a machine's kernels are chosen for; NULL: the best one. */
crumb_isa crumb_suite_tier(const crumb_kernel_machine *machine);
/* The kernel that a plan of a tier takes for a problem when nothing is tuned; SIZE_MAX: none. */
size_t crumb_suite_chosen_in(const crumb_kernel_machine *machine, crumb_isa isa, const crumb_kernel_problem *problem);
/* Whether a tier's plans find these weights in the index layout; machine NULL: one with more cores than channels. */
bool crumb_suite_indexes(const crumb_kernel_machine *machine, crumb_isa isa, const crumb_matrix *w);

/* Takes memory out of all caches, and counts it; p NULL: nothing. */
void crumb_suite_flush(crumb_kernel_machine *machine, const void *p, uint64_t n_bytes);

/* Its entries in suite_bench.c. */
crumb_status crumb_suite_machine_create(const crumb_kernel_machine_params *params, crumb_kernel_machine **out,
                                        crumb_error *err);
void crumb_suite_machine_destroy(crumb_kernel_machine *machine);
int crumb_suite_machine_threads(const crumb_kernel_machine *machine);
void crumb_suite_machine_roofs(crumb_kernel_machine *machine, size_t kernel, crumb_kernel_roofs *out);
uint32_t crumb_suite_machine_reorder(crumb_kernel_machine *machine, uint32_t *most);
uint64_t crumb_suite_machine_flushed(const crumb_kernel_machine *machine);
crumb_status crumb_suite_run(crumb_kernel_machine *machine, size_t kernel, const char *knobs, crumb_trial *trial,
                             float *y, crumb_error *err);
crumb_status crumb_suite_bench_create(crumb_kernel_machine *machine, const crumb_kernel_problem *problem,
                                      crumb_kernel_bench **out, crumb_error *err);
void crumb_suite_bench_destroy(crumb_kernel_bench *bench);
crumb_status crumb_suite_bench_run(crumb_kernel_bench *bench, size_t kernel, const char *knobs, unsigned how,
                                   double *ns, crumb_error *err);
crumb_status crumb_suite_bench_run_near(crumb_kernel_bench *bench, size_t kernel, double *ns, double *share,
                                        crumb_error *err);
void crumb_suite_setting_effect(const crumb_kernel_machine *machine, size_t kernel, const char *knobs,
                                const crumb_kernel_problem *problem, char effect[CRUMB_KNOBS_BYTES]);
crumb_status crumb_suite_bench_prepare(crumb_kernel_bench *bench, size_t kernel, double *ns, crumb_error *err);
uint64_t crumb_suite_bench_bytes(const crumb_kernel_bench *bench, size_t kernel);
/* On the machine's threads; its tier is that of the kernel last recorded. */
crumb_device *crumb_suite_device(crumb_kernel_machine *machine);

/* In suite_plans.c. */
crumb_status crumb_suite_plan_record(crumb_kernel_machine *machine, size_t kernel, const crumb_plan_desc *desc,
                                     crumb_plan **out, size_t *n_launches, crumb_error *err);
crumb_status crumb_suite_plan_time(crumb_kernel_machine *machine, size_t kernel, crumb_plan *plan,
                                   const crumb_row *rows, uint32_t n_rows, unsigned how, double *ns, crumb_error *err);

#endif
