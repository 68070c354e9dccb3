#include "host/lowbit/index.h"

#include "host/base/checked.h"

#include <string.h>

enum { ROWS = CRUMB_TILE_ROWS, TRITS = 5, LINE_TRITS = 2 * TRITS };

/* A byte of each row. */
typedef uint8_t rows8 __attribute__((vector_size(ROWS)));
typedef int8_t signed8 __attribute__((vector_size(ROWS)));
typedef uint32_t dwords4 __attribute__((vector_size(16)));

bool crumb_index_fits(const crumb_matrix *w) {
    if (w->bits == 1) return w->group % CRUMB_TILE_K == 0;
    const bool ternary = w->bits == 2 && w->max_code == 2 && w->mul == 1 && w->sub == 1 && !w->mins;
    return ternary && w->group == crumb_round_up(w->k, CRUMB_TILE_K);
}

bool crumb_index_wanted(const crumb_matrix *w, uint32_t index_bits) {
    return (index_bits >> w->bits & 1) && crumb_index_fits(w);
}

uint64_t crumb_index_bytes(const crumb_matrix *w) {
    return crumb_div_up(w->m, ROWS) * crumb_index_lines(w) * CRUMB_INDEX_LINE_BYTES;
}

static unsigned trit_code(unsigned byte, unsigned i) {
    const unsigned low = byte & 15, high = byte >> 4 & 7;
    const bool no_b = low < CRUMB_INDEX_FIRST;
    int a = (int)(no_b ? 2 * high + low : low) - CRUMB_INDEX_FIRST, b = no_b ? 0 : (int)high - (high < 4 ? 4 : 3);
    if (byte >> 7) a = -a, b = -b;
    const unsigned power[] = {1, 3, 9, 1, 3};
    return (unsigned)(i < 3 ? a + 13 : b + 4) / power[i] % 3;
}

unsigned crumb_index_code(const crumb_matrix *w, uint32_t m, uint32_t position) {
    const uint32_t per_line = crumb_index_line_positions(w->bits), per_byte = per_line / 2;
    const uint64_t line = (uint64_t)(m / ROWS) * crumb_index_lines(w) + position / per_line;
    const uint32_t half = position % per_line / per_byte, i = position % per_byte;
    unsigned byte = ((const uint8_t *)w->codes)[line * CRUMB_INDEX_LINE_BYTES + half * ROWS + m % ROWS];
    return w->bits == 1 ? byte >> i & 1 : trit_code(byte, i);
}

/* The 16 dwords of a tile's line as four bytes of every row: four rounds of interleaving the halves. */
static void split_bytes(const uint32_t *line, rows8 bytes[4]) {
    rows8 from[4];
    memcpy(from, line, sizeof from);
    for (int round = 0; round < 4; round++) {
        rows8 a = from[0], b = from[1], c = from[2], d = from[3];
        from[0] = __builtin_shufflevector(a, c, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        from[1] = __builtin_shufflevector(a, c, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        from[2] = __builtin_shufflevector(b, d, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        from[3] = __builtin_shufflevector(b, d, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    memcpy(bytes, from, sizeof from);
}

/* ---- 1 bit: 32 k take 64 bytes in both ----------------------------------------------------------------------- */

/* Swaps the bits of x that `mask` selects with those `shift` above them. */
static dwords4 swap_bits(dwords4 x, uint32_t mask, int shift) {
    dwords4 t = (x ^ x >> shift) & mask;
    return x ^ t ^ t << shift;
}

/* Bit 8j + p becomes bit 4p + j. A swap exchanges two of the five bits of such a number: 4 and 2, 3 and 1, 2 and 0, 1
 * and 0. */
static dwords4 order_bits(dwords4 x) {
    x = swap_bits(x, 0x0000f0f0, 12);
    x = swap_bits(x, 0x00cc00cc, 6);
    x = swap_bits(x, 0x0a0a0a0a, 3);
    return swap_bits(x, 0x22222222, 1);
}

static void index_bits(const uint32_t *tiles, size_t n_blocks, uint8_t *out) {
    for (size_t i = 0; i < n_blocks; i++, tiles += ROWS, out += (size_t)2 * CRUMB_INDEX_LINE_BYTES) {
        dwords4 dwords[4];
        rows8 bytes[4];
        memcpy(dwords, tiles, sizeof dwords);
        for (int v = 0; v < 4; v++) dwords[v] = order_bits(dwords[v]);
        split_bytes((const uint32_t *)dwords, bytes);
        memcpy(out, bytes, sizeof bytes);
    }
}

/* ---- ternary: 80 k take 320 bytes in tiles, 256 here ----------------------------------------------------------- */

static signed8 choose(signed8 mask, signed8 yes, signed8 no) {
    return (mask & yes) | (~mask & no);
}

static rows8 pack_trits(const signed8 t[TRITS]) {
    signed8 a = t[0] + 3 * t[1] + 9 * t[2], b = t[3] + 3 * t[4], negative = a < 0;
    a = (a ^ negative) - negative + CRUMB_INDEX_FIRST;
    b = (b ^ negative) - negative;
    const signed8 no_b = b == 0, above = b > 0;
    signed8 low = choose(no_b, a & 1, a), high = choose(no_b, a >> 1, b + 4 + above);
    return (rows8)(low | high << 4 | (negative & -128));
}

enum { GROUP_LINES = 5, GROUP_POSITIONS = 16 * GROUP_LINES };

/* Lines are read in groups of five before eight are written, so that writing in place never overtakes. */
static void index_trits(const uint32_t *tiles, size_t n_lines, uint8_t *out) {
    while (n_lines) {
        const size_t n = n_lines < GROUP_LINES ? n_lines : GROUP_LINES;
        signed8 t[GROUP_POSITIONS];
        memset(t, 0, sizeof t);
        for (size_t line = 0; line < n; line++, tiles += ROWS) {
            rows8 bytes[4];
            split_bytes(tiles, bytes);
            for (unsigned p = 0; p < 4; p++)
                for (unsigned j = 0; j < 4; j++) t[16 * line + 4 * p + j] = (signed8)(bytes[j] >> 2 * p & 3) - 1;
        }
        for (size_t i = 0; i < 16 * n; i += LINE_TRITS, out += CRUMB_INDEX_LINE_BYTES) {
            const rows8 line[2] = {pack_trits(t + i), pack_trits(t + i + TRITS)};
            memcpy(out, line, sizeof line);
        }
        n_lines -= n;
    }
}

void crumb_index_from_tiles(const crumb_matrix *w, uint8_t *out) {
    const size_t n_blocks = crumb_div_up(w->k, CRUMB_TILE_K), n_lines = n_blocks * w->bits;
    const uint32_t *tiles = w->codes;
    for (uint64_t m = 0; m < w->m; m += ROWS) {
        if (w->bits == 1)
            index_bits(tiles, n_blocks, out);
        else
            index_trits(tiles, n_lines, out);
        tiles += n_lines * ROWS;
        out += (size_t)crumb_index_lines(w) * CRUMB_INDEX_LINE_BYTES;
    }
}
