/* GEMV on the index layout: sums are looked up (tables.h), 32 bytes of weights a tile-row, without any product.
 *
 * Where 1-bit and ternary codes as operands of vpmaddubsw take 4 vector operations for 32 weights, the look-ups
 * take 1.6 for 1 bit; for ternary as many, but from a fifth fewer bytes, which is what a GEMV from memory waits for.
 *
 * Included after a tier's simd.h and the operations on bytes that are the tier's own (INDEX_TILES tile-rows a vector):
 *
 *     index_load(codes, at)                 the lines `at` bytes behind codes[0] .. codes[INDEX_TILES - 1]
 *     index_table(tables)                   a line's tables, for every tile-row
 *     index_add(a, b)                       bytes
 *     index_add_signed(sum, value, signs)   sum + value, or sum - value where the sign is negative
 *     index_trits(bytes, two, &a, &b)       as trit_indices
 *     index_add_digits(low, high, base, signed_digits, acc)
 *                                           adds low + base * high to acc, 16-bit sums of rows 0-7 and of rows 8-15 of
 *                                           each tile-row: first bytes' before second bytes'. Signed digits, or not
 *     index_rows(acc, sums)                 first and second bytes' sums together, as 32 bits: two vectors of rows
 *
 * INDEX_GEMV_BITS and INDEX_GEMV_TRITS make the kernels.
 */
#ifndef CRUMB_CPU_LOWBIT_GEMV_INDEX_H
#define CRUMB_CPU_LOWBIT_GEMV_INDEX_H

#include "cpu/avx2/tables.h"
#include "cpu/lowbit/index_pass.h"

enum { HALF_BYTES = CRUMB_INDEX_LINE_BYTES };

/* Vectors that so many tile-rows take; of the last one a part may be unused. */
SIMD_INLINE int index_vectors(const int streams) {
    return (streams + INDEX_TILES - 1) / INDEX_TILES;
}

/* The digits that one line of 1-bit weights adds. */
SIMD_INLINE void bit_digits(vint indices, const uint8_t *tables, vint *low, vint *high) {
    const vint first = v_and(indices, v_broadcast_bytes(15)),
               second = v_and(v_shift_right(indices, 4), v_broadcast_bytes(15));
    const vint low_sum =
        index_add(v_lookup(index_table(tables), first), v_lookup(index_table(tables + 2 * HALF_BYTES), second));
    *low = v_pin(index_add(*low, low_sum));
    const vint high_sum = index_add(v_lookup(index_table(tables + HALF_BYTES), first),
                                    v_lookup(index_table(tables + 3 * HALF_BYTES), second));
    *high = v_pin(index_add(*high, high_sum));
}

/* The digits that one line of ternary weights adds; `two` is trit_indices'. Bytes are negative where
 * sums are to be negated, and never 0. */
SIMD_INLINE void trit_digits(vint indices, vint two, const uint8_t *tables, vint *low, vint *high) {
    vint a, b; /* a b with bit 7 finds 0 */
    index_trits(indices, two, &a, &b);
    const vint low_sum = index_add(v_lookup(index_table(tables), a), v_lookup(index_table(tables + 2 * HALF_BYTES), b));
    *low = v_pin(index_add_signed(*low, low_sum, indices));
    const vint high_sum =
        index_add(v_lookup(index_table(tables + HALF_BYTES), a), v_lookup(index_table(tables + 3 * HALF_BYTES), b));
    *high = v_pin(index_add_signed(*high, high_sum, indices));
}

/* Lines whose digits fit into bytes. */
SIMD_INLINE uint32_t few_lines(const int bits) {
    return bits == 1 ? 4 : 5; /* 8 x 31; 5 x (12 + 12) and 5 x (15 + 10) */
}
/* Lines whose sums fit into int16, exactly, modulo 2^16: 256 x 128 or 250 x 128 in each half. */
SIMD_INLINE uint32_t span_lines(const int bits) {
    return bits == 1 ? 32 : 50;
}

/* The cache lines that few lines take, ahead by the knobs' distances. */
SIMD_INLINE void fetch_few(const uint8_t *codes, size_t near, size_t far, const int bits) {
    const size_t n_bytes = few_lines(bits) * CRUMB_INDEX_LINE_BYTES;
    UNROLL for (size_t at = 0; at < n_bytes; at += 64) _mm_prefetch((const char *)codes + near + at, _MM_HINT_T0);
    UNROLL for (size_t at = 0; at < n_bytes; at += 64) _mm_prefetch((const char *)codes + far + at, _MM_HINT_T1);
}

/* The digits that line i adds to every stream. */
SIMD_INLINE void add_line(const uint8_t *const *codes, const uint8_t *tables, uint32_t i, vint two, const int bits,
                          const int streams, vint *low, vint *high) {
    tables += (size_t)i * TABLES_LINE_BYTES;
    UNROLL for (int v = 0; v < index_vectors(streams); v++) {
        const vint indices = index_load(codes + v * INDEX_TILES, (size_t)i * CRUMB_INDEX_LINE_BYTES);
        if (bits == 1)
            bit_digits(indices, tables, &low[v], &high[v]);
        else
            trit_digits(indices, two, tables, &low[v], &high[v]);
    }
}

