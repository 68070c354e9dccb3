/* Kernels that run in plans: compared with the CPU's reference, and timed. */
#include "tools/crumb/kernels.h"
#include "tools/crumb/kernels_scene.h"

#include "host/base/half.h"
#include "host/base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { SOME_ROWS = 9, MANY_ROWS = 33, PERF_ROWS = 512, PERF_CPU_ROWS = 64, WARM_UP_ROUNDS = 2 };
static const double long_ns = 1e9; /* a round that takes so long is not repeated */

/* A scene with the device that is looked at, and the CPU. */
typedef struct pair {
    const kernels_choice *choice;
    size_t kernel;
    kernels_scene scene;
    kernels_stage device, cpu;
    size_t n_launches; /* of the kernel; 0: it takes no op of the scene */
} pair;

static void pair_destroy(pair *p) {
    kernels_stage_destroy(&p->device);
    kernels_stage_destroy(&p->cpu);
    kernels_scene_destroy(&p->scene);
}

static crumb_status record(pair *p, crumb_error *err) {
    const kernels_choice *c = p->choice;
    CRUMB_TRY(kernels_stage_create(&p->scene, c->backend, c->suite->device(c->machine), &p->device, err));
    const crumb_plan_desc desc = kernels_stage_desc(&p->device);
    return c->suite->plan_record(c->machine, p->kernel, &desc, &p->device.plan, &p->n_launches, err);
}

/* The CPU's stage, and caches with the same in them. */
static crumb_status set_cpu(pair *p, crumb_device *cpu, crumb_error *err) {
    CRUMB_TRY(kernels_stage_create(&p->scene, &crumb_backend_cpu, cpu, &p->cpu, err));
    if (!p->scene.kv.n_layers) return CRUMB_OK;
    CRUMB_TRY(kernels_stage_fill(&p->cpu, err));
    return kernels_stage_copy_cache(&p->cpu, &p->device, err);
}

static float rounded(float x) {
    return crumb_bf16_to_f32(crumb_f32_to_bf16(x));
}

/* Inputs that a device with values in bf16 does not change; activations are half as many bytes. */
static void round_inputs(kernels_scene *s) {
    for (size_t v = 0; v < s->n_values; v++) {
        const uint64_t n = s->inputs[v] ? (uint64_t)s->n * s->values[v].width : 0;
        for (uint64_t i = 0; i < n; i++) s->inputs[v][i] = rounded(s->inputs[v][i]);
        s->n_bytes -= n * sizeof(uint16_t);
    }
    for (size_t i = 0; i < s->n_results; i++)
        s->n_bytes -= (uint64_t)s->n * s->values[s->results[i]].width * sizeof(uint16_t);
}

static crumb_status pair_create(const kernels_choice *c, size_t kernel, const kernels_form *form, uint32_t m,
                                uint32_t k, uint32_t n, uint64_t seed, crumb_device *cpu, pair *out, crumb_error *err) {
    *out = (pair){.choice = c, .kernel = kernel};
    CRUMB_TRY(kernels_scene_create(form, kernels_info(c, kernel).kind, m, k, n, seed, &out->scene, err));
    if (kernels_info(c, kernel).bf16) round_inputs(&out->scene);
    CRUMB_TRY(record(out, err));
    return out->n_launches ? set_cpu(out, cpu, err) : CRUMB_OK;
}

/* Forms for a kernel of this op and type of weights. */
static bool suits(const kernels_form *f, const crumb_kernel_info *info) {
    const bool dense = strcmp(info->layout, "dense") == 0 && info->dense_type != CRUMB_TYPE_F32;
    return strcmp(f->op, info->op) == 0 && (!dense || f->type == info->dense_type);
}

/* For people, from 1. */
static size_t form_number(const kernels_form *f) {
    return (size_t)(f - kernels_forms) + 1;
}

