/* Thread pool and walks: every item is done once and after all items of the steps before, also with more threads than
 * cores, with threads that come late, and with walks that follow each other at once. */
#include "cpu/walk.h"
#include "host/base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 40, MAX_ITEMS = 23, MAX_THREADS = 9 };

typedef struct record {
    crumb_walk walk;
    int run, n_threads;
    int done[STEPS][MAX_ITEMS]; /* the run that did it last: plain memory, so that a race is seen by a sanitizer */
    atomic_int n_wrong;
    atomic_uint came[STEPS]; /* threads (bits) that have taken an item, or found none */
    int slow_thread;         /* sleeps in some items; -1: none */
} record;

static uint32_t items_of(void *ctx, uint32_t step) {
    (void)ctx;
    return step % 5 == 4 ? 0 : 1 + step * 7 % MAX_ITEMS; /* some steps are left out, the last one among them */
}

static void run_item(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    record *r = ctx;
    int wrong = item >= items_of(ctx, step) || walker->thread < 0 || walker->thread >= r->n_threads;
    wrong += r->done[step][item] != r->run - 1; /* once per run */
    for (uint32_t before = 0; before < step; before++)
        for (uint32_t i = 0; i < items_of(ctx, before); i++) wrong += r->done[before][i] != r->run;
    if (walker->thread == r->slow_thread && step == 7)
        for (uint64_t start = crumb_now_ns(); crumb_now_ns() - start < 300000;) crumb_thread_yield();
    r->done[step][item] = r->run;
    if (wrong) atomic_fetch_add(&r->n_wrong, wrong);
}

static void check_run(record *r) {
    r->run++;
    crumb_walk_run(&r->walk);
    for (uint32_t step = 0; step < STEPS; step++)
        for (uint32_t i = 0; i < items_of(r, step); i++) assert_int_equal(r->done[step][i], r->run);
    assert_int_equal(atomic_load(&r->n_wrong), 0);
}

static void every_item_is_done_in_order(void **state) {
    (void)state;
    crumb_error err = {0};
    for (int n = 1; n <= MAX_THREADS; n += 2) {
        crumb_pool *pool;
        record r = {.n_threads = n, .slow_thread = -1};
        assert_int_equal(crumb_pool_create(n, CRUMB_CORES_AUTO, &pool, &err), CRUMB_OK);
        assert_int_equal(crumb_pool_threads(pool), n);
        crumb_walk_init(&r.walk, pool, n, STEPS, items_of, run_item, &r);
        for (int run = 0; run < 60; run++) {
            r.slow_thread = run % 20 == 5 ? 0 : run % 20 == 10 ? n - 1 : -1;
            check_run(&r);
        }
        crumb_walk_retire(&r.walk);
        crumb_pool_destroy(pool);
    }
}

/* Two plans of a session take turns, with different numbers of threads; one goes while the other lives. */
static void walks_take_turns(void **state) {
    (void)state;
    crumb_error err = {0};
    crumb_pool *pool;
    record a = {.n_threads = 4, .slow_thread = -1};
    assert_int_equal(crumb_pool_create(4, CRUMB_CORES_AUTO, &pool, &err), CRUMB_OK);
    crumb_walk_init(&a.walk, pool, 4, STEPS, items_of, run_item, &a);
    for (int turn = 0; turn < 30; turn++) {
        record b = {.n_threads = 1 + turn % 3, .slow_thread = -1};
        crumb_walk_init(&b.walk, pool, b.n_threads, STEPS - turn, items_of, run_item, &b);
        for (int run = 0; run < 3; run++) {
            b.run++;
            crumb_walk_run(&b.walk);
            check_run(&a);
        }
        assert_int_equal(atomic_load(&b.n_wrong), 0);
        for (uint32_t step = 0; step < STEPS - (uint32_t)turn; step++)
            for (uint32_t i = 0; i < items_of(&b, step); i++) assert_int_equal(b.done[step][i], 3);
        crumb_walk_retire(&b.walk);
    }
    crumb_walk_retire(&a.walk);
    crumb_pool_destroy(pool);
}

static uint32_t one_item_per_thread(void *ctx, uint32_t step) {
    (void)step;
    return (uint32_t)((record *)ctx)->n_threads;
}

/* An item that ends only when all items of its step have begun: several threads must really come. */
static void wait_for_all(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    (void)item;
    (void)walker;
    record *r = ctx;
    atomic_fetch_add(&r->n_wrong, 1);
    while (atomic_load(&r->n_wrong) < (int)(step + 1) * r->n_threads) crumb_thread_yield();
}

