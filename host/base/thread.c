#include "host/base/thread.h"

#include "host/base/memory.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct crumb_thread {
    pthread_t handle;
    void (*fn)(void *);
    void *arg;
};

struct crumb_lock {
    pthread_mutex_t mutex;
};

crumb_status crumb_lock_create(crumb_lock **out, crumb_error *err) {
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "a lock", (void **)out, err));
    if (pthread_mutex_init(&(*out)->mutex, NULL) == 0) return CRUMB_OK;
    free(*out);
    *out = NULL;
    return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a lock");
}

void crumb_lock_destroy(crumb_lock *l) {
    if (!l) return;
    pthread_mutex_destroy(&l->mutex);
    free(l);
}

void crumb_lock_take(crumb_lock *l) {
    pthread_mutex_lock(&l->mutex);
}

void crumb_lock_release(crumb_lock *l) {
    pthread_mutex_unlock(&l->mutex);
}

static void *thread_main(void *p) {
    crumb_thread *t = p;
    t->fn(t->arg);
    return NULL;
}

crumb_status crumb_thread_start(void (*fn)(void *), void *arg, crumb_thread **out, crumb_error *err) {
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "a thread", (void **)out, err));
    **out = (crumb_thread){.fn = fn, .arg = arg};
    int code = pthread_create(&(*out)->handle, NULL, thread_main, *out);
    if (code == 0) return CRUMB_OK;
    free(*out);
    *out = NULL;
    return crumb_fail(err, CRUMB_ERR_MEMORY, "cannot start a thread: %s", strerror(code));
}

void crumb_thread_join(crumb_thread *t) {
    if (!t) return;
    pthread_join(t->handle, NULL);
    free(t);
}

void crumb_thread_pin_self(int logical_cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)logical_cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

void crumb_thread_yield(void) {
    sched_yield();
}

bool crumb_thread_pin_begin(int logical_cpu, crumb_thread_cpus *before) {
    _Static_assert(sizeof(cpu_set_t) <= sizeof before->bits, "crumb_thread_cpus is too small");
    if (sched_getaffinity(0, sizeof(cpu_set_t), (cpu_set_t *)(void *)before->bits) != 0) return false;
    crumb_thread_pin_self(logical_cpu);
    return true;
}

void crumb_thread_pin_end(const crumb_thread_cpus *before) {
    sched_setaffinity(0, sizeof(cpu_set_t), (const cpu_set_t *)(const void *)before->bits);
}

/* ---- control groups ---------------------------------------------------------------------------------------- */

/* Whole processors in quota / period, of files that each hold one number, or of one that holds both; INT32_MAX where
 * there is no limit. */
static int read_limit(const char *folder, const char *quota_file, const char *period_file) {
    char path[600];
    long long quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/%s", folder, quota_file);
    FILE *f = fopen(path, "r");
    if (!f) return INT32_MAX;
    int n = fscanf(f, period_file ? "%lld" : "%lld %lld", &quota, &period);
    fclose(f);
    if (period_file) {
        snprintf(path, sizeof path, "%s/%s", folder, period_file);
        f = fopen(path, "r");
        if (!f) return INT32_MAX;
        n += fscanf(f, "%lld", &period);
        fclose(f);
    }
    if (n != 2 || quota <= 0 || period <= 0) return INT32_MAX;
    return quota / period > 0 ? (int)(quota / period) : 1;
}

/* The least limit of a group and of those that it lies in, up to the root. */
static int least_limit(const char *root, const char *group, const char *quota_file, const char *period_file) {
    char folder[512];
    size_t n_root = strlen(root);
    int least = INT32_MAX;
    if ((size_t)snprintf(folder, sizeof folder, "%s%s", root, group) >= sizeof folder) return least;
    for (;;) {
        const int limit = read_limit(folder, quota_file, period_file);
        if (limit < least) least = limit;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < n_root) return least;
        *slash = 0;
    }
}

static bool has_word(const char *words, const char *end, const char *word) {
    size_t n = strlen(word);
    for (const char *p = words; p < end; p += strcspn(p, ",:") + 1)
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == ':')) return true;
    return false;
}

/* Lines are "number:controllers:group"; version 2 has one line, without controllers. In a container, whose root group
 * is mounted in place of the machine's, the group may name a folder that is not there: then the root's limit is found.
 */
int crumb_cpu_limit_by(const char *cgroup_root, const char *groups_path) {
    char line[512], cpu_root[512];
    int least = least_limit(cgroup_root, "", "cpu.max", NULL);
    FILE *f = fopen(groups_path, "r");
    snprintf(cpu_root, sizeof cpu_root, "%s/cpu", cgroup_root);
    if (!f) return least;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        int limit = INT32_MAX;
        if (controllers + 1 == group)
            limit = least_limit(cgroup_root, group + 1, "cpu.max", NULL);
        else if (has_word(controllers + 1, group, "cpu"))
            limit = least_limit(cpu_root, group + 1, "cpu.cfs_quota_us", "cpu.cfs_period_us");
        if (limit < least) least = limit;
    }
    fclose(f);
    return least;
}

