/* The CPU's kernels one by one, outside of plans: comparing each with the reference and timing it on all threads. */
#include "cpu/suite.h"

#include "cpu/chunks.h"
#include "cpu/knobs.h"
#include "cpu/pool.h"
#include "cpu/probe.h"
#include "cpu/trial.h"
#include "cpu/walk.h"
#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/lowbit/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const crumb_cpu_kernel *row_of(size_t kernel) {
    size_t n;
    return &crumb_cpu_kernels(&n)[kernel];
}

static size_t n_kernels(void) {
    size_t n;
    crumb_cpu_kernels(&n);
    return n;
}

static crumb_kernel_info info(size_t kernel) {
    const crumb_cpu_kernel *row = row_of(kernel);
    return (crumb_kernel_info){.name = row->name,
                               .op = row->op == CRUMB_CPU_GEMV ? "gemv" : "gemm",
                               .target = crumb_isa_name(row->isa),
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
                               .available = crumb_isa_available(row->isa),
                               .max_nmse = (double)row->max_nmse};
}

/* As models have it: the weights' group, but at most 128. */
static uint32_t activation_group(const crumb_kernel_problem *p) {
    uint32_t whole = p->group ? p->group : (uint32_t)crumb_round_up(p->k, CRUMB_TILE_K), group = 128;
    while (whole % group) group /= 2;
    return group;
}

static crumb_trial_params trial_params(const crumb_kernel_problem *p) {
    return (crumb_trial_params){.bits = p->format->bits,
                                .max_code = p->format->max_code,
                                .mul = p->format->mul,
                                .sub = p->format->sub,
                                .codebook = p->format->codebook,
                                .m = p->m,
                                .k = p->k,
                                .n = p->n,
                                .group = p->group,
                                .act = p->act,
                                .act_group = activation_group(p)};
}

/* Groups must divide K. */
static bool shape_fits(const crumb_kernel_problem *p) {
    return !p->group ||
           ((p->group == 16 || p->group % CRUMB_TILE_K == 0) && crumb_round_up(p->k, CRUMB_TILE_K) % p->group == 0);
}

static crumb_matrix shape_of_problem(const crumb_kernel_problem *p) {
    return (crumb_matrix){.bits = (uint8_t)p->format->bits,
                          .max_code = (uint8_t)p->format->max_code,
                          .mul = (int16_t)p->format->mul,
                          .sub = (int16_t)p->format->sub,
                          .codebook = p->format->codebook,
                          .m = p->m,
                          .k = p->k,
                          .group = p->group ? p->group : (uint32_t)crumb_round_up(p->k, CRUMB_TILE_K)};
}

static bool takes(size_t kernel, const crumb_kernel_problem *p) {
    const crumb_cpu_kernel *row = row_of(kernel);
    if (!crumb_isa_available(row->isa) || !(row->acts >> p->act & 1) || !shape_fits(p)) return false;
    const crumb_matrix w = shape_of_problem(p);
    return row->bits != 0 && crumb_cpu_kernel_takes(row, &w);
}

static size_t chosen(const crumb_kernel_problem *p) {
    crumb_matrix w = shape_of_problem(p);
    size_t n;
    const crumb_isa isa = crumb_isa_best();
    const crumb_cpu_kernel *rows = crumb_cpu_kernels(&n);
    w.indexed = crumb_cpu_wants_index(isa) && crumb_index_fits(&w);
    const crumb_cpu_kernel *row = shape_fits(p) ? crumb_cpu_kernel_select(&w, p->act, p->n, isa) : NULL;
    return row ? (size_t)(row - rows) : SIZE_MAX;
}

/* ---- settings ---------------------------------------------------------------------------------------------- */

static size_t n_settings(size_t kernel) {
    const crumb_cpu_kernel *row = row_of(kernel);
    return row->rank < 0 || row->isa == CRUMB_ISA_SCALAR ? 1 : crumb_cpu_knobs_count(row->op);
}

static void setting(size_t kernel, size_t number, char knobs[CRUMB_KNOBS_BYTES]) {
    const crumb_cpu_knobs values = crumb_cpu_knobs_candidate(row_of(kernel)->op, number);
    crumb_cpu_knobs_print(row_of(kernel)->op, &values, knobs, CRUMB_KNOBS_BYTES);
}

static void identify(char device[96], char target[32], char source[20]) {
    crumb_cpu_model_name(device, 96);
    snprintf(target, 32, "%s", crumb_isa_name(crumb_isa_best()));
    snprintf(source, 20, "%s", crumb_cpu_kernels_hash());
}

