#include "cpu/probe.h"

#include "cpu/walk.h"
#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "scheduler/chunks.h"

#include <stdlib.h>
#include <string.h>

enum { READ_UNIT = 8192, STREAMS = 8, LINE = 64, PREFETCH = 16 * LINE };
/* Work is cut into chunks that threads take one after the other, as the kernels' is: a core that is slower, or busy
 * with something else for a moment, costs the probe what it costs them. */
enum { MAX_CHUNKS = 4096, DOT_CHUNKS_PER_THREAD = 16, DOT_ROUNDS = 1000000 / DOT_CHUNKS_PER_THREAD };
/* A pass reads a window of the buffer, and the next one the window behind: about as long as what it is compared with,
 * so that what interrupts one interrupts the other as often. */
static const uint64_t window_bytes = UINT64_C(32) << 20;

/* Steps that are read one after the other, over and over: of each where it begins in a round of them, and its chunks,
 * in READ_UNITs. */
typedef struct step_reads {
    uint32_t n_steps;
    uint64_t begin, round_units; /* where the first round begins in the buffer, and what a round takes */
    uint64_t first[CRUMB_PROBE_MAX_STEPS];
    uint32_t n_chunks[CRUMB_PROBE_MAX_STEPS], bounds[CRUMB_PROBE_MAX_STEPS][MAX_CHUNKS + 1];
} step_reads;

struct crumb_probe {
    crumb_pool *pool;
    uint8_t *data; /* NULL: without memory */
    crumb_probe_read_fn *read;
    uint64_t n_bytes;
    uint32_t window, n_windows;
    step_reads reads;                      /* under way */
    uint64_t sink[CRUMB_POOL_MAX_THREADS]; /* keeps the compiler from dropping the work */
};

/* Tiers without vectors: several streams all the same. */
static uint64_t read_scalar(const void *p, uint64_t n_bytes) {
    const uint64_t stream_bytes = n_bytes / STREAMS / LINE * LINE;
    uint64_t sum[LINE / 8] = {0};
    for (uint64_t at = 0; at < stream_bytes; at += LINE)
        for (unsigned s = 0; s < STREAMS; s++) {
            uint64_t line[LINE / 8];
            const uint8_t *from = (const uint8_t *)p + s * stream_bytes + at;
            __builtin_prefetch(from + PREFETCH);
            memcpy(line, from, LINE);
            for (unsigned j = 0; j < LINE / 8; j++) sum[j] += line[j];
        }
    for (unsigned j = 1; j < LINE / 8; j++) sum[0] += sum[j];
    return sum[0];
}

/* ---- one pass on all threads ------------------------------------------------------------------------------- */

typedef struct pass {
    crumb_probe *probe;
    void (*run)(crumb_probe *probe, uint32_t item, uint64_t argument, uint64_t *sink);
    uint64_t argument;
    uint32_t n_items; /* 0: one per thread */
} pass;

static uint32_t pass_items(void *ctx, uint32_t step) {
    (void)step;
    return ((pass *)ctx)->n_items;
}

static void pass_run(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    (void)step;
    pass *p = ctx;
    p->run(p->probe, item, p->argument, &p->probe->sink[walker->thread]);
}

/* Seconds for n_steps steps. */
static double time_walk(crumb_probe *probe, uint32_t n_steps, uint32_t (*n_items)(void *, uint32_t),
                        void (*run)(void *, uint32_t, uint32_t, crumb_walker *), void *ctx) {
    crumb_walk walk;
    crumb_walk_init(&walk, probe->pool, crumb_pool_threads(probe->pool), n_steps, n_items, run, ctx);
    const uint64_t began = crumb_now_ns();
    crumb_walk_run(&walk);
    const double seconds = (double)(crumb_now_ns() - began + 1) * 1e-9;
    crumb_walk_retire(&walk);
    return seconds;
}

/* The same for one. */
static double time_pass(crumb_probe *probe, pass *p) {
    p->probe = probe;
    if (p->n_items == 0) p->n_items = (uint32_t)crumb_pool_threads(probe->pool);
    return time_walk(probe, 1, pass_items, pass_run, p);
}

static void touch_window(crumb_probe *probe, uint32_t item, uint64_t argument, uint64_t *sink) {
    (void)sink;
    memset(probe->data + item * window_bytes, (int)(item + argument), window_bytes);
}

