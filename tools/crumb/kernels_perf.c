/* crumb kernels perf: kernels in turns, beside what the machine can do at best in the same seconds. */
#include "tools/crumb/json_util.h"
#include "tools/crumb/kernels.h"
#include "tools/crumb/kernels_turns.h"

#include <stdlib.h>
#include <string.h>

enum {
    FEW_ROWS = 16,
    ERROR_M = 256, /* errors are taken from a part of the problem: the reference is slow */
    ERROR_N = 4
};

/* Falcon3-1B's feed-forward matrix, for decoding and for reading a prompt. */
static const kernels_shape standard_shapes[] = {{8192, 2048, 1}, {8192, 2048, 512}};
static const uint32_t standard_groups[] = {0};

typedef struct perf_state {
    kernels_choice choice;
    crumb_kernel_problem problem; /* the kernels' activations differ */
    kernels_turns turns;
    kernels_error errors[TURNS_MAX_KERNELS];
    cJSON *entries; /* NULL: text */
} perf_state;

/* Of one kernel. */
typedef struct perf_result {
    const char *name, *limit;
    double measure[TURNS_N_MEASURES], gb_s, gops;
    uint64_t n_bytes;
} perf_result;

/* Which unit is full. Weights that come from a cache, as they do where they are warm, say nothing of memory. */
static const char *limit_of(const perf_result *r, bool cold) {
    enum { FEW_LAUNCHES = 3 };
    if (cold && r->measure[TURNS_READ_SHARE] >= 0.85) return "bandwidth";
    if (r->measure[TURNS_PEAK_SHARE] >= 0.80)                              /* what is wanted of many rows */
        return r->measure[TURNS_NEAR_SHARE] > 0 ? "int8 port" : "compute"; /* a GPU's weights are never near */
    if (r->measure[TURNS_NEAR_SHARE] >= 0.85) return "port";               /* another one */
    if (r->measure[TURNS_NEAR_SHARE] > 0) return "latency";
    return r->measure[TURNS_NS] < FEW_LAUNCHES * r->measure[TURNS_LAUNCH_NS] ? "launch" : "latency";
}

static perf_result result_of(const kernels_turns *t, size_t series) {
    perf_result r = {.name = t->series[series].info.name, .n_bytes = kernels_turns_bytes(t, series)};
    for (int i = 0; i < TURNS_N_MEASURES; i++) r.measure[i] = kernels_turns_median(t, series, (turns_measure)i);
    r.gb_s = (double)r.n_bytes / r.measure[TURNS_NS];
    r.gops = kernels_turns_gops(t, series);
    r.limit = limit_of(&r, t->cold);
    return r;
}

/* ---- printing ---------------------------------------------------------------------------------------------- */

/* The problem, and how fast the device was in the same seconds; its limits are the rows', each from its own rounds. */
static void print_heading(const perf_state *p, const perf_result *first) {
    const kernels_choice *c = &p->choice;
    const int n_threads = c->suite->machine_threads(c->machine);
    const crumb_kernel_problem *q = &p->problem;
    cli_print("\n%s bits, group %u, %u x %u, %u rows", q->format->name, q->group, q->m, q->k, q->n);
    if (n_threads) cli_print(", %d threads", n_threads);
    cli_print(", weights %s", c->options->cold ? "cold" : "warm");
    if (first->measure[TURNS_CLOCK_GHZ] > 0) cli_print(", clock %.2f GHz", first->measure[TURNS_CLOCK_GHZ]);
    if (first->measure[TURNS_LAUNCH_NS] > 0) cli_print(", a launch %.1f us", first->measure[TURNS_LAUNCH_NS] / 1000);
    cli_print("\n%-28s %10s %8s %8s %7s %7s %7s %8s %8s %7s %7s %8s %8s  %s\n", "kernel", "us", "prep us", "KB", "GB/s",
              "memory", "% read", "GOPS", "peak", "% peak", "gamma", "error", "in all", "limit");
}

