/* crumb kernels perf: kernels in turns, beside what the machine can do at best in the same seconds. */
#include "tools/crumb/json_util.h"
#include "tools/crumb/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KERNELS = 64, WARM_UP_ROUNDS = 2, FEW_ROWS = 16 };

/* Falcon3-1B's feed-forward matrix, for decoding and for reading a prompt. */
static const kernels_shape standard_shapes[] = {{8192, 2048, 1}, {8192, 2048, 512}};
static const uint32_t standard_groups[] = {0};

/* One kernel's measurements: a value per round. */
typedef struct series {
    size_t kernel;
    crumb_kernel_info info;
    double *values; /* [MEASURES][rounds] */
} series;

enum { NS, READ_SHARE, PEAK_SHARE, GAMMA, NEAR_SHARE, READ_GB_S, PEAK_GOPS, CLOCK_GHZ, MEASURES };

typedef struct perf_state {
    kernels_choice choice;
    crumb_kernel_bench *bench;
    crumb_kernel_problem problem; /* the kernels' activations differ */
    size_t rounds, n_series;
    series series[MAX_KERNELS];
    cJSON *entries; /* NULL: text */
} perf_state;

typedef struct perf_result {
    double measure[MEASURES], gb_s, gops;
    const char *limit;
} perf_result;

/* ---- measuring --------------------------------------------------------------------------------------------- */

static double gops_of(const perf_state *p, double ns) {
    return 2.0 * p->problem.m * p->problem.k * p->problem.n / ns;
}

/* Cycles per 256-bit vector of 8 outputs x 4 inputs (Georganas et al., section III-F), from a run on a share of rows.
 */
static double gamma_of(const perf_state *p, double ns, double share, double clock_ghz) {
    double vectors = share * p->problem.m / 8 * p->problem.k / 4 * p->problem.n;
    return ns * clock_ghz / vectors;
}

/* One round of one kernel. */
static crumb_status measure(perf_state *p, series *s, size_t round, crumb_error *err) {
    const crumb_kernel_suite *suite = p->choice.suite;
    double ns, near_ns, share;
    crumb_kernel_roofs roofs;
    suite->bench_roofs(p->bench, s->kernel, &roofs);
    CRUMB_TRY(suite->bench_run(p->bench, s->kernel, "", p->choice.options->cold, &ns, err));
    CRUMB_TRY(suite->bench_run_near(p->bench, s->kernel, &near_ns, &share, err));
    double *v = s->values + round;
    const size_t stride = p->rounds;
    v[NS * stride] = ns;
    v[READ_SHARE * stride] =
        roofs.read_gb_s > 0 ? (double)suite->bench_bytes(p->bench, s->kernel) / ns / roofs.read_gb_s : 0;
    v[PEAK_SHARE * stride] = roofs.peak_gops > 0 ? gops_of(p, ns) / roofs.peak_gops : 0;
    v[GAMMA * stride] = gamma_of(p, near_ns, share, roofs.clock_ghz);
    v[NEAR_SHARE * stride] = near_ns / share / suite->bench_threads(p->bench) / ns;
    v[READ_GB_S * stride] = roofs.read_gb_s;
    v[PEAK_GOPS * stride] = roofs.peak_gops;
    v[CLOCK_GHZ * stride] = roofs.clock_ghz;
    return CRUMB_OK;
}

/* Kernels take turns, so that a machine whose speed drifts treats all alike. */
static crumb_status measure_all(perf_state *p, crumb_error *err) {
    for (size_t round = 0; round < p->rounds + WARM_UP_ROUNDS && !cli_interrupted(NULL); round++)
        for (size_t i = 0; i < p->n_series; i++)
            CRUMB_TRY(measure(p, &p->series[i], round < WARM_UP_ROUNDS ? 0 : round - WARM_UP_ROUNDS, err));
    return CRUMB_OK;
}

/* Which unit is full. Weights that come from a cache say nothing of memory. */
static const char *limit_of(const perf_result *r) {
    if (r->measure[READ_SHARE] >= 0.85) return "bandwidth";
    return r->measure[NEAR_SHARE] >= 0.85 ? "port" : "latency";
}

static perf_result result_of(const perf_state *p, const series *s) {
    perf_result r = {0};
    for (size_t i = 0; i < MEASURES; i++) r.measure[i] = cli_median(s->values + i * p->rounds, p->rounds);
    r.gb_s = (double)p->choice.suite->bench_bytes(p->bench, s->kernel) / r.measure[NS];
    r.gops = gops_of(p, r.measure[NS]);
    r.limit = limit_of(&r);
    return r;
}

/* ---- printing ---------------------------------------------------------------------------------------------- */

