/* What tuning gains: the best of the database beside the default, measured anew and in turns, since the best of a
 * hundred measurements is partly luck. */
#include "tools/crumb/suite.h"

#include "host/base/checked.h"
#include "host/kernel/tuning.h"
#include "tools/crumb/kernels_turns.h"
#include "tools/crumb/tune.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PROBLEMS = 256 };

typedef struct tuned_list {
    crumb_tuning_record best[MAX_PROBLEMS];
    size_t n;
} tuned_list;

static bool keep(void *user, const crumb_tuning_record *record) {
    tuned_list *list = user;
    const bool another = list->n == 0 || memcmp(&list->best[list->n - 1].key, &record->key, sizeof record->key) != 0;
    if (another && crumb_tuning_is_trusted(record)) list->best[list->n++] = *record; /* the best of a key comes first */
    return list->n < MAX_PROBLEMS;
}

/* Leaves those that plans of their problem take. */
static crumb_status keep_taken(crumb_tuning *db, tuned_list *list, crumb_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        crumb_tuning_record taken;
        bool found;
        CRUMB_TRY(crumb_tuning_find(db, &list->best[i].key, &taken, &found, err));
        if (found && memcmp(&taken.key, &list->best[i].key, sizeof taken.key) == 0) list->best[n++] = taken;
    }
    list->n = n;
    return CRUMB_OK;
}

/* This machine's measurements with these threads, of these kernels. */
static crumb_status read_database(const suite_state *s, tuned_list *list, crumb_error *err) {
    char standard[TUNE_PATH_BYTES], note[256];
    crumb_tuning *db;
    crumb_tuning_key like = {.act = UINT32_MAX, .n_threads = (uint32_t)s->n_threads};
    const char *path = tune_database_path(s->options, standard);
    if (!path) return CRUMB_OK;
    CRUMB_TRY(crumb_tuning_open(path, false, &db, note, err));
    if (*note) cli_note("%s", note);
    s->choice.suite->identify(s->choice.machine, like.device, like.target, like.source);
    crumb_status status = crumb_tuning_each(db, &like, keep, list, err);
    if (status == CRUMB_OK) status = keep_taken(db, list, err);
    crumb_tuning_close(db);
    return status;
}

/* A database that cannot be read is none for models either, which say why. */
void suite_describe_tuning(suite_state *s) {
    char standard[TUNE_PATH_BYTES];
    crumb_error err;
    tuned_list *list = calloc(1, sizeof *list);
    if (list && read_database(s, list, &err) == CRUMB_OK && list->n > 0)
        snprintf(s->tuning, sizeof s->tuning, "tuned: %.480s, %zu records", tune_database_path(s->options, standard),
                 list->n);
    else
        snprintf(s->tuning, sizeof s->tuning, "untuned");
    free(list);
}

/* A problem that has the key; false where there is none, and the kernel of that name. */
static bool problem_of(const suite_state *s, const crumb_tuning_record *r, crumb_kernel_problem *p, size_t *kernel) {
    const crumb_kernel_suite *suite = s->choice.suite;
    const crumb_tuning_key *key = &r->key;
    const bool indexed = strstr(key->weights, " index") != NULL;
    for (size_t i = 0; i < crumb_n_kernel_formats; i++) {
        const crumb_kernel_format *f = &crumb_kernel_formats[i];
        char weights[sizeof key->weights];
        crumb_kernel_weights_name(f->bits, f->codebook, indexed, weights);
        if (strcmp(weights, key->weights) != 0) continue;
        *p = (crumb_kernel_problem){.format = f,
                                    .m = key->m,
                                    .k = key->k,
                                    .n = key->n,
                                    .group = key->group == crumb_round_up(key->k, 32) ? 0 : key->group,
                                    .act = (crumb_act_quant)key->act};
        const size_t standard = kernels_chosen(&s->choice, p);
        if (standard == SIZE_MAX || strcmp(kernels_info(&s->choice, standard).layout, indexed ? "index" : "tile") != 0)
            continue;
        for (size_t j = 0; j < suite->n_kernels(); j++) {
            *kernel = j;
            if (strcmp(kernels_info(&s->choice, j).name, r->kernel) == 0) return kernels_takes(&s->choice, j, p);
        }
    }
    return false;
}