static void print_text(const perf_state *p) {
    const perf_result first = result_of(&p->turns, 0);
    print_heading(p, &first);
    for (size_t i = 0; i < p->turns.n_series; i++) {
        const perf_result r = result_of(&p->turns, i);
        char gamma[16] = "-", prepare[16] = "-", memory[16] = "-", peak[16] = "-";
        if (r.measure[TURNS_PREPARE_NS] > 0)
            snprintf(prepare, sizeof prepare, "%.1f", r.measure[TURNS_PREPARE_NS] / 1000);
        if (r.measure[TURNS_GAMMA] > 0) snprintf(gamma, sizeof gamma, "%.3f", r.measure[TURNS_GAMMA]);
        if (r.measure[TURNS_READ_GB_S] > 0) snprintf(memory, sizeof memory, "%.2f", r.measure[TURNS_READ_GB_S]);
        if (r.measure[TURNS_PEAK_GOPS] > 0) snprintf(peak, sizeof peak, "%.1f", r.measure[TURNS_PEAK_GOPS]);
        cli_print("%-28s %10.1f %8s %8.1f %7.2f %7s %7.1f %8.1f %8s %7.1f %7s %8.1e %8.1e  %s\n", r.name,
                  r.measure[TURNS_NS] / 1000, prepare, (double)r.n_bytes / 1000, r.gb_s, memory,
                  100 * r.measure[TURNS_READ_SHARE], r.gops, peak, 100 * r.measure[TURNS_PEAK_SHARE], gamma,
                  p->errors[i].of_codes, p->errors[i].of_weights, r.limit);
    }
}

static void add_json(const perf_state *p) {
    for (size_t i = 0; i < p->turns.n_series; i++) {
        const perf_result r = result_of(&p->turns, i);
        cJSON *entry = cJSON_CreateObject();
        json_add_text(entry, "kernel", r.name);
        json_add_text(entry, "bits", p->problem.format->name);
        json_add_u64(entry, "group", p->problem.group);
        json_add_u64(entry, "m", p->problem.m);
        json_add_u64(entry, "k", p->problem.k);
        json_add_u64(entry, "n", p->problem.n);
        json_add_u64(entry, "threads", (uint64_t)p->choice.suite->machine_threads(p->choice.machine));
        cJSON_AddBoolToObject(entry, "cold", p->choice.options->cold);
        json_add_u64(entry, "cold_bytes", p->turns.series[i].cold_bytes);
        json_add_real(entry, "ns", r.measure[TURNS_NS]);
        json_add_real(entry, "prepare_ns", r.measure[TURNS_PREPARE_NS]);
        json_add_u64(entry, "weight_bytes", r.n_bytes);
        json_add_real(entry, "gb_s", r.gb_s);
        json_add_real(entry, "read_gb_s", r.measure[TURNS_READ_GB_S]);
        json_add_real(entry, "read_share", r.measure[TURNS_READ_SHARE]);
        json_add_real(entry, "gops", r.gops);
        json_add_real(entry, "peak_gops", r.measure[TURNS_PEAK_GOPS]);
        json_add_real(entry, "peak_share", r.measure[TURNS_PEAK_SHARE]);
        json_add_real(entry, "clock_ghz", r.measure[TURNS_CLOCK_GHZ]);
        json_add_real(entry, "launch_ns", r.measure[TURNS_LAUNCH_NS]);
        json_add_real(entry, "gamma", r.measure[TURNS_GAMMA]);
        json_add_real(entry, "nmse", p->errors[i].of_codes);
        json_add_real(entry, "nmse_weights", p->errors[i].of_weights);
        json_add_text(entry, "limit", r.limit);
        cJSON_AddItemToArray(p->entries, entry);
    }
}

/* ---- problems ---------------------------------------------------------------------------------------------- */

/* Kernels worth timing: not the scalar ones, unless asked for by name, and none meant for far fewer rows. */
static bool worth_timing(const perf_state *p, const crumb_kernel_info *info, size_t kernel) {
    const kernels_choice *c = &p->choice;
    crumb_kernel_problem mine = kernels_problem(c, info, p->problem.format, p->problem.group,
                                                (kernels_shape){p->problem.m, p->problem.k, p->problem.n});
    if (!kernels_timed(c, info) || !kernels_takes(c, kernel, &mine)) return false;
    if (strcmp(info->target, "scalar") == 0 && !c->options->kernel_filter) return false;
    bool few = strcmp(info->op, "gemv") == 0;
    return c->options->kernel_op || c->options->kernel_filter || !few || p->problem.n <= FEW_ROWS;
}

