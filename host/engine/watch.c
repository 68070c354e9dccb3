#include "host/engine/watch.h"

#include "host/engine/machine.h"

#include <stdlib.h>

enum { FEWEST_TOKENS = 16, FEWEST_ROWS = 32, FAR = 4096 };

/* ---- predictions ----------------------------------------------------------------------------------------------- */

int crumb_watch_device(const crumb_model *m, size_t unit) {
    if (!m->advice || !m->advice->known) return -1;
    if (m->units[unit].backend == &crumb_backend_cpu) return 0;
    return m->advice->gpu ? m->advice->gpu : -1;
}

bool crumb_watch_knows(const crumb_model *m) {
    for (size_t u = 0; u < m->n_units; u++)
        if (crumb_watch_device(m, u) < 0) return false;
    return true;
}

void crumb_watch_init(crumb_watch *w, const crumb_model *m) {
    *w = (crumb_watch){.n_single = 0};
    for (size_t u = 0; u < CRUMB_WATCH_UNITS; u++)
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
            const int device = u < m->n_units ? crumb_watch_device(m, u) : -1;
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
    const int device = crumb_watch_device(m, unit);
    const crumb_cost_phase near = {.n_rows = 1}, far = {.n_rows = 1, .n_past = FAR};
    if (device < 0) return (crumb_watch_line){0, 0};
    return line_through(crumb_engine_advice_predict(m->advice, (size_t)device, first, end, &near),
                        crumb_engine_advice_predict(m->advice, (size_t)device, first, end, &far));
}

double crumb_watch_predict_batch(const crumb_model *m, size_t unit, uint32_t first, uint32_t end, uint32_t n_rows,
                                 uint32_t n_past) {
    const int device = crumb_watch_device(m, unit);
    const crumb_cost_phase phase = {.n_rows = n_rows, .n_batch = n_rows, .n_past = n_past};
    return device < 0 ? 0 : crumb_engine_advice_predict(m->advice, (size_t)device, first, end, &phase);
}

/* Split layers on devices that take `factor` times as long as the profile says. */
static double split_ns(const crumb_model *m, double share, const double factor[2], const crumb_cost_phase *phase,
                       double part_ns[2], double *exchange_ns) {
    const crumb_engine_advice *a = m->advice;
    const crumb_profile_device devices[] = {crumb_cost_corrected(&a->machine.device[a->gpu], factor[0]),
                                            crumb_cost_corrected(&a->machine.device[0], factor[1])};
    double ns = 0;
    part_ns[0] = part_ns[1] = *exchange_ns = 0;
    for (uint32_t l = 0; l < a->problem.n_layers; l++) {
        crumb_cost cost;
        crumb_cost_of_split(&devices[0], &devices[1], &a->layers[l], phase, share, &cost);
        ns += cost.ns;
        *exchange_ns += cost.exchange_ns;
        for (int i = 0; i < 2; i++) {
            crumb_cost_of_layer(&devices[i], &a->layers[l], phase, i ? 1 - share : share, true, &cost);
            part_ns[i] += cost.ns;
        }
    }
    return ns;
}

/* By the profile alone. */
static const double as_measured[2] = {1, 1};

crumb_watch_split crumb_watch_predict_split(crumb_watch *w, const crumb_model *m, double share) {
    static const crumb_cost_phase at_none = {.n_rows = 1}, at_far = {.n_rows = 1, .n_past = FAR};
    crumb_watch_split s = {.exchange_ns = 0};
    double near[2], far[2], unused;
    if (crumb_watch_device(m, 0) <= 0) return s;
    const crumb_correction *c = &m->advice->correction;
    const double found[2] = {
        crumb_correction_together(c, m->advice->gpu, CRUMB_PHASE_DECODE, CRUMB_SPAN_LAYERS),
        crumb_correction_together(c, 0, CRUMB_PHASE_DECODE, CRUMB_SPAN_LAYERS),
    };
    const double at_none_ns = split_ns(m, share, as_measured, &at_none, near, &s.exchange_ns);
    s.row = line_through(at_none_ns, split_ns(m, share, as_measured, &at_far, far, &unused));
    for (int i = 0; i < 2; i++) s.part[i] = line_through(near[i], far[i]);
    if (at_none_ns > 0)
        w->factor[CRUMB_WATCH_PAIR][CRUMB_PHASE_DECODE] =
            split_ns(m, share, found, &at_none, near, &unused) / at_none_ns;
    return s;
}