/* ---- comparing --------------------------------------------------------------------------------------------- */

static bool same_bits(float a, float b) {
    uint32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y;
}

static void compare(const crumb_cpu_kernel *row, const crumb_trial *t, const float *y, const float *expected,
                    crumb_kernel_check *out) {
    const crumb_trial_params *p = &t->params;
    double error = 0;
    *out = (crumb_kernel_check){.ok = true, .n_values = (uint64_t)p->n * p->m};
    for (uint64_t i = 0; i < out->n_values; i++) {
        double difference = (double)y[i] - (double)expected[i];
        error += difference * difference;
        if (row->max_nmse > 0 || !out->ok || same_bits(y[i], expected[i])) continue;
        out->ok = false;
        snprintf(out->where, sizeof out->where, "y[%u][%u] is %a, not %a", (unsigned)(i / p->m), (unsigned)(i % p->m),
                 (double)y[i], (double)expected[i]);
    }
    if (row->max_nmse <= 0) return;
    const double power = crumb_trial_power(t, expected);
    out->nmse = power > 0 ? error / power : error;
    if (out->nmse <= (double)row->max_nmse) return;
    out->ok = false;
    snprintf(out->where, sizeof out->where, "the error is %g of the result, above %g", out->nmse,
             (double)row->max_nmse);
}

static crumb_status check_trial(const crumb_cpu_kernel *row, const char *knobs, crumb_trial *t, float *y,
                                float *expected, crumb_kernel_check *out, crumb_error *err) {
    const crumb_trial_params *p = &t->params;
    crumb_linear_args args = crumb_trial_args(t, expected, p->m);
    if (p->act == CRUMB_ACT_F32)
        crumb_linear_f32__ref(&args);
    else
        crumb_linear_i8__ref(&args);
    args.y = y;
    args.knobs = crumb_cpu_knobs_parse(row->op, knobs);
    if (row->layout) CRUMB_TRY(crumb_trial_pack(t, row->layout, &args, err));
    row->run(&args);
    compare(row, t, y, expected, out);
    return CRUMB_OK;
}

/* As K-quants have it, where it fits; 0: scales have one level. */
static uint32_t super_group(const crumb_trial_params *p) {
    const uint32_t size = 256;
    return p->group && size % p->group == 0 && crumb_round_up(p->k, CRUMB_TILE_K) % size == 0 ? size : 0;
}

static crumb_status check(size_t kernel, const char *knobs, const crumb_kernel_problem *problem, uint64_t seed,
                          bool extreme, crumb_kernel_check *out, crumb_error *err) {
    crumb_trial_params params = trial_params(problem);
    const bool bounded = params.act != CRUMB_ACT_F32; /* sums of floats have no bound to reach */
    if (extreme && bounded) params.fill = seed % 2 ? CRUMB_FILL_POSITIVE : CRUMB_FILL_NEGATIVE;
    params.has_min = !params.codebook && seed / 2 % 2;
    params.scales_f32 = seed / 4 % 2;
    if (seed / 8 % 2 && row_of(kernel)->rank >= 0) params.super_group = super_group(&params);
    crumb_trial t;
    void *y = NULL;
    crumb_status status = crumb_trial_create(&params, &seed, &t, err);
    if (status == CRUMB_OK) status = crumb_calloc(2 * (uint64_t)params.n * params.m, sizeof(float), "results", &y, err);
    if (status == CRUMB_OK)
        status = check_trial(row_of(kernel), knobs, &t, y, (float *)y + (size_t)params.n * params.m, out, err);
    free(y);
    crumb_trial_destroy(&t);
    return status;
}

/* ---- timing ------------------------------------------------------------------------------------------------ */

enum { MAX_CHUNKS = 512 };

struct crumb_kernel_bench {
    crumb_probe *probe; /* and its pool, so that idle threads of another do not spin beside it */
    crumb_trial trial;
    float *y;
    char *scratch; /* [threads][scratch_bytes] */
    uint64_t scratch_bytes, n_scratch;
    const crumb_cpu_layout *packed_for; /* what the trial is packed for now; NULL: nothing */
    crumb_walk walk;
    bool has_walk, asked_for_memory;
    /* The run under way. */
    const crumb_cpu_kernel *row;
    crumb_linear_args args;
    uint32_t unit, n_items; /* tile-rows that an item takes a multiple of */
    uint32_t bounds[MAX_CHUNKS + 1];
};

