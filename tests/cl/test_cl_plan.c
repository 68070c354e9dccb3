/* Plans of the OpenCL backend through host/backend.h, on the first OpenCL device: a small model with every kind of op
 * (tests/kernels/mini_model.h) against the CPU backend, in batches of all sizes; several sequences in a batch; what is
 * refused. Exits with 77 where there is no device. */
#include "host/engine/modules.h"
#include "tests/kernels/mini_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TOKENS = 150, N_CTX = 160, LOGITS = N_TOKENS * MINI_VOCAB }; /* more than one chunk of keys */

static const crumb_backend *cl;
static crumb_error err;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != CRUMB_OK) fail_msg("%s", err.message);                                                           \
    } while (0)

typedef struct rig {
    const crumb_backend *backend;
    mini_model model;
    crumb_device *device;
    crumb_kv_cache *kv;
    crumb_plan *plan;
} rig;

static crumb_plan_desc describe(const rig *r, uint32_t max_rows) {
    return (crumb_plan_desc){.ops = r->model.ops,
                             .n_ops = r->model.n_ops,
                             .values = r->model.values,
                             .n_values = r->model.n_values,
                             .max_rows = max_rows,
                             .max_outputs = max_rows,
                             .kv = r->kv};
}

static void rig_open(rig *r, const crumb_backend *backend, crumb_kv_type type, crumb_act_quant act, uint32_t max_rows) {
    uint64_t n_bytes;
    *r = (rig){.backend = backend};
    mini_create(&r->model, act, 7, 3, N_CTX);
    r->model.kv.type = type;
    OK(backend->device.open(&(crumb_device_params){.n_threads = 1}, &r->device, &err));
    OK(backend->device.kv_create(r->device, &r->model.kv, &r->kv, &n_bytes, &err));
    crumb_plan_desc desc = describe(r, max_rows);
    OK(backend->plan.record(r->device, &desc, &r->plan, &err));
}

static void rig_close(rig *r) {
    r->backend->plan.destroy(r->plan);
    r->backend->device.kv_destroy(r->device, r->kv);
    r->backend->device.close(r->device);
    mini_destroy(&r->model);
}

static int32_t token_at(uint32_t sequence, uint32_t position) {
    return (int32_t)((position * 7 + position * position % 11 + sequence * 13) % MINI_VOCAB);
}

static void replay(rig *r, const crumb_row *rows, uint32_t n, float *logits) {
    const float *out;
    uint32_t n_out, wanted = 0;
    OK(r->backend->plan.replay(r->plan, rows, n, &err));
    OK(r->backend->plan.read(r->plan, r->model.logits, &out, &n_out, &err));
    for (uint32_t i = 0; i < n; i++) wanted += rows[i].wants_output;
    assert_int_equal(n_out, wanted);
    memcpy(logits, out, (size_t)n_out * MINI_VOCAB * sizeof(float));
}

/* All tokens of sequence 1, in batches. */
static void feed(const crumb_backend *backend, crumb_kv_type type, crumb_act_quant act, uint32_t max_rows,
                 uint32_t batch, float *logits) {
    rig r;
    crumb_row rows[N_TOKENS];
    rig_open(&r, backend, type, act, max_rows);
    for (uint32_t t = 0, n; t < N_TOKENS; t += n) {
        n = N_TOKENS - t < batch ? N_TOKENS - t : batch;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = (crumb_row){.token = token_at(1, t + i), .sequence = 1, .position = t + i, .wants_output = true};
        replay(&r, rows, n, logits + (size_t)t * MINI_VOCAB);
    }
    rig_close(&r);
}

/* The squared error as a part of the power, and how many values are the same to the bit. */
static double difference(const float *a, const float *b, size_t *equal) {
    double error = 0, power = 0;
    *equal = 0;
    for (size_t i = 0; i < LOGITS; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        power += (double)b[i] * (double)b[i];
        *equal += memcmp(&a[i], &b[i], sizeof *a) == 0;
    }
    assert_true(power > 100);
    return error / power;
}

static void agrees_with_the_cpu(void **state) {
    (void)state;
    static float expected[LOGITS], logits[LOGITS];
    static const char *const acts[] = {"float", "row", "group"};
    for (int type = CRUMB_KV_F16; type <= CRUMB_KV_Q8; type++)
        for (int act = CRUMB_ACT_F32; act <= CRUMB_ACT_GROUP; act++) {
            size_t equal;
            feed(&crumb_backend_cpu, (crumb_kv_type)type, (crumb_act_quant)act, 64, 64, expected);
            feed(cl, (crumb_kv_type)type, (crumb_act_quant)act, 64, 64, logits);
            double nmse = difference(logits, expected, &equal);
            printf("activations %s, cache %s: nmse %.2g, %zu of %d values bit-equal\n", acts[act],
                   type == CRUMB_KV_Q8 ? "q8" : "f16", nmse, equal, LOGITS);
            assert_true(nmse < 1e-6);
        }
}

