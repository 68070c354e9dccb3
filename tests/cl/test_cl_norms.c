/* Norms that several linear ops read: each quantizes the norm for itself, and the norm is a launch only where it must
 * be. Plans on a device, whose results are the CPU's and the same bit for bit with each knob.
 *
 * usage: test_cl_norms TARGET   as in --target: cl:RUNG, ze:RUNG */
#include "tests/cl/small_plan.h"

#include <stdlib.h>

enum { WIDTH = 256 };

/* ---- plans --------------------------------------------------------------------------------------------------- */

typedef enum kind {
    TWO,     /* two linear ops read the norm */
    THREE,   /* three do */
    BETWEEN, /* three, of which the second reads floats: split where there are matrix instructions, over the first's
                codes */
    OVER_X,  /* the first writes where the norm's input is, which the second would have to read */
    LATER,   /* an op behind them reads it */
    ADDS,    /* the second adds it to its results */
    FLOATS,  /* the second reads floats */
    N_KINDS
} kind;
static const char *const names[] = {"two", "three", "floats between", "over x", "read later", "adds", "floats"};

static const crumb_type second[] = {CRUMB_TYPE_Q8_0, CRUMB_TYPE_Q4_1, CRUMB_TYPE_BF16, CRUMB_TYPE_Q8_0,
                                    CRUMB_TYPE_Q8_0, CRUMB_TYPE_Q8_0, CRUMB_TYPE_F32}; /* weights */

static bool splits(kind which) {
    return which == BETWEEN && strstr(target, "dpas");
}

/* Those of floats of one row are part of their launch. */
static size_t norms_of(kind which, uint32_t n) {
    if (which == TWO || which == THREE || splits(which)) return 0;
    return (which != BETWEEN && which != FLOATS) || n > 1;
}

enum { X, NORMED, FIRST, SECOND, THIRD, GATED, N_VALUES };

typedef struct scene {
    small_ops ops;
    crumb_value_info values[N_VALUES];
    size_t n_linear;
    mini_weights weights[3];
    float norm[WIDTH];
} scene;

/* The next linear op that reads the norm, with weights of its own type. */
static crumb_op *add_linear(scene *s, crumb_type type, crumb_value out, uint32_t *seed) {
    mini_weights *w = &s->weights[s->n_linear++];
    mini_weights_create(seed, type, WIDTH, WIDTH, w);
    return add_linear_of(&s->ops, w, NORMED, out);
}

static void make_scene(scene *s, kind which) {
    uint32_t seed = 5;
    *s = (scene){0};
    for (uint32_t i = 0; i < N_VALUES; i++) s->values[i] = (crumb_value_info){.width = WIDTH, .slot = i};
    for (uint32_t i = 0; i < WIDTH; i++) s->norm[i] = 0.5f + (float)(i % 7) / 8;
    if (which == OVER_X) s->values[FIRST].slot = X;
    add_op(&s->ops, CRUMB_OP_INPUT)->input.out = X;
    crumb_op *op = add_op(&s->ops, CRUMB_OP_RMS_NORM);
    op->norm.x = X;
    op->norm.out = NORMED;
    op->norm.weight = s->norm;
    op->norm.eps = 1e-5f;
    add_linear(s, which == THREE ? CRUMB_TYPE_Q8_0 : CRUMB_TYPE_Q4_0, FIRST, &seed);
    op = add_linear(s, second[which], SECOND, &seed);
    if (which == ADDS) op->linear.add = NORMED;
    if (which == THREE || which == BETWEEN) add_linear(s, CRUMB_TYPE_Q4_0, THIRD, &seed);
    if (which != LATER) return;
    op = add_op(&s->ops, CRUMB_OP_GATED);
    op->gated.gate = NORMED;
    op->gated.up = SECOND;
    op->gated.out = GATED;
    op->gated.fn = CRUMB_ACT_FN_SILU;
}

static void free_scene(scene *s) {
    for (size_t i = 0; i < s->n_linear; i++) free(s->weights[i].memory);
}

