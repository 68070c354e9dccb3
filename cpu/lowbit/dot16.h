/* Dot products with 16-bit accumulators (AVX2: vpmaddubsw). Included by a simd.h.
 *
 * A step takes 32 bytes of codes, four per row, and the four activations that meet them: each int16 lane gains two
 * products, at most 2 * code * 128 in magnitude. So an accumulator holds 128 / code steps (-32768 in all): 128 of 1-bit
 * codes, 64 of ternary ones, 42 of 2-bit codes and 8 of 4-bit codes; a 32-block is 8 steps. In a GEMV 8-bit codes are
 * two 4-bit codes with accumulators of their own (but for groups of 16, where a lane gains one product a step, and is
 * widened); a GEMM multiplies them as 16-bit numbers (vpmaddwd), with sums of 32 bits. A codebook's entries are
 * operands of 5 bits, 0..31, and 4 steps of them fit; those of a wider codebook are numbers of 16 bits in a GEMM, as
 * 8-bit codes are, and not for this GEMV. Of split codes (split.h) 18 steps fit with 3 bits, 4 with 5, 2 with 6.
 * vpmaddwd then widens to int32, and multiplies by the type's `mul` in passing.
 */
#ifndef CRUMB_CPU_LOWBIT_DOT16_H
#define CRUMB_CPU_LOWBIT_DOT16_H

#include "cpu/kernels.h"

enum {
    DOT_ENTRY_BITS = 5, /* of a codebook's entries as operands */
    DOT_HOLDS_ROW = 0,  /* whether an accumulator holds any span */
    DOT_SIGNED_ENTRIES = 0
};

/* Steps after which a GEMV's accumulators must be widened: whole 32-blocks, but for 5 and 6 bits. For more than 3 bits,
 * and 1, that is known here, and loops are simpler. */
SIMD_INLINE uint32_t dot_span_steps(int bits, unsigned max_code) {
    return bits == 1 ? 128 : bits <= 3 ? 16 / max_code * 8 : bits == 5 ? 4 : bits == 6 ? 2 : 8;
}
/* Accumulators per vector of weights, and operands that a vector of packed codes splits into. */
SIMD_INLINE int dot_accumulators(int bits) {
    return bits == 8 ? 2 : 1;
}
SIMD_INLINE int dot_planes(int bits) {
    return bits == 8 ? 2 : 8 / bits;
}
SIMD_INLINE int dot_plane_accumulator(int bits, int plane) {
    return bits == 8 ? plane : 0;
}
/* Which of the dword's activation groups of four meets a plane. */
SIMD_INLINE int dot_plane_activation(int bits, int plane) {
    return bits == 8 ? 0 : plane;
}
/* The operand of one plane. */
SIMD_INLINE vint dot_plane(vint packed, int bits, int plane) {
    int plane_bits = bits == 8 ? 4 : bits;
    return v_and(v_shift_right(packed, plane_bits * plane), v_broadcast_bytes((1 << plane_bits) - 1));
}
SIMD_INLINE vint dot_step(vint acc, vint codes, vint q) {
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(codes, q));
}
/* dot_step for n vectors of codes. Products first, then sums: vpmaddubsw has two ports, and sums in between take them.
 */
SIMD_INLINE void dot_steps(vint *acc, const vint *codes, vint q, const int n) {
    vint products[4];
    for (int v = 0; v < n; v++) products[v] = v_pin(_mm256_maddubs_epi16(codes[v], q));
    for (int v = 0; v < n; v++) acc[v] = v_pin(_mm256_add_epi16(acc[v], products[v]));
}
/* mul times the sums that the accumulators of one vector of weights hold. */
SIMD_INLINE vint dot_sum(const vint *acc, int bits, int mul) {
    vint sum = _mm256_madd_epi16(acc[0], _mm256_set1_epi16((short)mul));
    if (bits == 8) sum = v_add(sum, _mm256_madd_epi16(acc[1], _mm256_set1_epi16((short)(16 * mul))));
    return sum;
}

/* ---- split codes, in a GEMV: a 32-block is widened at once, or in parts of this many steps. Bytes of groups of 16 are
 * widened at every step, which has one product for a lane ---- */

SIMD_INLINE int split_unit_steps(int bits) {
    return bits == 5 ? 4 : bits == 6 ? 2 : 8;
}
/* What a part starts from. */
SIMD_INLINE vint split_begin(vint sum) {
    (void)sum;
    return v_zero();
}
/* The sum so far, times mul, and a part. */
SIMD_INLINE vint split_end(vint sum, vint part, int mul) {
    return v_add(sum, _mm256_madd_epi16(part, _mm256_set1_epi16((short)mul)));
}
SIMD_INLINE vint split_sum(vint sum, int mul) {
    (void)mul;
    return sum;
}

/* ---- the same for a GEMM's panel, whose codes are unpacked: one byte each, 8-bit codes and wide codebooks' entries
 * (CRUMB_WIDE_BITS) to 16 bits: the first and third of each four are a part, the second and fourth another ---- */

SIMD_INLINE int gemm_parts(int bits) {
    return bits >= 8 ? 2 : 1;
}
/* Bytes of an activation. Those of 16 bits lie in the order of the parts. */
SIMD_INLINE int gemm_code_bytes(int bits) {
    return bits >= 8 ? 2 : 1;
}
/* What accumulators hold; 0: any span. */
SIMD_INLINE int gemm_sum_limit(int bits) {
    return bits >= 8 ? 0 : INT16_MAX;
}
/* A part of a step for n vectors of rows, with one column's activations. */
SIMD_INLINE void gemm_part(vint *acc, const vint *weights, const int8_t *q, const int bits, const int n) {
    const vint four = v_broadcast4(q);
    if (bits < 8)
        dot_steps(acc, weights, four, n);
    else
        for (int v = 0; v < n; v++) acc[v] = v_pin(v_dot2(acc[v], weights[v], four));
}
/* Those bounds are for the worst activations. Real ones are far from it: with one scale per row most are near zero, and
 * as codes are not negative, those above zero only raise a sum, those below only lower it. So a GEMM looks: a span is
 * as many blocks as fit while neither sum times the largest code exceeds the limit. For each 32-block and column
 * reach has half of what the two lanes (one takes bytes 0 and 1 of each four, the other 2 and 3) have collected up to
 * its end, modulo 2^16: of q > 0, then of q < 0. A block adds at most 1016. */
