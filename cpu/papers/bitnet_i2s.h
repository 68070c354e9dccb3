/* I2_S, the multiply-add kernel of Wang et al., "Bitnet.cpp: Efficient Edge Inference for Ternary LLMs" (2025): dot
 * products row by row, of 2-bit codes and int8 activations. 32 bytes hold 128 weights, byte p those of k = p, p + 32,
 * p + 64 and p + 96 from its highest bits down, so that a shift and an AND make 32 codes of as many adjacent k: a
 * plane.
 *
 * int16 accumulators: a plane adds at most 2 * 2 * 128 in magnitude to a lane, so 64 planes fit (-32768 in all; upwards
 * 64 * 508). The public implementation sums 128 of them, which overflows.
 *
 * Included after a 256-bit tier's simd.h; BITNET_I2S_INSTANCE makes the kernel.
 */
#include "cpu/papers/fold.h"

enum { I2S_PLANES = 4, I2S_SPAN_BLOCKS = 16 };

/* The products of one plane, added in pairs; q are its 32 activations. */
SIMD_INLINE vint i2s_plane(vint packed, const int8_t *q, int plane) {
    vint codes = v_and(v_shift_right(packed, 6 - 2 * plane), v_broadcast_bytes(3));
    return _mm256_maddubs_epi16(codes, v_load(q));
}

/* The same of up to I2S_SPAN_BLOCKS whole blocks. */
SIMD_INLINE vint i2s_blocks(const uint8_t *from, const int8_t *q, uint32_t n_blocks) {
    vint acc = v_zero();
    for (uint32_t i = 0; i < n_blocks; i++, from += 32, q += 32 * I2S_PLANES) {
        vint packed = v_load(from);
        vint high = _mm256_add_epi16(i2s_plane(packed, q, 0), i2s_plane(packed, q + 32, 1));
        vint low = _mm256_add_epi16(i2s_plane(packed, q + 64, 2), i2s_plane(packed, q + 96, 3));
        acc = _mm256_add_epi16(acc, v_pin(_mm256_add_epi16(high, low)));
    }
    return acc;
}

/* sum(u*q) of one row over planes [plane, end), in eight parts. A group of 32 or 64 begins or ends within a block. */
SIMD_INLINE vint i2s_dot(const uint8_t *row, const int8_t *q, uint32_t plane, uint32_t end) {
    const vint ones = _mm256_set1_epi16(1);
    vint sum = v_zero();
    while (plane < end) {
        const uint8_t *from = row + (size_t)(plane / I2S_PLANES) * 32;
        uint32_t n_blocks = plane % I2S_PLANES ? 0 : (end - plane) / I2S_PLANES;
        if (n_blocks > I2S_SPAN_BLOCKS) n_blocks = I2S_SPAN_BLOCKS;
        vint acc = n_blocks ? i2s_blocks(from, q + (size_t)plane * 32, n_blocks)
                            : i2s_plane(v_load(from), q + (size_t)plane * 32, (int)(plane % I2S_PLANES));
        sum = v_add(sum, _mm256_madd_epi16(acc, ones));
        plane += n_blocks ? n_blocks * I2S_PLANES : 1;
    }
    return sum;
}

/* The totals of eight vectors, in order. */
SIMD_INLINE vint i2s_totals(const vint *v) {
    vint low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    vint high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return v_add(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

SIMD_INLINE void bitnet_i2s(const crumb_linear_args *a) {
    const shape s = shape_of(a, 2);
    const uint32_t group_blocks = s.group_steps / BLOCK_STEPS;
    const size_t row_bytes = (size_t)(s.n_blocks + I2S_PLANES - 1) / I2S_PLANES * 32;
    for (uint32_t n = 0; n < a->n; n++)
        for (uint32_t v = a->tile0 * TILE_VECTORS; v < a->tile1 * TILE_VECTORS; v++) {
            const uint8_t *rows = (const uint8_t *)a->packed + (size_t)v * SIMD_LANES * row_bytes;
            const int8_t *q = (const int8_t *)a->prepared + (size_t)n * a->x.k_padded;
            vflt acc = v_zero_f32();
            for (uint32_t g = 0; g < s.n_groups; g++) {
                vint parts[SIMD_LANES], sums;
                for (int i = 0; i < SIMD_LANES; i++)
                    parts[i] = i2s_dot(rows + (size_t)i * row_bytes, q, g * group_blocks, (g + 1) * group_blocks);
                sums = i2s_totals(parts);
                papers_fold(a, &s, v, 1, n, g, &sums, &acc);
            }
            papers_finish(a, v, 1, n, &acc);
        }
}

#define BITNET_I2S_INSTANCE                                                                                            \
    void SIMD_NAME(crumb_i2s_i8)(const crumb_linear_args *a) {                                                         \
        bitnet_i2s(a);                                                                                                 \
    }