double crumb_watch_predict_pair_batch(const crumb_model *m, double share, uint32_t n_rows, uint32_t n_past) {
    const crumb_cost_phase phase = {.n_rows = n_rows, .n_batch = n_rows, .n_past = n_past};
    double parts[2], exchange;
    return crumb_watch_device(m, 0) > 0 ? split_ns(m, share, as_measured, &phase, parts, &exchange) : 0;
}

double crumb_watch_at(crumb_watch_line line, uint32_t n_past) {
    return line.at_none_ns + line.per_position_ns * n_past;
}

/* ---- times ----------------------------------------------------------------------------------------------------- */

void crumb_watch_span(crumb_watch *w, size_t unit, double predicted_ns, double measured_ns) {
    w->predicted_ns[unit] += predicted_ns;
    w->measured_ns[unit] += measured_ns;
}

static void push(crumb_watch_ratios *r, double ratio) {
    r->value[r->n++ % CRUMB_WATCH_WINDOW] = (float)ratio;
}

void crumb_watch_pair(crumb_watch *w, const crumb_watch_split *predicted, uint32_t n_past, const double busy_ns[2],
                      double wall_ns) {
    const double longer = busy_ns[0] > busy_ns[1] ? busy_ns[0] : busy_ns[1], apart = wall_ns - predicted->exchange_ns;
    crumb_watch_span(w, CRUMB_WATCH_PAIR, crumb_watch_at(predicted->row, n_past), wall_ns);
    for (int i = 0; i < 2; i++) {
        const double part_ns = crumb_watch_at(predicted->part[i], n_past);
        if (part_ns > 0 && busy_ns[i] > 0)
            push(&w->together[i], busy_ns[i] / part_ns * (apart > longer ? apart / longer : 1));
    }
}

void crumb_watch_run(crumb_watch *w, crumb_phase phase, bool single, uint32_t n_rows, double all_ns) {
    const crumb_phase as = single ? CRUMB_PHASE_DECODE : CRUMB_PHASE_PREFILL;
    const bool tells = single || n_rows >= FEWEST_ROWS;
    double predicted = 0, measured = 0;
    for (size_t u = 0; u < CRUMB_WATCH_UNITS; u++) {
        crumb_watch_ratios *r = &w->ratios[u][as];
        predicted += w->factor[u][as] * w->predicted_ns[u];
        measured += w->measured_ns[u];
        if (tells && w->predicted_ns[u] > 0) push(r, w->measured_ns[u] / w->predicted_ns[u]);
        w->predicted_ns[u] = w->measured_ns[u] = 0;
    }
    if (single) {
        push(&w->overhead_us, (all_ns - measured) * 1e-3);
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

static double median(const crumb_watch_ratios *r, uint32_t fewest) {
    crumb_watch_ratios sorted = *r;
    const uint32_t n = r->n < CRUMB_WATCH_WINDOW ? r->n : CRUMB_WATCH_WINDOW;
    if (n == 0 || n < fewest) return 0;
    qsort(sorted.value, n, sizeof *sorted.value, by_size);
    return (double)sorted.value[n / 2];
}

double crumb_watch_ratio(const crumb_watch *w, size_t unit, crumb_phase phase) {
    return median(&w->ratios[unit][phase], phase == CRUMB_PHASE_DECODE ? FEWEST_TOKENS : 1);
}

double crumb_watch_together(const crumb_watch *w, size_t unit) {
    return median(&w->together[unit], FEWEST_TOKENS);
}

double crumb_watch_overhead(const crumb_watch *w) {
    return median(&w->overhead_us, 1);
}

void crumb_watch_learn(const crumb_watch *w, const crumb_model *m) {
    double ratios[CRUMB_PROFILE_MAX_DEVICES][CRUMB_HISTORY_KINDS] = {{0}};
    bool any = false;
    crumb_error err = {0};
    if (!m->advice || !m->advice->known || !m->advice->learns) return;
    for (size_t u = 0; u < m->n_units; u++)
        for (int kind = 0; kind < CRUMB_HISTORY_KINDS; kind++) {
            const double ratio = kind == CRUMB_HISTORY_TOGETHER ? crumb_watch_together(w, u)
                                                                : crumb_watch_ratio(w, u, (crumb_phase)kind);
            if (!(ratio > 0)) continue;
            ratios[crumb_watch_device(m, u)][kind] = ratio;
            any = true;
        }
    if (any && crumb_engine_history_note(&m->advice->machine, m->advice->id, ratios, &err) != CRUMB_OK)
        crumb_engine_log(m, CRUMB_LOG_DEBUG, "what was measured is not kept: %s", err.message);
}
