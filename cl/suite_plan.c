/* Kernels of other ops than linear layers in tiles: in plans, which are made to take them. */
#include "cl/suite.h"

#include "cl/plan.h"

#include <string.h>

/* What plans take a kernel for: dense weights, and attention, have kernels on matrix instructions and plain ones. */
static void favour(const crumb_kernel_machine *m, const crumb_cl_kernel *row) {
    crumb_device *d = m->d;
    const bool matrix = row->sub_group != 0 || row->op == CRUMB_CL_SPLIT;
    if (matrix) d->ladder = m->most;
    d->ladder.exact = !matrix;
    d->ladder.bf16 = row->bf16;
    const bool attends = row->op == CRUMB_CL_ATTENTION_SPLIT || row->op == CRUMB_CL_ATTENTION_WHOLE;
    if (row->op == CRUMB_CL_LINEAR_DENSE || (attends && !matrix)) d->ladder.rung = CRUMB_CL_PORTABLE;
}

crumb_status crumb_cl_suite_plan_record(crumb_kernel_machine *m, size_t kernel, const crumb_plan_desc *desc,
                                        crumb_plan **out, size_t *n_launches, crumb_error *err) {
    const crumb_cl_kernel *row = crumb_cl_suite_row(kernel);
    const crumb_cl_target ladder = m->d->ladder;
    favour(m, row);
    const crumb_status status = crumb_cl_plan_record(m->d, desc, out, err);
    m->d->ladder = ladder;
    *n_launches = 0;
    for (size_t i = 0; status == CRUMB_OK && i < (*out)->n_launches; i++)
        *n_launches += strcmp((*out)->launches[i].name, row->name) == 0;
    return status;
}

crumb_status crumb_cl_suite_plan_time(crumb_kernel_machine *m, size_t kernel, crumb_plan *p, const crumb_row *rows,
                                      uint32_t n_rows, unsigned how, double *ns, crumb_error *err) {
    const crumb_cl_kernel *row = crumb_cl_suite_row(kernel);
    crumb_plan_times times = {0};
    if (how & CRUMB_BENCH_COLD) CRUMB_TRY(crumb_cl_probe_flush(m->probe, err));
    crumb_cl_plan_measure(p, &times);
    const crumb_status status = crumb_cl_plan_replay(p, rows, n_rows, err);
    crumb_cl_plan_measure(p, NULL);
    *ns = 0;
    for (size_t i = 0; status == CRUMB_OK && i < p->n_launches; i++)
        if (strcmp(p->launches[i].name, row->name) == 0) *ns += (double)p->launches[i].ns;
    if (status != CRUMB_OK || *ns > 0) return status;
    return crumb_fail(err, CRUMB_ERR_DEVICE, "%s: its driver (%.60s) tells no times of kernels", m->d->label,
                      m->d->facts.driver);
}
