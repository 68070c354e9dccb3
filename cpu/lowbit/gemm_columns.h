/* The low-bit GEMM's side of activations: their order in a register block, what folds need of them, and the spans that
 * accumulators hold. Included by gemm.h. */
#ifndef CRUMB_CPU_LOWBIT_GEMM_COLUMNS_H
#define CRUMB_CPU_LOWBIT_GEMM_COLUMNS_H

#include "cpu/lowbit/gemm_block.h"

/* Four steps of a column. Of bytes whose halves alternate each two become a step of either half, as in a panel
 * (panel_u8_halves). */
SIMD_INLINE __m128i load_steps(const int8_t *p, const bool byte_halves) {
    const __m128i parted = _mm_setr_epi8(0, 4, 2, 6, 1, 5, 3, 7, 8, 12, 10, 14, 9, 13, 11, 15);
    const __m128i steps = _mm_loadu_si128((const __m128i *)(const void *)p);
    return byte_halves ? _mm_shuffle_epi8(steps, parted) : steps;
}

/* Four steps of four, two or one column, k_padded apart; a step's columns lie together, steps to_stride apart. */
SIMD_INLINE void interleave4(const int8_t *from, size_t k_padded, const bool byte_halves, int8_t *to,
                             size_t to_stride) {
    __m128i a = load_steps(from, byte_halves), b = load_steps(from + k_padded, byte_halves);
    __m128i c = load_steps(from + 2 * k_padded, byte_halves), d = load_steps(from + 3 * k_padded, byte_halves);
    __m128i ab_low = _mm_unpacklo_epi32(a, b), cd_low = _mm_unpacklo_epi32(c, d);
    __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
    _mm_storeu_si128((__m128i *)(void *)to, _mm_unpacklo_epi64(ab_low, cd_low));
    _mm_storeu_si128((__m128i *)(void *)(to + to_stride), _mm_unpackhi_epi64(ab_low, cd_low));
    _mm_storeu_si128((__m128i *)(void *)(to + 2 * to_stride), _mm_unpacklo_epi64(ab_high, cd_high));
    _mm_storeu_si128((__m128i *)(void *)(to + 3 * to_stride), _mm_unpackhi_epi64(ab_high, cd_high));
}
SIMD_INLINE void interleave2(const int8_t *from, size_t k_padded, const bool byte_halves, int8_t *to,
                             size_t to_stride) {
    __m128i a = load_steps(from, byte_halves), b = load_steps(from + k_padded, byte_halves);
    __m128i pairs[2] = {_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)};
    for (size_t i = 0; i < 4; i++) memcpy(to + i * to_stride, (const char *)pairs + 8 * i, 8);
}
SIMD_INLINE void interleave1(const int8_t *from, const bool byte_halves, int8_t *to, size_t to_stride) {
    int8_t parted[16];
    if (byte_halves) {
        _mm_storeu_si128((__m128i *)(void *)parted, load_steps(from, true));
        from = parted;
    }
    for (size_t i = 0; i < 4; i++) memcpy(to + i * to_stride, from + 4 * i, 4);
}

/* Four steps of one column as numbers of 16 bits, those of a part side by side. */
SIMD_INLINE void interleave_words(const int8_t *from, int8_t *to, size_t to_stride) {
    const __m128i by_part = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    const __m128i steps = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)from), by_part);
    int16_t words[16];
    _mm256_storeu_si256((__m256i *)(void *)words, _mm256_cvtepi8_epi16(steps));
    for (size_t i = 0; i < 4; i++) memcpy(to + i * to_stride, words + 4 * i, 8);
}

/* Four steps of n columns of a register block. */
SIMD_INLINE void interleave_steps(const int8_t *from, size_t k_padded, uint32_t n, const gemm_order order, int8_t *to) {
    const bool byte_halves = order == GEMM_BYTE_HALVES;
    uint32_t i = 0;
    if (order == GEMM_WORDS) {
        for (; i < n; i++) interleave_words(from + i * k_padded, to + (size_t)i * 8, (size_t)n * 8);
        return;
    }
    for (; i + 4 <= n; i += 4)
        interleave4(from + i * k_padded, k_padded, byte_halves, to + (size_t)i * 4, (size_t)n * 4);
    if (n & 2) interleave2(from + i * k_padded, k_padded, byte_halves, to + (size_t)i * 4, (size_t)n * 4);
    if (n & 1) interleave1(from + (n - 1) * k_padded, byte_halves, to + ((size_t)n - 1) * 4, (size_t)n * 4);
}

