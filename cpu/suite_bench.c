/* The CPU's kernels timed, on all threads and in the core's own cache. */
#include "cpu/suite.h"

#include "cpu/knobs.h"
#include "cpu/plan.h"
#include "cpu/pool.h"
#include "cpu/probe.h"
#include "cpu/walk.h"
#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/lowbit/index.h"
#include "scheduler/chunks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the machine ------------------------------------------------------------------------------------------- */

struct crumb_kernel_machine {
    crumb_probe *probe; /* its pool runs the kernels too, so that idle threads of another do not spin beside it */
    bool asked_for_memory;
    uint64_t flushed_bytes;
    uint32_t most_reorder;
    crumb_isa isa;       /* of the plans that kernels are chosen for */
    crumb_device device; /* on the same pool */
};

crumb_isa crumb_suite_tier(const crumb_kernel_machine *m) {
    return m ? m->isa : crumb_isa_best();
}

crumb_device *crumb_suite_device(crumb_kernel_machine *m) {
    return &m->device;
}

bool crumb_suite_indexes(const crumb_kernel_machine *m, crumb_isa isa, const crumb_matrix *w) {
    return crumb_index_wanted(w, m ? crumb_cpu_device_index_bits(&m->device, isa) : crumb_cpu_index_bits(isa, 0));
}

/* "cpu:avx2". The kernels of a tier that does not run here can still be listed, for plans of the best. */
static crumb_status choose_tier(const char *target, crumb_isa *out, crumb_error *err) {
    const char *colon = target ? strchr(target, ':') : NULL, *name = colon ? colon + 1 : target;
    *out = crumb_isa_best();
    if (!name || strcmp(name, "cpu") == 0) return CRUMB_OK;
    crumb_isa isa;
    if (!crumb_isa_parse(name, &isa))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "target '%s': the CPU has no such tier", target);
    if (crumb_isa_available(isa)) *out = isa;
    return CRUMB_OK;
}

crumb_status crumb_suite_machine_create(const crumb_kernel_machine_params *params, crumb_kernel_machine **out,
                                        crumb_error *err) {
    void *memory;
    crumb_isa isa;
    *out = NULL;
    CRUMB_TRY(choose_tier(params->target, &isa, err));
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "a benchmark", &memory, err));
    crumb_kernel_machine *m = memory;
    m->isa = isa;
    crumb_status status = crumb_probe_create(params->n_threads, params->cpu_kind, &m->probe, err);
    if (status != CRUMB_OK) {
        free(m);
        return status;
    }
    m->device.pool = crumb_probe_pool(m->probe);
    m->device.cores = params->cores;
    crumb_cpu_device_set_tier(&m->device, isa);
    *out = m;
    return CRUMB_OK;
}

void crumb_suite_machine_destroy(crumb_kernel_machine *m) {
    if (m) crumb_probe_destroy(m->probe);
    free(m);
}

int crumb_suite_machine_threads(const crumb_kernel_machine *m) {
    return crumb_pool_threads(crumb_probe_pool(m->probe));
}

void crumb_suite_machine_roofs(crumb_kernel_machine *m, size_t kernel, crumb_kernel_roofs *out) {
    const crumb_isa isa = crumb_suite_isa(kernel);
    if (!m->asked_for_memory) crumb_probe_add_memory(m->probe, NULL); /* without, its roof is 0: unknown */
    m->asked_for_memory = true;
    *out = (crumb_kernel_roofs){.read_gb_s = crumb_probe_read(m->probe),
                                .peak_gops = crumb_probe_dot(m->probe, isa),
                                .clock_ghz = crumb_probe_clock(m->probe)};
}

uint32_t crumb_suite_machine_reorder(crumb_kernel_machine *m, uint32_t *most) {
    const uint32_t now = crumb_probe_reorder(m->probe);
    if (now > m->most_reorder) m->most_reorder = now;
    *most = m->most_reorder;
    return now;
}

/* ---- a problem --------------------------------------------------------------------------------------------- */

enum { MAX_CHUNKS = 512, NEAR_BYTES = 524288 };

struct crumb_kernel_bench {
    crumb_kernel_machine *machine;
    crumb_trial own, *trial; /* a run's trial is the caller's */
    float *y; /* of pages, as a plan's values are: a kernel's stores would else meet lines and pages as nowhere else */
    uint64_t y_bytes;
    char *scratch; /* [threads][scratch_bytes] */
    uint64_t scratch_bytes, n_scratch;
    crumb_walk walk;
    bool has_walk;
    /* The run under way. */
    const crumb_cpu_kernel *row;
    crumb_linear_args args;
    uint32_t unit, n_items; /* tile-rows that an item takes a multiple of */
    int n_threads;          /* who take items */
    uint32_t bounds[MAX_CHUNKS + 1];
    char *input; /* what bench_prepare makes: of its own, since the runs' activations are to stay as they are */
    size_t input_bytes;
};