static crumb_probe_dot_fn *dot_of(crumb_isa isa) {
    if (!crumb_isa_available(isa)) return NULL;
    switch (isa) {
    case CRUMB_ISA_AVX2: return crumb_probe_dot__avx2;
    case CRUMB_ISA_AVXVNNI: return crumb_probe_dot__avxvnni;
    case CRUMB_ISA_AVXVNNIINT8: return crumb_probe_dot__avxvnniint8;
    case CRUMB_ISA_AVX512YMM: return crumb_probe_dot__avx512ymm;
    case CRUMB_ISA_AVX512VNNI:
    case CRUMB_ISA_AVX512VBMI: return crumb_probe_dot__avx512vnni;
    case CRUMB_ISA_SCALAR:
    case CRUMB_ISA_COUNT: break;
    }
    return NULL;
}

static void dot_part(crumb_probe *probe, uint32_t item, uint64_t argument, uint64_t *sink) {
    (void)probe, (void)item;
    *sink += dot_of((crumb_isa)argument)(DOT_ROUNDS);
}

/* ---- the probe --------------------------------------------------------------------------------------------- */

/* A roof is what the best way reaches: some processors are faster when lines are asked for early, others without. */
static void choose_read(crumb_probe *probe) {
    enum { PASSES = 7, WAYS = 4 };
    crumb_probe_read_fn *const ways[WAYS] = {crumb_probe_read__avx2, crumb_probe_read_ahead__avx2,
                                             crumb_probe_read_far__avx2, crumb_probe_read_two__avx2};
    double best[WAYS] = {0};
    int fastest = 0;
    probe->read = read_scalar;
    if (!crumb_isa_available(CRUMB_ISA_AVX2)) return;
    for (int i = 0; i < WAYS * PASSES; i++) {
        probe->read = ways[i % WAYS];
        const double gb_s = crumb_probe_read(probe);
        if (gb_s > best[i % WAYS]) best[i % WAYS] = gb_s;
    }
    for (int i = 1; i < WAYS; i++)
        if (best[i] > best[fastest]) fastest = i;
    probe->read = ways[fastest];
}

/* The threads have one cache each at most. */
uint64_t crumb_probe_cached_bytes(const crumb_probe *probe) {
#if defined(CRUMB_SANITIZED) /* such code says nothing of speed, and a gigabyte's shadow takes long to make */
    (void)probe;
    return 0;
#else
    const uint64_t all = crumb_cache_all_bytes(3),
                   most = crumb_cache_bytes(3) * (uint64_t)crumb_pool_threads(probe->pool);
    return 4 * (most && most < all ? most : all);
#endif
}

crumb_status crumb_probe_add_memory(crumb_probe *probe, crumb_error *err) {
    if (probe->data) return CRUMB_OK;
    const uint64_t least = UINT64_C(128) << 20, cached = crumb_probe_cached_bytes(probe);
    const uint64_t wanted = cached >= least ? cached + least / 4 : least;
    probe->n_bytes = crumb_round_up(wanted, window_bytes);
    probe->n_windows = (uint32_t)(probe->n_bytes / window_bytes);
    if (probe->n_bytes > crumb_memory_available_bytes() / 2)
        return crumb_fail(err, CRUMB_ERR_MEMORY, "measuring memory takes %llu MB, more than half of what is free",
                          (unsigned long long)(probe->n_bytes >> 20));
    void *data;
    CRUMB_TRY(crumb_pages_alloc(probe->n_bytes, "the bandwidth probe", &data, err));
    probe->data = data;
    /* Untouched pages are all one page of zeros. */
    time_pass(probe, &(pass){.run = touch_window, .argument = 1, .n_items = probe->n_windows});
    choose_read(probe);
    return CRUMB_OK;
}

crumb_status crumb_probe_create(int n_threads, const char *cpu_kind, crumb_probe **out, crumb_error *err) {
    crumb_cores_wanted cores;
    void *p;
    *out = NULL;
    if (!crumb_cores_wanted_parse(cpu_kind, &cores))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "cores of kind '%s': there are auto, p, e and all", cpu_kind);
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "a probe", &p, err));
    crumb_probe *probe = p;
    crumb_status status = crumb_pool_create(n_threads, cores, &probe->pool, err);
    if (status == CRUMB_OK)
        *out = probe;
    else
        crumb_probe_destroy(probe);
    return status;
}

void crumb_probe_destroy(crumb_probe *probe) {
    if (!probe) return;
    if (probe->data) crumb_pages_free(probe->data, probe->n_bytes);
    crumb_pool_destroy(probe->pool);
    free(probe);
}

crumb_pool *crumb_probe_pool(const crumb_probe *probe) {
    return probe->pool;
}

