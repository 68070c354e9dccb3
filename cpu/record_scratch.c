/* Recording the memory that a replay needs: values by their slots, inputs, partial results, and what each thread has
 * for itself, all in one allocation. */
#include "cpu/divide.h"
#include "cpu/record.h"

#include "host/base/checked.h"
#include "host/base/memory.h"

#include <stdlib.h>

/* Takes n * size bytes at the next multiple of 64 of *total. */
static crumb_status reserve(uint64_t *total, uint64_t n, uint64_t size, size_t *offset, crumb_error *err) {
    uint64_t n_bytes;
    *offset = (size_t)*total;
    if (!crumb_mul_u64(n, size, &n_bytes) || n_bytes > UINT64_MAX / 4 || *total > UINT64_MAX / 4)
        return crumb_fail(err, CRUMB_ERR_MEMORY, "the size of a plan's scratch overflows");
    *total = crumb_round_up(*total + n_bytes, 64);
    return CRUMB_OK;
}

static crumb_status reserve_values(crumb_recorder *r, uint64_t *total, crumb_error *err) {
    crumb_plan *p = r->p;
    for (size_t i = 0; i < p->n_values; i++) {
        uint64_t most = 0;
        bool placed = r->desc->values[i].shared != NULL;
        for (size_t j = 0; j < p->n_values && !placed; j++) {
            if (crumb_record_slot(r, (crumb_value)j) != crumb_record_slot(r, (crumb_value)i)) continue;
            placed = j < i; /* its slot has been placed with an earlier value */
            if (placed) p->values[i].offset = p->values[j].offset;
            uint64_t floats = (uint64_t)p->values[j].width * p->values[j].max_rows;
            if (floats > most) most = floats;
        }
        if (!placed) CRUMB_TRY(reserve(total, most, sizeof(float), &p->values[i].offset, err));
    }
    return CRUMB_OK;
}

static void find_values(crumb_recorder *r) {
    crumb_plan *p = r->p;
    for (size_t i = 0; i < p->n_values; i++) {
        float *shared = r->desc->values[i].shared;
        p->values[i].rows = shared ? shared : (float *)(void *)(p->scratch + p->values[i].offset);
    }
}

static crumb_status reserve_thread(crumb_recorder *r, size_t local_inputs, size_t attention, crumb_error *err) {
    crumb_plan *p = r->p;
    uint64_t total = 0;
    CRUMB_TRY(reserve(&total, local_inputs, 1, &p->local_inputs, err));
    CRUMB_TRY(reserve(&total, r->max_k, sizeof(float), &p->local_row, err));
    CRUMB_TRY(reserve(&total, attention, 1, &p->attention_scratch, err));
    CRUMB_TRY(reserve(&total, p->kernel_scratch_bytes, 1, &p->kernel_scratch, err));
    CRUMB_TRY(reserve(&total, p->n_steps, sizeof(crumb_units), &p->local_units, err));
    p->thread_bytes = (size_t)crumb_round_up(total, 4096); /* no page, and no line, of two threads */
    return CRUMB_OK;
}

crumb_status crumb_record_scratch(crumb_recorder *r, crumb_error *err) {
    crumb_plan *p = r->p;
    size_t local_inputs = 0, shared_inputs = 0, attention = 0;
    for (size_t i = 0; i < p->n_steps; i++) {
        const crumb_step *s = &p->steps[i];
        size_t n_bytes = 0;
        if (s->kind == &crumb_step_linear) {
            n_bytes = crumb_linear_input_bytes(s, CRUMB_LOCAL_ROWS);
            if (n_bytes > local_inputs) local_inputs = n_bytes;
            n_bytes = p->max_rows > 1 ? crumb_linear_input_bytes(s, p->max_rows) : 0;
            if (n_bytes > shared_inputs) shared_inputs = n_bytes;
        } else if (s->kind == &crumb_step_attention) {
            n_bytes = crumb_attention_scratch_bytes(p->kv->ops, s->attention.n_head, s->attention.n_head_kv,
                                                    s->attention.head_dim);
            if (n_bytes > attention) attention = n_bytes;
        }
    }
    uint64_t total = 0;
    p->partial_chunks = p->kv ? (size_t)crumb_div_up(p->kv->params.n_ctx, CRUMB_ATTENTION_CHUNK) : 0;
    uint32_t split_rows = p->max_rows < CRUMB_SPLIT_ROWS ? p->max_rows : CRUMB_SPLIT_ROWS;
    CRUMB_TRY(reserve_values(r, &total, err));
    CRUMB_TRY(reserve(&total, shared_inputs, 1, &p->shared_inputs, err));
    CRUMB_TRY(reserve(&total, (uint64_t)p->rope_row_floats * p->max_rows, sizeof(float), &p->rope_values, err));
    CRUMB_TRY(reserve(&total, r->attention_floats_per_chunk * split_rows, p->partial_chunks * sizeof(float),
                      &p->partials, err));
    CRUMB_TRY(reserve_thread(r, local_inputs, attention, err));
    total = crumb_round_up(total, 4096);
    CRUMB_TRY(reserve(&total, p->thread_bytes, (uint64_t)p->n_threads, &p->thread_scratch, err));
    p->scratch_bytes = total;
    void *scratch;
    CRUMB_TRY(crumb_pages_alloc(total, "a plan's scratch", &scratch, err));
    p->scratch = scratch;
    find_values(r);
    return CRUMB_OK;
}

crumb_status crumb_record_replay_state(crumb_recorder *r, crumb_error *err) {
    crumb_plan *p = r->p;
    void *memory;
    CRUMB_TRY(crumb_calloc(CRUMB_SPLIT_ROWS * (uint64_t)r->max_n_head_kv, sizeof *p->merges, "a plan", &memory, err));
    p->merges = memory;
    CRUMB_TRY(crumb_calloc(p->kv ? p->kv->params.n_sequences : 0, sizeof *p->last_position, "a plan", &memory, err));
    p->last_position = memory;
    CRUMB_TRY(crumb_calloc(p->max_rows, sizeof *p->blocks, "a plan", &memory, err));
    p->blocks = memory;
    p->block_rows = r->max_group && r->max_group < CRUMB_QUERY_ROWS ? CRUMB_QUERY_ROWS / r->max_group : 1;
    return CRUMB_OK;
}
