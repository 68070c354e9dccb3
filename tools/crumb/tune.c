/* crumb tune: finds the fastest settings of the kernels for this machine, and keeps them in a database. */
#include "tools/crumb/tune.h"

#include "host/base/file.h"
#include "host/base/thread.h"
#include "host/engine/engine.h"
#include "tools/crumb/json_util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROBLEMS = 256 };

/* ---- what to tune for -------------------------------------------------------------------------------------- */

typedef struct problem_list {
    crumb_kernel_problem problem[MAX_PROBLEMS];
    size_t n;
    bool more; /* than there is room for */
} problem_list;

static void add_problem(problem_list *list, const crumb_kernel_problem *p) {
    for (size_t i = 0; i < list->n; i++) {
        const crumb_kernel_problem *o = &list->problem[i];
        if (o->format == p->format && o->m == p->m && o->k == p->k && o->n == p->n && o->group == p->group &&
            o->act == p->act)
            return;
    }
    if (list->n < MAX_PROBLEMS)
        list->problem[list->n++] = *p;
    else
        list->more = true;
}

static const crumb_kernel_format *format_of(const crumb_matrix *w) {
    for (size_t i = 0; i < crumb_n_kernel_formats; i++) {
        const crumb_kernel_format *f = &crumb_kernel_formats[i];
        if (f->bits == w->bits && f->max_code == w->max_code && f->codebook == w->codebook) return f;
    }
    return NULL;
}

static void add_matrix(problem_list *list, const crumb_matrix *w) {
    static const uint32_t batches[] = {1, 4, 16, 512}; /* plans of 2 and 8 rows take the nearest */
    const crumb_kernel_format *format = format_of(w);
    if (w->bits == 0 || !format) return;
    bool by_group = crumb_type_get_info(w->type)->act_rule == CRUMB_ACT_RULE_GROUP && w->group <= 128;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
        add_problem(list, &(crumb_kernel_problem){.format = format,
                                                  .m = w->m,
                                                  .k = w->k,
                                                  .n = batches[i],
                                                  .group = w->group,
                                                  .act = by_group ? CRUMB_ACT_GROUP : CRUMB_ACT_ROW});
}

static crumb_status problems_of_model(const cli_options *options, problem_list *list, crumb_error *err) {
    crumb_model *m;
    cli_options o = *options; /* on the device that is tuned, whose weights may lie otherwise than the CPU's */
    if (kernels_gpu_backend(options)) {
        if (!o.device) o.device = "gpu0";
        if (!o.backend) o.backend = kernels_gpu_backend(options);
    }
    CRUMB_TRY(cli_model_open(&o, options->model, NULL, (int)options->n_threads, 0, &m, err));
    for (uint32_t i = 0; i < m->net.hparams.num_hidden_layers; i++) {
        const crumb_layer *l = &m->net.layers[i];
        const crumb_weight *weights[] = {&l->attn_q,   &l->attn_k, &l->attn_v,  &l->attn_output,
                                         &l->ffn_gate, &l->ffn_up, &l->ffn_down};
        for (size_t j = 0; j < sizeof weights / sizeof weights[0]; j++) add_matrix(list, &weights[j]->matrix);
    }
    add_matrix(list, &m->net.head.matrix);
    crumb_model_close(m);
    if (list->n == 0)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s: no weights that kernels could be tuned for", options->model);
    return CRUMB_OK;
}

static crumb_status problems_of_choice(const kernels_choice *c, problem_list *list, crumb_error *err) {
    const crumb_kernel_info any = {.acts = 0};
    for (size_t f = 0; f < c->n_formats; f++)
        for (size_t s = 0; s < c->n_shapes; s++)
            for (size_t g = 0; g < c->n_groups; g++) {
                crumb_kernel_problem p = kernels_problem(c, &any, c->formats[f], c->groups[g], c->shapes[s]);
                if (p.group == 0 || p.k % p.group == 0) add_problem(list, &p);
            }
    return kernels_check_groups(c, false, err);
}

