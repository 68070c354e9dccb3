/* A backend through host/backend.h, whichever it is: a small model against double precision and against the CPU, the
 * promise that neither threads nor batches change a bit, what is refused, measured times.
 *
 * usage: test_backend [BACKEND [TARGET]]   as in crumb_device_params; the CPU without */
#include "host/base/thread.h"
#include "tests/kernels/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const crumb_backend *backend = &crumb_backend_cpu;
static const char *target;

static rig_params params_of(crumb_act_quant act, crumb_kv_type kv, int n_threads, uint32_t max_rows) {
    return (rig_params){backend, target, act, kv, n_threads, max_rows, false, NULL};
}

static void open_rig(rig *r, crumb_act_quant act, int n_threads, uint32_t max_rows) {
    const rig_params params = params_of(act, CRUMB_KV_F16, n_threads, max_rows);
    rig_open(r, &params);
}

/* ---- numbers ------------------------------------------------------------------------------------------------- */

static void check_against_double(crumb_kv_type type, double max_error) {
    static double expected[RIG_LOGITS];
    static float logits[RIG_LOGITS];
    int32_t tokens[RIG_TOKENS];
    rig r;
    const rig_params params = params_of(CRUMB_ACT_F32, type, 2, 64);
    for (uint32_t t = 0; t < RIG_TOKENS; t++) tokens[t] = rig_token(1, t);
    rig_open(&r, &params);
    mini_evaluate(&r.model, tokens, RIG_TOKENS, expected);
    rig_close(&r);
    rig_feed(&params, 64, logits);
    double error = 0, total = 0;
    for (size_t i = 0; i < RIG_LOGITS; i++) {
        error += pow((double)logits[i] - expected[i], 2);
        total += expected[i] * expected[i];
    }
    assert_true(total > 100);
    assert_true(error / total < max_error);
}

/* Only float's rounding, and now and then a key or value that falls on the other side of a step of the cache's type. */
static void agrees_with_double(void **state) {
    (void)state;
    check_against_double(CRUMB_KV_F16, 1e-8);
    check_against_double(CRUMB_KV_Q8, 1e-6);
}

/* The squared error as a part of the power, and how many values are the same to the bit. */
static double difference(const float *a, const float *b, size_t *equal) {
    double error = 0, power = 0;
    *equal = 0;
    for (size_t i = 0; i < RIG_LOGITS; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        power += (double)b[i] * (double)b[i];
        *equal += memcmp(&a[i], &b[i], sizeof *a) == 0;
    }
    assert_true(power > 100);
    return error / power;
}

static double compare_with_cpu(rig_params own, const char *what) {
    static float expected[RIG_LOGITS], logits[RIG_LOGITS];
    size_t equal;
    rig_params cpu = own;
    cpu.backend = &crumb_backend_cpu;
    cpu.target = NULL;
    rig_feed(&cpu, 64, expected);
    rig_feed(&own, 64, logits);
    const double nmse = difference(logits, expected, &equal);
    printf("activations %s, cache %s, values of %s: nmse %.2g, %zu of %d values bit-equal\n", what,
           own.kv == CRUMB_KV_Q8 ? "q8" : "f16", own.f32_v ? "f32" : "bf16", nmse, equal, RIG_LOGITS);
    return nmse;
}

/* bf16 weights on matrix instructions see activations as two terms (dense_matrix.cl), within 2^-15 of what f32 gives:
 * of the int8 codes that later ops make of it some per cent are the neighbouring ones. Nothing else differs: with f32
 * weights in their place the same limit holds on every rung. */
static double bf16_limit(const char *rung, crumb_act_quant act) {
    return act != CRUMB_ACT_F32 && rung && strstr(rung, "dpas") ? 1e-3 : 1e-6;
}

static void agrees_with_the_cpu(void **state) {
    (void)state;
    if (backend == &crumb_backend_cpu) return; /* of which agrees_with_double says more */
    static const char *const acts[] = {"float", "row", "group"};
    for (int type = CRUMB_KV_F16; type <= CRUMB_KV_Q8; type++)
        for (int act = CRUMB_ACT_F32; act <= CRUMB_ACT_GROUP; act++) {
            rig_params own = params_of((crumb_act_quant)act, (crumb_kv_type)type, 1, 64);
            assert_true(compare_with_cpu(own, acts[act]) < bf16_limit(own.target, own.act));
            own.f32_v = true;
            assert_true(compare_with_cpu(own, acts[act]) < 1e-6);
        }
}

static void threads_and_batches_change_nothing(void **state) {
    (void)state;
    static float expected[RIG_LOGITS], logits[RIG_LOGITS];
    const struct {
        int n_threads;
        uint32_t max_rows, batch;
    } cases[] = {{1, 150, 150}, {1, 4, 4}, {2, 1, 1}, {2, 8, 2}, {3, 3, 3}, {2, 40, 33}, {4, 64, 33}, {3, 16, 8}};
    for (int mode = 0; mode < 4; mode++) { /* each activation, then the 8-bit cache */
        crumb_kv_type type = mode == 3 ? CRUMB_KV_Q8 : CRUMB_KV_F16;
        crumb_act_quant act = mode == 3 ? CRUMB_ACT_ROW : (crumb_act_quant)(CRUMB_ACT_F32 + mode);
        rig_params params = params_of(act, type, 1, 1);
        rig_feed(&params, 1, expected);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            memset(logits, 0, sizeof logits);
            params = params_of(act, type, cases[i].n_threads, cases[i].max_rows);
            rig_feed(&params, cases[i].batch, logits);
            assert_memory_equal(logits, expected, sizeof logits);
        }
    }
}

