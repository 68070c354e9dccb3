#include "tests/kernels/probes.h"

#include <immintrin.h>

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 12")
#endif

uint64_t probe_read(const void *p, size_t n_bytes) {
    /* Four streams with prefetch, as the kernels read: one stream alone leaves memory idle. */
    size_t quarter = n_bytes / 4;
    const char *base = p;
    __m256i sum[8] = {0};
    for (size_t i = 0; i < quarter; i += 64)
        for (int s = 0; s < 4; s++) {
            const char *at = base + (size_t)s * quarter + i;
            _mm_prefetch(at + 2048, _MM_HINT_T0);
            sum[2 * s] = _mm256_xor_si256(sum[2 * s], _mm256_load_si256((const __m256i *)at));
            sum[2 * s + 1] = _mm256_xor_si256(sum[2 * s + 1], _mm256_load_si256((const __m256i *)(at + 32)));
        }
    for (int s = 1; s < 8; s++) sum[0] = _mm256_xor_si256(sum[0], sum[s]);
    return (uint64_t)_mm256_extract_epi64(sum[0], 0) ^ (uint64_t)_mm256_extract_epi64(sum[0], 2);
}

uint64_t probe_dot(uint64_t rounds) {
    __m256i acc[12], codes = _mm256_set1_epi8(1), q = _mm256_set1_epi8(1);
    UNROLL for (int i = 0; i < 12; i++) acc[i] = _mm256_setzero_si256();
    for (uint64_t r = 0; r < rounds; r++) {
        UNROLL for (int i = 0; i < 12; i++) {
            __asm__ volatile("" : "+x"(q)); /* else one product would serve all */
            acc[i] = _mm256_add_epi16(acc[i], _mm256_maddubs_epi16(codes, q));
        }
    }
    UNROLL for (int i = 1; i < 12; i++) acc[0] = _mm256_add_epi16(acc[0], acc[i]);
    return (uint64_t)_mm256_extract_epi64(acc[0], 0);
}
