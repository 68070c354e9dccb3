/* TL1 and TL2, the table kernels of Wang et al., "Bitnet.cpp: Efficient Edge Inference for Ternary LLMs" (2025). Sums
 * of a few activations under all ternary weights are tabulated once per input, and weights are stored as indices into
 * these tables: whole elements, where T-MAC's tables take the weights bit by bit.
 *
 *   TL1   pairs: 9 entries of 16, 4 bits a pair.
 *   TL2   triples: 27 entries, of which 13 are negatives of others and one is 0, so 14 of 16, an index of 4 bits and a
 *         sign: x = sign ^ (sign + x). 5 bits a triple, 1.67 bits a weight. What K has over is left to pairs
 *         ("block-fitting weight splitting").
 *
 * The tables are exact: int16, looked up as two planes of bytes and put together again ("pack and unpack"). Sums take
 * no multiplication. A table is loaded once for the four vectors of 32 rows that it serves.
 *
 * int16 accumulators: a triple adds at most 3 * 128 in magnitude and a pair 2 * 128, so they hold 85 triples, here 10
 * chunks of 8, or 127 pairs, here 126. Then they are widened to int32.
 *
 * Included after a 256-bit tier's simd.h; BITNET_TL_INSTANCE makes the kernels.
 */
#include "cpu/papers/bitnet_tl_layout.h"
#include "cpu/papers/fold.h"

enum {
    TL_QUARTERS = TL_ROWS / 32, /* vectors of 32 indices */
    TL_HALVES = 2 * TL_QUARTERS,
    TL_VECTORS = TL_ROWS / SIMD_LANES,
    TL_SPAN_CHUNKS = 10,
    TL_SPAN_PAIRS = 126
};

/* The sums that 32 indices select, as int16: rows 0-7 and 16-23, and rows 8-15 and 24-31. */
SIMD_INLINE void tl_lookup(vint low, vint high, vint indices, vint *halves) {
    vint low_bytes = v_lookup(low, indices), high_bytes = v_lookup(high, indices);
    halves[0] = _mm256_unpacklo_epi8(low_bytes, high_bytes);
    halves[1] = _mm256_unpackhi_epi8(low_bytes, high_bytes);
}

/* Table i's indices, in the low halves of bytes where i is even. */
SIMD_INLINE vint tl_indices(vint packed, const int i) {
    return v_and(v_shift_right(packed, i % 2 * 4), v_broadcast_bytes(15));
}

SIMD_INLINE void tl_two_pairs(const uint8_t *codes, const uint8_t *tables, vint *acc) {
    UNROLL for (int i = 0; i < 2; i++) {
        const vint low = v_broadcast16(tables + i * TL_TABLE_BYTES);
        const vint high = v_broadcast16(tables + i * TL_TABLE_BYTES + TL_TABLE_ENTRIES);
        UNROLL for (int r = 0; r < TL_QUARTERS; r++) {
            vint halves[2];
            tl_lookup(low, high, tl_indices(v_load(codes + 32 * r), i), halves);
            for (int h = 0; h < 2; h++) acc[2 * r + h] = v_pin(_mm256_add_epi16(acc[2 * r + h], halves[h]));
        }
    }
}

/* Signs leave their int16 lanes at the top, one doubling each. */
SIMD_INLINE void tl_chunk(const uint8_t *codes, const uint8_t *tables, vint *acc) {
    UNROLL for (int r = 0; r < TL_QUARTERS; r++) {
        v_forget(); /* else tables are kept for the next quarter, on the stack */
        vint signs = v_load(codes + TL_CHUNK_SIGNS + 32 * r);
        UNROLL for (int t = 0; t < TL_CHUNK_TRIPLES; t++) {
            const vint low = v_broadcast16(tables + t * TL_TABLE_BYTES);
            const vint high = v_broadcast16(tables + t * TL_TABLE_BYTES + TL_TABLE_ENTRIES);
            vint halves[2];
            tl_lookup(low, high, tl_indices(v_load(codes + t / 2 * TL_ROWS + 32 * r), t), halves);
            UNROLL for (int h = 0; h < 2; h++) {
                vint sign = _mm256_srai_epi16(signs, 15);
                vint value = _mm256_xor_si256(_mm256_add_epi16(halves[h], sign), sign);
                acc[2 * r + h] = v_pin(_mm256_add_epi16(acc[2 * r + h], value));
                signs = _mm256_add_epi16(signs, signs);
            }
        }
    }
}

