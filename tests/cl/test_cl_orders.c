/* Orders of columns (GPTQ's act-order) that are read where linear ops quantize, with the norm before them, and are
 * launches only where they must be. Plans on a device, whose results are the CPU's and the same bit for bit with each
 * knob.
 *
 * usage: test_cl_orders TARGET   as in --target: cl:RUNG, ze:RUNG */
#include "tests/cl/small_plan.h"

#include <stdlib.h>

enum { WIDTH = 288 }; /* the last block of codes is filled up */

/* ---- plans --------------------------------------------------------------------------------------------------- */

typedef enum kind {
    ALONE,
    ROWS,       /* with one scale of activations for a row */
    NORM,       /* behind a norm */
    FEED,       /* a feed-forward part: norm, order, gate and up, their gate, order, down */
    TWO,        /* two linear ops read one order */
    SAME,       /* two read a norm, both in the same order: as matrices of two types are recorded */
    TWO_ORDERS, /* each in its own */
    BESIDE,     /* one reads the norm as it lies, the other in an order */
    GATE,       /* behind a gate */
    NORM_LATER, /* an op behind them reads the norm */
    NORM_ADDS,  /* the linear op adds the norm to its results */
    LATER,      /* an op behind them reads what has been ordered */
    ADDS,       /* the linear op adds it to its results */
    OVER_X,     /* the linear op writes where the order's input is */
    FLOATS,     /* the linear op reads floats */
    N_KINDS
} kind;

enum { X, NORMED, ORDERED, OTHER, FIRST, SECOND, GATED, LAST, N_VALUES };

/* Launches that are norms, orders and gates; all of the portable kernels, which read codes, or quantize by themselves;
 * which orders are read where something is quantized. */
static const struct {
    const char *name;
    size_t norms, gathers, gated, all[2];
    bool exact; /* no norm whose last bit may differ from the CPU's, and no sums of floats */
} expected[] = {
    [ALONE] = {"order", 0, 0, 0, {2, 1}, true},
    [ROWS] = {"scales of rows", 0, 0, 0, {2, 1}, true},
    [NORM] = {"norm", 0, 0, 0, {2, 1}, false},
    [FEED] = {"feed-forward", 0, 0, 0, {4, 2}, false},
    [TWO] = {"two behind one", 0, 0, 0, {3, 2}, true},
    [SAME] = {"the same twice", 0, 0, 0, {3, 2}, false},
    [TWO_ORDERS] = {"two orders", 0, 0, 0, {4, 2}, false},
    [BESIDE] = {"beside none", 0, 0, 0, {4, 2}, false},
    [GATE] = {"gate", 0, 0, 1, {3, 2}, true},
    [NORM_LATER] = {"norm read later", 1, 0, 1, {4, 3}, false},
    [NORM_ADDS] = {"adds the norm", 1, 0, 0, {3, 2}, false},
    [LATER] = {"read later", 0, 1, 1, {4, 3}, true},
    [ADDS] = {"adds", 0, 1, 0, {3, 2}, true},
    [OVER_X] = {"over x", 0, 1, 0, {3, 2}, true},
    [FLOATS] = {"floats", 1, 1, 0, {3, 3}, false},
};

typedef struct scene {
    kind kind;
    small_ops ops;
    crumb_value_info values[N_VALUES];
    bool compared[N_VALUES];
    size_t n_linear;
    mini_weights weights[3];
    float norm[WIDTH];
    uint32_t order[2][WIDTH];
    uint32_t seed;
} scene;

static void add_norm(scene *s) {
    crumb_op *op = add_op(&s->ops, CRUMB_OP_RMS_NORM);
    op->norm.x = X;
    op->norm.out = NORMED;
    op->norm.weight = s->norm;
    op->norm.eps = 1e-5f;
}

static void add_order(scene *s, crumb_value x, crumb_value out, const uint32_t *order) {
    crumb_op *op = add_op(&s->ops, CRUMB_OP_GATHER);
    op->gather.x = x;
    op->gather.out = out;
    op->gather.from = order;
}

static void add_gate(scene *s, crumb_value gate, crumb_value up) {
    crumb_op *op = add_op(&s->ops, CRUMB_OP_GATED);
    op->gated.gate = gate;
    op->gated.up = up;
    op->gated.out = GATED;
    op->gated.fn = CRUMB_ACT_FN_SILU;
}

