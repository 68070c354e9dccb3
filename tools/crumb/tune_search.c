/* The search: every candidate is checked for correctness, then timed in turns with the default. Candidates are halved
 * stage by stage, with more rounds for those that are left, so that most of the time goes to the good ones; and what
 * leads in the end is measured once more. All of that in the time that is given: what it does not suffice for is left
 * to the next run, which goes on where this one ended. */
#include "tools/crumb/tune.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_ROUNDS = 3,
    LAST_ROUNDS = 15,
    FINALISTS = 6,
    CONFIRM_ROUNDS = 25, /* more than any other record has: so it is known which were confirmed */
    FEW_ROWS = 16,
    DEFAULT_EVERY = 8
};

typedef struct candidate {
    size_t kernel;
    char knobs[CRUMB_KNOBS_BYTES], effect[CRUMB_KNOBS_BYTES];
    double ratios[CONFIRM_ROUNDS], ns[CONFIRM_ROUNDS]; /* of this stage's rounds */
    uint32_t n_rounds;
    double ratio; /* median; stays when the candidate is out */
} candidate;

typedef struct tuner {
    const kernels_choice *choice;
    const crumb_kernel_problem *problem;
    crumb_kernel_bench *bench;
    tune_samples samples;
    crumb_tuning *db;
    crumb_tuning_key key;
    const char *layout; /* of the weights, in the kernel that is chosen */
    uint64_t deadline_ns, began_ns;
    candidate *candidates; /* [0] is the default; those still in the race come first */
    size_t n, n_alive;
    double leads; /* the best ratio so far, of this stage or of what was known before */
    tune_outcome *outcome;
} tuner;

void tune_problem_name(const crumb_tuning_key *key, char out[96]) {
    static const char *const acts[] = {[CRUMB_ACT_F32] = "float", [CRUMB_ACT_ROW] = "row", [CRUMB_ACT_GROUP] = "group"};
    const int used = snprintf(out, 96, "%s %ux%ux%u, group %u, activations by %s", key->weights, key->m, key->k, key->n,
                              key->group, key->act <= CRUMB_ACT_GROUP ? acts[key->act] : "?");
    if (key->n_threads && used > 0 && used < 96)
        snprintf(out + used, 96 - (size_t)used, ", %u threads", key->n_threads);
}

/* Whether this part of the time is gone. Checks may take a half, races what is then left of three quarters: so there is
 * time to measure what was checked, and to confirm what leads. */
static bool is_past(const tuner *t, double part) {
    const double end = part * (double)(t->deadline_ns - t->began_ns);
    return (double)(crumb_now_ns() - t->began_ns) >= end || cli_interrupted(NULL);
}

static bool races_are_over(const tuner *t) {
    return is_past(t, 0.75);
}

/* n_checked 0: candidates are timed. */
static void show_progress(const tuner *t, size_t n_checked) {
    static char label[160];
    char name[96];
    double fraction = (double)(crumb_now_ns() - t->began_ns) / (double)(t->deadline_ns - t->began_ns + 1);
    tune_problem_name(&t->key, name);
    if (n_checked)
        snprintf(label, sizeof label, "%.90s: %zu of %zu checked", name, n_checked, t->n_alive);
    else
        snprintf(label, sizeof label, "%.90s: %zu left, best %.3f", name, t->n_alive, t->leads);
    cli_progress(label, (float)(fraction < 1 ? fraction : 1));
}

/* ---- candidates -------------------------------------------------------------------------------------------- */

/* Whether there is a candidate already that runs the same program. */
static bool is_known(const tuner *t, size_t kernel, const char *effect) {
    for (size_t i = 0; i < t->n; i++)
        if (t->candidates[i].kernel == kernel && strcmp(t->candidates[i].effect, effect) == 0) return true;
    return false;
}

/* One of a kernel's settings, where it works for the problem and is none of those before by another name. */
static crumb_status add_candidate(tuner *t, size_t kernel, const char *knobs, crumb_error *err) {
    const crumb_kernel_suite *suite = t->choice->suite;
    char effect[CRUMB_KNOBS_BYTES];
    snprintf(effect, sizeof effect, "%s", knobs);
    if (suite->setting_takes && t->n && !suite->setting_takes(t->choice->machine, kernel, knobs, t->problem))
        return CRUMB_OK;
    if (suite->setting_effect) suite->setting_effect(t->choice->machine, kernel, knobs, t->problem, effect);
    if (is_known(t, kernel, effect)) return CRUMB_OK;
    if ((t->n & (t->n - 1)) == 0) { /* full at powers of two */
        size_t capacity = t->n ? 2 * t->n : 1;
        candidate *grown = realloc(t->candidates, capacity * sizeof *grown);
        if (!grown) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %zu candidates", capacity);
        t->candidates = grown;
    }
    candidate *c = &t->candidates[t->n++];
    *c = (candidate){.kernel = kernel, .ratio = 1};
    snprintf(c->knobs, sizeof c->knobs, "%s", knobs);
    memcpy(c->effect, effect, sizeof effect);
    return CRUMB_OK;
}

