/* Where a batch of a prompt runs, if prompts and decoding are placed differently: a few rows wait for memory, as
 * decoded ones do, and many for arithmetic, so that a chat's short message may be read the faster where tokens are
 * decoded. */
#ifndef CRUMB_ENGINE_BATCH_H
#define CRUMB_ENGINE_BATCH_H

#include "host/engine/watch.h"

typedef struct crumb_batch {
    uint32_t n_rows, n_past; /* behind so many positions */
    const uint8_t *held;     /* [layers] the unit whose cache has these; NULL: every unit sees them */
    bool ends_prompt;        /* decoding follows, and will want all keys and values where it is placed */
} crumb_batch;

/* What it takes where `phase` is placed, keys and values that move included, in ns. Needs crumb_watch_knows. */
double crumb_batch_predict(const crumb_model *m, const crumb_watch *w, crumb_phase phase, const crumb_batch *b);
/* The faster of both; `usual` where nothing is predicted or none is. */
crumb_phase crumb_batch_phase(const crumb_model *m, const crumb_watch *w, const crumb_batch *b, crumb_phase usual);

#endif
