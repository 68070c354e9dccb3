#include "scheduler/choice.h"

#include <string.h>

static const double margin = 0.985; /* the other way must take at most this part of the time */
static const double longest = 4;    /* times the shortest op: what a single one may count */
static const double sure = 3;       /* standard errors between the means */

enum {
    FIRST_TRIAL = 1, /* rounds before it */
    FIRST_PERIOD = 64,
    LAST_PERIOD = 512, /* rounds: some ten seconds, in which a neighbour may have come */
    LEAST_OPS = 16,    /* of a trial, each way */
    MOST_OPS = 256,
    SKIPPED_OPS = 4, /* of the split, in which it learns */
};

bool crumb_way_wanted_parse(const char *text, crumb_way_wanted *out) {
    *out = CRUMB_WAY_MEASURED;
    if (!text || strcmp(text, "auto") == 0) return true;
    *out = strcmp(text, "split") == 0 ? CRUMB_WAY_ONLY_SPLIT : CRUMB_WAY_ONLY_CHUNKS;
    return *out == CRUMB_WAY_ONLY_SPLIT || strcmp(text, "chunks") == 0;
}

void crumb_choice_init(crumb_choice *c, crumb_way_wanted wanted) {
    *c = (crumb_choice){.way = wanted == CRUMB_WAY_ONLY_CHUNKS ? CRUMB_WAY_CHUNKS : CRUMB_WAY_SPLIT,
                        .fixed = wanted != CRUMB_WAY_MEASURED,
                        .n_rounds = FIRST_TRIAL,
                        .period = FIRST_PERIOD};
}

void crumb_choice_round(crumb_choice *c) {
    if (c->fixed || c->trying || c->n_rounds-- > 0) return;
    c->trying = true;
    c->n_next = c->n_skipped = 0;
    c->of[0] = c->of[1] = (crumb_way_times){.n = 0};
    c->least = 0;
}

crumb_way crumb_choice_next(crumb_choice *c) {
    return c->trying ? (crumb_way)(c->n_next++ % 2) : c->way;
}

static double mean_of(const crumb_way_times *t) {
    return t->sum / t->n;
}

/* The square of a mean's standard error. */
static double error_of(const crumb_way_times *t) {
    const double mean = mean_of(t), variance = t->squares / t->n - mean * mean;
    return variance > 0 ? variance / t->n : 0;
}

static bool is_clear(const crumb_choice *c) {
    const double apart = mean_of(&c->of[0]) - mean_of(&c->of[1]);
    return apart * apart > sure * sure * (error_of(&c->of[0]) + error_of(&c->of[1]));
}

static void end_trial(crumb_choice *c) {
    const crumb_way other = c->way == CRUMB_WAY_SPLIT ? CRUMB_WAY_CHUNKS : CRUMB_WAY_SPLIT;
    for (int i = 0; i < 2; i++) c->last[i] = mean_of(&c->of[i]);
    if (c->last[other] < margin * c->last[c->way]) {
        c->way = other;
        c->period = FIRST_PERIOD;
    } else if (c->period < LAST_PERIOD) {
        c->period *= 2;
    }
    c->n_rounds = c->period;
    c->trying = false;
}

void crumb_choice_measured(crumb_choice *c, crumb_way way, double time) {
    if (!c->trying) return;
    if (way == CRUMB_WAY_SPLIT && c->n_skipped < SKIPPED_OPS) {
        c->n_skipped++;
        return;
    }
    if (c->least == 0 || time < c->least) c->least = time;
    const double counted = time < longest * c->least ? time : longest * c->least;
    c->of[way].n++;
    c->of[way].sum += counted;
    c->of[way].squares += counted * counted;
    const uint32_t n = c->of[0].n < c->of[1].n ? c->of[0].n : c->of[1].n;
    if (n >= MOST_OPS || (n >= LEAST_OPS && is_clear(c))) end_trial(c);
}
