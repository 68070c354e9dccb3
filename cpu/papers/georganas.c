/* The blocked layouts of the 2-bit and 1-bit kernels (cpu/papers/georganas.h). Rows are padded to 32 with zero codes.
 */
#include "cpu/papers/codes.h"

#include "host/base/checked.h"

#include <string.h>

static uint32_t row_blocks(const crumb_matrix *w) {
    return (uint32_t)crumb_div_up(w->m, 32);
}

static uint32_t steps(const crumb_matrix *w) {
    return (uint32_t)crumb_round_up(w->k, CRUMB_TILE_K) / 4;
}

static size_t packed_bytes(const crumb_matrix *w) {
    return (size_t)row_blocks(w) * steps(w) * 16 * w->bits;
}

static void pack_u2(const crumb_matrix *w, void *packed) {
    uint8_t *to = packed;
    for (uint32_t block = 0; block < row_blocks(w); block++)
        for (uint32_t step = 0; step < steps(w); step++)
            for (uint32_t m8 = 0; m8 < 8; m8++)
                for (uint32_t k4 = 0; k4 < 4; k4++, to++) {
                    *to = 0;
                    for (uint32_t m4 = 0; m4 < 4; m4++)
                        *to |= (uint8_t)(crumb_papers_code(w, block * 32 + m4 * 8 + m8, step * 4 + k4) << (2 * m4));
                }
}

static void pack_u1(const crumb_matrix *w, void *packed) {
    uint32_t *to = packed;
    for (uint32_t block = 0; block < row_blocks(w); block++)
        for (uint32_t step = 0; step < steps(w); step++)
            for (uint32_t eight = 0; eight < 4; eight++, to++) {
                *to = 0;
                for (uint32_t bit = 0; bit < 32; bit++)
                    *to |= crumb_papers_code(w, block * 32 + eight * 8 + bit / 4, step * 4 + bit % 4) << bit;
            }
}

const crumb_cpu_layout crumb_layout_georganas_u2 = {.name = "[M/32][K/4][m8][k4][m4], 2 bits",
                                                    .rows = 32,
                                                    .packed_bytes = packed_bytes,
                                                    .pack = pack_u2,
                                                    .prepared_bytes = crumb_papers_natural_bytes,
                                                    .prepare = crumb_papers_natural};
const crumb_cpu_layout crumb_layout_georganas_u1 = {.name = "[M/32][K/4][m32][k4], 1 bit",
                                                    .rows = 32,
                                                    .packed_bytes = packed_bytes,
                                                    .pack = pack_u1,
                                                    .prepared_bytes = crumb_papers_natural_bytes,
                                                    .prepare = crumb_papers_natural};
