/* Norms that several linear ops read: each quantizes the norm for itself, and the norm is a launch only where it must
 * be. Plans on a device, whose results are the CPU's and the same bit for bit with each knob.
 *
 * usage: test_cl_norms TARGET   as in --target: cl:RUNG, ze:RUNG. Exits with 77 where there is no such device. */
#include "host/kernel/tuning.h"
#include "tests/kernels/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WIDTH = 256, MOST_ROWS = 40 };

static const crumb_backend *backend;
static const char *target;
static bool bf16; /* values between ops are */

/* ---- launches ------------------------------------------------------------------------------------------------ */

/* Of the plan that was recorded last. */
typedef struct launch_count {
    size_t all, norms;
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
    for (plan = strchr(plan, ' '); plan && sscanf(plan, " %zu %63s%n", &n, name, &length) == 2; plan += length)
        if (strncmp(name, "rms_norm", 8) == 0) count->norms += n;
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

static size_t norms_of(kind which) {
    return which != TWO && which != THREE && !splits(which);
}

enum { X, NORMED, FIRST, SECOND, THIRD, GATED, N_VALUES };

typedef struct scene {
    crumb_op ops[8];
    crumb_value_info values[N_VALUES];
    size_t n_ops, n_linear;
    mini_weights weights[3];
    float norm[WIDTH];
} scene;

static crumb_op *add_op(scene *s, crumb_op_kind op) {
    s->ops[s->n_ops].kind = op;
    return &s->ops[s->n_ops++];
}

/* The next linear op that reads the norm, with weights of its own type. */
static crumb_op *add_linear(scene *s, crumb_type type, crumb_value out, uint32_t *seed) {
    crumb_op *op = add_op(s, CRUMB_OP_LINEAR);
    mini_weights *w = &s->weights[s->n_linear++];
    mini_weights_create(seed, type, WIDTH, WIDTH, w);
    op->linear.x = NORMED;
    op->linear.add = CRUMB_NO_VALUE;
    op->linear.act = w->matrix.bits ? CRUMB_ACT_GROUP : CRUMB_ACT_F32;
    op->linear.act_group = w->matrix.bits ? 32 : 0;
    op->linear.n_parts = 1;
    op->linear.part[0] = (crumb_linear_part){.w = &w->matrix, .m1 = WIDTH, .out = out, .out_scale = 1};
    return op;
}

static void make_scene(scene *s, kind which) {
    uint32_t seed = 5;
    *s = (scene){0};
    for (uint32_t i = 0; i < N_VALUES; i++) s->values[i] = (crumb_value_info){.width = WIDTH, .slot = i};
    for (uint32_t i = 0; i < WIDTH; i++) s->norm[i] = 0.5f + (float)(i % 7) / 8;
    if (which == OVER_X) s->values[FIRST].slot = X;
    add_op(s, CRUMB_OP_INPUT)->input.out = X;
    crumb_op *op = add_op(s, CRUMB_OP_RMS_NORM);
    op->norm.x = X;
    op->norm.out = NORMED;
    op->norm.weight = s->norm;
    op->norm.eps = 1e-5f;
    add_linear(s, which == THREE ? CRUMB_TYPE_Q8_0 : CRUMB_TYPE_Q4_0, FIRST, &seed);
    op = add_linear(s, second[which], SECOND, &seed);
    if (which == ADDS) op->linear.add = NORMED;
    if (which == THREE || which == BETWEEN) add_linear(s, CRUMB_TYPE_Q4_0, THIRD, &seed);
    if (which != LATER) return;
    op = add_op(s, CRUMB_OP_GATED);
    op->gated.gate = NORMED;
    op->gated.up = SECOND;
    op->gated.out = GATED;
    op->gated.fn = CRUMB_ACT_FN_SILU;
}

static void free_scene(scene *s) {
    for (size_t i = 0; i < s->n_linear; i++) free(s->weights[i].memory);
}

static void write_input(const crumb_backend *b, crumb_plan *plan, uint32_t n) {
    static float x[MOST_ROWS * WIDTH];
    uint32_t seed = 17;
    for (size_t i = 0; i < (size_t)n * WIDTH; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = ((float)(seed >> 8) / 8388608 - 1) * (float)(1 + i / WIDTH);
    }
    rig_ok(b->plan.write(plan, X, x, n, &rig_error));
}

/* out: [N_VALUES][n][WIDTH], of which those from FIRST on that the plan writes. tuned: the knobs found best, or NULL.
 */
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
    const crumb_plan_desc desc = {
        .ops = s->ops, .n_ops = s->n_ops, .values = s->values, .n_values = N_VALUES, .max_rows = n, .max_outputs = n};
    rig_ok(b->device.open(&params, &d, &rig_error));
    rig_ok(b->plan.record(d, &desc, &plan, &rig_error));
    write_input(b, plan, n);
    for (uint32_t i = 0; i < n; i++) rows[i] = (crumb_row){.position = i, .wants_output = true};
    rig_ok(b->plan.replay(plan, rows, n, &rig_error));
    memset(out, 0, (size_t)N_VALUES * n * WIDTH * sizeof *out);
    for (crumb_value v = FIRST; v < N_VALUES; v++) {
        if ((v == THIRD && s->n_linear < 3) || (v == GATED && s->ops[s->n_ops - 1].kind != CRUMB_OP_GATED)) continue;
        rig_ok(b->plan.read(plan, v, &got, &n_got, &rig_error));
        assert_int_equal(n_got, n);
        memcpy(out + (size_t)v * n * WIDTH, got, (size_t)n * WIDTH * sizeof *out);
    }
    /* A norm that was never written must not be read. */
    const bool readable = b->plan.read(plan, NORMED, &got, &n_got, &rig_error) == CRUMB_OK;
    if (b != &crumb_backend_cpu) assert_int_equal(readable, count.norms == 1);
    b->plan.destroy(plan);
    b->device.close(d);
    return count;
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
    static float want[N_VALUES * MOST_ROWS * WIDTH], got[N_VALUES * MOST_ROWS * WIDTH],
        tuned[N_VALUES * MOST_ROWS * WIDTH];
    static const char *const knobs[] = {"", "fused=1"};
    const size_t n_bytes = (size_t)N_VALUES * n * WIDTH * sizeof *got;
    scene s;
    make_scene(&s, which);
    run(&crumb_backend_cpu, "cpu", NULL, &s, n, want);
    const launch_count own = run(backend, target, NULL, &s, n, got);
    assert_int_equal(own.norms, norms_of(which));
    check_near(got, want, n, names[which]);
    printf("%s, %u rows: %zu launches", names[which], n, own.all);
    if (which == TWO && n == 1 && strstr(target, "dpas")) assert_int_equal(own.all, 3); /* one order for all widths */
    for (size_t i = 0; i < 2; i++) {
        const launch_count count = run(backend, target, knobs[i], &s, n, tuned);
        assert_int_equal(count.norms, norms_of(which));
        if (memcmp(tuned, got, n_bytes) != 0)
            fail_msg("%s, %u rows: not the same with '%s'", names[which], n, knobs[i]);
        printf(", %zu with fused=%zu", count.all, i);
        /* The portable kernels' codes lie in the order of their weights' width, one after another of the same are made
         * once. */
        if (which == TWO) assert_int_equal(count.all, i ? 2 : 4);
        if (which == THREE) assert_int_equal(count.all, i ? 3 : 5);
        if (splits(which)) assert_int_equal(count.all, i ? 4 : 6);
    }
    printf("\n");
    free_scene(&s);
}

static void norms_are_launches_where_they_must(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 7, MOST_ROWS};
    for (int which = 0; which < N_KINDS; which++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) compare((kind)which, rows[r]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(norms_are_launches_where_they_must)};
    char name[8] = "";
    if (argc != 2) {
        fprintf(stderr, "usage: test_cl_norms TARGET\n");
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
