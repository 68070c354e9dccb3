/* The knob `threads`: a plan whose layers were measured to be faster with fewer threads leaves the others out, for no
 * more work than was measured, with the same results; and nothing is learned of who was left out. */
#include "cpu/divide.h"
#include "host/kernel/tuning.h"
#include "tests/kernels/mini_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { X, Y, Z, N_VALUES, M = 2048, K = 1024, THREADS = 4, ROWS = CRUMB_LOCAL_ROWS, MOST_REPLAYS = 20000 };

static const crumb_backend *const backend = &crumb_backend_cpu;
static crumb_error err;
static char folder[] = "/tmp/crumb-threads-XXXXXX", path[64];
static mini_weights wide, narrow; /* 8 bits, 4 bits */
static float x[ROWS * K];

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != CRUMB_OK) fail_msg("%s", err.message);                                                           \
    } while (0)

static int set_up(void **state) {
    (void)state;
    uint32_t seed = 5;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/db", folder);
    mini_weights_create(&seed, CRUMB_TYPE_Q8_0, M, K, &wide);
    mini_weights_create(&seed, CRUMB_TYPE_Q4_0, M, K, &narrow);
    for (int i = 0; i < ROWS * K; i++) x[i] = (float)(i * 37 % 101) - 50.5f;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    free(wide.memory);
    free(narrow.memory);
    return rmdir(folder);
}

/* ---- a device with measurements ---------------------------------------------------------------------------- */

typedef struct tuned {
    crumb_tuning *db;
    crumb_device *device;
    crumb_plan *plan;
} tuned;

static void open_tuned(tuned *t, const char *balance) {
    char note[256];
    OK(crumb_tuning_open(path, true, &t->db, note, &err));
    const crumb_device_params params = {.n_threads = THREADS, .balance = balance, .tuning = t->db};
    OK(backend->device.open(&params, &t->device, &err));
    t->plan = NULL;
}

/* What was measured for a matrix of m rows like w and n rows of activations. */
static void put(tuned *t, const crumb_matrix *w, uint32_t m, uint32_t n, const char *knobs) {
    crumb_tuning_record r = {
        .key = {.m = m, .k = w->k, .n = n, .group = w->group, .act = CRUMB_ACT_GROUP, .n_threads = THREADS},
        .ratio = 0.5,
        .ns = 1,
        .rounds = 25};
    const crumb_cpu_kernel *kernel = crumb_cpu_kernel_select(w, CRUMB_ACT_GROUP, n, t->device->isa);
    snprintf(r.key.device, sizeof r.key.device, "%s", t->device->detail);
    snprintf(r.key.target, sizeof r.key.target, "%s", crumb_isa_name(t->device->isa));
    snprintf(r.key.source, sizeof r.key.source, "%s", crumb_cpu_kernels_hash());
    snprintf(r.key.weights, sizeof r.key.weights, "u%u", w->bits);
    snprintf(r.kernel, sizeof r.kernel, "%s", kernel->name);
    snprintf(r.knobs, sizeof r.knobs, "%s", knobs);
    OK(crumb_tuning_put(t->db, &r, &err));
}

/* A layer of one matrix, or of both, for so many rows. */
static void record_rows(tuned *t, bool both, uint32_t max_rows) {
    const crumb_value_info values[N_VALUES] = {
        {.width = K, .slot = X}, {.width = M, .slot = Y}, {.width = M, .slot = Z}};
    crumb_op ops[2] = {{.kind = CRUMB_OP_INPUT, .input.out = X}, {.kind = CRUMB_OP_LINEAR}};
    ops[1].linear.x = X;
    ops[1].linear.add = CRUMB_NO_VALUE;
    ops[1].linear.act = CRUMB_ACT_GROUP;
    ops[1].linear.act_group = 32;
    ops[1].linear.part[0] = (crumb_linear_part){.w = &wide.matrix, .m1 = M, .out = Y, .out_scale = 1};
    ops[1].linear.part[1] = (crumb_linear_part){.w = &narrow.matrix, .m1 = M, .out = Z, .out_scale = 1};
    ops[1].linear.n_parts = both ? 2 : 1;
    const crumb_plan_desc desc = {
        .ops = ops, .n_ops = 2, .values = values, .n_values = both ? N_VALUES : Z, .max_rows = max_rows};
    OK(backend->plan.record(t->device, &desc, &t->plan, &err));
}

static void record(tuned *t, bool both) {
    record_rows(t, both, ROWS);
}

/* What was measured stays. */
static void close_device(tuned *t) {
    backend->plan.destroy(t->plan);
    backend->device.close(t->device);
    crumb_tuning_close(t->db);
}

static void close_tuned(tuned *t) {
    close_device(t);
    unlink(path);
}

static void replay(tuned *t, uint32_t n_rows, float *y) {
    const float *out;
    crumb_row rows[ROWS] = {{0}};
    uint32_t n;
    OK(backend->plan.write(t->plan, X, x, n_rows, &err));
    OK(backend->plan.replay(t->plan, rows, n_rows, &err));
    OK(backend->plan.read(t->plan, Y, &out, &n, &err));
    assert_int_equal(n, n_rows);
    memcpy(y, out, (size_t)n * M * sizeof *y);
}

static const crumb_step *layer_of(const crumb_plan *p) {
    const crumb_step *s = p->steps;
    while (s->kind != &crumb_step_linear) s++;
    return s;
}

/* ---- who computed ------------------------------------------------------------------------------------------ */

/* A thread that takes an item of a few rows makes int8 of them in scratch of its own, which nobody had written before:
 * bit i for thread i. */
