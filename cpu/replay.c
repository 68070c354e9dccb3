/* Replaying a plan: check the rows, then let all threads walk the steps. */
#include "cpu/plan.h"

#include "host/base/memory.h"
#include "host/base/thread.h"

#include <stdlib.h>
#include <string.h>

/* ---- where the time goes ----------------------------------------------------------------------------------- */

static uint64_t *time_of(const crumb_plan *p, const crumb_step *s) {
    if (s->kind == &crumb_step_linear) return s->on_outputs ? &p->times->head_ns : &p->times->linear_ns;
    if (s->kind == &crumb_step_rope_table || s->kind == &crumb_step_rotate || s->kind == &crumb_step_attention)
        return &p->times->attention_ns;
    return &p->times->other_ns;
}

/* The step under way is over, and `next` begins. One thread at a time comes here, each after the one before. */
static void take_time(crumb_plan *p, uint32_t next) {
    const uint64_t now = crumb_now_ns();
    *time_of(p, &p->steps[p->step]) += now - p->step_began_ns;
    p->step_began_ns = now;
    p->step = next;
}

static void begin_times(crumb_plan *p) {
    p->step = 0;
    p->step_began_ns = crumb_now_ns();
    p->times->n_replays++;
}

void crumb_cpu_plan_measure(crumb_plan *p, crumb_plan_times *times) {
    p->times = times;
}

/* ---- replaying --------------------------------------------------------------------------------------------- */

static uint32_t items_of(void *ctx, uint32_t step) {
    crumb_plan *p = ctx;
    const crumb_step *s = &p->steps[step];
    if (p->times) take_time(p, step);
    return p->stalled || crumb_step_n(p, s) == 0 ? 0 : s->kind->n_items(p, s);
}

static void run_item(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    crumb_plan *p = ctx;
    p->steps[step].kind->run(p, &p->steps[step], item, walker);
}

void crumb_cpu_plan_start(crumb_plan *p) {
    crumb_walk_init(&p->walk, p->device->pool, p->n_threads, (uint32_t)p->n_steps, items_of, run_item, p);
}

static crumb_status check_place(crumb_plan *p, const crumb_row *row, uint32_t i, crumb_error *err) {
    const crumb_kv_params *kv = &p->kv->params;
    if (row->sequence >= kv->n_sequences)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "row %u: sequence %u of %u", i, row->sequence, kv->n_sequences);
    if (row->position >= kv->n_ctx)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "row %u: position %u in a context of %u", i, row->position,
                          kv->n_ctx);
    if (row->position < p->last_position[row->sequence]) /* holds the position after the last */
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "row %u: position %u of sequence %u comes after a later one", i,
                          row->position, row->sequence);
    p->last_position[row->sequence] = row->position + 1;
    return CRUMB_OK;
}

static crumb_status check_row(crumb_plan *p, const crumb_row *row, uint32_t i, crumb_error *err) {
    if (p->n_vocab && (row->token < 0 || (uint32_t)row->token >= p->n_vocab))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "row %u: token %d is not one of %u", i, row->token, p->n_vocab);
    if (row->wants_output && p->has_select && ++p->n_outputs > p->max_outputs)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "more outputs wanted than the %u of the plan", p->max_outputs);
    return p->has_attention ? check_place(p, row, i, err) : CRUMB_OK;
}

static crumb_status check_rows(crumb_plan *p, const crumb_row *rows, uint32_t n_rows, crumb_error *err) {
    if (n_rows == 0 || n_rows > p->max_rows)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%u rows for a plan of 1 to %u", n_rows, p->max_rows);
    if (p->has_attention)
        for (uint32_t i = 0; i < n_rows; i++)
            if (rows[i].sequence < p->kv->params.n_sequences) p->last_position[rows[i].sequence] = 0;
    p->n_outputs = 0;
    for (uint32_t i = 0; i < n_rows; i++) CRUMB_TRY(check_row(p, &rows[i], i, err));
    return CRUMB_OK;
}

static void cut_blocks(crumb_plan *p) {
    p->n_blocks = 0;
    for (uint32_t i = 0; i < p->n_rows; i++) {
        crumb_row_block *last = p->n_blocks ? &p->blocks[p->n_blocks - 1] : NULL;
        if (last && last->n < p->block_rows && p->rows[last->row0].sequence == p->rows[i].sequence)
            last->n++;
        else
            p->blocks[p->n_blocks++] = (crumb_row_block){.row0 = i, .n = 1};
    }
}

crumb_status crumb_cpu_plan_replay(crumb_plan *p, const crumb_row *rows, uint32_t n_rows, crumb_error *err) {
    p->n_rows = 0; /* nothing to read when the rows are refused */
    CRUMB_TRY(check_rows(p, rows, n_rows, err));
    p->rows = rows;
    p->n_rows = n_rows;
    p->number++;
    cut_blocks(p);
    if (p->times) begin_times(p);
    crumb_walk_run(&p->walk);
    if (p->times) take_time(p, 0);
    p->rows = NULL;
    if (!p->stalled) return CRUMB_OK;
    p->stalled = false;
    p->n_rows = 0;
    return crumb_fail(err, CRUMB_ERR_DEVICE, "another device did not signal within ten seconds");
}

crumb_status crumb_cpu_plan_read(crumb_plan *p, crumb_value value, const float **out, uint32_t *n_rows,
                                 crumb_error *err) {
    if (value >= p->n_values || !p->values[value].readable)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "value %u is not kept to the end of the plan", value);
    *out = crumb_plan_floats(p, value);
    *n_rows = p->n_rows == 0 ? 0 : p->values[value].on_outputs ? p->n_outputs : p->n_rows;
    return CRUMB_OK;
}

uint64_t crumb_cpu_plan_scratch_bytes(const crumb_plan *p) {
    return p->scratch_bytes;
}

void crumb_cpu_plan_destroy(crumb_plan *p) {
    if (!p) return;
    crumb_walk_retire(&p->walk);
    crumb_pages_free(p->scratch, p->scratch_bytes);
    free(p->values);
    free(p->steps);
    free(p->chunk_bounds);
    free(p->rope_tables);
    free((void *)p->merges);
    free(p->last_position);
    free(p->blocks);
    free(p);
}