/* Models keep weights in one layout, and activations in one order. */
static bool worth_trying(const tuner *t, size_t kernel) {
    const crumb_kernel_info info = kernels_info(t->choice, kernel);
    if (info.other_order && !t->choice->options->kernel_filter) return false;
    return info.eligible && strcmp(info.layout, t->layout) == 0 && t->problem->n <= info.max_n &&
           strcmp(info.target, "scalar") != 0 && kernels_selected(t->choice, &info) &&
           kernels_takes(t->choice, kernel, t->problem);
}

static void swap(tuner *t, size_t a, size_t b) {
    candidate c = t->candidates[a];
    t->candidates[a] = t->candidates[b];
    t->candidates[b] = c;
}

/* In an order by chance, all but the default: where there is time for some only, they are of all kinds. */
static void shuffle(tuner *t, uint64_t random) {
    for (size_t i = t->n; i > 2; i--) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        swap(t, i - 1, 1 + (size_t)(random >> 33) % (i - 1));
    }
}

/* In an order by chance the first are any. */
static void keep_fraction(tuner *t) {
    const double wanted = (double)(t->n - 1) * t->choice->options->fraction;
    const size_t n = wanted > 1 ? (size_t)wanted : 1;
    if (t->n > 1 && n < t->n - 1) t->n = n + 1;
}

static crumb_status list_candidates(tuner *t, crumb_error *err) {
    const crumb_kernel_suite *suite = t->choice->suite;
    const crumb_kernel_machine *machine = t->choice->machine;
    const size_t standard = kernels_chosen(t->choice, t->problem);
    char knobs[CRUMB_KNOBS_BYTES] = "";
    if (standard == SIZE_MAX) return CRUMB_OK;
    if (suite->chosen_knobs) suite->chosen_knobs(machine, t->problem, knobs);
    CRUMB_TRY(add_candidate(t, standard, knobs, err));
    for (size_t i = 0; i < suite->n_kernels(); i++) {
        if (!worth_trying(t, i)) continue;
        for (size_t j = 0; j < suite->n_settings(machine, i); j++) {
            suite->setting(machine, i, j, knobs);
            CRUMB_TRY(add_candidate(t, i, knobs, err));
        }
    }
    shuffle(t, crumb_now_ns() | 1);
    keep_fraction(t);
    t->n_alive = t->n > 1 ? t->n : 0;
    return CRUMB_OK;
}

static bool mark_known(void *user, const crumb_tuning_record *record) {
    tuner *t = user;
    if (record->ratio > 0 && record->ratio < t->outcome->best.ratio) t->outcome->best = *record;
    for (size_t i = 1; i < t->n_alive; i++) {
        const char *name = kernels_info(t->choice, t->candidates[i].kernel).name;
        if (strcmp(name, record->kernel) != 0 || strcmp(t->candidates[i].knobs, record->knobs) != 0) continue;
        swap(t, i, --t->n_alive);
        break;
    }
    return true;
}

/* A candidate that computes something else, on its threads and in its chunks, is not timed; that is a bug to report,
 * not a choice. Neither is one that the device does not build or run. Another run goes on with those that are not
 * checked by half-time. */
static crumb_status drop_wrong(tuner *t, crumb_error *err) {
    for (size_t i = 0; i < t->n_alive && !cli_interrupted(NULL);) {
        kernels_check check = {.ok = false};
        const candidate *c = &t->candidates[i];
        if (i > 1 && is_past(t, 0.5)) {
            t->n_alive = i;
            break;
        }
        show_progress(t, i + 1);
        crumb_status status = tune_check(t->choice, &t->samples, c->kernel, c->knobs, i, &check, err);
        if (status == CRUMB_OK && check.ok) {
            i++;
            continue;
        }
        if (status != CRUMB_OK && (status != CRUMB_ERR_DEVICE || i == 0)) return status;
        if (status != CRUMB_OK) snprintf(check.where, sizeof check.where, "%.150s", err->message);
        cli_error("%s with '%s' is wrong and is left out: %s", kernels_info(t->choice, c->kernel).name, c->knobs,
                  check.where);
        t->outcome->n_wrong++;
        if (i == 0) return crumb_fail(err, CRUMB_ERR_DEVICE, "the default kernel computes wrong results");
        swap(t, i, --t->n_alive);
    }
    return CRUMB_OK;
}

