/* The CPU's kernels one by one, outside of plans: which there are and what they take. */
#include "cpu/suite.h"

#include "cpu/knobs.h"
#include "host/base/checked.h"
#include "host/base/thread.h"

#include <stdio.h>
#include <string.h>

const crumb_cpu_kernel *crumb_suite_row(size_t kernel) {
    size_t n;
    const crumb_cpu_kernel *rows = crumb_cpu_kernels(&n);
    return kernel < n ? &rows[kernel] : NULL;
}

const crumb_cpu_op_kernel *crumb_suite_op_row(size_t kernel) {
    size_t n_products, n;
    crumb_cpu_kernels(&n_products);
    return kernel < n_products ? NULL : &crumb_cpu_op_kernels(&n)[kernel - n_products];
}

crumb_isa crumb_suite_isa(size_t kernel) {
    return crumb_suite_row(kernel) ? crumb_suite_row(kernel)->isa : crumb_suite_op_row(kernel)->isa;
}

static size_t n_kernels(void) {
    size_t n_products, n_ops;
    crumb_cpu_kernels(&n_products);
    crumb_cpu_op_kernels(&n_ops);
    return n_products + n_ops;
}

static crumb_kernel_info op_info(const crumb_cpu_op_kernel *row) {
    return (crumb_kernel_info){.name = row->name,
                               .op = row->op,
                               .layout = "-",
                               .bound = row->bound,
                               .max_n = UINT32_MAX,
                               .rank = row->rank,
                               .in_plans = true,
                               .kind = row->kind,
                               .int8_products = row->kind == CRUMB_OP_ATTENTION && row->kv_type == CRUMB_KV_Q8,
                               .helps = row->kind == CRUMB_OP_LINEAR};
}

static crumb_kernel_info product_info(const crumb_cpu_kernel *row) {
    return (crumb_kernel_info){.name = row->name,
                               .op = row->bits == 0              ? "dense"
                                     : row->op == CRUMB_CPU_GEMV ? "gemv"
                                                                 : "gemm",
                               .layout = row->layout ? row->layout->name
                                         : row->bits ? "tile"
                                                     : "dense",
                               .bound = row->bound,
                               .bits = row->bits,
                               .codebook = row->codebook_range != 0,
                               .dense_type = row->dense_type,
                               .acts = row->acts,
                               .max_n = row->max_n,
                               .rank = row->rank,
                               .in_plans = row->bits == 0,
                               .kind = CRUMB_OP_LINEAR,
                               .max_nmse = (double)row->max_nmse};
}

static crumb_kernel_info info(const crumb_kernel_machine *machine, size_t kernel) {
    const crumb_cpu_kernel *product = crumb_suite_row(kernel);
    const crumb_isa isa = crumb_suite_isa(kernel);
    crumb_kernel_info out = product ? product_info(product) : op_info(crumb_suite_op_row(kernel));
    out.target = crumb_isa_name(isa);
    out.available = crumb_isa_available(isa);
    out.eligible = out.available && out.rank >= 0 && crumb_isa_includes(crumb_suite_tier(machine), isa);
    out.other_order = product && !crumb_cpu_kernel_finds_activations(product, crumb_suite_tier(machine));
    if (!out.available) snprintf(out.why_not, sizeof out.why_not, "the processor has no %s", out.target);
    return out;
}

static bool takes(const crumb_kernel_machine *machine, size_t kernel, const crumb_kernel_problem *p) {
    (void)machine;
    const crumb_cpu_kernel *row = crumb_suite_row(kernel);
    if (!row || !crumb_isa_available(row->isa) || !(row->acts >> p->act & 1) || !crumb_problem_fits(p)) return false;
    const crumb_matrix w = crumb_problem_matrix(p);
    return row->bits != 0 && crumb_cpu_kernel_takes(row, &w);
}