static void all_threads_come(void **state) {
    (void)state;
    crumb_error err = {0};
    record r = {.n_threads = 4};
    crumb_pool *pool;
    assert_int_equal(crumb_pool_create(4, CRUMB_CORES_AUTO, &pool, &err), CRUMB_OK);
    crumb_walk_init(&r.walk, pool, 4, 10, one_item_per_thread, wait_for_all, &r);
    crumb_walk_run(&r.walk);
    assert_int_equal(atomic_load(&r.n_wrong), 40);
    crumb_walk_retire(&r.walk);
    crumb_pool_destroy(pool);
}

/* ---- threads that find nothing left ------------------------------------------------------------------------- */

static uint32_t one_item(void *ctx, uint32_t step) {
    (void)ctx, (void)step;
    return 1;
}

/* An item that ends only when every other thread has said that it waits. */
static void wait_for_idle(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    (void)item;
    record *r = ctx;
    const unsigned others = ((1u << r->n_threads) - 1) & ~(1u << walker->thread);
    while (atomic_load(&r->came[step]) != others) crumb_thread_yield();
}

static void note_idle(void *ctx, uint32_t step, int thread) {
    record *r = ctx;
    if (atomic_fetch_or(&r->came[step], 1u << thread) >> thread & 1) atomic_fetch_add(&r->n_wrong, 1); /* once a step */
}

static void idle_threads_are_told(void **state) {
    (void)state;
    crumb_error err = {0};
    record r = {.n_threads = 3};
    crumb_pool *pool;
    assert_int_equal(crumb_pool_create(3, CRUMB_CORES_AUTO, &pool, &err), CRUMB_OK);
    crumb_walk_init(&r.walk, pool, 3, STEPS, one_item, wait_for_idle, &r);
    r.walk.idle = note_idle;
    crumb_walk_run(&r.walk);
    assert_int_equal(atomic_load(&r.n_wrong), 0);
    crumb_walk_retire(&r.walk);
    crumb_pool_destroy(pool);
}

/* ---- items that some threads take -------------------------------------------------------------------------- */

/* Steps for all threads, for the first 1, 2, ... of them, and of shares, in turns. */
static int takers_of(const record *r, uint32_t step) {
    return step % 3 == 1 ? 1 + (int)step / 3 % r->n_threads : r->n_threads;
}

static uint32_t some_take(void *ctx, uint32_t step) {
    const record *r = ctx;
    const uint32_t all = (1u << r->n_threads) - 1;
    return step % 3 == 2 ? CRUMB_WALK_SHARES | all
                         : crumb_walk_items(3 * (uint32_t)r->n_threads, takers_of(r, step), r->n_threads);
}

/* Every thread that may take an item must do so before any of these ends, which gives the others time to come as well.
 */
static void run_for_some(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    record *r = ctx;
    const int n = takers_of(r, step);
    const uint32_t number = item & ~CRUMB_WALK_SHARES;
    int wrong = walker->thread >= n || number >= MAX_ITEMS || r->done[step][number] != r->run - 1;
    atomic_fetch_or(&r->came[step], 1u << walker->thread);
    while (step % 3 == 1 && !wrong && __builtin_popcount(atomic_load(&r->came[step])) < n) crumb_thread_yield();
    r->done[step][number] = r->run;
    if (wrong) atomic_fetch_add(&r->n_wrong, wrong);
}

static void some_threads_take_a_step(void **state) {
    (void)state;
    crumb_error err = {0};
    for (int n = 1; n <= 7; n += 2) {
        crumb_pool *pool;
        record r = {.n_threads = n, .slow_thread = -1};
        assert_int_equal(crumb_pool_create(n, CRUMB_CORES_AUTO, &pool, &err), CRUMB_OK);
        crumb_walk_init(&r.walk, pool, n, STEPS, some_take, run_for_some, &r);
        for (int run = 0; run < 20; run++) {
            for (int step = 0; step < STEPS; step++) atomic_store(&r.came[step], 0);
            r.run++;
            crumb_walk_run(&r.walk);
            assert_int_equal(atomic_load(&r.n_wrong), 0);
            for (uint32_t step = 0; step < STEPS; step++)
                for (int i = 0; i < (step % 3 == 2 ? n : 3 * n); i++) assert_int_equal(r.done[step][i], r.run);
        }
        crumb_walk_retire(&r.walk);
        crumb_pool_destroy(pool);
    }
}

