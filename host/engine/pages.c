#include "host/engine/pages.h"

#include "host/base/memory.h"
#include "host/kernel/kv.h"

#include <stdlib.h>

/* Of one head's keys, or values, at all positions. */
static uint64_t head_bytes_of(const crumb_kv_params *params) {
    const crumb_kv_range range = {.n_layers = 1, .n_heads = 1, .n_positions = params->n_ctx};
    return crumb_kv_run_bytes(params, &range);
}

crumb_status crumb_kv_pages_create(const crumb_engine_unit *unit, const crumb_kv_params *params, crumb_kv_pages *out,
                                   crumb_error *err) {
    *out = (crumb_kv_pages){.n_layers = params->n_layers, .layer_bytes = 2 * params->n_head_kv * head_bytes_of(params)};
    CRUMB_TRY(crumb_calloc(out->n_layers, sizeof *out->at, "the context", (void **)&out->at, err));
    for (uint32_t i = 0; i < out->n_layers; i++) {
        void *memory;
        if (unit->backend->device.shared_create(unit->device, out->layer_bytes, &memory, NULL) != CRUMB_OK) {
            crumb_kv_pages_destroy(unit, out);
            return CRUMB_OK;
        }
        out->at[i][0] = memory;
        out->at[i][1] = (char *)memory + out->layer_bytes / 2;
    }
    return CRUMB_OK;
}

void crumb_kv_pages_destroy(const crumb_engine_unit *unit, crumb_kv_pages *p) {
    for (uint32_t i = 0; p->at && i < p->n_layers; i++)
        if (p->at[i][0]) unit->backend->device.shared_destroy(unit->device, p->at[i][0], p->layer_bytes);
    free(p->at);
    *p = (crumb_kv_pages){.at = NULL};
}

crumb_status crumb_kv_pages_cache(const crumb_kv_pages *p, const crumb_engine_unit *on, const crumb_kv_params *params,
                                  const uint16_t *index, uint32_t head0, crumb_kv_cache **out, uint64_t *n_bytes,
                                  crumb_error *err) {
    const uint64_t offset = head0 * head_bytes_of(params);
    crumb_kv_params own = *params;
    void *(*at)[2];
    if (!p->at) return on->backend->device.kv_create(on->device, params, out, n_bytes, err);
    CRUMB_TRY(crumb_calloc(params->n_layers, sizeof *at, "the context", (void **)&at, err));
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const uint32_t layer = index ? index[i] : i;
        if (layer >= params->n_layers) continue;
        for (int values = 0; values < 2; values++) at[layer][values] = (char *)p->at[i][values] + offset;
    }
    own.pages = (void *const(*)[2])at;
    const crumb_status status = on->backend->device.kv_create(on->device, &own, out, n_bytes, err);
    free(at);
    return status;
}