size_t crumb_suite_chosen_in(const crumb_kernel_machine *machine, crumb_isa isa, const crumb_kernel_problem *p) {
    crumb_matrix w = crumb_problem_matrix(p);
    size_t n;
    const crumb_cpu_kernel *rows = crumb_cpu_kernels(&n);
    w.indexed = crumb_suite_indexes(machine, isa, &w);
    const crumb_cpu_kernel *row = crumb_problem_fits(p) ? crumb_cpu_kernel_select(&w, p->act, p->n, isa) : NULL;
    return row ? (size_t)(row - rows) : SIZE_MAX;
}

static size_t chosen(const crumb_kernel_machine *machine, const crumb_kernel_problem *p) {
    return crumb_suite_chosen_in(machine, crumb_suite_tier(machine), p);
}

/* ---- settings ---------------------------------------------------------------------------------------------- */

static size_t n_settings(const crumb_kernel_machine *machine, size_t kernel) {
    (void)machine;
    const crumb_cpu_kernel *row = crumb_suite_row(kernel);
    return !row || row->rank < 0 || row->isa == CRUMB_ISA_SCALAR ? 1 : crumb_cpu_knobs_count(row->op);
}

static void setting(const crumb_kernel_machine *machine, size_t kernel, size_t number, char knobs[CRUMB_KNOBS_BYTES]) {
    (void)machine;
    const crumb_cpu_kernel *row = crumb_suite_row(kernel);
    *knobs = 0;
    if (!row) return;
    const crumb_cpu_knobs values = crumb_cpu_knobs_candidate(row->op, number);
    crumb_cpu_knobs_print(row->op, &values, knobs, CRUMB_KNOBS_BYTES);
}

/* As it prints, so that nothing of it is passed over. */
static bool setting_known(size_t kernel, const char *knobs) {
    const crumb_cpu_kernel *row = crumb_suite_row(kernel);
    char printed[CRUMB_KNOBS_BYTES] = "";
    if (row) {
        const crumb_cpu_knobs values = crumb_cpu_knobs_parse(row->op, knobs);
        crumb_cpu_knobs_print(row->op, &values, printed, sizeof printed);
    }
    return strcmp(printed, knobs) == 0;
}

static void identify(const crumb_kernel_machine *machine, char device[96], char target[32], char source[20]) {
    crumb_cpu_model_name(device, 96);
    snprintf(target, 32, "%s", crumb_isa_name(crumb_suite_tier(machine)));
    snprintf(source, 20, "%s", crumb_cpu_kernels_hash());
}

const crumb_kernel_suite crumb_kernel_suite_cpu = {.backend = "cpu",
                                                   .n_kernels = n_kernels,
                                                   .info = info,
                                                   .takes = takes,
                                                   .chosen = chosen,
                                                   .n_settings = n_settings,
                                                   .setting = setting,
                                                   .setting_known = setting_known,
                                                   .setting_effect = crumb_suite_setting_effect,
                                                   .identify = identify,
                                                   .run = crumb_suite_run,
                                                   .machine_create = crumb_suite_machine_create,
                                                   .machine_destroy = crumb_suite_machine_destroy,
                                                   .machine_threads = crumb_suite_machine_threads,
                                                   .machine_roofs = crumb_suite_machine_roofs,
                                                   .machine_reorder = crumb_suite_machine_reorder,
                                                   .machine_flushed = crumb_suite_machine_flushed,
                                                   .bench_create = crumb_suite_bench_create,
                                                   .bench_destroy = crumb_suite_bench_destroy,
                                                   .bench_run = crumb_suite_bench_run,
                                                   .bench_run_near = crumb_suite_bench_run_near,
                                                   .bench_prepare = crumb_suite_bench_prepare,
                                                   .bench_bytes = crumb_suite_bench_bytes,
                                                   .device = crumb_suite_device,
                                                   .plan_record = crumb_suite_plan_record,
                                                   .plan_time = crumb_suite_plan_time};
