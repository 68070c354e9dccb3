/* crumb kernels test: every kernel that runs here against the scalar reference, on awkward shapes. */
#include "tools/crumb/json_util.h"
#include "tools/crumb/kernels.h"

#include "host/base/thread.h"

#include <string.h>

enum { EXIT_VERIFICATION = 6, FAILURE_BYTES = KERNELS_FAILURE_BYTES };

/* Tails in all three directions, one row and many. Where kernels are compiled for each form of problem, one of these
 * shapes for each form. */
enum { N_SMALL_SHAPES = 5 };
static const kernels_shape standard_shapes[] = {{1, 32, 1},
                                                {17, 96, 1},
                                                {33, 256, 3},
                                                {80, 1280, 9},
                                                {48, 2080, 33},
                                                /* more than one block of the CPU's GEMMs' columns, for these alone */
                                                {17, 96, 800},
                                                {5, 2304, 180},
                                                {3, 32, 4096}};
static const uint32_t standard_groups[] = {0, 16, 32, 64, 128, 256};

typedef struct test_state {
    kernels_choice choice;
    uint64_t seed;
    uint64_t n_compared;
    size_t n_run, n_skipped, n_failed, n_unasked; /* unasked: they take none of the chosen problems */
    cJSON *entries;                               /* NULL: text */
} test_state;

/* What a problem has besides its shape: each shape and group is tested with what has had the fewest so far. Two levels
 * fit few shapes, which take them first; and those that follow each other differ in most, since kernels that are
 * compiled for each form of problem get few. */
typedef struct test_form {
    crumb_act_quant act;
    unsigned scales;
} test_form;

