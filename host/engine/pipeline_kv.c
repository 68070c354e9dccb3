#include "host/engine/pipeline_parts.h"

#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/kernel/kv.h"

#include <stdlib.h>

enum { NO_LAYER = UINT16_MAX };

void pipeline_note_move(crumb_pipeline *p, uint64_t start_ns) {
    const double ns = (double)(crumb_now_ns() - start_ns);
    p->stats.move_ms += ns / 1e6;
    p->aside_ns += ns;
}

bool pipeline_same_places(const crumb_model *m) {
    for (uint32_t i = 0; i <= m->net.hparams.num_hidden_layers; i++)
        if (m->places[i].unit[CRUMB_PHASE_PREFILL] != m->places[i].unit[CRUMB_PHASE_DECODE]) return false;
    return true;
}

/* Where keys and values would move between devices that see the same memory, they have one cache. */
static bool wants_one_cache(const crumb_pipeline *p) {
    return p->model->n_units == 2 && !p->model->divided && p->model->units[0].info.shared_weight_bytes > 0 &&
           (p->model->split > 0 || !pipeline_same_places(p->model));
}

static crumb_kv_params kv_params_of(const crumb_pipeline *p, uint32_t n) {
    const crumb_hparams *h = &p->model->net.hparams;
    return (crumb_kv_params){.n_layers = n,
                             .n_sequences = 1,
                             .n_ctx = p->params.n_ctx,
                             .n_head_kv = h->num_key_value_heads,
                             .head_dim = h->head_dim,
                             .type = p->params.kv_type};
}

static crumb_status create_pages(crumb_pipeline *p, crumb_error *err) {
    const crumb_kv_params all = kv_params_of(p, pipeline_n_layers(p));
    if (!wants_one_cache(p)) return CRUMB_OK;
    CRUMB_TRY(crumb_kv_pages_create(&p->model->units[0], &all, &p->pages, err));
    p->stats.kv_bytes += p->pages.n_layers * p->pages.layer_bytes;
    return CRUMB_OK;
}

static crumb_status create_cache(crumb_pipeline *p, size_t unit, crumb_error *err) {
    const crumb_hparams *h = &p->model->net.hparams;
    const crumb_engine_unit *u = &p->model->units[unit];
    kv_store *kv = &p->kv[unit];
    uint32_t n = 0;
    uint64_t n_bytes;
    CRUMB_TRY(crumb_calloc(h->num_hidden_layers, sizeof *kv->index, "the context", (void **)&kv->index, err));
    for (uint32_t i = 0; i < h->num_hidden_layers; i++) {
        const uint8_t *on = p->model->places[i].unit;
        kv->index[i] = on[CRUMB_PHASE_PREFILL] == unit || on[CRUMB_PHASE_DECODE] == unit ? (uint16_t)n++ : NO_LAYER;
    }
    if (n == 0) return CRUMB_OK;
    kv->params = kv_params_of(p, n);
    CRUMB_TRY(crumb_kv_pages_cache(&p->pages, u, &kv->params, kv->index, 0, &kv->cache, &n_bytes, err));
    p->stats.kv_bytes += n_bytes;
    return CRUMB_OK;
}

crumb_status pipeline_create_kv(crumb_pipeline *p, crumb_error *err) {
    CRUMB_TRY(create_pages(p, err));
    for (size_t i = 0; i < p->model->n_units; i++) CRUMB_TRY(create_cache(p, i, err));
    return CRUMB_OK;
}

void pipeline_destroy_kv(crumb_pipeline *p) {
    for (size_t i = 0; i < p->model->n_units; i++) {
        const crumb_engine_unit *u = &p->model->units[i];
        if (p->kv[i].cache) u->backend->device.kv_destroy(u->device, p->kv[i].cache);
        free(p->kv[i].index);
    }
    crumb_kv_pages_destroy(&p->model->units[0], &p->pages);
}

/* What unit `from` has of a layer's first n_past positions goes to unit `to`. */
static crumb_status move_layer(crumb_pipeline *p, uint32_t layer, size_t from, size_t to, uint32_t n_past,
                               crumb_error *err) {
    const crumb_engine_unit *reader = &p->model->units[from], *writer = &p->model->units[to];
    crumb_kv_range range = {.layer = p->kv[from].index[layer],
                            .n_layers = 1,
                            .n_heads = p->kv[from].params.n_head_kv,
                            .n_positions = n_past};
    const uint64_t n_bytes = crumb_kv_range_bytes(&p->kv[from].params, &range);
    void *pages;
    CRUMB_TRY(crumb_calloc(1, n_bytes, "keys and values that move", &pages, err));
    p->failed = reader;
    crumb_status status = reader->backend->device.kv_read(reader->device, p->kv[from].cache, &range, pages, err);
    range.layer = p->kv[to].index[layer];
    if (status == CRUMB_OK) {
        p->failed = writer;
        status = writer->backend->device.kv_write(writer->device, p->kv[to].cache, &range, pages, err);
    }
    if (status == CRUMB_OK) p->failed = NULL;
    free(pages);
    p->stats.moved_bytes += n_bytes;
    return status;
}

crumb_status pipeline_move_kv(crumb_pipeline *p, crumb_phase phase, uint32_t n_past, crumb_error *err) {
    if (p->one_list || p->held_for == phase) return CRUMB_OK;
    const uint64_t start = crumb_now_ns();
    for (uint32_t i = 0; i < pipeline_n_layers(p); i++) {
        const uint8_t to = p->model->places[i].unit[phase];
        if (p->held[i] == to) continue;
        if (n_past > 0 && !p->pages.at) CRUMB_TRY(move_layer(p, i, p->held[i], to, n_past, err));
        p->held[i] = to;
    }
    p->held_for = phase;
    pipeline_note_move(p, start);
    return CRUMB_OK;
}
