#include "cpu/pool.h"

#include "host/base/thread.h"

#include <stdatomic.h>
#include <stdlib.h>

/* How long a thread spins before it sleeps. Steps of a plan differ by a few microseconds between threads; between two
 * tokens lie sampling and the caller's printing. Waking a sleeper costs about 5 to 50 microseconds. */
static const uint64_t barrier_spin_ns = 30000, idle_spin_ns = 200000;

enum { IDLE, ASLEEP, RUN, STOP };
enum { CACHE_LINE = 64, SPINS_PER_LOOK_AT_THE_CLOCK = 32 };

typedef struct worker {
    _Alignas(CACHE_LINE) _Atomic uint32_t state;
    crumb_pool *pool;
    crumb_thread *thread;
    int index, cpu; /* cpu -1: not pinned */
} worker;

struct crumb_pool {
    _Alignas(CACHE_LINE) _Atomic uint32_t arrived;    /* threads waiting at the barrier */
    _Alignas(CACHE_LINE) _Atomic uint32_t generation; /* barriers passed; what waiters watch */
    _Atomic uint32_t n_sleepers;
    _Alignas(CACHE_LINE) void (*fn)(void *ctx, int thread);
    void *ctx;
    uint32_t n_running; /* threads of the current run */
    int n_threads;
    worker workers[]; /* [n_threads]; workers[0] is the caller's and has no thread */
};

/* Spins until *word != value or the time is over; returns whether it changed. */
static bool spin_while_equal(_Atomic uint32_t *word, uint32_t value, uint64_t limit_ns) {
    uint64_t start = 0;
    for (;;) {
        for (int i = 0; i < SPINS_PER_LOOK_AT_THE_CLOCK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
            crumb_spin_pause();
        }
        uint64_t now = crumb_now_ns();
        if (start == 0) start = now;
        if (now - start > limit_ns) return false;
    }
}

static void sleep_while_equal(_Atomic uint32_t *word, uint32_t value) {
    while (atomic_load_explicit(word, memory_order_acquire) == value) crumb_wait_u32((const uint32_t *)word, value);
}

void crumb_pool_barrier(crumb_pool *pool) {
    uint32_t n = pool->n_running;
    if (n == 1) return;
    uint32_t generation = atomic_load_explicit(&pool->generation, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) + 1 == n) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        /* Sequentially consistent, as is the sleeper's side: either this thread sees the sleeper, or the sleeper sees
         * the new generation and does not sleep. */
        atomic_store(&pool->generation, generation + 1);
        if (atomic_load(&pool->n_sleepers) > 0) crumb_wake_all_u32((const uint32_t *)&pool->generation);
        return;
    }
    if (spin_while_equal(&pool->generation, generation, barrier_spin_ns)) return;
    atomic_fetch_add(&pool->n_sleepers, 1);
    while (atomic_load(&pool->generation) == generation)
        crumb_wait_u32((const uint32_t *)&pool->generation, generation);
    atomic_fetch_sub(&pool->n_sleepers, 1);
}

static uint32_t wait_for_work(worker *w) {
    if (!spin_while_equal(&w->state, IDLE, idle_spin_ns)) {
        uint32_t expected = IDLE;
        if (atomic_compare_exchange_strong(&w->state, &expected, ASLEEP)) sleep_while_equal(&w->state, ASLEEP);
    }
    return atomic_load_explicit(&w->state, memory_order_acquire);
}

static void worker_main(void *arg) {
    worker *w = arg;
    if (w->cpu >= 0) crumb_thread_pin_self(w->cpu);
    while (wait_for_work(w) == RUN) {
        /* The next RUN can only be posted after this run's last barrier. */
        atomic_store_explicit(&w->state, IDLE, memory_order_relaxed);
        w->pool->fn(w->pool->ctx, w->index);
        crumb_pool_barrier(w->pool);
    }
}

static void post(worker *w, uint32_t state) {
    if (atomic_exchange(&w->state, state) == ASLEEP) crumb_wake_all_u32((const uint32_t *)&w->state);
}

void crumb_pool_run(crumb_pool *pool, int n_threads, void (*fn)(void *ctx, int thread), void *ctx) {
    if (n_threads < 1 || n_threads > pool->n_threads) n_threads = pool->n_threads;
    pool->fn = fn;
    pool->ctx = ctx;
    pool->n_running = (uint32_t)n_threads;
    for (int i = 1; i < n_threads; i++) post(&pool->workers[i], RUN);
    fn(ctx, 0);
    crumb_pool_barrier(pool);
}

int crumb_pool_threads(const crumb_pool *pool) {
    return pool->n_threads;
}

void crumb_pool_destroy(crumb_pool *pool) {
    if (!pool) return;
    for (int i = 1; i < pool->n_threads; i++) {
        if (!pool->workers[i].thread) continue;
        post(&pool->workers[i], STOP);
        crumb_thread_join(pool->workers[i].thread);
    }
    free(pool);
}

crumb_status crumb_pool_create(int n_threads, crumb_pool **out, crumb_error *err) {
    int cpus[CRUMB_POOL_MAX_THREADS], n_cpus = crumb_cpu_physical(cpus, CRUMB_POOL_MAX_THREADS);
    *out = NULL;
    if (n_threads <= 0) n_threads = n_cpus > 0 ? n_cpus : 1;
    if (n_threads > CRUMB_POOL_MAX_THREADS)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%d threads are too many: the most is %d", n_threads,
                          CRUMB_POOL_MAX_THREADS);
    size_t n_bytes = sizeof(crumb_pool) + (size_t)n_threads * sizeof(worker);
    crumb_pool *pool = aligned_alloc(CACHE_LINE, (n_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!pool) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for %d threads", n_threads);
    atomic_init(&pool->arrived, 0);
    atomic_init(&pool->generation, 0);
    atomic_init(&pool->n_sleepers, 0);
    pool->n_threads = n_threads;
    for (int i = 0; i < n_threads; i++) {
        worker *w = &pool->workers[i];
        *w = (worker){.pool = pool, .index = i, .cpu = n_threads <= n_cpus ? cpus[i] : -1};
        atomic_init(&w->state, IDLE);
    }
    for (int i = 1; i < n_threads; i++) {
        crumb_status status = crumb_thread_start(worker_main, &pool->workers[i], &pool->workers[i].thread, err);
        if (status == CRUMB_OK) continue;
        crumb_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return CRUMB_OK;
}