static const test_form forms[] = {
    {CRUMB_ACT_ROW, KERNELS_SCALES_WITH_MINS + KERNELS_SCALES_TWO_LEVELS},
    {CRUMB_ACT_GROUP, KERNELS_SCALES_TWO_LEVELS},
    {CRUMB_ACT_ROW, KERNELS_SCALES_F16},
    {CRUMB_ACT_GROUP, KERNELS_SCALES_WITH_MINS + KERNELS_SCALES_F32},
    {CRUMB_ACT_GROUP, KERNELS_SCALES_WITH_MINS + KERNELS_SCALES_TWO_LEVELS},
    {CRUMB_ACT_ROW, KERNELS_SCALES_TWO_LEVELS},
    {CRUMB_ACT_GROUP, KERNELS_SCALES_F16},
    {CRUMB_ACT_ROW, KERNELS_SCALES_WITH_MINS + KERNELS_SCALES_F32},
    {CRUMB_ACT_ROW, KERNELS_SCALES_WITH_MINS + KERNELS_SCALES_F16},
    {CRUMB_ACT_GROUP, KERNELS_SCALES_F32},
    {CRUMB_ACT_GROUP, KERNELS_SCALES_WITH_MINS + KERNELS_SCALES_F16},
    {CRUMB_ACT_ROW, KERNELS_SCALES_F32},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* Whether --activation leaves it to the test, and the kernel takes both kinds. */
static bool takes_both(const kernels_choice *c, const crumb_kernel_info *info) {
    const unsigned both = 1u << CRUMB_ACT_ROW | 1u << CRUMB_ACT_GROUP;
    return strcmp(c->options->activation, "auto") == 0 && (info->acts & both) == both;
}

/* Completes a problem with the form that is next; N_FORMS: the kernel takes none. */
static size_t choose_form(const kernels_choice *c, size_t kernel, const size_t used[N_FORMS], crumb_kernel_problem *p) {
    const crumb_kernel_info info = kernels_info(c, kernel);
    const bool both = takes_both(c, &info);
    const int64_t wanted = c->options->kernel_form;
    size_t best = N_FORMS;
    for (size_t i = 0; i < N_FORMS; i++) {
        crumb_kernel_problem mine = *p;
        if (both)
            mine.act = forms[i].act;
        else if (forms[i].act != CRUMB_ACT_ROW) /* each form of scales once */
            continue;
        if (wanted && (unsigned)wanted != forms[i].scales + 1) continue;
        if (!kernels_takes(c, kernel, &mine) || !kernels_check_takes(c, kernel, &mine, forms[i].scales)) continue;
        if (best == N_FORMS || used[i] < used[best]) best = i;
    }
    if (best < N_FORMS && both) p->act = forms[best].act;
    return best;
}

/* What went wrong, and how to see it again. */
static void describe_failure(const kernels_choice *c, const crumb_kernel_info *info, const crumb_kernel_problem *p,
                             unsigned scales, uint64_t seed, const char *where, char out[FAILURE_BYTES]) {
    static const char *const acts[] = {[CRUMB_ACT_F32] = "float", [CRUMB_ACT_ROW] = "row", [CRUMB_ACT_GROUP] = "group"};
    char machine[KERNELS_FLAGS_BYTES];
    kernels_machine_flags(c, machine);
    snprintf(out, FAILURE_BYTES,
             "%.300s; again: crumb kernels test%s --filter %s --bits %s --group %u --shape %ux%ux%u --activation %s "
             "--form %u --seed %llu",
             where, machine, info->name, p->format->name, p->group, p->m, p->k, p->n, acts[p->act], scales + 1,
             (unsigned long long)seed);
}

/* A problem with random data and with extreme data. A device that fails (its compiler, its memory) fails the kernel. */
static crumb_status test_problem(const kernels_choice *c, size_t kernel, const crumb_kernel_problem *p, unsigned scales,
                                 uint64_t seed, uint64_t *n_values, char failure[FAILURE_BYTES], crumb_error *err) {
    const crumb_kernel_info info = kernels_info(c, kernel);
    for (int extreme = 0; extreme < 2 && !*failure; extreme++) {
        kernels_check check;
        crumb_status status = kernels_check_run(c, kernel, "", p, scales, seed, extreme, &check, err);
        if (status != CRUMB_OK && status != CRUMB_ERR_DEVICE) return status;
        *n_values += (uint64_t)p->n * p->m;
        if (status != CRUMB_OK)
            describe_failure(c, &info, p, scales, seed, err->message, failure);
        else if (!check.ok)
            describe_failure(c, &info, p, scales, seed, check.where, failure);
    }
    return CRUMB_OK;
}

static bool wants_shape(const kernels_choice *c, size_t kernel, size_t form, size_t shape) {
    if (c->options->kernel_shapes.n) return true;
    if (c->suite->compiles) return (kernel + form) % N_SMALL_SHAPES == shape;
    return shape < N_SMALL_SHAPES || kernels_info(c, kernel).max_n >= c->shapes[shape].n;
}

bool kernels_can_test(const crumb_kernel_info *info) {
    return info->bits || info->in_plans;
}

crumb_status kernels_test_one(const kernels_choice *c, size_t kernel, uint64_t seed, uint64_t *n_values,
                              char failure[FAILURE_BYTES], crumb_error *err) {
    const crumb_kernel_info info = kernels_info(c, kernel);
    if (info.in_plans) return kernels_plans_test(c, kernel, seed, n_values, failure, err);
    *n_values = 0;
    *failure = 0;
    for (size_t f = 0; f < c->n_formats; f++) {
        size_t used[N_FORMS] = {0};
        for (size_t g = 0; g < c->n_groups; g++)
            for (size_t s = 0; s < c->n_shapes; s++, seed++) {
                crumb_kernel_problem p = kernels_problem(c, &info, c->formats[f], c->groups[g], c->shapes[s]);
                const size_t form = wants_shape(c, kernel, f + g, s) ? choose_form(c, kernel, used, &p) : N_FORMS;
                if (form == N_FORMS) continue;
                used[form]++;
                CRUMB_TRY(test_problem(c, kernel, &p, forms[form].scales, seed, n_values, failure, err));
                if (*failure || cli_interrupted(NULL)) return CRUMB_OK;
            }
    }
    return CRUMB_OK;
}

static void report(test_state *t, const crumb_kernel_info *info, const char *verdict, uint64_t n_values,
                   const char *failure) {
    if (!t->entries && !info->available) {
        cli_print("%-28s %-8s %s\n", info->name, verdict, info->why_not);
        return;
    }
    if (!t->entries) {
        cli_print("%-28s %-8s %llu values\n", info->name, verdict, (unsigned long long)n_values);
        if (*failure) cli_print("  %s\n", failure);
        return;
    }
    cJSON *entry = cJSON_CreateObject();
    json_add_text(entry, "name", info->name);
    json_add_text(entry, "verdict", verdict);
    json_add_u64(entry, "values", n_values);
    if (*failure) json_add_text(entry, "failure", failure);
    if (!info->available) json_add_text(entry, "why_not", info->why_not);
    cJSON_AddItemToArray(t->entries, entry);
}

static crumb_status test_all(test_state *t, crumb_error *err) {
    for (size_t i = 0; i < t->choice.suite->n_kernels() && !cli_interrupted(NULL); i++) {
        const crumb_kernel_info info = kernels_info(&t->choice, i);
        if (!kernels_selected(&t->choice, &info) || !kernels_can_test(&info)) continue;
        if (!info.available) {
            t->n_skipped++;
            report(t, &info, "skipped", 0, "");
            continue;
        }
        uint64_t n_values;
        char failure[FAILURE_BYTES];
        CRUMB_TRY(kernels_test_one(&t->choice, i, t->seed, &n_values, failure, err));
        if (n_values == 0) {
            t->n_unasked++;
            continue;
        }
        t->n_run++;
        t->n_failed += *failure != 0;
        t->n_compared += n_values;
        report(t, &info, *failure ? "FAILED" : "ok", n_values, failure);
    }
    return CRUMB_OK;
}

crumb_status kernels_choose_tests(const cli_options *options, kernels_choice *out, crumb_error *err) {
    return kernels_choose(options, (int)options->n_threads, standard_shapes,
                          sizeof standard_shapes / sizeof *standard_shapes, standard_groups,
                          sizeof standard_groups / sizeof *standard_groups, out, err);
}

static crumb_status print_summary(const test_state *t, cJSON *document, crumb_error *err) {
    if (!document) {
        cli_print(
            "%zu kernels compared in %llu values: %zu failed; %zu skipped, which this %s cannot run; %zu that take "
            "none of the chosen problems\n",
            t->n_run, (unsigned long long)t->n_compared, t->n_failed, t->n_skipped,
            kernels_gpu_backend(t->choice.options) ? "device" : "machine", t->n_unasked);
        return CRUMB_OK;
    }
    json_add_u64(document, "seed", t->seed);
    json_add_u64(document, "run", t->n_run);
    json_add_u64(document, "skipped", t->n_skipped);
    json_add_u64(document, "unasked", t->n_unasked);
    json_add_u64(document, "failed", t->n_failed);
    return json_print(document, false, "\n", err);
}

int kernels_test(const cli_options *options) {
    crumb_error err = {0};
    test_state t = {.seed = options->kernel_seed >= 0 ? (uint64_t)options->kernel_seed : crumb_now_ns() % 1000000};
    crumb_status status = kernels_choose_tests(options, &t.choice, &err);
    if (status == CRUMB_OK) status = kernels_check_groups(&t.choice, true, &err);
    cJSON *document = options->json ? json_document() : NULL;
    cli_catch_interrupt();
    if (document)
        t.entries = cJSON_AddArrayToObject(document, "kernels");
    else if (status == CRUMB_OK)
        cli_print("seed %llu\n", (unsigned long long)t.seed);
    if (status == CRUMB_OK) status = test_all(&t, &err);
    kernels_release(&t.choice);
    if (status == CRUMB_OK)
        status = print_summary(&t, document, &err);
    else
        cJSON_Delete(document);
    if (status != CRUMB_OK) return cli_fail(&err);
    if (cli_interrupted(NULL)) return CLI_EXIT_INTERRUPTED;
    if (t.n_run == 0)
        return cli_error("no kernel was tested: none that the options select runs here and takes one of the problems"),
               CLI_EXIT_FAILURE;
    return t.n_failed ? EXIT_VERIFICATION : CLI_EXIT_OK;
}
