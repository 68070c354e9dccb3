/* Replaying a plan: one upload, the launches in their order, one read-back, one wait. */
#include "cl/plan.h"

#include <stdlib.h>
#include <string.h>

static crumb_status failed(const crumb_plan *p, const char *what, cl_int code, crumb_error *err) {
    return crumb_cl_fail(err, p->device->label, what, code);
}

/* ---- the batch ----------------------------------------------------------------------------------------------- */

static crumb_status write_batch(crumb_plan *p, const crumb_row *rows, uint32_t n_rows, crumb_error *err) {
    crumb_cl_batch *b = p->host_batch;
    *b = (crumb_cl_batch){.n_rows = n_rows, .n_outputs = p->n_outputs, .number = ++p->number};
    for (uint32_t i = 0, output = 0; i < n_rows; i++) {
        const crumb_row *row = &rows[i];
        b->rows[i] = (crumb_cl_row){.token = row->token,
                                    .sequence = row->sequence,
                                    .position = row->position,
                                    .output = p->has_select && row->wants_output ? output++ : UINT32_MAX};
        if (row->position >= b->max_kv) b->max_kv = row->position + 1;
    }
    const size_t n_bytes = sizeof *b + n_rows * sizeof *b->rows;
    crumb_device *d = p->device;
    cl_int code = p->batch.usm ? d->usm.copy(d->queue, CL_FALSE, p->batch.usm, b, n_bytes, 0, NULL, NULL)
                               : clEnqueueWriteBuffer(d->queue, p->batch.mem, CL_FALSE, 0, n_bytes, b, 0, NULL, NULL);
    return code == CL_SUCCESS ? CRUMB_OK : failed(p, "sending a batch", code, err);
}

/* Attention's launches are set for a power of two of chunks of keys: the context outgrows it rarely, and work-groups
 * beyond a row's keys cost little. */
static crumb_status set_chunks(crumb_plan *p, crumb_error *err) {
    uint32_t wanted = (p->host_batch->max_kv + CRUMB_CL_KV_CHUNK - 1) / CRUMB_CL_KV_CHUNK, chunks = 1;
    if (!p->partials.n_bytes) return CRUMB_OK;
    while (chunks < wanted) chunks *= 2;
    if (chunks > p->max_chunks) chunks = p->max_chunks;
    if (chunks == p->chunks) return CRUMB_OK;
    for (size_t i = 0; i < p->n_launches; i++) {
        crumb_cl_launch *l = &p->launches[i];
        if (l->splits_keys) l->groups[0] = chunks;
        cl_int code = l->merges_keys ? clSetKernelArg(l->kernel, 1, sizeof chunks, &chunks) : CL_SUCCESS;
        if (code != CL_SUCCESS) return failed(p, "attention", code, err);
    }
    p->chunks = chunks;
    return CRUMB_OK;
}

/* ---- launches ------------------------------------------------------------------------------------------------ */

bool crumb_cl_launch_sizes(const crumb_plan *p, const crumb_cl_launch *l, size_t global[3]) {
    const uint32_t n = l->on_outputs ? p->n_outputs : p->n_rows;
    for (uint8_t i = 0; i < l->n_dims; i++)
        global[i] = (i == l->row_dim ? (n + l->tokens - 1) / l->tokens : l->groups[i]) * l->local[i];
    return n > 0;
}

static cl_int enqueue(const crumb_plan *p, const crumb_cl_launch *l, cl_command_queue queue, cl_event *event) {
    size_t global[3];
    if (!crumb_cl_launch_sizes(p, l, global)) return CL_SUCCESS;
    if (l->sgemm.w)
        return crumb_cl_blas_sgemm(p->device->blas, &l->sgemm, l->on_outputs ? p->n_outputs : p->n_rows, queue, event);
    return clEnqueueNDRangeKernel(queue, l->kernel, l->n_dims, NULL, global, l->local, 0, NULL, event);
}

static crumb_status run(crumb_plan *p, cl_command_queue queue, crumb_error *err) {
    const crumb_cl_sizes sizes = {p->n_rows, p->n_outputs, p->chunks};
    if (!p->times && !p->device->blas && crumb_cl_commands_ready(p, &sizes)) { /* CLBlast enqueues by itself */
        const cl_int code = crumb_cl_commands_run(p);
        return code == CL_SUCCESS ? CRUMB_OK : failed(p, "starting a plan", code, err);
    }
    for (size_t i = 0; i < p->n_launches; i++) {
        cl_int code = enqueue(p, &p->launches[i], queue, p->times ? &p->events[i] : NULL);
        if (code != CL_SUCCESS) return failed(p, "starting a kernel", code, err);
    }
    return CRUMB_OK;
}

static uint32_t rows_of(const crumb_plan *p, const crumb_cl_value *v) {
    return v->on_outputs ? p->n_outputs : p->n_rows;
}

static crumb_status fetch(crumb_plan *p, crumb_value value, float *to, bool blocking, crumb_error *err) {
    const crumb_cl_value *v = &p->values[value];
    const size_t n_bytes = (size_t)rows_of(p, v) * v->width * sizeof *to;
    if (n_bytes == 0) return CRUMB_OK;
    cl_int code = crumb_cl_memory_read(p->device, crumb_cl_value_memory(p, value), to, n_bytes, blocking);
    return code == CL_SUCCESS ? CRUMB_OK : failed(p, "reading results", code, err);
}

/* ---- where the time goes ------------------------------------------------------------------------------------- */

