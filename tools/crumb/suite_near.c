/* What threads cost each other; and single kernels from the core's own caches, against the paper's sequences. */
#include "cpu/probe.h"
#include "tools/crumb/suite_kernels.h"

#include <stdlib.h>
#include <string.h>

/* ---- between threads --------------------------------------------------------------------------------------- */

/* Time allowed over time taken: more is better, as in all rows. */
static crumb_status threads_row(suite_state *s, crumb_probe *probe, const char *what, const char *note,
                                double (*measure)(crumb_probe *), crumb_error *err) {
    const double allowed_us = 2;
    suite_row row = {.section = "threads",
                     .unit = "us",
                     .baseline = allowed_us,
                     .baseline_name = "allowed",
                     .wanted = 1,
                     .factor = true};
    snprintf(row.what, sizeof row.what, "%s", what);
    snprintf(row.note, sizeof row.note, "%s", note);
    if (s->n_threads == 1) return suite_skip(s, &row, "one thread waits for none", err);
    double *us = calloc(s->rounds, sizeof *us);
    if (!us) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %zu rounds", s->rounds);
    for (size_t i = 0; i < s->rounds; i++) us[i] = measure(probe) / 1000;
    row.measured = cli_median(us, s->rounds);
    free(us);
    row.ratio = row.measured > 0 ? allowed_us / row.measured : 0;
    if (row.measured <= 0) return suite_skip(s, &row, "too short to be measured, or the threads did not come", err);
    return suite_row_add(s, &row, err);
}

crumb_status suite_threads(suite_state *s, crumb_error *err) {
    const bool step = suite_case(s, "threads/step"), call = suite_case(s, "threads/call");
    crumb_probe *probe;
    if (!step && !call) return CRUMB_OK;
    CRUMB_TRY(crumb_probe_create(s->n_threads, s->options->cpu_kind, &probe, err));
    crumb_status status = CRUMB_OK;
    if (step)
        status = threads_row(s, probe, "a barrier: what a step takes beyond its items", "", crumb_probe_step, err);
    if (call && status == CRUMB_OK)
        status = threads_row(s, probe, "a call: until a thread that waits for it is inside",
                             "of threads that spin; after 0.2 ms without work, as between requests and never within a "
                             "token, they sleep, and the system takes longer to wake them",
                             crumb_probe_call, err);
    crumb_probe_destroy(probe);
    return status;
}

/* ---- from the core's own caches ---------------------------------------------------------------------------- */

static crumb_status near_row(suite_state *s, const crumb_kernel_problem *p, size_t paper, double wanted, bool in_l1,
                             crumb_error *err) {
    enum { MORE_ROUNDS = 4 }; /* each takes microseconds */
    const crumb_kernel_info theirs = kernels_info(&s->choice, paper);
    const size_t ours = suite_pick(s, p, theirs.target);
    suite_row row = {.section = "near", .unit = "cycles", .wanted = wanted, .factor = true};
    kernels_turns turns = {0};
    char name[16];
    snprintf(row.what, sizeof row.what, "%s, %s, %s%s", suite_weights_name(p->format->name, name), theirs.target,
             ours == SIZE_MAX ? "no kernel" : kernels_info(&s->choice, ours).name, in_l1 ? ", L1" : "");
    if (ours == SIZE_MAX) return suite_skip(s, &row, "no kernel takes it here", err);
    crumb_status status = suite_turns(s, p, ours, paper, MORE_ROUNDS * s->rounds, &turns, err);
    if (status == CRUMB_OK) {
        row.measured = kernels_turns_median(&turns, 0, TURNS_GAMMA);
        row.baseline = kernels_turns_median(&turns, 1, TURNS_GAMMA);
        snprintf(row.baseline_name, sizeof row.baseline_name, "%s", theirs.name);
        row.ratio = kernels_turns_ratio(&turns, 1, 0, TURNS_GAMMA);
        suite_alone(&row, &turns, 1, 0, TURNS_GAMMA);
        snprintf(row.note, sizeof row.note, "cycles per vector of 8 x 4, weights in the core's %s, clock %.2f GHz",
                 in_l1 ? "L1" : "L2", kernels_turns_median(&turns, 0, TURNS_CLOCK_GHZ));
        status = suite_row_add(s, &row, err);
    }
    kernels_turns_destroy(&turns);
    return status;
}

/* Beside each of a paper's kernels that runs here, what a plan of its tier takes. */
static crumb_status near_rows(suite_state *s, const crumb_kernel_problem *p, const char *paper, double wanted,
                              bool in_l1, crumb_error *err) {
    for (size_t i = 0; i < s->choice.suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(&s->choice, i);
        if (!strstr(info.name, paper) || !info.available || !kernels_takes(&s->choice, i, p)) continue;
        if (!s->tier || strcmp(s->tier, info.target) == 0) CRUMB_TRY(near_row(s, p, i, wanted, in_l1, err));
    }
    return CRUMB_OK;
}

/* Of weights of a model's size half of L2 is read; 16 KB are half of L1 or less. */
crumb_status suite_near(suite_state *s, crumb_error *err) {
    static const struct {
        const char *format, *paper;
        double wanted;
        kernels_shape in_l1;
    } targets[] = {{"1", "georganas_u1", 3, {64, 2048, 1}}, {"2", "georganas_u2", 1.25, {64, 1024, 1}}};
    const kernels_shape *asked = NULL;
    for (size_t i = s->choice.n_shapes; i-- > 0;)
        if (s->choice.shapes[i].n == 1) asked = &s->choice.shapes[i];
    for (size_t t = 0; t < sizeof targets / sizeof targets[0]; t++) {
        const char *format = targets[t].format, *paper = targets[t].paper;
        if (!suite_wants_format(s, format) || !suite_case(s, "near/%s", format)) continue;
        const crumb_kernel_problem l1 = suite_problem(s, format, 0, targets[t].in_l1);
        const crumb_kernel_problem l2 = suite_problem(s, format, 0, asked ? *asked : (kernels_shape){8192, 2048, 1});
        CRUMB_TRY(near_rows(s, &l2, paper, targets[t].wanted, false, err));
        if (!asked) CRUMB_TRY(near_rows(s, &l1, paper, targets[t].wanted, true, err));
    }
    return CRUMB_OK;
}
