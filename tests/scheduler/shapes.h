/* Models as the scheduler sees them: Llama-like layers of plain numbers. */
#ifndef CRUMB_TESTS_SCHEDULER_SHAPES_H
#define CRUMB_TESTS_SCHEDULER_SHAPES_H

#include "scheduler/cost.h"

enum { SHAPE_MAX_LAYERS = 129 };

typedef struct shape {
    crumb_cost_layer layer[SHAPE_MAX_LAYERS];
    uint32_t n_layers; /* with the head */
} shape;

typedef struct shape_params {
    uint64_t hidden, ff, kv, vocab;
    uint32_t n_layers;
    crumb_work body, head;
} shape_params;

static inline double shape_bits(crumb_work w) {
    static const double bits[] = {1, 2, 3, 4, 8, 16, 16};
    return bits[w];
}

static inline void shape_make(const shape_params *p, shape *out) {
    const uint64_t macs = p->hidden * (2 * p->hidden + 2 * p->kv + 3 * p->ff), head = p->vocab * p->hidden;
    *out = (shape){.n_layers = p->n_layers + 1};
    for (uint32_t i = 0; i < p->n_layers; i++) {
        crumb_cost_layer *l = &out->layer[i];
        l->macs[p->body] = macs;
        l->weight_bytes[p->body] = l->resident_bytes = (uint64_t)((double)macs * shape_bits(p->body) / 8);
        l->attention_macs = 2 * p->hidden;
        l->kv_bytes = 2 * 2 * p->kv;
        l->vector_bytes = 4 * p->hidden;
        l->exchanged_bytes = 4 * (3 * p->hidden + p->ff);
    }
    crumb_cost_layer *h = &out->layer[p->n_layers];
    h->macs[p->head] = head;
    h->weight_bytes[p->head] = h->resident_bytes = (uint64_t)((double)head * shape_bits(p->head) / 8);
    h->exchanged_bytes = 4 * p->vocab;
    h->head = true;
}

static const shape_params llama3_8b = {4096, 14336, 1024, 128256, 32, CRUMB_WORK_U2, CRUMB_WORK_F16};

#endif
