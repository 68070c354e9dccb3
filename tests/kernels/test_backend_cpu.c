/* What only the CPU backend has: tiers that agree to the bit, what its devices say, plans that wait for each other. */
#include "cpu/divide.h"
#include "cpu/plan.h"
#include "host/base/thread.h"
#include "host/kernel/rendezvous.h"
#include "tests/kernels/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const crumb_backend *const backend = &crumb_backend_cpu;

/* Every tier that this machine has computes what the scalar one does. */
static void tiers_agree(void **state) {
    (void)state;
    static float expected[RIG_LOGITS], logits[RIG_LOGITS];
    for (int type = CRUMB_KV_F16; type <= CRUMB_KV_Q8; type++) {
        rig_params params = {backend, "cpu:scalar", CRUMB_ACT_GROUP, (crumb_kv_type)type, 2, 40, false, NULL};
        rig_feed(&params, 40, expected);
        for (crumb_isa isa = CRUMB_ISA_AVX2; isa < CRUMB_ISA_COUNT; isa++) {
            if (!crumb_isa_available(isa)) continue;
            char target[32];
            snprintf(target, sizeof target, "cpu:%s", crumb_isa_name(isa));
            params.target = target;
            rig_feed(&params, 40, logits);
            assert_memory_equal(logits, expected, sizeof logits);
        }
    }
}

enum { MIX_PARTS = 3, MIX_M = 48, MIX_ROWS = 40 };

/* Three types that share x: 4-bit codes and a codebook, whose activations are quantized alike, and 8 bits. Their sums
 * in `y`, one part after the other, on a tier. */
static void multiply_mixed(const char *target, float y[MIX_PARTS * MIX_ROWS * MIX_M]) {
    static const crumb_type types[MIX_PARTS] = {CRUMB_TYPE_Q4_0, CRUMB_TYPE_IQ4_NL, CRUMB_TYPE_Q8_0};
    uint32_t state = 7, n_out;
    mini_weights table, w[MIX_PARTS];
    crumb_op ops[2] = {{.kind = CRUMB_OP_EMBED}, {.kind = CRUMB_OP_LINEAR}};
    crumb_value_info values[1 + MIX_PARTS] = {{.width = MINI_HIDDEN, .slot = 0}};
    crumb_row rows[MIX_ROWS];
    crumb_device *d;
    crumb_plan *plan;
    const float *out;
    mini_weights_create(&state, CRUMB_TYPE_F32, MINI_VOCAB, MINI_HIDDEN, &table);
    ops[0].embed.table = &table.matrix;
    ops[0].embed.scale = 1;
    ops[1].linear.add = CRUMB_NO_VALUE;
    ops[1].linear.act = CRUMB_ACT_GROUP;
    ops[1].linear.act_group = 32;
    ops[1].linear.n_parts = MIX_PARTS;
    for (int i = 0; i < MIX_PARTS; i++) {
        mini_weights_create(&state, types[i], MIX_M, MINI_HIDDEN, &w[i]);
        values[1 + i] = (crumb_value_info){.width = MIX_M, .slot = 1u + (uint32_t)i};
        ops[1].linear.part[i] =
            (crumb_linear_part){.w = &w[i].matrix, .m1 = MIX_M, .out = (crumb_value)(1 + i), .out_scale = 1};
    }
    for (int i = 0; i < MIX_ROWS; i++) rows[i] = (crumb_row){.token = i % MINI_VOCAB, .position = (uint32_t)i};
    const crumb_plan_desc desc = {
        .ops = ops, .n_ops = 2, .values = values, .n_values = 1 + MIX_PARTS, .max_rows = MIX_ROWS};
    rig_ok(backend->device.open(&(crumb_device_params){.target = target, .n_threads = 2}, &d, &rig_error));
    rig_ok(backend->plan.record(d, &desc, &plan, &rig_error));
    rig_ok(backend->plan.replay(plan, rows, MIX_ROWS, &rig_error));
    for (int i = 0; i < MIX_PARTS; i++) {
        rig_ok(backend->plan.read(plan, (crumb_value)(1 + i), &out, &n_out, &rig_error));
        assert_int_equal(n_out, MIX_ROWS);
        memcpy(y + i * MIX_ROWS * MIX_M, out, MIX_ROWS * MIX_M * sizeof *y);
        free(w[i].memory);
    }
    free(table.memory);
    backend->plan.destroy(plan);
    backend->device.close(d);
}