/* Three sequences of different lengths in one batch, as a server has them, and only some rows' outputs wanted. */
static void sequences_share_a_batch(void **state) {
    (void)state;
    enum { STEPS = 20 };
    static float alone[3][STEPS * MINI_VOCAB], together[3 * MINI_VOCAB];
    rig r;
    open_rig(&r, CRUMB_ACT_GROUP, 2, 8);
    for (uint32_t s = 0; s < 3; s++)
        for (uint32_t t = 0; t < STEPS; t++) {
            crumb_row row = {.token = rig_token(s, t), .sequence = s, .position = t, .wants_output = true};
            rig_replay(&r, &row, 1, alone[s] + t * MINI_VOCAB);
        }
    for (uint32_t t = 0; t < STEPS; t++) {
        crumb_row rows[3];
        for (uint32_t s = 0; s < 3; s++)
            rows[s] = (crumb_row){
                .token = rig_token(s, t), .sequence = s, .position = t, .wants_output = s != 1 || t % 2 == 0};
        rig_replay(&r, rows, 3, together);
        for (uint32_t s = 0, i = 0; s < 3; s++)
            if (rows[s].wants_output)
                assert_memory_equal(together + i++ * MINI_VOCAB, alone[s] + t * MINI_VOCAB, MINI_VOCAB * sizeof(float));
    }
    rig_close(&r);
}

/* ---- mistakes ------------------------------------------------------------------------------------------------ */

