/* Layers of floats: matrices that read one input are one launch, with the gate behind them, and of one row with the
 * norm before them. Plans on a device, whose results are the CPU's, and of a row the same bit for bit whichever rows
 * are beside it, although one row and many have other kernels.
 *
 * usage: test_cl_dense TARGET   as in --target: cl:RUNG, ze:RUNG */
#include "tests/cl/small_plan.h"

#include <stdlib.h>

/* ---- plans --------------------------------------------------------------------------------------------------- */

enum { WIDEST = 96 };

typedef enum kind {
    HEADS,   /* norm, and three matrices of different heights, with bias */
    UNLIKE,  /* norm, and three of which the third is of another type */
    GATE,    /* norm, gate and up, the gate in gate's place, down, which is added to what was normed */
    APART,   /* the same, but the gate's result has a place of its own */
    RETURNS, /* the same, but that place is where the layer's input was */
    N_KINDS
} kind;
static const char *const names[] = {"heads", "unlike", "gate", "gate apart", "gate over the input"};

typedef struct form {
    crumb_type type;
    uint32_t k; /* matrix instructions take multiples of 32 */
    crumb_activation_fn fn;
} form;
static const form forms[] = {{CRUMB_TYPE_F16, 96, CRUMB_ACT_FN_SILU},
                             {CRUMB_TYPE_BF16, 64, CRUMB_ACT_FN_RELU2},
                             {CRUMB_TYPE_F16, 36, CRUMB_ACT_FN_RELU2},
                             {CRUMB_TYPE_F32, 96, CRUMB_ACT_FN_SILU}};

enum { X, NORMED, FIRST, SECOND, THIRD, RESULT, N_VALUES };

typedef struct scene {
    const form *f;
    kind kind;
    small_ops ops;
    crumb_value_info values[N_VALUES];
    size_t n_weights;
    mini_weights weights[3];
    float norm[WIDEST], bias[WIDEST];
    crumb_value out[3]; /* what is compared */
    size_t n_out;
} scene;

static bool gates(kind which) {
    return which >= GATE;
}

static mini_weights *make_weights(scene *s, crumb_type type, crumb_value x, crumb_value out, uint32_t *seed) {
    mini_weights *w = &s->weights[s->n_weights++];
    mini_weights_create(seed, type, s->values[out].width, s->values[x].width, w);
    return w;
}

static crumb_op *add_linear(scene *s, crumb_type type, crumb_value x, crumb_value out, uint32_t *seed) {
    crumb_op *op = add_linear_of(&s->ops, make_weights(s, type, x, out, seed), x, out);
    op->linear.part[0].out_scale = 1.25f;
    return op;
}

/* One more matrix for the op. */
static void add_part(scene *s, crumb_op *op, crumb_type type, crumb_value out, uint32_t *seed) {
    const mini_weights *w = make_weights(s, type, op->linear.x, out, seed);
    op->linear.part[op->linear.n_parts++] =
        (crumb_linear_part){.w = &w->matrix, .m1 = w->matrix.m, .out = out, .out_scale = 0.75f};
}

static void add_heads(scene *s, uint32_t *seed) {
    const crumb_type other = s->f->type == CRUMB_TYPE_F32 ? CRUMB_TYPE_F16 : CRUMB_TYPE_F32;
    crumb_op *op = add_linear(s, s->f->type, NORMED, FIRST, seed);
    add_part(s, op, s->f->type, SECOND, seed);
    add_part(s, op, s->kind == UNLIKE ? other : s->f->type, THIRD, seed);
    op->linear.part[1].bias = s->bias;
    for (crumb_value v = FIRST; v <= THIRD; v++) s->out[s->n_out++] = v;
}

static void add_gate(scene *s, uint32_t *seed) {
    const crumb_value result = s->kind == GATE ? FIRST : RESULT;
    add_part(s, add_linear(s, s->f->type, NORMED, FIRST, seed), s->f->type, SECOND, seed);
    crumb_op *op = add_op(&s->ops, CRUMB_OP_GATED);
    op->gated.gate = FIRST;
    op->gated.up = SECOND;
    op->gated.out = result;
    op->gated.fn = s->f->fn;
    op = add_linear(s, s->f->type, result, THIRD, seed);
    if (s->kind == GATE) op->linear.add = X;
    s->out[s->n_out++] = THIRD;
}

static void make_scene(scene *s, const form *f, kind which) {
    uint32_t seed = 5;
    const uint32_t of_heads[N_VALUES] = {f->k, f->k, 67, 16, 33, 1},
                   of_gate[N_VALUES] = {f->k, f->k, f->k, f->k, f->k, f->k};
    *s = (scene){.f = f, .kind = which};
    for (uint32_t i = 0; i < N_VALUES; i++)
        s->values[i] = (crumb_value_info){.width = (gates(which) ? of_gate : of_heads)[i], .slot = i};
    if (which == RETURNS) s->values[RESULT].slot = X;
    for (uint32_t i = 0; i < WIDEST; i++) s->norm[i] = 0.5f + (float)(i % 7) / 8;
    for (uint32_t i = 0; i < WIDEST; i++) s->bias[i] = (float)(i % 5) - 2;
    add_op(&s->ops, CRUMB_OP_INPUT)->input.out = X;
    crumb_op *op = add_op(&s->ops, CRUMB_OP_RMS_NORM);
    op->norm.x = X;
    op->norm.out = NORMED;
    op->norm.weight = s->norm;
    op->norm.eps = 1e-5f;
    if (gates(which))
        add_gate(s, &seed);
    else
        add_heads(s, &seed);
}

