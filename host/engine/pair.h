/* Rows on two devices at once: each computes its part of every layer (shares.h), with keys and values of its own heads.
 * The first is the model's first unit, the second the CPU, in whose thread the caller works. */
#ifndef CRUMB_ENGINE_PAIR_H
#define CRUMB_ENGINE_PAIR_H

#include "host/engine/pages.h"

typedef struct crumb_pair crumb_pair;

/* What plans are recorded for: so many rows, of which so many have outputs. */
typedef struct crumb_pair_size {
    uint32_t max_rows, max_outputs;
    int n_threads;
} crumb_pair_size;

/* `share` (0..1): what the first device computes. The model has two units, and weights that both read, or weights that
 * are divided so (crumb_model.divided). Each device has its heads' keys and values in `pages`, where there are any and
 * several heads, and nothing moves; else in memory of its own. Fails with UNSUPPORTED where the layers cannot be
 * divided, or the devices have no memory that both see. */
crumb_status crumb_pair_create(crumb_model *model, const crumb_session_params *params, double share,
                               const crumb_kv_pages *pages, crumb_pair **out, crumb_error *err);
/* Whether keys and values are where all heads' are. */
bool crumb_pair_shares_kv(const crumb_pair *p);
void crumb_pair_destroy(crumb_pair *p);

/* Records plans of a size, of which there are few, unless they are there: so that what does not fit fails here, and not
 * in the first run of this size. */
crumb_status crumb_pair_prepare(crumb_pair *p, const crumb_pair_size *size, crumb_error *err);
/* Evaluates rows, at most size->max_rows, behind those that its caches hold; *failed gets the unit at fault where that
 * fails. */
crumb_status crumb_pair_run(crumb_pair *p, const crumb_pair_size *size, const crumb_row *rows, uint32_t n_rows,
                            const crumb_engine_unit **failed, crumb_error *err);
/* Of the last run's rows that wanted output: [*n][vocab_size], valid until the next run. */
crumb_status crumb_pair_logits(crumb_pair *p, const float **out, uint32_t *n, crumb_error *err);

/* Copies positions [from, to) of all layers from the pair's caches (`out`) to one that a unit has of all heads, or the
 * other way round. */
crumb_status crumb_pair_move_kv(crumb_pair *p, const crumb_engine_unit *unit, crumb_kv_cache *all,
                                const crumb_kv_params *params, uint32_t from, uint32_t to, bool out, crumb_error *err);

typedef struct crumb_pair_stats {
    uint64_t kv_bytes, scratch_bytes, moved_bytes;
    size_t n_exchanges;  /* in a run */
    uint64_t busy_ns[2]; /* of all runs: each device's plan, without its waiting for the other */
    double share;        /* as it came out, of rows of the widest matrices */
    uint32_t heads;      /* of the first device */
} crumb_pair_stats;
crumb_pair_stats crumb_pair_get_stats(const crumb_pair *p);

#endif
