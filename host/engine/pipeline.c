#include "host/engine/pipeline.h"
#include "host/engine/pages.h"
#include "host/engine/pair.h"

#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/kernel/kv.h"
#include "scheduler/split.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t small_buckets[CRUMB_BUCKET_BATCH] = {1, 2, 4, 8, 16};
enum { SCORE_ROWS = 128, NO_LAYER = UINT16_MAX };

/* Layers [first, end) on one device; the head is the layer behind the last. What a token needs of it comes first: the
 * layer before has driven all of this out of the caches, and each further line that is read takes 0.1 us. */
typedef struct span {
    const crumb_engine_unit *unit;
    uint8_t unit_index;      /* of the model's */
    bool is_head, with_head; /* nothing but the head; the head behind layers, or nothing else */
    crumb_value in;          /* CRUMB_NO_VALUE: begins with the embedding */
    crumb_value out;         /* the residual stream, or logits */
    crumb_watch_line row;    /* what is predicted of it for a single row */
    crumb_plan *plans[CRUMB_BUCKET_COUNT];
    uint32_t first, end;
    crumb_value top;   /* of logits that would have to travel; else CRUMB_NO_VALUE */
    crumb_graph graph; /* its last op is TOP where top is there */
} span;

/* What the spans of one run took on each unit, and what was predicted. */
typedef struct span_times {
    double predicted_ns[CRUMB_ENGINE_MAX_UNITS];
    uint64_t ticks[CRUMB_ENGINE_MAX_UNITS];
} span_times;

typedef struct span_list {
    span *items;
    size_t n;
} span_list;

/* What a device keeps of the context. */
typedef struct kv_store {
    crumb_kv_cache *cache; /* NULL: it computes no layer */
    crumb_kv_params params;
    uint16_t *index; /* [layers]: a layer's number in the cache, or NO_LAYER */
} kv_store;

struct crumb_pipeline {
    crumb_model *model;
    crumb_session_params params;
    span_list phases[CRUMB_PHASE_COUNT];
    bool one_list; /* both phases are placed alike, and the second list is the first */
    kv_store kv[CRUMB_ENGINE_MAX_UNITS];
    crumb_kv_pages pages; /* that both units' caches are in */
    uint8_t *held;        /* [layers]: the unit whose cache has what was evaluated last */
    crumb_phase held_for; /* where all of that is where this phase is computed */
    crumb_row *wanted;    /* rows with output; as many as the largest bucket for the head has */
    crumb_pair *pair;     /* NULL: layers are not divided; else single rows may go there */
    crumb_split split;
    size_t alone;               /* the unit that runs single rows where the pair does not */
    uint32_t share;             /* of SPLIT_STEPS, that the pair has been made for; 0: one that stays */
    crumb_watch_split pair_row; /* predicted of the pair */
    bool by_pair;               /* the last run */
    uint32_t in_spans, in_pair; /* positions that the caches of either hold */
    crumb_pipeline_stats stats;
    crumb_watch watch;
    /* The run under way, or the last one. */
    const crumb_engine_unit *failed;
    const span *last; /* NULL: none, or it was the pair's */
    crumb_bucket bucket;
    double aside_ns; /* moving keys and values, another share; no part of what rows take */
    span_times times;
};

static void note_move(crumb_pipeline *p, uint64_t start_ns) {
    const double ns = (double)(crumb_now_ns() - start_ns);
    p->stats.move_ms += ns / 1e6;
    p->aside_ns += ns;
}

static uint32_t n_layers(const crumb_pipeline *p) {
    return p->model->net.hparams.num_hidden_layers;
}

static int threads_for(const crumb_pipeline *p, crumb_bucket bucket) {
    return bucket >= CRUMB_BUCKET_BATCH ? p->params.n_threads_batch : p->params.n_threads;
}

/* ---- spans --------------------------------------------------------------------------------------------------- */

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

static bool same_places(const crumb_model *m) {
    for (uint32_t i = 0; i <= m->net.hparams.num_hidden_layers; i++)
        if (m->places[i].unit[CRUMB_PHASE_PREFILL] != m->places[i].unit[CRUMB_PHASE_DECODE]) return false;
    return true;
}