/* n_columns columns in the order that register blocks read them, which is one stream, and their reach. Read in place,
 * columns a power of two apart would compete for the same sets of the caches (a quarter of the speed on Zen 3). */
SIMD_INLINE void interleave_columns(const int8_t *columns, size_t k_padded, uint32_t n_columns, uint32_t wide,
                                    const gemm_order order, int8_t *out, uint16_t *reach) {
    const size_t code_bytes = order == GEMM_WORDS ? 2 : 1;
    for (uint32_t c = 0, n; c < n_columns; c += n) {
        n = gemm_next_columns(n_columns - c, wide);
        if (order != GEMM_WORDS)
            dot_reach(columns + c * k_padded, k_padded, n, reach + c * (k_padded / CRUMB_TILE_K) * CRUMB_Q8_REACH);
        for (size_t k = 0; k < k_padded; k += 16)
            interleave_steps(columns + c * k_padded + k, k_padded, n, order, out + (c * k_padded + k * n) * code_bytes);
    }
}

SIMD_INLINE void gemm_interleave(const int8_t *columns, size_t k_padded, uint32_t n_columns, uint32_t wide,
                                 gemm_order order, int8_t *out, uint16_t *reach) {
    switch (order) {
    case GEMM_BYTES: interleave_columns(columns, k_padded, n_columns, wide, GEMM_BYTES, out, reach); break;
    case GEMM_BYTE_HALVES: interleave_columns(columns, k_padded, n_columns, wide, GEMM_BYTE_HALVES, out, reach); break;
    case GEMM_WORDS: interleave_columns(columns, k_padded, n_columns, wide, GEMM_WORDS, out, reach); break;
    }
}

/* What folds need of column c and group g. */
SIMD_INLINE void gemm_prepare_one(const gemm_block *b, uint32_t c, uint32_t g, int zero, int bias) {
    const crumb_q8 *x = &b->a->x;
    const size_t from = (size_t)(b->n0 + c) * b->s.n_groups + g, to = g * b->stride + c;
    const float sx = x->row_scale ? 1.0f : x->sx[from];
    b->sx[to] = sx;
    b->offsets[to] = bias - zero * x->qsum[from];
    b->sx_qsums[to] = sx * (float)x->qsum[from];
}

/* The same for four columns and groups: rows of x become rows of four columns. */
SIMD_INLINE void gemm_prepare_four(const gemm_block *b, uint32_t c, uint32_t g, int zero, int bias) {
    const crumb_q8 *x = &b->a->x;
    __m128 sx[4], qsums[4];
    for (size_t i = 0; i < 4; i++) {
        const size_t from = (b->n0 + c + i) * b->s.n_groups + g;
        sx[i] = x->row_scale ? _mm_set1_ps(1.0f) : _mm_loadu_ps(x->sx + from);
        qsums[i] = _mm_loadu_ps((const float *)(const void *)(x->qsum + from));
    }
    _MM_TRANSPOSE4_PS(sx[0], sx[1], sx[2], sx[3]);
    _MM_TRANSPOSE4_PS(qsums[0], qsums[1], qsums[2], qsums[3]);
    for (size_t i = 0; i < 4; i++) {
        const size_t to = (g + i) * b->stride + c;
        const __m128i qsum = _mm_castps_si128(qsums[i]), offset = _mm_mullo_epi32(_mm_set1_epi32(-zero), qsum);
        _mm_storeu_ps(b->sx + to, sx[i]);
        _mm_storeu_ps(b->sx_qsums + to, _mm_mul_ps(sx[i], _mm_cvtepi32_ps(qsum)));
        _mm_storeu_si128((__m128i *)(void *)(b->offsets + to), _mm_add_epi32(offset, _mm_set1_epi32(bias)));
    }
}

/* What the folds of every strip need of the activations, in the order that it is read. */
SIMD_INLINE void gemm_prepare(const gemm_block *b) {
    const int zero = zero_point(b->a->w), bias = b->biased ? V_F32_BIAS : 0;
    const uint32_t fours = b->n_columns / 4 * 4, n_groups = b->s.n_groups;
    for (uint32_t c = 0; c < fours; c += 4) {
        uint32_t g = 0;
        for (; g + 4 <= n_groups; g += 4) gemm_prepare_four(b, c, g, zero, bias);
        for (; g < n_groups; g++)
            for (uint32_t i = 0; i < 4; i++) gemm_prepare_one(b, c + i, g, zero, bias);
    }
    for (uint32_t c = fours; c < b->n_columns; c++)
        for (uint32_t g = 0; g < n_groups; g++) gemm_prepare_one(b, c, g, zero, bias);
}