static void batches_change_no_bit(void **state) {
    (void)state;
    static float expected[LOGITS], logits[LOGITS];
    static const struct {
        uint32_t max_rows, batch;
    } cases[] = {{150, 150}, {4, 4}, {4, 3}, {8, 2}, {40, 33}, {16, 8}};
    for (int act = CRUMB_ACT_F32; act <= CRUMB_ACT_GROUP; act++) {
        feed(cl, CRUMB_KV_F16, (crumb_act_quant)act, 1, 1, expected);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            memset(logits, 0, sizeof logits);
            feed(cl, CRUMB_KV_F16, (crumb_act_quant)act, cases[i].max_rows, cases[i].batch, logits);
            assert_memory_equal(logits, expected, sizeof logits);
        }
    }
}

/* As a server has them: three sequences in one batch, and only some rows' outputs wanted. */
static void sequences_share_a_batch(void **state) {
    (void)state;
    enum { STEPS = 20 };
    static float alone[3][STEPS * MINI_VOCAB], together[3 * MINI_VOCAB];
    rig r;
    rig_open(&r, cl, CRUMB_KV_F16, CRUMB_ACT_GROUP, 8);
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

static void mistakes_are_named(void **state) {
    (void)state;
    rig r;
    const float *out;
    uint32_t n, flag = 0;
    rig_open(&r, cl, CRUMB_KV_F16, CRUMB_ACT_GROUP, 2);
    crumb_row rows[3] = {{.token = 0}, {.token = MINI_VOCAB, .position = 1}};
    assert_int_equal(r.backend->plan.replay(r.plan, rows, 2, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "token 50 is not one of 50"));
    assert_int_equal(r.backend->plan.replay(r.plan, rows, 3, &err), CRUMB_ERR_ARGUMENT);
    assert_int_equal(r.backend->plan.read(r.plan, 1000, &out, &n, &err), CRUMB_ERR_ARGUMENT);
    assert_int_equal(r.backend->plan.read(r.plan, r.model.folded, &out, &n, &err), CRUMB_ERR_ARGUMENT);
    crumb_op ops[MINI_MAX_OPS];
    crumb_plan *plan = NULL;
    crumb_plan_desc desc = describe(&r, 4);
    desc.ops = ops;
    memcpy(ops, r.model.ops, sizeof ops);
    ops[3].rope.dims = MINI_DIM + 2;
    assert_int_equal(r.backend->plan.record(r.device, &desc, &plan, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "op 3 (rope, layer 0): 26 rotated dimensions"));
    memcpy(ops, r.model.ops, sizeof ops);
    ops[desc.n_ops++] = (crumb_op){.kind = CRUMB_OP_SIGNAL, .rendezvous.flag = &flag};
    assert_int_equal(r.backend->plan.record(r.device, &desc, &plan, &err), CRUMB_ERR_UNSUPPORTED);
    assert_null(plan);
    rig_close(&r);
}

/* Measuring changes no result, and every kernel's time lands somewhere. */
static void plans_can_be_measured(void **state) {
    (void)state;
    rig r;
    static float plain[MINI_VOCAB], measured[MINI_VOCAB];
    crumb_plan_times times = {0};
    crumb_row row = {.token = 3, .wants_output = true};
    rig_open(&r, cl, CRUMB_KV_F16, CRUMB_ACT_GROUP, 1);
    replay(&r, &row, 1, plain);
    r.backend->plan.measure(r.plan, &times);
    replay(&r, &row, 1, measured);
    r.backend->plan.measure(r.plan, NULL);
    replay(&r, &row, 1, plain);
    assert_memory_equal(plain, measured, sizeof plain);
    assert_int_equal(times.n_replays, 1);
    assert_true(times.linear_ns > 0 && times.head_ns > 0 && times.attention_ns > 0 && times.other_ns > 0);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_cpu),     cmocka_unit_test(batches_change_no_bit),
        cmocka_unit_test(sequences_share_a_batch), cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(plans_can_be_measured),
    };
    crumb_device *device;
    const crumb_module *module;
    if (crumb_engine_module_load("cl", &module, &err) != CRUMB_OK ||
        (cl = module->backend)->device.open(&(crumb_device_params){.n_threads = 1}, &device, &err) != CRUMB_OK) {
        fprintf(stderr, "skipped: %s\n", err.message);
        return 77;
    }
    cl->device.close(device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
