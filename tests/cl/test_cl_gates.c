/* Gates that no linear op before them computes: they go into the launch that quantizes for the linear op behind them,
 * where that reads codes, and are launches of their own where they must. Plans on a device, whose results are the CPU's
 * bit for bit and the same by either way.
 *
 * usage: test_cl_gates TARGET   as in --target: cl:RUNG, ze:RUNG */
#include "tests/cl/small_plan.h"

#include <stdlib.h>

enum { M = 40, MOST_VALUES = 6 };

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
    small_ops ops;
    crumb_value_info values[MOST_VALUES];
    crumb_value inputs[3], out;
    size_t n_inputs;
    mini_weights down, more, gate, up;
} scene;

static void add_input(scene *s, crumb_value v) {
    add_op(&s->ops, CRUMB_OP_INPUT)->input.out = v;
    s->inputs[s->n_inputs++] = v;
}

static void add_linear(scene *s, const mini_weights *w, crumb_value x, crumb_value out, crumb_value add) {
    crumb_op *op = add_linear_of(&s->ops, w, x, out);
    op->linear.add = add;
    if (w->matrix.bits) op->linear.act = s->f->act;
}

/* gate and up by one op, each its own type: 256 values in. */
static void add_unlike(scene *s) {
    add_input(s, IN);
    crumb_op *op = add_linear_of(&s->ops, &s->gate, IN, GATE);
    op->linear.part[op->linear.n_parts++] =
        (crumb_linear_part){.w = &s->up.matrix, .m1 = s->up.matrix.m, .out = UP, .out_scale = 1};
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
    crumb_op *gated = add_op(&s->ops, CRUMB_OP_GATED);
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
static void write_inputs(const small_plan *p, const scene *s) {
    uint32_t seed = 17;
    for (size_t i = 0; i < s->n_inputs; i++) {
        const uint32_t width = s->values[s->inputs[i]].width;
        float *x = malloc((size_t)p->n_rows * width * sizeof *x);
        assert_non_null(x);
        for (size_t j = 0; j < (size_t)p->n_rows * width; j++) {
            const float number = next_input(&seed) * 30;
            x[j] = j / width == 1 ? 0 : number;
        }
        rig_ok(p->b->plan.write(p->plan, s->inputs[i], x, p->n_rows, &rig_error));
        free(x);
    }
}

/* out: [n][M]. tuned: the knobs that were found best, or NULL. */
static launch_count run(const crumb_backend *b, const char *with, const char *tuned, const scene *s, uint32_t n,
                        float *out) {
    small_plan p;
    small_plan_open(&p, b, with, tuned, &s->ops, s->values, MOST_VALUES, n);
    write_inputs(&p, s);
    small_plan_replay(&p);
    small_plan_read(&p, s->out, M, out);
    if (s->kind == APART || s->kind == FREE) /* values of gates that were never written must not be read */
        small_plan_check_written(&p, s->kind == APART ? RESULT : GATE, p.count.gated == 1);
    return small_plan_close(&p);
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

static void check_bits(const float *got, const float *want, uint32_t n, const char *what) {
    for (uint32_t i = 0; i < n * M; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s, %u rows: y[%u][%u] is %a, not %a", what, n, i / M, i % M, (double)got[i], (double)want[i]);
}

/* By itself, and as the knobs say that are said to be best: equal results, and the launches that each should have. */
static void compare(const form *f, kind which, uint32_t n) {
    static float want[SMALL_PLAN_ROWS * M], got[SMALL_PLAN_ROWS * M], tuned[SMALL_PLAN_ROWS * M];
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
        if (folds) assert_int_equal(plain.all, which != LAYER ? 2 : fuses_always(n) ? 4 : 6);
        if (which == FREE || which == LAYER)
            printf("%s, %u rows: %zu launches; %zu with fused=0, %zu with fused=1\n", what, n, own.all, plain.all,
                   fused.all);
    }
    free_scene(&s);
}

static void gates_are_quantized_where_they_may(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 7, SMALL_PLAN_ROWS};
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
    const int wrong = find_target(argc, argv, "test_cl_gates");
    return wrong ? wrong : cmocka_run_group_tests(tests, NULL, NULL);
}