crumb_status tune_parse_budget(const char *text, uint64_t *ns, crumb_error *err) {
    char *end;
    double value = strtod(text, &end);
    const char *units = "smh", *unit = *end ? strchr(units, *end) : units;
    if (end == text || !unit || (*end && end[1]) || !(value > 0) || value > 1e6)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "--budget: '%s' is not a time such as 90s, 10m or 1h", text);
    const double seconds[] = {1, 60, 3600};
    *ns = (uint64_t)(value * seconds[unit - units] * 1e9);
    return CRUMB_OK;
}

/* ---- the database ------------------------------------------------------------------------------------------ */

const char *tune_database_path(const cli_options *options, char standard[TUNE_PATH_BYTES]) {
    const char *given = options->tuning;
    if (given) return strcmp(given, "none") == 0 ? NULL : given;
    return crumb_tuning_path(standard, TUNE_PATH_BYTES) ? standard : NULL;
}

/* A file that the user names lies in a folder of theirs: one that is not there is a slip, and is not made. */
static crumb_status check_folder(const char *path, crumb_error *err) {
    char folder[TUNE_PATH_BYTES];
    const char *end = strrchr(path, '/');
    const int n = end && end != path ? (int)(end - path) : 0;
    if (n == 0 || n >= TUNE_PATH_BYTES) return CRUMB_OK; /* too long a name is refused where it is opened */
    snprintf(folder, sizeof folder, "%.*s", n, path);
    if (crumb_folder_exists(folder)) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_IO, "--tuning %s: there is no folder %s: make it, or give another file", path,
                      folder);
}

crumb_status tune_check_database(const cli_options *options, crumb_error *err) {
    char standard[TUNE_PATH_BYTES];
    const char *path = tune_database_path(options, standard);
    if (path) return options->tuning ? check_folder(path, err) : CRUMB_OK; /* the user's own is made */
    if (options->tuning)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "--tuning none: there is no database to change; give a file, or leave it to crumb");
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "there is no home folder for the tuning database: give --tuning FILE");
}

crumb_status tune_open_database(const cli_options *options, bool create, crumb_tuning **out, crumb_error *err) {
    char standard[TUNE_PATH_BYTES], note[256];
    const char *path = tune_database_path(options, standard);
    if (create) CRUMB_TRY(tune_check_database(options, err));
    CRUMB_TRY(crumb_tuning_open(path ? path : "", create, out, note, err)); /* no name: no file, and nothing in it */
    if (*note) cli_note("%s", note);
    return CRUMB_OK;
}

static void add_record(cJSON *o, const crumb_tuning_record *r) {
    json_add_text(o, "device", r->key.device);
    json_add_text(o, "target", r->key.target);
    json_add_text(o, "source", r->key.source);
    json_add_text(o, "weights", r->key.weights);
    json_add_u64(o, "m", r->key.m);
    json_add_u64(o, "k", r->key.k);
    json_add_u64(o, "n", r->key.n);
    json_add_u64(o, "group", r->key.group);
    json_add_u64(o, "act", r->key.act);
    json_add_u64(o, "threads", r->key.n_threads);
    json_add_text(o, "kernel", r->kernel);
    json_add_text(o, "knobs", r->knobs);
    json_add_real(o, "ratio", r->ratio);
    json_add_real(o, "ns", r->ns);
    json_add_u64(o, "rounds", r->rounds);
}

typedef struct printing {
    crumb_tuning_key last;
    crumb_status status;
    crumb_error *err;
    size_t n;
    bool json, all;
} printing;

static bool print_record(void *user, const crumb_tuning_record *r) {
    printing *p = user;
    char name[96];
    const bool first = memcmp(&p->last, &r->key, sizeof r->key) != 0; /* the best of its key */
    p->last = r->key;
    if (!first && !p->all) return true;
    p->n++;
    if (p->json) {
        cJSON *line = json_document();
        add_record(line, r);
        p->status = json_print(line, true, "\n", p->err);
        return p->status == CRUMB_OK;
    }
    tune_problem_name(&r->key, name);
    cli_print("%s, %s: %s: %s %s: %.3f of the default's time, %.1f us%s\n", r->key.device, r->key.target, name,
              r->kernel, *r->knobs ? r->knobs : "(default)", r->ratio, r->ns / 1000,
              crumb_tuning_is_trusted(r) ? "" : "; not confirmed, so that plans do not take it: crumb tune");
    return true;
}

