/* A model that a section of the suite measures, in rounds beside the machine's limits. */
#ifndef CRUMB_TOOLS_SUITE_MODEL_H
#define CRUMB_TOOLS_SUITE_MODEL_H

#include "tools/crumb/suite.h"

#include "cpu/probe.h"
#include "host/backend.h"

enum { SUITE_KV_TYPES = 2 };

/* Of one round. Times are those of one token. */
typedef enum model_measure {
    MODEL_READ_GB_S,  /* the mean of before and after decoding */
    MODEL_STEPS_GB_S, /* reading alone, cut and in the steps of a layer's matrices */
    MODEL_PEAK_GOPS,  /* of the model's tier; 0: it has none */
    MODEL_REORDER,    /* crumb_probe_reorder: the least of before and after decoding */
    MODEL_TOKEN_NS,
    MODEL_LAYERS_NS,                                /* of the token: the linear ops of the layers */
    MODEL_GEMV_NS,                                  /* those and the head */
    MODEL_DEEP_NS,                                  /* behind a full context kept as f16; 0 without one */
    MODEL_DEEP_Q8_NS = MODEL_DEEP_NS + CRUMB_KV_Q8, /* the same kept as q8 */
    MODEL_PROMPT_NS, /* the whole prompt; 0 without one, and in rounds that leave it out */
    MODEL_N_MEASURES
} model_measure;

typedef struct suite_model {
    const suite_state *suite;
    crumb_model *model;
    crumb_model_info info;
    crumb_probe *probe;
    crumb_session *session;              /* its context is empty but for some tokens */
    crumb_session *deep[SUITE_KV_TYPES]; /* by crumb_kv_type; full to `depth` */
    uint32_t n_gen, n_prompt, depth;
    uint64_t kv_bytes[SUITE_KV_TYPES]; /* of `depth` positions */
    int32_t *tokens;                   /* [n_prompt or depth, the larger] random ones */
    double *values;                    /* [MODEL_N_MEASURES][rounds] */
    double *sorted;                    /* [rounds] */
} suite_model;

/* What a synthetic model takes while it is measured, with contexts and probe. */
crumb_status suite_model_bytes(const char *spec, uint64_t *n_bytes, crumb_error *err);
/* Opens a file, a synthetic model (`synthetic` not NULL) or the embedded one (both NULL), makes a session for prompts
 * of n_prompt tokens (0: none) and fills others to `depth` (0: none), one for each way to keep a context. Destroyed by
 * the caller, also after a failure. Fails with MEMORY before it begins where a synthetic model does not fit. */
crumb_status suite_model_open(const suite_state *s, const char *path, const char *synthetic, uint32_t n_prompt,
                              uint32_t depth, suite_model *out, crumb_error *err);
/* Measures one of the suite's rounds; the first one twice, since it warms up. Models that are compared take turns. */
crumb_status suite_model_round(suite_model *m, size_t round, crumb_error *err);
/* All rounds of one model. */
crumb_status suite_model_run(suite_model *m, crumb_error *err);
void suite_model_close(suite_model *m);

double suite_model_value(const suite_model *m, model_measure measure, size_t round);
/* The median over the rounds; those in which it was not measured do not count. */
double suite_model_median(const suite_model *m, model_measure measure);
/* The median of what a function makes of each round; `x` is passed on. */
typedef double suite_model_fn(const suite_model *m, size_t round, const void *x);
double suite_model_median_of(const suite_model *m, suite_model_fn *of, const void *x);
/* The same of the rounds in which its cores ran nothing else when decoding began and ended, as far as the reorder
 * window shows it. *n: how many; none where nothing shows it. */
double suite_model_alone(const suite_model *m, suite_model_fn *of, const void *x, size_t *n);

#endif
