/* A session's forward pass: spans of layers on the devices that compute them, one behind the other, and the keys and
 * values that each device keeps.
 *
 * Prompts and decoding may be placed differently (crumb_model.places). Single rows run where decoding is placed; each
 * batch runs where it is predicted to take less (batch.h), and where nothing is predicted up to 16 rows as decoding,
 * more as prefill. Keys and values move where a layer changes its device, once, before the first row there. A span is
 * one plan of its device for each bucket of rows; what it hands to the next travels through the host.
 */
#ifndef CRUMB_ENGINE_PIPELINE_H
#define CRUMB_ENGINE_PIPELINE_H

#include "host/engine/explain.h"

typedef struct crumb_pipeline crumb_pipeline;

/* Plans are recorded for a few numbers of rows; a tail runs in the next larger one. */
typedef enum crumb_bucket {
    CRUMB_BUCKET_ONE,
    CRUMB_BUCKET_2,
    CRUMB_BUCKET_4,
    CRUMB_BUCKET_8,
    CRUMB_BUCKET_16,
    CRUMB_BUCKET_BATCH,
    CRUMB_BUCKET_SCORE, /* every row's logits may be wanted: smaller, so that logits stay small */
    CRUMB_BUCKET_COUNT
} crumb_bucket;

enum { CRUMB_PIPELINE_TOP = 128 }; /* enough for the default top-k of 40 behind a penalty's window of 64 */

/* Makes the caches and records the plans for one row and for a whole batch, so that what does not fit fails here. The
 * parameters are complete (no zeros that mean a default). */
crumb_status crumb_pipeline_create(crumb_model *model, const crumb_session_params *params, crumb_pipeline **out,
                                   crumb_error *err);
void crumb_pipeline_destroy(crumb_pipeline *p);

crumb_bucket crumb_pipeline_bucket(const crumb_pipeline *p, size_t n_rows); /* for n_rows of which one has an output */
uint32_t crumb_pipeline_rows(const crumb_pipeline *p, crumb_bucket bucket); /* that it takes */

/* Evaluates n rows behind those that are in the caches. `phase`: what they are told as by crumb_pipeline_explain. */
crumb_status crumb_pipeline_run(crumb_pipeline *p, crumb_phase phase, crumb_bucket bucket, const crumb_row *rows,
                                uint32_t n, crumb_error *err);
/* The unit at which the last run, or reading its results, has failed; NULL: none. */
const crumb_engine_unit *crumb_pipeline_failed(const crumb_pipeline *p);

/* Logits of the last run's rows that wanted output: [*n][vocab_size], valid until the next run. */
crumb_status crumb_pipeline_logits(crumb_pipeline *p, const float **out, uint32_t *n, crumb_error *err);
/* The CRUMB_PIPELINE_TOP largest of one row, then their tokens (CRUMB_OP_TOP). *out NULL: they were not chosen apart,
 * since all logits lie in the host's memory, or many rows wanted output. */
crumb_status crumb_pipeline_top(crumb_pipeline *p, const float **out, crumb_error *err);

/* Adds where the time of single rows goes to *times from now on; NULL: no more. */
void crumb_pipeline_measure(crumb_pipeline *p, crumb_plan_times *times);

typedef struct crumb_pipeline_stats {
    uint64_t kv_bytes, scratch_bytes;
    uint64_t moved_bytes; /* of keys and values, between devices */
    double move_ms;
    uint64_t prompt_rows[CRUMB_PHASE_COUNT]; /* of prompts, that have run where a phase is placed */
    uint32_t n_changes;                      /* of the part that each of two devices has of a layer */
} crumb_pipeline_stats;
crumb_pipeline_stats crumb_pipeline_get_stats(const crumb_pipeline *p);
const crumb_watch *crumb_pipeline_watch(const crumb_pipeline *p);
/* What was found out about dividing layers between two devices; empty where they are not. */
void crumb_pipeline_explain_split(const crumb_pipeline *p, char *out, size_t size);
/* What is predicted of a prompt of n_rows, and of a token behind n_past positions, as layers really run, in ns; 0:
 * nothing.
 */
double crumb_pipeline_predict_prompt(const crumb_pipeline *p, uint32_t n_rows);
double crumb_pipeline_predict_token(const crumb_pipeline *p, uint32_t n_past);
void crumb_pipeline_explain(const crumb_pipeline *p, crumb_explanation *out);
const crumb_model *crumb_pipeline_model(const crumb_pipeline *p); /* a session's, or its substitute */

#endif
