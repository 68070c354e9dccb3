/* The CPU backend through host/backend.h: a small model against double precision, and the promise that neither threads
 * nor batches change a bit. */
#include "cpu/kernels.h"
#include "host/base/thread.h"
#include "tests/kernels/mini_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TOKENS = 150, N_CTX = 160 }; /* more than one chunk of keys */

static const crumb_backend *const backend = &crumb_backend_cpu;

typedef struct rig {
    mini_model model;
    crumb_device *device;
    crumb_kv_cache *kv;
    crumb_plan *plan;
} rig;

static crumb_error err; /* of the call that failed last */

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != CRUMB_OK) fail_msg("%s", err.message);                                                           \
    } while (0)

static void rig_open_kv(rig *r, crumb_kv_type type, crumb_act_quant act, const char *target, int n_threads,
                        uint32_t max_rows) {
    crumb_device_params params = {.target = target, .n_threads = n_threads};
    uint64_t n_bytes;
    mini_create(&r->model, act, 7, 3, N_CTX);
    r->model.kv.type = type;
    OK(backend->device.open(&params, &r->device, &err));
    OK(backend->device.kv_create(r->device, &r->model.kv, &r->kv, &n_bytes, &err));
    crumb_plan_desc desc = {.ops = r->model.ops,
                            .n_ops = r->model.n_ops,
                            .values = r->model.values,
                            .n_values = r->model.n_values,
                            .max_rows = max_rows,
                            .max_outputs = max_rows,
                            .kv = r->kv};
    OK(backend->plan.record(r->device, &desc, &r->plan, &err));
}

static void rig_open(rig *r, crumb_act_quant act, const char *target, int n_threads, uint32_t max_rows) {
    rig_open_kv(r, CRUMB_KV_F16, act, target, n_threads, max_rows);
}

static void rig_close(rig *r) {
    backend->plan.destroy(r->plan);
    backend->device.kv_destroy(r->device, r->kv);
    backend->device.close(r->device);
    mini_destroy(&r->model);
}

static int32_t token_at(uint32_t sequence, uint32_t position) {
    return (int32_t)((position * 7 + position * position % 11 + sequence * 13) % MINI_VOCAB);
}

static void replay(rig *r, const crumb_row *rows, uint32_t n, float *logits) {
    const float *out;
    uint32_t n_out, wanted = 0;
    OK(backend->plan.replay(r->plan, rows, n, &err));
    OK(backend->plan.read(r->plan, r->model.logits, &out, &n_out, &err));
    for (uint32_t i = 0; i < n; i++) wanted += rows[i].wants_output;
    assert_int_equal(n_out, wanted);
    memcpy(logits, out, (size_t)n_out * MINI_VOCAB * sizeof(float));
}

/* All tokens of sequence 1, in batches of `batch`. */
static void feed(rig *r, uint32_t batch, float *logits) {
    crumb_row rows[N_TOKENS];
    for (uint32_t t = 0, n; t < N_TOKENS; t += n) {
        n = N_TOKENS - t < batch ? N_TOKENS - t : batch;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = (crumb_row){.token = token_at(1, t + i), .sequence = 1, .position = t + i, .wants_output = true};
        replay(r, rows, n, logits + (size_t)t * MINI_VOCAB);
    }
}

static void feed_fresh(crumb_kv_type type, crumb_act_quant act, const char *target, int n_threads, uint32_t max_rows,
                       uint32_t batch, float *logits) {
    rig r;
    rig_open_kv(&r, type, act, target, n_threads, max_rows);
    feed(&r, batch, logits);
    rig_close(&r);
}

static void check_against_double(crumb_kv_type type, double max_error) {
    static double expected[N_TOKENS * MINI_VOCAB];
    static float logits[N_TOKENS * MINI_VOCAB];
    int32_t tokens[N_TOKENS];
    rig r;
    rig_open_kv(&r, type, CRUMB_ACT_F32, NULL, 2, 64);
    for (uint32_t t = 0; t < N_TOKENS; t++) tokens[t] = token_at(1, t);
    mini_evaluate(&r.model, tokens, N_TOKENS, expected);
    feed(&r, 64, logits);
    double error = 0, total = 0;
    for (size_t i = 0; i < N_TOKENS * MINI_VOCAB; i++) {
        error += pow((double)logits[i] - expected[i], 2);
        total += expected[i] * expected[i];
    }
    assert_true(total > 100);
    assert_true(error / total < max_error);
    rig_close(&r);
}