static crumb_status tuned_row(suite_state *s, const crumb_tuning_record *r, double *ratio, crumb_error *err) {
    suite_row row = {.section = "tuned", .unit = "us", .factor = true, .baseline_name = "default"};
    crumb_kernel_problem p;
    kernels_turns turns = {0};
    size_t kernel;
    *ratio = 0;
    if (!problem_of(s, r, &p, &kernel)) return CRUMB_OK;
    snprintf(row.what, sizeof row.what, "%s %u x %u x %u, %.40s %.40s", r->key.weights, p.m, p.k, p.n, r->kernel,
             *r->knobs ? r->knobs : "as by default");
    const bool cold = p.n <= 16;
    crumb_status status = kernels_turns_create(&s->choice, &p, s->rounds, cold, &turns, err);
    if (status == CRUMB_OK) status = kernels_turns_add(&turns, kernel, r->knobs, err);
    if (status == CRUMB_OK) status = kernels_turns_add(&turns, kernels_chosen(&s->choice, &p), "", err);
    if (status == CRUMB_OK) status = kernels_turns_run(&turns, err);
    if (status == CRUMB_OK) {
        row.measured = kernels_turns_median(&turns, 0, TURNS_NS) / 1000;
        row.baseline = kernels_turns_median(&turns, 1, TURNS_NS) / 1000;
        row.ratio = *ratio = kernels_turns_ratio(&turns, 1, 0, TURNS_NS);
        row.n_bytes = kernels_turns_bytes(&turns, 0);
        row.read_gb_s = kernels_turns_median(&turns, 1, TURNS_READ_GB_S);
        row.peak_gops = kernels_turns_median(&turns, 1, TURNS_PEAK_GOPS);
        snprintf(row.note, sizeof row.note, "the default reaches %.0f %% of the read rate, %.0f %% of the int8 peak",
                 100 * kernels_turns_median(&turns, 1, TURNS_READ_SHARE),
                 100 * kernels_turns_median(&turns, 1, TURNS_PEAK_SHARE));
        status = suite_row_add(s, &row, err);
    }
    kernels_turns_destroy(&turns);
    return status;
}

static crumb_status median_row(suite_state *s, double *ratios, size_t n, crumb_error *err) {
    suite_row row = {.section = "tuned", .unit = "problems", .factor = true, .wanted = 1.05, .skipped = n == 0};
    snprintf(row.what, sizeof row.what, "median of all that were tuned");
    if (n == 0)
        snprintf(row.note, sizeof row.note, "nothing is tuned for %d threads here: crumb tune -t %d", s->n_threads,
                 s->n_threads);
    row.measured = (double)n;
    row.ratio = n ? cli_median(ratios, n) : 0;
    return suite_row_add(s, &row, err);
}

crumb_status suite_tuned(suite_state *s, crumb_error *err) {
    if (!suite_case(s, "tuned")) return CRUMB_OK;
    tuned_list *list = calloc(1, sizeof *list);
    double *ratios = calloc(MAX_PROBLEMS, sizeof *ratios);
    crumb_status status = CRUMB_OK;
    size_t n = 0;
    if (!list || !ratios) status = crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for the tuned problems");
    if (status == CRUMB_OK) status = read_database(s, list, err);
    for (size_t i = 0; i < (list ? list->n : 0) && status == CRUMB_OK; i++) {
        status = tuned_row(s, &list->best[i], &ratios[n], err);
        n += status == CRUMB_OK && ratios[n] > 0;
    }
    if (status == CRUMB_OK) status = median_row(s, ratios, n, err);
    free(list);
    free(ratios);
    return status;
}
