#include "scheduler/cost.h"

#include <math.h>

enum { LAYER_EXCHANGES = 4, HEAD_EXCHANGES = 1 };

/* Of the old value, when something new has been measured: as for the cores' ratios. */
static const double old_weight = 0.3;

const char *crumb_bound_name(crumb_bound bound) {
    static const char *const names[] = {"bandwidth", "compute", "launch", "exchange"};
    return names[bound];
}

/* ---- one device ---------------------------------------------------------------------------------------------- */

typedef struct extent {
    double rows, batches;
    double positions; /* that all rows together attend to */
    double kv_reads;  /* positions whose keys and values are read from memory, once for each batch */
} extent;

static extent extent_of(const crumb_cost_layer *layer, const crumb_cost_phase *phase) {
    if (layer->head) return (extent){.rows = 1, .batches = 1};
    const double n = phase->n_rows, past = phase->n_past;
    const double batch = phase->n_batch && phase->n_batch < phase->n_rows ? phase->n_batch : n;
    const double batches = ceil(n / batch);
    return (extent){.rows = n,
                    .batches = batches,
                    .positions = n * past + n * (n + 1) / 2,
                    .kv_reads = batches * past + batch * batches * (batches + 1) / 2};
}

/* Adds work that reads `bytes` and takes `macs` multiplications, of which the slower one counts; 0: they do not. */
static bool add_work(const crumb_profile_device *d, crumb_work work, double gb_s, double bytes, double macs,
                     crumb_cost *out) {
    if (bytes <= 0 && macs <= 0) return true;
    if (d->gops[work] <= 0) return false;
    const double read = bytes / crumb_profile_work_gb_s(d, work, gb_s), compute = 2 * macs / d->gops[work];
    out->bytes += bytes;
    *(read >= compute ? &out->read_ns : &out->compute_ns) += read >= compute ? read : compute;
    return true;
}

static crumb_bound largest_part(const crumb_cost *c) {
    const double parts[] = {c->read_ns, c->compute_ns, c->launch_ns, c->exchange_ns};
    int best = 0;
    for (int i = 1; i < 4; i++)
        if (parts[i] > parts[best]) best = i;
    return (crumb_bound)best;
}

static void finish(crumb_cost *c) {
    c->ns = c->read_ns + c->compute_ns + c->launch_ns + c->exchange_ns;
    c->bound = largest_part(c);
}

bool crumb_cost_of_layer(const crumb_profile_device *d, const crumb_cost_layer *layer, const crumb_cost_phase *phase,
                         double share, bool together, crumb_cost *out) {
    const extent e = extent_of(layer, phase);
    const double gb_s = together ? d->together_gb_s : d->read_gb_s;
    bool known = true;
    *out = (crumb_cost){.ns = 0};
    for (int w = 0; w < CRUMB_WORK_COUNT; w++)
        known = known && add_work(d, (crumb_work)w, gb_s, share * e.batches * (double)layer->weight_bytes[w],
                                  e.rows > 1 ? share * e.rows * (double)layer->macs[w] : 0, out);
    known = known && add_work(d, CRUMB_WORK_ATTENTION, gb_s, share * e.kv_reads * (double)layer->kv_bytes,
                              share * e.positions * (double)layer->attention_macs, out);
    out->launch_ns = e.batches * 1e3 * d->launch_us * (layer->head ? d->head_launches : d->layer_launches);
    finish(out);
    if (!known) out->ns = INFINITY;
    return known;
}

/* ---- two ----------------------------------------------------------------------------------------------------- */

/* Each device reads what the other one has written. */
static double exchange_ns(const crumb_profile_device *a, const crumb_profile_device *b, const crumb_cost_layer *layer,
                          const extent *e) {
    const double slower_us = a->exchange_us > b->exchange_us ? a->exchange_us : b->exchange_us;
    double ns = e->batches * 1e3 * slower_us * (layer->head ? HEAD_EXCHANGES : LAYER_EXCHANGES);
    const crumb_profile_device *const both[] = {a, b};
    for (int i = 0; i < 2; i++)
        if (both[i]->kind == CRUMB_PROFILE_DISCRETE)
            ns += e->rows * (double)layer->exchanged_bytes / both[i]->transfer_gb_s;
    return ns;
}