static crumb_status build_phase(crumb_pipeline *p, crumb_phase phase, crumb_error *err) {
    span_list *list = &p->phases[phase];
    const crumb_engine_place *places = p->model->places;
    const uint32_t n = n_layers(p) + 1;
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
        s->is_head = first == n_layers(p);
        s->with_head = end > n_layers(p);
        s->row = crumb_watch_predict_row(p->model, unit, first, end);
        CRUMB_TRY(build_span(p, s, err));
    }
    return CRUMB_OK;
}

static void free_phase(span_list *list) {
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
        .n_threads = threads_for(p, bucket),
        .kv = p->kv[s->unit_index].cache,
    };
    CRUMB_TRY(s->unit->backend->plan.record(s->unit->device, &desc, &s->plans[bucket], err));
    p->stats.scratch_bytes += s->unit->backend->plan.scratch_bytes(s->plans[bucket]);
    return CRUMB_OK;
}

static crumb_status record_phase(crumb_pipeline *p, crumb_phase phase, crumb_bucket bucket, crumb_error *err) {
    span_list *list = &p->phases[phase];
    for (size_t i = 0; i < list->n; i++)
        if (!list->items[i].plans[bucket]) CRUMB_TRY(record_plan(p, &list->items[i], bucket, err));
    return CRUMB_OK;
}

/* ---- keys and values ----------------------------------------------------------------------------------------- */

/* Where keys and values would move between devices that see the same memory, they have one cache. */
static bool wants_one_cache(const crumb_pipeline *p) {
    return p->model->n_units == 2 && !p->model->divided && p->model->units[0].info.shared_weight_bytes > 0 &&
           (p->model->split > 0 || !same_places(p->model));
}

static crumb_kv_params kv_params_of(const crumb_pipeline *p, uint32_t n) {
    const crumb_hparams *h = &p->model->net.hparams;
    return (crumb_kv_params){.n_layers = n,
                             .n_sequences = 1,
                             .n_ctx = p->params.n_ctx,
                             .n_head_kv = h->num_key_value_heads,
                             .head_dim = h->head_dim,
                             .type = p->params.kv_type};
}

static crumb_status create_pages(crumb_pipeline *p, crumb_error *err) {
    const crumb_kv_params all = kv_params_of(p, n_layers(p));
    if (!wants_one_cache(p)) return CRUMB_OK;
    CRUMB_TRY(crumb_kv_pages_create(&p->model->units[0], &all, &p->pages, err));
    p->stats.kv_bytes += p->pages.n_layers * p->pages.layer_bytes;
    return CRUMB_OK;
}

static crumb_status create_kv(crumb_pipeline *p, size_t unit, crumb_error *err) {
    const crumb_hparams *h = &p->model->net.hparams;
    const crumb_engine_unit *u = &p->model->units[unit];
    kv_store *kv = &p->kv[unit];
    uint32_t n = 0;
    uint64_t n_bytes;
    CRUMB_TRY(crumb_calloc(h->num_hidden_layers, sizeof *kv->index, "the context", (void **)&kv->index, err));
    for (uint32_t i = 0; i < h->num_hidden_layers; i++) {
        const uint8_t *on = p->model->places[i].unit;
        kv->index[i] = on[CRUMB_PHASE_PREFILL] == unit || on[CRUMB_PHASE_DECODE] == unit ? (uint16_t)n++ : NO_LAYER;
    }
    if (n == 0) return CRUMB_OK;
    kv->params = kv_params_of(p, n);
    CRUMB_TRY(crumb_kv_pages_cache(&p->pages, u, &kv->params, kv->index, 0, &kv->cache, &n_bytes, err));
    p->stats.kv_bytes += n_bytes;
    return CRUMB_OK;
}

/* What unit `from` has of a layer's first n_past positions goes to unit `to`. */
static crumb_status move_layer(crumb_pipeline *p, uint32_t layer, size_t from, size_t to, uint32_t n_past,
                               crumb_error *err) {
    const crumb_engine_unit *reader = &p->model->units[from], *writer = &p->model->units[to];
    crumb_kv_range range = {.layer = p->kv[from].index[layer],
                            .n_layers = 1,
                            .n_heads = p->kv[from].params.n_head_kv,
                            .n_positions = n_past};
    const uint64_t n_bytes = crumb_kv_range_bytes(&p->kv[from].params, &range);
    void *pages;
    CRUMB_TRY(crumb_calloc(1, n_bytes, "keys and values that move", &pages, err));
    p->failed = reader;
    crumb_status status = reader->backend->device.kv_read(reader->device, p->kv[from].cache, &range, pages, err);
    range.layer = p->kv[to].index[layer];
    if (status == CRUMB_OK) {
        p->failed = writer;
        status = writer->backend->device.kv_write(writer->device, p->kv[to].cache, &range, pages, err);
    }
    if (status == CRUMB_OK) p->failed = NULL;
    free(pages);
    p->stats.moved_bytes += n_bytes;
    return status;
}