int crumb_cpu_limit(void) {
    return crumb_cpu_limit_by("/sys/fs/cgroup", "/proc/self/cgroup");
}

/* ---- processors -------------------------------------------------------------------------------------------- */

int crumb_cpu_physical(int *cpus, int capacity) {
    cpu_set_t set, seen;
    CPU_ZERO(&seen);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    int n = 0, limit = crumb_cpu_limit();
    for (int cpu = 0; cpu < CPU_SETSIZE && n < capacity && n < limit; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &set)) continue;
        char path[128];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        int first = cpu;
        FILE *f = fopen(path, "r");
        if (f) {
            if (fscanf(f, "%d", &first) != 1 || first < 0 || first >= CPU_SETSIZE) first = cpu;
            fclose(f);
        }
        if (CPU_ISSET((size_t)first, &seen)) continue;
        CPU_SET((size_t)first, &seen);
        cpus[n++] = cpu;
    }
    return n;
}

/* A number of cache `index` of processor 0, with its unit K or M; 0 where there is no such file. */
static uint64_t cache_figure(int index, const char *name) {
    char path[96], unit = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *f = fopen(path, "r");
    unsigned long long value = 0;
    if (!f) return 0;
    if (fscanf(f, "%llu%c", &value, &unit) < 1) value = 0;
    fclose(f);
    return value << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
}

uint64_t crumb_cache_bytes(int level) {
    static const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    uint64_t largest = 0; /* level 1 has two, of about the same size; the one for data is never smaller by much */
    for (int index = 0; index < 8; index++) {
        uint64_t n_bytes = cache_figure(index, "level") == (uint64_t)level ? cache_figure(index, "size") : 0;
        if (n_bytes > largest) largest = n_bytes;
    }
    if (largest) return largest;
    long n_bytes = level >= 1 && level <= 3 ? sysconf(names[level - 1]) : 0; /* may count all sockets' caches */
    return n_bytes > 0 ? (uint64_t)n_bytes : 0;
}

void crumb_cpu_model_name(char *out, size_t capacity) {
    snprintf(out, capacity, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value) continue;
        value += strspn(value, ": \t");
        snprintf(out, capacity, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    fclose(f);
}

typedef struct parallel_job {
    crumb_status (*fn)(void *ctx, uint64_t i, crumb_error *err);
    void *ctx;
    uint64_t n;
    atomic_uint_fast64_t next;
    pthread_mutex_t mutex;
    crumb_status status;
    crumb_error *err;
} parallel_job;

static void parallel_work(void *p) {
    parallel_job *job = p;
    for (uint64_t i; (i = atomic_fetch_add(&job->next, 1)) < job->n;) {
        crumb_error error = {0};
        crumb_status status = job->fn(job->ctx, i, &error);
        if (status == CRUMB_OK) continue;
        pthread_mutex_lock(&job->mutex);
        if (job->status == CRUMB_OK) {
            job->status = status;
            if (job->err) *job->err = error;
        }
        pthread_mutex_unlock(&job->mutex);
        atomic_store(&job->next, job->n);
    }
}

crumb_status crumb_parallel_for(int n_threads, uint64_t n, crumb_status (*fn)(void *ctx, uint64_t i, crumb_error *err),
                                void *ctx, crumb_error *err) {
    enum { MAX_THREADS = 64 };
    parallel_job job = {.fn = fn, .ctx = ctx, .n = n, .mutex = PTHREAD_MUTEX_INITIALIZER, .err = err};
    crumb_thread *threads[MAX_THREADS];
    int n_started = 0;
    while (n_started < n_threads - 1 && n_started < MAX_THREADS && (uint64_t)n_started + 1 < n &&
           crumb_thread_start(parallel_work, &job, &threads[n_started], NULL) == CRUMB_OK)
        n_started++;
    parallel_work(&job);
    for (int i = 0; i < n_started; i++) crumb_thread_join(threads[i]);
    return job.status;
}

uint64_t crumb_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t crumb_ticks(void) {
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_ia32_rdtsc();
#else
    return crumb_now_ns();
#endif
}

void crumb_wait_u32(const uint32_t *word, uint32_t expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}
void crumb_wait_u32_for(const uint32_t *word, uint32_t expected, uint64_t ns) {
    const struct timespec limit = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, ns == UINT64_MAX ? NULL : &limit, NULL, 0);
}
void crumb_wake_all_u32(const uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}