static const mini_weights *make_weights(scene *s, crumb_type type) {
    mini_weights *w = &s->weights[s->n_linear++];
    mini_weights_create(&s->seed, type, WIDTH, WIDTH, w);
    return w;
}

static crumb_op *add_linear(scene *s, crumb_type type, crumb_value x, crumb_value out) {
    s->compared[out] = true;
    return add_linear_of(&s->ops, make_weights(s, type), x, out);
}

/* Gate and up in one op, behind a norm and an order, and down behind the other order. */
static void add_feed_forward(scene *s) {
    add_norm(s);
    add_order(s, NORMED, ORDERED, s->order[0]);
    crumb_op *op = add_linear_of(&s->ops, make_weights(s, CRUMB_TYPE_Q4_0), ORDERED, FIRST);
    const mini_weights *up = make_weights(s, CRUMB_TYPE_Q4_0);
    op->linear.part[op->linear.n_parts++] =
        (crumb_linear_part){.w = &up->matrix, .m1 = WIDTH, .out = SECOND, .out_scale = 1};
    add_gate(s, FIRST, SECOND);
    add_order(s, GATED, OTHER, s->order[1]);
    add_linear(s, CRUMB_TYPE_Q4_0, OTHER, LAST);
}

/* Two linear ops that read the norm, the second in an order, and the first too but for BESIDE. */
static void add_two_readers(scene *s) {
    add_norm(s);
    if (s->kind != BESIDE) add_order(s, NORMED, ORDERED, s->order[0]);
    add_linear(s, CRUMB_TYPE_Q8_0, s->kind == BESIDE ? NORMED : ORDERED, FIRST);
    add_order(s, NORMED, OTHER, s->order[s->kind == TWO_ORDERS]);
    add_linear(s, CRUMB_TYPE_Q8_0, OTHER, SECOND);
}

static void add_one_reader(scene *s) {
    const bool norm = !expected[s->kind].exact;
    if (norm) add_norm(s);
    if (s->kind == GATE) add_gate(s, X, X);
    add_order(s, s->kind == GATE ? GATED : norm ? NORMED : X, ORDERED, s->order[0]);
    crumb_op *op = add_linear(s, s->kind == FLOATS ? CRUMB_TYPE_F32 : CRUMB_TYPE_Q4_0, ORDERED, FIRST);
    if (s->kind == ROWS) op->linear.act = CRUMB_ACT_ROW;
    if (s->kind == ADDS) op->linear.add = ORDERED;
    if (s->kind == NORM_ADDS) op->linear.add = NORMED;
    if (s->kind == TWO) add_linear(s, CRUMB_TYPE_Q4_1, ORDERED, SECOND);
    if (s->kind == OVER_X) s->values[FIRST].slot = X;
    if (s->kind != LATER && s->kind != NORM_LATER) return;
    add_gate(s, FIRST, s->kind == LATER ? ORDERED : NORMED);
    s->compared[GATED] = true;
}

