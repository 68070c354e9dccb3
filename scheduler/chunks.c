#include "scheduler/chunks.h"

#include "host/base/checked.h"

uint32_t crumb_chunk_end(uint32_t at, uint32_t n_units, uint64_t unit_bytes, uint32_t step, int n_threads,
                         uint32_t share) {
    const uint64_t least_bytes = 16384;
    const uint32_t standard_share = 2, left = n_units - at;
    if (n_threads == 1) return n_units;
    const uint32_t parts = (share ? share : standard_share) * (uint32_t)n_threads;
    uint32_t least = (uint32_t)crumb_div_up(least_bytes, unit_bytes + 1), n = (left + parts - 1) / parts;
    if (n < least) n = least;
    n = crumb_round_up(n, step);
    return at + (n < left ? n : left);
}

uint32_t crumb_chunks_cut(uint32_t n_units, uint64_t unit_bytes, uint32_t step, int n_threads, uint32_t share,
                          uint32_t most, uint32_t *bounds) {
    uint32_t n = 0;
    bounds[0] = 0;
    for (uint32_t at = 0; at < n_units && n < most; bounds[++n] = at)
        at = n + 1 == most ? n_units : crumb_chunk_end(at, n_units, unit_bytes, step, n_threads, share);
    return n;
}