static uint32_t bench_items(void *ctx, uint32_t step) {
    (void)step;
    const crumb_kernel_bench *b = ctx;
    return crumb_walk_items(b->n_items, b->n_threads, crumb_suite_machine_threads(b->machine));
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

/* What a bench with a trial needs to run kernels on all threads. */
static crumb_status set_walk(crumb_kernel_bench *b, crumb_error *err) {
    void *memory;
    b->scratch_bytes = crumb_round_up(b->trial->scratch_bytes, 64);
    b->n_scratch = (uint64_t)crumb_suite_machine_threads(b->machine);
    CRUMB_TRY(crumb_pages_alloc(b->n_scratch * b->scratch_bytes, "scratch", &memory, err));
    b->scratch = memory;
    crumb_walk_init(&b->walk, crumb_probe_pool(b->machine->probe), crumb_suite_machine_threads(b->machine), 1,
                    bench_items, bench_item, b);
    b->has_walk = true;
    return CRUMB_OK;
}

static void release_walk(crumb_kernel_bench *b) {
    if (b->has_walk) crumb_walk_retire(&b->walk);
    if (b->scratch) crumb_pages_free(b->scratch, b->scratch_bytes * b->n_scratch);
}

void crumb_suite_bench_destroy(crumb_kernel_bench *b) {
    if (!b) return;
    release_walk(b);
    crumb_trial_destroy(&b->own);
    if (b->y) crumb_pages_free(b->y, b->y_bytes);
    free(b->input);
    free(b);
}

static crumb_status fill_bench(crumb_kernel_bench *b, const crumb_kernel_problem *problem, crumb_error *err) {
    crumb_trial_params params = crumb_problem_trial(problem);
    uint64_t seed = 1;
    void *memory;
    b->trial = &b->own;
    CRUMB_TRY(crumb_trial_create(&params, &seed, b->trial, err));
    b->y_bytes = (uint64_t)params.n * params.m * sizeof(float);
    CRUMB_TRY(crumb_pages_alloc(b->y_bytes, "results", &memory, err));
    b->y = memory;
    return set_walk(b, err);
}

crumb_status crumb_suite_bench_create(crumb_kernel_machine *machine, const crumb_kernel_problem *problem,
                                      crumb_kernel_bench **out, crumb_error *err) {
    void *memory;
    *out = NULL;
    if (!crumb_problem_fits(problem)) return crumb_problem_refuse(problem, err);
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "a benchmark", &memory, err));
    crumb_kernel_bench *b = memory;
    b->machine = machine;
    crumb_status status = fill_bench(b, problem, err);
    if (status == CRUMB_OK)
        *out = b;
    else
        crumb_suite_bench_destroy(b);
    return status;
}

/* Tile-rows that an item takes a multiple of. */
static uint32_t unit_of(const crumb_cpu_kernel *row) {
    return row->layout ? row->layout->rows / CRUMB_TILE_ROWS : 1;
}

/* As a plan cuts chunks: their number and, but for the first, where they begin in units. */
static uint32_t cut(const crumb_cpu_kernel *row, const crumb_matrix *w, uint32_t share, int n_threads,
                    uint32_t bounds[MAX_CHUNKS + 1]) {
    const uint32_t n_units = (uint32_t)crumb_div_up(crumb_div_up(w->m, CRUMB_TILE_ROWS), unit_of(row));
    const uint64_t unit_bytes = (uint64_t)unit_of(row) * CRUMB_TILE_ROWS * w->k * w->bits / 8;
    const uint32_t step = row->op == CRUMB_CPU_GEMM ? CRUMB_STRIP_TILES : CRUMB_STREAM_TILES;
    return crumb_chunks_cut(n_units, unit_bytes, step, n_threads, share, MAX_CHUNKS, bounds);
}

/* As plans do it. */
static bool interleaves(const crumb_cpu_kernel *row, uint32_t n) {
    return row->op == CRUMB_CPU_GEMM && n > CRUMB_SMALL_N;
}

/* Points the bench at a kernel, and lays weights and activations out for it. */
static crumb_status choose(crumb_kernel_bench *b, size_t kernel, const char *knobs, crumb_error *err) {
    const crumb_cpu_kernel *row = crumb_suite_row(kernel);
    b->row = row;
    b->args = crumb_trial_args(b->trial, b->y, b->trial->params.m);
    b->args.knobs = crumb_cpu_knobs_parse(row->op, knobs);
    b->unit = unit_of(row);
    if (row->layout) CRUMB_TRY(crumb_trial_pack(b->trial, row->layout, &b->args, err));
    return interleaves(row, b->args.n) ? crumb_trial_interleave(b->trial, row->isa, &b->args, err) : CRUMB_OK;
}

