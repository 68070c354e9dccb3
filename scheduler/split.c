#include "scheduler/split.h"

#include <math.h>
#include <stdio.h>

enum {
    BASELINE_TOKENS = 3,
    CHECK_EVERY = 96,  /* tokens between two looks at the other way */
    CHECK_SOONEST = 8, /* where times have changed */
    WAIT_FIRST = 64,
    WAIT_MOST = 1024,
};

static const double old_weight = 0.3;  /* as for the cores' ratios */
static const double gain = 0.97;       /* of the time alone: what a split must stay below to begin, */
static const double keep = 0.99;       /* and to stay */
static const double changed = 1.15;    /* times that differ by more than noise */
static const double hopeless = 1.5;    /* a trial ends at once */
static const double most_lost = 0.02;  /* of all time */
static const double most_spent = 0.02; /* likewise */
static const double band = 0.75;       /* of a step: what a share must differ from the ideal before it is left */

/* ---- times --------------------------------------------------------------------------------------------------- */

static void push(crumb_split_times *t, double ns) {
    t->ns[t->n++ % CRUMB_SPLIT_WINDOW] = ns;
}

/* The median of the last ones: one interrupted token changes nothing. 0: there are none. */
static double typical(const crumb_split_times *t) {
    double sorted[CRUMB_SPLIT_WINDOW];
    const uint32_t n = t->n < CRUMB_SPLIT_WINDOW ? t->n : CRUMB_SPLIT_WINDOW;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > t->ns[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = t->ns[i];
    }
    return n ? sorted[n / 2] : 0;
}

/* ---- states -------------------------------------------------------------------------------------------------- */

static void go(crumb_split *s, crumb_split_state state) {
    s->state = state;
    s->n_in_state = s->n_since_check = 0;
    s->checking = false;
    if (state == CRUMB_SPLIT_TRIAL) s->both = (crumb_split_times){.n = 0};
}

void crumb_split_init(crumb_split *s, const crumb_split_params *params) {
    *s = (crumb_split){.params = *params, .share = params->share, .wait = WAIT_FIRST};
    if (s->share < 1) s->share = 1;
    if (s->share >= params->n_steps) s->share = params->n_steps - 1;
    if (s->params.settle == 0) s->params.settle = 1;
    s->ideal = (double)s->share / params->n_steps;
    go(s, CRUMB_SPLIT_BASELINE);
}

bool crumb_split_is_on(const crumb_split *s) {
    return s->state == CRUMB_SPLIT_ON;
}

uint32_t crumb_split_next(const crumb_split *s) {
    const bool split = s->state == CRUMB_SPLIT_TRIAL || (s->state == CRUMB_SPLIT_ON && !s->checking);
    return split ? s->share : s->params.alone;
}

/* The share that the devices' speeds ask for: another one only where it is well outside of the dead band. */
static uint32_t wanted_share(const crumb_split *s) {
    const double n = s->params.n_steps;
    if (fabs(s->ideal * n - s->share) <= band) return s->share;
    const double nearest = round(s->ideal * n);
    return nearest < 1 ? 1 : nearest > n - 1 ? s->params.n_steps - 1 : (uint32_t)nearest;
}

/* One more change leaves all of them a small part of the time, of which some is counted upon. */
static bool can_change(const crumb_split *s) {
    const double foreseen = CRUMB_SPLIT_FORESEEN * typical(&s->alone);
    const double ns = s->elapsed_ns > foreseen ? s->elapsed_ns : foreseen;
    const double cost = s->params.change_ns > s->dearest_ns ? s->params.change_ns : s->dearest_ns;
    return s->spent_ns + cost <= most_spent * ns;
}

static void change(crumb_split *s) {
    s->share = wanted_share(s);
    s->n_changes++;
    s->n_wanting = 0;
}

/* True: the share has changed. */
static bool learn(crumb_split *s, double first_ns, double second_ns) {
    const double n = s->params.n_steps;
    if (!(first_ns > 0) || !(second_ns > 0)) return false;
    const double first = s->share / first_ns, second = (n - s->share) / second_ns;
    s->ideal = old_weight * s->ideal + (1 - old_weight) * (first / (first + second));
    s->n_wanting = wanted_share(s) == s->share ? 0 : s->n_wanting + 1;
    if (s->n_wanting < s->params.settle || !can_change(s)) return false;
    change(s);
    return true;
}

static void give_up(crumb_split *s) {
    s->waits = s->n_wanting >= s->params.settle;
    go(s, CRUMB_SPLIT_OFF);
    s->alone_at_trial_ns = typical(&s->alone);
}