static crumb_status choose_series(perf_state *p, crumb_error *err) {
    for (size_t i = 0; i < p->choice.suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(&p->choice, i);
        if (worth_timing(p, &info, i)) CRUMB_TRY(kernels_turns_add(&p->turns, i, "", err));
    }
    return CRUMB_OK;
}

static crumb_status measure_errors(perf_state *p, crumb_error *err) {
    const kernels_shape part = {p->problem.m < ERROR_M ? p->problem.m : ERROR_M, p->problem.k,
                                p->problem.n < ERROR_N ? p->problem.n : ERROR_N};
    for (size_t i = 0; i < p->turns.n_series; i++) {
        const turns_series *s = &p->turns.series[i];
        const crumb_kernel_problem mine =
            kernels_problem(&p->choice, &s->info, p->problem.format, p->problem.group, part);
        CRUMB_TRY(kernels_check_error(&p->choice, s->kernel, &mine, 1, &p->errors[i], err));
    }
    return CRUMB_OK;
}

/* Whether the problem is worth making. */
static bool has_kernel(const perf_state *p) {
    for (size_t i = 0; i < p->choice.suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(&p->choice, i);
        if (worth_timing(p, &info, i)) return true;
    }
    return false;
}

static crumb_status time_problem(perf_state *p, size_t *n_timed, crumb_error *err) {
    if (!has_kernel(p)) return CRUMB_OK;
    const cli_options *o = p->choice.options;
    crumb_status status = kernels_turns_create(&p->choice, &p->problem, (size_t)o->rounds, o->cold, &p->turns, err);
    if (status == CRUMB_OK) status = choose_series(p, err);
    if (status == CRUMB_OK) status = measure_errors(p, err);
    if (status == CRUMB_OK) status = kernels_turns_run(&p->turns, err);
    if (status == CRUMB_OK && p->turns.n_series > 0 && !cli_interrupted(NULL)) p->entries ? add_json(p) : print_text(p);
    *n_timed += p->turns.n_series;
    kernels_turns_destroy(&p->turns);
    return status;
}

/* Whether the group divides the row. */
static bool divides(uint32_t group, uint32_t k) {
    return group == 0 || k % group == 0;
}

static crumb_status time_all(perf_state *p, size_t *n_timed, crumb_error *err) {
    const kernels_choice *c = &p->choice;
    const crumb_kernel_info any = {.acts = 0};
    for (size_t f = 0; f < c->n_formats; f++)
        for (size_t s = 0; s < c->n_shapes; s++)
            for (size_t g = 0; g < c->n_groups && !cli_interrupted(NULL); g++) {
                if (!divides(c->groups[g], c->shapes[s].k)) continue;
                p->problem = kernels_problem(c, &any, c->formats[f], c->groups[g], c->shapes[s]);
                CRUMB_TRY(time_problem(p, n_timed, err));
            }
    return CRUMB_OK;
}

/* ---- kernels in plans ---------------------------------------------------------------------------------------- */

static void print_time(void *user, const kernels_plans_time *t) {
    (void)user;
    char kb[16] = "-", gb_s[16] = "-", memory[16] = "-", share[16] = "-", flops[16] = "-", gops[16] = "-",
         peak[16] = "-";
    if (t->n_bytes > 0) snprintf(kb, sizeof kb, "%.1f", (double)t->n_bytes / 1000);
    if (t->read_gb_s > 0) snprintf(memory, sizeof memory, "%.2f", t->read_gb_s);
    if (t->gb_s > 0) snprintf(gb_s, sizeof gb_s, "%.2f", t->gb_s);
    if (t->gb_s > 0 && t->read_gb_s > 0) snprintf(share, sizeof share, "%.1f", 100 * t->gb_s / t->read_gb_s);
    if (t->gflops > 0) snprintf(flops, sizeof flops, "%.1f", t->gflops);
    if (t->peak_gops > 0) snprintf(gops, sizeof gops, "%.1f", t->peak_gops);
    if (t->peak_gops > 0) snprintf(peak, sizeof peak, "%.1f", 100 * t->gflops / t->peak_gops);
    cli_print("%-28s %-38s %10.1f %8s %7s %7s %7s %8s %8s %7s  %s\n", t->info.name, t->problem, t->ns / 1000, kb, gb_s,
              memory, share, flops, gops, peak, t->limit);
}

