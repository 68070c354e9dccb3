/* The winner once more: the best of hundreds owes some of its lead to luck, and all of it where another program slowed
 * the default down. So what leads is measured again, by itself, until what leads has been, be it the default, or the
 * time is up. Plans take nothing that was not. */
#include "tools/crumb/tune_search.h"

#include <string.h>

typedef struct leader {
    const tuner *t;
    crumb_tuning_record record;
    size_t kernel;
    double to_beat; /* what plans take */
    bool found;
} leader;

static size_t kernel_of(const tuner *t, const crumb_tuning_record *r) {
    const size_t n_kernels = t->choice->suite->n_kernels();
    for (size_t i = 0; i < n_kernels; i++)
        if (strcmp(kernels_info(t->choice, i).name, r->kernel) == 0 && tune_worth_trying(t, i)) return i;
    return SIZE_MAX;
}

static bool is_default(const tuner *t, const crumb_tuning_record *r) {
    const candidate *standard = &t->candidates[0];
    return strcmp(kernels_info(t->choice, standard->kernel).name, r->kernel) == 0 &&
           strcmp(standard->knobs, r->knobs) == 0;
}

/* Those that are trusted come first, and of the others the best. */
static bool keep_leader(void *user, const crumb_tuning_record *r) {
    leader *l = user;
    if (crumb_tuning_is_trusted(r)) {
        if (r->ratio < l->to_beat) l->to_beat = r->ratio;
        return true;
    }
    if (r->ratio >= l->to_beat) return false;
    l->kernel = kernel_of(l->t, r);
    l->found = l->kernel != SIZE_MAX && !is_default(l->t, r);
    if (l->found) l->record = *r;
    return !l->found;
}

/* A figure from elsewhere says nothing of what is computed here. */
static crumb_status check(tuner *t, const leader *l, bool *ok, crumb_error *err) {
    kernels_check check;
    *ok = true;
    if (l->record.rounds > 0) return CRUMB_OK;
    CRUMB_TRY(tune_check(t->choice, &t->samples, l->kernel, l->record.knobs, 0, &check, err));
    *ok = check.ok;
    if (check.ok) return CRUMB_OK;
    t->outcome->n_wrong++;
    cli_error("%s with '%s' is wrong and is left out: %s", l->record.kernel, l->record.knobs, check.where);
    return CRUMB_OK;
}

/* Rounds of a record's kernel and the default in turns; its record then says what these rounds did, if it did not come
 * from more. */
static crumb_status measure_again(tuner *t, const leader *l, crumb_error *err) {
    candidate c = {.kernel = l->kernel, .kept_rounds = l->record.rounds};
    snprintf(c.knobs, sizeof c.knobs, "%s", l->record.knobs);
    while (c.n_rounds < CRUMB_TUNING_CONFIRMED && !tune_is_past(t, 1)) {
        const bool first = c.n_rounds % 2;
        double standard, ns;
        CRUMB_TRY(tune_time(t, first ? &c : &t->candidates[0], first ? &ns : &standard, err));
        CRUMB_TRY(tune_time(t, first ? &t->candidates[0] : &c, first ? &standard : &ns, err));
        c.ns[c.n_rounds] = ns;
        c.ratios[c.n_rounds++] = ns / standard;
    }
    double ratios[CRUMB_TUNING_CONFIRMED];
    memcpy(ratios, c.ratios, sizeof ratios);
    c.ratio = c.n_rounds < CRUMB_TUNING_CONFIRMED ? cli_median(ratios, c.n_rounds) : crumb_tuning_confirmed(ratios);
    return tune_store(t, &c, err);
}

crumb_status tune_confirm(tuner *t, crumb_error *err) {
    for (;;) {
        leader l = {.t = t, .to_beat = 1};
        bool ok;
        CRUMB_TRY(crumb_tuning_each(t->db, &t->key, keep_leader, &l, err));
        if (!l.found) return CRUMB_OK;
        t->outcome->unconfirmed = l.record;
        if (tune_is_past(t, 1)) return CRUMB_OK;
        CRUMB_TRY(check(t, &l, &ok, err));
        if (!ok) return CRUMB_OK;
        CRUMB_TRY(measure_again(t, &l, err));
        t->outcome->unconfirmed = (crumb_tuning_record){0};
    }
}