SIMD_INLINE __m128i dot_lane_sums(__m256i bytes) {
    const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1));
    __m128i sums = _mm_add_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    sums = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0x4e));
    return _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0xb1));
}
SIMD_INLINE void dot_reach(const int8_t *columns, size_t k_padded, uint32_t n_columns, uint16_t *reach) {
    for (size_t k = 0; k < k_padded; k += CRUMB_TILE_K)
        for (uint32_t c = 0; c < n_columns; c++, reach += CRUMB_Q8_REACH) {
            const __m256i q = _mm256_loadu_si256((const __m256i *)(const void *)(columns + c * k_padded + k));
            const __m256i above = _mm256_max_epi8(q, _mm256_setzero_si256());
            const __m256i below = _mm256_sub_epi8(_mm256_abs_epi8(q), above); /* |-128| is 128, as it must be */
            const __m128i both = _mm_unpacklo_epi32(dot_lane_sums(above), dot_lane_sums(below));
            __m128i sums = _mm_avg_epu16(both, _mm_setzero_si128()); /* rounded up */
            const uint16_t *before = reach - (size_t)n_columns * CRUMB_Q8_REACH;
            if (k > 0) sums = _mm_add_epi16(sums, _mm_loadl_epi64((const __m128i *)(const void *)before));
            _mm_storel_epi64((__m128i *)(void *)reach, sums);
        }
}

/* Steps of a 32-block that every accumulator holds, whatever the codes and the activations. */
SIMD_INLINE uint32_t gemm_unit_steps(int bits) {
    return bits == 5 ? 4 : bits == 6 ? 2 : 8;
}
/* Of the four steps of a group of 16, those that an accumulator holds. */
SIMD_INLINE int half_hold_steps(int bits) {
    return bits == 6 ? 2 : 4;
}
/* Unpacks one line (a dword of each of 16 rows): 8 / bits steps, each [part][row]. Returns the end of what it wrote. */
SIMD_INLINE uint8_t *gemm_panel(const uint8_t *line, int bits, uint8_t *out) {
    const vint low = v_broadcast(0x00ff00ff);
    for (int p = 0; p < 8 / bits * gemm_parts(bits); p++)
        for (int v = 0; v < 2; v++, out += 32) {
            const vint packed = v_load(line + 32 * v);
            v_store(out, bits == 8 ? v_and(v_shift_right(packed, 8 * p), low) : dot_plane(packed, bits, p));
        }
    return out;
}
/* Up to 4 bits the loops are the same, and up to 5 for groups of 16: entries of narrow codebooks are operands of 5
 * bits, with as many columns in a register block as 4-bit codes, which is how a caller interleaves for both. Those of
 * wide ones differ from 8-bit codes in groups of 16, which are steps of theirs and not parts of steps. */
#define GEMM_KINDS                                                                                                     \
    GEMM_KIND(k4, 4)                                                                                                   \
    GEMM_KIND(k5, 5)                                                                                                   \
    GEMM_KIND(k6, 6)                                                                                                   \
    GEMM_KIND(k8, 8)                                                                                                   \
    GEMM_HALF_LOOP(k4, 4)                                                                                              \
    GEMM_HALF_LOOP(k6, 6)                                                                                              \
    GEMM_HALF_LOOP(k8, 8)                                                                                              \
    GEMM_HALF_LOOP(wide, CRUMB_WIDE_BITS)                                                                              \
    GEMM_LOOP(k4_block_min, 4, gemm_wide(4, GEMM_BLOCKS), false, true, GEMM_BLOCKS)                                    \
    SIMD_INLINE const gemm_loops *gemm_loops_of(int width) {                                                           \
        static const gemm_loops k4 = {gemm_k4_any,        gemm_k4_block_zero, gemm_k4_block_min,                       \
                                      gemm_k4_block_both, gemm_k4_half,       gemm_k4_half_min},                       \
                                k5 = {gemm_k5_any,        gemm_k5_block_zero, gemm_k5_block_both,                      \
                                      gemm_k5_block_both, gemm_k4_half,       gemm_k4_half_min},                       \
                                k6 = {gemm_k6_any,        gemm_k6_block_zero, gemm_k6_block_both,                      \
                                      gemm_k6_block_both, gemm_k6_half,       gemm_k6_half_min},                       \
                                k8 = {gemm_k8_any,        gemm_k8_block_zero, gemm_k8_block_both,                      \
                                      gemm_k8_block_both, gemm_k8_half,       gemm_k8_half_min},                       \
                                wide = {gemm_k8_any,        gemm_k8_block_zero, gemm_k8_block_both,                    \
                                        gemm_k8_block_both, gemm_wide_half,     gemm_wide_half_min};                   \
        return width <= 4 ? &k4 : width == 5 ? &k5 : width == 6 ? &k6 : width == 8 ? &k8 : &wide;                      \
    }

/* mul times the sums of an accumulator of 16 bits. */
SIMD_INLINE vint gemm_sum(vint acc, int mul) {
    return _mm256_madd_epi16(acc, _mm256_set1_epi16((short)mul));
}

#endif
