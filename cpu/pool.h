/* The thread pool of the CPU backend: workers that join the caller in a job.
 *
 * Worker 0 is the calling thread; the others are pinned to one physical core each as long as there are enough of them.
 * Where cores are not all alike, or only some are wanted, the caller is pinned as well while it works, so that worker i
 * is always the same core.
 * Nobody waits for a worker to come: one that another program keeps from running joins late, or not at all, and what it
 * would have done is done by the others (cpu/walk.h). Idle workers spin for some microseconds, since the next token is
 * usually that close, and then sleep in the kernel.
 */
#ifndef CRUMB_CPU_POOL_H
#define CRUMB_CPU_POOL_H

#include "host/base/thread.h"
#include "scheduler/topology.h"

typedef struct crumb_pool crumb_pool;

enum { CRUMB_POOL_MAX_THREADS = 256 };

/* What workers are called for. Lives until it is retired, and does not change. */
typedef struct crumb_job {
    void (*fn)(void *ctx, int thread);
    void *ctx;
    int n_threads; /* workers 1 .. n_threads - 1 are called */
} crumb_job;

/* n_threads <= 0: one per core of the kinds wanted. More threads than such cores run wherever the system puts them, or,
 * where kinds were named, several to a core. Fails with ARGUMENT where there are no such cores. */
crumb_status crumb_pool_create(int n_threads, crumb_cores_wanted wanted, crumb_pool **out, crumb_error *err);
void crumb_pool_destroy(crumb_pool *pool); /* NULL is allowed */
int crumb_pool_threads(const crumb_pool *pool);
/* The logical processor that a worker is pinned to; -1: none. */
int crumb_pool_cpu(const crumb_pool *pool, int index);
/* Pins the calling thread to worker 0's core, where that is wanted; returns whether `before` must be put back. */
bool crumb_pool_pin_caller(const crumb_pool *pool, crumb_thread_cpus *before);

/* Makes each worker of the job call fn(ctx, thread), soon, and at least once after this call unless another job is
 * called out first. Does not wait. Calls come from one thread at a time. */
void crumb_pool_call(crumb_pool *pool, const crumb_job *job);
/* Waits until no worker is inside the job; none enters it again. */
void crumb_pool_retire(crumb_pool *pool, const crumb_job *job);

/* Spins until *word != value or limit_ns have passed; returns whether it changed. */
bool crumb_spin_while_equal(_Atomic uint32_t *word, uint32_t value, uint64_t limit_ns);

#endif
