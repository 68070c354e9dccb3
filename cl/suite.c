#include "cl/suite.h"

#include "cl/plan.h"
#include "cl/program.h"
#include "cl/solo.h"
#include "cl/tuned.h"

#include <stdio.h>
#include <string.h>

enum { FEW_ROWS = 16 };

const crumb_cl_kernel *crumb_cl_suite_row(size_t kernel) {
    size_t n;
    return &crumb_cl_kernels(&n)[kernel];
}

static size_t n_kernels(void) {
    size_t n;
    crumb_cl_kernels(&n);
    return n;
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

/* Ops as --op has them, and what of a plan becomes their kernels. */
static const struct op {
    const char *name;
    crumb_op_kind kind;
} ops[] = {[CRUMB_CL_EMBED] = {"embed", CRUMB_OP_EMBED},
           [CRUMB_CL_RMS_NORM] = {"norm", CRUMB_OP_RMS_NORM},
           [CRUMB_CL_QUANTIZE] = {"quantize", CRUMB_OP_LINEAR},
           [CRUMB_CL_LINEAR] = {NULL, CRUMB_OP_LINEAR}, /* by rows */
           [CRUMB_CL_LINEAR_F32] = {"float", CRUMB_OP_LINEAR},
           [CRUMB_CL_LINEAR_DENSE] = {"dense", CRUMB_OP_LINEAR},
           [CRUMB_CL_SPLIT] = {"split", CRUMB_OP_LINEAR},
           [CRUMB_CL_DENSE_MATRIX] = {"dense", CRUMB_OP_LINEAR},
           [CRUMB_CL_ROPE_STORE] = {"rope", CRUMB_OP_ROPE},
           [CRUMB_CL_ATTENTION_SPLIT] = {"attention", CRUMB_OP_ATTENTION},
           [CRUMB_CL_ATTENTION_WHOLE] = {"attention", CRUMB_OP_ATTENTION},
           [CRUMB_CL_GATED] = {"gated", CRUMB_OP_GATED},
           [CRUMB_CL_SELECT] = {"select", CRUMB_OP_SELECT},
           [CRUMB_CL_TOP] = {"top", CRUMB_OP_TOP},
           [CRUMB_CL_PLACE] = {"place", CRUMB_OP_PLACE},
           [CRUMB_CL_GATHER] = {"gather", CRUMB_OP_GATHER}};

static const char *op_name(const crumb_cl_kernel *row) {
    const char *name = ops[row->op].name;
    return name ? name : row->max_n <= FEW_ROWS ? "gemv" : "gemm";
}

static bool has_dense_weights(const crumb_cl_kernel *row) {
    return row->op == CRUMB_CL_LINEAR_DENSE || row->op == CRUMB_CL_DENSE_MATRIX || row->op == CRUMB_CL_SPLIT;
}

static crumb_type dense_type(const crumb_cl_kernel *row) {
    if (row->op == CRUMB_CL_LINEAR_DENSE || row->op == CRUMB_CL_SPLIT) return CRUMB_TYPE_F32;
    return row->type == 17 ? CRUMB_TYPE_BF16 : CRUMB_TYPE_F16;
}

/* Where a kernel does not follow the CPU's sequence of operations: a norm's sums are pairs of floats and not doubles,
 * tiles are added up in another order, matrix instructions have two terms of 16 bits for a float. Some ten times what
 * random data shows, and far below what a lost term would make. */
static double f32_error(const crumb_cl_kernel *row) {
    switch (row->op) {
    case CRUMB_CL_RMS_NORM: return 0x1p-44;
    case CRUMB_CL_SPLIT: return 0x1p-36;
    case CRUMB_CL_LINEAR_F32: return 0x1p-42;
    case CRUMB_CL_DENSE_MATRIX: return dense_type(row) == CRUMB_TYPE_BF16 ? 0x1p-36 : 0x1p-40;
    case CRUMB_CL_ATTENTION_SPLIT:
    case CRUMB_CL_ATTENTION_WHOLE: return row->sub_group && row->kv == CRUMB_KV_F16 ? 0x1p-37 : 0;
    default: return 0;
    }
}

/* In bf16 such an error makes some a number's neighbour; and ATTENTION reads queries that ROPE has rounded. */
static double most_error(const crumb_cl_kernel *row) {
    const bool differs = row->op == CRUMB_CL_ROPE_STORE || f32_error(row) > 0;
    return row->bf16 && differs ? 0x1p-15 : f32_error(row);
}

static uint32_t most_rows(const crumb_cl_kernel *row) {
    return row->op == CRUMB_CL_ATTENTION_SPLIT ? CRUMB_CL_SPLIT_ROWS : row->max_n;
}

static uint32_t activations(const crumb_cl_kernel *row) {
    if (row->op == CRUMB_CL_LINEAR || row->op == CRUMB_CL_QUANTIZE) return 1u << CRUMB_ACT_ROW | 1u << CRUMB_ACT_GROUP;
    return row->op == CRUMB_CL_LINEAR_F32 || has_dense_weights(row) ? 1u << CRUMB_ACT_F32 : 0;
}

/* What the device lacks for a row; empty: nothing. */
static void find_lack(const crumb_kernel_machine *m, const crumb_cl_kernel *row, char *out, size_t size) {
    *out = 0;
    if (!m)
        snprintf(out, size, "no device is open");
    else if (row->rung > m->most.rung || (row->op == CRUMB_CL_SPLIT && m->most.rung < CRUMB_CL_DPAS_I8))
        snprintf(out, size, "it needs %s, which the device does not have",
                 row->rung == CRUMB_CL_DP4A ? "dot products of bytes" : "matrix instructions");
    else if (row->sub_group && row->sub_group != m->most.sub_group)
        snprintf(out, size, "it is for matrix instructions %u lanes wide", row->sub_group);
    else if (row->local_size > m->most.max_work_group)
        snprintf(out, size, "it needs work-groups of %u items", row->local_size);
}

static crumb_kernel_info info(const crumb_kernel_machine *m, size_t kernel) {
    const crumb_cl_kernel *row = crumb_cl_suite_row(kernel);
    const bool tiles = row->op == CRUMB_CL_LINEAR || row->op == CRUMB_CL_QUANTIZE || row->op == CRUMB_CL_LINEAR_F32;
    crumb_kernel_info out = {.name = row->name,
                             .op = op_name(row),
                             .target = crumb_cl_rung_name(row->rung),
                             .layout = tiles                    ? "tile"
                                       : has_dense_weights(row) ? "dense"
                                                                : "-",
                             .bound = row->op == CRUMB_CL_LINEAR ? "int32: 65536 x 255 x 128" : "float",
                             .bits = row->bits,
                             .codebook = row->codebook,
                             .bf16 = row->bf16,
                             .dense_type = dense_type(row),
                             .acts = activations(row),
                             .max_n = most_rows(row),
                             .rank = row->rank,
                             .in_plans = row->op != CRUMB_CL_LINEAR,
                             .kind = ops[row->op].kind,
                             .helps = row->op == CRUMB_CL_QUANTIZE || row->op == CRUMB_CL_SPLIT,
                             .max_nmse = most_error(row)};
    find_lack(m, row, out.why_not, sizeof out.why_not);
    out.available = !*out.why_not;
    out.quantizes = row->x == 32;
    if (m) { /* plans take rows for values as the device has them, and of TOP, which has one form, that */
        const bool bf16 = m->d->ladder.bf16 && crumb_cl_kernel_of(row->op, true)->bf16;
        out.eligible = out.available && row->bf16 == bf16 && row->rung <= m->d->ladder.rung;
    }
    return out;
}

/* ---- problems ------------------------------------------------------------------------------------------------ */

/* Whether a row, with knobs, works for a problem on a device with `target`; and as plans of the device `d` take it,
 * unless that is NULL. */
static bool works(const crumb_cl_kernel *row, const char *knobs, const crumb_kernel_problem *p,
                  const crumb_cl_target *target, const crumb_device *d) {
    crumb_cl_variant v;
    if (row->op != CRUMB_CL_LINEAR || p->act == CRUMB_ACT_F32 || !crumb_problem_fits(p)) return false;
    const crumb_matrix w = crumb_problem_matrix(p);
    const crumb_trial_params params = crumb_problem_trial(p);
    if (!crumb_cl_variant_make(row, knobs, &v)) return false;
    const crumb_cl_linear use = crumb_cl_solo_use(&w, &params, v.x);
    return crumb_cl_variant_fits(&v, &use, target) && (!d || crumb_cl_tuned_allows(d, &v, &use, p->n, true));
}

static bool takes(const crumb_kernel_machine *m, size_t kernel, const crumb_kernel_problem *p) {
    if (!m) return false;
    crumb_cl_target target = m->most;
    target.bf16 = crumb_cl_suite_row(kernel)->bf16;
    return works(crumb_cl_suite_row(kernel), "", p, &target, NULL);
}

/* The row that a plan takes, and how; NULL: none. */
static const crumb_cl_kernel *choose(const crumb_kernel_machine *m, const crumb_kernel_problem *p,
                                     crumb_cl_variant *out) {
    if (!m || p->act == CRUMB_ACT_F32 || !crumb_problem_fits(p)) return NULL;
    const crumb_matrix w = crumb_problem_matrix(p);
    const crumb_trial_params params = crumb_problem_trial(p);
    crumb_cl_linear use = crumb_cl_solo_use(&w, &params, 8);
    return crumb_cl_untuned(m->d, &use, p->n, true, out);
}

static size_t chosen(const crumb_kernel_machine *m, const crumb_kernel_problem *p) {
    crumb_cl_variant v;
    const crumb_cl_kernel *row = choose(m, p, &v);
    return row ? (size_t)(row - crumb_cl_suite_row(0)) : SIZE_MAX;
}

static void chosen_knobs(const crumb_kernel_machine *m, const crumb_kernel_problem *p, char knobs[CRUMB_KNOBS_BYTES]) {
    crumb_cl_variant v;
    const crumb_cl_kernel *row = choose(m, p, &v);
    snprintf(knobs, CRUMB_KNOBS_BYTES, "%s", row && row->x == 0 && v.x == 32 ? "fused=1" : "");
}

/* ---- settings ------------------------------------------------------------------------------------------------ */

static size_t n_settings(const crumb_kernel_machine *m, size_t kernel) {
    (void)m;
    return crumb_cl_variant_count(crumb_cl_suite_row(kernel));
}

static void setting(const crumb_kernel_machine *m, size_t kernel, size_t number, char knobs[CRUMB_KNOBS_BYTES]) {
    (void)m;
    crumb_cl_variant_print(crumb_cl_suite_row(kernel), number, knobs, CRUMB_KNOBS_BYTES);
}

static bool setting_known(size_t kernel, const char *knobs) {
    crumb_cl_variant v;
    return crumb_cl_variant_make(crumb_cl_suite_row(kernel), knobs, &v);
}

static bool setting_takes(const crumb_kernel_machine *m, size_t kernel, const char *knobs,
                          const crumb_kernel_problem *p) {
    if (!m || (strstr(knobs, "registers=") && !crumb_cl_chooses_registers(m->d))) return false;
    return works(crumb_cl_suite_row(kernel), knobs, p, &m->d->ladder, m->d);
}

static void identify(const crumb_kernel_machine *m, char device[96], char target[32], char source[20]) {
    if (m) {
        crumb_cl_tuned_identify(m->d, device, target, source);
        return;
    }
    snprintf(device, 96, "no device");
    *target = *source = 0;
}

static int machine_threads(const crumb_kernel_machine *m) {
    (void)m;
    return 0;
}

static crumb_device *device(crumb_kernel_machine *m) {
    return m->d;
}

const crumb_kernel_suite crumb_kernel_suite_cl = {.backend = CRUMB_MODULE_BACKEND,
                                                  .compiles = true,
                                                  .n_kernels = n_kernels,
                                                  .info = info,
                                                  .takes = takes,
                                                  .chosen = chosen,
                                                  .chosen_knobs = chosen_knobs,
                                                  .n_settings = n_settings,
                                                  .setting = setting,
                                                  .setting_known = setting_known,
                                                  .setting_takes = setting_takes,
                                                  .identify = identify,
                                                  .describe = crumb_cl_suite_describe,
                                                  .machine_create = crumb_cl_suite_machine_create,
                                                  .machine_destroy = crumb_cl_suite_machine_destroy,
                                                  .machine_threads = machine_threads,
                                                  .machine_roofs = crumb_cl_suite_machine_roofs,
                                                  .machine_flushed = crumb_cl_suite_machine_flushed,
                                                  .run = crumb_cl_suite_run,
                                                  .bench_create = crumb_cl_suite_bench_create,
                                                  .bench_destroy = crumb_cl_suite_bench_destroy,
                                                  .bench_run = crumb_cl_suite_bench_run,
                                                  .bench_bytes = crumb_cl_suite_bench_bytes,
                                                  .device = device,
                                                  .plan_record = crumb_cl_suite_plan_record,
                                                  .plan_time = crumb_cl_suite_plan_time};
