/* One block of each low-bit type on disk: its codes, one per byte, and its scales. What models of many bytes have is
 * decoded 16 bytes at a time (GNU C vectors, which any target has), since packing goes by way of these codes. */
#include "host/lowbit/types.h"

#include <math.h>
#include <string.h>

/* ---- codes ------------------------------------------------------------------------------------------------- */

typedef uint8_t bytes16 __attribute__((vector_size(16)));

static inline bytes16 load16(const uint8_t *p) {
    bytes16 x;
    memcpy(&x, p, 16);
    return x;
}
static inline void store16(uint8_t *p, bytes16 x) {
    memcpy(p, &x, 16);
}

/* Byte j: code j in its low nibble, j + n in its high one; n is a multiple of 16. */
static inline void codes_nibbles(const uint8_t *in, int n, uint8_t *codes) {
    for (int j = 0; j < n; j += 16) {
        store16(codes + j, load16(in + j) & 15);
        store16(codes + n + j, load16(in + j) >> 4);
    }
}

/* Bit l of 32 bytes, for l = 0 .. 7, is bit `at` of 32 codes more. */
static inline void add_bits(const uint8_t *in, int at, uint8_t *codes) {
    for (int half = 0; half < 2; half++) {
        const bytes16 x = load16(in + (ptrdiff_t)16 * half);
        for (int l = 0; l < 8; l++) {
            uint8_t *to = codes + (ptrdiff_t)32 * l + (ptrdiff_t)16 * half;
            store16(to, load16(to) | (x >> l & 1) << at);
        }
    }
}

static void codes_q4(const uint8_t *in, uint8_t *codes) {
    codes_nibbles(in, 16, codes);
}

static void codes_q8(const uint8_t *in, uint8_t *codes) {
    for (int j = 0; j < 32; j++) codes[j] = in[j] ^ 0x80; /* int8 to code: + 128 */
}

/* Bit j of four bytes, then the lower four bits as nibbles. */
static void codes_q5(const uint8_t *in, uint8_t *codes) {
    static const bytes16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    codes_nibbles(in + 4, 16, codes);
    for (int half = 0; half < 2; half++, codes += 16) {
        const uint8_t a = in[2 * half], b = in[2 * half + 1];
        const bytes16 x = {a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b};
        store16(codes, load16(codes) | ((bytes16)((x & bit) != 0) & 16));
    }
}

/* n_bytes bytes hold n_trits trits each, as a fraction of 3: trit t of byte i is code t * n_bytes + i. */
static void codes_trits(const uint8_t *in, int n_bytes, int n_trits, uint8_t *codes) {
    for (int i = 0; i < n_bytes; i++) {
        unsigned rest = in[i];
        for (int t = 0; t < n_trits; t++) {
            codes[t * n_bytes + i] = (uint8_t)(rest * 3 >> 8);
            rest = rest * 3 & 255;
        }
    }
}

static void codes_tq1_0(const uint8_t *in, uint8_t *codes) {
    codes_trits(in, 32, 5, codes);
    codes_trits(in + 32, 16, 5, codes + 160);
    codes_trits(in + 48, 4, 4, codes + 240);
}

static void codes_ptq1_0(const uint8_t *in, uint8_t *codes) {
    codes_trits(in, 16, 5, codes);
    codes_trits(in + 16, 8, 5, codes + 80);
    codes_trits(in + 24, 2, 4, codes + 120);
}

/* 32 bytes hold four times 32 codes, one in each bit pair, the lowest first. */
static inline void codes_bit_pairs(const uint8_t *in, uint8_t *codes) {
    for (int l = 0; l < 4; l++)
        for (int half = 0; half < 2; half++)
            store16(codes + (ptrdiff_t)32 * l + (ptrdiff_t)16 * half, load16(in + (ptrdiff_t)16 * half) >> 2 * l & 3);
}

static void codes_256_of_2_bits(const uint8_t *in, uint8_t *codes) {
    codes_bit_pairs(in, codes);
    codes_bit_pairs(in + 32, codes + 128);
}

static void codes_i2_s(const uint8_t *in, uint8_t *codes) {
    for (int i = 0; i < 128; i++) codes[i] = in[i % 32] >> (6 - 2 * (i / 32)) & 3;
}