static int bench_threads(const crumb_kernel_bench *b) {
    return crumb_pool_threads(crumb_probe_pool(b->probe));
}

static uint32_t bench_items(void *ctx, uint32_t step) {
    (void)step;
    return ((crumb_kernel_bench *)ctx)->n_items;
}

static void bench_item(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    (void)step;
    crumb_kernel_bench *b = ctx;
    const uint32_t chunk = b->n_items - 1 - item; /* the first and largest one comes first, as the highest item */
    uint64_t begin = (uint64_t)b->bounds[chunk] * b->unit, end = (uint64_t)b->bounds[chunk + 1] * b->unit;
    crumb_linear_args args = b->args;
    args.scratch = b->scratch + (size_t)walker->thread * b->scratch_bytes;
    args.tile0 = (uint32_t)begin;
    args.tile1 = end < args.tile1 ? (uint32_t)end : args.tile1;
    if (args.tile0 < args.tile1) b->row->run(&args);
}

static void bench_destroy(crumb_kernel_bench *b) {
    if (!b) return;
    if (b->has_walk) crumb_walk_retire(&b->walk);
    crumb_probe_destroy(b->probe);
    crumb_trial_destroy(&b->trial);
    if (b->scratch) crumb_pages_free(b->scratch, b->scratch_bytes * b->n_scratch);
    free(b->y);
    free(b);
}

static crumb_status fill_bench(crumb_kernel_bench *b, const crumb_kernel_problem *problem, int n_threads,
                               crumb_error *err) {
    crumb_trial_params params = trial_params(problem);
    uint64_t seed = 1;
    void *memory;
    CRUMB_TRY(crumb_trial_create(&params, &seed, &b->trial, err));
    CRUMB_TRY(crumb_probe_create(n_threads, &b->probe, err));
    b->scratch_bytes = crumb_round_up(b->trial.scratch_bytes, 64);
    CRUMB_TRY(crumb_calloc((uint64_t)params.n * params.m, sizeof(float), "results", &memory, err));
    b->y = memory;
    b->n_scratch = (uint64_t)bench_threads(b);
    CRUMB_TRY(crumb_pages_alloc(b->n_scratch * b->scratch_bytes, "scratch", &memory, err));
    b->scratch = memory;
    crumb_walk_init(&b->walk, crumb_probe_pool(b->probe), bench_threads(b), 1, bench_items, bench_item, b);
    b->has_walk = true;
    return CRUMB_OK;
}

static crumb_status bench_create(const crumb_kernel_problem *problem, int n_threads, crumb_kernel_bench **out,
                                 crumb_error *err) {
    void *memory;
    *out = NULL;
    if (!shape_fits(problem))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "groups of %u do not divide a row of %u", problem->group,
                          problem->k);
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "a benchmark", &memory, err));
    crumb_kernel_bench *b = memory;
    crumb_status status = fill_bench(b, problem, n_threads, err);
    if (status == CRUMB_OK)
        *out = b;
    else
        bench_destroy(b);
    return status;
}

/* Points the bench at a kernel, and lays weights and activations out for it. */
static crumb_status choose(crumb_kernel_bench *b, size_t kernel, const char *knobs, crumb_error *err) {
    const crumb_cpu_kernel *row = row_of(kernel);
    const void *packed = b->trial.packed, *prepared = b->trial.prepared;
    b->row = row;
    b->args = crumb_trial_args(&b->trial, b->y, b->trial.params.m);
    b->args.knobs = crumb_cpu_knobs_parse(row->op, knobs);
    b->unit = row->layout ? row->layout->rows / CRUMB_TILE_ROWS : 1;
    if (!row->layout) return CRUMB_OK;
    b->args.packed = packed;
    b->args.prepared = prepared;
    if (row->layout == b->packed_for) return CRUMB_OK;
    b->packed_for = NULL;
    CRUMB_TRY(crumb_trial_pack(&b->trial, row->layout, &b->args, err));
    b->packed_for = row->layout;
    return CRUMB_OK;
}

static void flush(const void *p, uint64_t n_bytes) {
    for (uint64_t at = 0; p && at < n_bytes; at += 64) __builtin_ia32_clflush((const char *)p + at);
    __builtin_ia32_mfence();
}

static uint64_t scale_bytes(const crumb_matrix *w) {
    uint64_t n = crumb_round_up(w->m, CRUMB_TILE_ROWS) * (crumb_round_up(w->k, CRUMB_TILE_K) / w->group);
    return n * (w->scales_f32 ? 4 : 2);
}

