/* Dot products with 32-bit accumulators (vpdpbusd, vpdpbssd). Included by a tier's simd.h behind v_dot4 and
 * dot_accumulators. A tier whose v_dot4 takes signed bytes on both sides defines SIMD_SIGNED_DOT: of the kernels on
 * tiles it has those of codebooks alone, whose entries then are operands as they stand.
 *
 * A step takes four codes per row and the four activations that meet them, and adds the products to an int32 lane. A
 * plane of packed codes need not be shifted down first: with an accumulator of its own its sum is a multiple of
 * 2^(bits * plane), and is shifted once at the end, exactly.
 *
 * A lane gains at most 4 * 128 * code per step, where a code in place counts up to 255. Over CRUMB_LINEAR_MAX_K / 4
 * steps that is 4 * 128 * 255 * 2^14 < 2^31, so nothing ever overflows.
 */
#ifndef CRUMB_CPU_LOWBIT_DOT32_H
#define CRUMB_CPU_LOWBIT_DOT32_H

#include "cpu/kernels.h"

enum {
    DOT_ENTRY_BITS = 8, /* of a codebook's entries as operands */
    DOT_HOLDS_ROW = 1,  /* whether an accumulator holds any span */
#if defined(SIMD_SIGNED_DOT)
    DOT_SIGNED_ENTRIES = 1
#else
    DOT_SIGNED_ENTRIES = 0
#endif
};

SIMD_INLINE uint32_t dot_span_steps(int bits, unsigned max_code) {
    (void)bits, (void)max_code;
    return CRUMB_LINEAR_MAX_K / 4;
}
SIMD_INLINE int dot_planes(int bits) {
    return 8 / bits;
}
SIMD_INLINE int dot_plane_accumulator(int bits, int plane) {
    return plane % dot_accumulators(bits);
}
/* Which of the dword's activation groups of four meets a plane. */
SIMD_INLINE int dot_plane_activation(int bits, int plane) {
    (void)bits;
    return plane;
}
/* The operand of one plane: its codes times 2^(bits * accumulator). */
SIMD_INLINE vint dot_plane(vint packed, int bits, int plane) {
    if (bits == 8) return packed;
    int in_place = dot_plane_accumulator(bits, plane), shift = (plane - in_place) * bits;
    return v_and(v_shift_right(packed, shift), v_broadcast_bytes(((1 << bits) - 1) << (in_place * bits)));
}
SIMD_INLINE vint dot_step(vint acc, vint codes, vint q) {
    return v_dot4(acc, codes, q);
}
/* dot_step for n vectors of codes. */
SIMD_INLINE void dot_steps(vint *acc, const vint *codes, vint q, const int n) {
    for (int v = 0; v < n; v++) acc[v] = v_pin(v_dot4(acc[v], codes[v], q));
}
/* mul times the sums that the accumulators of one vector of weights hold. */
SIMD_INLINE vint dot_sum(const vint *acc, int bits, int mul) {
    vint sum = acc[0];
    for (int i = 1; i < dot_accumulators(bits); i++) sum = v_add(sum, v_shift_right_signed(acc[i], i * bits));
    return mul == 1 ? sum : v_mul(sum, v_broadcast(mul));
}

/* ---- split codes and bytes of groups of 16, in a GEMV: a part goes on where the last one ended ---- */

SIMD_INLINE int split_unit_steps(int bits) {
    (void)bits;
    return CRUMB_TILE_K / 4;
}
SIMD_INLINE vint split_begin(vint sum) {
    return sum;
}
SIMD_INLINE vint split_end(vint sum, vint part, int mul) {
    (void)sum, (void)mul;
    return part;
}
/* mul times the sum. */
SIMD_INLINE vint split_sum(vint sum, int mul) {
    return mul == 1 ? sum : v_mul(sum, v_broadcast(mul));
}

/* ---- the same for a GEMM's panel, whose codes are unpacked to one byte each ---- */

