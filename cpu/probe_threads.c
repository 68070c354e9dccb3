/* What threads cost each other: waking up, the price of a step, and that of a call. */
#include "cpu/probe.h"

#include "cpu/walk.h"
#include "host/base/thread.h"

#include <stdlib.h>

enum { STEPS = 2000, WAKING_STEPS = 100, LEAST_STEPS = STEPS / 20 };

/* What a thread has done of the step that it was last in; so large that threads write no line of each other's. */
typedef struct step_hand {
    uint32_t step, n_items;
    uint8_t apart[120];
} step_hand;

/* Of steps whose price is measured. */
typedef struct step_times {
    int n_threads;
    uint64_t began_ns[STEPS];
    _Atomic uint32_t most_items[STEPS]; /* of one thread */
    step_hand hand[CRUMB_POOL_MAX_THREADS];
} step_times;

/* Work that each item of a step does, so that threads must wait for each other: a microsecond. */
static void step_part(void) {
    uint64_t x = 3;
    for (int i = 0; i < 1000; i++) {
        x *= x;
        __asm__ volatile("" : "+r"(x));
    }
}

static uint32_t waking_items(void *ctx, uint32_t step) {
    (void)step;
    return *(uint32_t *)ctx;
}

static void waking_item(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    (void)ctx, (void)step, (void)item, (void)walker;
    step_part();
}

/* Takes longer than a thread takes to wake up. */
void crumb_probe_wake(crumb_probe *probe) {
    uint32_t n_threads = (uint32_t)crumb_pool_threads(crumb_probe_pool(probe));
    crumb_walk walk;
    crumb_walk_init(&walk, crumb_probe_pool(probe), (int)n_threads, WAKING_STEPS, waking_items, waking_item,
                    &n_threads);
    crumb_walk_run(&walk);
    crumb_walk_retire(&walk);
}

/* ---- the price of a step -------------------------------------------------------------------------------------- */

/* Asked when the step before is over. */
static uint32_t begin_step(void *ctx, uint32_t step) {
    step_times *t = ctx;
    t->began_ns[step] = crumb_now_ns();
    return (uint32_t)t->n_threads;
}

static void run_step(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    (void)item;
    step_times *t = ctx;
    step_hand *hand = &t->hand[walker->thread];
    _Atomic uint32_t *most = &t->most_items[step];
    step_part();
    hand->n_items = hand->step == step ? hand->n_items + 1 : 1;
    hand->step = step;
    uint32_t seen = atomic_load_explicit(most, memory_order_relaxed);
    while (hand->n_items > seen && !atomic_compare_exchange_weak(most, &seen, hand->n_items)) {
    }
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, by_size);
    return values[n / 2];
}

/* An item and a look at the clock, as they follow each other on one thread. */
static double item_ns(void) {
    double ns[STEPS];
    for (int i = 0; i < STEPS; i++) {
        const uint64_t began = crumb_now_ns();
        step_part();
        ns[i] = (double)(crumb_now_ns() - began);
    }
    return median(ns, STEPS);
}

/* What steps took beyond the items of the thread that did most of them; `whole`: only of those to which every thread
 * came, since a thread that does all items waits for nobody. Returns how many. */
static int step_prices(const step_times *t, double item, bool whole, double *ns) {
    int n = 0;
    for (int i = 0; i + 1 < STEPS; i++) {
        const uint32_t most = atomic_load(&t->most_items[i]);
        if (!whole || most == 1) ns[n++] = (double)(t->began_ns[i + 1] - t->began_ns[i]) - item * most;
    }
    return n;
}

double crumb_probe_step(crumb_probe *probe) {
    crumb_pool *pool = crumb_probe_pool(probe);
    const double item = item_ns();
    double ns[STEPS - 1];
    step_times t = {.n_threads = crumb_pool_threads(pool)};
    crumb_walk walk;
    for (int i = 0; i < t.n_threads; i++) t.hand[i].step = UINT32_MAX;
    crumb_probe_wake(probe);
    crumb_walk_init(&walk, pool, t.n_threads, STEPS, begin_step, run_step, &t);
    crumb_walk_run(&walk);
    crumb_walk_retire(&walk);
    const int n = step_prices(&t, item, true, ns);
    const double price =
        n >= LEAST_STEPS ? median(ns, (size_t)n) : median(ns, (size_t)step_prices(&t, item, false, ns));
    return price > 0 ? price : 0;
}

/* ---- the price of a call --------------------------------------------------------------------------------------- */

enum { CALLS = 500 };
static const uint64_t call_pause_ns = 5000; /* workers are back and spin, and do not sleep yet */
static const uint64_t call_limit_ns = 1000000;

/* When a worker came; each on lines of its own. */
typedef struct arrival {
    _Alignas(128) _Atomic uint64_t ns; /* 0: not yet */
} arrival;

static void arrive(void *ctx, int thread) {
    atomic_store_explicit(&((arrival *)ctx)[thread].ns, crumb_now_ns(), memory_order_release);
}

static void spin_until(uint64_t ns) {
    while (crumb_now_ns() < ns) crumb_spin_pause();
}

/* Whether a worker has come to the call of began_ns, or does so before it is too long. */
static bool await(arrival *a, uint64_t began_ns, uint64_t *came_ns) {
    do {
        *came_ns = atomic_load_explicit(&a->ns, memory_order_acquire);
    } while (*came_ns < began_ns && crumb_now_ns() - began_ns < call_limit_ns);
    return *came_ns >= began_ns;
}

double crumb_probe_call(crumb_probe *probe) {
    arrival arrivals[CRUMB_POOL_MAX_THREADS];
    const int n_threads = crumb_pool_threads(crumb_probe_pool(probe));
    const crumb_job job = {.fn = arrive, .ctx = arrivals, .n_threads = n_threads};
    double ns[CALLS];
    size_t n = 0;
    for (int i = 0; i < n_threads; i++) atomic_init(&arrivals[i].ns, 0);
    crumb_probe_wake(probe);
    for (int i = 0; i < CALLS && n_threads > 1; i++) {
        const int thread = 1 + i % (n_threads - 1);
        uint64_t came_ns;
        spin_until(crumb_now_ns() + call_pause_ns);
        const uint64_t began_ns = crumb_now_ns();
        crumb_pool_call(crumb_probe_pool(probe), &job);
        if (await(&arrivals[thread], began_ns, &came_ns)) ns[n++] = (double)(came_ns - began_ns);
    }
    crumb_pool_retire(crumb_probe_pool(probe), &job);
    return n ? median(ns, n) : 0;
}