/* ---- measuring --------------------------------------------------------------------------------------------- */

static crumb_status time_one(tuner *t, const candidate *c, double *ns, crumb_error *err) {
    const unsigned cold = t->problem->n <= FEW_ROWS ? CRUMB_BENCH_COLD : 0;
    return t->choice->suite->bench_run(t->bench, c->kernel, c->knobs, cold | CRUMB_BENCH_WHOLE, ns, err);
}

static crumb_status store(tuner *t, candidate *c, crumb_error *err) {
    double ns[CONFIRM_ROUNDS];
    if (c->n_rounds == 0) return CRUMB_OK;
    memcpy(ns, c->ns, sizeof ns);
    crumb_tuning_record r = {
        .key = t->key, .ratio = c->ratio, .ns = cli_median(ns, c->n_rounds), .rounds = c->n_rounds};
    snprintf(r.kernel, sizeof r.kernel, "%s", kernels_info(t->choice, c->kernel).name);
    snprintf(r.knobs, sizeof r.knobs, "%s", c->knobs);
    return crumb_tuning_put(t->db, &r, err);
}

/* The best of those that are timed: the median of the rounds that a candidate has had in this stage. */
static double leading(const tuner *t) {
    double best = 1, ratios[CONFIRM_ROUNDS];
    for (size_t i = 1; i < t->n_alive; i++) {
        const candidate *c = &t->candidates[i];
        memcpy(ratios, c->ratios, sizeof ratios);
        const double ratio = c->n_rounds ? cli_median(ratios, c->n_rounds) : 1;
        if (ratio < best) best = ratio;
    }
    return best;
}

/* One stage: `rounds` rounds of all that are left, each beside the default's time of that moment. */
static crumb_status race(tuner *t, uint32_t rounds, crumb_error *err) {
    double standard = 0;
    for (size_t i = 0; i < t->n_alive; i++) t->candidates[i].n_rounds = 0;
    for (uint32_t round = 0; round < rounds && !races_are_over(t); round++) {
        for (size_t i = 0; i < t->n_alive && !races_are_over(t); i++) {
            candidate *c = &t->candidates[i];
            if (i % DEFAULT_EVERY == 0) {
                show_progress(t, 0);
                CRUMB_TRY(time_one(t, &t->candidates[0], &standard, err));
            }
            double ns = standard;
            if (i > 0) CRUMB_TRY(time_one(t, c, &ns, err));
            c->ns[c->n_rounds] = ns;
            c->ratios[c->n_rounds++] = ns / standard;
        }
        t->leads = leading(t);
    }
    for (size_t i = 0; i < t->n_alive; i++) {
        candidate *c = &t->candidates[i];
        if (c->n_rounds == 0) continue;
        c->ratio = i == 0 ? 1 : cli_median(c->ratios, c->n_rounds);
        t->outcome->n_measured += rounds == FIRST_ROUNDS;
        CRUMB_TRY(store(t, c, err));
    }
    return CRUMB_OK;
}

static int by_ratio(const void *a, const void *b) {
    double x = ((const candidate *)a)->ratio, y = ((const candidate *)b)->ratio;
    return (x > y) - (x < y);
}

static crumb_status race_all(tuner *t, crumb_error *err) {
    uint32_t rounds = FIRST_ROUNDS;
    while (t->n_alive > 1 && !races_are_over(t)) {
        CRUMB_TRY(race(t, rounds, err));
        if (rounds == LAST_ROUNDS) break;
        qsort(t->candidates + 1, t->n_alive - 1, sizeof *t->candidates, by_ratio);
        t->n_alive = t->n_alive > 2 * FINALISTS ? t->n_alive / 2 : t->n_alive > FINALISTS ? FINALISTS : t->n_alive;
        rounds = t->n_alive <= FINALISTS ? LAST_ROUNDS : rounds + 2 < LAST_ROUNDS ? rounds + 2 : LAST_ROUNDS - 1;
    }
    return CRUMB_OK;
}

static bool keep_best(void *user, const crumb_tuning_record *record) {
    *(crumb_tuning_record *)user = *record; /* the best comes first */
    return false;
}

/* ---- the winner once more ----------------------------------------------------------------------------------- */

/* Rounds of a record's kernel and the default in turns; its record then says what these rounds did, if it did not come
 * from more. *done: they were all run. */
