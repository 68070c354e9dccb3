#include "scheduler/place_pattern.h"

#include <math.h>
#include <stdio.h>

/* ---- the frame ----------------------------------------------------------------------------------------------- */

/* Every device as it has been measured to be, by phase and kind of span, alone and beside another. */
static void correct(const crumb_place_problem *p, crumb_place_frame *f) {
    for (size_t d = 0; d < p->machine->n_devices; d++)
        for (int i = 0; i < CRUMB_PHASE_COUNT * CRUMB_SPAN_COUNT; i++) {
            const crumb_phase phase = (crumb_phase)(i / CRUMB_SPAN_COUNT);
            const crumb_span_kind kind = (crumb_span_kind)(i % CRUMB_SPAN_COUNT);
            const crumb_profile_device *device = &p->machine->device[d];
            f->device[phase][kind][d] =
                crumb_cost_corrected(device, crumb_correction_factor(p->correction, d, phase, kind));
            f->together[phase][kind][d] =
                crumb_cost_corrected(device, crumb_correction_together(p->correction, d, phase, kind));
        }
}

void crumb_place_frame_make(const crumb_place_problem *problem, crumb_place_frame *f) {
    *f = (crumb_place_frame){.p = *problem};
    crumb_place_problem *p = &f->p;
    if (p->n_prompt == 0) p->n_prompt = 1;
    if (p->n_generate == 0) p->n_generate = 128;
    if (p->n_batch == 0) p->n_batch = 512;
    if (p->margin <= 0) p->margin = CRUMB_PLACE_MARGIN;
    for (size_t d = 0; d < p->machine->n_devices && problem->devices == 0; d++)
        if (!p->machine->device[d].by_name) p->devices |= 1u << d;
    const uint64_t used = (uint64_t)p->n_prompt + p->n_generate, middle = (uint64_t)p->n_prompt + p->n_generate / 2;
    if (p->n_ctx < used) p->n_ctx = used < UINT32_MAX ? (uint32_t)used : UINT32_MAX;
    f->phase[CRUMB_PHASE_PREFILL] = (crumb_cost_phase){.n_rows = p->n_prompt, .n_batch = p->n_batch};
    f->phase[CRUMB_PHASE_DECODE] =
        (crumb_cost_phase){.n_rows = 1, .n_past = middle < UINT32_MAX ? (uint32_t)middle : UINT32_MAX};
    correct(p, f);
}

/* ---- one phase ----------------------------------------------------------------------------------------------- */

crumb_place_part crumb_pattern_part(const crumb_pattern *q, uint32_t layer, uint32_t n_layers) {
    crumb_place_part part = {.device = q->a, .other = q->a, .share = 1};
    const bool on_b = (q->kind == CRUMB_PATTERN_LAST && layer + q->n < n_layers) ||
                      (q->kind == CRUMB_PATTERN_TURNS && layer % 2 == 1);
    if (on_b) part.device = part.other = q->b;
    if (q->kind == CRUMB_PATTERN_SPLIT) part = (crumb_place_part){.device = q->a, .other = q->b, .share = q->share};
    return part;
}

static const crumb_profile_device *devices_of(const crumb_place_frame *f, crumb_phase phase, uint32_t layer,
                                              bool together) {
    const crumb_span_kind kind = f->p.layers[layer].head ? CRUMB_SPAN_HEAD : CRUMB_SPAN_LAYERS;
    return together ? f->together[phase][kind] : f->device[phase][kind];
}

/* Vectors go from the device that has computed the layer before; a split layer's lie where every device reads them. */
static double transfer_into(const crumb_place_frame *f, crumb_phase phase, const crumb_place_part *before,
                            const crumb_place_part *part, uint32_t layer) {
    if (before->share < 1 || part->share < 1 || before->device == part->device) return 0;
    crumb_cost_phase rows = f->phase[phase];
    if (f->p.layers[layer].head) rows = (crumb_cost_phase){.n_rows = 1};
    return crumb_cost_of_transfer(&f->p.machine->device[before->device], &f->p.machine->device[part->device],
                                  f->p.layers[layer - 1].vector_bytes, &rows);
}

