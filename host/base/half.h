/* fp16 and bf16, exactly, in portable C. Conversions to half types round to nearest, ties to even. */
#ifndef CRUMB_BASE_HALF_H
#define CRUMB_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float crumb_bits_to_f32(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static inline uint32_t crumb_f32_to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static inline float crumb_bf16_to_f32(uint16_t h) {
    return crumb_bits_to_f32((uint32_t)h << 16);
}
static inline uint16_t crumb_f32_to_bf16(float f) {
    uint32_t u = crumb_f32_to_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40); /* NaN stays NaN */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float crumb_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return crumb_bits_to_f32(sign | 0x7f800000 | mantissa << 13);
    if (exponent) return crumb_bits_to_f32(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f; /* subnormal: exact */
    return sign ? -tiny : tiny;
}
static inline uint16_t crumb_f32_to_f16(float f) {
    uint32_t u = crumb_f32_to_bits(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to infinity */
    if (magnitude < 0x38800000) {                                  /* subnormal half: let the FPU round at 2^-24 */
        float shifted = crumb_bits_to_f32(magnitude) + 0.5f;
        return (uint16_t)(sign | (crumb_f32_to_bits(shifted) - 0x3f000000));
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

#endif
