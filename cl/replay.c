/* Replaying a plan: one upload, the launches in their order, one read-back, one wait. */
#include "cl/plan.h"

#include "host/base/half.h"
#include "host/base/memory.h"

#include <stdlib.h>
#include <string.h>

static crumb_status failed(const crumb_plan *p, const char *what, crumb_cl_code code, crumb_error *err) {
    return crumb_cl_fail(err, p->device->label, what, code);
}

/* ---- the batch ----------------------------------------------------------------------------------------------- */

static void fill_batch(crumb_plan *p, const crumb_row *rows, uint32_t n_rows) {
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
}

static crumb_status send_batch(crumb_plan *p, crumb_error *err) {
    const size_t n_bytes = sizeof *p->host_batch + p->n_rows * sizeof *p->host_batch->rows;
    if (p->batch.usm == (void *)p->host_batch) return CRUMB_OK;
    const crumb_cl_code code = crumb_cl_driver_write(p->device, &p->batch, 0, p->host_batch, n_bytes, false);
    return code == CRUMB_CL_OK ? CRUMB_OK : failed(p, "sending a batch", code, err);
}

/* Attention's launches are set for a power of two of chunks of keys: the context outgrows it rarely, and work-groups
 * beyond a row's keys cost little. */
static void set_chunks(crumb_plan *p) {
    uint32_t wanted = (p->host_batch->max_kv + CRUMB_CL_KV_CHUNK - 1) / CRUMB_CL_KV_CHUNK, chunks = 1;
    if (!p->partials.n_bytes) return;
    while (chunks < wanted) chunks *= 2;
    if (chunks > p->max_chunks) chunks = p->max_chunks;
    if (chunks == p->chunks) return;
    for (size_t i = 0; i < p->n_launches; i++)
        if (p->launches[i].splits_keys) p->launches[i].groups[0] = chunks;
    p->chunks = chunks;
}

/* ---- launches ------------------------------------------------------------------------------------------------ */

bool crumb_cl_launch_sizes(const crumb_plan *p, const crumb_cl_launch *l, size_t global[3]) {
    const uint32_t n = l->on_outputs ? p->n_outputs : p->n_rows;
    for (uint8_t i = 0; i < l->n_dims; i++)
        global[i] = (i == l->row_dim ? (n + l->tokens - 1) / l->tokens : l->groups[i]) * l->local[i];
    return n > 0;
}

static crumb_cl_code enqueue(const crumb_plan *p, const crumb_cl_launch *l, crumb_cl_queue queue,
                             crumb_cl_event *event) {
    size_t global[3];
    if (!crumb_cl_launch_sizes(p, l, global)) return CRUMB_CL_OK;
    if (l->sgemm.w)
        return crumb_cl_blas_sgemm(p->device->blas, &l->sgemm, l->on_outputs ? p->n_outputs : p->n_rows, queue, event);
    return crumb_cl_queue_launch(p->device, queue, l->call, l->n_dims, global, l->local, event);
}

/* One by one. */
static crumb_status run_launches(crumb_plan *p, crumb_cl_queue queue, crumb_error *err) {
    for (size_t i = 0; i < p->n_launches; i++) {
        if (p->meetings.n) CRUMB_TRY(crumb_cl_meet(&p->meetings, p->device, queue, i, p->number, err));
        crumb_cl_code code = enqueue(p, &p->launches[i], queue, p->times ? &p->events[i] : NULL);
        if (code != CRUMB_CL_OK) return failed(p, "starting a kernel", code, err);
    }
    if (p->meetings.n) CRUMB_TRY(crumb_cl_meet(&p->meetings, p->device, queue, p->n_launches, p->number, err));
    return crumb_cl_meetings_end(&p->meetings, p->device, p->number, err);
}

static uint32_t rows_of(const crumb_plan *p, const crumb_cl_value *v) {
    return v->on_outputs ? p->n_outputs : p->n_rows;
}

uint64_t crumb_cl_value_bytes(const crumb_plan *p, const crumb_cl_value *v) {
    return (uint64_t)rows_of(p, v) * v->width * v->item_bytes;
}

static crumb_status fetch(crumb_plan *p, crumb_value value, float *to, bool blocking, crumb_error *err) {
    const crumb_cl_value *v = &p->values[value];
    const uint64_t n_bytes = crumb_cl_value_bytes(p, v);
    if (n_bytes == 0 || crumb_cl_value_memory(p, value)->usm == (void *)to) return CRUMB_OK;
    const crumb_cl_code code =
        crumb_cl_driver_read(p->device, crumb_cl_value_memory(p, value), 0, to, n_bytes, blocking);
    return code == CRUMB_CL_OK ? CRUMB_OK : failed(p, "reading results", code, err);
}

