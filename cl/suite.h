/* The OpenCL kernels for `crumb kernels` and `crumb tune`: those of linear layers with weights in tiles run one by one,
 * the others in plans of an op. */
#ifndef CRUMB_CL_SUITE_H
#define CRUMB_CL_SUITE_H

#include "cl/device.h"
#include "cl/probe.h"
#include "host/kernel/suite.h"

extern const crumb_kernel_suite crumb_kernel_suite_cl;

struct crumb_kernel_machine {
    crumb_device *d;       /* its ladder is what plans use */
    crumb_cl_target most;  /* all that its kernels could use */
    crumb_cl_probe *probe; /* NULL until something is measured */
};

/* What its parts share. suite.c: a kernel's row. suite_bench.c: the machine's entries, and the bench's. */
const crumb_cl_kernel *crumb_cl_suite_row(size_t kernel);
crumb_status crumb_cl_suite_machine_create(const crumb_kernel_machine_params *params, crumb_kernel_machine **out,
                                           crumb_error *err);
void crumb_cl_suite_machine_destroy(crumb_kernel_machine *machine);
void crumb_cl_suite_machine_roofs(crumb_kernel_machine *machine, size_t kernel, crumb_kernel_roofs *out);
uint64_t crumb_cl_suite_machine_flushed(const crumb_kernel_machine *machine);
crumb_status crumb_cl_suite_run(crumb_kernel_machine *machine, size_t kernel, const char *knobs, crumb_trial *trial,
                                float *y, crumb_error *err);
crumb_status crumb_cl_suite_bench_create(crumb_kernel_machine *machine, const crumb_kernel_problem *problem,
                                         crumb_kernel_bench **out, crumb_error *err);
void crumb_cl_suite_bench_destroy(crumb_kernel_bench *bench);
crumb_status crumb_cl_suite_bench_run(crumb_kernel_bench *bench, size_t kernel, const char *knobs, unsigned how,
                                      double *ns, crumb_error *err);
uint64_t crumb_cl_suite_bench_bytes(const crumb_kernel_bench *bench, size_t kernel);
/* suite_plan.c: kernels of other ops. */
crumb_status crumb_cl_suite_plan_record(crumb_kernel_machine *machine, size_t kernel, const crumb_plan_desc *desc,
                                        crumb_plan **out, size_t *n_launches, crumb_error *err);
crumb_status crumb_cl_suite_plan_time(crumb_kernel_machine *machine, size_t kernel, crumb_plan *plan,
                                      const crumb_row *rows, uint32_t n_rows, unsigned how, double *ns,
                                      crumb_error *err);
/* suite_text.c: all that is known of the device. */
void crumb_cl_suite_describe(const crumb_kernel_machine *machine, void (*line)(void *user, const char *text),
                             void *user);

#endif
