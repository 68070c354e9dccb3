/* What tests of plans of a few ops have in common: the device of a target, such a plan recorded and replayed there, the
 * launches that it becomes, and knobs that count as tuned. A test is one file that includes this; calls that fail, fail
 * it. */
#ifndef CRUMB_TESTS_CL_SMALL_PLAN_H
#define CRUMB_TESTS_CL_SMALL_PLAN_H

#include "host/kernel/tuning.h"
#include "tests/kernels/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- the device ---------------------------------------------------------------------------------------------- */

static const crumb_backend *backend;
static const char *target; /* as in --target: cl:RUNG, ze:RUNG */
static bool bf16;          /* values between its ops are: results are not the CPU's */

/* Sets these by a test's only argument. 0, or the status to exit with: 2 for wrong usage, 1 where there is no such
 * device. */
static int find_target(int argc, char **argv, const char *program) {
    char name[8] = "";
    if (argc != 2) {
        fprintf(stderr, "usage: %s TARGET\n", program);
        return 2;
    }
    target = argv[1];
    bf16 = strstr(target, "+bf16") != NULL;
    snprintf(name, sizeof name, "%.2s", target);
    return rig_find_device(name, target, &backend) ? 0 : 1;
}

/* Whether n rows are quantized by what reads them whatever is said to be best: one on a GPU, as Level Zero's here are.
 */
static inline bool fuses_always(uint32_t n) {
    return n == 1 && strncmp(target, "ze:", 3) == 0;
}

/* ---- launches ------------------------------------------------------------------------------------------------ */

/* Of the plan that was recorded last: all, and those that are norms, orders of columns, gates, and nothing but
 * quantizing. */
typedef struct launch_count {
    size_t all, norms, gathers, gated, quantize;
} launch_count;

/* A device's log: of the line that tells what a plan has become, the numbers, for the launch_count `user`. */
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
        if (strncmp(name, "rms_norm", 8) == 0) count->norms += n;
        if (strncmp(name, "gather", 6) == 0) count->gathers += n;
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

enum { SMALL_PLAN_OPS = 8, SMALL_PLAN_ROWS = 40 }; /* the most that one has */

typedef struct small_ops {
    crumb_op op[SMALL_PLAN_OPS];
    size_t n;
} small_ops;

/* The next op, whose fields but for its kind are zeros. */
static crumb_op *add_op(small_ops *ops, crumb_op_kind kind) {
    ops->op[ops->n].kind = kind;
    return &ops->op[ops->n++];
}

/* The next linear op, of one matrix whose rows all go to `out`: with int8 codes of activations in groups of 32 where
 * its weights have codes, else with floats; nothing is added. */
static crumb_op *add_linear_of(small_ops *ops, const mini_weights *w, crumb_value x, crumb_value out) {
    crumb_op *op = add_op(ops, CRUMB_OP_LINEAR);
    op->linear.x = x;
    op->linear.add = CRUMB_NO_VALUE;
    op->linear.act = w->matrix.bits ? CRUMB_ACT_GROUP : CRUMB_ACT_F32;
    op->linear.act_group = w->matrix.bits ? 32 : 0;
    op->linear.n_parts = 1;
    op->linear.part[0] = (crumb_linear_part){.w = &w->matrix, .m1 = w->matrix.m, .out = out, .out_scale = 1};
    return op;
}

/* The next of a row of numbers from -1 to below 1. */
static float next_input(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 8388608 - 1;
}

/* A plan on a device of its own. */
typedef struct small_plan {
    const crumb_backend *b;
    crumb_device *device;
    crumb_plan *plan;
    uint32_t n_rows;
    launch_count count;
    char knobs[16]; /* stands for the database, which only find_tuning looks into */
} small_plan;

/* Opens the device of `b` and the target `with`, and records the ops for n_rows. tuned: the knobs that were found best,
 * or NULL. Until small_plan_close `p` stays where it is. */
static void small_plan_open(small_plan *p, const crumb_backend *b, const char *with, const char *tuned,
                            const small_ops *ops, const crumb_value_info *values, size_t n_values, uint32_t n_rows) {
    *p = (small_plan){.b = b, .n_rows = n_rows};
    if (tuned) snprintf(p->knobs, sizeof p->knobs, "%s", tuned);
    const crumb_device_params params = {.target = with,
                                        .n_threads = 2,
                                        .log = count_launches,
                                        .log_user = &p->count,
                                        .tuning = (void *)p->knobs,
                                        .find_tuning = tuned ? find_tuning : NULL};
    const crumb_plan_desc desc = {.ops = ops->op,
                                  .n_ops = ops->n,
                                  .values = values,
                                  .n_values = n_values,
                                  .max_rows = n_rows,
                                  .max_outputs = n_rows};
    rig_ok(b->device.open(&params, &p->device, &rig_error));
    rig_ok(b->plan.record(p->device, &desc, &p->plan, &rig_error));
}

/* Runs it: all its rows, with outputs. */
static void small_plan_replay(const small_plan *p) {
    crumb_row rows[SMALL_PLAN_ROWS];
    for (uint32_t i = 0; i < p->n_rows; i++) rows[i] = (crumb_row){.position = i, .wants_output = true};
    rig_ok(p->b->plan.replay(p->plan, rows, p->n_rows, &rig_error));
}

/* out: [n_rows][width] of a value. */
static void small_plan_read(const small_plan *p, crumb_value v, uint32_t width, float *out) {
    const float *got;
    uint32_t n_got;
    rig_ok(p->b->plan.read(p->plan, v, &got, &n_got, &rig_error));
    assert_int_equal(n_got, p->n_rows);
    memcpy(out, got, (size_t)n_got * width * sizeof *out);
}

/* On a device: a value can be read only where it has been written. */
static void small_plan_check_written(const small_plan *p, crumb_value v, bool written) {
    const float *got;
    uint32_t n_got;
    if (p->b == &crumb_backend_cpu) return;
    assert_int_equal(p->b->plan.read(p->plan, v, &got, &n_got, &rig_error) == CRUMB_OK, written);
}

/* Ends it, and tells its launches. */
static launch_count small_plan_close(small_plan *p) {
    p->b->plan.destroy(p->plan);
    p->b->device.close(p->device);
    return p->count;
}

#endif