static crumb_status measure_again(tuner *t, const crumb_tuning_record *r, bool *done, crumb_error *err) {
    candidate c = {.kernel = SIZE_MAX};
    const size_t n_kernels = t->choice->suite->n_kernels();
    *done = false;
    for (size_t i = 0; i < n_kernels && c.kernel == SIZE_MAX; i++)
        if (strcmp(kernels_info(t->choice, i).name, r->kernel) == 0 && worth_trying(t, i)) c.kernel = i;
    if (c.kernel == SIZE_MAX) return CRUMB_OK;
    snprintf(c.knobs, sizeof c.knobs, "%s", r->knobs);
    while (c.n_rounds < CONFIRM_ROUNDS && !is_past(t, 1)) {
        const bool first = c.n_rounds % 2;
        double standard, ns;
        CRUMB_TRY(time_one(t, first ? &c : &t->candidates[0], first ? &ns : &standard, err));
        CRUMB_TRY(time_one(t, first ? &t->candidates[0] : &c, first ? &standard : &ns, err));
        c.ns[c.n_rounds] = ns;
        c.ratios[c.n_rounds++] = ns / standard;
    }
    if (c.n_rounds <= r->rounds) return CRUMB_OK;
    *done = c.n_rounds == CONFIRM_ROUNDS;
    c.ratio = cli_median(c.ratios, c.n_rounds);
    return store(t, &c, err);
}

/* The best of hundreds owes some of its lead to luck, and all of it where another program slowed the default down. So
 * what leads is measured again, by itself, until what leads has been, be it the default, or the time is up. */
static crumb_status confirm_best(tuner *t, crumb_error *err) {
    const candidate *standard = &t->candidates[0];
    for (bool done = true; done;) {
        crumb_tuning_record best = t->outcome->best;
        CRUMB_TRY(crumb_tuning_each(t->db, &t->key, keep_best, &best, err));
        if (best.ratio >= 1 || best.rounds >= CONFIRM_ROUNDS) return CRUMB_OK;
        if (strcmp(kernels_info(t->choice, standard->kernel).name, best.kernel) == 0 &&
            strcmp(standard->knobs, best.knobs) == 0)
            return CRUMB_OK;
        CRUMB_TRY(measure_again(t, &best, &done, err));
    }
    return CRUMB_OK;
}

static crumb_status search(tuner *t, crumb_error *err) {
    CRUMB_TRY(list_candidates(t, err));
    t->outcome->n_candidates = t->n;
    t->outcome->best = (crumb_tuning_record){.key = t->key, .ratio = 1};
    if (t->n_alive == 0) return CRUMB_OK;
    snprintf(t->outcome->best.kernel, sizeof t->outcome->best.kernel, "%s",
             kernels_info(t->choice, t->candidates[0].kernel).name);
    snprintf(t->outcome->best.knobs, sizeof t->outcome->best.knobs, "%s", t->candidates[0].knobs);
    if (!t->choice->options->again) CRUMB_TRY(crumb_tuning_each(t->db, &t->key, mark_known, t, err));
    t->leads = t->outcome->best.ratio;
    if (t->n_alive > 1) {
        CRUMB_TRY(drop_wrong(t, err));
        CRUMB_TRY(race_all(t, err));
    }
    CRUMB_TRY(confirm_best(t, err));
    return crumb_tuning_each(t->db, &t->key, keep_best, &t->outcome->best, err);
}

static void make_key(tuner *t) {
    const crumb_kernel_problem *p = t->problem;
    const size_t standard = kernels_chosen(t->choice, p);
    t->choice->suite->identify(t->choice->machine, t->key.device, t->key.target, t->key.source);
    t->layout = standard == SIZE_MAX ? "" : kernels_info(t->choice, standard).layout;
    crumb_kernel_weights_name(p->format->bits, p->format->codebook, strcmp(t->layout, "index") == 0, t->key.weights);
    t->key.m = p->m;
    t->key.k = p->k;
    t->key.n = p->n;
    t->key.group = p->group ? p->group : (uint32_t)crumb_round_up(p->k, 32);
    t->key.act = (uint32_t)p->act;
    t->key.n_threads = (uint32_t)t->choice->suite->machine_threads(t->choice->machine);
}

crumb_status tune_search(const kernels_choice *choice, const crumb_kernel_problem *problem, crumb_tuning *db,
                         uint64_t deadline_ns, tune_outcome *outcome, crumb_error *err) {
    tuner t = {.choice = choice,
               .problem = problem,
               .db = db,
               .deadline_ns = deadline_ns,
               .began_ns = crumb_now_ns(),
               .outcome = outcome};
    *outcome = (tune_outcome){0};
    CRUMB_TRY(choice->suite->bench_create(choice->machine, problem, &t.bench, err));
    make_key(&t);
    tune_samples_init(problem, t.key.n_threads > 0, &t.samples);
    crumb_status status = search(&t, err);
    cli_progress_clear();
    tune_samples_destroy(&t.samples);
    choice->suite->bench_destroy(t.bench);
    free(t.candidates);
    return status;
}
