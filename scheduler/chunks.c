#include "scheduler/chunks.h"

#include "host/base/checked.h"

/* Units of each chunk of a batch, when `left` are. */
static uint64_t batch_chunk(uint32_t left, uint64_t unit_bytes, uint32_t step, int n_threads, uint32_t share) {
    const uint64_t least_bytes = 32768, least = crumb_div_up(least_bytes, unit_bytes + 1);
    const uint64_t part = share ? crumb_div_up(left, share) : crumb_div_up((uint64_t)left * 2, 3);
    const uint64_t wanted = crumb_div_up(part, (uint64_t)n_threads), n = wanted > least ? wanted : least;
    return n > step ? crumb_round_up(n, step) : n;
}

uint32_t crumb_chunk_begin(uint32_t i, uint32_t n_units, uint64_t unit_bytes, uint32_t step, int n_threads,
                           uint32_t share) {
    if (n_threads == 1) return i ? n_units : 0;
    uint64_t at = 0;
    while (at < n_units) {
        const uint64_t n = batch_chunk(n_units - (uint32_t)at, unit_bytes, step, n_threads, share);
        const uint64_t of_batch = i < (uint32_t)n_threads ? i : (uint32_t)n_threads;
        at += n * of_batch;
        i -= (uint32_t)of_batch;
        if (of_batch < (uint64_t)n_threads) break;
    }
    return at < n_units ? (uint32_t)at : n_units;
}

uint32_t crumb_chunks_count(uint32_t n_units, uint64_t unit_bytes, uint32_t step, int n_threads, uint32_t share) {
    if (n_threads == 1) return n_units > 0;
    uint64_t n_chunks = 0;
    for (uint64_t at = 0; at < n_units;) {
        const uint64_t n = batch_chunk(n_units - (uint32_t)at, unit_bytes, step, n_threads, share);
        const uint64_t left = crumb_div_up(n_units - at, n);
        n_chunks += left < (uint64_t)n_threads ? left : (uint64_t)n_threads;
        at += n * (uint64_t)n_threads;
    }
    return (uint32_t)n_chunks;
}

uint32_t crumb_chunks_cut(uint32_t n_units, uint64_t unit_bytes, uint32_t step, int n_threads, uint32_t share,
                          uint32_t most, uint32_t *bounds) {
    uint32_t n = 0;
    bounds[0] = 0;
    for (uint32_t at = 0; at < n_units && n < most; bounds[++n] = at)
        at = n + 1 == most ? n_units : crumb_chunk_begin(n + 1, n_units, unit_bytes, step, n_threads, share);
    return n;
}