static void codes_q1_0(const uint8_t *in, uint8_t *codes) {
    for (int i = 0; i < 128; i++) codes[i] = in[i / 8] >> i % 8 & 1;
}

static void codes_q2_0_g64(const uint8_t *in, uint8_t *codes) {
    for (int i = 0; i < 64; i++) codes[i] = in[i / 4] >> 2 * (i % 4) & 3;
}

static void codes_q2_0_g128(const uint8_t *in, uint8_t *codes) {
    codes_q2_0_g64(in, codes);
    codes_q2_0_g64(in + 16, codes + 64);
}

/* 32 bytes of high bits, one bit of each for every 32 codes; then two bits of each code. */
static void codes_q3_k(const uint8_t *in, uint8_t *codes) {
    codes_256_of_2_bits(in + 32, codes);
    add_bits(in, 2, codes);
}

static void codes_q4_k(const uint8_t *in, uint8_t *codes) {
    for (int l = 0; l < 4; l++) codes_nibbles(in + (ptrdiff_t)32 * l, 32, codes + (ptrdiff_t)64 * l);
}

static void codes_q5_k(const uint8_t *in, uint8_t *codes) {
    codes_q4_k(in + 32, codes);
    add_bits(in, 4, codes);
}

/* Each half of the block: 64 bytes of lower nibbles; behind all of these, 32 bytes of upper bit pairs. */
static void codes_q6_k(const uint8_t *in, uint8_t *codes) {
    for (int half = 0; half < 2; half++, codes += 128) {
        uint8_t high[128];
        codes_nibbles(in + (ptrdiff_t)64 * half, 64, codes);
        codes_bit_pairs(in + 128 + (ptrdiff_t)32 * half, high);
        for (int i = 0; i < 128; i += 16) store16(codes + i, load16(codes + i) | load16(high + i) << 4);
    }
}

/* A stream of bits, lowest first. */
static inline void codes_stream(const uint8_t *in, unsigned bits, uint8_t *codes) {
    for (unsigned i = 0; i < 32; i++) {
        const unsigned at = i * bits, above = bits > 8 - at % 8 ? (unsigned)in[at / 8 + 1] << 8 : 0;
        codes[i] = (uint8_t)((in[at / 8] | above) >> at % 8 & ((1u << bits) - 1));
    }
}
static void codes_int2(const uint8_t *in, uint8_t *codes) {
    codes_stream(in, 2, codes);
}
static void codes_int3(const uint8_t *in, uint8_t *codes) {
    codes_stream(in, 3, codes);
}
static void codes_int4(const uint8_t *in, uint8_t *codes) {
    codes_stream(in, 4, codes);
}
static void codes_int8(const uint8_t *in, uint8_t *codes) {
    memcpy(codes, in, 32);
}

static void (*const block_codes[CRUMB_TYPE_COUNT])(const uint8_t *in, uint8_t *codes) = {
    [CRUMB_TYPE_Q4_0] = codes_q4,
    [CRUMB_TYPE_Q4_1] = codes_q4,
    [CRUMB_TYPE_Q8_0] = codes_q8,
    [CRUMB_TYPE_TQ1_0] = codes_tq1_0,
    [CRUMB_TYPE_TQ2_0] = codes_256_of_2_bits,
    [CRUMB_TYPE_I2_S] = codes_i2_s,
    [CRUMB_TYPE_Q1_0] = codes_q1_0,
    [CRUMB_TYPE_Q2_0_G64] = codes_q2_0_g64,
    [CRUMB_TYPE_Q2_0_G128] = codes_q2_0_g128,
    [CRUMB_TYPE_PTQ1_0] = codes_ptq1_0,
    [CRUMB_TYPE_Q5_0] = codes_q5,
    [CRUMB_TYPE_Q5_1] = codes_q5,
    [CRUMB_TYPE_Q2_K] = codes_256_of_2_bits,
    [CRUMB_TYPE_Q3_K] = codes_q3_k,
    [CRUMB_TYPE_Q4_K] = codes_q4_k,
    [CRUMB_TYPE_Q5_K] = codes_q5_k,
    [CRUMB_TYPE_Q6_K] = codes_q6_k,
    [CRUMB_TYPE_MXFP4] = codes_q4,
    [CRUMB_TYPE_IQ4_NL] = codes_q4,
    [CRUMB_TYPE_INT2] = codes_int2,
    [CRUMB_TYPE_INT3] = codes_int3,
    [CRUMB_TYPE_INT4] = codes_int4,
    [CRUMB_TYPE_INT8] = codes_int8,
    [CRUMB_TYPE_INT2_G16] = codes_int2,
    [CRUMB_TYPE_INT3_G16] = codes_int3,
    [CRUMB_TYPE_INT4_G16] = codes_int4,
    [CRUMB_TYPE_INT8_G16] = codes_int8,
};

