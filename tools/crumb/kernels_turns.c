#include "tools/crumb/kernels_turns.h"

#include "cpu/probe.h"
#include "tools/crumb/cli.h"

#include <stdlib.h>

enum { WARM_UP_ROUNDS = 2 };

static double gops_of(const crumb_kernel_problem *p, double ns) {
    return 2.0 * p->m * p->k * p->n / ns;
}

/* Cycles per 256-bit vector of 8 outputs x 4 inputs (Georganas et al., section III-F), from a run on a share of rows.
 */
static double gamma_of(const crumb_kernel_problem *p, double ns, double share, double clock_ghz) {
    double vectors = share * p->m / 8 * p->k / 4 * p->n;
    return ns * clock_ghz / vectors;
}

crumb_status kernels_turns_create(const kernels_choice *choice, const crumb_kernel_problem *problem, size_t rounds,
                                  bool cold, kernels_turns *out, crumb_error *err) {
    *out = (kernels_turns){.choice = choice, .problem = *problem, .cold = cold, .rounds = rounds};
    out->sorted = calloc(rounds, sizeof *out->sorted);
    if (!out->sorted) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %zu rounds", rounds);
    return choice->suite->bench_create(choice->machine, problem, &out->bench, err);
}

crumb_status kernels_turns_add(kernels_turns *t, size_t kernel, const char *knobs, crumb_error *err) {
    if (t->n_series == TURNS_MAX_KERNELS) return CRUMB_OK;
    double *values = calloc(TURNS_N_MEASURES * t->rounds, sizeof *values);
    if (!values) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %zu rounds", t->rounds);
    turns_series *s = &t->series[t->n_series++];
    *s = (turns_series){
        .kernel = kernel, .info = kernels_info(t->choice, kernel), .values = values, .cold_bytes = UINT64_MAX};
    snprintf(s->knobs, sizeof s->knobs, "%s", knobs);
    return CRUMB_OK;
}

void kernels_turns_destroy(kernels_turns *t) {
    for (size_t i = 0; i < t->n_series; i++) free(t->series[i].values);
    if (t->bench) t->choice->suite->bench_destroy(t->bench);
    free(t->sorted);
    *t = (kernels_turns){0};
}

/* The machine drifts: its limits are those halfway between before and after. */
static crumb_kernel_roofs halfway(const crumb_kernel_roofs *a, const crumb_kernel_roofs *b) {
    return (crumb_kernel_roofs){.read_gb_s = (a->read_gb_s + b->read_gb_s) / 2,
                                .peak_gops = (a->peak_gops + b->peak_gops) / 2,
                                .clock_ghz = (a->clock_ghz + b->clock_ghz) / 2,
                                .launch_ns = (a->launch_ns + b->launch_ns) / 2};
}

static uint32_t reorder_window(kernels_turns *t) {
    const crumb_kernel_suite *suite = t->choice->suite;
    return suite->machine_reorder ? suite->machine_reorder(t->choice->machine, &t->most_reorder) : 0;
}

