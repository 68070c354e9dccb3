#include "cl/commands.h"

#include "cl/plan.h"

enum { FEW_ROWS = 16 };

void crumb_cl_commands_free(crumb_device *d, crumb_cl_commands *c) {
    if (c->list) crumb_cl_list_release(d, c->list);
    c->list = NULL;
}

/* The batch's way to the device. */
static crumb_cl_code add_batch(const crumb_plan *p, const crumb_cl_sizes *sizes) {
    const uint64_t n_bytes = sizeof *p->host_batch + sizes->n_rows * sizeof *p->host_batch->rows;
    if (!crumb_cl_api_used.lists_copy || p->batch.usm == (void *)p->host_batch) return CRUMB_CL_OK;
    return crumb_cl_list_copy(p->device, p->commands.list, p->batch.usm, p->host_batch, n_bytes);
}

/* The result's way to the host. */
static crumb_cl_code add_result(const crumb_plan *p) {
    const crumb_cl_memory *m = crumb_cl_value_memory(p, p->result);
    const uint64_t n_bytes = crumb_cl_value_bytes(p, &p->values[p->result]);
    if (!crumb_cl_api_used.lists_copy || n_bytes == 0 || m->usm == (void *)p->results) return CRUMB_CL_OK;
    return crumb_cl_list_copy(p->device, p->commands.list, p->results, m->usm, n_bytes);
}

static crumb_cl_code record(crumb_plan *p, const crumb_cl_sizes *sizes) {
    crumb_cl_commands *c = &p->commands;
    crumb_device *d = p->device;
    crumb_cl_code code = crumb_cl_list_create(d, &c->list);
    if (code != CRUMB_CL_OK) c->list = NULL;
    if (code == CRUMB_CL_OK) code = add_batch(p, sizes);
    for (size_t i = 0; i < p->n_launches && code == CRUMB_CL_OK; i++) {
        const crumb_cl_launch *l = &p->launches[i];
        size_t global[3];
        if (crumb_cl_launch_sizes(p, l, global))
            code = crumb_cl_list_add(d, c->list, l->call, l->n_dims, global, l->local);
    }
    if (code == CRUMB_CL_OK) code = add_result(p);
    return code == CRUMB_CL_OK ? crumb_cl_list_close(d, c->list) : code;
}

static bool same(const crumb_cl_sizes *a, const crumb_cl_sizes *b) {
    return a->n_rows == b->n_rows && a->n_outputs == b->n_outputs && a->chunks == b->chunks;
}

bool crumb_cl_commands_ready(crumb_plan *p, const crumb_cl_sizes *sizes) {
    crumb_cl_commands *c = &p->commands;
    const bool again = same(&c->last, sizes);
    c->last = *sizes;
    if (!c->usable || (!again && !(crumb_cl_api_used.lists_copy && p->max_rows <= FEW_ROWS))) return false;
    if (c->list && same(&c->recorded, sizes)) return true;
    crumb_cl_commands_free(p->device, c);
    c->recorded = *sizes;
    c->usable = record(p, sizes) == CRUMB_CL_OK;
    if (!c->usable) crumb_cl_commands_free(p->device, c);
    return c->usable;
}

crumb_cl_code crumb_cl_commands_run(const crumb_plan *p) {
    return crumb_cl_list_run(p->device, p->commands.list);
}
