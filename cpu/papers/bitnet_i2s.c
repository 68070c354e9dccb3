/* The layout of cpu/papers/bitnet_i2s.h, which is that of the file type I2_S but for its padding: rows to 16 and K to
 * 128. */
#include "cpu/papers/codes.h"

#include "host/base/checked.h"

static size_t packed_bytes(const crumb_matrix *w) {
    return crumb_round_up(w->m, CRUMB_TILE_ROWS) * crumb_div_up(w->k, 128) * 32;
}

static void pack(const crumb_matrix *w, void *packed) {
    uint8_t *to = packed;
    for (uint32_t m = 0; m < crumb_round_up(w->m, CRUMB_TILE_ROWS); m++)
        for (uint32_t k = 0; k < w->k; k += 128)
            for (uint32_t i = k; i < k + 32; i++)
                *to++ = (uint8_t)(crumb_papers_code(w, m, i) << 6 | crumb_papers_code(w, m, i + 32) << 4 |
                                  crumb_papers_code(w, m, i + 64) << 2 | crumb_papers_code(w, m, i + 96));
}

const crumb_cpu_layout crumb_layout_i2s = {.name = "[M][K/128][k32][k4], 2 bits",
                                           .rows = CRUMB_TILE_ROWS,
                                           .takes = crumb_papers_ternary,
                                           .packed_bytes = packed_bytes,
                                           .pack = pack,
                                           .prepared_bytes = crumb_papers_natural_bytes,
                                           .prepare = crumb_papers_natural};