static void take_times(crumb_plan *p) {
    uint64_t *const to[] = {[CRUMB_CL_TIME_LINEAR] = &p->times->linear_ns,
                            [CRUMB_CL_TIME_HEAD] = &p->times->head_ns,
                            [CRUMB_CL_TIME_ATTENTION] = &p->times->attention_ns,
                            [CRUMB_CL_TIME_OTHER] = &p->times->other_ns};
    for (size_t i = 0; i < p->n_launches; i++) {
        cl_ulong begin = 0, end = 0;
        if (!p->events[i]) continue;
        if (clGetEventProfilingInfo(p->events[i], CL_PROFILING_COMMAND_START, sizeof begin, &begin, NULL) ==
                CL_SUCCESS &&
            clGetEventProfilingInfo(p->events[i], CL_PROFILING_COMMAND_END, sizeof end, &end, NULL) == CL_SUCCESS &&
            end > begin)
            *to[p->launches[i].time] += end - begin;
        clReleaseEvent(p->events[i]);
        p->events[i] = NULL;
    }
    p->times->n_replays++;
}

/* A device whose queue cannot measure leaves the times at 0. */
void crumb_cl_plan_measure(crumb_plan *p, crumb_plan_times *times) {
    p->times = NULL;
    if (!times) return;
    if (!p->events) p->events = calloc(p->n_launches, sizeof *p->events);
    if (p->events && crumb_cl_device_can_measure(p->device)) p->times = times;
}

/* ---- entries ------------------------------------------------------------------------------------------------- */

/* The batch goes through the plain queue also when kernels are measured: each queue is waited for before the other. */
static crumb_status replay_measured(crumb_plan *p, crumb_error *err) {
    cl_int code = clFinish(p->device->queue);
    if (code != CL_SUCCESS) return failed(p, "sending a batch", code, err);
    crumb_status status = run(p, p->device->profiling, err);
    code = clFinish(p->device->profiling);
    take_times(p);
    if (status == CRUMB_OK && code != CL_SUCCESS) status = failed(p, "running a plan", code, err);
    return status;
}

static crumb_status replay(crumb_plan *p, const crumb_row *rows, uint32_t n_rows, crumb_error *err) {
    CRUMB_TRY(write_batch(p, rows, n_rows, err));
    CRUMB_TRY(set_chunks(p, err));
    CRUMB_TRY(p->times ? replay_measured(p, err) : run(p, p->device->queue, err));
    CRUMB_TRY(fetch(p, p->result, p->results, false, err));
    cl_int code = clFinish(p->device->queue);
    return code == CL_SUCCESS ? CRUMB_OK : failed(p, "running a plan", code, err);
}

crumb_status crumb_cl_plan_write(crumb_plan *p, crumb_value value, const float *rows, uint32_t n_rows,
                                 crumb_error *err) {
    CRUMB_TRY(crumb_inputs_written(&p->inputs, value, n_rows, p->max_rows, err));
    return crumb_cl_memory_write(p->device, crumb_cl_value_memory(p, value), rows,
                                 (uint64_t)n_rows * p->values[value].width * sizeof *rows, err);
}

crumb_status crumb_cl_plan_replay(crumb_plan *p, const crumb_row *rows, uint32_t n_rows, crumb_error *err) {
    p->n_rows = 0; /* nothing to read when the rows are refused */
    CRUMB_TRY(crumb_rows_check(&p->rule, rows, n_rows, &p->n_outputs, err));
    CRUMB_TRY(crumb_inputs_take(&p->inputs, n_rows, err));
    p->n_rows = n_rows;
    crumb_status status = replay(p, rows, n_rows, err);
    if (status != CRUMB_OK) p->n_rows = p->n_outputs = 0;
    return status;
}

crumb_status crumb_cl_plan_read(crumb_plan *p, crumb_value value, const float **out, uint32_t *n_rows,
                                crumb_error *err) {
    if (value >= p->n_values || !p->values[value].readable)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "value %u is not kept to the end of the plan", value);
    *n_rows = p->n_rows ? rows_of(p, &p->values[value]) : 0;
    *out = p->results;
    if (value == p->result || *n_rows == 0) return CRUMB_OK;
    uint64_t n_bytes = (uint64_t)*n_rows * p->values[value].width * sizeof *p->other;
    if (n_bytes > p->other_bytes) {
        float *grown = realloc(p->other, n_bytes);
        if (!grown) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a plan's results");
        p->other = grown;
        p->other_bytes = n_bytes;
    }
    *out = p->other;
    return fetch(p, value, p->other, true, err);
}

uint64_t crumb_cl_plan_scratch_bytes(const crumb_plan *p) {
    return p->scratch_bytes;
}

void crumb_cl_plan_destroy(crumb_plan *p) {
    if (!p) return;
    crumb_device *d = p->device;
    crumb_cl_commands_free(&p->commands);
    for (size_t i = 0; i < p->n_launches; i++)
        if (p->launches[i].kernel) clReleaseKernel(p->launches[i].kernel);
    if (d) {
        crumb_cl_memory *const memories[] = {&p->batch,    &p->q,       &p->sx,     &p->qsum,
                                             &p->partials, &p->keys[0], &p->keys[1]};
        for (size_t i = 0; i < sizeof memories / sizeof *memories; i++) crumb_cl_memory_free(d, memories[i]);
        for (size_t i = 0; p->values && i < p->n_values; i++) crumb_cl_memory_free(d, &p->values[i].memory);
        crumb_cl_copies_free(d, &p->copies);
        crumb_cl_host_free(d, p->host_batch);
        crumb_cl_host_free(d, p->results);
    }
    free(p->values);
    free(p->launches);
    free(p->next_position);
    free(p->events);
    free(p->other);
    free(p);
}
