/* The operations of cpu/avx512/simd512.h on pairs of 256-bit vectors. */
#ifndef CRUMB_TESTS_EMULATED_SIMD512_H
#define CRUMB_TESTS_EMULATED_SIMD512_H

#include "tests/kernels/emulated_dot.h"

#include <stdint.h>
#include <string.h>

#if defined(CRUMB_SANITIZED) /* as in cpu/avx2/simd256.h */
#define SIMD_INLINE static inline __attribute__((unused))
#else
#define SIMD_INLINE static inline __attribute__((always_inline))
#endif

enum { SIMD_LANES = 16, SIMD_REGISTERS = 32, DOT2_LATENCY = 5 };
typedef struct vint {
    __m256i low, high;
} vint;
typedef struct vflt {
    __m256 low, high;
} vflt;

SIMD_INLINE vint v_zero(void) {
    return (vint){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
SIMD_INLINE vint v_load(const void *p) {
    return (vint){_mm256_loadu_si256(p), _mm256_loadu_si256((const void *)((const char *)p + 32))};
}
SIMD_INLINE void v_store(void *p, vint a) {
    _mm256_storeu_si256(p, a.low);
    _mm256_storeu_si256((void *)((char *)p + 32), a.high);
}
SIMD_INLINE vint v_broadcast(int32_t x) {
    return (vint){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
SIMD_INLINE vint v_broadcast4(const void *p) {
    int32_t x;
    memcpy(&x, p, 4);
    return v_broadcast(x);
}
SIMD_INLINE vint v_broadcast_bytes(int x) {
    return (vint){_mm256_set1_epi8((char)x), _mm256_set1_epi8((char)x)};
}
SIMD_INLINE vint v_broadcast16(const void *p) {
    __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
    return (vint){twice, twice};
}
SIMD_INLINE vint v_lookup(vint table, vint indices) {
    return (vint){_mm256_shuffle_epi8(table.low, indices.low), _mm256_shuffle_epi8(table.high, indices.high)};
}
SIMD_INLINE vint v_and(vint a, vint b) {
    return (vint){_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
SIMD_INLINE vint v_or(vint a, vint b) {
    return (vint){_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
SIMD_INLINE vint v_shift_right(vint a, int n) {
    return (vint){_mm256_srli_epi32(a.low, n), _mm256_srli_epi32(a.high, n)};
}
SIMD_INLINE vint v_shift_left(vint a, int n) {
    return (vint){_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)};
}
SIMD_INLINE vint v_shift_right_signed(vint a, int n) {
    return (vint){_mm256_srai_epi32(a.low, n), _mm256_srai_epi32(a.high, n)};
}
SIMD_INLINE vint v_add(vint a, vint b) {
    return (vint){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
SIMD_INLINE vint v_sub(vint a, vint b) {
    return (vint){_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
SIMD_INLINE vint v_mul(vint a, vint b) {
    return (vint){_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
SIMD_INLINE vflt v_to_f32(vint a) {
    return (vflt){_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
enum { V_F32_BIAS = 0x4b400000, V_F32_BIAS_RANGE = 1 << 22 };
SIMD_INLINE vflt v_biased_to_f32(vint a) {
    const __m256 bias = _mm256_set1_ps(12582912.0f);
    return (vflt){_mm256_sub_ps(_mm256_castsi256_ps(a.low), bias), _mm256_sub_ps(_mm256_castsi256_ps(a.high), bias)};
}
SIMD_INLINE vint v_dot4(vint acc, vint u8, vint s8) {
    return (vint){emulated_dpbusd(acc.low, u8.low, s8.low), emulated_dpbusd(acc.high, u8.high, s8.high)};
}
SIMD_INLINE vint v_dot2(vint acc, vint a, vint b) {
    return (vint){emulated_dpwssd(acc.low, a.low, b.low), emulated_dpwssd(acc.high, a.high, b.high)};
}
SIMD_INLINE vint v_pin(vint a) {
    return a;
}
SIMD_INLINE void v_forget(void) {}

SIMD_INLINE vflt v_zero_f32(void) {
    return (vflt){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
SIMD_INLINE vflt v_load_f32(const float *p) {
    return (vflt){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
SIMD_INLINE vflt v_load_f16(const uint16_t *p) {
    return (vflt){_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 8)))};
}
SIMD_INLINE vint v_load_i8(const int8_t *p) {
    return (vint){_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)),
                  _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p + 8)))};
}
SIMD_INLINE vint v_widen_i8(const int8_t *p) {
    return (vint){_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p)),
                  _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(p + 16)))};
}
SIMD_INLINE vint v_widen_half_i8(const int8_t *p) {
    return (vint){_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p)), _mm256_setzero_si256()};
}
SIMD_INLINE void v_store_i16(int16_t *p, vint a, vint b) {
    v_store(p, (vint){_mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8),
                      _mm256_permute4x64_epi64(_mm256_packs_epi32(b.low, b.high), 0xd8)});
}
SIMD_INLINE void v_store_f32(float *p, vflt a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}
SIMD_INLINE vflt v_broadcast_f32(float x) {
    return (vflt){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
SIMD_INLINE vflt v_add_f32(vflt a, vflt b) {
    return (vflt){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
SIMD_INLINE vflt v_mul_f32(vflt a, vflt b) {
    return (vflt){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
SIMD_INLINE vflt v_fma_f32(vflt a, vflt b, vflt c) {
    return (vflt){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
SIMD_INLINE vflt v_fnma_f32(vflt a, vflt b, vflt c) {
    return (vflt){_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
SIMD_INLINE vflt v_max_f32(vflt a, vflt b) {
    return (vflt){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
SIMD_INLINE vflt v_min_f32(vflt a, vflt b) {
    return (vflt){_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
SIMD_INLINE vflt v_sub_f32(vflt a, vflt b) {
    return (vflt){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
SIMD_INLINE float v_largest_f32(vflt a) {
    float lanes[16], most;
    v_store_f32(lanes, a);
    most = lanes[0];
    for (int i = 1; i < 16; i++) most = lanes[i] > most ? lanes[i] : most;
    return most;
}
SIMD_INLINE vflt v_first_or_f32(vflt a, uint32_t n, vflt b) {
    float lanes[16];
    v_store_f32(lanes, b);
    memcpy(lanes, &a, n * sizeof *lanes);
    return v_load_f32(lanes);
}
SIMD_INLINE vflt v_first_f32(vflt a, uint32_t n) {
    return v_first_or_f32(a, n, v_zero_f32());
}
SIMD_INLINE vint v_round(vflt a) {
    return (vint){_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}
SIMD_INLINE vflt v_as_f32(vint a) {
    return (vflt){_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
SIMD_INLINE vint v_as_int(vflt a) {
    return (vint){_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)};
}
SIMD_INLINE __m256 v_sum8_f32(__m256 sum, vflt a) {
    return _mm256_add_ps(_mm256_add_ps(sum, a.low), a.high);
}

#endif
