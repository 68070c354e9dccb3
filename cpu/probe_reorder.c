/* How far a core looks ahead, by itself and beside another thread. The method is that of H. Wong, "Measuring Reorder
 * Buffer Capacity" (2013): two loads that miss all caches overlap as long as no more instructions lie between them than
 * the reorder window holds, and take turns beyond that. What lies between them are empty instructions, which take a
 * place there on Intel's cores; on AMD's they take none (Zen 4: loads overlap across 720 of them), and others run out
 * of registers first (208 that write one). */
#include "cpu/probe.h"

#include "cpu/kernels.h"
#include "cpu/walk.h"
#include "host/base/thread.h"

enum { LOADS = 24, PASSES = 3 };

/* Two chains of loads at random lines: the address of each depends on the chain's load before. */
typedef struct load_chains {
    const uint8_t *data;
    uint64_t n_lines, at[2];
    uint64_t zero; /* which the compiler does not know */
} load_chains;

static inline void load_next(load_chains *c, int chain) {
    const uint64_t line = (uint64_t)(((unsigned __int128)c->at[chain] * c->n_lines) >> 64);
    const uint64_t seen = *(const volatile uint64_t *)(const volatile void *)(c->data + line * 64);
    c->at[chain] = (c->at[chain] + (seen & c->zero)) * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

/* Empty instructions behind each load, as many as the function's name says. */
#if defined(__x86_64__) || defined(__i386__)
#define EMPTY(n) __asm__ volatile(".rept " #n "\n\tnop\n\t.endr")
#define LOADS_APART(n)                                                                                                 \
    static void loads_apart_##n(load_chains *c) {                                                                      \
        for (int i = 0; i < LOADS; i++) {                                                                              \
            load_next(c, 0);                                                                                           \
            EMPTY(n);                                                                                                  \
            load_next(c, 1);                                                                                           \
            EMPTY(n);                                                                                                  \
        }                                                                                                              \
    }
LOADS_APART(48)
LOADS_APART(80)
LOADS_APART(112)
LOADS_APART(144)
LOADS_APART(176)
LOADS_APART(208)
LOADS_APART(256)
LOADS_APART(304)
LOADS_APART(368)
LOADS_APART(432)
LOADS_APART(480)
#undef LOADS_APART
#undef EMPTY

typedef struct rung {
    uint32_t n;
    void (*run)(load_chains *chains);
} rung;

static const rung ladder[] = {{48, loads_apart_48},
                              {80, loads_apart_80},
                              {112, loads_apart_112},
                              {144, loads_apart_144},
                              {176, loads_apart_176},
                              {208, loads_apart_208},
                              {256, loads_apart_256},
                              {304, loads_apart_304},
                              {368, loads_apart_368},
                              {432, loads_apart_432},
                              {CRUMB_PROBE_REORDER_MOST, loads_apart_480}};
enum { N_RUNGS = sizeof ladder / sizeof ladder[0] };

/* The last rung before the first whose loads take turns. Empty instructions themselves take a part of a load's time,
 * and loads in turns twice of it. */
static uint32_t climb(load_chains *c) {
    const double in_turns = 1.65;
    uint64_t ns[N_RUNGS] = {0};
    for (int pass = 0; pass < PASSES; pass++)
        for (size_t i = 0; i < N_RUNGS; i++) {
            const uint64_t began = crumb_now_ns();
            ladder[i].run(c);
            ns[i] += crumb_now_ns() - began;
        }
    size_t last = 0;
    while (last + 1 < N_RUNGS && (double)ns[last + 1] < in_turns * (double)ns[0]) last++;
    return ladder[last].n;
}
#else
static uint32_t climb(load_chains *c) {
    (void)c;
    return 0;
}
#endif

/* Every thread has a share of the one step, so that each measures its own core, all at once. */
typedef struct climbers {
    const uint8_t *data;
    uint64_t n_lines;
    uint32_t shares, window[CRUMB_WALK_MAX_SHARES];
} climbers;

static uint32_t climber_shares(void *ctx, uint32_t step) {
    (void)step;
    return ((climbers *)ctx)->shares;
}

static void climber_run(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    (void)step, (void)walker;
    climbers *c = ctx;
    const uint32_t i = item & ~CRUMB_WALK_SHARES;
    const uint64_t now = crumb_now_ns();
    load_chains chains = {.data = c->data, .n_lines = c->n_lines, .at = {now * UINT64_C(0x9E3779B97F4A7C15) + i, ~now}};
    __asm__ volatile("" : "=r"(chains.zero) : "0"(UINT64_C(0)));
    c->window[i] = climb(&chains);
}

uint32_t crumb_probe_reorder(crumb_probe *probe) {
    crumb_pool *pool = crumb_probe_pool(probe);
    uint64_t n_bytes = 0;
    climbers c = {.data = crumb_probe_memory(probe, &n_bytes), .n_lines = n_bytes / 64};
    const int n_threads = crumb_pool_threads(pool);
    const uint32_t n = n_threads < CRUMB_WALK_MAX_SHARES ? (uint32_t)n_threads : CRUMB_WALK_MAX_SHARES;
    if (!c.data || !crumb_core_is_intel()) return 0;
    c.shares = CRUMB_WALK_SHARES | ((1u << n) - 1);
    crumb_walk walk;
    crumb_probe_wake(probe);
    crumb_walk_init(&walk, pool, n_threads, 1, climber_shares, climber_run, &c);
    crumb_walk_run(&walk);
    crumb_walk_retire(&walk);
    uint32_t least = c.window[0];
    for (uint32_t i = 1; i < n; i++) least = c.window[i] < least ? c.window[i] : least;
    return least;
}