/* By --form, 0: all. */
static bool wants_form(const kernels_choice *c, const kernels_form *f) {
    return c->options->kernel_form == 0 || (size_t)c->options->kernel_form == form_number(f);
}

static bool is_for_few(const crumb_kernel_info *info) {
    return info->max_n > 0 && info->max_n <= SOME_ROWS;
}

/* ---- comparison -------------------------------------------------------------------------------------------- */

static bool same_bits(float a, float b) {
    return crumb_f32_to_bits(a) == crumb_f32_to_bits(b);
}

/* Behind norms of heads no kernel is held to all bits: the last one double precision decides on the CPU. */
static double most_error(const pair *p, const crumb_kernel_info *info) {
    const kernels_form *f = p->scene.form;
    return info->max_nmse == 0 && f->norm && f->head_dim ? 0x1p-44 : info->max_nmse;
}

/* A value's rows on both; where differs is written to `failure`. */
static void compare_rows(const pair *p, crumb_value value, const float *got, const float *expected, size_t n,
                         char failure[KERNELS_FAILURE_BYTES]) {
    const uint32_t width = p->scene.values[value].width;
    const crumb_kernel_info info = kernels_info(p->choice, p->kernel);
    const double most = most_error(p, &info);
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        const float wanted = info.bf16 ? rounded(expected[i]) : expected[i];
        const double off = (double)got[i] - (double)wanted;
        if (most == 0 && !same_bits(got[i], wanted)) {
            snprintf(failure, KERNELS_FAILURE_BYTES, "[%zu][%zu] is %a, not %a", i / width, i % width, (double)got[i],
                     (double)wanted);
            return;
        }
        error += off * off;
        power += (double)wanted * (double)wanted;
    }
    if (most > 0 && !(error <= most * power))
        snprintf(failure, KERNELS_FAILURE_BYTES, "the error is %g of the result, above %g", error / power, most);
}

static crumb_status compare_value(const pair *p, crumb_value value, uint64_t *n_values,
                                  char failure[KERNELS_FAILURE_BYTES], crumb_error *err) {
    const float *got, *expected;
    uint32_t n_got, n_expected;
    CRUMB_TRY(p->device.backend->plan.read(p->device.plan, value, &got, &n_got, err));
    CRUMB_TRY(p->cpu.backend->plan.read(p->cpu.plan, value, &expected, &n_expected, err));
    if (n_got != n_expected)
        snprintf(failure, KERNELS_FAILURE_BYTES, "%u rows, not %u", n_got, n_expected);
    else
        compare_rows(p, value, got, expected, (size_t)n_got * p->scene.values[value].width, failure);
    *n_values += (uint64_t)n_got * p->scene.values[value].width;
    return CRUMB_OK;
}

/* What the rows have stored. */
static crumb_status compare_caches(const pair *p, char failure[KERNELS_FAILURE_BYTES], crumb_error *err) {
    void *got = NULL, *expected = NULL;
    uint64_t n_got, n_expected;
    crumb_status status = kernels_stage_read_cache(&p->device, &got, &n_got, err);
    if (status == CRUMB_OK) status = kernels_stage_read_cache(&p->cpu, &expected, &n_expected, err);
    if (status == CRUMB_OK && (n_got != n_expected || (n_got && memcmp(got, expected, n_got) != 0)))
        snprintf(failure, KERNELS_FAILURE_BYTES, "the keys and values that it stores differ");
    free(got);
    free(expected);
    return status;
}

