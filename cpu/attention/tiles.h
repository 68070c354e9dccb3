/* What attention over both types of cache shares: register blocks of queries ("rows") x vectors. Included behind a
 * tier's simd.h. */
#ifndef CRUMB_CPU_ATTENTION_TILES_H
#define CRUMB_CPU_ATTENTION_TILES_H

#include "cpu/attention/store.h"

/* Before loops over a register block: unrolled early, so that its sums live in registers and not in memory. */
#if defined(CRUMB_SANITIZED) /* as in cpu/avx2/simd256.h */
#define UNROLLED
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
#define ROLLED _Pragma("GCC unroll 1")

enum { ATTENTION_ROWS = 6, ATTENTION_VECTORS = 4 };

/* Brings `bytes` bytes into L2. Into L1, which a chunk overflows, a core has fewer fetches on their way (a Golden Cove
 * with 24 GB/s: 71 -> 79 % of the read rate with f16, 63 -> 70 with 8 bits; Falcon3 1B behind 4096 tokens). */
SIMD_INLINE void fetch(const char *p, const uint32_t bytes) {
    UNROLLED for (uint32_t i = 0; i < bytes; i += 64) _mm_prefetch(p + i, _MM_HINT_T1);
}

/* The same into L1, for what lies in L2 and is read in a moment. */
SIMD_INLINE void fetch_near(const char *p, const uint32_t bytes) {
    UNROLLED for (uint32_t i = 0; i < bytes; i += 64) _mm_prefetch(p + i, _MM_HINT_T0);
}

SIMD_INLINE uint32_t tile_rows(uint32_t left) {
    return left < ATTENTION_ROWS ? left : ATTENTION_ROWS;
}

/* Calls TILE(rows) with a constant. */
#define SELECT_ROWS(rows)                                                                                              \
    switch (rows) {                                                                                                    \
    case 1: TILE(1); break;                                                                                            \
    case 2: TILE(2); break;                                                                                            \
    case 3: TILE(3); break;                                                                                            \
    case 4: TILE(4); break;                                                                                            \
    case 5: TILE(5); break;                                                                                            \
    default: TILE(6); break;                                                                                           \
    }

#endif
