/* The thread pool: every thread comes once, barriers hold back everyone, also with more threads than cores. */
#include "cpu/pool.h"
#include "host/base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 50, MAX_THREADS = 9 };

typedef struct walk {
    crumb_pool *pool;
    int n_threads;
    int visits[MAX_THREADS];       /* each written by its thread only */
    int steps[MAX_THREADS][STEPS]; /* what the thread wrote in a step; read by the others after the barrier */
    atomic_int n_wrong;
    bool slow; /* thread 0 sleeps in one step, so that the others do as well */
} walk;

static void walk_steps(void *ctx, int thread) {
    walk *w = ctx;
    w->visits[thread]++;
    for (int step = 0; step < STEPS; step++) {
        if (w->slow && thread == 0 && step == 3)
            for (uint64_t start = crumb_now_ns(); crumb_now_ns() - start < 2000000;) crumb_thread_yield();
        w->steps[thread][step] = w->visits[thread] * 1000 + step;
        crumb_pool_barrier(w->pool);
        for (int i = 0; i < w->n_threads; i++)
            if (w->steps[i][step] != w->visits[i] * 1000 + step) atomic_fetch_add(&w->n_wrong, 1);
        crumb_pool_barrier(w->pool);
    }
}

static void every_thread_walks_every_step(void **state) {
    (void)state;
    crumb_error err = {0};
    for (int n = 1; n <= MAX_THREADS; n += 2) {
        walk w = {.n_threads = n};
        assert_int_equal(crumb_pool_create(n, &w.pool, &err), CRUMB_OK);
        assert_int_equal(crumb_pool_threads(w.pool), n);
        for (int run = 1; run <= 10; run++) {
            w.slow = run == 5;
            crumb_pool_run(w.pool, 0, walk_steps, &w);
            for (int i = 0; i < n; i++) assert_int_equal(w.visits[i], run);
        }
        assert_int_equal(atomic_load(&w.n_wrong), 0);
        crumb_pool_destroy(w.pool);
    }
}

static void a_run_may_use_fewer_threads(void **state) {
    (void)state;
    crumb_error err = {0};
    walk w = {.n_threads = 2};
    assert_int_equal(crumb_pool_create(4, &w.pool, &err), CRUMB_OK);
    for (int run = 0; run < 20; run++) crumb_pool_run(w.pool, 2, walk_steps, &w);
    w.n_threads = 4;
    crumb_pool_run(w.pool, 4, walk_steps, &w);
    w.n_threads = 1;
    crumb_pool_run(w.pool, 1, walk_steps, &w);
    const int visits[4] = {22, 21, 1, 1};
    assert_memory_equal(w.visits, visits, sizeof visits);
    assert_int_equal(atomic_load(&w.n_wrong), 0);
    crumb_pool_destroy(w.pool);
}

static void pools_come_and_go(void **state) {
    (void)state;
    crumb_error err = {0};
    for (int i = 0; i < 50; i++) {
        crumb_pool *pool;
        assert_int_equal(crumb_pool_create(i % 5, &pool, &err), CRUMB_OK);
        crumb_pool_destroy(pool); /* its workers may not even have begun */
    }
    crumb_pool_destroy(NULL);
    crumb_pool *pool;
    assert_int_equal(crumb_pool_create(CRUMB_POOL_MAX_THREADS + 1, &pool, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "257 threads"));
    assert_null(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_walks_every_step),
        cmocka_unit_test(a_run_may_use_fewer_threads),
        cmocka_unit_test(pools_come_and_go),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