/* Interleaved by the caller for all tile-rows, or here for these. */
SIMD_INLINE void gemm_take_columns(gemm_block *b, const int kind, int wide) {
    const size_t code_bytes = (size_t)gemm_code_bytes(kind);
    const crumb_q8 *x = &b->a->x;
    const size_t at = (size_t)b->n0 * x->k_padded;
    if (x->interleaved) {
        b->q = x->interleaved + at * code_bytes;
        b->reach = x->reach + at / CRUMB_TILE_K * CRUMB_Q8_REACH;
        return;
    }
    const gemm_order order = code_bytes > 1 ? GEMM_WORDS : b->unpack == panel_u8_halves ? GEMM_BYTE_HALVES : GEMM_BYTES;
    gemm_interleave(x->q + at, x->k_padded, b->n_columns, (uint32_t)wide, order, b->local_q, b->local_reach);
    b->q = b->local_q;
    b->reach = b->local_reach;
}

SIMD_INLINE __m128i load_reach(const uint16_t *p) {
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}

/* Whether accumulators hold blocks [block, end) of a register block of `columns`. */
SIMD_INLINE bool gemm_span_fits(const gemm_block *b, const uint16_t *reach, uint32_t columns, uint32_t block,
                                uint32_t end, const int limit) {
    const __m128i most = _mm_set1_epi16((short)(limit / (int)b->most_code / 2));
    const size_t width = (size_t)columns * CRUMB_Q8_REACH;
    __m128i beyond = _mm_setzero_si128();
    for (size_t i = 0; i < width; i += CRUMB_Q8_REACH) {
        __m128i sums = load_reach(reach + (end - 1) * width + i);
        if (block > 0) sums = _mm_sub_epi16(sums, load_reach(reach + (block - 1) * width + i));
        beyond = _mm_or_si128(beyond, _mm_subs_epu16(sums, most));
    }
    return _mm_cvtsi128_si64(beyond) == 0;
}

/* The block after the span that begins at `block`: at least the next, and none in another chunk or group. */
SIMD_INLINE uint32_t gemm_span_end(const gemm_block *b, const uint16_t *reach, uint32_t columns, uint32_t block,
                                   uint32_t chunk_blocks, uint32_t group_blocks, const int limit) {
    uint32_t end = (block / chunk_blocks + 1) * chunk_blocks, fits = block + 1;
    const uint32_t group_end = (block / group_blocks + 1) * group_blocks;
    if (end > group_end) end = group_end;
    if (end > b->s.n_blocks) end = b->s.n_blocks;
    if (gemm_span_fits(b, reach, columns, block, end, limit)) return end;
    while (end - fits > 1) {
        const uint32_t middle = (fits + end) / 2;
        if (gemm_span_fits(b, reach, columns, block, middle, limit))
            fits = middle;
        else
            end = middle;
    }
    return fits;
}

/* Where accumulators do not hold even one block, short sums serve, for as many blocks as follow. */
SIMD_INLINE void gemm_find_spans(const gemm_block *b, const int kind, uint32_t wide) {
    const uint32_t n_blocks = b->s.n_blocks, chunk = b->chunk_steps / BLOCK_STEPS;
    const uint32_t group = b->s.group_steps / BLOCK_STEPS;
    for (uint32_t c = 0, n; c < b->n_columns; c += n) {
        n = gemm_next_columns(b->n_columns - c, wide);
        const uint16_t *reach = b->reach + (size_t)c * n_blocks * CRUMB_Q8_REACH;
        uint16_t *spans = b->spans + (size_t)c * n_blocks, *before = NULL; /* a short span, which may go on */
        for (uint32_t block = 0, end; block < n_blocks; block = end) {
            end = gemm_span_end(b, reach, n, block, chunk, group, gemm_sum_limit(kind));
            const bool is_short = gemm_is_short(kind) && end == block + 1 &&
                                  !gemm_span_fits(b, reach, n, block, end, gemm_sum_limit(kind));
            if (!before || !is_short || block % chunk == 0 || block % group == 0) before = &spans[block];
            *before = (uint16_t)(end | (is_short ? GEMM_SHORT : 0));
            if (!is_short) before = NULL;
        }
    }
}

#endif
