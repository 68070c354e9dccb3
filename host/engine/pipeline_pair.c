#include "host/engine/pipeline_parts.h"

#include "host/base/thread.h"

#include <math.h>
#include <stdio.h>

/* Where a split is not asked for, but would perhaps pay, layers that cannot be divided are no error. */
static crumb_status make_pair(crumb_pipeline *p, double share, crumb_error *err) {
    crumb_error reason = {0};
    const crumb_status status = crumb_pair_create(p->model, &p->params, share, &p->pages, &p->pair, &reason);
    if ((status == CRUMB_ERR_UNSUPPORTED || status == CRUMB_ERR_MEMORY) && !p->model->split_always) {
        snprintf(p->unsplit, sizeof p->unsplit, "not split: %.120s", reason.message);
        crumb_engine_log(p->model, CRUMB_LOG_WARN, "layers are %s", p->unsplit);
        return CRUMB_OK;
    }
    if (status != CRUMB_OK) return crumb_fail(err, status, "%s", reason.message);
    p->pair_row = crumb_watch_predict_split(&p->watch, p->model, share);
    const crumb_pair_stats stats = crumb_pair_get_stats(p->pair);
    p->stats.kv_bytes += stats.kv_bytes;
    p->stats.scratch_bytes += stats.scratch_bytes;
    return CRUMB_OK;
}

crumb_status pipeline_create_pair(crumb_pipeline *p, crumb_error *err) {
    const double wanted = p->model->split;
    if (wanted <= 0) return CRUMB_OK;
    if (p->model->split_always) return make_pair(p, wanted, err);
    p->alone = p->model->places[0].unit[CRUMB_PHASE_DECODE];
    const crumb_split_params params = {.n_steps = CRUMB_SPLIT_STEPS,
                                       .share = (uint32_t)lround(wanted * CRUMB_SPLIT_STEPS),
                                       .alone = p->alone ? 0 : CRUMB_SPLIT_STEPS,
                                       .settle = CRUMB_SPLIT_SETTLE};
    crumb_split_init(&p->split, &params);
    p->share = p->split.share;
    const uint64_t start = crumb_now_ns();
    CRUMB_TRY(make_pair(p, (double)p->share / CRUMB_SPLIT_STEPS, err));
    p->split.params.change_ns = (double)(crumb_now_ns() - start); /* a change does the same again */
    return CRUMB_OK;
}

crumb_status pipeline_bring_kv(crumb_pipeline *p, bool to_pair, uint32_t n_past, crumb_error *err) {
    uint32_t *held = to_pair ? &p->in_pair : &p->in_spans;
    if (!p->pair || *held >= n_past) return CRUMB_OK;
    if (crumb_pair_shares_kv(p->pair)) return *held = n_past, CRUMB_OK;
    const uint64_t start = crumb_now_ns();
    p->failed = &p->model->units[0];
    CRUMB_TRY(crumb_pair_move_kv(p->pair, &p->model->units[p->alone], p->kv[p->alone].cache, &p->kv[p->alone].params,
                                 *held, n_past, !to_pair, err));
    p->failed = NULL;
    *held = n_past;
    pipeline_note_move(p, start);
    return CRUMB_OK;
}

void pipeline_note_kv(crumb_pipeline *p, bool by_pair, uint32_t n_past, uint32_t end) {
    uint32_t *mine = by_pair ? &p->in_pair : &p->in_spans, *other = by_pair ? &p->in_spans : &p->in_pair;
    *mine = end;
    if (*other > n_past) *other = n_past;
    p->by_pair = by_pair;
}

static crumb_pair_size pair_size(const crumb_pipeline *p, crumb_bucket bucket) {
    const uint32_t rows = crumb_pipeline_rows(p, bucket);
    return (crumb_pair_size){.max_rows = rows,
                             .max_outputs = bucket == CRUMB_BUCKET_SCORE ? rows : 1,
                             .n_threads = pipeline_threads(p, bucket)};
}

crumb_status pipeline_run_pair(crumb_pipeline *p, crumb_bucket bucket, const crumb_row *rows, uint32_t n,
                               crumb_error *err) {
    const uint32_t n_past = rows[0].position;
    const crumb_pair_size size = pair_size(p, bucket);
    const crumb_pair_stats before = crumb_pair_get_stats(p->pair);
    const uint64_t start = crumb_now_ns();
    CRUMB_TRY(crumb_pair_run(p->pair, &size, rows, n, &p->failed, err));
    const double ns = (double)(crumb_now_ns() - start);
    const crumb_pair_stats after = crumb_pair_get_stats(p->pair);
    const double busy_ns[2] = {(double)(after.busy_ns[0] - before.busy_ns[0]),
                               (double)(after.busy_ns[1] - before.busy_ns[1])};
    if (bucket == CRUMB_BUCKET_ONE)
        crumb_watch_pair(&p->watch, &p->pair_row, n_past, busy_ns, ns);
    else
        crumb_watch_span(&p->watch, CRUMB_WATCH_PAIR,
                         crumb_watch_predict_pair_batch(p->model, p->model->split, n, n_past), ns);
    pipeline_note_kv(p, true, n_past, n_past + n);
    return CRUMB_OK;
}

crumb_status pipeline_run_pair_row(crumb_pipeline *p, const crumb_row *row, crumb_error *err) {
    CRUMB_TRY(pipeline_move_kv(p, CRUMB_PHASE_DECODE, row->position, err));
    CRUMB_TRY(pipeline_bring_kv(p, true, row->position, err));
    return pipeline_run_pair(p, CRUMB_BUCKET_ONE, row, 1, err);
}

static void drop_pair(crumb_pipeline *p) {
    const crumb_pair_stats stats = crumb_pair_get_stats(p->pair);
    p->stats.kv_bytes -= stats.kv_bytes;
    p->stats.scratch_bytes -= stats.scratch_bytes;
    crumb_pair_destroy(p->pair);
    p->pair = NULL;
    p->in_pair = 0;
}

crumb_status pipeline_change_share(crumb_pipeline *p, uint32_t share, uint32_t n_past, crumb_error *err) {
    const double before_ns = p->aside_ns;
    const uint64_t start = crumb_now_ns();
    CRUMB_TRY(pipeline_bring_kv(p, false, n_past, err));
    drop_pair(p);
    CRUMB_TRY(make_pair(p, (double)share / CRUMB_SPLIT_STEPS, err));
    p->share = share;
    p->stats.n_changes++;
    p->aside_ns = before_ns + (double)(crumb_now_ns() - start);
    return CRUMB_OK;
}

crumb_status pipeline_create_divided(crumb_pipeline *p, crumb_error *err) {
    const crumb_pair_size batch = pair_size(p, CRUMB_BUCKET_BATCH);
    CRUMB_TRY(pipeline_create_pair(p, err));
    const crumb_status status = crumb_pair_prepare(p->pair, &batch, err);
    p->stats.scratch_bytes = crumb_pair_get_stats(p->pair).scratch_bytes;
    return status;
}
