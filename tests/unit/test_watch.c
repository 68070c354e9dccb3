/* host/engine/watch: what a session measures of layers that two devices share corrects the stored profile, so that a
 * later one is told what this one has found. */
#include "host/engine/watch.h"

#include "host/base/cache.h"
#include "host/engine/machine.h"
#include "tests/scheduler/shapes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { GPU = 1, CPU = 0, N_PAST = 600, TOKENS = 40, SESSIONS = 6 };

static crumb_error err;

/* A model on a GPU and the CPU of a machine as `believed`, and what its sessions keep. */
typedef struct scene {
    crumb_engine_advice advice;
    crumb_model model;
    crumb_backend gpu; /* only to be another one than the CPU's */
    shape shape;
    char folder[64];
} scene;

static void set_up(scene *s, double cpu_gb_s, double gpu_gb_s) {
    size_t n;
    const char *text = crumb_profile_embedded("lnl", &n);
    *s = (scene){.folder = "/tmp/crumb-watch-XXXXXX"};
    assert_non_null(mkdtemp(s->folder));
    setenv("XDG_CACHE_HOME", s->folder, 1);
    shape_make(&llama3_8b, &s->shape);
    s->advice = (crumb_engine_advice){.known = true, .learns = true, .gpu = GPU, .id = 42, .layers = s->shape.layer};
    assert_int_equal(crumb_profile_parse(text, n, "lnl", "crumb", NULL, NULL, &s->advice.machine, &err), CRUMB_OK);
    crumb_profile_device *d = s->advice.machine.device;
    d[CPU].read_gb_s = d[GPU].read_gb_s = 80;
    d[CPU].together_gb_s = cpu_gb_s;
    d[GPU].together_gb_s = gpu_gb_s;
    d[GPU].exchange_us = 2;
    s->advice.problem = (crumb_place_problem){.machine = &s->advice.machine,
                                              .layers = s->shape.layer,
                                              .n_layers = s->shape.n_layers,
                                              .n_prompt = 512,
                                              .n_generate = 128,
                                              .gpu_layers = -1,
                                              .split = -1,
                                              .whole_prefill = true,
                                              .correction = &s->advice.correction};
    s->model = (crumb_model){.n_units = 2, .advice = &s->advice};
    s->model.units[0].backend = &s->gpu;
    s->model.units[1].backend = &crumb_backend_cpu;
}

static void tear_down(const scene *s) {
    char path[96];
    snprintf(path, sizeof path, "%s/crumb/corrections.json", s->folder);
    remove(path);
    snprintf(path, sizeof path, "%s/crumb", s->folder);
    rmdir(path);
    rmdir(s->folder);
}

/* What a new session knows. */
static void read_corrections(scene *s) {
    crumb_history history;
    crumb_engine_history_read(&s->advice.machine, s->advice.id, &history);
    crumb_history_correct(&history, &s->advice.correction);
}

/* A token whose layers are split, on devices that are not quite what is believed of them. */
static double true_ns(const scene *s, const crumb_profile *truth, double share, double busy_ns[2]) {
    const crumb_cost_phase token = {.n_rows = 1, .n_past = N_PAST};
    double wall_ns = 0;
    busy_ns[0] = busy_ns[1] = 0;
    for (uint32_t i = 0; i < s->shape.n_layers; i++) {
        crumb_cost cost;
        crumb_cost_of_split(&truth->device[GPU], &truth->device[CPU], &s->shape.layer[i], &token, share, &cost);
        wall_ns += cost.ns;
        crumb_cost_of_layer(&truth->device[GPU], &s->shape.layer[i], &token, share, true, &cost);
        busy_ns[0] += cost.ns;
        crumb_cost_of_layer(&truth->device[CPU], &s->shape.layer[i], &token, 1 - share, true, &cost);
        busy_ns[1] += cost.ns;
    }
    return wall_ns;
}

static void decode_split(scene *s, const crumb_profile *truth, double share) {
    crumb_watch w;
    double busy_ns[2];
    read_corrections(s);
    crumb_watch_init(&w, &s->model);
    const crumb_watch_split predicted = crumb_watch_predict_split(&w, &s->model, share);
    const double wall_ns = true_ns(s, truth, share, busy_ns);
    for (int i = 0; i < TOKENS; i++) {
        crumb_watch_pair(&w, &predicted, N_PAST, busy_ns, wall_ns);
        crumb_watch_run(&w, CRUMB_PHASE_DECODE, true, 1, wall_ns);
    }
    crumb_watch_learn(&w, &s->model);
}

/* The part of the GPU that is advised now, and what a token should take if it is `share`, as asked for. */
static double advised(scene *s, double share, double *ns) {
    crumb_placement p;
    read_corrections(s);
    s->advice.problem.split = share;
    assert_int_equal(crumb_place(&s->advice.problem, &p, &err), CRUMB_OK);
    *ns = p.sum[CRUMB_PHASE_DECODE].ns;
    crumb_placement_free(&p);
    s->advice.problem.split = -1;
    assert_int_equal(crumb_place(&s->advice.problem, &p, &err), CRUMB_OK);
    const double part = p.part[CRUMB_PHASE_DECODE][0].share;
    crumb_placement_free(&p);
    return part;
}

