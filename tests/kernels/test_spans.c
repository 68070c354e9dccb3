/* Plans of parts of a model (CRUMB_OP_INPUT) and the largest of its logits (CRUMB_OP_TOP): through host/backend.h, on
 * the CPU backend. Two plans that hand a value on compute what one does, bit for bit; so do those of two devices, when
 * they share the layers (scheduler.md) and when one is checked against the other (host/engine/verify.c). */
#include "tests/kernels/mini_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 20, N_CTX = 32, K = 7 };

static const crumb_backend *const backend = &crumb_backend_cpu;
static crumb_error err;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != CRUMB_OK) fail_msg("%s", err.message);                                                           \
    } while (0)

typedef struct rig {
    mini_model model;
    crumb_device *device;
    crumb_kv_cache *kv;
    crumb_row rows[N];
} rig;

static void rig_open(rig *r) {
    uint64_t n_bytes;
    mini_create(&r->model, CRUMB_ACT_GROUP, CRUMB_TYPE_BF16, 3, 1, N_CTX);
    OK(backend->device.open(&(crumb_device_params){.n_threads = 2}, &r->device, &err));
    OK(backend->device.kv_create(r->device, &r->model.kv, &r->kv, &n_bytes, &err));
    for (uint32_t i = 0; i < N; i++)
        r->rows[i] = (crumb_row){.token = (int32_t)(i * 13 % MINI_VOCAB), .position = i, .wants_output = i % 2 == 0};
}

static void rig_close(rig *r) {
    backend->device.kv_destroy(r->device, r->kv);
    backend->device.close(r->device);
    mini_destroy(&r->model);
}

static crumb_status record(const rig *r, const crumb_op *ops, size_t n_ops, crumb_plan **out) {
    const crumb_plan_desc desc = {.ops = ops,
                                  .n_ops = n_ops,
                                  .values = r->model.values,
                                  .n_values = r->model.n_values,
                                  .max_rows = N,
                                  .max_outputs = N,
                                  .kv = r->kv};
    return backend->plan.record(r->device, &desc, out, &err);
}

static void read_rows(crumb_plan *plan, crumb_value value, uint32_t n, size_t width, float *out) {
    const float *rows;
    uint32_t n_rows;
    OK(backend->plan.read(plan, value, &rows, &n_rows, &err));
    assert_int_equal(n_rows, n);
    memcpy(out, rows, n * width * sizeof *out);
}

/* Behind the first layer: where its last op adds to the residual stream, which the embedding has made. */
static size_t second_layer(const mini_model *m) {
    size_t i = 0;
    while (m->ops[i].layer == 0) i++;
    return i;
}

static void two_plans_are_one(void **state) {
    (void)state;
    static float expected[N * MINI_VOCAB], got[N * MINI_VOCAB], stream[N * MINI_HIDDEN];
    rig r;
    crumb_plan *whole, *first, *second;
    rig_open(&r);
    OK(record(&r, r.model.ops, r.model.n_ops, &whole));
    OK(backend->plan.replay(whole, r.rows, N, &err));
    read_rows(whole, r.model.logits, N / 2, MINI_VOCAB, expected);

    const crumb_value x = r.model.ops[0].embed.out;
    const size_t cut = second_layer(&r.model);
    crumb_op ops[MINI_MAX_OPS];
    memcpy(ops + 1, r.model.ops + cut, (r.model.n_ops - cut) * sizeof *ops);
    ops[0] = (crumb_op){.kind = CRUMB_OP_INPUT, .input = {.out = x}};
    OK(record(&r, r.model.ops, cut, &first));
    OK(record(&r, ops, r.model.n_ops - cut + 1, &second));
    for (uint32_t at = 0, n; at < N; at += n) { /* in pieces, which change nothing */
        n = at == 0 ? 9 : N - at;
        OK(backend->plan.replay(first, r.rows + at, n, &err));
        read_rows(first, x, n, MINI_HIDDEN, stream);
        OK(backend->plan.write(second, x, stream, n, &err));
        OK(backend->plan.replay(second, r.rows + at, n, &err));
        read_rows(second, r.model.logits, (n + (at % 2 == 0)) / 2, MINI_VOCAB, got + (at + 1) / 2 * MINI_VOCAB);
    }
    assert_memory_equal(got, expected, N / 2 * MINI_VOCAB * sizeof *got);
    backend->plan.destroy(whole);
    backend->plan.destroy(first);
    backend->plan.destroy(second);
    rig_close(&r);
}

