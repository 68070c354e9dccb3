#include "host/engine/batch.h"
#include "host/engine/pipeline_parts.h"

#include "host/base/memory.h"
#include "host/base/thread.h"

#include <stdio.h>
#include <stdlib.h>

static const uint32_t small_buckets[CRUMB_BUCKET_BATCH] = {1, 2, 4, 8, 16};
enum { SCORE_ROWS = 128 };

/* ---- life ---------------------------------------------------------------------------------------------------- */

static crumb_status set_up(crumb_pipeline *p, crumb_error *err) {
    const uint32_t scores = crumb_pipeline_rows(p, CRUMB_BUCKET_SCORE);
    if (p->model->divided) return pipeline_create_divided(p, err);
    CRUMB_TRY(pipeline_create_kv(p, err));
    CRUMB_TRY(crumb_calloc(pipeline_n_layers(p), sizeof *p->held, "the context", (void **)&p->held, err));
    CRUMB_TRY(crumb_calloc(scores, sizeof *p->wanted, "the batch", (void **)&p->wanted, err));
    for (uint32_t i = 0; i < pipeline_n_layers(p); i++) p->held[i] = p->model->places[i].unit[CRUMB_PHASE_PREFILL];
    CRUMB_TRY(pipeline_build_phase(p, CRUMB_PHASE_PREFILL, err));
    p->one_list = pipeline_same_places(p->model);
    if (p->one_list)
        p->phases[CRUMB_PHASE_DECODE] = p->phases[CRUMB_PHASE_PREFILL];
    else
        CRUMB_TRY(pipeline_build_phase(p, CRUMB_PHASE_DECODE, err));
    CRUMB_TRY(pipeline_record_phase(p, CRUMB_PHASE_DECODE, CRUMB_BUCKET_ONE, err));
    CRUMB_TRY(pipeline_create_pair(p, err));
    return pipeline_record_phase(p, CRUMB_PHASE_PREFILL, CRUMB_BUCKET_BATCH, err);
}

crumb_status crumb_pipeline_create(crumb_model *model, const crumb_session_params *params, crumb_pipeline **out,
                                   crumb_error *err) {
    crumb_pipeline *p;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof *p, "the session", (void **)&p, err));
    p->model = model;
    p->params = *params;
    crumb_watch_init(&p->watch, model);
    const crumb_status status = set_up(p, err);
    if (status == CRUMB_OK)
        *out = p;
    else
        crumb_pipeline_destroy(p);
    return status;
}

void crumb_pipeline_destroy(crumb_pipeline *p) {
    if (!p) return;
    crumb_watch_learn(&p->watch, p->model);
    crumb_pair_destroy(p->pair);
    pipeline_free_phase(&p->phases[CRUMB_PHASE_PREFILL]);
    if (!p->one_list) pipeline_free_phase(&p->phases[CRUMB_PHASE_DECODE]);
    pipeline_destroy_kv(p);
    free(p->held);
    free(p->wanted);
    free(p);
}

uint32_t crumb_pipeline_rows(const crumb_pipeline *p, crumb_bucket bucket) {
    if (bucket < CRUMB_BUCKET_BATCH) return small_buckets[bucket];
    if (bucket == CRUMB_BUCKET_SCORE && p->params.n_batch > SCORE_ROWS) return SCORE_ROWS;
    return p->params.n_batch;
}

crumb_bucket crumb_pipeline_bucket(const crumb_pipeline *p, size_t n_rows) {
    for (int i = 0; i < CRUMB_BUCKET_BATCH; i++)
        if (n_rows <= small_buckets[i] && small_buckets[i] <= p->params.n_batch) return (crumb_bucket)i;
    return CRUMB_BUCKET_BATCH;
}

/* ---- running ------------------------------------------------------------------------------------------------- */