static void free_scene(scene *s) {
    for (size_t i = 0; i < s->n_weights; i++) free(s->weights[i].memory);
}

/* ---- launches ------------------------------------------------------------------------------------------------ */

/* Whether the device's matrix instructions serve weights of 16 bits of this width. */
static bool has_matrix(const form *f) {
    return strstr(target, "dpas") && f->k % 32 == 0;
}

static size_t launches_of(const scene *s, uint32_t n) {
    const bool any_matrix = has_matrix(s->f), matrix = any_matrix && s->f->type != CRUMB_TYPE_F32, one = n == 1;
    const bool joins = !matrix || n <= 8;
    const size_t prepares = !one; /* the norm, or splitting it */
    if (s->kind == HEADS) return prepares + (joins ? 1 : 3);
    if (s->kind == UNLIKE) return prepares + (joins ? 2 : 3) + (any_matrix && !one); /* a norm, and splitting it */
    return prepares + (joins ? 1 : 2) + !(joins && s->kind == GATE) + (matrix && !one) + 1;
}

/* out: what is compared, one value behind another, [n][its width]. Returns how many numbers that are. */
static size_t run(const crumb_backend *b, const char *with, const scene *s, uint32_t n, launch_count *count,
                  float *out) {
    static float x[SMALL_PLAN_ROWS * WIDEST];
    uint32_t seed = 17;
    size_t n_read = 0;
    small_plan p;
    small_plan_open(&p, b, with, NULL, &s->ops, s->values, N_VALUES, n);
    for (size_t i = 0; i < (size_t)n * s->f->k; i++) x[i] = next_input(&seed) * (float)(1 + i / s->f->k);
    rig_ok(b->plan.write(p.plan, X, x, n, &rig_error));
    small_plan_replay(&p);
    for (size_t i = 0; i < s->n_out; i++) {
        const uint32_t width = s->values[s->out[i]].width;
        small_plan_read(&p, s->out[i], width, out + n_read);
        n_read += (size_t)n * width;
    }
    small_plan_check_written(&p, NORMED, p.count.norms == 1);
    *count = small_plan_close(&p);
    return n_read;
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

/* The last bit of a norm may differ from the CPU's (cl/README.md), matrix instructions add in another order, and bf16
 * rounds everything. */
static void check_near(const float *got, const float *want, size_t n, const char *what) {
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        power += (double)want[i] * want[i];
    }
    assert_true(power > 0);
    if (!(error <= (bf16 ? 1e-4 : 1e-8) * power)) fail_msg("%s: %.2g of the power", what, error / power);
}

/* Row 0 of each value, of one row and of many. */
static void check_row(const scene *s, const float *one, const float *many, uint32_t n, const char *what) {
    for (size_t i = 0; i < s->n_out; i++) {
        const uint32_t width = s->values[s->out[i]].width;
        if (memcmp(one, many, width * sizeof *one) != 0) fail_msg("%s: row 0 is not that of one row", what);
        one += width;
        many += (size_t)n * width;
    }
}

static void compare(const form *f, kind which) {
    static const uint32_t rows[] = {1, 2, 7, SMALL_PLAN_ROWS};
    enum { MOST = SMALL_PLAN_ROWS * 3 * WIDEST };
    static float want[MOST], got[MOST], one[MOST];
    scene s;
    make_scene(&s, f, which);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char what[96];
        launch_count count, of_cpu;
        snprintf(what, sizeof what, "%s, type %d, %u wide, %u rows", names[which], (int)f->type, f->k, rows[i]);
        const size_t n = run(backend, target, &s, rows[i], &count, got);
        run(&crumb_backend_cpu, "cpu", &s, rows[i], &of_cpu, want);
        check_near(got, want, n, what);
        if (i == 0) memcpy(one, got, n * sizeof *got);
        check_row(&s, one, got, rows[i], what);
        if (count.all != launches_of(&s, rows[i]))
            fail_msg("%s: %zu launches, not %zu", what, count.all, launches_of(&s, rows[i]));
        if (i == 0) printf("%s: %zu launches\n", what, count.all);
    }
    free_scene(&s);
}

static void few_launches_compute_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        for (int which = 0; which < N_KINDS; which++) compare(&forms[i], (kind)which);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(few_launches_compute_the_same)};
    const int wrong = find_target(argc, argv, "test_cl_dense");
    return wrong ? wrong : cmocka_run_group_tests(tests, NULL, NULL);
}
