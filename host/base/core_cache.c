/* What one core has of the machine's caches, from the system's files. */
#include "host/base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line of a file about a processor, without its end; empty where there is no such file. */
static void read_line(const char *cpus, int cpu, const char *name, char out[64]) {
    char path[256];
    *out = 0;
    if (snprintf(path, sizeof path, "%s/cpu%d/%s", cpus, cpu, name) >= (int)sizeof path) return;
    FILE *f = fopen(path, "r");
    if (!f) return;
    if (!fgets(out, 64, f)) *out = 0;
    fclose(f);
    out[strcspn(out, "\n")] = 0;
}

/* How many processors a list such as "0-3,8" has; 1 where it has none. */
static uint64_t count_listed(const char *list) {
    uint64_t n = 0;
    for (const char *p = list; *p; p += *p == ',') {
        char *end;
        const unsigned long long first = strtoull(p, &end, 10);
        if (end == p) break;
        p = end;
        const unsigned long long last = *p == '-' ? strtoull(p + 1, &end, 10) : first;
        if (last >= first && last - first < 4096) n += last - first + 1;
        p = end;
    }
    return n ? n : 1;
}

/* The size of one processor's data cache of a level, and who shares it; 0: it has none, or does not say. */
static uint64_t find_cache(const char *cpus, int cpu, int level, char shared[64]) {
    char line[64], name[64];
    for (int index = 0; index < 8; index++) {
        char unit = 0;
        unsigned long long n_bytes = 0;
        snprintf(name, sizeof name, "cache/index%d/level", index);
        read_line(cpus, cpu, name, line);
        if (strtol(line, NULL, 10) != level) continue;
        snprintf(name, sizeof name, "cache/index%d/type", index);
        read_line(cpus, cpu, name, line);
        if (strcmp(line, "Instruction") == 0) continue;
        snprintf(name, sizeof name, "cache/index%d/size", index);
        read_line(cpus, cpu, name, line);
        if (sscanf(line, "%llu%c", &n_bytes, &unit) < 1) continue;
        snprintf(name, sizeof name, "cache/index%d/shared_cpu_list", index);
        read_line(cpus, cpu, name, shared);
        return n_bytes << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
    }
    return 0;
}

/* What one processor has of it. */
static uint64_t core_bytes(const char *cpus, int cpu, int level) {
    char siblings[64], shared[64];
    read_line(cpus, cpu, "topology/thread_siblings_list", siblings);
    const uint64_t n_siblings = count_listed(siblings), n_bytes = find_cache(cpus, cpu, level, shared);
    return n_bytes ? n_bytes / ((count_listed(shared) + n_siblings - 1) / n_siblings) : 0;
}

uint64_t crumb_cache_core_bytes_by(const char *cpus, int level) {
    const int most = 64; /* machines with more processors have cores of one kind */
    uint64_t least = 0;
    for (int cpu = 0; cpu < most; cpu++) {
        const uint64_t n_bytes = core_bytes(cpus, cpu, level);
        if (n_bytes && (!least || n_bytes < least)) least = n_bytes;
    }
    return least;
}

uint64_t crumb_cache_all_bytes_by(const char *cpus, int level) {
    const int most = 1024;
    uint64_t all = 0;
    for (int cpu = 0; cpu < most; cpu++) {
        char shared[64];
        const uint64_t n_bytes = find_cache(cpus, cpu, level, shared);
        if (n_bytes && strtol(shared, NULL, 10) == cpu) all += n_bytes; /* the first of those that share it */
    }
    return all;
}

uint64_t crumb_cache_all_bytes(int level) {
    const uint64_t n_bytes = crumb_cache_all_bytes_by("/sys/devices/system/cpu", level);
    return n_bytes ? n_bytes : crumb_cache_bytes(level);
}

uint64_t crumb_cache_core_bytes(int level) {
    const uint64_t n_bytes = crumb_cache_core_bytes_by("/sys/devices/system/cpu", level);
    return n_bytes ? n_bytes : crumb_cache_bytes(level);
}