/* A tier's GEMM may want the same activations in several orders. */
static void parts_of_several_types_share_x(void **state) {
    (void)state;
    static float expected[MIX_PARTS * MIX_ROWS * MIX_M], y[MIX_PARTS * MIX_ROWS * MIX_M];
    multiply_mixed("cpu:scalar", expected);
    for (crumb_isa isa = CRUMB_ISA_AVX2; isa < CRUMB_ISA_COUNT; isa++) {
        if (!crumb_isa_available(isa)) continue;
        char target[32];
        snprintf(target, sizeof target, "cpu:%s", crumb_isa_name(isa));
        multiply_mixed(target, y);
        assert_memory_equal(y, expected, sizeof y);
    }
}

/* Parts that no machine would have, in the order 1 : 2 : 3 ..., so that a share's end is no chunk's. */
static void skew(crumb_device *d, int n_threads) {
    for (int class = 0; class < CRUMB_BALANCE_CLASSES; class ++)
        for (int phase = 0; phase < CRUMB_BALANCE_PHASES; phase++) {
            crumb_balance *b = &d->balances[class][phase];
            crumb_balance_init(b, n_threads);
            b->fixed = true;
            for (int i = 0; i < n_threads; i++)
                b->ratio[i] = 2.0f * (float)(i + 1) / (float)(n_threads * (n_threads + 1));
        }
}

static void feed_in_batches(rig *r, uint32_t batch, float *logits) {
    crumb_row rows[RIG_TOKENS];
    for (uint32_t t = 0, n; t < RIG_TOKENS; t += n) {
        n = RIG_TOKENS - t < batch ? RIG_TOKENS - t : batch;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = (crumb_row){.token = rig_token(1, t + i), .sequence = 1, .position = t + i, .wants_output = true};
        rig_replay(r, rows, n, logits + (size_t)t * MINI_VOCAB);
    }
}

/* Chunks, shares by what is measured or by odd ratios, and both in turns: the same bits. */
static void division_changes_nothing(void **state) {
    (void)state;
    static float expected[RIG_LOGITS], logits[RIG_LOGITS];
    const char *const ways[] = {"split", "chunks", "auto"};
    const rig_params one = {backend, NULL, CRUMB_ACT_GROUP, CRUMB_KV_F16, 1, 40, false, NULL};
    rig_feed(&one, 40, expected);
    for (int n_threads = 2; n_threads <= 6; n_threads += 2)
        for (int way = 0; way < 3; way++)
            for (int skewed = 0; skewed < 2; skewed++) {
                rig r;
                rig_params params = one;
                params.n_threads = n_threads;
                params.balance = ways[way];
                rig_open(&r, &params);
                if (skewed) skew(r.device, n_threads);
                feed_in_batches(&r, skewed ? 40 : 1, logits);
                assert_memory_equal(logits, expected, sizeof logits);
                rig_close(&r);
            }
}

static uint32_t units_of(const crumb_step *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < (s->linear.gated ? 1 : s->linear.n_parts); i++)
        n += s->linear.parts[i].tile1 - s->linear.parts[i].tile0;
    return n;
}

/* Weights are fetched for a thread where it began in the next matrix last time: what it remembers lies in that matrix,
 * and behind any step, and for threads that have taken nothing of the next, it may be asked for. */
static void threads_know_where_they_begin_next(void **state) {
    (void)state;
    enum { THREADS = 3 };
    static float logits[RIG_LOGITS];
    const rig_params params = {backend, NULL, CRUMB_ACT_GROUP, CRUMB_KV_F16, THREADS, 40, false, "split"};
    rig r;
    rig_open(&r, &params);
    for (uint32_t step = 0; step < r.plan->n_steps; step++) /* before the first replay */
        for (int thread = 0; thread < THREADS; thread++) crumb_linear_fetch_next(r.plan, step, thread);
    feed_in_batches(&r, 1, logits);
    uint32_t n_linear = 0;
    for (uint32_t step = 0; step < r.plan->n_steps; step++) {
        const crumb_step *s = &r.plan->steps[step];
        uint32_t n_taken = 0;
        for (int thread = 0; thread < THREADS; thread++) {
            crumb_linear_fetch_next(r.plan, step, thread);
            if (s->kind != &crumb_step_linear) continue;
            const crumb_units *units = (const void *)(crumb_plan_thread(r.plan, thread) + r.plan->local_units);
            assert_in_range(units[step].end, units[step].begin, units_of(s));
            n_taken += units[step].begin < units[step].end;
        }
        if (s->kind != &crumb_step_linear) continue;
        assert_true(n_taken > 0);
        n_linear++;
    }
    assert_true(n_linear > 0);
    rig_close(&r);
}