/* The place that takes less for so many rows. Plans that do not fit there are no reason to fail. */
static crumb_phase place_of(crumb_pipeline *p, crumb_bucket bucket, const crumb_row *rows, uint32_t n) {
    const crumb_phase usual = bucket >= CRUMB_BUCKET_BATCH ? CRUMB_PHASE_PREFILL : CRUMB_PHASE_DECODE;
    if (p->one_list || bucket == CRUMB_BUCKET_ONE || bucket == CRUMB_BUCKET_SCORE) return usual;
    const crumb_batch b = {.n_rows = n,
                           .n_past = rows[0].position,
                           .held = p->pages.at ? NULL : p->held,
                           .ends_prompt = rows[n - 1].wants_output};
    const crumb_phase phase = crumb_batch_phase(p->model, &p->watch, &b, usual);
    return phase == usual || pipeline_record_phase(p, phase, bucket, NULL) == CRUMB_OK ? phase : usual;
}

static crumb_status run_spans(crumb_pipeline *p, crumb_bucket bucket, const crumb_row *rows, uint32_t n,
                              crumb_error *err) {
    const crumb_phase phase = place_of(p, bucket, rows, n);
    p->placed_as = phase;
    CRUMB_TRY(pipeline_bring_kv(p, false, rows[0].position, err));
    CRUMB_TRY(pipeline_move_kv(p, phase, rows[0].position, err));
    CRUMB_TRY(pipeline_run_list(p, &p->phases[phase], bucket, (pipeline_batch){.rows = rows, .n = n}, err));
    pipeline_note_kv(p, false, rows[0].position, rows[0].position + n);
    return CRUMB_OK;
}

/* A single row where the part of each device is learned: by both, or by one alone, as measured to be faster. */
static crumb_status run_row(crumb_pipeline *p, const crumb_row *row, crumb_error *err) {
    const uint32_t share = crumb_split_next(&p->split);
    const bool both = share > 0 && share < CRUMB_SPLIT_STEPS;
    if (both && share != p->share) CRUMB_TRY(pipeline_change_share(p, share, row->position, err));
    if (!p->pair) return run_spans(p, CRUMB_BUCKET_ONE, row, 1, err);
    const double aside_ns = p->aside_ns;
    const crumb_pair_stats before = crumb_pair_get_stats(p->pair);
    const uint64_t start = crumb_now_ns();
    CRUMB_TRY(both ? pipeline_run_pair_row(p, row, err) : run_spans(p, CRUMB_BUCKET_ONE, row, 1, err));
    const double ns = (double)(crumb_now_ns() - start) - (p->aside_ns - aside_ns);
    const crumb_pair_stats after = crumb_pair_get_stats(p->pair);
    crumb_split_spent(&p->split, p->aside_ns);
    crumb_split_done(&p->split, (double)(after.busy_ns[0] - before.busy_ns[0]),
                     (double)(after.busy_ns[1] - before.busy_ns[1]), ns);
    return CRUMB_OK;
}

static crumb_status run_any(crumb_pipeline *p, crumb_bucket bucket, const crumb_row *rows, uint32_t n,
                            crumb_error *err) {
    if (p->model->divided) return pipeline_run_pair(p, bucket, rows, n, err);
    if (!p->pair || bucket != CRUMB_BUCKET_ONE) return run_spans(p, bucket, rows, n, err);
    return p->model->split_always ? pipeline_run_pair_row(p, rows, err) : run_row(p, rows, err);
}

crumb_status crumb_pipeline_run(crumb_pipeline *p, crumb_phase phase, crumb_bucket bucket, const crumb_row *rows,
                                uint32_t n, crumb_error *err) {
    const uint64_t start = crumb_now_ns(), start_ticks = crumb_ticks();
    p->last = NULL;
    p->by_pair = false;
    p->aside_ns = 0;
    p->times = (span_times){.ticks = {0}};
    CRUMB_TRY(run_any(p, bucket, rows, n, err));
    const uint64_t ticks = crumb_ticks() - start_ticks;
    const double ns = (double)(crumb_now_ns() - start);
    for (size_t u = 0; u < p->model->n_units; u++)
        crumb_watch_span(&p->watch, u, p->times.predicted_ns[u], ns * (double)p->times.ticks[u] / (double)ticks);
    crumb_watch_run(&p->watch, phase, bucket == CRUMB_BUCKET_ONE, n, ns - p->aside_ns);
    if (phase == CRUMB_PHASE_PREFILL && !p->one_list && !p->model->divided)
        p->stats.prompt_rows[p->by_pair ? CRUMB_PHASE_DECODE : p->placed_as] += n;
    return CRUMB_OK;
}