static void write_input(const small_plan *p) {
    static float x[SMALL_PLAN_ROWS * WIDTH];
    uint32_t seed = 17;
    for (size_t i = 0; i < (size_t)p->n_rows * WIDTH; i++) x[i] = next_input(&seed) * (float)(1 + i / WIDTH);
    rig_ok(p->b->plan.write(p->plan, X, x, p->n_rows, &rig_error));
}

/* out: [N_VALUES][n][WIDTH], of which those from FIRST on that the plan writes. tuned: the knobs found best, or NULL.
 */
static launch_count run(const crumb_backend *b, const char *with, const char *tuned, const scene *s, uint32_t n,
                        float *out) {
    small_plan p;
    small_plan_open(&p, b, with, tuned, &s->ops, s->values, N_VALUES, n);
    write_input(&p);
    small_plan_replay(&p);
    memset(out, 0, (size_t)N_VALUES * n * WIDTH * sizeof *out);
    for (crumb_value v = FIRST; v < N_VALUES; v++) {
        if ((v == THIRD && s->n_linear < 3) || (v == GATED && s->ops.op[s->ops.n - 1].kind != CRUMB_OP_GATED)) continue;
        small_plan_read(&p, v, WIDTH, out + (size_t)v * n * WIDTH);
    }
    small_plan_check_written(&p, NORMED, p.count.norms == 1);
    return small_plan_close(&p);
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

/* The last bit of a norm may differ from the CPU's (cl/README.md), and a code with it; bf16 rounds everything. */
static void check_near(const float *got, const float *want, uint32_t n, const char *what) {
    double error = 0, power = 0;
    for (size_t i = 0; i < (size_t)N_VALUES * n * WIDTH; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        power += (double)want[i] * want[i];
    }
    assert_true(power > 0);
    if (!(error <= (bf16 ? 1e-4 : 1e-8) * power)) fail_msg("%s, %u rows: %.2g of the power", what, n, error / power);
}

static void compare(kind which, uint32_t n) {
    static float want[N_VALUES * SMALL_PLAN_ROWS * WIDTH], got[N_VALUES * SMALL_PLAN_ROWS * WIDTH],
        tuned[N_VALUES * SMALL_PLAN_ROWS * WIDTH];
    static const char *const knobs[] = {"", "fused=1"};
    const size_t n_bytes = (size_t)N_VALUES * n * WIDTH * sizeof *got;
    scene s;
    make_scene(&s, which);
    run(&crumb_backend_cpu, "cpu", NULL, &s, n, want);
    const launch_count own = run(backend, target, NULL, &s, n, got);
    assert_int_equal(own.norms, norms_of(which, n));
    check_near(got, want, n, names[which]);
    printf("%s, %u rows: %zu launches", names[which], n, own.all);
    if (which == TWO && n == 1 && strstr(target, "dpas")) assert_int_equal(own.all, 3); /* one order for all widths */
    for (size_t i = 0; i < 2; i++) {
        const bool fused = i || fuses_always(n);
        const launch_count count = run(backend, target, knobs[i], &s, n, tuned);
        assert_int_equal(count.norms, norms_of(which, n));
        if (memcmp(tuned, got, n_bytes) != 0)
            fail_msg("%s, %u rows: not the same with '%s'", names[which], n, knobs[i]);
        printf(", %zu with fused=%zu", count.all, i);
        /* The portable kernels' codes lie in the order of their weights' width, one after another of the same are made
         * once. */
        if (which == TWO) assert_int_equal(count.all, fused ? 2 : 4);
        if (which == THREE) assert_int_equal(count.all, fused ? 3 : 5);
        if (splits(which) && n > 1) assert_int_equal(count.all, i ? 4 : 6);
        if (which == BETWEEN && n == 1) assert_int_equal(count.all, fused ? 3 : 4); /* codes are not made anew */
    }
    printf("\n");
    free_scene(&s);
}

static void norms_are_launches_where_they_must(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 7, SMALL_PLAN_ROWS};
    for (int which = 0; which < N_KINDS; which++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) compare((kind)which, rows[r]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(norms_are_launches_where_they_must)};
    const int wrong = find_target(argc, argv, "test_cl_norms");
    return wrong ? wrong : cmocka_run_group_tests(tests, NULL, NULL);
}
