/* What a session's spans took, beside what was predicted of them: for `crumb run --explain`, and to correct later
 * predictions. One of these belongs to a pipeline, and costs a few additions per span. */
#ifndef CRUMB_ENGINE_WATCH_H
#define CRUMB_ENGINE_WATCH_H

#include "host/engine/engine.h"

enum {
    CRUMB_WATCH_WINDOW = 63,
    CRUMB_WATCH_PAIR = CRUMB_ENGINE_MAX_UNITS, /* both units, beside each by itself */
    CRUMB_WATCH_UNITS
};

/* Measured time to what the profile alone predicts, or what else is known of the last runs. */
typedef struct crumb_watch_ratios {
    float value[CRUMB_WATCH_WINDOW];
    uint32_t n; /* in all */
} crumb_watch_ratios;

typedef struct crumb_watch_phase {
    uint64_t n_rows;                  /* of a prompt, or decoded; those that were predicted */
    double predicted_ns, measured_ns; /* of all of them; predicted: by the profile and earlier sessions */
} crumb_watch_phase;

typedef struct crumb_watch {
    double factor[CRUMB_WATCH_UNITS][CRUMB_PHASE_COUNT]; /* by which earlier sessions correct predictions */
    crumb_watch_phase phase[CRUMB_PHASE_COUNT];
    crumb_watch_ratios ratios[CRUMB_WATCH_UNITS][CRUMB_PHASE_COUNT]; /* decoding: of single rows; prefill: of 32 or
                                                                      * more, which throughput bounds */
    crumb_watch_ratios together[CRUMB_ENGINE_MAX_UNITS];             /* of each unit's part of split layers */
    crumb_watch_ratios overhead_us; /* of single rows: what passed outside of the devices' work, moving keys and values
                                     * apart */
    uint64_t n_single;
    /* of the run under way */
    double predicted_ns[CRUMB_WATCH_UNITS], measured_ns[CRUMB_WATCH_UNITS];
} crumb_watch;

/* What a span takes for a single row, as a line over the positions before it. */
typedef struct crumb_watch_line {
    double at_none_ns, per_position_ns;
} crumb_watch_line;

/* What all layers take for a single row when they are split, by the profile alone; zeroed: nothing is predicted. */
typedef struct crumb_watch_split {
    crumb_watch_line row;                          /* of each layer the part that takes longer, and the exchanges */
    crumb_watch_line part[CRUMB_ENGINE_MAX_UNITS]; /* each unit's, if it never had to wait */
    double exchange_ns;
} crumb_watch_split;

/* The profile's number of a unit, or -1: none, or nothing is predicted. */
int crumb_watch_device(const crumb_model *m, size_t unit);
/* Something is predicted of all units. */
bool crumb_watch_knows(const crumb_model *m);

void crumb_watch_init(crumb_watch *w, const crumb_model *m);

double crumb_watch_at(crumb_watch_line line, uint32_t n_past); /* ns */

/* Zeros where nothing is predicted for this model. `unit`: of its units. */
crumb_watch_line crumb_watch_predict_row(const crumb_model *m, size_t unit, uint32_t first, uint32_t end);
/* Of several rows behind n_past positions, in ns. */
double crumb_watch_predict_batch(const crumb_model *m, size_t unit, uint32_t first, uint32_t end, uint32_t n_rows,
                                 uint32_t n_past);
/* The same of all layers, split: `share` of each on the first unit. From now on the pair's rows are expected to differ
 * from that as earlier sessions have found for such a share. */
crumb_watch_split crumb_watch_predict_split(crumb_watch *w, const crumb_model *m, double share);

/* The same of several rows, in ns. */
double crumb_watch_predict_pair_batch(const crumb_model *m, double share, uint32_t n_rows, uint32_t n_past);

/* Spans have run. predicted_ns 0: nobody knows. */
void crumb_watch_span(crumb_watch *w, size_t unit, double predicted_ns, double measured_ns);
/* A row of split layers has, behind n_past positions: each unit was busy for so long, and all was done after wall_ns.
 */
void crumb_watch_pair(crumb_watch *w, const crumb_watch_split *predicted, uint32_t n_past, const double busy_ns[2],
                      double wall_ns);
/* All spans of a run have, in all_ns without what moved keys and values. `single`: planned for one row, as decoded ones
 * are, though a prompt may have it as well. */
void crumb_watch_run(crumb_watch *w, crumb_phase phase, bool single, uint32_t n_rows, double all_ns);

/* The median of what is known of a unit in a phase; 0: too little. */
double crumb_watch_ratio(const crumb_watch *w, size_t unit, crumb_phase phase);
/* The same of a unit's part of split layers. Time that the two have waited for each other, beyond what exchanges should
 * take, counts with both alike: what is then predicted is what the row took. */
double crumb_watch_together(const crumb_watch *w, size_t unit);
/* The median of what passed of a single row outside of the devices' work, in us; 0: there was none. */
double crumb_watch_overhead(const crumb_watch *w);
/* Corrects the stored profile by what this session has found, where it has seen enough. */
void crumb_watch_learn(const crumb_watch *w, const crumb_model *m);

#endif
