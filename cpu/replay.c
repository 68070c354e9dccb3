/* Replaying a plan: check the rows, then let all threads walk the steps. */
#include "cpu/divide.h"

#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/kernel/rendezvous.h"

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
    const crumb_step *s = &p->steps[p->step];
    if (!p->only || p->only == s->kind) *time_of(p, s) += now - p->step_began_ns;
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
    crumb_divide_over(p);
    return p->stalled || crumb_step_n(p, s) == 0 ? 0 : s->kind->n_items(p, s);
}

static void run_item(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    crumb_plan *p = ctx;
    p->steps[step].kind->run(p, &p->steps[step], item, walker);
}

static void fetch_ahead(void *ctx, uint32_t step, int thread) {
    crumb_linear_fetch_next(ctx, step, thread);
}

void crumb_cpu_plan_start(crumb_plan *p) {
    p->rule = (crumb_rows_rule){.max_rows = p->max_rows,
                                .max_outputs = p->max_outputs,
                                .n_vocab = p->n_vocab,
                                .has_select = p->has_select,
                                .kv = p->has_attention ? &p->kv->params : NULL,
                                .next_position = p->last_position};
    crumb_walk_init(&p->walk, p->device->pool, p->n_threads, (uint32_t)p->n_steps, items_of, run_item, p);
    p->walk.idle = fetch_ahead;
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

crumb_status crumb_cpu_plan_write(crumb_plan *p, crumb_value value, const float *rows, uint32_t n_rows,
                                  crumb_error *err) {
    CRUMB_TRY(crumb_inputs_written(&p->inputs, value, n_rows, p->max_rows, err));
    memcpy(crumb_plan_floats(p, value), rows, (size_t)n_rows * p->values[value].width * sizeof *rows);
    return CRUMB_OK;
}

crumb_status crumb_cpu_plan_replay(crumb_plan *p, const crumb_row *rows, uint32_t n_rows, crumb_error *err) {
    p->n_rows = 0; /* nothing to read when the rows are refused */
    CRUMB_TRY(crumb_rows_check(&p->rule, rows, n_rows, &p->n_outputs, err));
    CRUMB_TRY(crumb_inputs_take(&p->inputs, n_rows, err));
    p->rows = rows;
    p->n_rows = n_rows;
    p->number++;
    cut_blocks(p);
    if (p->times) begin_times(p);
    crumb_divide_round(p);
    crumb_walk_run(&p->walk);
    crumb_divide_over(p);
    if (p->times) take_time(p, 0);
    p->rows = NULL;
    if (!p->stalled) return CRUMB_OK;
    p->stalled = false;
    p->n_rows = 0;
    return crumb_patience_fail("cpu", err);
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
    crumb_divider_destroy(p->divider);
    free(p->rope_tables);
    free((void *)p->merges);
    free(p->last_position);
    free(p->blocks);
    free(p);
}