void crumb_pattern_cost(const crumb_place_frame *f, const crumb_pattern *q, crumb_phase phase, crumb_cost *each,
                        crumb_cost *sum) {
    crumb_place_part before = {.share = 1};
    *sum = (crumb_cost){.ns = 0};
    for (uint32_t i = 0; i < f->p.n_layers; i++) {
        const crumb_place_part part = crumb_pattern_part(q, i, f->p.n_layers);
        const crumb_profile_device *devices = devices_of(f, phase, i, part.share < 1);
        crumb_cost cost;
        if (part.share < 1)
            crumb_cost_of_split(&devices[part.device], &devices[part.other], &f->p.layers[i], &f->phase[phase],
                                part.share, &cost);
        else
            crumb_cost_of_layer(&devices[part.device], &f->p.layers[i], &f->phase[phase], 1, false, &cost);
        const double transfer = i ? transfer_into(f, phase, &before, &part, i) : 0;
        cost.exchange_ns += transfer;
        cost.ns += transfer;
        crumb_cost_add(sum, &cost);
        if (each) each[i] = cost;
        before = part;
    }
}

double crumb_pattern_balance(const crumb_place_frame *f, uint8_t a, uint8_t b, crumb_phase phase) {
    const uint8_t side[2] = {a, b};
    double rows_ns[2] = {0, 0}, fixed_ns[2] = {0, 0};
    for (int s = 0; s < 2; s++)
        for (uint32_t i = 0; i < f->p.n_layers; i++) {
            crumb_cost cost;
            if (!crumb_cost_of_layer(&devices_of(f, phase, i, true)[side[s]], &f->p.layers[i], &f->phase[phase], 1,
                                     true, &cost))
                return s;
            rows_ns[s] += cost.ns - cost.launch_ns;
            fixed_ns[s] += cost.launch_ns;
        }
    /* share * rows_a + fixed_a = (1 - share) * rows_b + fixed_b */
    const double share = (rows_ns[1] + fixed_ns[1] - fixed_ns[0]) / (rows_ns[0] + rows_ns[1]);
    const double steps = 64; /* as fine as rows of a layer can be handed out */
    if (!(share > 0.5 / steps)) return 0;
    return share < 1 - 0.5 / steps ? round(share * steps) / steps : 1;
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

static double share_of(const crumb_place_part *part, size_t device) {
    return (part->device == device ? part->share : 0) +
           (part->share < 1 && part->other == device ? 1 - part->share : 0);
}

static bool on_host(const crumb_place_frame *f, size_t device) {
    return f->p.machine->device[device].kind != CRUMB_PROFILE_DISCRETE;
}

static double at_most_one(double x) {
    return x < 1 ? x : 1;
}

/* What one layer takes of the host's memory: weights once, whoever reads them, and as many caches as there are. */
static double host_bytes(const crumb_place_frame *f, const crumb_cost_layer *layer, const crumb_place_part parts[2]) {
    const double kv = (double)layer->kv_bytes * (double)f->p.n_ctx;
    double weights[CRUMB_PHASE_COUNT] = {0}, cache[CRUMB_PHASE_COUNT] = {0}, bytes = 0;
    for (size_t d = 0; d < f->p.machine->n_devices; d++) {
        const bool own_cache = f->p.machine->device[d].transfer_gb_s > 0;
        if (!on_host(f, d)) continue;
        if (own_cache) bytes += kv * fmax(share_of(&parts[0], d), share_of(&parts[1], d));
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
            weights[phase] += share_of(&parts[phase], d);
            if (!own_cache) cache[phase] += share_of(&parts[phase], d);
        }
    }
    return bytes + (double)layer->resident_bytes * at_most_one(fmax(weights[0], weights[1])) +
           kv * at_most_one(fmax(cache[0], cache[1]));
}

void crumb_pattern_memory(const crumb_place_frame *f, const crumb_pattern *prefill, const crumb_pattern *decode,
                          uint64_t bytes[CRUMB_PROFILE_MAX_DEVICES]) {
    const size_t n = f->p.machine->n_devices;
    double taken[CRUMB_PROFILE_MAX_DEVICES] = {0}, host = 0;
    for (uint32_t i = 0; i < f->p.n_layers; i++) {
        const crumb_place_part parts[] = {crumb_pattern_part(prefill, i, f->p.n_layers),
                                          crumb_pattern_part(decode, i, f->p.n_layers)};
        const double whole =
            (double)f->p.layers[i].resident_bytes + (double)f->p.layers[i].kv_bytes * (double)f->p.n_ctx;
        for (size_t d = 0; d < n; d++) taken[d] += whole * fmax(share_of(&parts[0], d), share_of(&parts[1], d));
        host += host_bytes(f, &f->p.layers[i], parts);
    }
    for (size_t d = 0; d < n; d++) {
        const double scratch = taken[d] > 0 ? (double)f->p.scratch_bytes[d] : 0;
        taken[d] += scratch;
        if (on_host(f, d)) host += scratch;
    }
    taken[0] = host;
    for (size_t d = 0; d < n; d++) bytes[d] = (uint64_t)taken[d];
}

