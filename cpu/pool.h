/* The thread pool of the CPU backend: pinned workers that all run one function, and a barrier for its steps.
 *
 * Worker 0 is the calling thread; the others are pinned to one physical core each as long as there are enough of them.
 * Waiting threads spin for some microseconds, since the next step of a plan is usually that close, and then sleep in
 * the kernel, so that a machine with more to do than cores is not burnt by spinning.
 */
#ifndef CRUMB_CPU_POOL_H
#define CRUMB_CPU_POOL_H

#include "host/base/error.h"

typedef struct crumb_pool crumb_pool;

enum { CRUMB_POOL_MAX_THREADS = 256 };

/* n_threads <= 0: one per physical core. */
crumb_status crumb_pool_create(int n_threads, crumb_pool **out, crumb_error *err);
void crumb_pool_destroy(crumb_pool *pool); /* NULL is allowed */
int crumb_pool_threads(const crumb_pool *pool);

/* Runs fn(ctx, thread) for thread = 0 .. n_threads - 1 at the same time, 0 on the caller, and returns when all are
 * done. One call at a time per pool. */
void crumb_pool_run(crumb_pool *pool, int n_threads, void (*fn)(void *ctx, int thread), void *ctx);

/* Called inside fn by every thread of the run: none goes on before all have come, and what each wrote before is seen by
 * all after. */
void crumb_pool_barrier(crumb_pool *pool);

/* For loops that wait for another thread: tells the core that this one is spinning. */
static inline void crumb_spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