/* Bandwidths that were measured to add up and do not: a split is not advised any more. */
static void a_split_that_did_not_pay_is_not_advised_again(void **state) {
    (void)state;
    scene s;
    double ns, busy_ns[2];
    set_up(&s, 70, 70);
    crumb_profile truth = s.advice.machine;
    truth.device[CPU].together_gb_s = truth.device[GPU].together_gb_s = 40;
    const double part = advised(&s, 0.5, &ns), wall_ns = true_ns(&s, &truth, 0.5, busy_ns);
    assert_true(part > 0.4 && part < 0.6);
    assert_true(ns < 0.65 * wall_ns);
    for (int i = 0; i < SESSIONS; i++) {
        assert_true(i > 1 || advised(&s, 0.5, &ns) < 1); /* one session is not believed */
        decode_split(&s, &truth, part);
    }
    assert_true(advised(&s, 0.5, &ns) == 1);
    print_message("  expected of a split token %.2f ms, measured %.2f\n", ns * 1e-6, wall_ns * 1e-6);
    assert_true(fabs(ns / wall_ns - 1) < 0.02);
    tear_down(&s);
}

/* One device is half as fast beside the other as was measured: the next session begins with the part that fits. */
static void the_part_that_fits_is_advised(void **state) {
    (void)state;
    scene s;
    double ns, busy_ns[2];
    set_up(&s, 70, 70);
    crumb_profile truth = s.advice.machine;
    truth.device[CPU].together_gb_s = 35;
    double part = advised(&s, 0.5, &ns);
    for (int i = 0; i < SESSIONS; i++) {
        decode_split(&s, &truth, part);
        part = advised(&s, 0.5, &ns);
    }
    const double wall_ns = true_ns(&s, &truth, 0.5, busy_ns);
    print_message("  part %.2f; at one half %.2f ms are expected, %.2f measured\n", part, ns * 1e-6, wall_ns * 1e-6);
    assert_true(fabs(part - 2.0 / 3) < 1.5 / 32);
    assert_true(fabs(ns / wall_ns - 1) < 0.02);
    tear_down(&s);
}

/* Waiting that no bandwidth explains, such as an exchange that takes longer, counts as well. */
static void what_a_row_took_is_what_is_expected(void **state) {
    (void)state;
    scene s;
    double ns, busy_ns[2];
    set_up(&s, 70, 70);
    crumb_profile truth = s.advice.machine;
    truth.device[GPU].exchange_us = 100; /* 129 times a token */
    for (int i = 0; i < SESSIONS; i++) decode_split(&s, &truth, 0.5);
    assert_true(advised(&s, 0.5, &ns) <= 1);
    const double wall_ns = true_ns(&s, &truth, 0.5, busy_ns);
    print_message("  exchanges of 100 us for 2: %.2f ms are expected, %.2f measured\n", ns * 1e-6, wall_ns * 1e-6);
    assert_true(fabs(ns / wall_ns - 1) < 0.02);
    tear_down(&s);
}

/* What devices take by themselves is not touched by that, nor by too few tokens. */
static void alone_is_another_matter(void **state) {
    (void)state;
    scene s;
    set_up(&s, 70, 70);
    crumb_profile truth = s.advice.machine;
    truth.device[CPU].together_gb_s = truth.device[GPU].together_gb_s = 40;
    for (int i = 0; i < SESSIONS; i++) decode_split(&s, &truth, 0.5);
    read_corrections(&s);
    for (size_t d = 0; d < 2; d++) {
        assert_true(s.advice.correction.together[d] > 1.5);
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
            assert_true(crumb_correction_factor(&s.advice.correction, d, (crumb_phase)phase, CRUMB_SPAN_LAYERS) == 1);
    }
    crumb_watch w;
    const double busy_ns[2] = {1e6, 1e6};
    crumb_watch_init(&w, &s.model);
    const crumb_watch_split predicted = crumb_watch_predict_split(&w, &s.model, 0.5);
    assert_true(fabs(w.factor[CRUMB_WATCH_PAIR][CRUMB_PHASE_DECODE] - s.advice.correction.together[0]) < 0.05);
    for (int i = 0; i < 15; i++) crumb_watch_pair(&w, &predicted, 0, busy_ns, 1e6);
    assert_true(crumb_watch_together(&w, 0) == 0);
    crumb_watch_pair(&w, &predicted, 0, busy_ns, 1e6);
    assert_true(crumb_watch_together(&w, 0) > 0);
    tear_down(&s);
}

/* A prompt of few rows is told, and so is its last row that was left over behind a batch; neither corrects throughput.
 */
static void few_rows_are_told_and_teach_nothing(void **state) {
    (void)state;
    static const uint32_t rows[] = {31, 1, 32};
    scene s;
    set_up(&s, 70, 70);
    crumb_watch w;
    crumb_watch_init(&w, &s.model);
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double ns = crumb_watch_predict_batch(&s.model, 0, 0, s.shape.n_layers, rows[i], (uint32_t)n);
        assert_true(ns > 0);
        crumb_watch_span(&w, 0, ns, 2 * ns);
        crumb_watch_run(&w, CRUMB_PHASE_PREFILL, rows[i] == 1, rows[i], 2 * ns);
        n += rows[i];
        const crumb_watch_phase *told = &w.phase[CRUMB_PHASE_PREFILL];
        assert_int_equal(told->n_rows, n);
        assert_true(fabs(told->measured_ns / told->predicted_ns - 2) < 1e-6);
        assert_true((crumb_watch_ratio(&w, 0, CRUMB_PHASE_PREFILL) > 0) == (rows[i] >= 32));
    }
    assert_int_equal(w.phase[CRUMB_PHASE_DECODE].n_rows, 0);
    tear_down(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_that_did_not_pay_is_not_advised_again),
        cmocka_unit_test(the_part_that_fits_is_advised),
        cmocka_unit_test(what_a_row_took_is_what_is_expected),
        cmocka_unit_test(alone_is_another_matter),
        cmocka_unit_test(few_rows_are_told_and_teach_nothing),
    };
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