/* The next n_bytes of the bench's room for inputs; with no room yet they are only counted. */
static void *take_input(crumb_kernel_bench *b, size_t n_bytes, size_t *at) {
    char *p = b->input ? b->input + *at : NULL;
    *at += crumb_round_up(n_bytes, 64);
    return p;
}

/* The parts of an input that a kernel reads: int8 activations, those in a GEMM's order, tables. Returns the bytes. */
static size_t lay_input_out(crumb_kernel_bench *b, crumb_linear_args *args, void **tables) {
    const size_t n_codes = (size_t)args->n * args->x.k_padded, n_groups = n_codes / args->x.group;
    size_t at = 0;
    args->x.q = take_input(b, n_codes, &at);
    args->x.qsum = take_input(b, n_groups * sizeof(int32_t), &at);
    args->x.sx = take_input(b, (args->x.row_scale ? args->n : n_groups) * sizeof(float), &at);
    args->x.interleaved = take_input(b, n_codes * CRUMB_INTERLEAVE_BYTES, &at);
    args->x.reach = take_input(b, n_codes / CRUMB_TILE_K * CRUMB_Q8_REACH * sizeof(uint16_t), &at);
    const bool has_tables = b->row->layout && b->row->layout->prepare;
    *tables = take_input(b, has_tables ? b->row->layout->prepared_bytes(args) : 0, &at);
    return at;
}

static void prepare_input(const crumb_kernel_bench *b, const crumb_linear_args *args, void *tables) {
    const crumb_cpu_kernel *row = b->row;
    const crumb_trial_params *p = &b->trial->params;
    crumb_interleave_fn *interleave = crumb_cpu_interleave_select(row->isa);
    if (row->acts & ~(1u << CRUMB_ACT_F32))
        crumb_cpu_quantize_select(row->isa)(b->trial->xf, p->k, p->k, p->bits, 0, p->n, &args->x);
    if (row->layout && row->layout->prepare) row->layout->prepare(args, tables);
    if (interleaves(row, p->n) && interleave) interleave(&args->x, crumb_cpu_operand_bits(row->isa, args->w), 0, p->n);
}

/* As plans do it: once for all parts that share an input, and for few rows on every thread by itself. */
crumb_status crumb_suite_bench_prepare(crumb_kernel_bench *b, size_t kernel, double *ns, crumb_error *err) {
    void *tables;
    CRUMB_TRY(choose(b, kernel, "", err));
    crumb_linear_args args = b->args;
    const size_t n_bytes = lay_input_out(b, &args, &tables);
    if (n_bytes > b->input_bytes) {
        free(b->input);
        b->input = NULL;
        b->input_bytes = 0;
        b->input = aligned_alloc(64, n_bytes); /* whole lines */
        if (!b->input) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for inputs");
        b->input_bytes = n_bytes;
    }
    lay_input_out(b, &args, &tables);
    const uint64_t began = crumb_now_ns();
    prepare_input(b, &args, tables);
    *ns = (double)(crumb_now_ns() - began);
    return CRUMB_OK;
}

void crumb_suite_flush(crumb_kernel_machine *m, const void *p, uint64_t n_bytes) {
    const uint64_t line = 64;
    for (uint64_t at = 0; p && at < n_bytes; at += line) {
        __builtin_ia32_clflush((const char *)p + at);
        m->flushed_bytes += line;
    }
    __builtin_ia32_mfence();
}

uint64_t crumb_suite_machine_flushed(const crumb_kernel_machine *m) {
    return m->flushed_bytes;
}

static uint64_t scale_bytes(const crumb_matrix *w) {
    uint64_t n = crumb_round_up(w->m, CRUMB_TILE_ROWS) * (crumb_round_up(w->k, CRUMB_TILE_K) / w->group);
    return n * (w->scales_f32 ? 4 : 2);
}

/* With as many threads as the knobs say, and their chunks. */
static double run_once(crumb_kernel_bench *b) {
    b->n_threads = crumb_cpu_knobs_threads(&b->args.knobs, crumb_suite_machine_threads(b->machine));
    b->n_items = cut(b->row, &b->trial->w, b->args.knobs.share, b->n_threads, b->bounds);
    uint64_t began = crumb_now_ns();
    crumb_walk_run(&b->walk);
    return (double)(crumb_now_ns() - began);
}