/* What was fetched, in place: the host reads floats. */
static void widen(const crumb_plan *p, crumb_value value, float *rows) {
    const crumb_cl_value *v = &p->values[value];
    if (v->item_bytes == sizeof(float)) return;
    for (uint64_t i = (uint64_t)rows_of(p, v) * v->width; i-- > 0;) {
        uint16_t narrow;
        memcpy(&narrow, (const char *)rows + i * sizeof narrow, sizeof narrow);
        rows[i] = crumb_bf16_to_f32(narrow);
    }
}

/* ---- where the time goes ------------------------------------------------------------------------------------- */

static void take_times(crumb_plan *p) {
    uint64_t *const to[] = {[CRUMB_CL_TIME_LINEAR] = &p->times->linear_ns,
                            [CRUMB_CL_TIME_HEAD] = &p->times->head_ns,
                            [CRUMB_CL_TIME_ATTENTION] = &p->times->attention_ns,
                            [CRUMB_CL_TIME_OTHER] = &p->times->other_ns};
    for (size_t i = 0; i < p->n_launches; i++) {
        crumb_cl_launch *l = &p->launches[i];
        l->ns = 0;
        if (!p->events[i]) continue;
        if (!crumb_cl_event_span(p->events[i], p->events[i], &l->ns)) l->ns = 0;
        *to[l->time] += l->ns;
        crumb_cl_event_release(p->device, p->events[i]);
        p->events[i] = NULL;
    }
    p->times->n_replays++;
}

/* A device whose queue cannot measure leaves the times at 0. */
void crumb_cl_plan_measure(crumb_plan *p, crumb_plan_times *times) {
    p->times = NULL;
    if (!times) return;
    if (!p->events) p->events = calloc(p->n_launches, sizeof *p->events);
    if (p->events && crumb_cl_driver_can_measure(p->device)) p->times = times;
}

/* ---- entries ------------------------------------------------------------------------------------------------- */

/* The batch goes through the plain queue also when kernels are measured: each queue is waited for before the other. */
static crumb_status replay_measured(crumb_plan *p, crumb_error *err) {
    CRUMB_TRY(send_batch(p, err));
    crumb_cl_code code = crumb_cl_queue_finish(p->device, p->device->queue);
    if (code != CRUMB_CL_OK) return failed(p, "sending a batch", code, err);
    crumb_status status = run_launches(p, p->device->profiling, err);
    code = crumb_cl_queue_finish(p->device, p->device->profiling);
    take_times(p);
    if (status == CRUMB_OK && code != CRUMB_CL_OK) status = failed(p, "running a plan", code, err);
    return status;
}

/* As one list where the driver has them; CLBlast enqueues by itself, and meetings are the host's. */
static crumb_status run(crumb_plan *p, bool *fetched, crumb_error *err) {
    const crumb_cl_sizes sizes = {p->n_rows, p->n_outputs, p->chunks};
    *fetched = false;
    if (p->times) return replay_measured(p, err);
    const bool listed = !p->device->blas && !p->meetings.n && crumb_cl_commands_ready(p, &sizes);
    if (!listed || !crumb_cl_api_used.lists_copy) CRUMB_TRY(send_batch(p, err));
    if (!listed) return run_launches(p, p->device->queue, err);
    const crumb_cl_code code = crumb_cl_commands_run(p);
    *fetched = crumb_cl_api_used.lists_copy;
    return code == CRUMB_CL_OK ? CRUMB_OK : failed(p, "starting a plan", code, err);
}

/* Before the first replay, and behind one that has failed, whose launches may still run and read the batch. */
static crumb_status settle(crumb_plan *p, crumb_error *err) {
    void *zeros;
    if (p->none_arrived || !p->arrived.n_bytes) return CRUMB_OK;
    const crumb_cl_code code = crumb_cl_queue_finish(p->device, p->device->queue);
    if (code != CRUMB_CL_OK) return failed(p, "starting a plan", code, err);
    CRUMB_TRY(crumb_calloc(1, p->arrived.n_bytes, "a plan's attention", &zeros, err));
    const crumb_status status = crumb_cl_memory_write(p->device, &p->arrived, zeros, p->arrived.n_bytes, err);
    free(zeros);
    p->none_arrived = status == CRUMB_OK;
    return status;
}

static crumb_status replay(crumb_plan *p, const crumb_row *rows, uint32_t n_rows, crumb_error *err) {
    bool fetched;
    CRUMB_TRY(settle(p, err));
    fill_batch(p, rows, n_rows);
    set_chunks(p);
    CRUMB_TRY(run(p, &fetched, err));
    if (!fetched) CRUMB_TRY(fetch(p, p->result, p->results, false, err));
    const crumb_cl_code code = crumb_cl_queue_finish(p->device, p->device->queue);
    if (code != CRUMB_CL_OK) return failed(p, "running a plan", code, err);
    widen(p, p->result, p->results);
    return CRUMB_OK;
}