/* int16 sums join the int32 ones, 8 rows per vector in order. */
SIMD_INLINE void tl_widen(const vint *acc, vint *sums) {
    for (int i = 0; i < TL_HALVES; i++) {
        vint *to = sums + i / 2 * 4 + i % 2;
        to[0] = v_add(to[0], _mm256_cvtepi16_epi32(_mm256_castsi256_si128(acc[i])));
        to[2] = v_add(to[2], _mm256_cvtepi16_epi32(_mm256_extracti128_si256(acc[i], 1)));
    }
}

SIMD_INLINE void tl_sum_chunks(const uint8_t *codes, const uint8_t *tables, uint32_t n_chunks, vint *sums) {
    for (uint32_t span; n_chunks > 0; n_chunks -= span) {
        vint acc[TL_HALVES];
        span = n_chunks < TL_SPAN_CHUNKS ? n_chunks : TL_SPAN_CHUNKS;
        UNROLL for (int i = 0; i < TL_HALVES; i++) acc[i] = v_zero();
        for (uint32_t i = 0; i < span; i++) {
            tl_chunk(codes, tables, acc);
            codes += TL_CHUNK_BYTES;
            tables += TL_CHUNK_TRIPLES * TL_TABLE_BYTES;
        }
        tl_widen(acc, sums);
    }
}

SIMD_INLINE void tl_sum_pairs(const uint8_t *codes, const uint8_t *tables, uint32_t n_pairs, vint *sums) {
    for (uint32_t span; n_pairs > 0; n_pairs -= span) {
        vint acc[TL_HALVES];
        span = n_pairs < TL_SPAN_PAIRS ? n_pairs : TL_SPAN_PAIRS;
        UNROLL for (int i = 0; i < TL_HALVES; i++) acc[i] = v_zero();
        for (uint32_t i = 0; i < span; i += 2) {
            tl_two_pairs(codes, tables, acc);
            codes += 2 * TL_PAIR_BYTES;
            tables += 2 * TL_TABLE_BYTES;
        }
        tl_widen(acc, sums);
    }
}

/* unit: the k that are split alike; it divides the activations' groups. */
SIMD_INLINE void bitnet_tl(const crumb_linear_args *a, const uint32_t unit, const bool triples) {
    const shape s = shape_of(a, 2);
    const tl_split split = tl_split_of(unit, triples);
    const uint32_t group_units = a->x.group / unit, block_tiles = TL_ROWS / CRUMB_TILE_ROWS;
    const size_t unit_bytes = tl_split_bytes(split), unit_tables = (size_t)tl_split_tables(split) * TL_TABLE_BYTES;
    const size_t n_units = a->x.k_padded / unit;
    for (uint32_t n = 0; n < a->n; n++)
        for (uint32_t block = a->tile0 / block_tiles; block * block_tiles < a->tile1; block++) {
            const uint8_t *codes = (const uint8_t *)a->packed + block * n_units * unit_bytes;
            const uint8_t *tables = (const uint8_t *)a->prepared + n * n_units * unit_tables;
            vflt acc[TL_VECTORS];
            for (int v = 0; v < TL_VECTORS; v++) acc[v] = v_zero_f32();
            for (uint32_t g = 0; g < s.n_groups; g++) {
                vint sums[TL_VECTORS];
                for (int v = 0; v < TL_VECTORS; v++) sums[v] = v_zero();
                for (uint32_t u = 0; u < group_units; u++, codes += unit_bytes, tables += unit_tables) {
                    tl_sum_chunks(codes, tables, split.n_chunks, sums);
                    tl_sum_pairs(codes + (size_t)split.n_chunks * TL_CHUNK_BYTES,
                                 tables + (size_t)split.n_chunks * TL_CHUNK_TRIPLES * TL_TABLE_BYTES, split.n_pairs,
                                 sums);
                }
                papers_fold_values(a, &s, block * TL_VECTORS, TL_VECTORS, n, g, sums, acc);
            }
            papers_finish(a, block * TL_VECTORS, TL_VECTORS, n, acc);
        }
}

#define BITNET_TL_INSTANCE                                                                                             \
    void SIMD_NAME(crumb_tl1_i8)(const crumb_linear_args *a) {                                                         \
        bitnet_tl(a, a->x.group, false);                                                                               \
    }                                                                                                                  \
    void SIMD_NAME(crumb_tl2_i8)(const crumb_linear_args *a) {                                                         \
        bitnet_tl(a, a->w->group, true);                                                                               \
    }                                                                                                                  \
    void SIMD_NAME(crumb_tl2_g32_i8)(const crumb_linear_args *a) {                                                     \
        bitnet_tl(a, TL_SMALLEST_UNIT, true);                                                                          \
    }
