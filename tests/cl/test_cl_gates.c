/* Gates that no linear op before them computes: they go into the launch that quantizes for the linear op behind them,
 * where that reads codes, and are launches of their own where they must. Plans on a device, whose results are the CPU's
 * bit for bit and the same by either way.
 *
 * usage: test_cl_gates TARGET   as in --target: cl:RUNG, ze:RUNG. Exits with 77 where there is no such device. */
#include "host/kernel/tuning.h"
#include "tests/kernels/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { M = 40, MOST_ROWS = 40, MOST_VALUES = 6, MOST_OPS = 8 };

static const crumb_backend *backend;
static const char *target;
static bool bf16; /* values between ops are: results are not the CPU's */

/* ---- launches ------------------------------------------------------------------------------------------------ */

/* Of the plan that was recorded last. */
typedef struct launch_count {
    size_t all, gated, quantize;
} launch_count;

static void count_launches(void *user, crumb_log_level level, const char *message) {
    launch_count *count = user;
    char name[64];
    size_t n;
    int length;
    (void)level;
    const char *plan = strstr(message, "a plan for ");
    if (!plan || sscanf(plan, "a plan for %*u rows is %zu kernels", &n) != 1) return;
    *count = (launch_count){.all = n};
    plan = strstr(plan, "scratch:");
    assert_non_null(plan);
    for (plan = strchr(plan, ' '); plan && sscanf(plan, " %zu %63s%n", &n, name, &length) == 2; plan += length) {
        if (strncmp(name, "gated", 5) == 0) count->gated += n;
        if (strncmp(name, "quantize", 8) == 0) count->quantize += n;
    }
}

/* What "has been tuned": for every layer the portable kernel of its weights, with the knobs that `tuning` is. */
static crumb_status find_tuning(crumb_tuning *tuning, const crumb_tuning_key *key, crumb_tuning_record *out,
                                bool *found, crumb_error *err) {
    (void)err;
    *out = (crumb_tuning_record){.key = *key, .ratio = 1};
    snprintf(out->kernel, sizeof out->kernel, "linear_%s_gemm__portable%s", key->weights, bf16 ? "_bf16" : "");
    snprintf(out->knobs, sizeof out->knobs, "%s", (const char *)(void *)tuning);
    *found = true;
    return CRUMB_OK;
}

/* ---- plans --------------------------------------------------------------------------------------------------- */

typedef struct form {
    crumb_type type; /* of the weights behind the gate */
    crumb_act_quant act;
    uint32_t k;
    crumb_activation_fn fn;
} form;

static const form forms[] = {
    {CRUMB_TYPE_TQ2_0, CRUMB_ACT_ROW, 768, CRUMB_ACT_FN_RELU2},
    {CRUMB_TYPE_TQ2_0, CRUMB_ACT_ROW, 256, CRUMB_ACT_FN_SILU},
    {CRUMB_TYPE_Q4_0, CRUMB_ACT_GROUP, 96, CRUMB_ACT_FN_SILU},
    {CRUMB_TYPE_Q4_1, CRUMB_ACT_GROUP, 320, CRUMB_ACT_FN_RELU2},
    {CRUMB_TYPE_Q8_0, CRUMB_ACT_GROUP, 288, CRUMB_ACT_FN_SILU},
};

typedef enum kind {
    FREE,    /* the gate's inputs are the host's, and one linear op reads its result, which lies in the gate's place */
    LAYER,   /* gate and up are made by one op, of weights of two types */
    APART,   /* the gate's result has a place of its own */
    TWICE,   /* two linear ops read it */
    OVER_UP, /* the linear op writes where up is */
    DENSE,   /* the linear op's weights are not quantized */
    N_KINDS
} kind;
static const char *const names[] = {"free", "layer", "apart", "read twice", "over up", "dense"};
static const bool quantized[] = {true, true, true, false, false, false};

enum { GATE, UP, IN, OUT, RESULT, MORE };

typedef struct scene {
    const form *f;
    kind kind;
    crumb_op ops[MOST_OPS];
    crumb_value_info values[MOST_VALUES];
    size_t n_ops;
    crumb_value inputs[3], out;
    size_t n_inputs;
    mini_weights down, more, gate, up;
} scene;

static crumb_op *add_op(scene *s, crumb_op_kind op) {
    s->ops[s->n_ops].kind = op;
    return &s->ops[s->n_ops++];
}

static void add_input(scene *s, crumb_value v) {
    add_op(s, CRUMB_OP_INPUT)->input.out = v;
    s->inputs[s->n_inputs++] = v;
}