const uint8_t *crumb_probe_memory(const crumb_probe *probe, uint64_t *n_bytes) {
    *n_bytes = probe->n_bytes;
    return probe->data;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static void add_step(crumb_probe *probe, uint64_t n_bytes) {
    step_reads *r = &probe->reads;
    const uint32_t step = r->n_steps++, n_units = (uint32_t)crumb_div_up(n_bytes, READ_UNIT);
    r->first[step] = r->round_units;
    r->round_units += n_units;
    r->n_chunks[step] =
        crumb_chunks_cut(n_units, READ_UNIT, 1, crumb_pool_threads(probe->pool), 0, MAX_CHUNKS, r->bounds[step]);
}

static uint32_t step_chunks(void *ctx, uint32_t step) {
    const step_reads *r = &((crumb_probe *)ctx)->reads;
    return r->n_chunks[step % r->n_steps];
}

static void read_chunk(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    crumb_probe *probe = ctx;
    const step_reads *r = &probe->reads;
    const uint32_t kind = step % r->n_steps;
    const uint32_t chunk = r->n_chunks[kind] - 1 - item; /* the highest item is taken first, and the largest chunk */
    const uint64_t at = r->begin + step / r->n_steps * r->round_units + r->first[kind];
    const uint64_t begin = at + r->bounds[kind][chunk], end = at + r->bounds[kind][chunk + 1];
    probe->sink[walker->thread] += probe->read(probe->data + begin * READ_UNIT, (end - begin) * READ_UNIT);
}

double crumb_probe_read_steps(crumb_probe *probe, const uint64_t *step_bytes, uint32_t n_steps) {
    step_reads *r = &probe->reads;
    if (!probe->data || n_steps > CRUMB_PROBE_MAX_STEPS) return 0;
    r->n_steps = 0;
    r->round_units = 0;
    for (uint32_t i = 0; i < n_steps; i++) add_step(probe, step_bytes[i]);
    const uint64_t n_units = probe->n_bytes / READ_UNIT, window_units = window_bytes / READ_UNIT;
    if (r->round_units == 0 || r->round_units > n_units) return 0;
    const uint64_t n_rounds = r->round_units < window_units ? window_units / r->round_units : 1;
    probe->window = (probe->window + 1) % probe->n_windows;
    r->begin = probe->window * window_units;
    if (r->begin + n_rounds * r->round_units > n_units) r->begin = 0;
    crumb_probe_wake(probe);
    const double seconds = time_walk(probe, (uint32_t)n_rounds * n_steps, step_chunks, read_chunk, probe);
    return (double)(n_rounds * r->round_units * READ_UNIT) * 1e-9 / seconds;
}

double crumb_probe_read(crumb_probe *probe) {
    return crumb_probe_read_steps(probe, &window_bytes, 1);
}

/* ---- computing ---------------------------------------------------------------------------------------------- */

/* Multiplications of one dot product instruction. */
static double macs_of(crumb_isa isa) {
    return isa >= CRUMB_ISA_AVX512VNNI ? 64 : 32;
}

double crumb_probe_dot(crumb_probe *probe, crumb_isa isa) {
    if (!dot_of(isa)) return 0;
    const uint32_t n_items = (uint32_t)crumb_pool_threads(probe->pool) * DOT_CHUNKS_PER_THREAD;
    pass p = {.run = dot_part, .argument = (uint64_t)isa, .n_items = n_items};
    crumb_probe_wake(probe);
    return 2e-9 * n_items * DOT_ROUNDS * CRUMB_PROBE_CHAINS * macs_of(isa) / time_pass(probe, &p);
}

/* A chain of multiplications: 3 cycles each on every x86 core of the last fifteen years, and never eliminated by
 * renaming, as additions can be. */
static void clock_part(crumb_probe *probe, uint32_t item, uint64_t argument, uint64_t *sink) {
    (void)probe, (void)item;
    const uint64_t n = 200000;
    uint64_t x = argument | 1, began = crumb_now_ns();
    for (uint64_t i = 0; i < n; i++) {
        x *= x;
        __asm__ volatile("" : "+r"(x));
    }
    *sink = crumb_now_ns() - began + (x == 0);
}

double crumb_probe_clock(crumb_probe *probe) {
    probe->sink[0] = 0;
    while (probe->sink[0] == 0) /* others may take all items */
        time_pass(probe, &(pass){.run = clock_part, .argument = 3});
    return 3 * 200000.0 / (double)probe->sink[0];
}
