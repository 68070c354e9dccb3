/* The weights and tables of TL1 and TL2 (cpu/papers/bitnet_tl.h). Rows are padded to 128 with weights of -1, which
 * nothing reads the sums of; K to 32, where activations are 0. */
#include "cpu/papers/bitnet_tl_layout.h"
#include "cpu/papers/codes.h"

#include "host/base/checked.h"

#include <string.h>

/* ---- weights ---- */

static unsigned pair_index(const crumb_matrix *w, uint32_t m, uint32_t k) {
    return 3 * crumb_papers_code(w, m, k) + crumb_papers_code(w, m, k + 1);
}

/* 9a + 3b + c, of which the table has the index |.|: a triple and its negative share an entry. */
static int triple_value(const crumb_matrix *w, uint32_t m, uint32_t k) {
    return (int)(9 * crumb_papers_code(w, m, k) + 3 * crumb_papers_code(w, m, k + 1) + crumb_papers_code(w, m, k + 2)) -
           13;
}

/* [32 rows] per row of four: bytes of the indices of one table in the low half, of the next in the high half. */
static uint8_t *pack_two_pairs(const crumb_matrix *w, uint32_t m, uint32_t k, uint8_t *to) {
    for (uint32_t row = 0; row < TL_ROWS; row++)
        *to++ = (uint8_t)(pair_index(w, m + row, k) | pair_index(w, m + row, k + 2) << 4);
    return to;
}

/* Bit 15 - (2t + h) of int16 lane j: the sign of triple t in the row whose sum ends in lane j of the vector that
 * vpunpck[lh]bw makes, l for h = 0. */
static void pack_signs(const crumb_matrix *w, uint32_t m, uint32_t k, uint8_t *to) {
    for (uint32_t lane = 0; lane < 16; lane++) {
        unsigned word = 0;
        for (uint32_t bit = 0; bit < 2 * TL_CHUNK_TRIPLES; bit++) {
            uint32_t row = lane % 8 + lane / 8 * 16 + bit % 2 * 8;
            word |= (unsigned)(triple_value(w, m + row, k + 3 * (bit / 2)) < 0) << (15 - bit);
        }
        to[2 * lane] = (uint8_t)word;
        to[2 * lane + 1] = (uint8_t)(word >> 8);
    }
}

static uint8_t *pack_chunk(const crumb_matrix *w, uint32_t m, uint32_t k, uint8_t *to) {
    for (uint32_t t = 0; t < TL_CHUNK_TRIPLES; t += 2)
        for (uint32_t row = 0; row < TL_ROWS; row++) {
            int first = triple_value(w, m + row, k + 3 * t), second = triple_value(w, m + row, k + 3 * t + 3);
            *to++ = (uint8_t)((first < 0 ? -first : first) | (second < 0 ? -second : second) << 4);
        }
    for (uint32_t row = 0; row < TL_ROWS; row += 32, to += 32) pack_signs(w, m + row, k, to);
    return to;
}

static void pack_units(const crumb_matrix *w, uint32_t unit, bool triples, uint8_t *to) {
    const tl_split split = tl_split_of(unit, triples);
    for (uint32_t m = 0; m < w->m; m += TL_ROWS)
        for (uint32_t first = 0, k = 0; first < w->k; first += unit, k = first) {
            for (uint32_t i = 0; i < split.n_chunks; i++, k += TL_CHUNK_K) to = pack_chunk(w, m, k, to);
            for (uint32_t i = 0; i < split.n_pairs; i += 2, k += 4) to = pack_two_pairs(w, m, k, to);
        }
}

static size_t units_bytes(const crumb_matrix *w, uint32_t unit, bool triples) {
    return crumb_div_up(w->m, TL_ROWS) * crumb_div_up(w->k, unit) * tl_split_bytes(tl_split_of(unit, triples));
}

/* ---- tables ---- */

/* All sums of ternary weights times n_q activations, the weights of entry i being the base 3 digits of first + i. */
static uint8_t *make_table(const int8_t *q, unsigned n_q, unsigned first, unsigned n_entries, uint8_t *to) {
    memset(to, 0, TL_TABLE_BYTES);
    for (unsigned i = 0; i < n_entries; i++) {
        int sum = 0;
        unsigned digits = first + i;
        for (unsigned j = n_q; j-- > 0; digits /= 3) sum += ((int)(digits % 3) - 1) * q[j];
        to[i] = (uint8_t)sum;
        to[TL_TABLE_ENTRIES + i] = (uint8_t)((unsigned)sum >> 8);
    }
    return to + TL_TABLE_BYTES;
}

