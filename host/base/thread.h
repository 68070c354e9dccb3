/* Threads, time, and the machine's processors. */
#ifndef CRUMB_BASE_THREAD_H
#define CRUMB_BASE_THREAD_H

#include "host/base/error.h"

typedef struct crumb_thread crumb_thread;
crumb_status crumb_thread_start(void (*fn)(void *), void *arg, crumb_thread **out, crumb_error *err);
void crumb_thread_join(crumb_thread *t);     /* and frees it */
void crumb_thread_pin_self(int logical_cpu); /* best effort */
void crumb_thread_yield(void);               /* lets another runnable thread have this core */
/* The same for a while: begin keeps the processors that the thread could run on before, and end puts them back. Returns
 * whether there is something to put back. */
typedef struct crumb_thread_cpus {
    uint64_t bits[16];
} crumb_thread_cpus;
bool crumb_thread_pin_begin(int logical_cpu, crumb_thread_cpus *before);
void crumb_thread_pin_end(const crumb_thread_cpus *before);
/* Whole processors' worth of time that the control group allows, at least 1; INT32_MAX: no limit. */
int crumb_cpu_limit(void);
/* The same by what files say that stand for /sys/fs/cgroup and /proc/self/cgroup; for tests. */
int crumb_cpu_limit_by(const char *cgroup_root, const char *groups_path);
/* Physical cores this thread may use, no more than the control group allows; fills cpus[] (up to capacity) with one
 * logical processor of each. Which kinds of cores they are: scheduler/topology.h. */
int crumb_cpu_physical(int *cpus, int capacity);
/* Size of a data cache that one core sees, level 1 to 3; 0 where the system does not say. */
uint64_t crumb_cache_bytes(int level);
/* Of all data caches of a level together. */
uint64_t crumb_cache_all_bytes(int level);
/* What one core has of its data cache of a level, 1 or 2, the least of all cores: its part, where cores share one. 0
 * where the system does not say. */
uint64_t crumb_cache_core_bytes(int level);
/* The same by a folder that stands for /sys/devices/system/cpu; for tests. */
uint64_t crumb_cache_all_bytes_by(const char *cpus, int level);
uint64_t crumb_cache_core_bytes_by(const char *cpus, int level);
/* The processor's own name, for people: "AMD EPYC 7B13"; "unknown processor" where the system does not say. */
void crumb_cpu_model_name(char *out, size_t capacity);

/* Runs fn(ctx, i, err) for i in 0..n-1 on up to n_threads threads taken for this call; the first error wins and
 * stops further items. For loading and packing; decoding uses the backend's own pool. */
crumb_status crumb_parallel_for(int n_threads, uint64_t n, crumb_status (*fn)(void *ctx, uint64_t i, crumb_error *err),
                                void *ctx, crumb_error *err);

/* For loops that wait for another thread: tells the core that this one is spinning. */
static inline void crumb_spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* A lock for what is rare and long: who waits sleeps. */
typedef struct crumb_lock crumb_lock;
crumb_status crumb_lock_create(crumb_lock **out, crumb_error *err);
void crumb_lock_destroy(crumb_lock *l); /* NULL is allowed */
void crumb_lock_take(crumb_lock *l);
void crumb_lock_release(crumb_lock *l);

uint64_t crumb_now_ns(void); /* monotonic */
/* Counts up at a steady rate that is not known, at a third of the cost: for comparing times taken on one core. */
uint64_t crumb_ticks(void);

/* Sleeps while *word == expected (futex); wakes spuriously. */
void crumb_wait_u32(const uint32_t *word, uint32_t expected);
/* The same for at most so many ns; UINT64_MAX: for ever. */
void crumb_wait_u32_for(const uint32_t *word, uint32_t expected, uint64_t ns);
void crumb_wake_all_u32(const uint32_t *word);

#endif