/* show: the best of each problem. export: every measurement as a JSON line, for import elsewhere. */
static crumb_status print_records(const cli_options *options, bool all, crumb_error *err) {
    crumb_tuning *db;
    printing p = {.err = err, .json = options->json || all, .all = all};
    const crumb_tuning_key any = {.act = UINT32_MAX};
    CRUMB_TRY(tune_open_database(options, false, &db, err));
    crumb_status status = crumb_tuning_each(db, &any, print_record, &p, err);
    crumb_tuning_close(db);
    if (status == CRUMB_OK) status = p.status;
    if (status == CRUMB_OK && p.n == 0)
        cli_note(options->tuning && strcmp(options->tuning, "none") == 0 ? "--tuning none: nothing is looked up"
                                                                         : "nothing has been tuned yet: crumb tune");
    return status;
}

static crumb_status show(const cli_options *options, crumb_error *err) {
    return print_records(options, false, err);
}

static crumb_status export_all(const cli_options *options, crumb_error *err) {
    return print_records(options, true, err);
}

static crumb_status prune(const cli_options *options, crumb_error *err) {
    crumb_tuning *db = NULL;
    kernels_choice choice;
    char device[96], target[32], source[20];
    uint64_t n_removed = 0;
    CRUMB_TRY(tune_check_database(options, err));
    crumb_status status = kernels_choose(options, (int)options->n_threads, NULL, 0, NULL, 0, &choice, err);
    if (status == CRUMB_OK) status = tune_open_database(options, false, &db, err);
    if (status == CRUMB_OK) {
        choice.suite->identify(choice.machine, device, target, source);
        status = crumb_tuning_prune(db, device, source, &n_removed, err);
    }
    crumb_tuning_close(db);
    kernels_release(&choice);
    if (status == CRUMB_OK) cli_print("%llu measurements removed\n", (unsigned long long)n_removed);
    return status;
}

/* ---- tune -------------------------------------------------------------------------------------------------- */

static void print_outcome(const cli_options *options, const tune_outcome *o, crumb_status *status, crumb_error *err) {
    char name[96];
    const crumb_tuning_record *leads = &o->unconfirmed;
    tune_problem_name(&o->best.key, name);
    if (*leads->kernel)
        cli_note("%s: %s %s seems to be better, with %.3f of the default's time in %u rounds, but could not be "
                 "confirmed in time: plans do not take it until 'crumb tune' is run again",
                 name, leads->kernel, *leads->knobs ? leads->knobs : "(default)", leads->ratio, leads->rounds);
    if (options->json) {
        cJSON *line = json_document();
        add_record(line, &o->best);
        json_add_u64(line, "candidates", o->n_candidates);
        json_add_u64(line, "measured", o->n_measured);
        json_add_u64(line, "wrong", o->n_wrong);
        cJSON_AddBoolToObject(line, "confirmed", !*leads->kernel);
        *status = json_print(line, true, "\n", err);
        return;
    }
    cli_print("%s: %zu candidates, %zu measured now; best: %s %s, %.3f of the default's time\n", name, o->n_candidates,
              o->n_measured, o->best.kernel, *o->best.knobs ? o->best.knobs : "(default)", o->best.ratio);
    cli_flush();
}

/* Each problem gets its part of the time that is left. *n_wrong, *n_offered: candidates that were, and those beside the
 * default. */
static crumb_status tune_all(const kernels_choice *choice, const problem_list *list, crumb_tuning *db,
                             uint64_t deadline_ns, size_t *n_wrong, size_t *n_offered, crumb_error *err) {
    crumb_status status = CRUMB_OK;
    for (size_t i = 0; i < list->n && status == CRUMB_OK && !cli_interrupted(NULL); i++) {
        uint64_t now = crumb_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
        tune_outcome outcome;
        status = tune_search(choice, &list->problem[i], db, now + left / (list->n - i), &outcome, err);
        *n_wrong += outcome.n_wrong;
        if (outcome.n_candidates < 2) continue;
        *n_offered += outcome.n_candidates - 1;
        if (status == CRUMB_OK) print_outcome(choice->options, &outcome, &status, err);
    }
    return status;
}

