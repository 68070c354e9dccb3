#include "cpu/pool.h"

#include <stdatomic.h>
#include <stdlib.h>

/* How long an idle worker spins before it sleeps: between two tokens lie sampling and the caller's printing. Waking a
 * sleeper costs 5 to 50 microseconds. */
static const uint64_t idle_spin_ns = 200000;

enum { IDLE, ASLEEP, CALLED, STOP };
enum { CACHE_LINE = 64, SPINS_PER_LOOK_AT_THE_CLOCK = 32 };

typedef struct worker {
    _Alignas(CACHE_LINE) _Atomic uint32_t state;
    _Atomic bool inside; /* a job */
    crumb_pool *pool;
    crumb_thread *thread;
    int index, cpu; /* cpu -1: not pinned */
} worker;

struct crumb_pool {
    _Alignas(CACHE_LINE) _Atomic(const crumb_job *) job; /* the one called last; NULL: retired */
    int n_threads;
    bool pins_caller;
    worker workers[]; /* [n_threads]; workers[0] is the caller's and has no thread */
};

bool crumb_spin_while_equal(_Atomic uint32_t *word, uint32_t value, uint64_t limit_ns) {
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

/* Takes the call (or the order to stop), waiting for it if need be. */
static uint32_t wait_for_call(worker *w) {
    if (!crumb_spin_while_equal(&w->state, IDLE, idle_spin_ns)) {
        uint32_t expected = IDLE;
        if (atomic_compare_exchange_strong(&w->state, &expected, ASLEEP))
            while (atomic_load(&w->state) == ASLEEP) crumb_wait_u32((const uint32_t *)&w->state, ASLEEP);
    }
    uint32_t expected = CALLED;
    atomic_compare_exchange_strong(&w->state, &expected, IDLE);
    return expected;
}

static void worker_main(void *arg) {
    worker *w = arg;
    if (w->cpu >= 0) crumb_thread_pin_self(w->cpu);
    while (wait_for_call(w) == CALLED) {
        /* Sequentially consistent, as in retire: either this thread sees that the job is gone, or retire sees that it
         * is inside. */
        atomic_store(&w->inside, true);
        const crumb_job *job = atomic_load(&w->pool->job);
        if (job && w->index < job->n_threads) job->fn(job->ctx, w->index);
        atomic_store(&w->inside, false);
    }
}

static void post(worker *w, uint32_t state) {
    if (atomic_exchange(&w->state, state) == ASLEEP) crumb_wake_all_u32((const uint32_t *)&w->state);
}

void crumb_pool_call(crumb_pool *pool, const crumb_job *job) {
    atomic_store(&pool->job, job);
    for (int i = 1; i < job->n_threads && i < pool->n_threads; i++) post(&pool->workers[i], CALLED);
}

void crumb_pool_retire(crumb_pool *pool, const crumb_job *job) {
    const crumb_job *expected = job;
    atomic_compare_exchange_strong(&pool->job, &expected, NULL);
    for (int i = 1; i < pool->n_threads; i++)
        while (atomic_load(&pool->workers[i].inside)) crumb_thread_yield();
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

int crumb_pool_cpu(const crumb_pool *pool, int index) {
    return pool->workers[index].cpu;
}

bool crumb_pool_pin_caller(const crumb_pool *pool, crumb_thread_cpus *before) {
    return pool->pins_caller && crumb_thread_pin_begin(pool->workers[0].cpu, before);
}

/* Which cores threads run on. */
typedef struct places {
    int cpus[CRUMB_POOL_MAX_THREADS], n_cpus;
    bool alike; /* it does not matter which of them the caller runs on */
    bool named; /* and no others */
} places;

static crumb_status find_places(crumb_cores_wanted wanted, places *out, crumb_error *err) {
    crumb_topology t;
    crumb_topology_read(&t);
    CRUMB_TRY(crumb_topology_choose(&t, wanted, out->cpus, CRUMB_POOL_MAX_THREADS, &out->n_cpus, err));
    out->alike = t.n_of_kind[CRUMB_CORE_P] == t.n_cores;
    out->named = wanted != CRUMB_CORES_AUTO && wanted != CRUMB_CORES_ALL && !out->alike;
    if (!t.this_machine)
        for (int i = 0; i < out->n_cpus; i++) out->cpus[i] = -1;
    return CRUMB_OK;
}

static int place_of(const places *p, int index, int n_threads) {
    if (n_threads <= p->n_cpus) return p->cpus[index];
    return p->named ? p->cpus[index % p->n_cpus] : -1;
}

crumb_status crumb_pool_create(int n_threads, crumb_cores_wanted wanted, crumb_pool **out, crumb_error *err) {
    places found;
    *out = NULL;
    CRUMB_TRY(find_places(wanted, &found, err));
    if (n_threads <= 0) n_threads = found.n_cpus;
    if (n_threads > CRUMB_POOL_MAX_THREADS)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%d threads are too many: the most is %d", n_threads,
                          CRUMB_POOL_MAX_THREADS);
    size_t n_bytes = sizeof(crumb_pool) + (size_t)n_threads * sizeof(worker);
    crumb_pool *pool = aligned_alloc(CACHE_LINE, (n_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!pool) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for %d threads", n_threads);
    atomic_init(&pool->job, NULL);
    pool->n_threads = n_threads;
    for (int i = 0; i < n_threads; i++) {
        worker *w = &pool->workers[i];
        *w = (worker){.pool = pool, .index = i, .cpu = place_of(&found, i, n_threads)};
        atomic_init(&w->state, IDLE);
        atomic_init(&w->inside, false);
    }
    pool->pins_caller = !found.alike && pool->workers[0].cpu >= 0;
    for (int i = 1; i < n_threads; i++) {
        crumb_status status = crumb_thread_start(worker_main, &pool->workers[i], &pool->workers[i].thread, err);
        if (status == CRUMB_OK) continue;
        crumb_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return CRUMB_OK;
}
