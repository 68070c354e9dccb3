#include "host/engine/batch.h"

static const crumb_profile_device *device_of(const crumb_model *m, uint8_t unit) {
    return &m->advice->machine.device[crumb_watch_device(m, unit)];
}

/* Keys and values of n positions of a layer, from one unit's cache to another's. */
static double move_ns(const crumb_model *m, uint32_t layer, uint8_t from, uint8_t to, uint32_t n) {
    if (from == to) return 0;
    return crumb_cost_of_move(device_of(m, from), device_of(m, to), m->advice->layers[layer].kv_bytes * n);
}

static double moves_ns(const crumb_model *m, crumb_phase phase, const crumb_batch *b) {
    double ns = 0;
    for (uint32_t i = 0; b->held && i + 1 < m->advice->problem.n_layers; i++) {
        const uint8_t *unit = m->places[i].unit;
        ns += move_ns(m, i, b->held[i], unit[phase], b->n_past);
        if (b->ends_prompt) ns += move_ns(m, i, unit[phase], unit[CRUMB_PHASE_DECODE], b->n_past + b->n_rows);
    }
    return ns;
}

double crumb_batch_predict(const crumb_model *m, const crumb_watch *w, crumb_phase phase, const crumb_batch *b) {
    const crumb_engine_advice *a = m->advice;
    const crumb_cost_phase rows = {.n_rows = b->n_rows}, row = {.n_rows = 1};
    const crumb_phase as = b->n_rows > 1 ? CRUMB_PHASE_PREFILL : CRUMB_PHASE_DECODE;
    const uint32_t n = a->problem.n_layers;
    double ns = moves_ns(m, phase, b);
    uint8_t before = m->places[0].unit[phase];
    for (uint32_t first = 0, end; first < n; first = end) {
        const uint8_t unit = m->places[first].unit[phase];
        for (end = first + 1; end < n && m->places[end].unit[phase] == unit; end++) {
        }
        ns += w->factor[unit][as] * crumb_watch_predict_batch(m, unit, first, end, b->n_rows, b->n_past);
        if (first > 0)
            ns += crumb_cost_of_transfer(device_of(m, before), device_of(m, unit), a->layers[first - 1].vector_bytes,
                                         first + 1 == n ? &row : &rows);
        before = unit;
    }
    return ns;
}

crumb_phase crumb_batch_phase(const crumb_model *m, const crumb_watch *w, const crumb_batch *b, crumb_phase usual) {
    const crumb_phase other = usual == CRUMB_PHASE_PREFILL ? CRUMB_PHASE_DECODE : CRUMB_PHASE_PREFILL;
    if (!crumb_watch_knows(m)) return usual;
    return crumb_batch_predict(m, w, other, b) < crumb_batch_predict(m, w, usual, b) ? other : usual;
}