static crumb_status move_kv(crumb_pipeline *p, crumb_phase phase, uint32_t n_past, crumb_error *err) {
    if (p->one_list || p->held_for == phase) return CRUMB_OK;
    const uint64_t start = crumb_now_ns();
    for (uint32_t i = 0; i < n_layers(p); i++) {
        const uint8_t to = p->model->places[i].unit[phase];
        if (p->held[i] == to) continue;
        if (n_past > 0 && !p->pages.at) CRUMB_TRY(move_layer(p, i, p->held[i], to, n_past, err));
        p->held[i] = to;
    }
    p->held_for = phase;
    note_move(p, start);
    return CRUMB_OK;
}

/* ---- a pair of devices --------------------------------------------------------------------------------------- */

/* A change records both plans anew and moves all keys and values: finer steps than 1/32 would gain less than they cost.
 */
enum { SPLIT_STEPS = 32, SPLIT_SETTLE = 4 };

/* Where a split is not asked for, but would perhaps pay, layers that cannot be divided are no error. */
static crumb_status make_pair(crumb_pipeline *p, double share, crumb_error *err) {
    crumb_error reason = {0};
    const crumb_status status = crumb_pair_create(p->model, &p->params, share, &p->pages, &p->pair, &reason);
    if ((status == CRUMB_ERR_UNSUPPORTED || status == CRUMB_ERR_MEMORY) && !p->model->split_always) {
        crumb_engine_log(p->model, CRUMB_LOG_WARN, "layers are not split: %s", reason.message);
        return CRUMB_OK;
    }
    if (status != CRUMB_OK) return crumb_fail(err, status, "%s", reason.message);
    p->pair_row = crumb_watch_predict_split(&p->watch, p->model, share);
    const crumb_pair_stats stats = crumb_pair_get_stats(p->pair);
    p->stats.kv_bytes += stats.kv_bytes;
    p->stats.scratch_bytes += stats.scratch_bytes;
    return CRUMB_OK;
}

static crumb_status create_pair(crumb_pipeline *p, crumb_error *err) {
    const double wanted = p->model->split;
    if (wanted <= 0) return CRUMB_OK;
    if (p->model->split_always) return make_pair(p, wanted, err);
    p->alone = p->model->places[0].unit[CRUMB_PHASE_DECODE];
    const crumb_split_params params = {.n_steps = SPLIT_STEPS,
                                       .share = (uint32_t)lround(wanted * SPLIT_STEPS),
                                       .alone = p->alone ? 0 : SPLIT_STEPS,
                                       .settle = SPLIT_SETTLE};
    crumb_split_init(&p->split, &params);
    p->share = p->split.share;
    return make_pair(p, (double)p->share / SPLIT_STEPS, err);
}

/* What the caches that are going to be used lack of the first n_past positions. */
static crumb_status bring_kv(crumb_pipeline *p, bool to_pair, uint32_t n_past, crumb_error *err) {
    uint32_t *held = to_pair ? &p->in_pair : &p->in_spans;
    if (!p->pair || *held >= n_past) return CRUMB_OK;
    if (crumb_pair_shares_kv(p->pair)) return *held = n_past, CRUMB_OK;
    const uint64_t start = crumb_now_ns();
    p->failed = &p->model->units[0];
    CRUMB_TRY(crumb_pair_move_kv(p->pair, &p->model->units[p->alone], p->kv[p->alone].cache, &p->kv[p->alone].params,
                                 *held, n_past, !to_pair, err));
    p->failed = NULL;
    *held = n_past;
    note_move(p, start);
    return CRUMB_OK;
}