SIMD_INLINE int gemm_parts(int bits) {
    (void)bits;
    return 1;
}
/* Bytes of an activation. */
SIMD_INLINE int gemm_code_bytes(int bits) {
    (void)bits;
    return 1;
}
/* What accumulators hold; 0: any span. */
SIMD_INLINE int gemm_sum_limit(int bits) {
    (void)bits;
    return 0;
}
/* A step for n vectors of rows, with one column's activations. */
SIMD_INLINE void gemm_part(vint *acc, const vint *weights, const int8_t *q, const int bits, const int n) {
    (void)bits;
    dot_steps(acc, weights, v_broadcast4(q), n);
}
/* Accumulators hold any span. */
SIMD_INLINE void dot_reach(const int8_t *columns, size_t k_padded, uint32_t n_columns, uint16_t *reach) {
    (void)columns, (void)k_padded, (void)n_columns, (void)reach;
}
/* Steps of a 32-block that every accumulator holds. */
SIMD_INLINE uint32_t gemm_unit_steps(int bits) {
    (void)bits;
    return CRUMB_TILE_K / 4;
}
/* Of the four steps of a group of 16, those that an accumulator holds. */
SIMD_INLINE int half_hold_steps(int bits) {
    (void)bits;
    return 4;
}
/* Unpacks one line (a dword of each of 16 rows): 8 / bits steps. Returns the end of what it wrote. */
SIMD_INLINE uint8_t *gemm_panel(const uint8_t *line, int bits, uint8_t *out) {
    for (int p = 0; p < 8 / bits; p++)
        for (int row = 0; row < CRUMB_TILE_ROWS; row += SIMD_LANES, out += 4 * SIMD_LANES) {
            vint codes = v_shift_right(v_load(line + 4 * row), bits * p);
            v_store(out, bits == 8 ? codes : v_and(codes, v_broadcast_bytes((1 << bits) - 1)));
        }
    return out;
}
/* All loops are the same. Signed operands have no zero point. */
#if defined(SIMD_SIGNED_DOT)
#define GEMM_KINDS                                                                                                     \
    GEMM_LOOP(k4_any, 4, gemm_wide(4, GEMM_ANY), true, b->a->w->mins != NULL, GEMM_ANY)                                \
    GEMM_HALF_LOOP(k4, 4)                                                                                              \
    GEMM_LOOP(k4_block, 4, gemm_wide(4, GEMM_BLOCKS), false, false, GEMM_BLOCKS)                                       \
    GEMM_LOOP(k4_block_min, 4, gemm_wide(4, GEMM_BLOCKS), false, true, GEMM_BLOCKS)                                    \
    SIMD_INLINE const gemm_loops *gemm_loops_of(int width) {                                                           \
        static const gemm_loops k4 = {gemm_k4_any,       gemm_k4_block, gemm_k4_block_min,                             \
                                      gemm_k4_block_min, gemm_k4_half,  gemm_k4_half_min};                             \
        (void)width;                                                                                                   \
        return &k4;                                                                                                    \
    }
#else
#define GEMM_KINDS                                                                                                     \
    GEMM_KIND(k4, 4)                                                                                                   \
    GEMM_HALF_LOOP(k4, 4)                                                                                              \
    GEMM_LOOP(k4_block_min, 4, gemm_wide(4, GEMM_BLOCKS), false, true, GEMM_BLOCKS)                                    \
    SIMD_INLINE const gemm_loops *gemm_loops_of(int width) {                                                           \
        static const gemm_loops k4 = {gemm_k4_any,        gemm_k4_block_zero, gemm_k4_block_min,                       \
                                      gemm_k4_block_both, gemm_k4_half,       gemm_k4_half_min};                       \
        (void)width;                                                                                                   \
        return &k4;                                                                                                    \
    }
#endif
SIMD_INLINE vint gemm_sum(vint acc, int mul) {
    return mul == 1 ? acc : v_mul(acc, v_broadcast(mul));
}

#endif