/* Only float's rounding, and now and then a key or value that falls on the other side of a step of the cache's type. */
static void agrees_with_double(void **state) {
    (void)state;
    check_against_double(CRUMB_KV_F16, 1e-8);
    check_against_double(CRUMB_KV_Q8, 1e-6);
}

static void threads_and_batches_change_nothing(void **state) {
    (void)state;
    static float expected[N_TOKENS * MINI_VOCAB], logits[N_TOKENS * MINI_VOCAB];
    const struct {
        int n_threads;
        uint32_t max_rows, batch;
    } cases[] = {{1, 150, 150}, {1, 4, 4}, {2, 1, 1}, {2, 8, 2}, {3, 3, 3}, {2, 40, 33}, {4, 64, 33}, {3, 16, 8}};
    for (int mode = 0; mode < 4; mode++) { /* each activation, then the 8-bit cache */
        crumb_kv_type type = mode == 3 ? CRUMB_KV_Q8 : CRUMB_KV_F16;
        crumb_act_quant act = mode == 3 ? CRUMB_ACT_ROW : (crumb_act_quant)(CRUMB_ACT_F32 + mode);
        feed_fresh(type, act, NULL, 1, 1, 1, expected);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            memset(logits, 0, sizeof logits);
            feed_fresh(type, act, NULL, cases[i].n_threads, cases[i].max_rows, cases[i].batch, logits);
            assert_memory_equal(logits, expected, sizeof logits);
        }
    }
}

