#include "cpu/walk.h"

#include "host/base/thread.h"

/* Threads finish a step within a few microseconds of each other. Spinning much longer than that burns the very core
 * that another thread may be waiting for. */
static const uint64_t step_spin_ns = 20000;

/* What n_items returned, or what a ticket says is left, of a step whose items are alike. */
static uint32_t few_items(uint32_t items) {
    return items & CRUMB_WALK_FEW ? items % CRUMB_WALK_FEW_ITEMS : items;
}

/* Publishes the first step at or after `step` (counted within the walk) that has items, or the walk's end. */
static void publish(crumb_walk *w, uint32_t base, uint32_t step) {
    uint32_t n = 0;
    while (step < w->n_steps && (n = w->n_items(w->ctx, step)) == 0) step++;
    uint32_t number = base + step;
    const uint32_t n_pending =
        n & CRUMB_WALK_SHARES ? (uint32_t)__builtin_popcount(n ^ CRUMB_WALK_SHARES) : few_items(n);
    atomic_store_explicit(&w->pending, n_pending, memory_order_relaxed);
    /* The step is stored before the ticket, since with the last ticket the walk's owner may begin the next walk.
     * Sequentially consistent, as is the sleeper's side: either this thread sees the sleeper, or the sleeper sees the
     * new number and does not sleep. */
    atomic_store(&w->step, number);
    atomic_store_explicit(&w->ticket, (uint64_t)number << 32 | n, memory_order_release);
    if (atomic_load(&w->n_sleepers) > 0) crumb_wake_all_u32((const uint32_t *)&w->step);
}

static void wait_for_next_step(crumb_walk *w, uint32_t number) {
    if (crumb_spin_while_equal(&w->step, number, step_spin_ns)) return;
    atomic_fetch_add(&w->n_sleepers, 1);
    while (atomic_load(&w->step) == number) crumb_wait_u32((const uint32_t *)&w->step, number);
    atomic_fetch_sub(&w->n_sleepers, 1);
}

/* Whether a thread should take one of the items left. One that has had no share of this step would take another's
 * before that thread has had time to come; and some items are not for all threads. */
static bool may_take(uint32_t left, int thread, bool had_share) {
    if (!(left & (CRUMB_WALK_SHARES | CRUMB_WALK_FEW))) return left > 0;
    if (!(left & CRUMB_WALK_SHARES))
        return few_items(left) > 0 && (uint32_t)thread < (left ^ CRUMB_WALK_FEW) / CRUMB_WALK_FEW_ITEMS;
    return left != CRUMB_WALK_SHARES && (had_share || (left >> thread & 1));
}

/* The item that the thread takes of those left, and what is left then. */
static uint32_t take(uint32_t left, int thread, uint32_t *item) {
    if (!(left & CRUMB_WALK_SHARES)) {
        *item = few_items(left) - 1;
        return left - 1;
    }
    const uint32_t own = left >> thread & 1;
    const uint32_t owner = own ? (uint32_t)thread : (uint32_t)__builtin_ctz(left);
    *item = CRUMB_WALK_SHARES | owner;
    return left & ~(1u << owner);
}

/* Reads nothing but atomics, and what crumb_walk_init has set, until it holds an item: a thread that comes late may
 * find the next walk, or none. */
static void join(void *ctx, int thread) {
    crumb_walk *w = ctx;
    crumb_walker walker = {.thread = thread, .prepared_step = UINT32_MAX, .shared_step = UINT32_MAX};
    uint32_t base = atomic_load_explicit(&w->base, memory_order_acquire);
    uint64_t ticket = atomic_load_explicit(&w->ticket, memory_order_acquire);
    for (;;) {
        uint32_t number = (uint32_t)(ticket >> 32), left = (uint32_t)ticket, step = number - base, item;
        if (step >= w->n_steps) return;
        if (!may_take(left, thread, walker.shared_step == step)) {
            if (w->idle) w->idle(w->ctx, step, thread);
            wait_for_next_step(w, number);
            ticket = atomic_load_explicit(&w->ticket, memory_order_acquire);
            continue;
        }
        const uint64_t taken = (uint64_t)number << 32 | take(left, thread, &item);
        if (!atomic_compare_exchange_weak_explicit(&w->ticket, &ticket, taken, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        if (item & CRUMB_WALK_SHARES) walker.shared_step = step;
        w->run(w->ctx, step, item, &walker);
        if (atomic_fetch_sub_explicit(&w->pending, 1, memory_order_acq_rel) == 1) publish(w, base, step + 1);
        ticket = atomic_load_explicit(&w->ticket, memory_order_acquire);
    }
}

void crumb_walk_init(crumb_walk *w, crumb_pool *pool, int n_threads, uint32_t n_steps,
                     uint32_t (*n_items)(void *ctx, uint32_t step),
                     void (*run)(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker), void *ctx) {
    w->pool = pool;
    w->job = (crumb_job){.fn = join, .ctx = w, .n_threads = n_threads};
    w->n_steps = n_steps;
    w->n_items = n_items;
    w->run = run;
    w->ctx = ctx;
    w->idle = NULL;
    atomic_init(&w->ticket, (uint64_t)n_steps << 32); /* a walk that is over */
    atomic_init(&w->pending, 0);
    atomic_init(&w->step, n_steps);
    atomic_init(&w->n_sleepers, 0);
    atomic_init(&w->base, 0);
}

void crumb_walk_run(crumb_walk *w) {
    uint32_t base = atomic_load_explicit(&w->base, memory_order_relaxed) + w->n_steps + 1; /* no walk's step or end */
    atomic_store_explicit(&w->base, base, memory_order_release);
    publish(w, base, 0);
    crumb_thread_cpus before;
    crumb_pool_call(w->pool, &w->job);
    const bool pinned = crumb_pool_pin_caller(w->pool, &before);
    join(w, 0);
    if (pinned) crumb_thread_pin_end(&before);
}

void crumb_walk_retire(crumb_walk *w) {
    if (w->pool) crumb_pool_retire(w->pool, &w->job);
}