static void shuffle(uint32_t *seed, uint32_t *order) {
    for (uint32_t i = 0; i < WIDTH; i++) order[i] = i;
    for (uint32_t i = WIDTH; i > 1; i--) {
        const uint32_t other = (uint32_t)((next_input(seed) + 1) / 2 * (float)i) % i, kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
}

static void make_scene(scene *s, kind which) {
    *s = (scene){.kind = which, .seed = 5};
    for (uint32_t i = 0; i < N_VALUES; i++) s->values[i] = (crumb_value_info){.width = WIDTH, .slot = i};
    for (uint32_t i = 0; i < WIDTH; i++) s->norm[i] = 0.5f + (float)(i % 7) / 8;
    for (int i = 0; i < 2; i++) shuffle(&s->seed, s->order[i]);
    add_op(&s->ops, CRUMB_OP_INPUT)->input.out = X;
    if (which == FEED)
        add_feed_forward(s);
    else if (which == SAME || which == TWO_ORDERS || which == BESIDE)
        add_two_readers(s);
    else
        add_one_reader(s);
}

static void free_scene(scene *s) {
    for (size_t i = 0; i < s->n_linear; i++) free(s->weights[i].memory);
}

/* Columns grow, so that scales of groups tell another order. */
static void write_input(const small_plan *p) {
    static float x[SMALL_PLAN_ROWS * WIDTH];
    uint32_t seed = 17;
    for (size_t i = 0; i < (size_t)p->n_rows * WIDTH; i++)
        x[i] = next_input(&seed) * (float)(1 + i / WIDTH) * (1 + (float)(i % WIDTH) / 32);
    rig_ok(p->b->plan.write(p->plan, X, x, p->n_rows, &rig_error));
}

/* out: [N_VALUES][n][WIDTH], zeros but for the values that are compared. tuned: the knobs found best, or NULL. */
static launch_count run(const crumb_backend *b, const char *with, const char *tuned, const scene *s, uint32_t n,
                        float *out) {
    small_plan p;
    small_plan_open(&p, b, with, tuned, &s->ops, s->values, N_VALUES, n);
    write_input(&p);
    small_plan_replay(&p);
    memset(out, 0, (size_t)N_VALUES * n * WIDTH * sizeof *out);
    for (crumb_value v = 0; v < N_VALUES; v++)
        if (s->compared[v]) small_plan_read(&p, v, WIDTH, out + (size_t)v * n * WIDTH);
    if (s->kind != BESIDE) small_plan_check_written(&p, ORDERED, p.count.gathers == 1);
    if (s->kind == FEED || s->kind == BESIDE) small_plan_check_written(&p, OTHER, false);
    return small_plan_close(&p);
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

static void check_launches(const launch_count *count, kind which) {
    const char *name = expected[which].name;
    if (count->norms != expected[which].norms) fail_msg("%s: %zu norms are launches", name, count->norms);
    if (count->gathers != expected[which].gathers) fail_msg("%s: %zu orders are launches", name, count->gathers);
    if (count->gated != expected[which].gated) fail_msg("%s: %zu gates are launches", name, count->gated);
}

/* As test_cl_norms has it, but bit for bit where there is no norm; and up to three values in turn are rounded to bf16.
 */
static void check_results(const float *got, const float *want, uint32_t n, kind which) {
    double error = 0, power = 0;
    for (size_t i = 0; i < (size_t)N_VALUES * n * WIDTH; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        power += (double)want[i] * want[i];
    }
    assert_true(power > 0);
    if (!(error <= (bf16 ? 1e-3 : expected[which].exact ? 0 : 1e-8) * power))
        fail_msg("%s, %u rows: %.2g of the power", expected[which].name, n, error / power);
}

static void compare(kind which, uint32_t n) {
    static float want[N_VALUES * SMALL_PLAN_ROWS * WIDTH], got[N_VALUES * SMALL_PLAN_ROWS * WIDTH],
        tuned[N_VALUES * SMALL_PLAN_ROWS * WIDTH];
    static const char *const knobs[] = {"", "fused=1"};
    scene s;
    make_scene(&s, which);
    run(&crumb_backend_cpu, "cpu", NULL, &s, n, want);
    const launch_count own = run(backend, target, NULL, &s, n, got);
    check_launches(&own, which);
    check_results(got, want, n, which);
    printf("%s, %u rows: %zu launches", expected[which].name, n, own.all);
    for (size_t i = 0; i < 2; i++) {
        const launch_count count = run(backend, target, knobs[i], &s, n, tuned);
        check_launches(&count, which);
        if (memcmp(tuned, got, (size_t)N_VALUES * n * WIDTH * sizeof *got) != 0)
            fail_msg("%s, %u rows: not the same with '%s'", expected[which].name, n, knobs[i]);
        printf(", %zu with fused=%zu", count.all, i);
        if (which != FLOATS) assert_int_equal(count.all, expected[which].all[i || fuses_always(n)]);
    }
    printf("\n");
    free_scene(&s);
}

static void orders_are_launches_where_they_must(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 7, SMALL_PLAN_ROWS};
    for (int which = 0; which < N_KINDS; which++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) compare((kind)which, rows[r]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(orders_are_launches_where_they_must)};
    const int wrong = find_target(argc, argv, "test_cl_orders");
    return wrong ? wrong : cmocka_run_group_tests(tests, NULL, NULL);
}
