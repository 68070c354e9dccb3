/* Unpacking the index layout (host/lowbit/index.h) for the GEMM: part of panel.h, in 256 bits on every tier. */
#ifndef CRUMB_CPU_LOWBIT_PANEL_INDEX_H
#define CRUMB_CPU_LOWBIT_PANEL_INDEX_H

#include "cpu/lowbit/trits.h"

enum { PANEL_NEXT = 0 }; /* how far ahead codes are fetched into L2: those of the panel that comes next */

/* How many bytes ahead of what a panel of n_bytes of codes is made of others are fetched. */
SIMD_INLINE size_t panel_far(size_t far, size_t n_bytes) {
    return far == PANEL_NEXT ? n_bytes : far;
}

/* One line of 1-bit codes: a byte of a row is the codes of two steps. Steps of the first bytes come before those of the
 * second. */
SIMD_INLINE void panel_bit_line(const uint8_t *line, uint8_t *out) {
    const __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)line);
    const __m256i twice[2] = {_mm256_unpacklo_epi8(bytes, bytes), _mm256_unpackhi_epi8(bytes, bytes)};
    const __m256i masks[2] = {_mm256_set1_epi32(0x08040201), _mm256_set1_epi32((int)0x80402010)};
    for (int quarter = 0; quarter < 4; quarter++) { /* four rows, each byte four times */
        const __m256i from = twice[quarter / 2];
        const __m256i copies = quarter % 2 ? _mm256_unpackhi_epi16(from, from) : _mm256_unpacklo_epi16(from, from);
        for (int step = 0; step < 2; step++) {
            const __m256i codes = _mm256_min_epu8(_mm256_and_si256(copies, masks[step]), _mm256_set1_epi8(1));
            uint8_t *to = out + step * LINE_BYTES + quarter * 16;
            _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(codes));
            _mm_storeu_si128((__m128i *)(void *)(to + 2 * LINE_BYTES), _mm256_extracti128_si256(codes, 1));
        }
    }
}

__attribute__((unused)) static void panel_b8(const uint8_t *codes, uint32_t step0, uint32_t step1, vint table,
                                             size_t far, uint8_t *out) {
    const uint32_t line_steps = 4;
    const uint8_t *line = codes + (size_t)step0 / line_steps * CRUMB_INDEX_LINE_BYTES;
    (void)table;
    far = panel_far(far, (size_t)(step1 - step0) / line_steps * CRUMB_INDEX_LINE_BYTES);
    for (uint32_t step = step0; step < step1; step += line_steps, line += CRUMB_INDEX_LINE_BYTES) {
        _mm_prefetch((const char *)line + far, _MM_HINT_T1);
        panel_bit_line(line, out);
        out += line_steps * LINE_BYTES;
    }
}

/* The codes of one line of ternary bytes, by position: [10][16 rows]. */
SIMD_INLINE void panel_trit_line(const uint8_t *line, __m256i two, uint8_t *out) {
    /* Trits by the index of a and of b; what stands for nothing is 0. */
#define A(i)  ((i) < 2 ? 13 : (i) + 11)
#define B(i)  ((i) / 2 < 4 ? (i) / 2 : (i) / 2 + 1)
#define T0(i) A(i) % 3 - 1
#define T1(i) A(i) / 3 % 3 - 1
#define T2(i) A(i) / 9 - 1
#define T3(i) B(i) % 3 - 1
#define T4(i) B(i) / 3 - 1
#define ENTRIES(X)                                                                                                     \
    {X(0), X(1), X(2), X(3), X(4), X(5), X(6), X(7), X(8), X(9), X(10), X(11), X(12), X(13), X(14), X(15)}
    static const int8_t trits[5][16] = {ENTRIES(T0), ENTRIES(T1), ENTRIES(T2), ENTRIES(T3), ENTRIES(T4)};
#undef A
#undef B
#undef T0
#undef T1
#undef T2
#undef T3
#undef T4
#undef ENTRIES
    const __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)line), one = _mm256_set1_epi8(1);
    __m256i a, b;
    trit_indices(bytes, two, &a, &b);
    for (int i = 0; i < 5; i++, out += 16) {
        const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)trits[i]));
        const __m256i trit = _mm256_sign_epi8(_mm256_shuffle_epi8(table, i < 3 ? a : b), bytes); /* never 0 */
        const __m256i codes = _mm256_add_epi8(trit, one);
        _mm_storeu_si128((__m128i *)(void *)out, _mm256_castsi256_si128(codes));
        _mm_storeu_si128((__m128i *)(void *)(out + 5 * 16), _mm256_extracti128_si256(codes, 1));
    }
}

/* Four positions of 16 rows become a step: the four of each row together. */
SIMD_INLINE void panel_step(const uint8_t *positions, uint8_t *out) {
    const __m128i *from = (const __m128i *)(const void *)positions;
    __m128i *to = (__m128i *)(void *)out;
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    const __m128i ab[2] = {_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)};
    const __m128i cd[2] = {_mm_unpacklo_epi8(c, d), _mm_unpackhi_epi8(c, d)};
    for (int i = 0; i < 2; i++) {
        _mm_storeu_si128(to + 2 * i, _mm_unpacklo_epi16(ab[i], cd[i]));
        _mm_storeu_si128(to + 2 * i + 1, _mm_unpackhi_epi16(ab[i], cd[i]));
    }
}

/* Two lines are five steps; panels begin there (GEMM_TRIT_UNIT). */
static void panel_t5(const uint8_t *codes, uint32_t step0, uint32_t step1, vint table, size_t far, uint8_t *out) {
    const uint32_t unit_steps = 5;
    const __m256i two = _mm256_set1_epi8(CRUMB_INDEX_FIRST);
    const uint8_t *line = codes + (size_t)step0 / unit_steps * 2 * CRUMB_INDEX_LINE_BYTES;
    (void)table;
    far = panel_far(far, (size_t)(step1 - step0) / unit_steps * 2 * CRUMB_INDEX_LINE_BYTES);
    for (uint32_t step = step0; step < step1; step += unit_steps, line += 2 * CRUMB_INDEX_LINE_BYTES) {
        uint8_t positions[20 * 16];
        const uint32_t n_steps = step1 - step < unit_steps ? step1 - step : unit_steps;
        _mm_prefetch((const char *)line + far, _MM_HINT_T1);
        panel_trit_line(line, two, positions);
        if (n_steps > 2) panel_trit_line(line + CRUMB_INDEX_LINE_BYTES, two, positions + 10 * 16);
        for (uint32_t i = 0; i < n_steps; i++, out += LINE_BYTES) panel_step(positions + (size_t)i * 64, out);
    }
}

#endif