/* Room that a plan keeps from the first time on. */
static crumb_status need_room(void **room, uint64_t *room_bytes, uint64_t n_bytes, const char *what, crumb_error *err) {
    if (n_bytes <= *room_bytes) return CRUMB_OK;
    void *grown = realloc(*room, n_bytes);
    if (!grown) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for %s", what);
    *room = grown;
    *room_bytes = n_bytes;
    return CRUMB_OK;
}

/* Rows of a value that is bf16 on the device. */
static crumb_status write_narrow(crumb_plan *p, crumb_value value, const float *rows, uint64_t n, crumb_error *err) {
    void *room = p->narrow;
    const uint64_t n_bytes = n * sizeof *p->narrow;
    CRUMB_TRY(need_room(&room, &p->narrow_bytes, n_bytes, "a plan's input", err));
    p->narrow = room;
    for (uint64_t i = 0; i < n; i++) p->narrow[i] = crumb_f32_to_bf16(rows[i]);
    return crumb_cl_memory_write(p->device, crumb_cl_value_memory(p, value), p->narrow, n_bytes, err);
}

crumb_status crumb_cl_plan_write(crumb_plan *p, crumb_value value, const float *rows, uint32_t n_rows,
                                 crumb_error *err) {
    CRUMB_TRY(crumb_inputs_written(&p->inputs, value, n_rows, p->max_rows, err));
    const uint64_t n = (uint64_t)n_rows * p->values[value].width;
    if (p->values[value].item_bytes != sizeof *rows) return write_narrow(p, value, rows, n, err);
    return crumb_cl_memory_write(p->device, crumb_cl_value_memory(p, value), rows, n * sizeof *rows, err);
}

crumb_status crumb_cl_plan_replay(crumb_plan *p, const crumb_row *rows, uint32_t n_rows, crumb_error *err) {
    p->n_rows = 0; /* nothing to read when the rows are refused */
    CRUMB_TRY(crumb_rows_check(&p->rule, rows, n_rows, &p->n_outputs, err));
    CRUMB_TRY(crumb_inputs_take(&p->inputs, n_rows, err));
    p->n_rows = n_rows;
    crumb_status status = replay(p, rows, n_rows, err);
    if (status != CRUMB_OK) {
        p->none_arrived = false;
        crumb_cl_meetings_drop(&p->meetings, p->device);
        p->n_rows = p->n_outputs = 0;
    }
    return status;
}

crumb_status crumb_cl_plan_read(crumb_plan *p, crumb_value value, const float **out, uint32_t *n_rows,
                                crumb_error *err) {
    if (value >= p->n_values || !p->values[value].readable)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "value %u is not kept to the end of the plan", value);
    *n_rows = p->n_rows ? rows_of(p, &p->values[value]) : 0;
    *out = p->results;
    if (value == p->result || *n_rows == 0) return CRUMB_OK;
    void *room = p->other;
    const uint64_t n_bytes = (uint64_t)*n_rows * p->values[value].width * sizeof *p->other;
    CRUMB_TRY(need_room(&room, &p->other_bytes, n_bytes, "a plan's results", err));
    *out = p->other = room;
    CRUMB_TRY(fetch(p, value, p->other, true, err));
    widen(p, value, p->other);
    return CRUMB_OK;
}

uint64_t crumb_cl_plan_scratch_bytes(const crumb_plan *p) {
    return p->scratch_bytes;
}

static void free_memories(crumb_plan *p) {
    crumb_device *d = p->device;
    crumb_cl_memory *const memories[] = {&p->batch,    &p->q,       &p->sx,      &p->qsum,
                                         &p->partials, &p->arrived, &p->keys[0], &p->keys[1]};
    if (p->scratch.usm) { /* the others are places in it, or others' */
        crumb_cl_memory_free(d, &p->scratch);
        return;
    }
    if (p->batch.usm == (void *)p->host_batch) p->batch = (crumb_cl_memory){0}; /* it has no other memory */
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++) crumb_cl_memory_free(d, memories[i]);
    for (size_t i = 0; p->values && i < p->n_values; i++)
        if (!p->values[i].lent) crumb_cl_memory_free(d, &p->values[i].memory);
}

void crumb_cl_plan_destroy(crumb_plan *p) {
    if (!p) return;
    crumb_device *d = p->device;
    const bool is_stuck = d && crumb_cl_limit_is_over(&d->limit);
    crumb_cl_commands_free(d, &p->commands);
    crumb_cl_meetings_free(&p->meetings, d);
    for (size_t i = 0; i < p->n_launches && !is_stuck; i++)
        if (p->launches[i].call) crumb_cl_call_release(p->launches[i].call);
    if (d) {
        free_memories(p);
        crumb_cl_copies_free(d, &p->copies);
        crumb_cl_host_free(d, p->host_batch);
        crumb_cl_host_free(d, p->results);
    }
    free(p->values);
    free(p->launches);
    free(p->next_position);
    free(p->events);
    free(p->narrow);
    if (!is_stuck) free(p->other); /* else the device may still write there */
    free(p);
}
