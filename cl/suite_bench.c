/* The OpenCL kernels run and timed one by one. */
#include "cl/suite.h"

#include "cl/solo.h"
#include "host/base/memory.h"

#include <stdlib.h>

/* ---- the machine --------------------------------------------------------------------------------------------- */

crumb_status crumb_cl_suite_machine_create(const crumb_kernel_machine_params *params, crumb_kernel_machine **out,
                                           crumb_error *err) {
    const crumb_device_params device = {.device = params->device, .target = params->target, .n_threads = 1};
    void *memory;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "a device's kernels", &memory, err));
    crumb_kernel_machine *m = memory;
    crumb_status status = crumb_cl_device_open_to_test(&device, &m->d, err);
    if (status == CRUMB_OK) {
        m->most = crumb_cl_device_most(m->d);
        *out = m;
    } else {
        free(m);
    }
    return status;
}

void crumb_cl_suite_machine_destroy(crumb_kernel_machine *m) {
    if (!m) return;
    crumb_cl_probe_destroy(m->probe);
    crumb_cl_device_close(m->d);
    free(m);
}

static crumb_status need_probe(crumb_kernel_machine *m, crumb_error *err) {
    return m->probe ? CRUMB_OK : crumb_cl_probe_create(m->d, &m->probe, err);
}

void crumb_cl_suite_machine_roofs(crumb_kernel_machine *m, size_t kernel, crumb_kernel_roofs *out) {
    *out = (crumb_kernel_roofs){0};
    if (need_probe(m, NULL) != CRUMB_OK) return;
    *out = (crumb_kernel_roofs){.read_gb_s = crumb_cl_probe_read(m->probe),
                                .peak_gops = crumb_cl_probe_dot(m->probe, crumb_cl_suite_row(kernel)->rung),
                                .launch_ns = crumb_cl_probe_launch(m->probe)};
}

uint64_t crumb_cl_suite_machine_flushed(const crumb_kernel_machine *m) {
    return crumb_cl_probe_flushed(m->probe);
}

/* ---- single runs --------------------------------------------------------------------------------------------- */

static crumb_status make_variant(size_t kernel, const char *knobs, crumb_cl_variant *out, crumb_error *err) {
    const crumb_cl_kernel *row = crumb_cl_suite_row(kernel);
    if (crumb_cl_variant_make(row, knobs, out)) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_DEVICE, "%s has no setting '%s'", row->name, knobs);
}

crumb_status crumb_cl_suite_run(crumb_kernel_machine *m, size_t kernel, const char *knobs, crumb_trial *trial, float *y,
                                crumb_error *err) {
    crumb_cl_variant v;
    crumb_cl_solo solo;
    double ns;
    CRUMB_TRY(make_variant(kernel, knobs, &v, err));
    crumb_status status = crumb_cl_solo_create(m->d, trial, &solo, err);
    if (status == CRUMB_OK) status = crumb_cl_solo_run(&solo, &v, false, &ns, err);
    if (status == CRUMB_OK) status = crumb_cl_solo_read(&solo, y, err);
    crumb_cl_solo_destroy(&solo);
    return status;
}

/* ---- the bench ----------------------------------------------------------------------------------------------- */

struct crumb_kernel_bench {
    crumb_kernel_machine *machine;
    crumb_trial trial;
    crumb_cl_solo solo;
};

void crumb_cl_suite_bench_destroy(crumb_kernel_bench *b) {
    if (!b) return;
    crumb_cl_solo_destroy(&b->solo);
    crumb_trial_destroy(&b->trial);
    free(b);
}

static crumb_status fill_bench(crumb_kernel_bench *b, const crumb_kernel_problem *problem, crumb_error *err) {
    const crumb_trial_params params = crumb_problem_trial(problem);
    uint64_t seed = 1;
    CRUMB_TRY(need_probe(b->machine, err));
    CRUMB_TRY(crumb_trial_generate(&params, &seed, &b->trial, err));
    return crumb_cl_solo_create(b->machine->d, &b->trial, &b->solo, err);
}

crumb_status crumb_cl_suite_bench_create(crumb_kernel_machine *machine, const crumb_kernel_problem *problem,
                                         crumb_kernel_bench **out, crumb_error *err) {
    void *memory;
    *out = NULL;
    if (!crumb_problem_fits(problem)) return crumb_problem_refuse(problem, err);
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "a benchmark", &memory, err));
    crumb_kernel_bench *b = memory;
    b->machine = machine;
    crumb_status status = fill_bench(b, problem, err);
    if (status == CRUMB_OK)
        *out = b;
    else
        crumb_cl_suite_bench_destroy(b);
    return status;
}

crumb_status crumb_cl_suite_bench_run(crumb_kernel_bench *b, size_t kernel, const char *knobs, unsigned how, double *ns,
                                      crumb_error *err) {
    crumb_cl_variant v;
    CRUMB_TRY(make_variant(kernel, knobs, &v, err));
    if (how & CRUMB_BENCH_COLD) CRUMB_TRY(crumb_cl_probe_flush(b->machine->probe, err));
    CRUMB_TRY(crumb_cl_solo_run(&b->solo, &v, how & CRUMB_BENCH_WHOLE, ns, err));
    if (*ns > 0) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_DEVICE, "%s: its driver (%.60s) tells no times of kernels", b->machine->d->label,
                      b->machine->d->facts.driver);
}

uint64_t crumb_cl_suite_bench_bytes(const crumb_kernel_bench *b, size_t kernel) {
    (void)kernel;
    const crumb_matrix_bytes n = crumb_matrix_get_bytes(&b->trial.w);
    return n.codes + n.scales + n.mins + n.supers + n.super_mins;
}
