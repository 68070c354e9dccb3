/* The index layout: 1-bit and ternary codes as bytes that a CPU looks up tables of partial sums with.
 *
 * [M/16][lines][2][16] bytes. A line is 32 bytes: of each row of a tile-row one byte, and of each row the next one. A
 * byte holds the codes of neighbouring positions of plane-ordered activations (tile.h), so that quantized activations
 * serve both layouts:
 *
 *     1 bit     8 codes, the first one lowest: two indices of 4 bits. As large as tiles.
 *     ternary   5 codes, t = code - 1 in {-1, 0, 1}: 1.6 bits a weight, where tiles take 2.
 *
 * The five t of a byte are a = t0 + 3 t1 + 9 t2 in [-13, 13] and b = t3 + 3 t4 in [-4, 4]; where a is negative both are
 * negated, and bit 7 says so. What remains are 14 values of a and 9 of b, to be found with one index of 4 bits each:
 *
 *     b != 0    bits 0-3: a + 2 (2 .. 15)      bits 4-6: b + 4 (-4 .. -1) or b + 3 (1 .. 4)
 *     b == 0    bit 0: (a + 2) % 2, bits 1-3: 0, which no a + 2 has      bits 4-6: (a + 2) / 2
 *
 * So no byte is 0 or 128. Rows end with codes of the value 0 (1 bit: code 0) up to a whole line. Scales and mins lie as
 * beside tiles.
 */
#ifndef CRUMB_LOWBIT_INDEX_H
#define CRUMB_LOWBIT_INDEX_H

#include "host/lowbit/tile.h"

enum { CRUMB_INDEX_LINE_BYTES = 32, CRUMB_INDEX_FIRST = 2 /* of the indices that stand for an a */ };

/* Whether a matrix in tiles can have this layout: 1-bit codes in whole 32-blocks per scale, or ternary ones with one
 * scale per row. */
bool crumb_index_fits(const crumb_matrix *w);
/* Whether it is to have it, of a device that wants it for widths `1 << bits`. */
bool crumb_index_wanted(const crumb_matrix *w, uint32_t index_bits);

/* Positions of a line, and lines of a tile-row. */
static inline uint32_t crumb_index_line_positions(unsigned bits) {
    return bits == 1 ? 16 : 10;
}
static inline uint32_t crumb_index_lines(const crumb_matrix *w) {
    uint32_t positions = crumb_index_line_positions(w->bits);
    uint64_t k_padded = ((uint64_t)w->k + CRUMB_TILE_K - 1) / CRUMB_TILE_K * CRUMB_TILE_K;
    return (uint32_t)((k_padded + positions - 1) / positions);
}

/* Bytes of all lines. */
uint64_t crumb_index_bytes(const crumb_matrix *w);

/* The code of row m at a position of its plane order. */
unsigned crumb_index_code(const crumb_matrix *w, uint32_t m, uint32_t position);

/* Writes the tiles of w in the index layout to out, which may be where the tiles are. */
void crumb_index_from_tiles(const crumb_matrix *w, uint8_t *out);

#endif
