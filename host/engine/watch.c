#include "host/engine/watch.h"

#include "host/engine/machine.h"

#include <stdlib.h>

enum { FEWEST_TOKENS = 16, FEWEST_ROWS = 32, FAR = 4096 };

/* ---- predictions ----------------------------------------------------------------------------------------------- */

/* The profile's number of a unit, or -1. */
static int device_of(const crumb_model *m, size_t unit) {
    if (!m->advice || !m->advice->known) return -1;
    if (m->units[unit].backend == &crumb_backend_cpu) return 0;
    return m->advice->gpu ? m->advice->gpu : -1;
}

void crumb_watch_init(crumb_watch *w, const crumb_model *m) {
    *w = (crumb_watch){.n_single = 0};
    for (size_t u = 0; u < CRUMB_WATCH_UNITS; u++)
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
            const int device = u < m->n_units ? device_of(m, u) : -1;
            w->factor[u][phase] = device < 0 ? 1
                                             : crumb_correction_factor(&m->advice->correction, (size_t)device,
                                                                       (crumb_phase)phase, CRUMB_SPAN_LAYERS);
        }
}

/* A sum over layers is a line over positions but where attention's bound changes. */
static crumb_watch_line line_through(double near_ns, double far_ns) {
    return (crumb_watch_line){near_ns, (far_ns - near_ns) / FAR};
}

crumb_watch_line crumb_watch_predict_row(const crumb_model *m, size_t unit, uint32_t first, uint32_t end) {
    const int device = device_of(m, unit);
    const crumb_cost_phase near = {.n_rows = 1}, far = {.n_rows = 1, .n_past = FAR};
    if (device < 0) return (crumb_watch_line){0, 0};
    return line_through(crumb_engine_advice_predict(m->advice, (size_t)device, first, end, &near),
                        crumb_engine_advice_predict(m->advice, (size_t)device, first, end, &far));
}

crumb_watch_line crumb_watch_predict_split(const crumb_model *m, double share) {
    double ns[2] = {0, 0};
    if (device_of(m, 0) <= 0) return (crumb_watch_line){0, 0};
    for (int i = 0; i < 2; i++) {
        const crumb_cost_phase phase = {.n_rows = 1, .n_past = i ? FAR : 0};
        for (uint32_t l = 0; l < m->advice->problem.n_layers; l++) {
            crumb_cost cost;
            crumb_cost_of_split(&m->advice->machine.device[m->advice->gpu], &m->advice->machine.device[0],
                                &m->advice->layers[l], &phase, share, &cost);
            ns[i] += cost.ns;
        }
    }
    return line_through(ns[0], ns[1]);
}

/* ---- times ----------------------------------------------------------------------------------------------------- */

void crumb_watch_span(crumb_watch *w, size_t unit, double predicted_ns, double measured_ns) {
    w->predicted_ns[unit] += predicted_ns;
    w->measured_ns[unit] += measured_ns;
}

void crumb_watch_batch(crumb_watch *w, const crumb_model *m, size_t unit, uint32_t first, uint32_t end, uint32_t n_rows,
                       uint32_t n_past, double measured_ns) {
    const int device = device_of(m, unit);
    const crumb_cost_phase phase = {.n_rows = n_rows, .n_batch = n_rows, .n_past = n_past};
    const bool known = device >= 0 && n_rows >= FEWEST_ROWS;
    crumb_watch_span(w, unit, known ? crumb_engine_advice_predict(m->advice, (size_t)device, first, end, &phase) : 0,
                     measured_ns);
}

void crumb_watch_run(crumb_watch *w, crumb_phase phase, uint32_t n_rows, double all_ns) {
    double predicted = 0, measured = 0;
    for (size_t u = 0; u < CRUMB_WATCH_UNITS; u++) {
        crumb_watch_ratios *r = &w->ratios[u][phase];
        predicted += w->factor[u][phase] * w->predicted_ns[u];
        measured += w->measured_ns[u];
        if (w->predicted_ns[u] > 0)
            r->value[r->n++ % CRUMB_WATCH_WINDOW] = (float)(w->measured_ns[u] / w->predicted_ns[u]);
        w->predicted_ns[u] = w->measured_ns[u] = 0;
    }
    if (phase == CRUMB_PHASE_DECODE) {
        w->overhead_ns += all_ns - measured;
        w->n_single++;
    }
    if (!(predicted > 0)) return;
    w->phase[phase].n_rows += n_rows;
    w->phase[phase].predicted_ns += predicted;
    w->phase[phase].measured_ns += all_ns;
}

static int by_size(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double crumb_watch_ratio(const crumb_watch *w, size_t unit, crumb_phase phase) {
    const crumb_watch_ratios *r = &w->ratios[unit][phase];
    crumb_watch_ratios sorted = *r;
    const uint32_t n = r->n < CRUMB_WATCH_WINDOW ? r->n : CRUMB_WATCH_WINDOW;
    if (n == 0 || (phase == CRUMB_PHASE_DECODE && n < FEWEST_TOKENS)) return 0;
    qsort(sorted.value, n, sizeof *sorted.value, by_size);
    return (double)sorted.value[n / 2];
}

void crumb_watch_learn(const crumb_watch *w, const crumb_model *m) {
    double ratios[CRUMB_PROFILE_MAX_DEVICES][CRUMB_PHASE_COUNT] = {{0}};
    bool any = false;
    crumb_error err = {0};
    if (!m->advice || !m->advice->known || !m->advice->learns) return;
    for (size_t u = 0; u < m->n_units; u++)
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
            const double ratio = crumb_watch_ratio(w, u, (crumb_phase)phase);
            if (!(ratio > 0)) continue;
            ratios[device_of(m, u)][phase] = ratio;
            any = true;
        }
    if (any && crumb_engine_history_note(&m->advice->machine, m->advice->id, ratios, &err) != CRUMB_OK)
        crumb_engine_log(m, CRUMB_LOG_DEBUG, "what was measured is not kept: %s", err.message);
}
