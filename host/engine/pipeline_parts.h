/* What the files of a pipeline share: pipeline.c has its life and runs, pipeline_spans.c layers one behind the other,
 * pipeline_kv.c what the devices keep of the context, pipeline_pair.c layers that two devices share. */
#ifndef CRUMB_ENGINE_PIPELINE_PARTS_H
#define CRUMB_ENGINE_PIPELINE_PARTS_H

#include "host/engine/pages.h"
#include "host/engine/pair.h"
#include "host/engine/pipeline.h"
#include "scheduler/split.h"

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
    uint16_t *index; /* [layers]: a layer's number in the cache, or UINT16_MAX */
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
    uint32_t share;             /* of CRUMB_SPLIT_STEPS, that the pair has been made for; 0: one that stays */
    char unsplit[144];          /* why there is none, though it would perhaps pay; else empty */
    crumb_watch_split pair_row; /* predicted of the pair */
    bool by_pair;               /* the last run */
    crumb_phase placed_as;      /* likewise: in whose place it was, where not by the pair */
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

/* What goes from one span to the next. */
typedef struct pipeline_batch {
    const crumb_row *rows;
    uint32_t n;
    const float *x; /* the residual stream of these rows; NULL in front of the first span */
} pipeline_batch;

static inline uint32_t pipeline_n_layers(const crumb_pipeline *p) {
    return p->model->net.hparams.num_hidden_layers;
}

static inline int pipeline_threads(const crumb_pipeline *p, crumb_bucket bucket) {
    return bucket >= CRUMB_BUCKET_BATCH ? p->params.n_threads_batch : p->params.n_threads;
}

/* ---- pipeline_spans.c ---------------------------------------------------------------------------------------- */

/* The spans of a phase, as the model's layers are placed. */
crumb_status pipeline_build_phase(crumb_pipeline *p, crumb_phase phase, crumb_error *err);
/* Records those plans of a phase's spans for a bucket that are not there. */
crumb_status pipeline_record_phase(crumb_pipeline *p, crumb_phase phase, crumb_bucket bucket, crumb_error *err);
void pipeline_free_phase(span_list *list);
/* Evaluates the rows of b; p->failed is the unit at which that has failed. */
crumb_status pipeline_run_list(crumb_pipeline *p, span_list *list, crumb_bucket bucket, pipeline_batch b,
                               crumb_error *err);

/* ---- pipeline_kv.c ------------------------------------------------------------------------------------------- */

/* Both phases are placed alike. */
bool pipeline_same_places(const crumb_model *m);
/* The caches of all units, empty. */
crumb_status pipeline_create_kv(crumb_pipeline *p, crumb_error *err);
void pipeline_destroy_kv(crumb_pipeline *p);
/* Keys and values of the first n_past positions go to where the phase is computed. */
crumb_status pipeline_move_kv(crumb_pipeline *p, crumb_phase phase, uint32_t n_past, crumb_error *err);
/* Moving has taken the time since start_ns, which is no part of what rows take. */
void pipeline_note_move(crumb_pipeline *p, uint64_t start_ns);

/* ---- pipeline_pair.c ----------------------------------------------------------------------------------------- */

/* The pair that the model's split asks for; none, with a message, where layers cannot be divided and nobody said that
 * they must be. */
crumb_status pipeline_create_pair(crumb_pipeline *p, crumb_error *err);
/* The same where no device has a whole layer, with plans for whole batches. */
crumb_status pipeline_create_divided(crumb_pipeline *p, crumb_error *err);
/* What the caches that are going to be used, the pair's or those of whole layers, lack of the first n_past positions.
 */
crumb_status pipeline_bring_kv(crumb_pipeline *p, bool to_pair, uint32_t n_past, crumb_error *err);
/* Rows have been evaluated up to `end`, from position n_past on. */
void pipeline_note_kv(crumb_pipeline *p, bool by_pair, uint32_t n_past, uint32_t end);
crumb_status pipeline_run_pair(crumb_pipeline *p, crumb_bucket bucket, const crumb_row *rows, uint32_t n,
                               crumb_error *err);
/* A single row where whole layers have been evaluated before. */
crumb_status pipeline_run_pair_row(crumb_pipeline *p, const crumb_row *row, crumb_error *err);
/* Another share: what the pair holds goes to the caches of whole layers, and from there to the next pair. */
crumb_status pipeline_change_share(crumb_pipeline *p, uint32_t share, uint32_t n_past, crumb_error *err);

#endif
