/* The index layout (host/lowbit/index.h) as the registry knows it: with the tables that GEMVs
 * look up or the order of activations that they want, and without. */
#include "cpu/avx2/tables.h"

static size_t packed_bytes(const crumb_matrix *w) {
    return crumb_index_bytes(w);
}

static void pack(const crumb_matrix *w, void *packed) {
    crumb_index_from_tiles(w, packed);
}

#define INDEX_LAYOUT(...)                                                                                              \
    {.name = "index",                                                                                                  \
     .indexed = true,                                                                                                  \
     .rows = CRUMB_TILE_ROWS,                                                                                          \
     .takes = crumb_index_fits,                                                                                        \
     .packed_bytes = packed_bytes,                                                                                     \
     .pack = pack,                                                                                                     \
     __VA_ARGS__}

const crumb_cpu_layout crumb_layout_index = INDEX_LAYOUT(.prepare = NULL);
const crumb_cpu_layout crumb_layout_index_b8 =
    INDEX_LAYOUT(.prepared_bytes = crumb_tables_b8_bytes, .prepare = crumb_tables_b8__avx2);
const crumb_cpu_layout crumb_layout_index_t5 =
    INDEX_LAYOUT(.prepared_bytes = crumb_tables_t5_bytes, .prepare = crumb_tables_t5__avx2);
const crumb_cpu_layout crumb_layout_index_t5_ordered =
    INDEX_LAYOUT(.prepared_bytes = crumb_trits_order_bytes, .prepare = crumb_trits_order__avx2);
