/* What was chosen for a session's model, what was predicted, and what came of it. */
#ifndef CRUMB_ENGINE_EXPLAIN_H
#define CRUMB_ENGINE_EXPLAIN_H

#include "host/engine/watch.h"

/* A unit in a phase, or two that share layers. */
typedef struct crumb_explained_unit {
    char name[32];                    /* "gpu0", "cpu", "cpu+gpu0" */
    double ratio[CRUMB_PHASE_COUNT];  /* measured to what the profile predicts; 0: too little was seen */
    double factor[CRUMB_PHASE_COUNT]; /* the same as earlier sessions have found it, by which the choice was made */
} crumb_explained_unit;

typedef struct crumb_explanation {
    char choice[320]; /* "prefill gpu0, decode cpu"; the device where there was no choice */
    char why[768];    /* by prediction, or why that is not carried out; else why nothing is predicted */
    char profile[32]; /* empty: none */
    struct {
        uint32_t n_prompt, n_generate, n_ctx, n_batch;
        crumb_kv_type kv_type;
        double prefill_ns, decode_ns; /* predicted of such a prompt, and of a token in the middle of what follows, on
                                       * the devices that really run them */
    } placed_for;                     /* that is the choice for; zeroed: nothing is predicted */
    bool is_predicted;                /* the following phases and units have something in them */
    crumb_watch_phase phase[CRUMB_PHASE_COUNT];
    crumb_explained_unit unit[CRUMB_WATCH_UNITS];
    size_t n_units;
    double overhead_us; /* of a decoded token: what passed outside of the devices' work, the median */
    uint64_t n_single;  /* decoded tokens that this is the mean of; 0: none */
    uint32_t n_layers;  /* without the head */
    char split[160];    /* the learned part; empty: layers are not split */
    uint32_t n_changes; /* of it */
    uint64_t prompt_rows[CRUMB_PHASE_COUNT]; /* tokens of prompts that were read where a phase is placed; 0: both are
                                                alike */
    uint64_t moved_bytes;                    /* keys and values that went from one device's cache to another's */
    double move_ms;
} crumb_explanation;

void crumb_engine_session_explain(const crumb_session *s, crumb_explanation *out);

#endif