static uint32_t who_computed(const crumb_plan *p) {
    uint32_t who = 0;
    for (int i = 0; i < THREADS; i++) {
        const char *own = crumb_plan_thread(p, i) + p->local_inputs;
        for (size_t at = 0; at < K; at++) who |= (uint32_t)(own[at] != 0) << i;
    }
    return who;
}

/* Replays until all of these threads have computed, which those that are awake do at once, and some more; each time
 * with the expected results. Returns who has computed. */
static uint32_t replay_until(tuned *t, uint32_t n_rows, uint32_t all, const float *expected) {
    static float y[ROWS * M];
    int n_more = 50;
    for (int i = 0; i < MOST_REPLAYS && n_more > 0; i++) {
        replay(t, n_rows, y);
        assert_memory_equal(y, expected, (size_t)n_rows * M * sizeof *y);
        if ((who_computed(t->plan) & all) == all) n_more--;
    }
    return who_computed(t->plan);
}

static void only_so_many_threads_compute(void **state) {
    (void)state;
    static float expected[ROWS * M];
    static const char *const ways[] = {"chunks", "split", "auto"};
    tuned t;
    open_tuned(&t, "chunks");
    record(&t, false);
    replay(&t, ROWS, expected);
    close_tuned(&t);
    for (int way = 0; way < 3; way++) {
        open_tuned(&t, ways[way]);
        put(&t, &wide.matrix, M, 2, "threads=2"); /* of one row and of two */
        record(&t, false);
        assert_int_equal(replay_until(&t, 1, 3, expected), 3);
        assert_int_equal(replay_until(&t, 2, 3, expected), 3);
        assert_int_equal(replay_until(&t, 3, 15, expected), 15); /* more than was measured: they all do */
        close_tuned(&t);

        open_tuned(&t, ways[way]);
        put(&t, &wide.matrix, M, 1, "threads=1");
        record(&t, false);
        assert_int_equal(replay_until(&t, 1, 1, expected), 1);
        close_tuned(&t);

        open_tuned(&t, ways[way]);
        put(&t, &wide.matrix, M / 2, 1, "threads=1"); /* half of the work: it is the nearest shape, and says nothing */
        record(&t, false);
        assert_int_equal(replay_until(&t, 1, 15, expected), 15);
        close_tuned(&t);
    }
}

/* ---- what is recorded, and learned ------------------------------------------------------------------------- */

static void a_step_follows_the_part_that_wants_most(void **state) {
    (void)state;
    tuned t;
    open_tuned(&t, NULL);
    put(&t, &wide.matrix, 2 * M, 4, "threads=1");
    record(&t, true);
    assert_int_equal(layer_of(t.plan)->linear.few_rows[0], 0); /* nothing is known of the other */
    close_device(&t); /* what a database has found is remembered while it is open */

    open_tuned(&t, NULL);
    put(&t, &narrow.matrix, M, 3, "threads=2 share=1");
    put(&t, &narrow.matrix, M, 32, "threads=8"); /* of 4 threads: all */
    put(&t, &wide.matrix, M, 32, "threads=2");
    record(&t, true);
    const crumb_step *s = layer_of(t.plan);
    assert_int_equal(s->linear.few_rows[0], 3);
    assert_int_equal(s->linear.few[0].n_threads, 2);
    assert_int_equal(s->linear.chunks[0].n_threads, THREADS);
    assert_int_equal(s->linear.few_rows[1], 0);
    assert_true(s->linear.few[0].n > 1 && s->linear.few[0].n < s->linear.chunks[0].n);
    close_tuned(&t);
}

/* Not what was measured with one row, where there is better; of the numbers that were measured the nearest. */
static void a_plan_takes_what_was_measured_with_its_number_of_rows(void **state) {
    (void)state;
    static const struct {
        uint32_t max_rows, share;
    } cases[] = {{1, 3}, {2, 1}, {4, 4}, {8, 1}, {16, 1}};
    tuned t;
    open_tuned(&t, NULL);
    put(&t, &wide.matrix, M, 1, "share=3");
    put(&t, &wide.matrix, M, 2, "share=1");
    put(&t, &wide.matrix, M, 4, "share=4");
    put(&t, &wide.matrix, M, 12, "share=1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        record_rows(&t, false, cases[i].max_rows);
        assert_int_equal(layer_of(t.plan)->linear.parts[0].knobs[0].share, cases[i].share);
        backend->plan.destroy(t.plan);
    }
    t.plan = NULL;
    close_tuned(&t);
}

static void nothing_is_learned_of_who_waits(void **state) {
    (void)state;
    static float y[ROWS * M];
    tuned t;
    open_tuned(&t, "split");
    put(&t, &wide.matrix, M, 1, "threads=2");
    record(&t, false);
    for (int i = 0; i < 400; i++) replay(&t, 1, y);
    const crumb_balance *b = &t.device->balances[8][0];
    assert_true(b->n_cores == THREADS && b->n_learned > 10);
    for (int i = 2; i < THREADS; i++) {
        assert_true(fabsf(b->ratio[i] - 1.0f / THREADS) < 0.01f);
        assert_int_equal(b->n_idle[i], 0);
        assert_true(b->probe != i);
    }
    close_tuned(&t);

    open_tuned(&t, "split"); /* and one thread alone is compared with nobody */
    put(&t, &wide.matrix, M, 1, "threads=1");
    record(&t, false);
    for (int i = 0; i < 20; i++) replay(&t, 1, y);
    assert_int_equal(t.device->balances[8][0].n_cores, 0);
    close_tuned(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_so_many_threads_compute),
        cmocka_unit_test(a_step_follows_the_part_that_wants_most),
        cmocka_unit_test(a_plan_takes_what_was_measured_with_its_number_of_rows),
        cmocka_unit_test(nothing_is_learned_of_who_waits),
    };
    return cmocka_run_group_tests_name("threads", tests, set_up, tear_down);
}