static crumb_linear_part part_of(const mini_weights *w, crumb_value out) {
    return (crumb_linear_part){.w = &w->matrix, .m1 = w->matrix.m, .out = out, .out_scale = 1};
}

static void add_linear(scene *s, const mini_weights *w, crumb_value x, crumb_value out, crumb_value add) {
    crumb_op *op = add_op(s, CRUMB_OP_LINEAR);
    op->linear.x = x;
    op->linear.add = add;
    op->linear.act = w->matrix.bits ? s->f->act : CRUMB_ACT_F32;
    op->linear.act_group = 32;
    op->linear.n_parts = 1;
    op->linear.part[0] = part_of(w, out);
}

/* gate and up by one op, each its own type: 256 values in. */
static void add_unlike(scene *s) {
    add_input(s, IN);
    add_linear(s, &s->gate, IN, GATE, CRUMB_NO_VALUE);
    crumb_op *op = &s->ops[s->n_ops - 1];
    op->linear.part[op->linear.n_parts++] = part_of(&s->up, UP);
    op->linear.act = CRUMB_ACT_GROUP;
}

static void make_scene(scene *s, const form *f, kind which) {
    uint32_t seed = 3;
    const uint32_t widths[MOST_VALUES] = {f->k, f->k, 256, M, f->k, M};
    *s = (scene){.f = f, .kind = which, .out = OUT};
    for (uint32_t i = 0; i < MOST_VALUES; i++) s->values[i] = (crumb_value_info){.width = widths[i], .slot = i};
    if (which == OVER_UP) s->values[OUT].slot = UP;
    mini_weights_create(&seed, which == DENSE ? CRUMB_TYPE_F32 : f->type, M, f->k, &s->down);
    mini_weights_create(&seed, f->type, M, f->k, &s->more);
    mini_weights_create(&seed, CRUMB_TYPE_Q4_0, f->k, 256, &s->gate);
    mini_weights_create(&seed, CRUMB_TYPE_Q8_0, f->k, 256, &s->up);
    if (which != OVER_UP) add_input(s, OUT); /* what the linear op adds to */
    if (which == LAYER) {
        add_unlike(s);
    } else {
        add_input(s, GATE);
        add_input(s, UP);
    }
    const crumb_value result = which == APART ? RESULT : GATE;
    crumb_op *gated = add_op(s, CRUMB_OP_GATED);
    gated->gated.gate = GATE;
    gated->gated.up = UP;
    gated->gated.out = result;
    gated->gated.fn = f->fn;
    add_linear(s, &s->down, result, OUT, which == OVER_UP ? CRUMB_NO_VALUE : OUT);
    if (which == TWICE) add_linear(s, &s->more, result, MORE, OUT);
    if (which == TWICE) s->out = MORE;
}

static void free_scene(scene *s) {
    free(s->down.memory), free(s->more.memory), free(s->gate.memory), free(s->up.memory);
}

/* Gates of up to 30, a row of zeros among them. */
static void write_inputs(const crumb_backend *b, crumb_plan *plan, const scene *s, uint32_t n) {
    uint32_t seed = 17;
    for (size_t i = 0; i < s->n_inputs; i++) {
        const uint32_t width = s->values[s->inputs[i]].width;
        float *x = malloc((size_t)n * width * sizeof *x);
        assert_non_null(x);
        for (size_t j = 0; j < (size_t)n * width; j++) {
            seed = seed * 1664525u + 1013904223u;
            x[j] = j / width == 1 ? 0 : ((float)(seed >> 8) / 8388608 - 1) * 30;
        }
        rig_ok(b->plan.write(plan, s->inputs[i], x, n, &rig_error));
        free(x);
    }
}