static void inputs_must_be_written(void **state) {
    (void)state;
    static float stream[N * MINI_HIDDEN];
    rig r;
    crumb_plan *plan;
    rig_open(&r);
    const crumb_value x = r.model.ops[0].embed.out;
    const size_t cut = second_layer(&r.model);
    crumb_op ops[MINI_MAX_OPS];
    memcpy(ops + 1, r.model.ops + cut, (r.model.n_ops - cut) * sizeof *ops);
    ops[0] = (crumb_op){.kind = CRUMB_OP_INPUT, .input = {.out = x}};
    OK(record(&r, ops, r.model.n_ops - cut + 1, &plan));
    assert_int_equal(backend->plan.replay(plan, r.rows, 4, &err), CRUMB_ERR_ARGUMENT);
    OK(backend->plan.write(plan, x, stream, 3, &err));
    assert_int_equal(backend->plan.replay(plan, r.rows, 4, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "written for 3 rows"));
    OK(backend->plan.write(plan, x, stream, 4, &err));
    OK(backend->plan.replay(plan, r.rows, 4, &err));
    assert_int_equal(backend->plan.replay(plan, r.rows, 4, &err), CRUMB_ERR_ARGUMENT); /* it was for one replay */
    assert_int_equal(backend->plan.write(plan, x, stream, N + 1, &err), CRUMB_ERR_ARGUMENT);
    assert_int_equal(backend->plan.write(plan, r.model.logits, stream, 1, &err), CRUMB_ERR_ARGUMENT);
    backend->plan.destroy(plan);

    ops[1] = ops[0]; /* behind another op, and in the place of another input */
    ops[0] = r.model.ops[0];
    assert_int_equal(record(&r, ops, 2, &plan), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "before all other ops"));
    ops[0] = ops[1];
    assert_int_equal(record(&r, ops, 2, &plan), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "another input"));
    rig_close(&r);
}

static void top_is_the_largest_logits(void **state) {
    (void)state;
    static float logits[N * MINI_VOCAB], top[N * 2 * K];
    rig r;
    crumb_plan *plan;
    rig_open(&r);
    const crumb_value value = (crumb_value)r.model.n_values++;
    r.model.values[value] = (crumb_value_info){.width = 2 * K, .slot = 31};
    r.model.ops[r.model.n_ops++] = (crumb_op){.kind = CRUMB_OP_TOP, .top = {.x = r.model.logits, .out = value, .k = K}};
    OK(record(&r, r.model.ops, r.model.n_ops, &plan));
    OK(backend->plan.replay(plan, r.rows, N, &err));
    read_rows(plan, r.model.logits, N / 2, MINI_VOCAB, logits);
    read_rows(plan, value, N / 2, 2 * K, top);
    for (uint32_t n = 0; n < N / 2; n++) {
        const float *row = logits + n * MINI_VOCAB, *values = top + n * 2 * K;
        uint32_t indices[K];
        memcpy(indices, values + K, sizeof indices);
        for (uint32_t i = 0; i < K; i++) {
            uint32_t larger = 0; /* values before it in the order */
            assert_in_range(indices[i], 0, MINI_VOCAB - 1);
            assert_true(row[indices[i]] == values[i]);
            for (uint32_t t = 0; t < MINI_VOCAB; t++)
                larger += row[t] > values[i] || (row[t] == values[i] && t < indices[i]);
            assert_int_equal(larger, i);
        }
    }
    backend->plan.destroy(plan);
    r.model.ops[r.model.n_ops - 1].top.k = K + 1;
    assert_int_equal(record(&r, r.model.ops, r.model.n_ops, &plan), CRUMB_ERR_ARGUMENT);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_plans_are_one),
        cmocka_unit_test(inputs_must_be_written),
        cmocka_unit_test(top_is_the_largest_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
