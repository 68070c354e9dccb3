#include "scheduler/choice.h"

#include <string.h>

static const double margin = 0.985; /* the other way must take at most this part of the time */
static const double longest = 4;    /* times the shortest op: what a single one may count */

enum {
    FIRST_TRIAL = 1, /* rounds before it */
    FIRST_PERIOD = 64,
    LAST_PERIOD = 512, /* rounds: some ten seconds, in which a neighbour may have come */
    TRIAL_OPS = 32,    /* each way */
    SKIPPED_OPS = 4,   /* of the split, in which it learns */
};

bool crumb_way_wanted_parse(const char *text, crumb_way_wanted *out) {
    *out = CRUMB_WAY_MEASURED;
    if (!text || strcmp(text, "auto") == 0) return true;
    *out = strcmp(text, "split") == 0 ? CRUMB_WAY_ONLY_SPLIT : CRUMB_WAY_ONLY_CHUNKS;
    return *out == CRUMB_WAY_ONLY_SPLIT || strcmp(text, "chunks") == 0;
}

void crumb_choice_init(crumb_choice *c, crumb_way_wanted wanted) {
    *c = (crumb_choice){.way = wanted == CRUMB_WAY_ONLY_SPLIT ? CRUMB_WAY_SPLIT : CRUMB_WAY_CHUNKS,
                        .fixed = wanted != CRUMB_WAY_MEASURED,
                        .n_rounds = FIRST_TRIAL,
                        .period = FIRST_PERIOD};
}

void crumb_choice_round(crumb_choice *c) {
    if (c->fixed || c->trying || c->n_rounds-- > 0) return;
    c->trying = true;
    c->n_next = c->n_skipped = c->n[0] = c->n[1] = 0;
    c->sum[0] = c->sum[1] = c->least = 0;
}

crumb_way crumb_choice_next(crumb_choice *c) {
    return c->trying ? (crumb_way)(c->n_next++ % 2) : c->way;
}

static void end_trial(crumb_choice *c) {
    const crumb_way other = c->way == CRUMB_WAY_SPLIT ? CRUMB_WAY_CHUNKS : CRUMB_WAY_SPLIT;
    for (int i = 0; i < 2; i++) c->last[i] = c->sum[i] / c->n[i];
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
    c->sum[way] += time < longest * c->least ? time : longest * c->least;
    c->n[way]++;
    if (c->n[CRUMB_WAY_CHUNKS] >= TRIAL_OPS && c->n[CRUMB_WAY_SPLIT] >= TRIAL_OPS) end_trial(c);
}
