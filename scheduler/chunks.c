#include "scheduler/chunks.h"

#include "host/base/checked.h"

/* Units of each chunk of a batch, when `left` are. */
static uint64_t batch_chunk(uint32_t left, uint64_t unit_bytes, uint32_t step, int n_threads, uint32_t share) {
    const uint64_t least_bytes = 32768, least = crumb_div_up(least_bytes, unit_bytes + 1);
    const uint64_t part = share ? crumb_div_up(left, share) : crumb_div_up((uint64_t)left * 2, 3);
    const uint64_t wanted = crumb_div_up(part, (uint64_t)n_threads), n = wanted > least ? wanted : least;
    return n > step ? crumb_round_up(n, step) : n;
}

uint32_t crumb_chunk_end(uint32_t at, uint32_t n_units, uint64_t unit_bytes, uint32_t step, int n_threads,
                         uint32_t share) {
    if (n_threads == 1) return n_units;
    uint64_t batch_end = 0, n = 0;
    while (batch_end <= at) {
        n = batch_chunk(n_units - (uint32_t)batch_end, unit_bytes, step, n_threads, share);
        batch_end += n * (uint64_t)n_threads;
    }
    return n < n_units - at ? at + (uint32_t)n : n_units;
}

uint32_t crumb_chunks_cut(uint32_t n_units, uint64_t unit_bytes, uint32_t step, int n_threads, uint32_t share,
                          uint32_t most, uint32_t *bounds) {
    uint32_t n = 0;
    bounds[0] = 0;
    for (uint32_t at = 0; at < n_units && n < most; bounds[++n] = at)
        at = n + 1 == most ? n_units : crumb_chunk_end(at, n_units, unit_bytes, step, n_threads, share);
    return n;
}
