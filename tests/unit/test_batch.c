/* host/engine/batch: short batches of a prompt run where tokens are decoded if that is predicted to be faster, long
 * ones where prompts are placed, and the other way round. */
#include "host/engine/batch.h"
#include "tests/scheduler/shapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { GPU = 1, CPU = 0, GPU_UNIT = 0, CPU_UNIT = 1 };

static crumb_error err;

/* Prompts on the GPU, decoding on the CPU. */
typedef struct scene {
    crumb_engine_advice advice;
    crumb_model model;
    crumb_backend gpu; /* only to be another one than the CPU's */
    crumb_engine_place places[SHAPE_MAX_LAYERS];
    uint8_t held[SHAPE_MAX_LAYERS];
    shape shape;
    crumb_watch watch;
} scene;

static void set_speed(crumb_profile_device *d, double gb_s, double gops) {
    d->read_gb_s = gb_s;
    for (int w = 0; w < CRUMB_WORK_COUNT; w++) d->gops[w] = gops;
}

static void set_up(scene *s) {
    size_t n;
    const char *text = crumb_profile_embedded("lnl", &n);
    *s = (scene){.advice = {.known = true, .gpu = GPU}};
    shape_make(&llama3_8b, &s->shape);
    s->advice.layers = s->shape.layer;
    s->advice.problem.n_layers = s->shape.n_layers;
    assert_int_equal(crumb_profile_parse(text, n, "lnl", "crumb", NULL, NULL, &s->advice.machine, &err), CRUMB_OK);
    set_speed(&s->advice.machine.device[CPU], 80, 2000);
    set_speed(&s->advice.machine.device[GPU], 60, 40000);
    for (uint32_t i = 0; i < s->shape.n_layers; i++) {
        s->places[i].unit[CRUMB_PHASE_PREFILL] = GPU_UNIT;
        s->places[i].unit[CRUMB_PHASE_DECODE] = s->held[i] = CPU_UNIT;
    }
    s->model = (crumb_model){.n_units = 2, .advice = &s->advice, .places = s->places};
    s->model.units[GPU_UNIT].backend = &s->gpu;
    s->model.units[CPU_UNIT].backend = &crumb_backend_cpu;
    crumb_watch_init(&s->watch, &s->model);
}

static crumb_phase phase_of(const scene *s, uint32_t n_rows) {
    const crumb_batch b = {.n_rows = n_rows, .n_past = 700, .ends_prompt = true};
    const crumb_phase usual = n_rows > 16 ? CRUMB_PHASE_PREFILL : CRUMB_PHASE_DECODE;
    return crumb_batch_phase(&s->model, &s->watch, &b, usual);
}

/* The first number of rows that goes to the GPU. */
static uint32_t turns_at(const scene *s) {
    uint32_t n = 2;
    while (n < 512 && phase_of(s, n) == CRUMB_PHASE_DECODE) n++;
    for (uint32_t more = n; more <= 512; more++) assert_int_equal(phase_of(s, more), CRUMB_PHASE_PREFILL);
    return n;
}

static double alone_ns(const scene *s, size_t device, uint32_t n_rows) {
    const crumb_cost_phase phase = {.n_rows = n_rows, .n_batch = n_rows, .n_past = 700};
    return crumb_engine_advice_predict(&s->advice, device, 0, s->shape.n_layers, &phase);
}

static void the_length_decides(void **state) {
    (void)state;
    scene s;
    set_up(&s);
    assert_int_equal(phase_of(&s, 3), CRUMB_PHASE_DECODE);
    assert_int_equal(phase_of(&s, 512), CRUMB_PHASE_PREFILL);
    const uint32_t n = turns_at(&s);
    print_message("  the GPU reads %u rows or more\n", n);
    assert_true(n > 3 && n <= 16);
    assert_true(alone_ns(&s, GPU, n) < alone_ns(&s, CPU, n) && alone_ns(&s, GPU, n - 1) >= alone_ns(&s, CPU, n - 1));
}

static void a_weak_processor_reads_not_even_few(void **state) {
    (void)state;
    scene s;
    set_up(&s);
    set_speed(&s.advice.machine.device[CPU], 80, 100);
    assert_int_equal(turns_at(&s), 2);
    set_speed(&s.advice.machine.device[CPU], 80, 20000);
    assert_true(turns_at(&s) > 40); /* and a strong one dozens */
}

static void what_earlier_sessions_found_counts(void **state) {
    (void)state;
    scene s;
    set_up(&s);
    const uint32_t n = turns_at(&s);
    s.watch.factor[GPU_UNIT][CRUMB_PHASE_PREFILL] = 4;
    assert_true(turns_at(&s) > 2 * n);
}

/* With memory of its own the GPU would have to be sent keys and values, and to send them back. */
static void what_has_to_move_counts(void **state) {
    (void)state;
    scene s;
    set_up(&s);
    crumb_profile_device *gpu = &s.advice.machine.device[GPU];
    gpu->kind = CRUMB_PROFILE_DISCRETE;
    gpu->transfer_gb_s = 10;
    gpu->transfer_us = 0;
    const uint32_t n = turns_at(&s);
    crumb_batch b = {.n_rows = n, .n_past = 2000, .held = s.held};
    assert_int_equal(crumb_batch_phase(&s.model, &s.watch, &b, CRUMB_PHASE_DECODE), CRUMB_PHASE_DECODE);
    const double bytes = 32.0 * 2 * 2 * 1024 * 2000,
                 there = crumb_batch_predict(&s.model, &s.watch, CRUMB_PHASE_PREFILL, &b);
    b.ends_prompt = true;
    const double and_back = crumb_batch_predict(&s.model, &s.watch, CRUMB_PHASE_PREFILL, &b);
    b.held = NULL;
    const double none = crumb_batch_predict(&s.model, &s.watch, CRUMB_PHASE_PREFILL, &b);
    assert_true(there - none > 0.99 * bytes / 10 && there - none < 1.01 * bytes / 10);
    assert_true(and_back - there > there - none);
    memset(s.held, GPU_UNIT, sizeof s.held); /* where it is already */
    b = (crumb_batch){.n_rows = n, .n_past = 2000, .held = s.held};
    assert_int_equal(crumb_batch_phase(&s.model, &s.watch, &b, CRUMB_PHASE_DECODE), CRUMB_PHASE_PREFILL);
}

static void without_predictions_it_is_as_usual(void **state) {
    (void)state;
    scene s;
    set_up(&s);
    s.advice.known = false;
    assert_int_equal(phase_of(&s, 16), CRUMB_PHASE_DECODE);
    assert_int_equal(phase_of(&s, 17), CRUMB_PHASE_PREFILL);
    s.model.advice = NULL;
    assert_int_equal(phase_of(&s, 16), CRUMB_PHASE_DECODE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_length_decides),
        cmocka_unit_test(a_weak_processor_reads_not_even_few),
        cmocka_unit_test(what_earlier_sessions_found_counts),
        cmocka_unit_test(what_has_to_move_counts),
        cmocka_unit_test(without_predictions_it_is_as_usual),
    };
    return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}