/* What n lines, up to few_lines, add to the sums of every stream. */
SIMD_INLINE void add_few(const uint8_t *const *codes, const uint8_t *tables, uint32_t n, vint two, const int bits,
                         const int streams, vint *acc) {
    vint low[GEMV_MAX_STREAMS], high[GEMV_MAX_STREAMS];
    UNROLL for (int v = 0; v < index_vectors(streams); v++) low[v] = high[v] = v_zero();
    UNROLL for (uint32_t i = 0; i < n; i++) add_line(codes, tables, i, two, bits, streams, low, high);
    UNROLL for (int v = 0; v < index_vectors(streams); v++)
        index_add_digits(low[v], high[v], bits == 1 ? TABLES_BIT_BASE : TABLES_TRIT_BASE, bits != 1, &acc[2 * v]);
}

/* gemv_sums_fn for index lines: o->q are the tables. */
SIMD_INLINE void index_sums(const gemv_operands *o, uint32_t line, uint32_t end, vint *out, const int bits,
                            const int streams) {
    const uint8_t *codes[GEMV_MAX_STREAMS], *tables = (const uint8_t *)o->q + (size_t)line * TABLES_LINE_BYTES;
    const int n_vectors = index_vectors(streams);
    const size_t near = o->near, far = o->far;
    const uint32_t few = few_lines(bits);
    const vint two = v_pin(v_broadcast_bytes(CRUMB_INDEX_FIRST));
    UNROLL for (int t = 0; t < n_vectors * INDEX_TILES; t++) codes[t] =
        o->codes[t < streams ? t : 0] + (size_t)line * CRUMB_INDEX_LINE_BYTES;
    for (bool first = true; first || line < end; first = false) {
        const uint32_t span = span_lines(bits), n = end - line > span ? span : end - line;
        /* Every look-up of 1 bit adds BASE * BIAS too much, two in a line. */
        const int bias = bits == 1 ? -2 * TABLES_BIT_BASE * TABLES_BIT_BIAS * (int)n : 0;
        vint acc[2 * GEMV_MAX_STREAMS];
        UNROLL for (int i = 0; i < 2 * n_vectors; i++) acc[i] =
            v_broadcast((int)((unsigned)bias << 16 | (bias & 0xffff)));
        for (uint32_t i = 0; i < n / few; i++) {
            UNROLL for (int t = 0; t < streams; t++) fetch_few(codes[t], near, far, bits);
            add_few(codes, tables, few, two, bits, streams, acc);
            tables += few * TABLES_LINE_BYTES;
            UNROLL for (int t = 0; t < n_vectors * INDEX_TILES; t++) codes[t] += few * CRUMB_INDEX_LINE_BYTES;
        }
        for (uint32_t i = 0; i < n % few; i++) { /* the last lines of a group */
            add_few(codes, tables, 1, two, bits, streams, acc);
            tables += TABLES_LINE_BYTES;
            UNROLL for (int t = 0; t < n_vectors * INDEX_TILES; t++) codes[t] += CRUMB_INDEX_LINE_BYTES;
        }
        line += n;
        UNROLL for (int v = 0; v < n_vectors; v++) {
            vint sums[2];
            index_rows(&acc[2 * v], sums);
            UNROLL for (int i = 0; i < 2; i++) {
                const vint sum = bits == 1 ? v_mul(sums[i], v_broadcast(o->mul)) : sums[i];
                out[2 * v + i] = first ? sum : v_add(out[2 * v + i], sum);
            }
        }
    }
}

#define INDEX_GROUPS(bits, streams)                                                                                    \
    GEMV_GROUPS(index_##bits##_s##streams, 1, streams, false, false, index_sums(o, line, end, sums, bits, streams))
#define INDEX_GEMV(name, bits)                                                                                         \
    INDEX_GROUPS(bits, 1)                                                                                              \
    INDEX_GROUPS(bits, 2)                                                                                              \
    INDEX_GROUPS(bits, 4)                                                                                              \
    void SIMD_NAME(crumb_gemv_##name##_i8)(const crumb_linear_args *a) {                                               \
        const index_way way = {.groups = {index_##bits##_s1, index_##bits##_s2, index_##bits##_s4},                    \
                               .streams = 2 * INDEX_TILES,                                                             \
                               .zero = bits == 1 ? zero_point(a->w) : 0, /* trits are looked up as -1, 0, 1 */         \
                               .row_bytes = (size_t)crumb_index_lines(a->w) * TABLES_LINE_BYTES};                      \
        gemv_index(a, bits, &way);                                                                                     \
    }
#define INDEX_GEMV_BITS  INDEX_GEMV(b8, 1)
#define INDEX_GEMV_TRITS INDEX_GEMV(t5, 2)

#endif