/* One round of one kernel. */
static crumb_status measure(kernels_turns *t, turns_series *s, size_t round, crumb_error *err) {
    const crumb_kernel_suite *suite = t->choice->suite;
    crumb_kernel_machine *machine = t->choice->machine;
    double ns, prepare_ns = 0, near_ns = 0, share = 1;
    crumb_kernel_roofs before, after;
    suite->machine_roofs(machine, s->kernel, &before);
    const uint64_t flushed = suite->machine_flushed(machine);
    const uint32_t before_run = reorder_window(t);
    CRUMB_TRY(suite->bench_run(t->bench, s->kernel, s->knobs, t->cold ? CRUMB_BENCH_COLD : 0, &ns, err));
    const uint32_t after_run = reorder_window(t);
    const uint64_t cold_bytes = suite->machine_flushed(machine) - flushed;
    if (cold_bytes < s->cold_bytes) s->cold_bytes = cold_bytes;
    if (suite->bench_run_near) CRUMB_TRY(suite->bench_run_near(t->bench, s->kernel, &near_ns, &share, err));
    if (suite->bench_prepare) CRUMB_TRY(suite->bench_prepare(t->bench, s->kernel, &prepare_ns, err));
    suite->machine_roofs(machine, s->kernel, &after);
    const crumb_kernel_roofs roofs = halfway(&before, &after);
    double *v = s->values + round;
    const size_t stride = t->rounds;
    v[TURNS_NS * stride] = ns;
    v[TURNS_PREPARE_NS * stride] = prepare_ns;
    v[TURNS_READ_SHARE * stride] =
        roofs.read_gb_s > 0 ? (double)suite->bench_bytes(t->bench, s->kernel) / ns / roofs.read_gb_s : 0;
    v[TURNS_PEAK_SHARE * stride] = roofs.peak_gops > 0 ? gops_of(&t->problem, ns) / roofs.peak_gops : 0;
    v[TURNS_GAMMA * stride] = gamma_of(&t->problem, near_ns, share, roofs.clock_ghz);
    v[TURNS_NEAR_SHARE * stride] = near_ns > 0 ? near_ns / share / suite->machine_threads(machine) / ns : 0;
    v[TURNS_READ_GB_S * stride] = roofs.read_gb_s;
    v[TURNS_PEAK_GOPS * stride] = roofs.peak_gops;
    v[TURNS_CLOCK_GHZ * stride] = roofs.clock_ghz;
    v[TURNS_LAUNCH_NS * stride] = roofs.launch_ns;
    v[TURNS_REORDER * stride] = before_run < after_run ? before_run : after_run;
    return CRUMB_OK;
}

crumb_status kernels_turns_run(kernels_turns *t, crumb_error *err) {
    for (size_t round = 0; round < t->rounds + WARM_UP_ROUNDS; round++)
        for (size_t i = 0; i < t->n_series && !cli_interrupted(NULL); i++)
            CRUMB_TRY(measure(t, &t->series[i], round < WARM_UP_ROUNDS ? 0 : round - WARM_UP_ROUNDS, err));
    return CRUMB_OK;
}

double kernels_turns_median(const kernels_turns *t, size_t series, turns_measure m) {
    for (size_t i = 0; i < t->rounds; i++) t->sorted[i] = t->series[series].values[m * t->rounds + i];
    return cli_median(t->sorted, t->rounds);
}

double kernels_turns_ratio(const kernels_turns *t, size_t over, size_t under, turns_measure m) {
    const double *a = t->series[over].values + m * t->rounds, *b = t->series[under].values + m * t->rounds;
    for (size_t i = 0; i < t->rounds; i++) t->sorted[i] = b[i] > 0 ? a[i] / b[i] : 0;
    return cli_median(t->sorted, t->rounds);
}

static bool had_core(const kernels_turns *t, size_t series, size_t round) {
    const double window = t->series[series].values[TURNS_REORDER * t->rounds + round];
    return window > 0 && window >= CRUMB_REORDER_WHOLE * t->most_reorder;
}

double kernels_turns_alone(const kernels_turns *t, size_t over, size_t under, turns_measure m, size_t *n) {
    const double *a = t->series[over].values + m * t->rounds;
    *n = 0;
    for (size_t i = 0; i < t->rounds; i++) {
        if (!had_core(t, over, i) || (under != SIZE_MAX && !had_core(t, under, i))) continue;
        const double b = under == SIZE_MAX ? 1 : t->series[under].values[m * t->rounds + i];
        t->sorted[(*n)++] = b > 0 ? a[i] / b : 0;
    }
    return *n ? cli_median(t->sorted, *n) : 0;
}

uint64_t kernels_turns_bytes(const kernels_turns *t, size_t series) {
    return t->choice->suite->bench_bytes(t->bench, t->series[series].kernel);
}

double kernels_turns_gops(const kernels_turns *t, size_t series) {
    return gops_of(&t->problem, kernels_turns_median(t, series, TURNS_NS));
}
