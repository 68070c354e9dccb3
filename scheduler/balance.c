#include "scheduler/balance.h"

#include <math.h>

static const float old_weight = 0.3f;
static const float least_band = 0.04f, most_band = 0.4f;
static const float least_part = 1.0f / 64; /* of an equal share: the floor of a ratio */
static const float mean_noise = 0.5f;      /* of the noise of ops: an average of CALM_OPS is nearly never off by more */

static const float of_difference = 0.70710678f; /* two readings differ by so much more than one is off */

enum {
    FIRST_OPS = 4, /* in which every reading counts */
    CALM_OPS = 32, /* that are averaged at least */
    MOST_CALM_OPS = 4096,
    FIRST_IDLE_OPS = 8,  /* after which a core is measured again: it may have been away for a moment */
    LAST_IDLE_OPS = 256, /* the same for one that has been slow for long, and holds up the op that measures it */
    NOISE_MEMORY = 64,   /* ops */
};

void crumb_balance_init(crumb_balance *b, int n_cores) {
    *b = (crumb_balance){.n_cores = n_cores, .version = 1, .noise = least_band / 2, .probe = -1};
    for (int i = 0; i < n_cores; i++) b->ratio[i] = 1.0f / (float)n_cores;
}

/* ---- splitting --------------------------------------------------------------------------------------------- */

/* Gives each of the units that are left to the core that would end first with one more. */
static void give_rest(const crumb_balance *b, int n, uint32_t n_left, uint32_t *units) {
    float per_unit[CRUMB_BALANCE_MAX_CORES] = {0}, end[CRUMB_BALANCE_MAX_CORES] = {0}; /* with one more */
    for (int i = 0; i < n; i++) {
        per_unit[i] = 1 / b->ratio[i];
        end[i] = (float)(units[i] + 1) * per_unit[i];
    }
    for (; n_left > 0; n_left--) {
        int first = 0;
        for (int i = 1; i < n; i++)
            if (end[i] < end[first]) first = i;
        units[first]++;
        end[first] += per_unit[first];
    }
}

static void give_probe(const crumb_balance *b, int n, uint32_t *units) {
    if (b->probe < 0 || b->probe >= n || units[b->probe]) return;
    int most = 0;
    for (int i = 1; i < n; i++)
        if (units[i] > units[most]) most = i;
    units[most]--;
    units[b->probe]++;
}

void crumb_balance_split(const crumb_balance *b, int n, uint32_t n_units, uint32_t *bounds) {
    uint32_t units[CRUMB_BALANCE_MAX_CORES] = {0}, left = n_units;
    float sum = 0;
    for (int i = 0; i < n; i++) sum += b->ratio[i];
    const double per_ratio = (double)n_units / (double)sum;
    for (int i = 0; i < n; i++) {
        units[i] = (uint32_t)((double)b->ratio[i] * per_ratio);
        if (units[i] > left) units[i] = left;
        left -= units[i];
    }
    give_rest(b, n, left, units);
    if (n_units) give_probe(b, n, units);
    bounds[0] = 0;
    for (int i = 0; i < n; i++) bounds[i + 1] = bounds[i] + units[i];
}

/* ---- learning ---------------------------------------------------------------------------------------------- */

static float ticks_of(uint32_t ticks, uint32_t most) {
    return ticks == CRUMB_BALANCE_NOT_COME ? 2 * (float)most : ticks > 0 ? (float)ticks : 1;
}

/* What the ratios of measured cores should have been, r', their sum being what it was; 0 for the others. Returns how
 * many cores were measured. */
static int judge(const crumb_balance *b, int n, const uint32_t *units, const uint32_t *ticks, float *wanted) {
    float sum_speed = 0, sum_ratio = 0;
    uint32_t most = 1;
    int n_measured = 0;
    for (int i = 0; i < n; i++)
        if (units[i] && ticks[i] != CRUMB_BALANCE_NOT_COME && ticks[i] > most) most = ticks[i];
    for (int i = 0; i < n; i++) {
        wanted[i] = units[i] ? (float)units[i] / ticks_of(ticks[i], most) : 0;
        if (units[i] == 0) continue;
        sum_speed += wanted[i];
        sum_ratio += b->ratio[i];
        n_measured++;
    }
    const float scale = n_measured ? sum_ratio / sum_speed : 0;
    for (int i = 0; i < n; i++) wanted[i] *= scale;
    return n_measured;
}

/* Which cores are off by more than the band. Takes into the noise how much the worst core differs from what it was in
 * the op before: one that is always off by the same is no noise, but has the wrong ratio. */
