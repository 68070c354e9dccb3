#include "cpu/caches.h"

#include "host/base/thread.h"

#include <stdatomic.h>
#include <stddef.h>

static _Atomic uint64_t known; /* l2_bytes << 32 | l1_bytes; 0: not asked yet */

static uint32_t size_or(uint64_t n_bytes, uint32_t unknown) {
    return n_bytes == 0 ? unknown : n_bytes < INT32_MAX ? (uint32_t)n_bytes : INT32_MAX;
}

crumb_caches crumb_caches_of(uint64_t l1_bytes, uint64_t l2_bytes) {
    return (crumb_caches){.l1_bytes = size_or(l1_bytes, CRUMB_CACHES_L1_UNKNOWN),
                          .l2_bytes = size_or(l2_bytes, CRUMB_CACHES_L2_UNKNOWN)};
}

void crumb_caches_set(const crumb_caches *caches) {
    atomic_store_explicit(&known, caches ? (uint64_t)caches->l2_bytes << 32 | caches->l1_bytes : 0,
                          memory_order_relaxed);
}

/* Threads that ask at the same time for the first time get the same answer. */
crumb_caches crumb_caches_get(void) {
    const uint64_t sizes = atomic_load_explicit(&known, memory_order_relaxed);
    if (sizes) return (crumb_caches){.l1_bytes = (uint32_t)sizes, .l2_bytes = (uint32_t)(sizes >> 32)};
    const crumb_caches caches = crumb_caches_of(crumb_cache_core_bytes(1), crumb_cache_core_bytes(2));
    crumb_caches_set(&caches);
    return caches;
}