crumb_status crumb_suite_bench_run(crumb_kernel_bench *b, size_t kernel, const char *knobs, unsigned how, double *ns,
                                   crumb_error *err) {
    CRUMB_TRY(choose(b, kernel, knobs, err));
    const crumb_matrix *w = &b->trial->w;
    if (how & CRUMB_BENCH_COLD) {
        crumb_suite_flush(b->machine, b->row->layout ? b->trial->packed : w->codes,
                          b->row->layout ? b->trial->packed_bytes : b->trial->codes_bytes);
        crumb_suite_flush(b->machine, w->scales, scale_bytes(w));
        crumb_suite_flush(b->machine, w->mins, scale_bytes(w));
    }
    crumb_probe_wake(b->machine->probe);
    *ns = run_once(b);
    return CRUMB_OK;
}

crumb_status crumb_suite_run(crumb_kernel_machine *machine, size_t kernel, const char *knobs, crumb_trial *t, float *y,
                             crumb_error *err) {
    crumb_kernel_bench b = {.machine = machine, .trial = t, .y = y};
    crumb_status status = set_walk(&b, err);
    if (status == CRUMB_OK) status = choose(&b, kernel, knobs, err);
    if (status == CRUMB_OK) run_once(&b);
    release_walk(&b);
    return status;
}

/* Half of L2 for the weights, or all of them where that is less, on the calling thread alone. What takes microseconds
 * only is run several times. */
crumb_status crumb_suite_bench_run_near(crumb_kernel_bench *b, size_t kernel, double *ns, double *share,
                                        crumb_error *err) {
    CRUMB_TRY(choose(b, kernel, "", err));
    const uint64_t cache = crumb_cache_bytes(2) ? crumb_cache_bytes(2) / 2 : 131072;
    uint64_t unit_bytes = (uint64_t)b->unit * b->trial->x.k_padded * CRUMB_TILE_ROWS * b->trial->w.bits / 8;
    uint64_t n_units = unit_bytes < cache ? cache / unit_bytes : 1;
    crumb_linear_args args = b->args;
    if (n_units * b->unit < args.tile1) args.tile1 = (uint32_t)n_units * b->unit;
    args.scratch = b->scratch;
    const uint64_t run_bytes = unit_bytes * (args.tile1 / b->unit + 1), n_runs = 1 + NEAR_BYTES / run_bytes;
    b->row->run(&args);
    uint64_t began = crumb_now_ns();
    for (uint64_t i = 0; i < n_runs; i++) b->row->run(&args);
    *ns = (double)(crumb_now_ns() - began) / (double)n_runs;
    *share = (double)args.tile1 / (double)b->args.tile1;
    return CRUMB_OK;
}

uint64_t crumb_suite_bench_bytes(const crumb_kernel_bench *b, size_t kernel) {
    const crumb_cpu_layout *layout = crumb_suite_row(kernel)->layout;
    const crumb_matrix *w = &b->trial->w;
    return (layout ? layout->packed_bytes(w) : b->trial->codes_bytes) + scale_bytes(w) * (w->mins ? 2 : 1);
}

/* The kernel says what it makes of its knobs, and chunks are told by a hash of where they begin. */
void crumb_suite_setting_effect(const crumb_kernel_machine *machine, size_t kernel, const char *knobs,
                                const crumb_kernel_problem *problem, char effect[CRUMB_KNOBS_BYTES]) {
    const crumb_cpu_kernel *row = crumb_suite_row(kernel);
    const crumb_trial_params params = crumb_problem_trial(problem);
    const crumb_matrix w = crumb_problem_matrix(problem);
    const uint32_t k_padded = (uint32_t)crumb_round_up(w.k, CRUMB_TILE_K);
    const bool by_row = params.act != CRUMB_ACT_GROUP;
    crumb_cpu_knobs used = crumb_cpu_knobs_parse(row->op, knobs);
    uint32_t bounds[MAX_CHUNKS + 1], hash = 2166136261u;
    const int n_threads = crumb_cpu_knobs_threads(&used, machine ? crumb_suite_machine_threads(machine) : 1);
    const uint32_t n = cut(row, &w, used.share, n_threads, bounds);
    for (uint32_t i = 0; i < n; i++) hash = (hash ^ bounds[i]) * 16777619u;
    if (row->rank >= 0 && row->isa != CRUMB_ISA_SCALAR)
        row->run(&(crumb_linear_args){
            .w = &w,
            .x = {.k_padded = k_padded, .row_scale = by_row, .group = by_row ? w.group : params.act_group},
            .n = problem->n,
            .tile1 = (uint32_t)crumb_div_up(w.m, CRUMB_TILE_ROWS),
            .knobs = used,
            .effect = &used});
    snprintf(effect, CRUMB_KNOBS_BYTES, "%u %u %u %u %u %u %d %u %08x", used.streams, used.unroll, used.near_bytes,
             used.far_kb, used.columns, used.steps, n_threads, n, hash);
}
