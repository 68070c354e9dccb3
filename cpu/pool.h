/* The thread pool of the CPU backend: workers that join the caller in a job.
 *
 * Worker 0 is the calling thread; the others are pinned to one physical core each as long as there are enough of them.
 * Nobody waits for a worker to come: one that another program keeps from running joins late, or not at all, and what it
 * would have done is done by the others (cpu/walk.h). Idle workers spin for some microseconds, since the next token is
 * usually that close, and then sleep in the kernel.
 */
#ifndef CRUMB_CPU_POOL_H
#define CRUMB_CPU_POOL_H

#include "host/base/error.h"

typedef struct crumb_pool crumb_pool;

enum { CRUMB_POOL_MAX_THREADS = 256 };

/* What workers are called for. Lives until it is retired, and does not change. */
typedef struct crumb_job {
    void (*fn)(void *ctx, int thread);
    void *ctx;
    int n_threads; /* workers 1 .. n_threads - 1 are called */
} crumb_job;

/* n_threads <= 0: one per physical core. */
crumb_status crumb_pool_create(int n_threads, crumb_pool **out, crumb_error *err);
void crumb_pool_destroy(crumb_pool *pool); /* NULL is allowed */
int crumb_pool_threads(const crumb_pool *pool);

/* Makes each worker of the job call fn(ctx, thread), soon, and at least once after this call unless another job is
 * called out first. Does not wait. Calls come from one thread at a time. */
void crumb_pool_call(crumb_pool *pool, const crumb_job *job);
/* Waits until no worker is inside the job; none enters it again. */
void crumb_pool_retire(crumb_pool *pool, const crumb_job *job);

/* For loops that wait for another thread: tells the core that this one is spinning. */
static inline void crumb_spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Spins until *word != value or limit_ns have passed; returns whether it changed. */
bool crumb_spin_while_equal(_Atomic uint32_t *word, uint32_t value, uint64_t limit_ns);

#endif
