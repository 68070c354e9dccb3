/* Threads, time, and the machine's processors. */
#ifndef CRUMB_BASE_THREAD_H
#define CRUMB_BASE_THREAD_H

#include "host/base/error.h"

typedef struct crumb_thread crumb_thread;
crumb_status crumb_thread_start(void (*fn)(void *), void *arg, crumb_thread **out, crumb_error *err);
void crumb_thread_join(crumb_thread *t);     /* and frees it */
void crumb_thread_pin_self(int logical_cpu); /* best effort */
void crumb_thread_yield(void);               /* lets another runnable thread have this core */
int crumb_cpu_count(void);                   /* logical processors this process may use (affinity, cgroup limit) */
/* Physical cores this process may use; fills cpus[] (up to capacity) with one logical processor of each. */
int crumb_cpu_physical(int *cpus, int capacity);
/* Size of a data cache that one core sees, level 1 to 3; 0 where the system does not say. */
uint64_t crumb_cache_bytes(int level);
/* The processor's own name, for people: "AMD EPYC 7B13"; "unknown processor" where the system does not say. */
void crumb_cpu_model_name(char *out, size_t capacity);

/* Runs fn(ctx, i, err) for i in 0..n-1 on up to n_threads threads taken for this call; the first error wins and
 * stops further items. For loading and packing; decoding uses the backend's own pool. */
crumb_status crumb_parallel_for(int n_threads, uint64_t n, crumb_status (*fn)(void *ctx, uint64_t i, crumb_error *err),
                                void *ctx, crumb_error *err);

uint64_t crumb_now_ns(void); /* monotonic */

/* Sleeps while *word == expected (futex); wakes spuriously. */
void crumb_wait_u32(const uint32_t *word, uint32_t expected);
void crumb_wake_all_u32(const uint32_t *word);

#endif