const crumb_engine_unit *crumb_pipeline_failed(const crumb_pipeline *p) {
    return p->failed;
}

static crumb_status read_value(crumb_pipeline *p, const span *s, crumb_value value, const float **out, uint32_t *n,
                               crumb_error *err) {
    const crumb_status status = s->unit->backend->plan.read(s->plans[p->bucket], value, out, n, err);
    p->failed = status == CRUMB_OK ? NULL : s->unit;
    return status;
}

crumb_status crumb_pipeline_logits(crumb_pipeline *p, const float **out, uint32_t *n, crumb_error *err) {
    const span *s = p->last;
    if (p->by_pair) return crumb_pair_logits(p->pair, out, n, err);
    if (!s) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "there are no logits to sample from: feed tokens first");
    return read_value(p, s, s->out, out, n, err);
}

crumb_status crumb_pipeline_top(crumb_pipeline *p, const float **out, crumb_error *err) {
    const span *s = p->last;
    uint32_t n;
    *out = NULL;
    if (!s || s->top == CRUMB_NO_VALUE || p->bucket == CRUMB_BUCKET_SCORE) return CRUMB_OK;
    return read_value(p, s, s->top, out, &n, err);
}

void crumb_pipeline_measure(crumb_pipeline *p, crumb_plan_times *times) {
    const span_list *list = &p->phases[CRUMB_PHASE_DECODE];
    for (size_t i = 0; i < list->n; i++) {
        const span *s = &list->items[i];
        if (s->unit->backend->plan.measure) s->unit->backend->plan.measure(s->plans[CRUMB_BUCKET_ONE], times);
    }
}

crumb_pipeline_stats crumb_pipeline_get_stats(const crumb_pipeline *p) {
    return p->stats;
}

static bool decodes_split(const crumb_pipeline *p) {
    return p->pair && (p->model->split_always || crumb_split_is_on(&p->split));
}

double crumb_pipeline_predict_token(const crumb_pipeline *p, uint32_t n_past) {
    const crumb_batch b = {.n_rows = 1, .n_past = n_past};
    if (!crumb_watch_knows(p->model)) return 0;
    if (!decodes_split(p)) return crumb_batch_predict(p->model, &p->watch, CRUMB_PHASE_DECODE, &b);
    return p->watch.factor[CRUMB_WATCH_PAIR][CRUMB_PHASE_DECODE] * crumb_watch_at(p->pair_row.row, n_past);
}

/* By the pair where no device has whole layers, else where the batch's length is read fastest. */
static double predict_batch(const crumb_pipeline *p, uint32_t n_rows, uint32_t n_past) {
    const crumb_batch b = {.n_rows = n_rows, .n_past = n_past};
    if (p->model->divided)
        return p->watch.factor[CRUMB_WATCH_PAIR][CRUMB_PHASE_PREFILL] *
               crumb_watch_predict_pair_batch(p->model, p->model->split, n_rows, n_past);
    const crumb_phase phase = crumb_batch_phase(p->model, &p->watch, &b, CRUMB_PHASE_PREFILL);
    return crumb_batch_predict(p->model, &p->watch, phase, &b);
}

double crumb_pipeline_predict_prompt(const crumb_pipeline *p, uint32_t n_rows) {
    double ns = 0;
    if (!crumb_watch_knows(p->model)) return 0;
    for (uint32_t done = 0; done < n_rows; done += p->params.n_batch) {
        const uint32_t left = n_rows - done;
        ns += predict_batch(p, left < p->params.n_batch ? left : p->params.n_batch, done);
    }
    return ns;
}

const crumb_model *crumb_pipeline_model(const crumb_pipeline *p) {
    return p->model;
}

const crumb_watch *crumb_pipeline_watch(const crumb_pipeline *p) {
    return &p->watch;
}

void crumb_pipeline_explain_split(const crumb_pipeline *p, char *out, size_t size) {
    if (p->model->divided)
        snprintf(out, size, "split %.2f of the rows, where their weights lie", p->model->split);
    else if (p->pair && p->model->split_always)
        snprintf(out, size, "split %.2f of the rows, as asked for", p->model->split);
    else if (p->pair)
        crumb_split_explain(&p->split, out, size);
    else
        snprintf(out, size, "%s", p->unsplit);
}