/* Rows have been evaluated up to `end`, from position n_past on. */
static void note_kv(crumb_pipeline *p, bool by_pair, uint32_t n_past, uint32_t end) {
    uint32_t *mine = by_pair ? &p->in_pair : &p->in_spans, *other = by_pair ? &p->in_spans : &p->in_pair;
    *mine = end;
    if (*other > n_past) *other = n_past;
    p->by_pair = by_pair;
}

static crumb_pair_size pair_size(const crumb_pipeline *p, crumb_bucket bucket) {
    const uint32_t rows = crumb_pipeline_rows(p, bucket);
    return (crumb_pair_size){
        .max_rows = rows, .max_outputs = bucket == CRUMB_BUCKET_SCORE ? rows : 1, .n_threads = threads_for(p, bucket)};
}

static crumb_status run_pair(crumb_pipeline *p, crumb_bucket bucket, const crumb_row *rows, uint32_t n,
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
        crumb_watch_pair_batch(&p->watch, p->model, p->model->split, n, n_past, ns);
    note_kv(p, true, n_past, n_past + n);
    return CRUMB_OK;
}

/* A single row where whole layers have been evaluated before. */
static crumb_status run_pair_row(crumb_pipeline *p, const crumb_row *row, crumb_error *err) {
    CRUMB_TRY(move_kv(p, CRUMB_PHASE_DECODE, row->position, err));
    CRUMB_TRY(bring_kv(p, true, row->position, err));
    return run_pair(p, CRUMB_BUCKET_ONE, row, 1, err);
}

static void drop_pair(crumb_pipeline *p) {
    const crumb_pair_stats stats = crumb_pair_get_stats(p->pair);
    p->stats.kv_bytes -= stats.kv_bytes;
    p->stats.scratch_bytes -= stats.scratch_bytes;
    crumb_pair_destroy(p->pair);
    p->pair = NULL;
    p->in_pair = 0;
}

/* Another share: what the pair holds goes to the caches of whole layers, and from there to the next pair. */
static crumb_status change_share(crumb_pipeline *p, uint32_t share, uint32_t n_past, crumb_error *err) {
    const double before_ns = p->aside_ns;
    const uint64_t start = crumb_now_ns();
    CRUMB_TRY(bring_kv(p, false, n_past, err));
    drop_pair(p);
    CRUMB_TRY(make_pair(p, (double)share / SPLIT_STEPS, err));
    p->share = share;
    p->stats.n_changes++;
    p->aside_ns = before_ns + (double)(crumb_now_ns() - start);
    return CRUMB_OK;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

/* No device has a whole layer. */
static crumb_status set_up_divided(crumb_pipeline *p, crumb_error *err) {
    const crumb_pair_size batch = pair_size(p, CRUMB_BUCKET_BATCH);
    CRUMB_TRY(create_pair(p, err));
    const crumb_status status = crumb_pair_prepare(p->pair, &batch, err);
    p->stats.scratch_bytes = crumb_pair_get_stats(p->pair).scratch_bytes;
    return status;
}

static crumb_status set_up(crumb_pipeline *p, crumb_error *err) {
    const uint32_t scores = crumb_pipeline_rows(p, CRUMB_BUCKET_SCORE);
    if (p->model->divided) return set_up_divided(p, err);
    CRUMB_TRY(create_pages(p, err));
    for (size_t i = 0; i < p->model->n_units; i++) CRUMB_TRY(create_kv(p, i, err));
    CRUMB_TRY(crumb_calloc(n_layers(p), sizeof *p->held, "the context", (void **)&p->held, err));
    CRUMB_TRY(crumb_calloc(scores, sizeof *p->wanted, "the batch", (void **)&p->wanted, err));
    for (uint32_t i = 0; i < n_layers(p); i++) p->held[i] = p->model->places[i].unit[CRUMB_PHASE_PREFILL];
    CRUMB_TRY(build_phase(p, CRUMB_PHASE_PREFILL, err));
    p->one_list = same_places(p->model);
    if (p->one_list)
        p->phases[CRUMB_PHASE_DECODE] = p->phases[CRUMB_PHASE_PREFILL];
    else
        CRUMB_TRY(build_phase(p, CRUMB_PHASE_DECODE, err));
    CRUMB_TRY(record_phase(p, CRUMB_PHASE_DECODE, CRUMB_BUCKET_ONE, err));
    CRUMB_TRY(create_pair(p, err));
    return record_phase(p, CRUMB_PHASE_PREFILL, CRUMB_BUCKET_BATCH, err);
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
    free_phase(&p->phases[CRUMB_PHASE_PREFILL]);
    if (!p->one_list) free_phase(&p->phases[CRUMB_PHASE_DECODE]);
    for (size_t i = 0; i < p->model->n_units; i++) {
        const crumb_engine_unit *u = &p->model->units[i];
        if (p->kv[i].cache) u->backend->device.kv_destroy(u->device, p->kv[i].cache);
        free(p->kv[i].index);
    }
    crumb_kv_pages_destroy(&p->model->units[0], &p->pages);
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

/* What goes from one span to the next. */
typedef struct batch {
    const crumb_row *rows;
    uint32_t n;
    const float *x; /* the residual stream of these rows; NULL in front of the first span */
} batch;

static crumb_status run_span(crumb_pipeline *p, span *s, crumb_bucket bucket, batch *b, crumb_error *err) {
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
static void keep_wanted(crumb_pipeline *p, const crumb_row *rows, uint32_t n, batch *b) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].wants_output) p->wanted[kept++] = rows[i];
    b->rows = p->wanted;
    b->n = kept;
}