static void devices_say_what_they_are(void **state) {
    (void)state;
    crumb_device *d;
    crumb_device_info info;
    crumb_device_params params = {.target = "cpu:scalar", .n_threads = 3};
    rig_ok(backend->device.open(&params, &d, &rig_error));
    backend->device.get_info(d, &info);
    assert_string_equal(info.name, "cpu");
    assert_string_equal(info.target, "scalar");
    assert_int_equal(info.n_threads, 3);
    assert_true(info.host_memory && info.memory_bytes > info.memory_free_bytes && strlen(info.detail) > 0);
    backend->device.close(d);
    params.target = "cpu:sse9";
    assert_int_equal(backend->device.open(&params, &d, &rig_error), CRUMB_ERR_ARGUMENT);
    params.target = "gpu";
    assert_int_equal(backend->device.open(&params, &d, &rig_error), CRUMB_ERR_ARGUMENT);
    params = (crumb_device_params){.n_threads = 100000};
    assert_int_equal(backend->device.open(&params, &d, &rig_error), CRUMB_ERR_ARGUMENT);
    params.n_threads = 1;
    rig_ok(backend->device.open(&params, &d, &rig_error));
    crumb_kv_cache *kv;
    uint64_t n_bytes;
    crumb_kv_params large = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, CRUMB_KV_F16, NULL};
    assert_int_equal(backend->device.kv_create(d, &large, &kv, &n_bytes, &rig_error), CRUMB_ERR_MEMORY);
    large.type = CRUMB_KV_Q8;
    assert_int_equal(backend->device.kv_create(d, &large, &kv, &n_bytes, &rig_error), CRUMB_ERR_MEMORY);
    large.type = (crumb_kv_type)2;
    assert_int_equal(backend->device.kv_create(d, &large, &kv, &n_bytes, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_int_equal(backend->device.kv_create(d, &(crumb_kv_params){0}, &kv, &n_bytes, &rig_error),
                     CRUMB_ERR_ARGUMENT);
    backend->device.close(d);
    params.cpu_kind = "fast";
    assert_int_equal(backend->device.open(&params, &d, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(rig_error.message, "auto, p, e and all"));
    params = (crumb_device_params){.balance = "halves"};
    assert_int_equal(backend->device.open(&params, &d, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(rig_error.message, "auto, split and chunks"));
}

/* Ternary weights take 1.6 bits where a core gets few bytes from memory, 2 where it gets many; 1 bit is looked up
 * whatever it gets, but multiplied on zmm registers. */
static void layouts_follow_what_a_core_gets(void **state) {
    (void)state;
    const struct {
        const char *target;
        int n_threads;
        crumb_core_speeds cores;
        uint32_t index_bits;
    } cases[] = {{"cpu:scalar", 1, {1, 4}, 0},
                 {"cpu:avx2", 2, {30, 4}, 1 << 1 | 1 << 2},
                 {"cpu:avx2", 2, {30, 3}, 1 << 1}, /* as many bytes a second, more of them a cycle */
                 {"cpu:avx2", 2, {40, 4}, 1 << 1},
                 {"cpu:avx2", 2, {40, 5.2}, 1 << 1 | 1 << 2},
                 {"cpu:avx2", 4, {60, 0}, 1 << 1 | 1 << 2},
                 {"cpu:avx2", 1, {30, 4}, 1 << 1},
                 {"cpu:avx2", 2, {0, 0}, 1 << 1}, /* unknown: a usual machine's */
                 {"cpu:avx2", 4, {0, 0}, 1 << 1 | 1 << 2},
                 {"cpu:avx512vnni", 2, {30, 4}, 1 << 2},
                 {"cpu:avx512vnni", 2, {50, 4}, 0},
                 {"cpu:avx512vbmi", 2, {45, 4}, 1 << 2},
                 {"cpu:avx512vbmi", 2, {50, 4}, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const crumb_device_params params = {
            .target = cases[i].target, .n_threads = cases[i].n_threads, .cores = cases[i].cores};
        crumb_isa isa;
        crumb_device *d;
        crumb_device_info info;
        assert_true(crumb_isa_parse(cases[i].target + 4, &isa));
        if (!crumb_isa_available(isa)) {
            print_message("SKIPPED: layouts of %s, which this processor lacks\n", cases[i].target);
            continue;
        }
        rig_ok(backend->device.open(&params, &d, &rig_error));
        backend->device.get_info(d, &info);
        backend->device.close(d);
        assert_int_equal(info.index_bits, cases[i].index_bits);
    }
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
    rig_ok(backend->device.open(&(crumb_device_params){.n_threads = 1 + index}, &h->device, &rig_error));
    rig_ok(backend->plan.record(h->device, &(crumb_plan_desc){.ops = ops, .n_ops = 2, .max_rows = 1}, &h->plan,
                                &rig_error));
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
    rig_ok(crumb_thread_start(exchange, &halves[1], &thread, &rig_error));
    exchange(&halves[0]);
    crumb_thread_join(thread);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(halves[i].status, CRUMB_OK);
        assert_int_equal(flags[i], EXCHANGES);
        backend->plan.destroy(halves[i].plan);
        backend->device.close(halves[i].device);
    }
}

/* A signal that never comes: the limit of the environment ends the wait, or the other's word that it has given up, at
 * once; afterwards the plan runs again. */
static void nobody_is_waited_for_in_vain(void **state) {
    (void)state;
    uint32_t flag = 0, given_up = 0;
    crumb_device *d;
    crumb_plan *plan;
    const crumb_op op = {.kind = CRUMB_OP_WAIT, .rendezvous = {.flag = &flag, .given_up = &given_up}};
    rig_ok(backend->device.open(&(crumb_device_params){.n_threads = 2}, &d, &rig_error));
    rig_ok(backend->plan.record(d, &(crumb_plan_desc){.ops = &op, .n_ops = 1, .max_rows = 1}, &plan, &rig_error));
    setenv("CRUMB_PATIENCE_MS", "300", 1);
    uint64_t begin = crumb_now_ns();
    assert_int_equal(backend->plan.replay(plan, &(crumb_row){0}, 1, &rig_error), CRUMB_ERR_DEVICE);
    assert_in_range((crumb_now_ns() - begin) / 1000000, 300, 20000);
    unsetenv("CRUMB_PATIENCE_MS");
    given_up = 1;
    begin = crumb_now_ns();
    assert_int_equal(backend->plan.replay(plan, &(crumb_row){0}, 1, &rig_error), CRUMB_ERR_DEVICE);
    assert_in_range((crumb_now_ns() - begin) / 1000000, 0, 20000);
    given_up = 0;
    flag = 3;
    rig_ok(backend->plan.replay(plan, &(crumb_row){0}, 1, &rig_error));
    backend->plan.destroy(plan);
    backend->device.close(d);
}

static void patience_is_what_the_environment_says(void **state) {
    const struct {
        const char *text;
        uint64_t ns;
    } cases[] = {{"1500", 1500000000}, {"0", UINT64_MAX}, {"99999999999999999999", UINT64_MAX},
                 {"", 7000000},        {"-1", 7000000},   {"12s", 7000000}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("CRUMB_PATIENCE_MS", cases[i].text, 1);
        assert_true(crumb_patience_ns(7) == cases[i].ns);
    }
    unsetenv("CRUMB_PATIENCE_MS");
    assert_true(crumb_patience_ns(7) == 7000000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiers_agree),
        cmocka_unit_test(parts_of_several_types_share_x),
        cmocka_unit_test(division_changes_nothing),
        cmocka_unit_test(threads_know_where_they_begin_next),
        cmocka_unit_test(devices_say_what_they_are),
        cmocka_unit_test(layouts_follow_what_a_core_gets),
        cmocka_unit_test(plans_wait_for_each_other),
        cmocka_unit_test(nobody_is_waited_for_in_vain),
        cmocka_unit_test(patience_is_what_the_environment_says),
    };
    return cmocka_run_group_tests_name("backend_cpu", tests, NULL, NULL);
}
