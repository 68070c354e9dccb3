/* What every 256-bit tier shares of the vector operations that cpu/lowbit is written in: all but the dot product. */
#ifndef CRUMB_CPU_AVX2_SIMD256_H
#define CRUMB_CPU_AVX2_SIMD256_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#if defined(CRUMB_SANITIZED) /* what is inlined everywhere and instrumented takes minutes to compile */
#define SIMD_INLINE static inline __attribute__((unused))
#else
#define SIMD_INLINE static inline __attribute__((always_inline))
#endif

enum { SIMD_LANES = 8 }; /* 32-bit lanes, one row of the weights each */
typedef __m256i vint;
typedef __m256 vflt;

SIMD_INLINE vint v_zero(void) {
    return _mm256_setzero_si256();
}
SIMD_INLINE vint v_load(const void *p) {
    return _mm256_loadu_si256(p);
}
SIMD_INLINE void v_store(void *p, vint a) {
    _mm256_storeu_si256(p, a);
}
SIMD_INLINE vint v_broadcast(int32_t x) {
    return _mm256_set1_epi32(x);
}
/* Four bytes at p in every lane. */
SIMD_INLINE vint v_broadcast4(const void *p) {
    int32_t x;
    memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}
SIMD_INLINE vint v_broadcast_bytes(int x) {
    return _mm256_set1_epi8((char)x);
}
/* 16 bytes at p in every 128 bits: a table for v_lookup, whose indices are bytes below 16. */
SIMD_INLINE vint v_broadcast16(const void *p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
}
SIMD_INLINE vint v_lookup(vint table, vint indices) {
    return _mm256_shuffle_epi8(table, indices);
}
SIMD_INLINE vint v_and(vint a, vint b) {
    return _mm256_and_si256(a, b);
}
SIMD_INLINE vint v_or(vint a, vint b) {
    return _mm256_or_si256(a, b);
}
/* A logical shift of the whole lane; what crosses a byte is masked away by the caller. */
SIMD_INLINE vint v_shift_right(vint a, int n) {
    return n ? _mm256_srli_epi32(a, n) : a;
}
SIMD_INLINE vint v_shift_left(vint a, int n) {
    return n ? _mm256_slli_epi32(a, n) : a;
}
SIMD_INLINE vint v_shift_right_signed(vint a, int n) {
    return n ? _mm256_srai_epi32(a, n) : a;
}
SIMD_INLINE vint v_add(vint a, vint b) {
    return _mm256_add_epi32(a, b);
}
SIMD_INLINE vint v_sub(vint a, vint b) {
    return _mm256_sub_epi32(a, b);
}
SIMD_INLINE vint v_mul(vint a, vint b) {
    return _mm256_mullo_epi32(a, b);
}
SIMD_INLINE vflt v_to_f32(vint a) {
    return _mm256_cvtepi32_ps(a);
}
/* The same for V_F32_BIAS + a, without a conversion: 1.5 * 2^23 as a float, whose last bit is a 1. Exact for |a| below
 * 2^22. Intel's P-cores convert where they multiply, and subtract elsewhere. */
enum { V_F32_BIAS = 0x4b400000, V_F32_BIAS_RANGE = 1 << 22 };
SIMD_INLINE vflt v_biased_to_f32(vint a) {
    return _mm256_sub_ps(_mm256_castsi256_ps(a), _mm256_set1_ps(12582912.0f));
}

/* Keeps a in a register, computed here: without it gcc 12 computes many products ahead and spills accumulators. */
SIMD_INLINE vint v_pin(vint a) {
    __asm__ volatile("" : "+v"(a));
    return a;
}

/* What was loaded must be loaded again. */
SIMD_INLINE void v_forget(void) {
    __asm__ volatile("" ::: "memory");
}

SIMD_INLINE vflt v_zero_f32(void) {
    return _mm256_setzero_ps();
}
SIMD_INLINE vflt v_load_f32(const float *p) {
    return _mm256_loadu_ps(p);
}
SIMD_INLINE vflt v_load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
/* SIMD_LANES bytes as int32. */
SIMD_INLINE vint v_load_i8(const int8_t *p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
/* 2 * SIMD_LANES bytes as int16, two of them a lane; or half as many, and zeros behind them. */
SIMD_INLINE vint v_widen_i8(const int8_t *p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}
SIMD_INLINE vint v_widen_half_i8(const int8_t *p) {
    return _mm256_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
SIMD_INLINE void v_store_f32(float *p, vflt a) {
    _mm256_storeu_ps(p, a);
}
/* Every lane of a, then of b, as int16, clamped. */
SIMD_INLINE void v_store_i16(int16_t *p, vint a, vint b) {
    v_store(p, _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
}
SIMD_INLINE vflt v_broadcast_f32(float x) {
    return _mm256_set1_ps(x);
}
SIMD_INLINE vflt v_add_f32(vflt a, vflt b) {
    return _mm256_add_ps(a, b);
}
SIMD_INLINE vflt v_mul_f32(vflt a, vflt b) {
    return _mm256_mul_ps(a, b);
}
SIMD_INLINE vflt v_fma_f32(vflt a, vflt b, vflt c) {
    return _mm256_fmadd_ps(a, b, c);
}
SIMD_INLINE vflt v_max_f32(vflt a, vflt b) {
    return _mm256_max_ps(a, b);
}
SIMD_INLINE float v_largest_f32(vflt a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
SIMD_INLINE vflt v_min_f32(vflt a, vflt b) {
    return _mm256_min_ps(a, b);
}
SIMD_INLINE vflt v_sub_f32(vflt a, vflt b) {
    return _mm256_sub_ps(a, b);
}
/* c - a * b */
SIMD_INLINE vflt v_fnma_f32(vflt a, vflt b, vflt c) {
    return _mm256_fnmadd_ps(a, b, c);
}
/* Its first n (fewer than SIMD_LANES) lanes, and b's others. */
SIMD_INLINE vflt v_first_or_f32(vflt a, uint32_t n, vflt b) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), index)));
}
/* With zeros behind them. */
SIMD_INLINE vflt v_first_f32(vflt a, uint32_t n) {
    return v_first_or_f32(a, n, _mm256_setzero_ps());
}
/* The same bits. */
SIMD_INLINE vflt v_as_f32(vint a) {
    return _mm256_castsi256_ps(a);
}
SIMD_INLINE vint v_as_int(vflt a) {
    return _mm256_castps_si256(a);
}
/* Adds eight lanes after eight. */
SIMD_INLINE __m256 v_sum8_f32(__m256 sum, vflt a) {
    return _mm256_add_ps(sum, a);
}
/* To the nearest integers, ties to even. */
SIMD_INLINE vint v_round(vflt a) {
    return _mm256_cvtps_epi32(a);
}

#endif
