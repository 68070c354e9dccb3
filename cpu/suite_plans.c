/* The CPU's kernels that run in plans of ops: what a plan of the suite's device takes, and how long it takes. */
#include "cpu/plan.h"
#include "cpu/suite.h"

/* The steps that run a kernel. */
static const crumb_step_kind *steps_of(const crumb_cpu_op_kernel *row) {
    if (!row) return &crumb_step_linear;
    switch (row->kind) {
    case CRUMB_OP_RMS_NORM: return &crumb_step_rms_norm;
    case CRUMB_OP_GATED: return &crumb_step_gated;
    case CRUMB_OP_ROPE: return &crumb_step_rotate;
    case CRUMB_OP_ATTENTION: return &crumb_step_attention;
    default: return &crumb_step_prepare; /* quantizes */
    }
}

/* How often a step of that kind does. */
static size_t n_runs(const crumb_plan *p, const crumb_step *s, size_t kernel) {
    const crumb_cpu_op_kernel *row = crumb_suite_op_row(kernel);
    size_t n = 0;
    for (uint32_t i = 0; !row && i < s->linear.n_parts; i++)
        n += s->linear.parts[i].kernel[0] == crumb_suite_row(kernel);
    if (!row) return n;
    if (row->kind == CRUMB_OP_ROPE) return s->attention.rope_dims > 0;
    if (row->kind == CRUMB_OP_ATTENTION) return p->kv->ops == row->kv;
    return row->kind != CRUMB_OP_LINEAR || p->max_rows > CRUMB_LOCAL_ROWS; /* fewer are quantized in the linear step */
}

crumb_status crumb_suite_plan_record(crumb_kernel_machine *m, size_t kernel, const crumb_plan_desc *desc,
                                     crumb_plan **out, size_t *n_launches, crumb_error *err) {
    crumb_device *d = crumb_suite_device(m);
    crumb_cpu_device_set_tier(d, crumb_suite_isa(kernel));
    if (desc->kv) desc->kv->ops = crumb_kv_ops_select(desc->kv->params.type, d->isa);
    CRUMB_TRY(crumb_cpu_plan_record(d, desc, out, err));
    *n_launches = 0;
    for (size_t i = 0; i < (*out)->n_steps; i++)
        if ((*out)->steps[i].kind == steps_of(crumb_suite_op_row(kernel)))
            *n_launches += n_runs(*out, &(*out)->steps[i], kernel);
    return CRUMB_OK;
}

static void flush_matrix(crumb_kernel_machine *m, const crumb_matrix *w) {
    const crumb_matrix_bytes n = crumb_matrix_get_bytes(w);
    crumb_suite_flush(m, w->codes, n.codes);
    crumb_suite_flush(m, w->scales, n.scales);
    crumb_suite_flush(m, w->mins, n.mins);
}

/* Weights, keys and values, and all values of the plan, its inputs among them. */
static void flush_plan(crumb_kernel_machine *m, const crumb_plan *p) {
    crumb_suite_flush(m, p->scratch, p->scratch_bytes);
    if (p->kv) crumb_suite_flush(m, p->kv->memory, p->kv->n_bytes);
    for (size_t i = 0; i < p->n_steps; i++) {
        const crumb_step *s = &p->steps[i];
        for (uint32_t j = 0; s->kind == &crumb_step_linear && j < s->linear.n_parts; j++)
            flush_matrix(m, s->linear.parts[j].part.w);
    }
}

crumb_status crumb_suite_plan_time(crumb_kernel_machine *m, size_t kernel, crumb_plan *plan, const crumb_row *rows,
                                   uint32_t n_rows, unsigned how, double *ns, crumb_error *err) {
    if (how & CRUMB_BENCH_COLD) flush_plan(m, plan);
    crumb_plan_times times = {.n_replays = 0};
    plan->only = steps_of(crumb_suite_op_row(kernel));
    crumb_cpu_plan_measure(plan, &times);
    const crumb_status status = crumb_cpu_plan_replay(plan, rows, n_rows, err);
    crumb_cpu_plan_measure(plan, NULL);
    plan->only = NULL;
    *ns = (double)(times.linear_ns + times.head_ns + times.attention_ns + times.other_ns);
    return status;
}
