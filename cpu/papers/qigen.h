/* The kernel of Pegolotti, Frantar, Alistarh, Pueschel, "QIGen: Generating Efficient Kernels for Quantized Inference on
 * Large Language Models" (2023), sections 2 and 3: activations stay floats, and codes become floats in registers, by a
 * shift, an AND and a conversion each. Scales and zero points are factored out of the sums:
 *
 *   (1)  s * (<x,u> - z * <x,1>)                  one scale per row
 *   (2)  sum_i s_i * (<x_i,u_i> - z_i * <x_i,1>)  groups
 *
 * with <x,1> computed once per input. Mini-GEMVs are blocks that fit L1, stored along the Z curve; a micro-GEMV in one
 * keeps its outputs in registers for t_u vectors and m_u activations at once (cpu/papers/qigen_blocks.h). Partial
 * outputs pass from block to block through memory. A word has 16 codes of 2 bits or 8 of 4; of 3 bits 32 codes take
 * three.
 *
 * Sums are f32 in the order of k, and so the error grows with K. With one scale per row, 3 and 4 bits, it is 4e-12 of
 * the result at K = 2048, 1e-11 at 16384, 6e-11 at 65536; with groups of 128 it stays below 5e-13.
 *
 * Included after a 256-bit tier's simd.h; QIGEN_INSTANCE makes a kernel.
 */
#include "cpu/lowbit/linear.h"
#include "cpu/papers/qigen_blocks.h"

enum {
    QIGEN_MU = CRUMB_QIGEN_MU,
    QIGEN_TU = CRUMB_QIGEN_TU,
    QIGEN_SPAN = 128 * CRUMB_QIGEN_STRIP /* outputs for which partial sums are kept at once */
};

/* Code i of a unit of words for 8 outputs; of 3 bits two in 32 codes lie in two words. */
SIMD_INLINE vint qigen_code(const uint8_t *words, const int bits, const int i) {
    const int at = bits * i % 32;
    const uint8_t *word = words + bits * i / 32 * CRUMB_QIGEN_STRIP * 4;
    vint code = v_shift_right(v_load(word), at);
    if (at + bits > 32) code = v_or(code, v_shift_left(v_load(word + CRUMB_QIGEN_STRIP * 4), 32 - at));
    return v_and(code, v_broadcast((1 << bits) - 1));
}

/* The micro-GEMV: y += <x,u> for n_k of a strip of outputs. */
SIMD_INLINE void qigen_micro(const uint8_t *codes, const float *x, uint32_t n_k, const int bits, vflt *y) {
    const int n_codes = (int)crumb_qigen_unit_codes((unsigned)bits), n_words = n_codes * bits / 32;
    for (uint32_t k = 0; k < n_k; k += (uint32_t)n_codes, x += n_codes, codes += n_words * CRUMB_QIGEN_STRIP * 4) {
        UNROLL for (int first = 0; first < n_codes; first += QIGEN_MU) {
            vflt x_mu[QIGEN_MU];
            UNROLL for (int i = 0; i < QIGEN_MU; i++) x_mu[i] = v_broadcast_f32(x[first + i]);
            UNROLL for (int t = 0; t < QIGEN_TU; t++) UNROLL for (int i = 0; i < QIGEN_MU; i++) {
                vint code = qigen_code(codes + 32 * t, bits, first + i);
                y[t] = v_fma_f32(x_mu[i], v_to_f32(code), y[t]);
            }
        }
    }
}

/* What a kernel knows of its matrix, and of one row of activations. */
typedef struct qigen_layer {
    const crumb_matrix *w;
    shape s; /* n_scales, scale_bytes */
    bool grouped;
    const float *x, *x_sums; /* [K'], [group of weights] */
} qigen_layer;

SIMD_INLINE vflt qigen_scale(const qigen_layer *l, const void *scales, uint32_t m, uint32_t group) {
    const tile_scales of_tile = levels_of_tile(scales, NULL, &l->s, m / CRUMB_TILE_ROWS);
    return load_scale(&of_tile, &l->s, group, (int)(m % CRUMB_TILE_ROWS / SIMD_LANES));
}

/* y + s * (mul * sum - sub * x_sum) + min * x_sum for 8 outputs from m; sum = <x,u>. */
SIMD_INLINE vflt qigen_factor(const qigen_layer *l, uint32_t m, uint32_t group, vflt sum, float x_sum, vflt y) {
    vflt zero = v_broadcast_f32(-(float)l->w->sub * x_sum);
    vflt value = v_fma_f32(sum, v_broadcast_f32(l->w->mul), zero);
    y = v_fma_f32(qigen_scale(l, l->w->scales, m, group), value, y);
    return l->w->mins ? v_fma_f32(qigen_scale(l, l->w->mins, m, group), v_broadcast_f32(x_sum), y) : y;
}

