/* GEMV of ternary weights in the index layout as products, for processors that look bytes up in tables of 128.
 *
 * Two lines are 20 positions of 16 rows, four bytes a row. Bits 0-6 of a byte find the codes of its first four weights
 * in one table, two bits each, and the fifth in another; bit 7 mirrors them, 2 - code. The four are planes as in tiles,
 * AND and a dot product. So 320 weights take 15 operations on 64 bytes, where tiles take 9 for 256 weights. A sum waits
 * for the one before it, so each plane and the fifth have one of their own.
 *
 * Activations are prepared in the order that planes meet them (crumb_trits_order__avx2): of each two lines the first
 * ones of all four bytes, then the second ones.
 *
 * Included after a tier's simd.h, with VNNI and one tile-row a vector, and the operations on bytes that are the tier's
 * own: trits_load, trits_load_half, trits_find, trits_mirror (cpu/avx512vbmi/trits512.h). GEMV_TRITS(tier) makes the
 * kernel.
 */
#ifndef CRUMB_CPU_LOWBIT_GEMV_TRITS_H
#define CRUMB_CPU_LOWBIT_GEMV_TRITS_H

#include "cpu/avx2/tables.h"
#include "cpu/lowbit/index_pass.h"

enum { TRIT_PLANES = 4, TRIT_SUMS = TRIT_PLANES + 1, TRIT_ALL_TWO = 0xaa /* four codes of 2 */ };

/* Codes by bits 0-6 of a byte: a + 13 and b + 4, and of those the digits. */
#define TRIT_A(i)     (((i) & 15) < 2 ? 2 * ((i) >> 4) + ((i) & 15) + 11 : ((i) & 15) + 11)
#define TRIT_B(i)     (((i) & 15) < 2 ? 4 : (i) >> 4 < 4 ? (i) >> 4 : ((i) >> 4) + 1)
#define TRIT_FOUR(i)  TRIT_A(i) % 3 | TRIT_A(i) / 3 % 3 << 2 | TRIT_A(i) / 9 % 3 << 4 | TRIT_B(i) % 3 << 6
#define TRIT_FIFTH(i) TRIT_B(i) / 3
#define TRIT_8(X, i)  X(i), X((i) + 1), X((i) + 2), X((i) + 3), X((i) + 4), X((i) + 5), X((i) + 6), X((i) + 7)
#define TRIT_32(X, i) TRIT_8(X, i), TRIT_8(X, (i) + 8), TRIT_8(X, (i) + 16), TRIT_8(X, (i) + 24)
#define TRIT_128(X)   {TRIT_32(X, 0), TRIT_32(X, 32), TRIT_32(X, 64), TRIT_32(X, 96)}
static const uint8_t trit_codes[2][128] = {TRIT_128(TRIT_FOUR), TRIT_128(TRIT_FIFTH)};

typedef struct trit_tables {
    vint four[2], fifth[2];
} trit_tables;

SIMD_INLINE trit_tables trit_tables_load(void) {
    return (trit_tables){{v_load(trit_codes[0]), v_load(trit_codes[0] + 64)},
                         {v_load(trit_codes[1]), v_load(trit_codes[1] + 64)}};
}

/* The products of 16 rows' bytes join the accumulators, TRIT_SUMS of every column. */
SIMD_INLINE void trit_products(const trit_tables *t, vint bytes, const int8_t *q, size_t q_stride, const int columns,
                               vint *acc) {
    const vint four = trits_mirror(trits_find(t->four, bytes), v_broadcast_bytes(TRIT_ALL_TWO), bytes);
    const vint fifth = trits_mirror(trits_find(t->fifth, bytes), v_broadcast_bytes(2), bytes);
    UNROLL for (int p = 0; p < TRIT_SUMS; p++) {
        const vint codes = p < TRIT_PLANES ? v_and(four, v_broadcast_bytes(3 << 2 * p)) : fifth;
        UNROLL for (int c = 0; c < columns; c++) {
            vint *sum = &acc[c * TRIT_SUMS + p];
            *sum = v_dot4(*sum, codes, v_broadcast4(q + (size_t)c * q_stride + 4 * p));
        }
    }
}

/* gemv_sums_fn for index lines: o->q are ordered activations. A lane of a plane gains at most 4 * 128 * 128 a line and
 * has CRUMB_LINEAR_MAX_K / 20 of them. */
SIMD_INLINE void trit_sums(const gemv_operands *o, uint32_t line, uint32_t end, vint *sums, const int columns,
                           const int streams) {
    const trit_tables tables = trit_tables_load();
    const int per_stream = columns * TRIT_SUMS;
    const int8_t *q = o->q + (size_t)line / 2 * TRITS_UNIT_BYTES;
    vint acc[GEMV_MAX_SUMS * TRIT_SUMS];
    UNROLL for (int i = 0; i < streams * per_stream; i++) acc[i] = v_zero();
    for (; line + 2 <= end; line += 2, q += TRITS_UNIT_BYTES) UNROLL for (int s = 0; s < streams; s++) {
            const uint8_t *codes = o->codes[s] + (size_t)line * CRUMB_INDEX_LINE_BYTES;
            gemv_fetch(o, codes);
            trit_products(&tables, trits_load(codes), q, o->q_stride, columns, &acc[s * per_stream]);
        }
    if (line < end) UNROLL for (int s = 0; s < streams; s++) {
            const uint8_t *codes = o->codes[s] + (size_t)line * CRUMB_INDEX_LINE_BYTES;
            trit_products(&tables, trits_load_half(codes), q, o->q_stride, columns, &acc[s * per_stream]);
        }
    UNROLL for (int i = 0; i < streams * columns; i++) {
        const vint *of = &acc[i * TRIT_SUMS];
        vint sum = v_add(of[0], of[TRIT_PLANES]);
        UNROLL for (int p = 1; p < TRIT_PLANES; p++) sum = v_add(sum, v_shift_right_signed(of[p], 2 * p));
        sums[i] = sum;
    }
}

#define TRIT_GROUPS(columns, streams)                                                                                  \
    GEMV_GROUPS(trits_c##columns##_s##streams, columns, streams, false, false,                                         \
                trit_sums(o, line, end, sums, columns, streams))
#define GEMV_TRITS(tier)                                                                                               \
    TRIT_GROUPS(1, 1)                                                                                                  \
    TRIT_GROUPS(1, 2)                                                                                                  \
    TRIT_GROUPS(1, 4)                                                                                                  \
    TRIT_GROUPS(2, 1)                                                                                                  \
    void crumb_gemv_t5_i8__##tier(const crumb_linear_args *a) {                                                        \
        const index_way way = {.groups = {trits_c1_s1, trits_c1_s2, trits_c1_s4},                                      \
                               .pair = trits_c2_s1,                                                                    \
                               .streams = 2,                                                                           \
                               .zero = zero_point(a->w),                                                               \
                               .row_bytes = crumb_trits_order_row(a)};                                                 \
        gemv_index(a, 2, &way);                                                                                        \
    }

#endif
