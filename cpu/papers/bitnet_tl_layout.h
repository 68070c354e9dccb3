/* How the tables and weights of TL1 and TL2 (cpu/papers/bitnet_tl.h) lie. Rows go in blocks of 128, and K in units that
 * are split alike: first chunks of eight triples, as many as fit ("block-fitting": a chunk fills whole vectors), then
 * pairs. A unit has a multiple of 32 k, so that a multiple of 8 k is left to pairs. TL1 has pairs only. */
#ifndef CRUMB_CPU_PAPERS_BITNET_TL_LAYOUT_H
#define CRUMB_CPU_PAPERS_BITNET_TL_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TL_ROWS = 128,
    TL_CHUNK_TRIPLES = 8,
    TL_CHUNK_K = 3 * TL_CHUNK_TRIPLES,
    TL_CHUNK_BYTES = TL_CHUNK_TRIPLES * TL_ROWS * 5 / 8, /* a 4-bit index and a sign */
    TL_CHUNK_SIGNS = TL_CHUNK_TRIPLES * TL_ROWS / 2,     /* where the signs begin */
    TL_PAIR_BYTES = TL_ROWS / 2,
    TL_TABLE_ENTRIES = 16,
    TL_TABLE_BYTES = 2 * TL_TABLE_ENTRIES, /* the low bytes of 16 sums, then the high bytes */
    TL_SMALLEST_UNIT = 32
};

typedef struct tl_split {
    uint32_t n_chunks, n_pairs; /* n_pairs is even */
} tl_split;

static inline tl_split tl_split_of(uint32_t unit, bool triples) {
    uint32_t n_chunks = triples ? unit / TL_CHUNK_K : 0;
    return (tl_split){n_chunks, (unit - n_chunks * TL_CHUNK_K) / 2};
}
static inline uint32_t tl_split_bytes(tl_split s) {
    return s.n_chunks * TL_CHUNK_BYTES + s.n_pairs * TL_PAIR_BYTES;
}
static inline uint32_t tl_split_tables(tl_split s) {
    return s.n_chunks * TL_CHUNK_TRIPLES + s.n_pairs;
}

#endif
