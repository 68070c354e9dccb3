/* Dot products of bytes on a ymm register, exactly, with AVX2 instructions that none of the kernels use for it. */
#ifndef CRUMB_TESTS_EMULATED_DOT_H
#define CRUMB_TESTS_EMULATED_DOT_H

#include <immintrin.h>

static inline __m256i emulated_even(__m256i s8) {
    return _mm256_srai_epi16(_mm256_slli_epi16(s8, 8), 8);
}
static inline __m256i emulated_odd(__m256i s8) {
    return _mm256_srai_epi16(s8, 8);
}
static inline __m256i emulated_add(__m256i acc, __m256i even, __m256i odd) {
    return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}

/* vpdpbusd */
static inline __m256i emulated_dpbusd(__m256i acc, __m256i u8, __m256i s8) {
    __m256i even_u = _mm256_and_si256(u8, _mm256_set1_epi16(0xff)), odd_u = _mm256_srli_epi16(u8, 8);
    return emulated_add(acc, _mm256_madd_epi16(even_u, emulated_even(s8)), _mm256_madd_epi16(odd_u, emulated_odd(s8)));
}

/* vpdpwssd */
static inline __m256i emulated_dpwssd(__m256i acc, __m256i a, __m256i b) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}

/* vpdpbssd */
static inline __m256i emulated_dpbssd(__m256i acc, __m256i a, __m256i b) {
    return emulated_add(acc, _mm256_madd_epi16(emulated_even(a), emulated_even(b)),
                        _mm256_madd_epi16(emulated_odd(a), emulated_odd(b)));
}

#endif