static size_t tables_bytes(const crumb_linear_args *args, uint32_t unit, bool triples) {
    return (size_t)args->n * (args->x.k_padded / unit) * tl_split_tables(tl_split_of(unit, triples)) * TL_TABLE_BYTES;
}

static void make_tables(const crumb_linear_args *args, uint32_t unit, bool triples, uint8_t *to) {
    const tl_split split = tl_split_of(unit, triples);
    const size_t n_bytes = tables_bytes(args, unit, triples);
    /* Activations in natural order fit where the tables will be, at the end: a table of three is longer than they are,
     * and so each is read before it is overwritten. */
    int8_t *q = (int8_t *)to + n_bytes - crumb_papers_natural_bytes(args);
    crumb_papers_natural(args, q);
    for (size_t i = 0; i < (size_t)args->n * (args->x.k_padded / unit); i++) {
        int8_t three[3];
        for (uint32_t t = 0; t < split.n_chunks * TL_CHUNK_TRIPLES; t++, q += 3)
            to = make_table(memcpy(three, q, 3), 3, 13, 14, to);
        for (uint32_t t = 0; t < split.n_pairs; t++, q += 2) to = make_table(memcpy(three, q, 2), 2, 0, 9, to);
    }
}

/* ---- TL1: pairs, whose tables are the same for any unit ---- */

static size_t tl1_packed_bytes(const crumb_matrix *w) {
    return units_bytes(w, TL_SMALLEST_UNIT, false);
}
static void tl1_pack(const crumb_matrix *w, void *packed) {
    pack_units(w, TL_SMALLEST_UNIT, false, packed);
}
static size_t tl1_prepared_bytes(const crumb_linear_args *args) {
    return tables_bytes(args, TL_SMALLEST_UNIT, false);
}
static void tl1_prepare(const crumb_linear_args *args, void *prepared) {
    make_tables(args, TL_SMALLEST_UNIT, false, prepared);
}

/* ---- TL2: triples that fit the weights' group, which is the activations' where those have a scale per row ---- */

static size_t tl2_packed_bytes(const crumb_matrix *w) {
    return units_bytes(w, w->group, true);
}
static void tl2_pack(const crumb_matrix *w, void *packed) {
    pack_units(w, w->group, true, packed);
}
static size_t tl2_prepared_bytes(const crumb_linear_args *args) {
    return tables_bytes(args, args->w->group, true);
}
static void tl2_prepare(const crumb_linear_args *args, void *prepared) {
    make_tables(args, args->w->group, true, prepared);
}

/* ---- and that fit any group of activations ---- */

static size_t tl2_g32_packed_bytes(const crumb_matrix *w) {
    return units_bytes(w, TL_SMALLEST_UNIT, true);
}
static void tl2_g32_pack(const crumb_matrix *w, void *packed) {
    pack_units(w, TL_SMALLEST_UNIT, true, packed);
}
static size_t tl2_g32_prepared_bytes(const crumb_linear_args *args) {
    return tables_bytes(args, TL_SMALLEST_UNIT, true);
}
static void tl2_g32_prepare(const crumb_linear_args *args, void *prepared) {
    make_tables(args, TL_SMALLEST_UNIT, true, prepared);
}

const crumb_cpu_layout crumb_layout_tl1 = {.name = "[M/128][K/4][m128][pair2], 4 bits a pair: 2 bits",
                                           .rows = TL_ROWS,
                                           .takes = crumb_papers_ternary,
                                           .packed_bytes = tl1_packed_bytes,
                                           .pack = tl1_pack,
                                           .prepared_bytes = tl1_prepared_bytes,
                                           .prepare = tl1_prepare};
const crumb_cpu_layout crumb_layout_tl2 = {.name = "[M/128][group]: 4 + 1 bits a triple, the rest pairs: 1.67 bits",
                                           .rows = TL_ROWS,
                                           .takes = crumb_papers_ternary,
                                           .packed_bytes = tl2_packed_bytes,
                                           .pack = tl2_pack,
                                           .prepared_bytes = tl2_prepared_bytes,
                                           .prepare = tl2_prepare};
const crumb_cpu_layout crumb_layout_tl2_g32 = {.name = "[M/128][K/32]: 8 triples of 4 + 1 bits, 4 pairs: 1.75 bits",
                                               .rows = TL_ROWS,
                                               .takes = crumb_papers_ternary,
                                               .packed_bytes = tl2_g32_packed_bytes,
                                               .pack = tl2_g32_pack,
                                               .prepared_bytes = tl2_g32_prepared_bytes,
                                               .prepare = tl2_g32_prepare};
