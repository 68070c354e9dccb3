/* The 2-bit and 1-bit CPU kernels of Georganas, Kalamkar, Heinecke, "Pushing the Envelope of LLM Inference on AI-PC and
 * Intel GPUs" (2025), sections III-B to III-D: weights are converted to int8 in registers, 32 rows x 4 k at a time, and
 * multiplied with a broadcast of four int8 activations. This is the baseline that crumb's own GEMV is compared with.
 *
 *   2 bits, [M/32][K/4][m8][k4][m4]: one load, one shift, two ANDs and four table look-ups make four vectors.
 *   1 bit, [M/32][K/4][m32][k4]: per vector a broadcast of 32 bits, a byte shuffle, an AND, a compare and a blend.
 *
 * The paper's blocking of K, [M/32][K/bk][bk/4]..., is the same bytes for any bk. Its dot product is vpdpbssd, and what
 * codes are converted to are the signed values that they stand for. So it is where the tier has that instruction
 * (AVX-VNNI-INT8); elsewhere codes stay unsigned with a zero point, which any tier's dot product takes. Where that has
 * 16-bit accumulators (AVX2) they are widened only as often as they must be, which the paper's machines need not do.
 *
 * Included after a 256-bit tier's simd.h; GEORGANAS_INSTANCE makes both kernels.
 */
#include "cpu/papers/fold.h"

enum { GEORGANAS_VECTORS = 4, GEORGANAS_ROWS = 32 };

/* The operands that codes 0 to 3 become. */
typedef struct georganas_operands {
    int8_t of[4];
} georganas_operands;

/* Of 1 and 2 bits every type's values are -3 to 3. */
SIMD_INLINE georganas_operands georganas_operands_of(const crumb_matrix *w) {
    georganas_operands operands = {{0, 1, 2, 3}};
    if (DOT_SIGNED_ENTRIES)
        for (unsigned code = 0; code < 4; code++) operands.of[code] = (int8_t)crumb_matrix_code_value(w, code);
    return operands;
}

/* Four vectors [m8][k4] of rows 8v .. 8v+7, from one of [m8][k4][m4]. */
SIMD_INLINE void georganas_expand_u2(const uint8_t *from, georganas_operands operands, vint *codes) {
    const vint low_pair = v_broadcast_bytes(15);
    const int8_t a = operands.of[0], b = operands.of[1], c = operands.of[2], d = operands.of[3];
    const vint low = _mm256_setr_epi8(a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c,
                                      d, a, b, c, d);
    const vint high = _mm256_setr_epi8(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d, a, a, a, a, b, b, b, b, c, c, c,
                                       c, d, d, d, d);
    vint packed = v_load(from), pair0 = v_and(packed, low_pair), pair1 = v_and(v_shift_right(packed, 4), low_pair);
    codes[0] = v_lookup(low, pair0);
    codes[1] = v_lookup(high, pair0);
    codes[2] = v_lookup(low, pair1);
    codes[3] = v_lookup(high, pair1);
}

/* The same from 32 bits per vector, bit 4 * m8 + k4. What is blended is pinned: else compilers make an AND of codes 0
 * and 1, which takes fewer cycles than the paper's sequence. */
SIMD_INLINE void georganas_expand_u1(const uint8_t *from, georganas_operands operands, vint *codes) {
    const vint byte_of_bit = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3,
                                              3, 3, 3, 3, 3, 3, 3);
    const vint bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const vint clear = v_pin(v_broadcast_bytes(operands.of[0])), set = v_pin(v_broadcast_bytes(operands.of[1]));
    for (int v = 0; v < GEORGANAS_VECTORS; v++) {
        vint selected = v_and(_mm256_shuffle_epi8(v_broadcast4(from + 4 * v), byte_of_bit), bit);
        codes[v] = _mm256_blendv_epi8(clear, set, _mm256_cmpeq_epi8(selected, bit));
    }
}

/* mul * sum(u*q) over steps [step, end) of 32 rows; of signed operands the sum of values times q. */
SIMD_INLINE void georganas_sums(const crumb_linear_args *a, const uint8_t *packed, const int8_t *q, uint32_t step,
                                uint32_t end, const int bits, vint *sums) {
    const uint32_t span = dot_span_steps(bits, a->w->max_code);
    const georganas_operands operands = georganas_operands_of(a->w);
    const int mul = DOT_SIGNED_ENTRIES ? 1 : a->w->mul;
    for (int v = 0; v < GEORGANAS_VECTORS; v++) sums[v] = v_zero();
    while (step < end) {
        uint32_t span_end = end - step > span ? step + span : end;
        vint acc[GEORGANAS_VECTORS];
        UNROLL for (int i = 0; i < GEORGANAS_VECTORS; i++) acc[i] = v_zero();
        for (; step < span_end; step++) {
            vint codes[GEORGANAS_VECTORS], four = v_broadcast4(q + 4 * (size_t)step);
            const uint8_t *from = packed + (size_t)step * 16 * (size_t)bits;
            if (bits == 2)
                georganas_expand_u2(from, operands, codes);
            else
                georganas_expand_u1(from, operands, codes);
            UNROLL for (int v = 0; v < GEORGANAS_VECTORS; v++) acc[v] = dot_step(acc[v], codes[v], four);
        }
        UNROLL for (int v = 0; v < GEORGANAS_VECTORS; v++) sums[v] = v_add(sums[v], gemm_sum(acc[v], mul));
    }
}

SIMD_INLINE void georganas(const crumb_linear_args *a, const int bits) {
    const shape s = shape_of(a, bits);
    const size_t block_bytes = (size_t)a->x.k_padded / 4 * 16 * (size_t)bits;
    const uint32_t group_steps = s.group_steps, n_blocks = (a->tile1 + 1) / 2;
    for (uint32_t n = 0; n < a->n; n++)
        for (uint32_t block = a->tile0 / 2; block < n_blocks; block++) {
            const int8_t *q = (const int8_t *)a->prepared + (size_t)n * a->x.k_padded;
            vflt acc[GEORGANAS_VECTORS];
            for (int v = 0; v < GEORGANAS_VECTORS; v++) acc[v] = v_zero_f32();
            for (uint32_t g = 0; g < s.n_groups; g++) {
                vint sums[GEORGANAS_VECTORS];
                georganas_sums(a, (const uint8_t *)a->packed + block * block_bytes, q, g * group_steps,
                               (g + 1) * group_steps, bits, sums);
                if (DOT_SIGNED_ENTRIES)
                    papers_fold_values(a, &s, block * GEORGANAS_VECTORS, GEORGANAS_VECTORS, n, g, sums, acc);
                else
                    papers_fold(a, &s, block * GEORGANAS_VECTORS, GEORGANAS_VECTORS, n, g, sums, acc);
            }
            papers_finish(a, block * GEORGANAS_VECTORS, GEORGANAS_VECTORS, n, acc);
        }
}

#define GEORGANAS_INSTANCE                                                                                             \
    void SIMD_NAME(crumb_georganas_u2_i8)(const crumb_linear_args *a) {                                                \
        georganas(a, 2);                                                                                               \
    }                                                                                                                  \
    void SIMD_NAME(crumb_georganas_u1_i8)(const crumb_linear_args *a) {                                                \
        georganas(a, 1);                                                                                               \
    }
