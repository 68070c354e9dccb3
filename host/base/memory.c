#include "host/base/memory.h"

#include "host/base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static const uint64_t huge_page = 2u << 20;

/* One "Name:   123 kB" line of a /proc file, in bytes; fallback where it is missing. */
static uint64_t proc_field(const char *path, const char *name, uint64_t fallback) {
    FILE *f = fopen(path, "r");
    if (!f) return fallback;
    char line[256];
    uint64_t result = fallback;
    size_t n = strlen(name);
    while (fgets(line, sizeof line, f)) {
        unsigned long long kb;
        if (strncmp(line, name, n) == 0 && sscanf(line + n, ": %llu kB", &kb) == 1) result = kb * 1024;
    }
    fclose(f);
    return result;
}

uint64_t crumb_memory_total_bytes(void) {
    return proc_field("/proc/meminfo", "MemTotal", 0);
}
uint64_t crumb_memory_available_bytes(void) {
    return proc_field("/proc/meminfo", "MemAvailable", UINT64_MAX);
}
uint64_t crumb_memory_resident_bytes(void) {
    return proc_field("/proc/self/status", "VmRSS", 0);
}
uint64_t crumb_memory_peak_bytes(void) {
    return proc_field("/proc/self/status", "VmHWM", 0);
}

static crumb_status no_memory(uint64_t n_bytes, const char *what, crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for %s: %.1f MiB wanted, %.1f MiB available", what,
                      (double)n_bytes / 1048576, (double)crumb_memory_available_bytes() / 1048576);
}

crumb_status crumb_pages_alloc(uint64_t n_bytes, const char *what, void **out, crumb_error *err) {
    *out = NULL;
    if (n_bytes == 0) n_bytes = 64;
    /* mmap overcommits: without this check a context too large for the machine dies later, by the OOM killer. */
    if (n_bytes > SIZE_MAX / 2 || n_bytes > crumb_memory_available_bytes()) return no_memory(n_bytes, what, err);
    bool huge = n_bytes >= huge_page;
    size_t size = (size_t)n_bytes, extra = huge ? (size_t)huge_page : 0;
    char *p = mmap(NULL, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return no_memory(n_bytes, what, err);
    if (huge) { /* trim to a huge page's boundary at the front; the tail stays unused and untouched */
        size_t skip = (huge_page - (uintptr_t)p % huge_page) % huge_page;
        if (skip) munmap(p, skip);
        size_t page = (size_t)sysconf(_SC_PAGESIZE), end = (size + page - 1) / page * page;
        if (skip + end < size + extra) munmap(p + skip + end, size + extra - skip - end);
        p += skip;
        madvise(p, size, MADV_HUGEPAGE);
    }
    *out = p;
    return CRUMB_OK;
}

void crumb_pages_free(void *p, uint64_t n_bytes) {
    if (p) munmap(p, n_bytes ? (size_t)n_bytes : 64);
}

uint64_t crumb_pages_discard(void *p, uint64_t n_bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)p + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)p + (uintptr_t)n_bytes) / page * page;
    if (end <= begin || madvise((void *)begin, end - begin, MADV_DONTNEED) != 0) return 0;
    return end - begin;
}

crumb_status crumb_calloc(uint64_t n, uint64_t size, const char *what, void **out, crumb_error *err) {
    uint64_t bytes;
    *out = NULL;
    if (!crumb_mul_u64(n, size, &bytes)) return crumb_fail(err, CRUMB_ERR_MEMORY, "the size of %s overflows", what);
    *out = bytes <= SIZE_MAX / 2 ? calloc(n ? (size_t)n : 1, size ? (size_t)size : 1) : NULL;
    return *out ? CRUMB_OK : no_memory(bytes, what, err);
}