/* Every tier that this machine has computes what the scalar one does. */
static void tiers_agree(void **state) {
    (void)state;
    static float expected[N_TOKENS * MINI_VOCAB], logits[N_TOKENS * MINI_VOCAB];
    for (int type = CRUMB_KV_F16; type <= CRUMB_KV_Q8; type++) {
        feed_fresh((crumb_kv_type)type, CRUMB_ACT_GROUP, "cpu:scalar", 2, 40, 40, expected);
        for (crumb_isa isa = CRUMB_ISA_AVX2; isa < CRUMB_ISA_COUNT; isa++) {
            if (!crumb_isa_available(isa)) continue;
            char target[32];
            snprintf(target, sizeof target, "cpu:%s", crumb_isa_name(isa));
            feed_fresh((crumb_kv_type)type, CRUMB_ACT_GROUP, target, 2, 40, 40, logits);
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
    rig_open(&r, CRUMB_ACT_GROUP, NULL, 2, 8);
    for (uint32_t s = 0; s < 3; s++)
        for (uint32_t t = 0; t < STEPS; t++) {
            crumb_row row = {.token = token_at(s, t), .sequence = s, .position = t, .wants_output = true};
            replay(&r, &row, 1, alone[s] + t * MINI_VOCAB);
        }
    for (uint32_t t = 0; t < STEPS; t++) {
        crumb_row rows[3];
        for (uint32_t s = 0; s < 3; s++)
            rows[s] = (crumb_row){
                .token = token_at(s, t), .sequence = s, .position = t, .wants_output = s != 1 || t % 2 == 0};
        replay(&r, rows, 3, together);
        for (uint32_t s = 0, i = 0; s < 3; s++)
            if (rows[s].wants_output)
                assert_memory_equal(together + i++ * MINI_VOCAB, alone[s] + t * MINI_VOCAB, MINI_VOCAB * sizeof(float));
    }
    rig_close(&r);
}

static void replay_fails(rig *r, crumb_row row, const char *message) {
    crumb_row rows[2] = {{.sequence = 2}, row};
    assert_int_equal(backend->plan.replay(r->plan, rows, 2, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, message));
    const float *out;
    uint32_t n;
    OK(backend->plan.read(r->plan, r->model.logits, &out, &n, &err));
    assert_int_equal(n, 0);
}

static void rows_are_checked(void **state) {
    (void)state;
    rig r;
    rig_open(&r, CRUMB_ACT_GROUP, NULL, 2, 2);
    replay_fails(&r, (crumb_row){.token = MINI_VOCAB}, "token 50 is not one of 50");
    replay_fails(&r, (crumb_row){.token = -1}, "token -1");
    replay_fails(&r, (crumb_row){.sequence = 3}, "sequence 3 of 3");
    replay_fails(&r, (crumb_row){.position = N_CTX}, "position 160 in a context of 160");
    replay_fails(&r, (crumb_row){.position = UINT32_MAX}, "in a context of 160");
    replay_fails(&r, (crumb_row){.sequence = 2, .position = 0}, "comes after a later one");
    crumb_row rows[3] = {{.sequence = 0}, {.sequence = 1}, {.sequence = 2}};
    assert_int_equal(backend->plan.replay(r.plan, rows, 3, &err), CRUMB_ERR_ARGUMENT);
    assert_int_equal(backend->plan.replay(r.plan, rows, 0, &err), CRUMB_ERR_ARGUMENT);
    /* And it still works. Without wanted outputs there are none. */
    const float *out;
    uint32_t n = 99;
    OK(backend->plan.replay(r.plan, rows, 2, &err));
    OK(backend->plan.read(r.plan, r.model.logits, &out, &n, &err));
    assert_int_equal(n, 0);
    assert_int_equal(backend->plan.read(r.plan, r.model.folded, &out, &n, &err), CRUMB_ERR_ARGUMENT);
    assert_int_equal(backend->plan.read(r.plan, 1000, &out, &n, &err), CRUMB_ERR_ARGUMENT);
    rig_close(&r);
}

/* Every mistake in a plan is named with its op. */
static void plans_are_checked(void **state) {
    (void)state;
    rig r;
    rig_open(&r, CRUMB_ACT_GROUP, NULL, 1, 1);
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
    crumb_plan_desc desc = {.ops = ops,
                            .n_ops = r.model.n_ops,
                            .values = r.model.values,
                            .n_values = r.model.n_values,
                            .max_rows = 4,
                            .max_outputs = 1,
                            .kv = r.kv};
    crumb_plan *plan = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(ops, good, sizeof ops);
        memcpy((char *)&ops[cases[i].op] + cases[i].offset, &cases[i].value, sizeof(uint32_t));
        assert_int_not_equal(backend->plan.record(r.device, &desc, &plan, &err), CRUMB_OK);
        assert_null(plan);
        if (!strstr(err.message, cases[i].message)) fail_msg("case %zu: %s", i, err.message);
    }
    memcpy(ops, good, sizeof ops);
    ops[1].norm.x = (crumb_value)r.model.n_values;
    assert_int_equal(backend->plan.record(r.device, &desc, &plan, &err), CRUMB_ERR_ARGUMENT);
    memcpy(ops, good, sizeof ops);
    ops[r.model.n_ops - 2].norm.x = 0; /* of before select */
    assert_int_equal(backend->plan.record(r.device, &desc, &plan, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "before select"));
    memcpy(ops, good, sizeof ops);
    desc.max_outputs = 5;
    assert_int_equal(backend->plan.record(r.device, &desc, &plan, &err), CRUMB_ERR_ARGUMENT);
    desc.max_outputs = 1;
    OK(backend->plan.record(r.device, &desc, &plan, &err));
    crumb_row rows[2] = {{.wants_output = true}, {.position = 1, .wants_output = true}};
    assert_int_equal(backend->plan.replay(plan, rows, 2, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "more outputs wanted than the 1"));
    backend->plan.destroy(plan);
    rig_close(&r);
}

static void devices_say_what_they_are(void **state) {
    (void)state;
    crumb_device *d;
    crumb_device_info info;
    crumb_device_params params = {.target = "cpu:scalar", .n_threads = 3};
    OK(backend->device.open(&params, &d, &err));
    backend->device.get_info(d, &info);
    assert_string_equal(info.name, "cpu");
    assert_string_equal(info.target, "scalar");
    assert_int_equal(info.n_threads, 3);
    assert_true(info.host_memory && info.memory_bytes > info.memory_free_bytes && strlen(info.detail) > 0);
    backend->device.close(d);
    params.target = "cpu:sse9";
    assert_int_equal(backend->device.open(&params, &d, &err), CRUMB_ERR_ARGUMENT);
    params.target = "gpu";
    assert_int_equal(backend->device.open(&params, &d, &err), CRUMB_ERR_ARGUMENT);
    params = (crumb_device_params){.n_threads = 100000};
    assert_int_equal(backend->device.open(&params, &d, &err), CRUMB_ERR_ARGUMENT);
    params.n_threads = 1;
    OK(backend->device.open(&params, &d, &err));
    crumb_kv_cache *kv;
    uint64_t n_bytes;
    crumb_kv_params large = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, CRUMB_KV_F16};
    assert_int_equal(backend->device.kv_create(d, &large, &kv, &n_bytes, &err), CRUMB_ERR_MEMORY);
    large.type = CRUMB_KV_Q8;
    assert_int_equal(backend->device.kv_create(d, &large, &kv, &n_bytes, &err), CRUMB_ERR_MEMORY);
    large.type = (crumb_kv_type)2;
    assert_int_equal(backend->device.kv_create(d, &large, &kv, &n_bytes, &err), CRUMB_ERR_ARGUMENT);
    assert_int_equal(backend->device.kv_create(d, &(crumb_kv_params){0}, &kv, &n_bytes, &err), CRUMB_ERR_ARGUMENT);
    backend->device.close(d);
}

