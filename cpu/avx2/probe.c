/* Probes of one AVX2 core: reading memory, and vpmaddubsw + vpaddw on registers. */
#include "cpu/probe.h"
#include "cpu/avx2/simd.h"

/* n_streams streams, as the kernels read; of each what is `near` bytes ahead is asked for into L1, and what is `far`
 * ahead into L2 (0: the processor sees to that). */
static inline __attribute__((always_inline)) uint64_t read_streams(const void *p, uint64_t n_bytes,
                                                                   const uint64_t n_streams, uint64_t near,
                                                                   uint64_t far) {
    const uint64_t part = n_bytes / n_streams;
    __m256i sum[8] = {0};
    for (uint64_t i = 0; i < part; i += 64)
        for (uint64_t s = 0; s < n_streams; s++) {
            const char *at = (const char *)p + s * part + i;
            if (near) _mm_prefetch(at + near, _MM_HINT_T0);
            if (far) _mm_prefetch(at + far, _MM_HINT_T1);
            sum[2 * s] = _mm256_xor_si256(sum[2 * s], v_load(at));
            sum[2 * s + 1] = _mm256_xor_si256(sum[2 * s + 1], v_load(at + 32));
        }
    for (int s = 1; s < 8; s++) sum[0] = _mm256_xor_si256(sum[0], sum[s]);
    return (uint64_t)_mm256_extract_epi64(sum[0], 0) ^ (uint64_t)_mm256_extract_epi64(sum[0], 2);
}

uint64_t crumb_probe_read__avx2(const void *p, uint64_t n_bytes) {
    return read_streams(p, n_bytes, 4, 0, 0);
}

uint64_t crumb_probe_read_ahead__avx2(const void *p, uint64_t n_bytes) {
    return read_streams(p, n_bytes, 4, 2048, 0);
}

uint64_t crumb_probe_read_far__avx2(const void *p, uint64_t n_bytes) {
    return read_streams(p, n_bytes, 4, 1024, 2048);
}

uint64_t crumb_probe_read_two__avx2(const void *p, uint64_t n_bytes) {
    return read_streams(p, n_bytes, 2, 0, 2048);
}

#include "cpu/lowbit/probe.h"

PROBE_DOT_INSTANCE