static void after_baseline(crumb_split *s) {
    if (s->n_in_state >= BASELINE_TOKENS) go(s, CRUMB_SPLIT_TRIAL);
}

static void after_trial(crumb_split *s, double wall_ns, bool moved) {
    const double alone = typical(&s->alone);
    if (moved) s->both = (crumb_split_times){.n = 0}; /* times of another share say little of this one */
    const bool settled = s->both.n >= CRUMB_SPLIT_TRIAL_TOKENS, out_of_time = s->n_in_state >= CRUMB_SPLIT_TRIAL_MOST;
    const bool moves = moved || (s->n_wanting > 0 && s->n_wanting < s->params.settle); /* at once, or soon */
    if (settled && typical(&s->both) < gain * alone) {
        s->wait = WAIT_FIRST;
        go(s, CRUMB_SPLIT_ON);
    } else if (settled || out_of_time || (!moves && wall_ns > hopeless * alone)) {
        give_up(s);
    }
}

static void after_split(crumb_split *s, double wall_ns) {
    const double alone = typical(&s->alone), both = typical(&s->both);
    const bool odd = wall_ns > changed * both || wall_ns > keep * alone;
    s->n_since_check++;
    s->checking = s->n_since_check >= CHECK_EVERY || (odd && s->n_since_check >= CHECK_SOONEST);
}

/* A token alone amid split ones: enough of them replace what was known of running alone. */
static void after_check(crumb_split *s) {
    s->checking = false;
    s->n_since_check = 0;
    if (typical(&s->both) > keep * typical(&s->alone)) give_up(s);
}

static void after_alone(crumb_split *s) {
    if (s->waits && (!can_change(s) || s->lost_ns > most_lost * s->elapsed_ns)) return;
    if (s->waits) { /* this trial is of the share that the last one has asked for */
        s->waits = false;
        change(s);
        return go(s, CRUMB_SPLIT_TRIAL);
    }
    const double now = typical(&s->alone), then = s->alone_at_trial_ns;
    const bool differs = now > changed * then || now * changed < then;
    const bool long_enough = s->n_in_state >= s->wait || (differs && s->n_in_state >= CRUMB_SPLIT_WINDOW);
    if (!long_enough || s->lost_ns + s->spent_ns > most_lost * s->elapsed_ns) return;
    s->wait = differs ? WAIT_FIRST : s->wait < WAIT_MOST ? 2 * s->wait : WAIT_MOST;
    go(s, CRUMB_SPLIT_TRIAL);
}

void crumb_split_done(crumb_split *s, double first_ns, double second_ns, double wall_ns) {
    if (!(wall_ns > 0) || !isfinite(wall_ns)) return;
    const bool split = crumb_split_next(s) != s->params.alone;
    bool moved = false;
    s->n_in_state++;
    s->elapsed_ns += wall_ns;
    push(split ? &s->both : &s->alone, wall_ns);
    const double alone = typical(&s->alone), both = typical(&s->both);
    if (split && s->state == CRUMB_SPLIT_TRIAL && wall_ns > alone) s->lost_ns += wall_ns - alone;
    if (!split && s->state == CRUMB_SPLIT_ON && wall_ns > both) s->lost_ns += wall_ns - both;
    if (split) moved = learn(s, first_ns, second_ns);
    switch (s->state) {
    case CRUMB_SPLIT_BASELINE: after_baseline(s); break;
    case CRUMB_SPLIT_TRIAL: after_trial(s, wall_ns, moved); break;
    case CRUMB_SPLIT_ON: split ? after_split(s, wall_ns) : after_check(s); break;
    case CRUMB_SPLIT_OFF: after_alone(s); break;
    }
}

void crumb_split_spent(crumb_split *s, double ns) {
    if (!(ns > 0) || !isfinite(ns)) return;
    s->elapsed_ns += ns;
    s->spent_ns += ns;
    if (ns > s->dearest_ns) s->dearest_ns = ns;
    if (s->n_changes > 0) s->params.change_ns = 0; /* it has been measured */
}

void crumb_split_explain(const crumb_split *s, char *out, size_t size) {
    const double alone = typical(&s->alone) * 1e-6, both = typical(&s->both) * 1e-6;
    if (s->both.n == 0)
        snprintf(out, size, "not split yet: %.2f ms alone", alone);
    else
        snprintf(out, size, "%s %.2f of the rows: %.2f ms a token, %.2f ms alone",
                 crumb_split_is_on(s) ? "split" : "not split; tried", (double)s->share / s->params.n_steps, both,
                 alone);
}