/* ---- rendezvous -------------------------------------------------------------------------------------------- */

/* Two plans on two devices that wait for each other in turn, as the halves of a split matrix do. */
typedef struct half {
    crumb_device *device;
    crumb_plan *plan;
    crumb_status status;
} half;

static uint32_t flags[2];
enum { EXCHANGES = 200 };

static void open_half(half *h, int index) {
    crumb_op ops[4] = {{.kind = CRUMB_OP_SIGNAL}, {.kind = CRUMB_OP_WAIT}};
    ops[0].rendezvous.flag = &flags[index];
    ops[1].rendezvous.flag = &flags[1 - index];
    OK(backend->device.open(&(crumb_device_params){.n_threads = 1 + index}, &h->device, &err));
    OK(backend->plan.record(h->device, &(crumb_plan_desc){.ops = ops, .n_ops = 2, .max_rows = 1}, &h->plan, &err));
}

static void exchange(void *arg) {
    half *h = arg;
    for (int i = 0; i < EXCHANGES && h->status == CRUMB_OK; i++)
        h->status = backend->plan.replay(h->plan, &(crumb_row){0}, 1, NULL);
}

static void plans_wait_for_each_other(void **state) {
    (void)state;
    half halves[2] = {{0}, {0}};
    crumb_thread *thread;
    for (int i = 0; i < 2; i++) open_half(&halves[i], i);
    OK(crumb_thread_start(exchange, &halves[1], &thread, &err));
    exchange(&halves[0]);
    crumb_thread_join(thread);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(halves[i].status, CRUMB_OK);
        assert_int_equal(flags[i], EXCHANGES);
        backend->plan.destroy(halves[i].plan);
        backend->device.close(halves[i].device);
    }
}

/* The parts of a replay's time are there, and are no more than the whole; without being asked for, nothing is told. */
static void times_add_up(void **state) {
    (void)state;
    enum { N = 20 };
    rig r;
    crumb_plan_times times = {0};
    float logits[MINI_VOCAB];
    const uint64_t began = crumb_now_ns();
    rig_open(&r, CRUMB_ACT_GROUP, NULL, 2, 1);
    backend->plan.measure(r.plan, &times);
    for (uint32_t i = 0; i < N; i++)
        replay(&r, &(crumb_row){.token = token_at(0, i), .position = i, .wants_output = true}, 1, logits);
    backend->plan.measure(r.plan, NULL);
    assert_int_equal(times.n_replays, N);
    assert_true(times.linear_ns > 0 && times.head_ns > 0 && times.attention_ns > 0 && times.other_ns > 0);
    assert_true(times.linear_ns + times.head_ns + times.attention_ns + times.other_ns <= crumb_now_ns() - began);
    const crumb_plan_times before = times;
    replay(&r, &(crumb_row){.token = 1, .position = N, .wants_output = true}, 1, logits);
    assert_memory_equal(&times, &before, sizeof times);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double),
        cmocka_unit_test(threads_and_batches_change_nothing),
        cmocka_unit_test(tiers_agree),
        cmocka_unit_test(sequences_share_a_batch),
        cmocka_unit_test(rows_are_checked),
        cmocka_unit_test(plans_are_checked),
        cmocka_unit_test(devices_say_what_they_are),
        cmocka_unit_test(plans_wait_for_each_other),
        cmocka_unit_test(times_add_up),
    };
    return cmocka_run_group_tests_name("backend", tests, NULL, NULL);
}