/* As many as there may be of a step for all, and of one for some. */
static void items_are_counted(void **state) {
    (void)state;
    assert_int_equal(crumb_walk_items(CRUMB_WALK_FEW - 1, 4, 4), CRUMB_WALK_FEW - 1);
    assert_int_equal(crumb_walk_items(0, 1, 4), 0); /* a step without items is left out, whoever would take them */
    assert_int_equal(crumb_walk_items(5, CRUMB_POOL_MAX_THREADS - 1, CRUMB_POOL_MAX_THREADS),
                     CRUMB_WALK_FEW + (CRUMB_POOL_MAX_THREADS - 1) * CRUMB_WALK_FEW_ITEMS + 5);
}

/* ---- shares ------------------------------------------------------------------------------------------------ */

/* Steps of shares between steps of plain items; in some, some threads have none. */
static uint32_t shares_of(void *ctx, uint32_t step) {
    const uint32_t all = (1u << ((record *)ctx)->n_threads) - 1, some = 0x55555555u << step % 2 & all;
    if (step % 4 == 3) return 1 + step % MAX_ITEMS;
    return CRUMB_WALK_SHARES | (step % 4 == 2 && some ? some : all);
}

static void run_share(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker) {
    record *r = ctx;
    const uint32_t items = shares_of(ctx, step), own = item & ~CRUMB_WALK_SHARES;
    int wrong = items & CRUMB_WALK_SHARES ? !(item & CRUMB_WALK_SHARES) || !(items >> own & 1) : item >= items;
    wrong += r->done[step][own] != r->run - 1;
    if (items & CRUMB_WALK_SHARES && own != (uint32_t)walker->thread)
        wrong += walker->shared_step != step; /* only who has had a share takes another's */
    if (walker->thread == r->slow_thread && step % 8 == 1)
        for (uint64_t start = crumb_now_ns(); crumb_now_ns() - start < 300000;) crumb_thread_yield();
    r->done[step][own] = r->run;
    if (wrong) atomic_fetch_add(&r->n_wrong, wrong);
}

static void every_share_is_done_once(void **state) {
    (void)state;
    crumb_error err = {0};
    for (int n = 1; n <= MAX_THREADS; n += 2) {
        crumb_pool *pool;
        record r = {.n_threads = n, .slow_thread = -1};
        assert_int_equal(crumb_pool_create(n, CRUMB_CORES_AUTO, &pool, &err), CRUMB_OK);
        crumb_walk_init(&r.walk, pool, n, STEPS, shares_of, run_share, &r);
        for (int run = 0; run < 60; run++) {
            r.slow_thread = run % 20 == 5 ? 0 : run % 20 == 10 ? n - 1 : -1;
            r.run++;
            crumb_walk_run(&r.walk);
            for (uint32_t step = 0; step < STEPS; step++) {
                const uint32_t items = shares_of(&r, step);
                const bool shares = items & CRUMB_WALK_SHARES;
                for (uint32_t i = 0; i < MAX_ITEMS; i++)
                    if (shares ? items >> i & 1 : i < items) assert_int_equal(r.done[step][i], r.run);
            }
            assert_int_equal(atomic_load(&r.n_wrong), 0);
        }
        crumb_walk_retire(&r.walk);
        crumb_pool_destroy(pool);
    }
}

static void pools_come_and_go(void **state) {
    (void)state;
    crumb_error err = {0};
    for (int i = 0; i < 50; i++) {
        crumb_pool *pool;
        assert_int_equal(crumb_pool_create(i % 5, CRUMB_CORES_AUTO, &pool, &err), CRUMB_OK);
        crumb_pool_destroy(pool); /* its workers may not even have begun */
    }
    crumb_pool_destroy(NULL);
    crumb_pool *pool;
    assert_int_equal(crumb_pool_create(CRUMB_POOL_MAX_THREADS + 1, CRUMB_CORES_AUTO, &pool, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "257 threads"));
    assert_null(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_in_order),
        cmocka_unit_test(walks_take_turns),
        cmocka_unit_test(all_threads_come),
        cmocka_unit_test(idle_threads_are_told),
        cmocka_unit_test(some_threads_take_a_step),
        cmocka_unit_test(items_are_counted),
        cmocka_unit_test(every_share_is_done_once),
        cmocka_unit_test(pools_come_and_go),
    };
    return cmocka_run_group_tests_name("walk", tests, NULL, NULL);
}