static void add_time(void *user, const kernels_plans_time *t) {
    cJSON *entry = cJSON_CreateObject();
    json_add_text(entry, "kernel", t->info.name);
    json_add_text(entry, "op", t->info.op);
    json_add_text(entry, "problem", t->problem);
    json_add_u64(entry, "m", t->m);
    json_add_u64(entry, "k", t->k);
    json_add_u64(entry, "n", t->n);
    json_add_real(entry, "ns", t->ns);
    json_add_u64(entry, "bytes", t->n_bytes);
    json_add_real(entry, "gb_s", t->gb_s);
    json_add_real(entry, "read_gb_s", t->read_gb_s);
    json_add_real(entry, "gflops", t->gflops);
    json_add_real(entry, "peak_gops", t->peak_gops);
    cJSON_AddBoolToObject(entry, "cold", t->cold);
    json_add_u64(entry, "cold_bytes", t->cold_bytes);
    if (t->cold) json_add_real(entry, "warm_ns", t->warm_ns);
    json_add_text(entry, "limit", t->limit);
    cJSON_AddItemToArray(user, entry);
}

/* Warm, what they move may come from a cache: its share of what memory gives can be above 100. */
static crumb_status time_plans(const perf_state *p, size_t *n_timed, crumb_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < p->choice.suite->n_kernels() && !cli_interrupted(NULL); i++) {
        const crumb_kernel_info info = kernels_info(&p->choice, i);
        if (!info.in_plans || !kernels_timed(&p->choice, &info)) continue;
        if (!p->entries && n++ == 0)
            cli_print("\n%-28s %-38s %10s %8s %7s %7s %7s %8s %8s %7s  %s\n", "kernel",
                      p->choice.options->cold ? "op, cold" : "op, warm", "us", "KB", "GB/s", "memory", "% read",
                      "GFLOPS", "peak", "% peak", "limit");
        CRUMB_TRY(kernels_plans_perf(&p->choice, i, p->entries ? add_time : print_time, p->entries, err));
        ++*n_timed;
    }
    if (n && !p->choice.options->cold)
        cli_print("limit -: from caches as it is warm; --cold times it from memory as well, and says what is full\n");
    return CRUMB_OK;
}

/* ---- the subcommand -------------------------------------------------------------------------------------- */

int kernels_perf(const cli_options *options) {
    crumb_error err = {0};
    perf_state *p = calloc(1, sizeof *p);
    size_t n_timed = 0;
    if (!p) return cli_error("no memory"), CLI_EXIT_FAILURE;
    crumb_status status =
        kernels_choose(options, (int)options->n_threads, standard_shapes,
                       sizeof standard_shapes / sizeof *standard_shapes, standard_groups, 1, &p->choice, &err);
    if (status == CRUMB_OK) status = kernels_check_groups(&p->choice, false, &err);
    cJSON *document = options->json ? json_document() : NULL;
    if (document) p->entries = cJSON_AddArrayToObject(document, "results");
    cli_catch_interrupt();
    if (status == CRUMB_OK) status = time_all(p, &n_timed, &err);
    if (status == CRUMB_OK) status = time_plans(p, &n_timed, &err);
    kernels_release(&p->choice);
    if (status == CRUMB_OK && document)
        status = json_print(document, false, "\n", &err);
    else
        cJSON_Delete(document);
    free(p);
    if (status != CRUMB_OK) return cli_fail(&err);
    if (cli_interrupted(NULL)) return CLI_EXIT_INTERRUPTED;
    if (n_timed == 0)
        return cli_error("no kernel was timed: none that the options select runs here and takes one of the problems"),
               CLI_EXIT_FAILURE;
    return CLI_EXIT_OK;
}