static void replay_fails(rig *r, crumb_row row, const char *message) {
    crumb_row rows[2] = {{.sequence = 2}, row};
    assert_int_equal(backend->plan.replay(r->plan, rows, 2, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(rig_error.message, message));
    const float *out;
    uint32_t n;
    rig_ok(backend->plan.read(r->plan, r->model.logits, &out, &n, &rig_error));
    assert_int_equal(n, 0);
}

static void rows_are_checked(void **state) {
    (void)state;
    rig r;
    open_rig(&r, CRUMB_ACT_GROUP, 2, 2);
    replay_fails(&r, (crumb_row){.token = MINI_VOCAB}, "token 50 is not one of 50");
    replay_fails(&r, (crumb_row){.token = -1}, "token -1");
    replay_fails(&r, (crumb_row){.sequence = 3}, "sequence 3 of 3");
    replay_fails(&r, (crumb_row){.position = RIG_CTX}, "position 160 in a context of 160");
    replay_fails(&r, (crumb_row){.position = UINT32_MAX}, "in a context of 160");
    replay_fails(&r, (crumb_row){.sequence = 2, .position = 0}, "comes after a later one");
    crumb_row rows[3] = {{.sequence = 0}, {.sequence = 1}, {.sequence = 2}};
    assert_int_equal(backend->plan.replay(r.plan, rows, 3, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_int_equal(backend->plan.replay(r.plan, rows, 0, &rig_error), CRUMB_ERR_ARGUMENT);
    /* And it still works. Without wanted outputs there are none. */
    const float *out;
    uint32_t n = 99;
    rig_ok(backend->plan.replay(r.plan, rows, 2, &rig_error));
    rig_ok(backend->plan.read(r.plan, r.model.logits, &out, &n, &rig_error));
    assert_int_equal(n, 0);
    assert_int_equal(backend->plan.read(r.plan, r.model.folded, &out, &n, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_int_equal(backend->plan.read(r.plan, 1000, &out, &n, &rig_error), CRUMB_ERR_ARGUMENT);
    rig_close(&r);
}

/* Every mistake in a plan is named with its op. */
static void plans_are_checked(void **state) {
    (void)state;
    rig r;
    open_rig(&r, CRUMB_ACT_GROUP, 1, 1);
    crumb_op good[MINI_MAX_OPS], ops[MINI_MAX_OPS];
    memcpy(good, r.model.ops, sizeof good);
    const struct {
        size_t op;
        size_t offset; /* of a uint32 in the op, set to `value` */
        uint32_t value;
        const char *message;
    } cases[] = {
        {1, offsetof(crumb_op, norm.head_dim), 100, "op 1 (rms_norm, layer 0): head_dim 100"},
        {2, offsetof(crumb_op, linear.part[1].m1), 47, "rows 0 to 47"},
        {2, offsetof(crumb_op, linear.act_group), 33, "activation group 33"},
        {3, offsetof(crumb_op, rope.dims), MINI_DIM + 2, "26 rotated dimensions of 24"},
        {4, offsetof(crumb_op, attention.kv_layer), MINI_LAYERS, "does not fit a KV cache"},
        {4, offsetof(crumb_op, attention.n_head), 5, "5 query heads"},
        {4, offsetof(crumb_op, kind), 77, "does not know"},
    };
    crumb_plan_desc desc = rig_describe(&r, 4);
    desc.ops = ops;
    desc.max_outputs = 1;
    crumb_plan *plan = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(ops, good, sizeof ops);
        memcpy((char *)&ops[cases[i].op] + cases[i].offset, &cases[i].value, sizeof(uint32_t));
        assert_int_not_equal(backend->plan.record(r.device, &desc, &plan, &rig_error), CRUMB_OK);
        assert_null(plan);
        if (!strstr(rig_error.message, cases[i].message)) fail_msg("case %zu: %s", i, rig_error.message);
    }
    memcpy(ops, good, sizeof ops);
    ops[1].norm.x = (crumb_value)r.model.n_values;
    assert_int_equal(backend->plan.record(r.device, &desc, &plan, &rig_error), CRUMB_ERR_ARGUMENT);
    memcpy(ops, good, sizeof ops);
    ops[r.model.n_ops - 2].norm.x = 0; /* of before select */
    assert_int_equal(backend->plan.record(r.device, &desc, &plan, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(rig_error.message, "before select"));
    memcpy(ops, good, sizeof ops);
    desc.max_outputs = 5;
    assert_int_equal(backend->plan.record(r.device, &desc, &plan, &rig_error), CRUMB_ERR_ARGUMENT);
    desc.max_outputs = 1;
    rig_ok(backend->plan.record(r.device, &desc, &plan, &rig_error));
    crumb_row rows[2] = {{.wants_output = true}, {.position = 1, .wants_output = true}};
    assert_int_equal(backend->plan.replay(plan, rows, 2, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(rig_error.message, "more outputs wanted than the 1"));
    backend->plan.destroy(plan);
    rig_close(&r);
}

/* The parts of a replay's time are there, and are no more than the whole; without being asked for, nothing is told. */
static void times_add_up(void **state) {
    (void)state;
    enum { N = 20 };
    rig r;
    crumb_plan_times times = {0};
    float logits[MINI_VOCAB];
    const uint64_t began = crumb_now_ns();
    open_rig(&r, CRUMB_ACT_GROUP, 2, 1);
    backend->plan.measure(r.plan, &times);
    for (uint32_t i = 0; i < N; i++)
        rig_replay(&r, &(crumb_row){.token = rig_token(0, i), .position = i, .wants_output = true}, 1, logits);
    backend->plan.measure(r.plan, NULL);
    assert_int_equal(times.n_replays, N);
    assert_true(times.linear_ns > 0 && times.head_ns > 0 && times.attention_ns > 0 && times.other_ns > 0);
    assert_true(times.linear_ns + times.head_ns + times.attention_ns + times.other_ns <= crumb_now_ns() - began);
    const crumb_plan_times before = times;
    rig_replay(&r, &(crumb_row){.token = 1, .position = N, .wants_output = true}, 1, logits);
    assert_memory_equal(&times, &before, sizeof times);
    rig_close(&r);
}

static void signals_have_the_replays_number(void **state) {
    (void)state;
    rig r;
    crumb_op ops[MINI_MAX_OPS];
    crumb_plan *plan = NULL;
    uint32_t flags[2] = {0, 0};
    open_rig(&r, CRUMB_ACT_GROUP, 1, 1);
    crumb_plan_desc desc = rig_describe(&r, 1);
    ops[0] = (crumb_op){.kind = CRUMB_OP_SIGNAL, .rendezvous.flag = &flags[0]};
    memcpy(ops + 1, r.model.ops, r.model.n_ops * sizeof *ops);
    ops[desc.n_ops + 1] = (crumb_op){.kind = CRUMB_OP_SIGNAL, .rendezvous.flag = &flags[1]};
    ops[desc.n_ops + 2] = (crumb_op){.kind = CRUMB_OP_WAIT, .rendezvous.flag = &flags[0]};
    desc.ops = ops;
    desc.n_ops += 3;
    rig_ok(backend->plan.record(r.device, &desc, &plan, &rig_error));
    for (uint32_t i = 1; i <= 3; i++) {
        rig_ok(backend->plan.replay(plan, &(crumb_row){0}, 1, &rig_error));
        assert_int_equal(flags[0], i);
        assert_int_equal(flags[1], i);
    }
    backend->plan.destroy(plan);
    rig_close(&r);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double),
        cmocka_unit_test(agrees_with_the_cpu),
        cmocka_unit_test(threads_and_batches_change_nothing),
        cmocka_unit_test(sequences_share_a_batch),
        cmocka_unit_test(rows_are_checked),
        cmocka_unit_test(plans_are_checked),
        cmocka_unit_test(signals_have_the_replays_number),
        cmocka_unit_test(times_add_up),
    };
    target = argc > 2 ? argv[2] : NULL;
    if (!rig_find_device(argc > 1 ? argv[1] : "cpu", target, &backend)) return 1;
    return cmocka_run_group_tests_name("backend", tests, NULL, NULL);
}
