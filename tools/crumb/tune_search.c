/* The search: every candidate is checked for correctness, then timed in turns with the default. Candidates are halved
 * stage by stage, with more rounds for those that are left, so that most of the time goes to the good ones; and what
 * leads in the end is measured once more. All of that in the time that is given: what it does not suffice for is left
 * to the next run, which goes on where this one ended. */
#include "tools/crumb/tune_search.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"

#include <stdlib.h>
#include <string.h>

enum { LAST_ROUNDS = 15, FINALISTS = 6, FEW_ROWS = 16, DEFAULT_EVERY = 8, STORE_EVERY_NS = 1000000000 };

void tune_problem_name(const crumb_tuning_key *key, char out[96]) {
    static const char *const acts[] = {[CRUMB_ACT_F32] = "float", [CRUMB_ACT_ROW] = "row", [CRUMB_ACT_GROUP] = "group"};
    const int used = snprintf(out, 96, "%s %ux%ux%u, group %u, activations by %s", key->weights, key->m, key->k, key->n,
                              key->group, key->act <= CRUMB_ACT_GROUP ? acts[key->act] : "?");
    if (key->n_threads && used > 0 && used < 96)
        snprintf(out + used, 96 - (size_t)used, ", %u threads", key->n_threads);
}

/* Checks may take a half of the time, races what is then left of three quarters: so there is time to measure what was
 * checked, and to confirm what leads. */
static const double checks_part = 0.5, races_part = 0.75;

bool tune_is_past(const tuner *t, double part) {
    const double end = part * (double)(t->deadline_ns - t->began_ns);
    return (double)(crumb_now_ns() - t->began_ns) >= end || cli_interrupted(NULL);
}