/* The part of a strip that lies in a block, for (1): y += <x,u>. */
SIMD_INLINE void qigen_strip_row(const qigen_layer *l, const crumb_qigen_walk *block, const uint8_t *codes,
                                 const int bits, float *y) {
    vflt acc[QIGEN_TU];
    UNROLL for (int t = 0; t < QIGEN_TU; t++) acc[t] = v_load_f32(y + SIMD_LANES * t);
    qigen_micro(codes, l->x + block->k, block->n_k, bits, acc);
    UNROLL for (int t = 0; t < QIGEN_TU; t++) v_store_f32(y + SIMD_LANES * t, acc[t]);
}

/* The same for (2): y += s_i * (...). The zero point of a group that lies in several blocks belongs to the first. */
SIMD_INLINE void qigen_strip_groups(const qigen_layer *l, const crumb_qigen_walk *block, uint32_t m,
                                    const uint8_t *codes, const int bits, float *y) {
    const uint32_t group = l->w->group, end = block->k + block->n_k;
    for (uint32_t k = block->k, next; k < end; k = next) {
        next = (k / group + 1) * group < end ? (k / group + 1) * group : end;
        vflt acc[QIGEN_TU];
        UNROLL for (int t = 0; t < QIGEN_TU; t++) acc[t] = v_zero_f32();
        qigen_micro(codes, l->x + k, next - k, bits, acc);
        codes += (size_t)(next - k) * CRUMB_QIGEN_STRIP * (size_t)bits / 8;
        const float x_sum = k % group ? 0.0f : l->x_sums[k / group];
        for (uint32_t t = 0; t < QIGEN_TU && m + SIMD_LANES * t < l->w->m; t++) {
            float *to = y + SIMD_LANES * t;
            v_store_f32(to, qigen_factor(l, m + SIMD_LANES * t, k / group, acc[t], x_sum, v_load_f32(to)));
        }
    }
}

/* Outputs [begin, end), at most QIGEN_SPAN, of activation row n. */
SIMD_INLINE void qigen_span(const crumb_linear_args *a, const qigen_layer *l, uint32_t n, uint32_t begin, uint32_t end,
                            const int bits) {
    float y[QIGEN_SPAN];
    memset(y, 0, (end - begin) * sizeof *y);
    crumb_qigen_walk block;
    crumb_qigen_walk_begin(l->w, crumb_qigen_blocks_of(l->w), &block);
    while (crumb_qigen_walk_next(&block)) {
        const uint32_t first = block.m > begin ? block.m : begin;
        const uint32_t last = block.m + block.n_m < end ? block.m + block.n_m : end;
        for (uint32_t m = first; m < last; m += CRUMB_QIGEN_STRIP) {
            const uint8_t *codes =
                (const uint8_t *)a->packed + block.at + (size_t)(m - block.m) * block.n_k * (size_t)bits / 8;
            if (l->grouped)
                qigen_strip_groups(l, &block, m, codes, bits, y + (m - begin));
            else
                qigen_strip_row(l, &block, codes, bits, y + (m - begin));
        }
    }
    for (uint32_t m = begin; m < end && m < l->w->m; m += SIMD_LANES) {
        vflt value = v_load_f32(y + (m - begin));
        finish_rows(a, n, m, l->grouped ? value : qigen_factor(l, m, 0, value, l->x_sums[0], v_zero_f32()));
    }
}

SIMD_INLINE void qigen(const crumb_linear_args *args, const int bits) {
    crumb_linear_args a = *args;
    a.x.row_scale = false; /* float activations have no scale */
    const crumb_matrix *w = a.w;
    const uint32_t k_padded = (w->k + CRUMB_TILE_K - 1) / CRUMB_TILE_K * CRUMB_TILE_K, n_groups = k_padded / w->group;
    const uint32_t strip_tiles = CRUMB_QIGEN_STRIP / CRUMB_TILE_ROWS;
    const uint32_t end = (a.tile1 + strip_tiles - 1) / strip_tiles * CRUMB_QIGEN_STRIP;
    for (uint32_t n = 0; n < a.n; n++) {
        const float *x = (const float *)a.prepared + (size_t)n * (k_padded + n_groups);
        const qigen_layer layer = {.w = w,
                                   .s = {.n_scales = n_groups, .scale_bytes = w->scales_f32 ? 4 : 2},
                                   .grouped = n_groups > 1,
                                   .x = x,
                                   .x_sums = x + k_padded};
        for (uint32_t m = a.tile0 * CRUMB_TILE_ROWS; m < end; m += QIGEN_SPAN)
            qigen_span(&a, &layer, n, m, end - m < QIGEN_SPAN ? end : m + QIGEN_SPAN, bits);
    }
}

#define QIGEN_INSTANCE(bits)                                                                                           \
    void SIMD_NAME(crumb_qigen_u##bits##_f32)(const crumb_linear_args *a) {                                            \
        qigen(a, bits);                                                                                                \
    }