static bool outside(crumb_balance *b, int n, const float *wanted) {
    const float twice = 2 * b->noise, capped = twice < most_band ? twice : most_band;
    const float band = capped > least_band ? capped : least_band;
    uint32_t slow = 0, fast = 0;
    float worst = 0;
    for (int i = 0; i < n; i++) {
        if (wanted[i] == 0) continue;
        const float off = wanted[i] / b->ratio[i] - 1, size = fabsf(off - b->off[i]); /* no branch here is predicted */
        worst = size > worst ? size : worst;
        b->off[i] = off;
        slow |= (uint32_t)(off < -band) << i;
        fast |= (uint32_t)(off > band) << i;
    }
    const bool again = (slow & b->slow) || (fast & b->fast);
    b->slow = slow;
    b->fast = fast;
    worst *= of_difference;
    if (worst > 2 * band) worst = 2 * band; /* one interrupt is no noise */
    b->noise += (worst - b->noise) / NOISE_MEMORY;
    return again;
}

/* ratio = a ratio + (1 - a) wanted, none below the floor, sum 1. */
static void move(crumb_balance *b, int n, const float *wanted) {
    const float least = least_part / (float)b->n_cores;
    float sum = 0;
    for (int i = 0; i < b->n_cores; i++) {
        if (i < n && wanted[i] > 0) b->ratio[i] = old_weight * b->ratio[i] + (1 - old_weight) * wanted[i];
        if (b->ratio[i] < least) b->ratio[i] = least;
        sum += b->ratio[i];
    }
    for (int i = 0; i < b->n_cores; i++) {
        b->ratio[i] /= sum;
        b->calm[i] = 0;
    }
    b->n_calm = 0;
    b->version++;
}

/* Whether a core's average is off by more than noise explains, or so exact that it does not matter. If ratios moved
 * after every average, each op of the next token would be divided anew for nothing. */
static bool tells(const crumb_balance *b, const float *mean) {
    const float explained = b->noise * mean_noise * sqrtf((float)CALM_OPS / (float)b->n_calm);
    if (b->n_calm >= MOST_CALM_OPS) return true;
    for (int i = 0; i < b->n_cores; i++)
        if (fabsf(mean[i] - b->ratio[i]) > explained * b->ratio[i]) return true;
    return false;
}

/* A reading inside the band. Cores that an op did not measure keep their ratio in its average. */
static void average(crumb_balance *b, int n, const float *wanted) {
    for (int i = 0; i < n; i++) b->calm[i] += wanted[i] > 0 ? wanted[i] : b->ratio[i];
    for (int i = n; i < b->n_cores; i++) b->calm[i] += b->ratio[i];
    if (++b->n_calm % CALM_OPS) return;
    float mean[CRUMB_BALANCE_MAX_CORES];
    for (int i = 0; i < b->n_cores; i++) mean[i] = b->calm[i] / (float)b->n_calm;
    if (tells(b, mean)) move(b, b->n_cores, mean);
}

/* Returns whether this op has measured the core that was idle so long. */
static bool count_idle(crumb_balance *b, int n, const float *wanted) {
    bool answered = false;
    for (int i = 0; i < n; i++) {
        b->n_idle[i] = wanted[i] > 0 ? 0 : b->n_idle[i] + 1;
        if (wanted[i] > 0 && b->probe != i) b->patience[i] = FIRST_IDLE_OPS;
        if (wanted[i] > 0 && b->probe == i) {
            b->probe = -1;
            b->version++;
            answered = true;
        }
        if (b->n_idle[i] > b->patience[i] && b->probe < 0) {
            b->probe = i;
            b->n_idle[i] = 0;
            if (b->patience[i] < LAST_IDLE_OPS) b->patience[i] = 2 * b->patience[i] + FIRST_IDLE_OPS;
            b->version++;
        }
    }
    return answered;
}

void crumb_balance_learn(crumb_balance *b, int n, const uint32_t *units, const uint32_t *ticks) {
    float wanted[CRUMB_BALANCE_MAX_CORES];
    if (b->fixed) return;
    const int n_measured = judge(b, n, units, ticks, wanted);
    const bool answered = count_idle(b, n, wanted);
    if (n_measured < 2) return;
    const bool changed = outside(b, n, wanted);
    if (changed || answered || b->n_learned < FIRST_OPS)
        move(b, n, wanted);
    else if (!(b->slow | b->fast))
        average(b, n, wanted);
    b->n_learned++;
}
