#include "scheduler/simulator.h"

#include "scheduler/chunks.h"

#include <math.h>

static const double never_us = 1e300;

void crumb_sim_init(crumb_sim *sim, int n_first, double first, int n_rest, double rest, uint64_t seed) {
    *sim = (crumb_sim){.n_cores = n_first + n_rest, .seed = seed};
    for (int i = 0; i < sim->n_cores; i++)
        sim->cores[i] = (crumb_sim_core){.speed = i < n_first ? first : rest,
                                         .slower_from_us = never_us,
                                         .slower_until_us = never_us,
                                         .left_over = 1};
}

bool crumb_sim_from_profile(crumb_sim *sim, const crumb_profile_device *processor, crumb_work work, uint64_t seed) {
    uint32_t n = 0;
    for (size_t k = 0; k < processor->n_cores; k++) {
        if (!(processor->cores[k].gamma[work] > 0)) return false;
        n += processor->cores[k].count;
    }
    if (n < 1 || n > CRUMB_BALANCE_MAX_CORES) return false;
    crumb_sim_init(sim, (int)n, 0, 0, 0, seed);
    int at = 0;
    for (size_t k = 0; k < processor->n_cores; k++) {
        const crumb_profile_cores *kind = &processor->cores[k];
        for (uint32_t i = 0; i < kind->count; i++) sim->cores[at++].speed = 1e3 * kind->clock_ghz / kind->gamma[work];
    }
    sim->bandwidth = 1e3 * processor->read_gb_s / crumb_work_vector_bytes(work);
    return true;
}

/* ---- noise ------------------------------------------------------------------------------------------------- */