static void print_text(const perf_state *p) {
    perf_result first = result_of(p, &p->series[0]);
    cli_print("\n%s bits, group %u, %u x %u, %u rows, %d threads, weights %s: memory %.1f GB/s, clock %.2f GHz\n",
              p->problem.format->name, p->problem.group, p->problem.m, p->problem.k, p->problem.n,
              p->choice.suite->bench_threads(p->bench), p->choice.options->cold ? "cold" : "warm",
              first.measure[READ_GB_S], first.measure[CLOCK_GHZ]);
    cli_print("%-28s %10s %7s %7s %8s %7s %7s  %s\n", "kernel", "us", "GB/s", "% read", "GOPS", "% peak", "gamma",
              "limit");
    for (size_t i = 0; i < p->n_series; i++) {
        perf_result r = result_of(p, &p->series[i]);
        cli_print("%-28s %10.1f %7.2f %7.1f %8.1f %7.1f %7.3f  %s\n", p->series[i].info.name, r.measure[NS] / 1000,
                  r.gb_s, 100 * r.measure[READ_SHARE], r.gops, 100 * r.measure[PEAK_SHARE], r.measure[GAMMA], r.limit);
    }
}

static void add_json(const perf_state *p) {
    for (size_t i = 0; i < p->n_series; i++) {
        perf_result r = result_of(p, &p->series[i]);
        cJSON *entry = cJSON_CreateObject();
        json_add_text(entry, "kernel", p->series[i].info.name);
        json_add_text(entry, "bits", p->problem.format->name);
        json_add_u64(entry, "group", p->problem.group);
        json_add_u64(entry, "m", p->problem.m);
        json_add_u64(entry, "k", p->problem.k);
        json_add_u64(entry, "n", p->problem.n);
        json_add_u64(entry, "threads", (uint64_t)p->choice.suite->bench_threads(p->bench));
        cJSON_AddBoolToObject(entry, "cold", p->choice.options->cold);
        json_add_real(entry, "ns", r.measure[NS]);
        json_add_u64(entry, "weight_bytes", p->choice.suite->bench_bytes(p->bench, p->series[i].kernel));
        json_add_real(entry, "gb_s", r.gb_s);
        json_add_real(entry, "read_gb_s", r.measure[READ_GB_S]);
        json_add_real(entry, "read_share", r.measure[READ_SHARE]);
        json_add_real(entry, "gops", r.gops);
        json_add_real(entry, "peak_gops", r.measure[PEAK_GOPS]);
        json_add_real(entry, "peak_share", r.measure[PEAK_SHARE]);
        json_add_real(entry, "clock_ghz", r.measure[CLOCK_GHZ]);
        json_add_real(entry, "gamma", r.measure[GAMMA]);
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
    if (!kernels_selected(c, info) || !info->available || !c->suite->takes(kernel, &mine)) return false;
    if (strcmp(info->target, "scalar") == 0 && !c->options->kernel_filter) return false;
    bool few = strcmp(info->op, "gemv") == 0;
    return c->options->kernel_op || c->options->kernel_filter || !few || p->problem.n <= FEW_ROWS;
}

static crumb_status choose_series(perf_state *p, crumb_error *err) {
    p->n_series = 0;
    for (size_t i = 0; i < p->choice.suite->n_kernels() && p->n_series < MAX_KERNELS; i++) {
        const crumb_kernel_info info = p->choice.suite->info(i);
        if (!worth_timing(p, &info, i)) continue;
        double *values = calloc(MEASURES * p->rounds, sizeof *values);
        if (!values) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %zu rounds", p->rounds);
        p->series[p->n_series++] = (series){.kernel = i, .info = info, .values = values};
    }
    return CRUMB_OK;
}

static crumb_status time_problem(perf_state *p, crumb_error *err) {
    CRUMB_TRY(p->choice.suite->bench_create(&p->problem, (int)p->choice.options->n_threads, &p->bench, err));
    crumb_status status = choose_series(p, err);
    if (status == CRUMB_OK) status = measure_all(p, err);
    if (status == CRUMB_OK && p->n_series > 0 && !cli_interrupted(NULL)) p->entries ? add_json(p) : print_text(p);
    for (size_t i = 0; i < p->n_series; i++) free(p->series[i].values);
    p->choice.suite->bench_destroy(p->bench);
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
                CRUMB_TRY(time_problem(p, err));
                *n_timed += p->n_series;
            }
    return CRUMB_OK;
}

int kernels_perf(const cli_options *options) {
    crumb_error err = {0};
    perf_state *p = calloc(1, sizeof *p);
    size_t n_timed = 0;
    if (!p) return cli_error("no memory"), CLI_EXIT_FAILURE;
    p->rounds = (size_t)options->rounds;
    crumb_status status = kernels_choose(options, standard_shapes, sizeof standard_shapes / sizeof *standard_shapes,
                                         standard_groups, 1, &p->choice, &err);
    cJSON *document = options->json ? json_document() : NULL;
    if (document) p->entries = cJSON_AddArrayToObject(document, "results");
    cli_catch_interrupt();
    if (status == CRUMB_OK) status = time_all(p, &n_timed, &err);
    if (status == CRUMB_OK && document)
        status = json_print(document, false, "\n", &err);
    else
        cJSON_Delete(document);
    free(p);
    if (status != CRUMB_OK) return cli_fail(&err);
    if (cli_interrupted(NULL)) return CLI_EXIT_INTERRUPTED;
    if (n_timed == 0) return cli_error("no kernel was timed: none that the options select runs here"), CLI_EXIT_FAILURE;
    return CLI_EXIT_OK;
}