/* Why nothing was to choose from, where a kernel was named. */
static void say_why_nothing(const kernels_choice *c) {
    const char *wanted = c->options->kernel_filter;
    if (!wanted) {
        cli_error("nothing is to choose from for these problems: no kernel that the options select takes them");
        return;
    }
    const char *other = NULL, *lacks = NULL;
    for (size_t i = 0; i < c->suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(c, i);
        if (!strstr(info.name, wanted)) continue;
        if (!info.available) lacks = info.target;
        if (info.available && !info.eligible && info.rank >= 0 && !kernels_gpu_backend(c->options)) other = info.target;
    }
    char why[96] = "; 'crumb kernels list' has names";
    if (other)
        snprintf(why, sizeof why, ", but where plans are of its tier: --target cpu:%.16s", other);
    else if (lacks)
        snprintf(why, sizeof why, ": it needs %.16s, which is not here", lacks);
    cli_error("no setting of a kernel named '%s' is a candidate for these problems%s", wanted, why);
}

/* *n_offered 0: there was nothing to choose from, and the user knows why. */
static crumb_status tune_problems(const cli_options *options, size_t *n_offered, crumb_error *err) {
    static const kernels_shape standard_shapes[] = {
        {8192, 2048, 1}, {2048, 8192, 1}, {8192, 2048, 512}, {2048, 8192, 512}};
    static const uint32_t standard_groups[] = {0};
    kernels_choice choice;
    problem_list list = {.n = 0};
    crumb_tuning *db = NULL;
    uint64_t budget = 0;
    size_t n_wrong = 0;
    CRUMB_TRY(tune_parse_budget(options->budget, &budget, err));
    CRUMB_TRY(tune_check_database(options, err)); /* before a model is loaded */
    crumb_status status =
        kernels_choose(options, (int)options->n_threads, standard_shapes,
                       sizeof standard_shapes / sizeof *standard_shapes, standard_groups, 1, &choice, err);
    if (status == CRUMB_OK) status = kernels_check_tier(&choice, err); /* others' plans find nothing of it */
    choice.target = NULL; /* --target says what plans use, which may be kernels of a lower rung */
    if (status == CRUMB_OK && options->model) status = problems_of_model(options, &list, err);
    if (status == CRUMB_OK && !options->model) status = problems_of_choice(&choice, &list, err);
    if (list.more) cli_note("only the first %d problems are tuned: the others one by one, with --shape", MAX_PROBLEMS);
    if (status == CRUMB_OK) status = tune_open_database(options, true, &db, err);
    cli_catch_interrupt();
    if (status == CRUMB_OK) status = tune_all(&choice, &list, db, crumb_now_ns() + budget, &n_wrong, n_offered, err);
    crumb_tuning_close(db);
    if (status == CRUMB_OK && *n_offered == 0 && !cli_interrupted(NULL)) say_why_nothing(&choice);
    kernels_release(&choice);
    if (status == CRUMB_OK && n_wrong)
        return crumb_fail(err, CRUMB_ERR_DEVICE, "%zu candidates computed wrong results", n_wrong);
    return status;
}

static int tune(const cli_options *options) {
    crumb_error err = {0};
    size_t n_offered = 0;
    if (tune_problems(options, &n_offered, &err) != CRUMB_OK) return cli_fail(&err);
    if (cli_interrupted(NULL)) return CLI_EXIT_INTERRUPTED;
    return n_offered ? CLI_EXIT_OK : CLI_EXIT_FAILURE;
}

int cli_tune(const cli_options *options) {
    static const struct {
        const char *name;
        size_t n_words;
        crumb_status (*run)(const cli_options *options, crumb_error *err);
    } actions[] = {{"show", 1, show}, {"export", 1, export_all}, {"import", 2, tune_import}, {"prune", 1, prune}};
    const char *wanted = options->plain.n ? options->plain.value[0] : "run";
    const size_t n_words = options->plain.n ? options->plain.n : 1;
    if (strcmp(wanted, "run") == 0 && n_words == 1) return tune(options);
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(actions[i].name, wanted) != 0 || actions[i].n_words != n_words) continue;
        crumb_error err = {0};
        if (actions[i].run(options, &err) != CRUMB_OK) return cli_fail(&err);
        return CLI_EXIT_OK;
    }
    cli_error("usage: crumb tune [run|show|export|import FILE|prune] [options]");
    return CLI_EXIT_USAGE;
}