static crumb_status compare(pair *p, uint64_t *n_values, char failure[KERNELS_FAILURE_BYTES], crumb_error *err) {
    const kernels_scene *s = &p->scene;
    const crumb_plan_desc desc = kernels_stage_desc(&p->cpu);
    CRUMB_TRY(crumb_backend_cpu.plan.record(p->cpu.device, &desc, &p->cpu.plan, err));
    kernels_stage *const both[] = {&p->device, &p->cpu};
    for (int i = 0; i < 2; i++) {
        CRUMB_TRY(kernels_stage_write(both[i], err));
        CRUMB_TRY(both[i]->backend->plan.replay(both[i]->plan, s->rows, s->n, err));
    }
    for (size_t i = 0; i < s->n_results && !*failure; i++)
        CRUMB_TRY(compare_value(p, s->results[i], n_values, failure, err));
    return s->kv.n_layers && !*failure ? compare_caches(p, failure, err) : CRUMB_OK;
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

static crumb_status open_cpu(const char *target, crumb_device **out, crumb_error *err) {
    const crumb_device_params params = {.target = target};
    return crumb_backend_cpu.device.open(&params, out, err);
}

static void describe(const pair *p, uint64_t seed, char failure[KERNELS_FAILURE_BYTES]) {
    char where[160], machine[KERNELS_FLAGS_BYTES];
    const kernels_choice *c = p->choice;
    kernels_machine_flags(c, machine);
    snprintf(where, sizeof where, "%.150s", failure);
    snprintf(failure, KERNELS_FAILURE_BYTES,
             "%s; again: crumb kernels test%s --filter %s --form %zu --shape %ux%ux%u --seed %llu", where, machine,
             kernels_info(c, p->kernel).name, form_number(p->scene.form), p->scene.m ? p->scene.m : 1, p->scene.k,
             p->scene.n, (unsigned long long)seed);
}

/* A device that fails (its compiler, its memory) fails the kernel. */
static crumb_status test_scene(const kernels_choice *c, size_t kernel, const kernels_form *form,
                               const kernels_shape *shape, uint64_t seed, crumb_device *cpu, uint64_t *n_values,
                               char failure[KERNELS_FAILURE_BYTES], crumb_error *err) {
    pair p;
    crumb_status status = pair_create(c, kernel, form, shape->m, shape->k, shape->n, seed, cpu, &p, err);
    if (status == CRUMB_OK && p.n_launches) status = compare(&p, n_values, failure, err);
    if (status == CRUMB_ERR_DEVICE) {
        snprintf(failure, KERNELS_FAILURE_BYTES, "%.300s", err->message);
        *n_values += !*n_values;
        status = CRUMB_OK;
    }
    if (*failure) describe(&p, seed, failure);
    pair_destroy(&p);
    return status;
}

/* What --shape says, or the form's own, with rows that the kernel is for. */
static size_t shapes_of(const kernels_choice *c, const kernels_form *f, const crumb_kernel_info *info, size_t number,
                        kernels_shape out[CLI_LIST_MAX]) {
    const uint32_t few = number % 2 ? info->max_n / 2 + 1 : info->max_n, many = number % 2 ? MANY_ROWS : SOME_ROWS;
    if (c->options->kernel_shapes.n) {
        memcpy(out, c->shapes, c->n_shapes * sizeof *out);
        return c->n_shapes;
    }
    out[0] = (kernels_shape){f->m, f->k, is_for_few(info) ? few : many};
    return 1;
}

crumb_status kernels_plans_test(const kernels_choice *c, size_t kernel, uint64_t seed, uint64_t *n_values,
                                char failure[KERNELS_FAILURE_BYTES], crumb_error *err) {
    const crumb_kernel_info info = kernels_info(c, kernel);
    kernels_shape shapes[CLI_LIST_MAX];
    crumb_device *cpu;
    *n_values = 0;
    *failure = 0;
    CRUMB_TRY(open_cpu("cpu:scalar", &cpu, err));
    crumb_status status = CRUMB_OK;
    for (size_t f = 0, number = 0; f < kernels_n_forms; f++) {
        if (!suits(&kernels_forms[f], &info)) continue;
        const size_t n = shapes_of(c, &kernels_forms[f], &info, number++, shapes); /* the same rows with --form */
        if (!wants_form(c, &kernels_forms[f])) continue;
        for (size_t i = 0; i < n && status == CRUMB_OK && !*failure && !cli_interrupted(NULL); i++)
            status = test_scene(c, kernel, &kernels_forms[f], &shapes[i], seed, cpu, n_values, failure, err);
    }
    crumb_backend_cpu.device.close(cpu);
    return status;
}

/* ---- time -------------------------------------------------------------------------------------------------- */

static void name_problem(const pair *p, char out[64]) {
    const kernels_form *f = p->scene.form;
    char weights[16] = "";
    int used;
    if (f->bits) snprintf(weights, sizeof weights, "u%u ", f->bits);
    if (strcmp(f->op, "embed") == 0 || strcmp(f->op, "dense") == 0 || strcmp(f->op, "split") == 0)
        if (!f->bits) snprintf(weights, sizeof weights, "%.8s ", crumb_type_get_info(f->type)->name);
    if (p->scene.kv.n_layers)
        used = snprintf(out, 64, "%u %s keys, %u heads of %u", p->scene.m, f->kv == CRUMB_KV_Q8 ? "int8" : "f16",
                        p->scene.k / f->head_dim, f->head_dim);
    else if (strcmp(f->op, "top") == 0)
        used = snprintf(out, 64, "%u values", p->scene.m);
    else if (f->m)
        used = snprintf(out, 64, "%s%u x %u", weights, p->scene.m, p->scene.k);
    else
        used = snprintf(out, 64, f->head_dim ? "%u wide, heads of %u" : "%u wide", p->scene.k, f->head_dim);
    if (used > 0 && used < 64)
        snprintf(out + used, 64 - (size_t)used, ", %u row%s", p->scene.n, p->scene.n == 1 ? "" : "s");
}

static crumb_status time_once(const pair *p, unsigned how, double *ns, crumb_error *err) {
    const kernels_choice *c = p->choice;
    CRUMB_TRY(kernels_stage_write(&p->device, err));
    return c->suite->plan_time(c->machine, p->kernel, p->device.plan, p->scene.rows, p->scene.n, how, ns, err);
}

/* *rounds: that are wanted, then those that ns has; and warm_ns, of cold rounds' turns with warm ones. *cold_bytes: the
 * least that were taken out of caches before a cold one. */
static crumb_status time_rounds(const pair *p, size_t *rounds, double *ns, double *warm_ns, uint64_t *cold_bytes,
                                crumb_error *err) {
    const kernels_choice *c = p->choice;
    const bool cold = c->options->cold;
    *cold_bytes = UINT64_MAX;
    for (size_t i = 0; i < *rounds + WARM_UP_ROUNDS && !cli_interrupted(NULL); i++) {
        const size_t round = i < WARM_UP_ROUNDS ? 0 : i - WARM_UP_ROUNDS;
        const uint64_t flushed = c->suite->machine_flushed(c->machine);
        CRUMB_TRY(time_once(p, cold ? CRUMB_BENCH_COLD : 0, &ns[round], err));
        const uint64_t n_bytes = c->suite->machine_flushed(c->machine) - flushed;
        if (n_bytes < *cold_bytes) *cold_bytes = n_bytes;
        if (cold) CRUMB_TRY(time_once(p, 0, &warm_ns[round], err)); /* the cold run has filled the caches */
        if (i == 0 && ns[round] > long_ns) return *rounds = 1, CRUMB_OK;
    }
    return CRUMB_OK;
}

/* Which unit is full, by the same 85 % as of linear layers. What comes from a cache says nothing of memory. */
static const char *limit_of(const kernels_plans_time *t) {
    const double full = 0.85;
    if (t->cold && t->read_gb_s > 0 && t->gb_s >= full * t->read_gb_s) return "bandwidth";
    if (t->peak_gops > 0 && t->gflops >= full * t->peak_gops) return "compute";
    if (!t->cold) return "-";
    return t->warm_ns >= full * t->ns ? "port" : "latency";
}

static crumb_status time_pair(const pair *p, size_t rounds, kernels_plans_time *out, crumb_error *err) {
    const kernels_choice *c = p->choice;
    crumb_kernel_roofs before, after;
    uint64_t cold_bytes;
    void *memory;
    CRUMB_TRY(crumb_calloc(2 * (uint64_t)rounds, sizeof(double), "times", &memory, err));
    double *const ns = memory, *const warm_ns = ns + rounds;
    c->suite->machine_roofs(c->machine, p->kernel, &before);
    crumb_status status = time_rounds(p, &rounds, ns, warm_ns, &cold_bytes, err);
    c->suite->machine_roofs(c->machine, p->kernel, &after); /* the machine drifts: halfway */
    *out = (kernels_plans_time){.info = kernels_info(c, p->kernel), .m = p->scene.m, .k = p->scene.k, .n = p->scene.n};
    name_problem(p, out->problem);
    out->ns = cli_median(ns, rounds);
    out->n_bytes = out->info.helps ? 0 : p->scene.n_bytes;
    out->gb_s = (double)out->n_bytes / out->ns;
    out->gflops = out->info.helps ? 0 : p->scene.n_flops / out->ns;
    out->read_gb_s = (before.read_gb_s + after.read_gb_s) / 2;
    out->peak_gops = out->info.int8_products ? (before.peak_gops + after.peak_gops) / 2 : 0;
    out->cold = c->options->cold;
    out->cold_bytes = cold_bytes;
    out->warm_ns = out->cold ? cli_median(warm_ns, rounds) : 0;
    out->limit = out->n_bytes ? limit_of(out) : "-";
    free(memory);
    return status;
}

/* One row and many, as models have them, where the kernel is for both. */
static size_t perf_shapes(const kernels_choice *c, const kernels_form *f, const crumb_kernel_info *info,
                          kernels_shape out[CLI_LIST_MAX]) {
    size_t n = 0;
    if (c->options->kernel_shapes.n) return shapes_of(c, f, info, 0, out);
    const bool few = is_for_few(info), attends = info->kind == CRUMB_OP_ATTENTION, any = info->max_n == UINT32_MAX;
    const uint32_t first = few && !attends ? info->max_n : 1; /* plans divide a row's keys, or do not: for many rows */
    const uint32_t many = any ? PERF_CPU_ROWS : PERF_ROWS;
    if (few || !attends || any) out[n++] = (kernels_shape){f->perf_m, f->perf_k, first};
    if (!few && info->kind != CRUMB_OP_TOP) out[n++] = (kernels_shape){f->perf_m, f->perf_k, many};
    return n;
}

crumb_status kernels_plans_perf(const kernels_choice *c, size_t kernel, kernels_plans_time_fn *emit, void *user,
                                crumb_error *err) {
    const crumb_kernel_info info = kernels_info(c, kernel);
    kernels_shape shapes[CLI_LIST_MAX];
    crumb_device *cpu;
    CRUMB_TRY(open_cpu(NULL, &cpu, err));
    crumb_status status = CRUMB_OK;
    for (size_t f = 0; f < kernels_n_forms; f++) {
        const kernels_form *form = &kernels_forms[f];
        const size_t n = suits(form, &info) && wants_form(c, form) ? perf_shapes(c, form, &info, shapes) : 0;
        for (size_t i = 0; i < n && status == CRUMB_OK && !cli_interrupted(NULL); i++) {
            kernels_plans_time time;
            pair p;
            status = pair_create(c, kernel, form, shapes[i].m, shapes[i].k, shapes[i].n, 1, cpu, &p, err);
            const bool mine = status == CRUMB_OK && p.n_launches;
            if (mine) status = time_pair(&p, (size_t)c->options->rounds, &time, err);
            if (mine && status == CRUMB_OK && !cli_interrupted(NULL)) emit(user, &time);
            pair_destroy(&p);
        }
    }
    crumb_backend_cpu.device.close(cpu);
    return status;
}