/* out: [n][M]. tuned: the knobs that were found best, or NULL. */
static launch_count run(const crumb_backend *b, const char *with, const char *tuned, const scene *s, uint32_t n,
                        float *out) {
    launch_count count = {0};
    crumb_device *d;
    crumb_plan *plan;
    crumb_row rows[MOST_ROWS];
    const float *got;
    uint32_t n_got;
    char knobs[16] = ""; /* stands for the database, which only find_tuning looks into */
    if (tuned) snprintf(knobs, sizeof knobs, "%s", tuned);
    const crumb_device_params params = {.target = with,
                                        .n_threads = 2,
                                        .log = count_launches,
                                        .log_user = &count,
                                        .tuning = (void *)knobs,
                                        .find_tuning = tuned ? find_tuning : NULL};
    const crumb_plan_desc desc = {.ops = s->ops,
                                  .n_ops = s->n_ops,
                                  .values = s->values,
                                  .n_values = MOST_VALUES,
                                  .max_rows = n,
                                  .max_outputs = n};
    rig_ok(b->device.open(&params, &d, &rig_error));
    rig_ok(b->plan.record(d, &desc, &plan, &rig_error));
    write_inputs(b, plan, s, n);
    for (uint32_t i = 0; i < n; i++) rows[i] = (crumb_row){.position = i, .wants_output = true};
    rig_ok(b->plan.replay(plan, rows, n, &rig_error));
    rig_ok(b->plan.read(plan, s->out, &got, &n_got, &rig_error));
    assert_int_equal(n_got, n);
    memcpy(out, got, (size_t)n * M * sizeof *out);
    if (s->kind == APART || s->kind == FREE) { /* values of gates that were never written must not be read */
        const crumb_value result = s->kind == APART ? RESULT : GATE;
        const bool readable = b->plan.read(plan, result, &got, &n_got, &rig_error) == CRUMB_OK;
        if (b != &crumb_backend_cpu) assert_int_equal(readable, count.gated == 1);
    }
    b->plan.destroy(plan);
    b->device.close(d);
    return count;
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

static void check_bits(const float *got, const float *want, uint32_t n, const char *what) {
    for (uint32_t i = 0; i < n * M; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s, %u rows: y[%u][%u] is %a, not %a", what, n, i / M, i % M, (double)got[i], (double)want[i]);
}

/* By itself, and as the knobs say that are said to be best: equal results, and the launches that each should have. */
static void compare(const form *f, kind which, uint32_t n) {
    static float want[MOST_ROWS * M], got[MOST_ROWS * M], tuned[MOST_ROWS * M];
    char what[96];
    scene s;
    make_scene(&s, f, which);
    snprintf(what, sizeof what, "%s, type %d, %u wide", names[which], (int)f->type, f->k);
    const bool folds = quantized[which] && !bf16;
    const launch_count own = run(backend, target, NULL, &s, n, got);
    if (own.gated != !folds) fail_msg("%s, %u rows: %zu gates are launches", what, n, own.gated);
    run(&crumb_backend_cpu, "cpu", NULL, &s, n, want);
    if (!bf16) check_bits(got, want, n, what);
    if (which != DENSE) {
        const launch_count plain = run(backend, target, "", &s, n, tuned);
        assert_int_equal(plain.gated, !folds);
        check_bits(tuned, got, n, "fused=0");
        const launch_count fused = run(backend, target, "fused=1", &s, n, tuned);
        check_bits(tuned, got, n, "fused=1");
        assert_int_equal(fused.gated, 1); /* each work-group quantizes, and would gate */
        assert_int_equal(fused.quantize, 0);
        if (which == FREE) assert_int_equal(fused.all, 2);
        if (folds) assert_int_equal(plain.all, which == LAYER ? 6 : 2);
        if (which == FREE || which == LAYER)
            printf("%s, %u rows: %zu launches; %zu with fused=0, %zu with fused=1\n", what, n, own.all, plain.all,
                   fused.all);
    }
    free_scene(&s);
}

static void gates_are_quantized_where_they_may(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 7, MOST_ROWS};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        for (int which = 0; which < N_KINDS; which++) {
            if (which != FREE && i != 0 && i != 2) continue;
            for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) compare(&forms[i], (kind)which, rows[r]);
        }
}

/* The same ops, but for where the linear op writes: a launch less where the gate is quantized at once. */
static void a_launch_less(void **state) {
    (void)state;
    float out[7 * M];
    scene s;
    make_scene(&s, &forms[2], OVER_UP);
    const launch_count apart = run(backend, target, NULL, &s, 7, out);
    free_scene(&s);
    make_scene(&s, &forms[2], FREE);
    const launch_count at_once = run(backend, target, NULL, &s, 7, out);
    free_scene(&s);
    assert_int_equal(apart.all, 3);
    assert_int_equal(at_once.all, bf16 ? 3 : 2);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gates_are_quantized_where_they_may),
        cmocka_unit_test(a_launch_less),
    };
    char name[8] = "";
    if (argc != 2) {
        fprintf(stderr, "usage: test_cl_gates TARGET\n");
        return 2;
    }
    target = argv[1];
    bf16 = strstr(target, "+bf16") != NULL;
    snprintf(name, sizeof name, "%.2s", target);
    if (!rig_find_device(name, target, &backend)) {
        fprintf(stderr, "skipped: %s\n", rig_error.message);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
