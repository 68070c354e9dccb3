/* crumb tune: what the parts of a search share (tune_search.c, tune_confirm.c). */
#ifndef CRUMB_TOOLS_TUNE_SEARCH_H
#define CRUMB_TOOLS_TUNE_SEARCH_H

#include "tools/crumb/tune.h"

typedef struct candidate {
    size_t kernel;
    char knobs[CRUMB_KNOBS_BYTES], effect[CRUMB_KNOBS_BYTES];
    double ratios[CRUMB_TUNING_CONFIRMED], ns[CRUMB_TUNING_CONFIRMED]; /* of this stage's rounds */
    uint32_t n_rounds;
    uint32_t kept_rounds; /* of its record, which is replaced by no median of fewer */
    double ratio;         /* median; stays when the candidate is out */
} candidate;

typedef struct tuner {
    const kernels_choice *choice;
    const crumb_kernel_problem *problem;
    crumb_kernel_bench *bench;
    tune_samples samples;
    crumb_tuning *db;
    crumb_tuning_key key;
    const char *layout;                        /* of the weights, in the kernel that is chosen */
    uint64_t deadline_ns, began_ns, stored_ns; /* stored_ns: when candidates' rounds were stored last */
    candidate *candidates;                     /* [0] is the default; those still in the race come first */
    size_t n, n_alive, n_suggested;
    double leads; /* the best ratio so far, of this stage or of what was known before */
    tune_outcome *outcome;
} tuner;

/* Whether this part of the time is gone, or the user wants no more. */
bool tune_is_past(const tuner *t, double part);
/* Whether plans here could take a kernel for the problem, and the options select it. */
bool tune_worth_trying(const tuner *t, size_t kernel);
/* A candidate's time, with what a plan would run before it. */
crumb_status tune_time(tuner *t, const candidate *c, double *ns, crumb_error *err);
/* Keeps the candidate's rounds in the database, with c->ratio. */
crumb_status tune_store(tuner *t, candidate *c, crumb_error *err);

/* Measures what leads, until it is known to lead or the time is up; then outcome->unconfirmed says what does. */
crumb_status tune_confirm(tuner *t, crumb_error *err);

#endif
