/* Ternary bytes of the index layout (host/lowbit/index.h) in registers: what GEMV and GEMM share. */
#ifndef CRUMB_CPU_LOWBIT_TRITS_H
#define CRUMB_CPU_LOWBIT_TRITS_H

#include "cpu/lowbit/linear.h"

#include "host/lowbit/index.h"

/* The indices of a and b in ternary bytes; a b of 0 has bit 7. `two` is a vector of 2, which the compiler must not
 * know, or it would compare in another way. */
SIMD_INLINE void trit_indices(__m256i bytes, __m256i two, __m256i *a, __m256i *b) {
    const __m256i field = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(bytes, 3), _mm256_set1_epi8(14)); /* bits 4-6, doubled */
    const __m256i no_b = _mm256_cmpgt_epi8(two, field);
    *a = _mm256_or_si256(field, _mm256_and_si256(upper, no_b));
    *b = _mm256_or_si256(upper, no_b);
}

#endif