static crumb_status run_list(crumb_pipeline *p, span_list *list, crumb_bucket bucket, batch b, crumb_error *err) {
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

static crumb_status run_spans(crumb_pipeline *p, crumb_bucket bucket, const crumb_row *rows, uint32_t n,
                              crumb_error *err) {
    const crumb_phase phase = bucket >= CRUMB_BUCKET_BATCH ? CRUMB_PHASE_PREFILL : CRUMB_PHASE_DECODE;
    CRUMB_TRY(bring_kv(p, false, rows[0].position, err));
    CRUMB_TRY(move_kv(p, phase, rows[0].position, err));
    CRUMB_TRY(run_list(p, &p->phases[phase], bucket, (batch){.rows = rows, .n = n}, err));
    note_kv(p, false, rows[0].position, rows[0].position + n);
    return CRUMB_OK;
}

/* A single row where the part of each device is learned: by both, or by one alone, as measured to be faster. */
static crumb_status run_row(crumb_pipeline *p, const crumb_row *row, crumb_error *err) {
    const uint32_t share = crumb_split_next(&p->split);
    const bool both = share > 0 && share < SPLIT_STEPS;
    if (both && share != p->share) CRUMB_TRY(change_share(p, share, row->position, err));
    if (!p->pair) return run_spans(p, CRUMB_BUCKET_ONE, row, 1, err);
    const double aside_ns = p->aside_ns;
    const crumb_pair_stats before = crumb_pair_get_stats(p->pair);
    const uint64_t start = crumb_now_ns();
    CRUMB_TRY(both ? run_pair_row(p, row, err) : run_spans(p, CRUMB_BUCKET_ONE, row, 1, err));
    const double ns = (double)(crumb_now_ns() - start) - (p->aside_ns - aside_ns);
    const crumb_pair_stats after = crumb_pair_get_stats(p->pair);
    crumb_split_spent(&p->split, p->aside_ns);
    crumb_split_done(&p->split, (double)(after.busy_ns[0] - before.busy_ns[0]),
                     (double)(after.busy_ns[1] - before.busy_ns[1]), ns);
    return CRUMB_OK;
}

static crumb_status run_any(crumb_pipeline *p, crumb_bucket bucket, const crumb_row *rows, uint32_t n,
                            crumb_error *err) {
    if (p->model->divided) return run_pair(p, bucket, rows, n, err);
    if (!p->pair || bucket != CRUMB_BUCKET_ONE) return run_spans(p, bucket, rows, n, err);
    return p->model->split_always ? run_pair_row(p, rows, err) : run_row(p, rows, err);
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

const crumb_watch *crumb_pipeline_watch(const crumb_pipeline *p) {
    return &p->watch;
}

void crumb_pipeline_explain_split(const crumb_pipeline *p, char *out, size_t size) {
    if (size) *out = 0;
    if (p->model->divided)
        snprintf(out, size, "split %.2f of the rows, where their weights lie", p->model->split);
    else if (p->pair && p->model->split_always)
        snprintf(out, size, "split %.2f of the rows, as asked for", p->model->split);
    else if (p->pair)
        crumb_split_explain(&p->split, out, size);
}