static double run_once(crumb_kernel_bench *b) {
    uint64_t began = crumb_now_ns();
    crumb_walk_run(&b->walk);
    return (double)(crumb_now_ns() - began);
}

/* As a plan cuts chunks. */
static void cut(crumb_kernel_bench *b) {
    const uint32_t n_units = (uint32_t)crumb_div_up(b->args.tile1, b->unit);
    const uint64_t unit_bytes = (uint64_t)b->unit * CRUMB_TILE_ROWS * b->trial.w.k * b->trial.w.bits / 8;
    b->n_items = 0;
    for (uint32_t at = 0; at < n_units && b->n_items < MAX_CHUNKS; b->bounds[++b->n_items] = at)
        at = b->n_items + 1 == MAX_CHUNKS
                 ? n_units
                 : crumb_chunk_end(at, n_units, unit_bytes, bench_threads(b), b->args.knobs.share);
}

static crumb_status bench_run(crumb_kernel_bench *b, size_t kernel, const char *knobs, bool cold, double *ns,
                              crumb_error *err) {
    CRUMB_TRY(choose(b, kernel, knobs, err));
    const crumb_matrix *w = &b->trial.w;
    if (cold) {
        flush(b->row->layout ? b->trial.packed : w->codes,
              b->row->layout ? b->trial.packed_bytes : b->trial.codes_bytes);
        flush(w->scales, scale_bytes(w));
        flush(w->mins, scale_bytes(w));
    }
    cut(b);
    crumb_probe_wake(b->probe);
    *ns = run_once(b);
    return CRUMB_OK;
}

/* Half of L2 for the weights, on the calling thread alone: L1 holds too few rows for kernels that read several streams.
 */
static crumb_status bench_run_near(crumb_kernel_bench *b, size_t kernel, double *ns, double *share, crumb_error *err) {
    CRUMB_TRY(choose(b, kernel, "", err));
    const uint64_t cache = crumb_cache_bytes(2) ? crumb_cache_bytes(2) / 2 : 131072;
    uint64_t unit_bytes = (uint64_t)b->unit * b->trial.x.k_padded * CRUMB_TILE_ROWS * b->trial.w.bits / 8;
    uint64_t n_units = unit_bytes < cache ? cache / unit_bytes : 1;
    crumb_linear_args args = b->args;
    if (n_units * b->unit < args.tile1) args.tile1 = (uint32_t)n_units * b->unit;
    args.scratch = b->scratch;
    b->row->run(&args);
    uint64_t began = crumb_now_ns();
    b->row->run(&args);
    *ns = (double)(crumb_now_ns() - began);
    *share = (double)args.tile1 / (double)b->args.tile1;
    return CRUMB_OK;
}

static void bench_roofs(crumb_kernel_bench *b, size_t kernel, crumb_kernel_roofs *out) {
    crumb_isa isa = row_of(kernel)->isa;
    if (!b->asked_for_memory) crumb_probe_add_memory(b->probe, NULL); /* without, its roof is 0: unknown */
    b->asked_for_memory = true;
    *out = (crumb_kernel_roofs){.read_gb_s = crumb_probe_read(b->probe),
                                .peak_gops = crumb_probe_dot(b->probe, isa),
                                .clock_ghz = crumb_probe_clock(b->probe)};
}

static uint64_t bench_bytes(const crumb_kernel_bench *b, size_t kernel) {
    const crumb_cpu_layout *layout = row_of(kernel)->layout;
    const crumb_matrix *w = &b->trial.w;
    return (layout ? layout->packed_bytes(w) : b->trial.codes_bytes) + scale_bytes(w) * (w->mins ? 2 : 1);
}

const crumb_kernel_suite crumb_kernel_suite_cpu = {.backend = "cpu",
                                                   .n_kernels = n_kernels,
                                                   .info = info,
                                                   .takes = takes,
                                                   .chosen = chosen,
                                                   .n_settings = n_settings,
                                                   .setting = setting,
                                                   .identify = identify,
                                                   .check = check,
                                                   .bench_create = bench_create,
                                                   .bench_destroy = bench_destroy,
                                                   .bench_threads = bench_threads,
                                                   .bench_run = bench_run,
                                                   .bench_run_near = bench_run_near,
                                                   .bench_roofs = bench_roofs,
                                                   .bench_bytes = bench_bytes};
