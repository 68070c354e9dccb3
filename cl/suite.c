#include "cl/suite.h"

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

/* Linear layers as --op has them. */
static const char *op_name(const crumb_cl_kernel *row) {
    if (row->op != CRUMB_CL_LINEAR) return "other";
    return row->max_n <= FEW_ROWS ? "gemv" : "gemm";
}

/* What the device lacks for a row; empty: nothing. */
static void find_lack(const crumb_kernel_machine *m, const crumb_cl_kernel *row, char *out, size_t size) {
    *out = 0;
    if (!m)
        snprintf(out, size, "no device is open");
    else if (row->rung > m->most.rung)
        snprintf(out, size, "it needs %s, which the device does not have",
                 row->rung == CRUMB_CL_DP4A ? "dot products of bytes" : "matrix instructions");
    else if (row->sub_group && row->sub_group != m->most.sub_group)
        snprintf(out, size, "it is for matrix instructions %u lanes wide", row->sub_group);
    else if (row->local_size > m->most.max_work_group)
        snprintf(out, size, "it needs work-groups of %u items", row->local_size);
}

static crumb_kernel_info info(const crumb_kernel_machine *m, size_t kernel) {
    const crumb_cl_kernel *row = crumb_cl_suite_row(kernel);
    const bool tiles = row->op == CRUMB_CL_LINEAR, floats = row->op == CRUMB_CL_LINEAR_DENSE;
    crumb_kernel_info out = {.name = row->name,
                             .op = op_name(row),
                             .target = crumb_cl_rung_name(row->rung),
                             .layout = tiles    ? "tile"
                                       : floats ? "dense"
                                                : "-",
                             .bound = tiles ? "int32: 65536 x 255 x 128" : "float",
                             .bits = row->bits,
                             .codebook = row->codebook,
                             .dense_type = CRUMB_TYPE_F16,
                             .acts = tiles    ? 1u << CRUMB_ACT_ROW | 1u << CRUMB_ACT_GROUP
                                     : floats ? 1u << CRUMB_ACT_F32
                                              : 0,
                             .max_n = row->max_n,
                             .rank = row->rank};
    find_lack(m, row, out.why_not, sizeof out.why_not);
    out.available = !*out.why_not;
    out.quantizes = row->x == 32;
    out.eligible = out.available && row->rung <= m->d->ladder.rung;
    return out;
}

/* ---- problems ------------------------------------------------------------------------------------------------ */

/* Whether a row, with knobs, works for a problem on a device with `target`. */
static bool works(const crumb_cl_kernel *row, const char *knobs, const crumb_kernel_problem *p,
                  const crumb_cl_target *target) {
    crumb_cl_variant v;
    if (row->op != CRUMB_CL_LINEAR || p->act == CRUMB_ACT_F32 || !crumb_problem_fits(p)) return false;
    const crumb_matrix w = crumb_problem_matrix(p);
    const crumb_trial_params params = crumb_problem_trial(p);
    if (!crumb_cl_variant_make(row, knobs, &v)) return false;
    const crumb_cl_linear use = crumb_cl_solo_use(&w, &params, v.x);
    return crumb_cl_variant_fits(&v, &use, target);
}

static bool takes(const crumb_kernel_machine *m, size_t kernel, const crumb_kernel_problem *p) {
    return m && works(crumb_cl_suite_row(kernel), "", p, &m->most);
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

static bool setting_takes(const crumb_kernel_machine *m, size_t kernel, const char *knobs,
                          const crumb_kernel_problem *p) {
    if (!m || (strstr(knobs, "registers=") && !crumb_cl_chooses_registers(m->d))) return false;
    return works(crumb_cl_suite_row(kernel), knobs, p, &m->d->ladder);
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

const crumb_kernel_suite crumb_kernel_suite_cl = {.backend = CRUMB_MODULE_BACKEND,
                                                  .compiles = true,
                                                  .n_kernels = n_kernels,
                                                  .info = info,
                                                  .takes = takes,
                                                  .chosen = chosen,
                                                  .chosen_knobs = chosen_knobs,
                                                  .n_settings = n_settings,
                                                  .setting = setting,
                                                  .setting_takes = setting_takes,
                                                  .identify = identify,
                                                  .describe = crumb_cl_suite_describe,
                                                  .machine_create = crumb_cl_suite_machine_create,
                                                  .machine_destroy = crumb_cl_suite_machine_destroy,
                                                  .machine_threads = machine_threads,
                                                  .machine_roofs = crumb_cl_suite_machine_roofs,
                                                  .run = crumb_cl_suite_run,
                                                  .bench_create = crumb_cl_suite_bench_create,
                                                  .bench_destroy = crumb_cl_suite_bench_destroy,
                                                  .bench_run = crumb_cl_suite_bench_run,
                                                  .bench_bytes = crumb_cl_suite_bench_bytes};