static bool races_are_over(const tuner *t) {
    return tune_is_past(t, races_part);
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
bool tune_worth_trying(const tuner *t, size_t kernel) {
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
        if (!tune_worth_trying(t, i)) continue;
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

/* What was measured in this way is out. What was found elsewhere, the best first, goes before what nothing is known of.
 */
static bool mark_known(void *user, const crumb_tuning_record *record) {
    tuner *t = user;
    const bool again = t->choice->options->again, measured = record->rounds >= CRUMB_TUNING_ROUNDS;
    if (!again && record->ratio < t->leads && crumb_tuning_is_trusted(record)) t->leads = record->ratio;
    for (size_t i = 0; i < t->n_alive; i++) {
        candidate *c = &t->candidates[i];
        const char *name = kernels_info(t->choice, c->kernel).name;
        if (strcmp(name, record->kernel) != 0 || strcmp(c->knobs, record->knobs) != 0) continue;
        c->kept_rounds = measured ? CRUMB_TUNING_ROUNDS : record->rounds;
        if (i == 0) break; /* the default is always timed */
        if (measured && !again)
            swap(t, i, --t->n_alive);
        else if (record->rounds == 0)
            swap(t, i, t->n_suggested++ + 1);
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
        if (i > 1 && tune_is_past(t, checks_part)) {
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

crumb_status tune_time(tuner *t, const candidate *c, double *ns, crumb_error *err) {
    const unsigned cold = t->problem->n <= FEW_ROWS ? CRUMB_BENCH_COLD : 0;
    return t->choice->suite->bench_run(t->bench, c->kernel, c->knobs, cold | CRUMB_BENCH_WHOLE, ns, err);
}

crumb_status tune_store(tuner *t, candidate *c, crumb_error *err) {
    double ns[CRUMB_TUNING_CONFIRMED];
    if (c->n_rounds == 0 || c->n_rounds < c->kept_rounds) return CRUMB_OK;
    c->kept_rounds = c->n_rounds;
    memcpy(ns, c->ns, sizeof ns);
    crumb_tuning_record r = {
        .key = t->key, .ratio = c->ratio, .ns = cli_median(ns, c->n_rounds), .rounds = c->n_rounds};
    snprintf(r.kernel, sizeof r.kernel, "%s", kernels_info(t->choice, c->kernel).name);
    snprintf(r.knobs, sizeof r.knobs, "%s", c->knobs);
    return crumb_tuning_put(t->db, &r, err);
}

/* The best of those that are timed: the median of the rounds that a candidate has had in this stage. */
static double leading(const tuner *t) {
    double best = 1, ratios[CRUMB_TUNING_CONFIRMED];
    for (size_t i = 1; i < t->n_alive; i++) {
        const candidate *c = &t->candidates[i];
        memcpy(ratios, c->ratios, sizeof ratios);
        const double ratio = c->n_rounds ? cli_median(ratios, c->n_rounds) : 1;
        if (ratio < best) best = ratio;
    }
    return best;
}

/* Of those that nothing is known of, no more go on than there is time for: a round takes its part of what is left, and
 * whom it does not reach is left to another run. */
static bool has_had_its_part(const tuner *t, uint64_t began_ns, uint32_t n_rounds) {
    const double end = (double)t->began_ns + races_part * (double)(t->deadline_ns - t->began_ns);
    return (double)(crumb_now_ns() - began_ns) * n_rounds >= end - (double)began_ns;
}

/* Keeps what this stage's rounds have said so far. The disk is waited for once, and not for each candidate: so neither
 * does it take the time that is given, nor what Ctrl-C needs to be heard. */
static crumb_status store_rounds(tuner *t, crumb_error *err) {
    CRUMB_TRY(crumb_tuning_begin(t->db, err));
    crumb_status status = CRUMB_OK;
    for (size_t i = 0; i < t->n_alive && status == CRUMB_OK; i++) {
        candidate *c = &t->candidates[i];
        if (c->n_rounds == 0) continue;
        c->ratio = i == 0 ? 1 : cli_median(c->ratios, c->n_rounds);
        status = tune_store(t, c, err);
    }
    t->stored_ns = crumb_now_ns();
    return crumb_tuning_end(t->db, status, err);
}

/* A crash, or a second Ctrl-C, takes the last second. */
static crumb_status store_each_second(tuner *t, crumb_error *err) {
    return crumb_now_ns() - t->stored_ns < STORE_EVERY_NS ? CRUMB_OK : store_rounds(t, err);
}

/* One stage: `rounds` rounds of all that are left, each beside the default's time of that moment. */
static crumb_status race(tuner *t, uint32_t rounds, crumb_error *err) {
    const bool first = rounds == CRUMB_TUNING_ROUNDS;
    double standard = 0;
    for (size_t i = 0; i < t->n_alive; i++) t->candidates[i].n_rounds = 0;
    for (uint32_t round = 0; round < rounds && !races_are_over(t); round++) {
        const uint64_t began_ns = crumb_now_ns();
        for (size_t i = 0; i < t->n_alive && !races_are_over(t); i++) {
            candidate *c = &t->candidates[i];
            if (i % DEFAULT_EVERY == 0) {
                CRUMB_TRY(store_each_second(t, err)); /* between what is compared */
                show_progress(t, 0);
                CRUMB_TRY(tune_time(t, &t->candidates[0], &standard, err));
            }
            double ns = standard;
            if (i > 0) CRUMB_TRY(tune_time(t, c, &ns, err));
            c->ns[c->n_rounds] = ns;
            c->ratios[c->n_rounds++] = ns / standard;
            if (first && i > 1 && has_had_its_part(t, began_ns, rounds - round)) t->n_alive = i + 1;
        }
        t->leads = leading(t);
    }
    for (size_t i = 0; i < t->n_alive; i++) t->outcome->n_measured += first && t->candidates[i].n_rounds == rounds;
    return store_rounds(t, err);
}

static int by_ratio(const void *a, const void *b) {
    double x = ((const candidate *)a)->ratio, y = ((const candidate *)b)->ratio;
    return (x > y) - (x < y);
}

static crumb_status race_all(tuner *t, crumb_error *err) {
    uint32_t rounds = CRUMB_TUNING_ROUNDS;
    t->stored_ns = crumb_now_ns();
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
    if (crumb_tuning_is_trusted(record)) *(crumb_tuning_record *)user = *record; /* the best comes first */
    return false;
}

static crumb_status search(tuner *t, crumb_error *err) {
    CRUMB_TRY(list_candidates(t, err));
    t->outcome->n_candidates = t->n;
    t->outcome->best = (crumb_tuning_record){.key = t->key, .ratio = 1};
    t->leads = 1;
    if (t->n == 0) return CRUMB_OK;
    snprintf(t->outcome->best.kernel, sizeof t->outcome->best.kernel, "%s",
             kernels_info(t->choice, t->candidates[0].kernel).name);
    snprintf(t->outcome->best.knobs, sizeof t->outcome->best.knobs, "%s", t->candidates[0].knobs);
    if (t->n_alive == 0) return CRUMB_OK;
    CRUMB_TRY(crumb_tuning_each(t->db, &t->key, mark_known, t, err));
    if (t->n_alive > 1) {
        CRUMB_TRY(drop_wrong(t, err));
        CRUMB_TRY(race_all(t, err));
    }
    CRUMB_TRY(tune_confirm(t, err));
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
    if (t.deadline_ns < t.began_ns) t.deadline_ns = t.began_ns; /* past already: no time is left, not all time */
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