/* In (0, 1): splitmix64. */
static double uniform(crumb_sim *sim) {
    uint64_t z = (sim->seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
}

/* A factor on work, log-normal: never negative, and as often too long as too short. */
static double noise_factor(crumb_sim *sim) {
    if (sim->noise == 0) return 1;
    const double two_pi = 6.283185307179586;
    const double normal = sqrt(-2 * log(uniform(sim))) * cos(two_pi * uniform(sim));
    return exp(sim->noise * normal);
}

/* ---- cores in time ----------------------------------------------------------------------------------------- */

/* A core's speed at a time, and until when it stays so. */
static double speed_at(const crumb_sim_core *core, double now, double *until) {
    *until = now < core->slower_from_us ? core->slower_from_us : core->slower_until_us;
    if (now < core->slower_from_us || now >= core->slower_until_us) {
        if (now >= core->slower_until_us) *until = never_us;
        return core->speed;
    }
    if (core->slice_us == 0) return core->speed * core->left_over;
    const double taken = 1 - core->left_over, longer = taken > core->left_over ? taken : core->left_over;
    const double period = core->slice_us / longer, since = now - core->slower_from_us, rounding = 1e-6;
    const double begin = core->slower_from_us + period * floor((since + rounding) / period);
    const bool away = now < begin + taken * period - rounding;
    const double change = begin + (away ? taken * period : period);
    if (change < *until) *until = change;
    return away ? 0 : core->speed;
}

/* ---- an op ------------------------------------------------------------------------------------------------- */

/* What the cores take: shares, one each, or chunks. */
typedef struct work {
    const crumb_sim_op *op;
    const uint32_t *bounds; /* of shares; NULL: chunks */
    uint32_t shares;        /* not yet taken (bits) */
    uint32_t chunk, at;     /* the next chunk, and where it begins */
    int n_cores;
    double chunk_us;
    uint32_t ticks[CRUMB_BALANCE_MAX_CORES]; /* nanoseconds of shares */
} work;

/* A core in an op. */
typedef struct running {
    bool busy, had_share;
    int share;      /* whose it does; -1: a chunk */
    double left;    /* work of what it does */
    double wait_us; /* before that begins */
    double began;
    double noise;
} running;

static bool is_left(const work *w) {
    return w->bounds ? w->shares != 0 : w->at < w->op->n_units;
}

static void take_share(work *w, int core, running *r) {
    const bool own = w->shares >> core & 1;
    if (!own && !(r->had_share && w->shares)) return;
    r->share = own ? core : __builtin_ctz(w->shares);
    r->left = w->bounds[r->share + 1] - w->bounds[r->share];
    r->busy = r->had_share = true;
    w->shares &= ~(1u << r->share);
}

static void take_chunk(work *w, running *r) {
    const uint32_t end = crumb_chunk_begin(++w->chunk, w->op->n_units, w->op->unit_bytes, 1, w->n_cores, 0);
    r->left = end - w->at;
    r->wait_us = w->chunk_us;
    r->share = -1;
    r->busy = true;
    w->at = end;
}

/* Gives the core its next piece, if there is one for it and it has not been taken away. */
static void take(const crumb_sim *sim, work *w, int core, running *r, double now) {
    double until;
    if (!is_left(w) || speed_at(&sim->cores[core], now, &until) == 0) return;
    if (w->bounds)
        take_share(w, core, r);
    else
        take_chunk(w, r);
    r->left *= w->op->unit_work * r->noise;
    r->began = now;
}

static void finish(work *w, int core, running *r, double now) {
    r->busy = false;
    if (r->share < 0) return;
    w->ticks[r->share] = r->share == core ? (uint32_t)(1000 * (now - r->began) + 0.5) : CRUMB_BALANCE_NOT_COME;
}

/* Advances all cores to the next time at which something changes; returns it. */
static double advance(const crumb_sim *sim, running *all, double now) {
    double speed[CRUMB_BALANCE_MAX_CORES] = {0}, end[CRUMB_BALANCE_MAX_CORES] = {0}, sum = 0, next = never_us;
    for (int i = 0; i < sim->n_cores; i++) {
        double until = now + all[i].wait_us;
        const double own = speed_at(&sim->cores[i], now, &until);
        if (all[i].busy && all[i].wait_us > 0) until = now + all[i].wait_us;
        if (until < next) next = until;
        if (all[i].busy && all[i].wait_us == 0) speed[i] = own;
        sum += speed[i];
    }
    const double scale = sim->bandwidth > 0 && sum > sim->bandwidth ? sim->bandwidth / sum : 1;
    for (int i = 0; i < sim->n_cores; i++) {
        if (speed[i] > 0) end[i] = now + all[i].left / (speed[i] * scale);
        if (speed[i] > 0 && end[i] < next) next = end[i];
    }
    for (int i = 0; i < sim->n_cores; i++) {
        if (!all[i].busy) continue;
        all[i].wait_us = now + all[i].wait_us <= next ? 0 : all[i].wait_us - (next - now);
        if (speed[i] > 0) all[i].left = end[i] <= next ? 0 : all[i].left - speed[i] * scale * (next - now);
    }
    return next;
}

static double run(crumb_sim *sim, work *w) {
    running all[CRUMB_BALANCE_MAX_CORES];
    const double began = sim->clock_us;
    double now = began;
    int n_busy = 0;
    w->n_cores = sim->n_cores;
    for (int i = 0; w->bounds && i < sim->n_cores; i++)
        if (w->bounds[i] < w->bounds[i + 1]) w->shares |= 1u << i;
    for (int i = 0; i < sim->n_cores; i++) all[i] = (running){.noise = noise_factor(sim)};
    for (;;) {
        for (int i = 0; i < sim->n_cores; i++) {
            if (all[i].busy && all[i].left > 0) continue;
            n_busy -= all[i].busy;
            if (all[i].busy) finish(w, i, &all[i], now);
            take(sim, w, i, &all[i], now);
            n_busy += all[i].busy;
        }
        if (n_busy == 0 && !is_left(w)) break;
        now = advance(sim, all, now);
    }
    sim->clock_us = now + sim->op_us;
    return sim->clock_us - began;
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

double crumb_sim_split(crumb_sim *sim, const crumb_sim_op *op, crumb_balance *balance) {
    uint32_t bounds[CRUMB_BALANCE_MAX_CORES + 1], units[CRUMB_BALANCE_MAX_CORES];
    crumb_balance_split(balance, sim->n_cores, op->n_units, bounds);
    for (int i = 0; i < sim->n_cores; i++) units[i] = bounds[i + 1] - bounds[i];
    work w = {.op = op, .bounds = bounds};
    const double us = run(sim, &w);
    crumb_balance_learn(balance, sim->n_cores, units, w.ticks);
    return us;
}

double crumb_sim_equal(crumb_sim *sim, const crumb_sim_op *op) {
    crumb_balance alike;
    crumb_balance_init(&alike, sim->n_cores);
    alike.fixed = true;
    return crumb_sim_split(sim, op, &alike);
}

double crumb_sim_chunks(crumb_sim *sim, const crumb_sim_op *op) {
    return run(sim, &(work){.op = op, .chunk_us = sim->chunk_us});
}

double crumb_sim_chosen(crumb_sim *sim, const crumb_sim_op *op, crumb_balance *balance, crumb_choice *choice) {
    const crumb_way way = crumb_choice_next(choice);
    const double us = way == CRUMB_WAY_SPLIT ? crumb_sim_split(sim, op, balance) : crumb_sim_chunks(sim, op);
    crumb_choice_measured(choice, way, us);
    return us;
}

double crumb_sim_ideal(const crumb_sim *sim, const crumb_sim_op *op) {
    double sum = 0, until;
    for (int i = 0; i < sim->n_cores; i++) sum += speed_at(&sim->cores[i], sim->clock_us, &until);
    if (sim->bandwidth > 0 && sum > sim->bandwidth) sum = sim->bandwidth;
    return op->n_units * op->unit_work / sum;
}
