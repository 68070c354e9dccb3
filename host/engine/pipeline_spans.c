#include "host/engine/pipeline_parts.h"

#include "host/base/memory.h"
#include "host/base/thread.h"

#include <stdlib.h>

static crumb_status build_span(crumb_pipeline *p, span *s, crumb_error *err) {
    const crumb_network *net = &p->model->net;
    const kv_store *kv = &p->kv[s->unit_index];
    crumb_graph_init(&s->graph, p->params.activation, err);
    s->out = crumb_network_span(net, &s->graph, s->first, s->end);
    s->in = s->top = CRUMB_NO_VALUE;
    if (s->with_head && !s->unit->info.host_memory) s->top = crumb_graph_top(&s->graph, s->out, CRUMB_PIPELINE_TOP);
    s->graph.err = NULL; /* the caller's; it may be gone by the next call */
    if (s->graph.status != CRUMB_OK) return s->graph.status;
    if (s->graph.ops[0].kind == CRUMB_OP_INPUT) s->in = s->graph.ops[0].input.out;
    for (size_t i = 0; i < s->graph.n_ops; i++) {
        crumb_op *op = &s->graph.ops[i];
        if (op->kind == CRUMB_OP_ATTENTION) op->attention.kv_layer = kv->index[op->attention.kv_layer];
    }
    return CRUMB_OK;
}

crumb_status pipeline_build_phase(crumb_pipeline *p, crumb_phase phase, crumb_error *err) {
    span_list *list = &p->phases[phase];
    const crumb_engine_place *places = p->model->places;
    const uint32_t n = pipeline_n_layers(p) + 1;
    CRUMB_TRY(crumb_calloc(n, sizeof *list->items, "the layers' plans", (void **)&list->items, err));
    for (uint32_t first = 0, end; first < n; first = end) {
        const uint8_t unit = places[first].unit[phase];
        for (end = first + 1; end < n && places[end].unit[phase] == unit; end++) {
        }
        span *s = &list->items[list->n++];
        s->first = first;
        s->end = end;
        s->unit = &p->model->units[unit];
        s->unit_index = unit;
        s->is_head = first == pipeline_n_layers(p);
        s->with_head = end > pipeline_n_layers(p);
        s->row = crumb_watch_predict_row(p->model, unit, first, end);
        CRUMB_TRY(build_span(p, s, err));
    }
    return CRUMB_OK;
}

void pipeline_free_phase(span_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        span *s = &list->items[i];
        for (int b = 0; b < CRUMB_BUCKET_COUNT; b++)
            if (s->plans[b]) s->unit->backend->plan.destroy(s->plans[b]);
        crumb_graph_free(&s->graph);
    }
    free(list->items);
}

/* Records a span's plan for a bucket. The head by itself sees only rows with output. */
static crumb_status record_plan(crumb_pipeline *p, span *s, crumb_bucket bucket, crumb_error *err) {
    const bool scores = bucket == CRUMB_BUCKET_SCORE;
    const uint32_t rows = crumb_pipeline_rows(p, bucket), outputs = scores ? rows : 1;
    const crumb_plan_desc desc = {
        .ops = s->graph.ops,
        .n_ops = s->graph.n_ops - (scores && s->top != CRUMB_NO_VALUE),
        .values = s->graph.values,
        .n_values = s->graph.n_values,
        .max_rows = s->is_head ? outputs : rows,
        .max_outputs = outputs,
        .n_threads = pipeline_threads(p, bucket),
        .kv = p->kv[s->unit_index].cache,
    };
    CRUMB_TRY(s->unit->backend->plan.record(s->unit->device, &desc, &s->plans[bucket], err));
    p->stats.scratch_bytes += s->unit->backend->plan.scratch_bytes(s->plans[bucket]);
    return CRUMB_OK;
}

crumb_status pipeline_record_phase(crumb_pipeline *p, crumb_phase phase, crumb_bucket bucket, crumb_error *err) {
    span_list *list = &p->phases[phase];
    for (size_t i = 0; i < list->n; i++)
        if (!list->items[i].plans[bucket]) CRUMB_TRY(record_plan(p, &list->items[i], bucket, err));
    return CRUMB_OK;
}

static crumb_status run_span(crumb_pipeline *p, span *s, crumb_bucket bucket, pipeline_batch *b, crumb_error *err) {
    if (!s->plans[bucket]) CRUMB_TRY(record_plan(p, s, bucket, err));
    const uint32_t n = b->n, n_past = b->rows[0].position;
    const crumb_backend *backend = s->unit->backend;
    crumb_plan *plan = s->plans[bucket];
    const uint64_t start = crumb_ticks();
    if (s->in != CRUMB_NO_VALUE) CRUMB_TRY(backend->plan.write(plan, s->in, b->x, b->n, err));
    CRUMB_TRY(backend->plan.replay(plan, b->rows, b->n, err));
    if (!s->with_head) CRUMB_TRY(backend->plan.read(plan, s->out, &b->x, &b->n, err));
    const uint64_t now = crumb_ticks(); /* maybe of another core, whose count may be behind a little */
    p->times.ticks[s->unit_index] += now > start ? now - start : 0;
    p->times.predicted_ns[s->unit_index] +=
        bucket == CRUMB_BUCKET_ONE ? s->row.at_none_ns + s->row.per_position_ns * n_past
                                   : crumb_watch_predict_batch(p->model, s->unit_index, s->first, s->end, n, n_past);
    return CRUMB_OK;
}

/* The rows that are left behind the last layer. */
static void keep_wanted(crumb_pipeline *p, const crumb_row *rows, uint32_t n, pipeline_batch *b) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].wants_output) p->wanted[kept++] = rows[i];
    b->rows = p->wanted;
    b->n = kept;
}

crumb_status pipeline_run_list(crumb_pipeline *p, span_list *list, crumb_bucket bucket, pipeline_batch b,
                               crumb_error *err) {
    const crumb_row *rows = b.rows;
    const uint32_t n = b.n;
    for (size_t i = 0; i < list->n; i++) {
        span *s = &list->items[i];
        if (s->is_head) keep_wanted(p, rows, n, &b);
        if (b.n == 0) break; /* nobody wants the head's output */
        p->failed = s->unit;
        CRUMB_TRY(run_span(p, s, bucket, &b, err));
        if (s->with_head) p->last = s;
    }
    p->failed = NULL;
    p->bucket = bucket;
    return CRUMB_OK;
}
