/* How fast this machine reads memory: the roof that decoding is compared with. Each thread reads its own part of a
 * buffer much larger than the caches, as several streams at once, since one stream alone does not keep enough cache
 * lines in flight. The best of a few passes counts. */
#include "tools/crumb/cli.h"

#include "host/base/memory.h"
#include "host/base/thread.h"

#include <string.h>
#include <unistd.h>

enum { STREAMS = 8, LINE = 64, PREFETCH = 16 * LINE, PASSES = 5, MAX_THREADS = 256 };

typedef struct reader {
    const uint8_t *data;
    uint64_t part_bytes;        /* per thread, a multiple of STREAMS * LINE */
    uint64_t sums[MAX_THREADS]; /* keeps the compiler from dropping the loads */
} reader;

static crumb_status read_part(void *ctx, uint64_t i, crumb_error *err) {
    (void)err;
    reader *r = ctx;
    const uint8_t *part = r->data + i * r->part_bytes;
    uint64_t stream_bytes = r->part_bytes / STREAMS, sum[LINE / 8] = {0};
    for (uint64_t at = 0; at < stream_bytes; at += LINE)
        for (unsigned s = 0; s < STREAMS; s++) {
            uint64_t line[LINE / 8];
            const uint8_t *p = part + s * stream_bytes + at;
            __builtin_prefetch(p + PREFETCH);
            memcpy(line, p, LINE);
            for (unsigned j = 0; j < LINE / 8; j++) sum[j] += line[j];
        }
    for (unsigned j = 0; j < LINE / 8; j++) r->sums[i] += sum[j];
    return CRUMB_OK;
}

/* Untouched pages would all be the one zero page, which lies in the cache. */
static crumb_status touch_part(void *ctx, uint64_t i, crumb_error *err) {
    (void)err;
    reader *r = ctx;
    memset((uint8_t *)r->data + i * r->part_bytes, (int)i + 1, r->part_bytes);
    return CRUMB_OK;
}

static uint64_t buffer_bytes(void) {
    const uint64_t least = UINT64_C(256) << 20, most = UINT64_C(512) << 20;
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t wanted = cache > 0 ? 4 * (uint64_t)cache : least, available = crumb_memory_available_bytes();
    wanted = wanted < least ? least : wanted > most ? most : wanted;
    return wanted < available / 2 ? wanted : 0;
}

double cli_probe_read_bandwidth(int n_threads) {
    int cpus[MAX_THREADS];
    if (n_threads <= 0) n_threads = crumb_cpu_physical(cpus, MAX_THREADS);
    if (n_threads > MAX_THREADS) n_threads = MAX_THREADS;
    uint64_t n_bytes = buffer_bytes(), n = n_threads > 0 ? (uint64_t)n_threads : 1;
    void *data;
    if (n_bytes == 0 || crumb_pages_alloc(n_bytes, "the bandwidth probe", &data, NULL) != CRUMB_OK) return 0;
    uint64_t part_bytes = n_bytes / n, unit = (uint64_t)STREAMS * LINE;
    reader r = {.data = data, .part_bytes = part_bytes / unit * unit};
    double best = 0;
    bool ok = crumb_parallel_for((int)n, n, touch_part, &r, NULL) == CRUMB_OK;
    for (int pass = 0; pass < PASSES && ok; pass++) {
        uint64_t began = crumb_now_ns();
        ok = crumb_parallel_for((int)n, n, read_part, &r, NULL) == CRUMB_OK;
        double rate = (double)(r.part_bytes * n) / (double)(crumb_now_ns() - began + 1);
        if (ok && rate > best) best = rate;
    }
    crumb_pages_free(data, n_bytes);
    return best; /* bytes per ns = GB/s */
}
