/* Keys and values of all layers in memory that a model's devices both see, so that nothing moves between their caches
 * (crumb_kv_params.pages). */
#ifndef CRUMB_ENGINE_PAGES_H
#define CRUMB_ENGINE_PAGES_H

#include "host/engine/engine.h"

typedef struct crumb_kv_pages {
    void *(*at)[2]; /* [n_layers]: keys, values; NULL: there are none */
    uint32_t n_layers;
    uint64_t layer_bytes; /* of both */
} crumb_kv_pages;

/* For a context of one sequence. There are none where the device has no such memory, or not enough of it. */
crumb_status crumb_kv_pages_create(const crumb_engine_unit *unit, const crumb_kv_params *params, crumb_kv_pages *out,
                                   crumb_error *err);
void crumb_kv_pages_destroy(const crumb_engine_unit *unit, crumb_kv_pages *p); /* zeroed ones too; after the caches */

/* A cache on unit `on` with heads [head0, head0 + params->n_head_kv) of what the pages hold; index[i] is the number
 * that layer i of all has in the cache, or more than it has layers (NULL: every layer its own). Without pages a cache
 * of its own. *n_bytes as of kv_create. */
crumb_status crumb_kv_pages_cache(const crumb_kv_pages *p, const crumb_engine_unit *on, const crumb_kv_params *params,
                                  const uint16_t *index, uint32_t head0, crumb_kv_cache **out, uint64_t *n_bytes,
                                  crumb_error *err);

#endif