void crumb_type_block_codes(crumb_type type, const uint8_t *block, uint8_t *codes) {
    block_codes[type](block + crumb_type_get_info(type)->codes_offset, codes);
}

/* ---- scales ------------------------------------------------------------------------------------------------ */

/* 4 bits of scale, 4 bits of min. */
static void levels_q2_k(const uint8_t *in, crumb_block_scales *out) {
    for (int g = 0; g < 16; g++) {
        out->scales[g] = (int8_t)(in[g] & 15);
        out->mins[g] = (int8_t)(in[g] >> 4);
    }
}

/* 6 bits less 32: 16 nibbles, then 16 bit pairs. */
static void levels_q3_k(const uint8_t *in, crumb_block_scales *out) {
    for (int g = 0; g < 16; g++) {
        int low = in[g % 8] >> 4 * (g / 8) & 15, high = in[8 + g % 4] >> 2 * (g / 4) & 3;
        out->scales[g] = (int8_t)((high << 4 | low) - 32);
    }
}

/* Eight scales and eight mins of 6 bits: the first four of each in the low bits of bytes 0-3 and 4-7, whose high bits
 * are those of the last four, with nibbles in bytes 8-11. */
static void levels_q4_k(const uint8_t *in, crumb_block_scales *out) {
    for (int g = 0; g < 4; g++) {
        out->scales[g] = (int8_t)(in[g] & 63);
        out->mins[g] = (int8_t)(in[4 + g] & 63);
        out->scales[4 + g] = (int8_t)((in[8 + g] & 15) | in[g] >> 6 << 4);
        out->mins[4 + g] = (int8_t)(in[8 + g] >> 4 | in[4 + g] >> 6 << 4);
    }
}

static void read_levels(crumb_type type, const uint8_t *block, crumb_block_scales *out) {
    if (type == CRUMB_TYPE_Q2_K) levels_q2_k(block, out);
    if (type == CRUMB_TYPE_Q3_K) levels_q3_k(block + 96, out);
    if (type == CRUMB_TYPE_Q4_K || type == CRUMB_TYPE_Q5_K) levels_q4_k(block + 4, out);
    if (type == CRUMB_TYPE_Q6_K) memcpy(out->scales, block + 192, 16);
}

/* 2^(exponent - 128): half of what OCP's MX means, whose values a codebook has doubled. 255 is NaN there. */
static float half_of_e8m0(uint8_t exponent) {
    return exponent == 255 ? NAN : ldexpf(1.0f, exponent - 128);
}

static uint16_t read_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

void crumb_type_block_scales(crumb_type type, const uint8_t *block, crumb_block_scales *out) {
    const crumb_type_info *info = crumb_type_get_info(type);
    *out = (crumb_block_scales){0};
    if (info->scale_kind == CRUMB_SCALE_TENSOR) return;
    if (info->scale_kind == CRUMB_SCALE_E8M0) {
        out->wide_scales[0] = half_of_e8m0(block[info->scale_offset]);
        return;
    }
    if (info->scale_kind == CRUMB_SCALE_F32) {
        memcpy(out->wide_scales, block + info->scale_offset, (size_t)info->block / info->group * 4);
        memcpy(out->wide_mins, block + info->min_offset, (size_t)info->block / info->group * 4);
        return;
    }
    out->scale = read_u16(block + info->scale_offset);
    if (info->has_min) out->min = read_u16(block + info->min_offset);
    if (info->scale_kind != CRUMB_SCALE_LEVELS) return;
    out->min ^= info->has_min ? 0x8000 : 0; /* these are subtracted */
    read_levels(type, block, out);
}