bool crumb_pattern_copies(const crumb_place_frame *f, const crumb_pattern *prefill, const crumb_pattern *decode) {
    const double rounding = 1e-9;
    for (uint32_t i = 0; i < f->p.n_layers; i++) {
        const crumb_place_part parts[] = {crumb_pattern_part(prefill, i, f->p.n_layers),
                                          crumb_pattern_part(decode, i, f->p.n_layers)};
        double host[CRUMB_PHASE_COUNT] = {0}, all = 0;
        for (size_t d = 0; d < f->p.machine->n_devices; d++) {
            const double shares[] = {share_of(&parts[0], d), share_of(&parts[1], d)};
            if (!on_host(f, d)) all += fmax(shares[0], shares[1]);
            for (int phase = 0; phase < CRUMB_PHASE_COUNT && on_host(f, d); phase++) host[phase] += shares[phase];
        }
        if (all + fmax(host[0], host[1]) > 1 + rounding) return true;
    }
    return false;
}

uint64_t crumb_place_limit(const crumb_place_frame *f, size_t device) {
    const uint64_t memory = f->p.machine->device[device].memory_bytes;
    return f->p.free_bytes[device] ? f->p.free_bytes[device] : memory - memory / 16;
}

uint64_t crumb_place_excess(const crumb_place_frame *f, const uint64_t bytes[CRUMB_PROFILE_MAX_DEVICES],
                            size_t *device) {
    uint64_t most = 0;
    for (size_t d = 0; d < f->p.machine->n_devices; d++) {
        const uint64_t limit = crumb_place_limit(f, d);
        if (bytes[d] <= limit || bytes[d] - limit <= most) continue;
        most = bytes[d] - limit;
        *device = d;
    }
    return most;
}

double crumb_pattern_move(const crumb_place_frame *f, const crumb_pattern *prefill, const crumb_pattern *decode,
                          uint64_t *moved_bytes) {
    const crumb_profile_device *devices = f->p.machine->device;
    double ns = 0;
    *moved_bytes = 0;
    for (uint32_t i = 0; i < f->p.n_layers; i++) {
        const crumb_place_part from = crumb_pattern_part(prefill, i, f->p.n_layers);
        const crumb_place_part to = crumb_pattern_part(decode, i, f->p.n_layers);
        const double kv = (double)f->p.layers[i].kv_bytes * (double)f->p.n_prompt;
        for (size_t d = 0; d < f->p.machine->n_devices; d++) {
            const double missing = share_of(&to, d) - share_of(&from, d); /* heads that d has not computed itself */
            if (missing <= 0) continue;
            const size_t source = from.device != d ? from.device : from.other;
            const uint64_t n_bytes = (uint64_t)(missing * kv);
            const double cost = crumb_cost_of_move(&devices[source], &devices[d], n_bytes);
            ns += cost;
            if (cost > 0) *moved_bytes += n_bytes;
        }
    }
    return ns;
}

/* ---- names --------------------------------------------------------------------------------------------------- */

void crumb_pattern_name(const crumb_place_frame *f, const crumb_pattern *q, char *out, size_t size) {
    const char *a = f->p.machine->device[q->a].name, *b = f->p.machine->device[q->b].name;
    switch (q->kind) {
    case CRUMB_PATTERN_ALL: snprintf(out, size, "%s", a); break;
    case CRUMB_PATTERN_LAST: snprintf(out, size, "last %u of %u %s, rest %s", q->n, f->p.n_layers, a, b); break;
    case CRUMB_PATTERN_SPLIT: snprintf(out, size, "%s+%s %.2f", a, b, q->share); break;
    case CRUMB_PATTERN_TURNS: snprintf(out, size, "%s/%s in turns", a, b); break;
    }
}