bool crumb_cost_of_split(const crumb_profile_device *a, const crumb_profile_device *b, const crumb_cost_layer *layer,
                         const crumb_cost_phase *phase, double share, crumb_cost *out) {
    crumb_cost of_a, of_b;
    const bool known_a = crumb_cost_of_layer(a, layer, phase, share, true, &of_a);
    const bool known_b = crumb_cost_of_layer(b, layer, phase, 1 - share, true, &of_b);
    const bool a_last = of_a.ns >= of_b.ns;
    *out = a_last ? of_a : of_b;
    out->bytes = of_a.bytes + of_b.bytes;
    const extent e = extent_of(layer, phase);
    out->exchange_ns = exchange_ns(a, b, layer, &e);
    finish(out);
    if (!known_a || !known_b) out->ns = INFINITY;
    return known_a && known_b;
}

/* One way: out of a device's own memory, or into one. */
static double one_way(const crumb_profile_device *d, double bytes, double times) {
    if (d->kind != CRUMB_PROFILE_DISCRETE) return times * 1e3 * d->exchange_us;
    return times * 1e3 * d->transfer_us + bytes / d->transfer_gb_s;
}

double crumb_cost_of_transfer(const crumb_profile_device *from, const crumb_profile_device *to, uint64_t vector_bytes,
                              const crumb_cost_phase *phase) {
    if (from == to) return 0;
    const extent e = extent_of(&(crumb_cost_layer){.head = false}, phase);
    const double bytes = (double)vector_bytes * e.rows;
    /* In the host's memory the vectors are there already: one side's notice to the other is all. */
    if (from->kind != CRUMB_PROFILE_DISCRETE && to->kind != CRUMB_PROFILE_DISCRETE) {
        const double a = one_way(from, bytes, e.batches), b = one_way(to, bytes, e.batches);
        return a > b ? a : b;
    }
    return (from->kind == CRUMB_PROFILE_DISCRETE ? one_way(from, bytes, e.batches) : 0) +
           (to->kind == CRUMB_PROFILE_DISCRETE ? one_way(to, bytes, e.batches) : 0);
}

double crumb_cost_of_move(const crumb_profile_device *from, const crumb_profile_device *to, uint64_t n_bytes) {
    const crumb_profile_device *const both[] = {from, to};
    double ns = 0;
    if (from == to || n_bytes == 0) return 0;
    for (int i = 0; i < 2; i++)
        if (both[i]->transfer_gb_s > 0) ns += 1e3 * both[i]->transfer_us + (double)n_bytes / both[i]->transfer_gb_s;
    return ns;
}

void crumb_cost_add(crumb_cost *sum, const crumb_cost *part) {
    sum->read_ns += part->read_ns;
    sum->compute_ns += part->compute_ns;
    sum->launch_ns += part->launch_ns;
    sum->exchange_ns += part->exchange_ns;
    sum->bytes += part->bytes;
    sum->ns += part->ns;
    sum->bound = largest_part(sum);
}

/* ---- corrections --------------------------------------------------------------------------------------------- */

void crumb_correction_update(crumb_correction *c, size_t device, crumb_phase phase, crumb_span_kind kind,
                             double predicted_ns, double measured_ns) {
    const double least = 1.0 / 64, most = 64; /* beyond that something else was measured */
    if (!(predicted_ns > 0) || !(measured_ns > 0) || !isfinite(predicted_ns) || !isfinite(measured_ns)) return;
    double *factor = &c->factor[device][phase][kind], now = measured_ns / predicted_ns;
    if (now < least) now = least;
    if (now > most) now = most;
    *factor = *factor > 0 ? old_weight * *factor + (1 - old_weight) * now : now;
}

double crumb_correction_factor(const crumb_correction *c, size_t device, crumb_phase phase, crumb_span_kind kind) {
    const double factor = c ? c->factor[device][phase][kind] : 0;
    return factor > 0 ? factor : 1;
}

double crumb_correction_together(const crumb_correction *c, size_t device, crumb_phase phase, crumb_span_kind kind) {
    const bool known = c && phase == CRUMB_PHASE_DECODE && c->together[device] > 0;
    return known ? c->together[device] : crumb_correction_factor(c, device, phase, kind);
}

crumb_profile_device crumb_cost_corrected(const crumb_profile_device *device, double factor) {
    crumb_profile_device d = *device;
    d.read_gb_s /= factor;
    d.together_gb_s /= factor;
    d.launch_us *= factor;
    for (int w = 0; w < CRUMB_WORK_COUNT; w++) d.gops[w] /= factor;
    for (size_t i = 0; i < d.n_cores; i++) d.cores[i].clock_ghz /= factor;
    return d;
}
