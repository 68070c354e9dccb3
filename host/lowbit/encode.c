#include "host/lowbit/encode_internal.h"

#include "host/base/half.h"
#include "host/lowbit/tile.h"

#include <math.h>
#include <string.h>

void crumb_put_f16(uint8_t *out, float value) {
    const uint16_t half = crumb_f32_to_f16(value);
    memcpy(out, &half, 2);
}

static float largest_magnitude(const float *x, int n) {
    float largest = 0;
    for (int i = 0; i < n; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    return largest;
}

static float inverse(float d) {
    return d != 0 ? 1.0f / d : 0.0f;
}

static int clamp(int value, int low, int high) {
    return value < low ? low : value > high ? high : value;
}

/* ---- dense ---- */

static void encode_f32(const float *x, uint8_t *out) {
    memcpy(out, x, 4);
}
static void encode_f16(const float *x, uint8_t *out) {
    crumb_put_f16(out, *x);
}
static void encode_bf16(const float *x, uint8_t *out) {
    const uint16_t half = crumb_f32_to_bf16(*x);
    memcpy(out, &half, 2);
}

/* ---- 8 and 4 bits ---- */

static void encode_q8_0(const float *x, uint8_t *out) {
    const float d = largest_magnitude(x, 32) / 127, id = inverse(d);
    crumb_put_f16(out, d);
    for (int i = 0; i < 32; i++) out[2 + i] = (uint8_t)(int8_t)roundf(x[i] * id);
}

void crumb_put_nibbles(const uint8_t codes[32], uint8_t *out) {
    for (int i = 0; i < 16; i++) out[i] = (uint8_t)(codes[i] | codes[16 + i] << 4);
}

/* The value of the largest magnitude, the first of several, becomes code 0. */
static void encode_q4_0(const float *x, uint8_t *out) {
    uint8_t codes[32];
    float extreme = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    const float d = extreme / -8, id = inverse(d);
    crumb_put_f16(out, d);
    for (int i = 0; i < 32; i++) {
        const float scaled = x[i] * id; /* a variable of its own: rounded before 8.5 is added */
        codes[i] = (uint8_t)clamp((int)(scaled + 8.5f), 0, 15);
    }
    crumb_put_nibbles(codes, out + 2);
}

static void encode_q4_1(const float *x, uint8_t *out) {
    uint8_t codes[32];
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    const float d = (high - low) / 15, id = inverse(d);
    crumb_put_f16(out, d);
    crumb_put_f16(out + 2, low);
    for (int i = 0; i < 32; i++) {
        const float scaled = (x[i] - low) * id; /* likewise */
        codes[i] = (uint8_t)clamp((int)(scaled + 0.5f), 0, 15);
    }
    crumb_put_nibbles(codes, out + 4);
}

/* The largest weight's exponent less FP4's largest one, 2; codes by distance, the first of equals. */
static void encode_mxfp4(const float *x, uint8_t *out) {
    uint8_t codes[32];
    const float largest = largest_magnitude(x, 32);
    const int exponent = largest > 0 ? clamp((int)floorf(log2f(largest)) - 2 + 127, 0, 254) : 0;
    const float half = ldexpf(1.0f, exponent - 128); /* the codebook is doubled */
    for (int i = 0; i < 32; i++) {
        float best = INFINITY;
        for (int c = 0; c < CRUMB_CODEBOOK_ENTRIES; c++) {
            const float error = fabsf((float)crumb_codebook_e2m1[c] * half - x[i]);
            if (error < best) best = error, codes[i] = (uint8_t)c;
        }
    }
    out[0] = (uint8_t)exponent;
    crumb_put_nibbles(codes, out + 1);
}

/* ---- ternary: the block's largest magnitude is 1, what is nearer to 0 than to it is 0 ---- */

static void ternary_codes(const float *x, int n, float d, uint8_t *codes) {
    const float id = inverse(d);
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)(clamp((int)roundf(x[i] * id), -1, 1) + 1);
}

void crumb_put_bit_pairs(const uint8_t codes[128], uint8_t *out) {
    for (int m = 0; m < 32; m++)
        out[m] = (uint8_t)(codes[m] | codes[32 + m] << 2 | codes[64 + m] << 4 | codes[96 + m] << 6);
}

static void encode_tq2_0_with(const float *x, float d, uint8_t *out) {
    uint8_t codes[256];
    ternary_codes(x, 256, d, codes);
    crumb_put_bit_pairs(codes, out);
    crumb_put_bit_pairs(codes + 128, out + 32);
    crumb_put_f16(out + 64, d);
}
static void encode_tq2_0(const float *x, uint8_t *out) {
    encode_tq2_0_with(x, largest_magnitude(x, 256), out);
}

/* n_bytes bytes of n_trits trits each, trit t of byte i being code t * n_bytes + i, as fractions of 3^5, rounded up. */
static void put_trits(const uint8_t *codes, int n_bytes, int n_trits, uint8_t *out) {
    for (int i = 0; i < n_bytes; i++) {
        unsigned value = 0;
        for (int t = 0; t < 5; t++) value = value * 3 + (t < n_trits ? codes[t * n_bytes + i] : 0);
        out[i] = (uint8_t)((value * 256 + 242) / 243);
    }
}

static void encode_tq1_0_with(const float *x, float d, uint8_t *out) {
    uint8_t codes[256];
    ternary_codes(x, 256, d, codes);
    put_trits(codes, 32, 5, out);
    put_trits(codes + 160, 16, 5, out + 32);
    put_trits(codes + 240, 4, 4, out + 48);
    crumb_put_f16(out + 52, d);
}
static void encode_tq1_0(const float *x, uint8_t *out) {
    encode_tq1_0_with(x, largest_magnitude(x, 256), out);
}

static void encode_i2_s(const float *x, float scale, uint8_t *out) {
    uint8_t codes[128];
    ternary_codes(x, 128, scale, codes);
    for (int p = 0; p < 32; p++)
        out[p] = (uint8_t)(codes[p] << 6 | codes[32 + p] << 4 | codes[64 + p] << 2 | codes[96 + p]);
}

void crumb_ternary_sums_add(crumb_ternary_sums *sums, const float *row, uint64_t k) {
    crumb_ternary_sums one = {.n = k};
    for (uint64_t i = 0; i < k; i++) {
        const float magnitude = fabsf(row[i]);
        one.abs += (double)magnitude;
        if (magnitude == 0 || magnitude == one.largest) continue;
        if (one.largest != 0) one.other = magnitude < one.largest ? magnitude : one.largest;
        one.largest = magnitude > one.largest ? magnitude : one.largest;
    }
    crumb_ternary_sums_join(sums, &one);
}

void crumb_ternary_sums_join(crumb_ternary_sums *sums, const crumb_ternary_sums *others) {
    const float a = sums->largest, b = others->largest;
    sums->abs += others->abs;
    sums->n += others->n;
    if (others->other != 0) sums->other = others->other;
    if (a != 0 && b != 0 && a != b) sums->other = a < b ? a : b;
    sums->largest = a > b ? a : b;
}

float crumb_ternary_scale(const crumb_ternary_sums *sums) {
    if (sums->other == 0 || sums->n == 0) return sums->largest;
    return (float)(sums->abs / (double)sums->n);
}

/* ---- 1 and 2 bits with a scale for each block ---- */

/* The mean magnitude, and signs: what loses least of all that signs can keep. */
static void encode_q1_0(const float *x, uint8_t *out) {
    float sum = 0;
    memset(out + 2, 0, 16);
    for (int i = 0; i < 128; i++) {
        sum += fabsf(x[i]);
        out[2 + i / 8] |= (uint8_t)((x[i] >= 0) << i % 8);
    }
    crumb_put_f16(out, sum / 128);
}

/* As llama-quantize: the largest magnitude is 1, so that code 3, twice that, is not used. */
static void encode_q2_0(const float *x, uint8_t *out) {
    uint8_t codes[64];
    const float d = largest_magnitude(x, 64);
    ternary_codes(x, 64, d, codes);
    crumb_put_f16(out, d);
    for (int i = 0; i < 16; i++)
        out[2 + i] = (uint8_t)(codes[4 * i] | codes[4 * i + 1] << 2 | codes[4 * i + 2] << 4 | codes[4 * i + 3] << 6);
}

/* ---- from codes to codes ---- */

bool crumb_f16_is_near(float scale) {
    return fabsf(crumb_f16_to_f32(crumb_f32_to_f16(scale)) - scale) <= fabsf(scale) * 0x1p-11f;
}

bool crumb_type_recode_block(crumb_type from, const uint8_t *block, crumb_type to, uint8_t *out) {
    const crumb_type_info *info = crumb_type_get_info(from), *target = crumb_type_get_info(to);
    uint8_t codes[CRUMB_BLOCK_MAX], to_codes[32];
    crumb_block_scales s;
    if (info->scale_kind != CRUMB_SCALE_F32 || (to != CRUMB_TYPE_Q4_0 && to != CRUMB_TYPE_Q8_0)) return false;
    if (info->group != target->group) return false;
    crumb_type_block_codes(from, block, codes);
    crumb_type_block_scales(from, block, &s);
    const float scale = s.wide_scales[0], min = s.wide_mins[0];
    const float more = scale != 0 ? rintf(min / scale) : 0; /* what the zero point is off the middle by */
    if (!crumb_f16_is_near(scale) || !(fabsf(more) <= 255) || more * scale != min) return false;
    for (int i = 0; i < 32; i++) {
        const int code = codes[i] - info->sub + (int)more + target->sub;
        if (code < 0 || code > target->max_code) return false;
        to_codes[i] = (uint8_t)code;
    }
    crumb_put_f16(out, scale);
    if (to == CRUMB_TYPE_Q4_0)
        crumb_put_nibbles(to_codes, out + 2);
    else
        for (int i = 0; i < 32; i++) out[2 + i] = to_codes[i] ^ 0x80;
    return true;
}

/* Whether a block of INT2 holds ParetoQ's levels: scale * (u - 2) + min is -3, -1, 1 or 3 times min. */
static bool is_stretched(const crumb_block_scales *s) {
    return s->wide_mins[0] == s->wide_scales[0] / 2 && crumb_f16_is_near(s->wide_mins[0]);
}

/* Whether a block of INT2 has no value but those of Q1_0 or TQ2_0. */
static bool is_sign_or_ternary(const crumb_block_scales *s, const uint8_t *block, crumb_type to) {
    uint8_t codes[CRUMB_BLOCK_MAX];
    bool good = s->wide_mins[0] == 0 && crumb_f16_is_near(s->wide_scales[0]);
    crumb_type_block_codes(CRUMB_TYPE_INT2, block, codes);
    for (int i = 0; i < 32; i++) good = good && (to == CRUMB_TYPE_Q1_0 ? codes[i] % 2 == 1 : codes[i] > 0);
    return good;
}

bool crumb_type_keeps_codes(crumb_type from, const uint8_t *blocks, crumb_type to, crumb_encode_method method) {
    const crumb_type_info *info = crumb_type_get_info(from);
    const uint32_t n = crumb_type_get_info(to)->block / info->block;
    uint8_t unused[64];
    float first = 0;
    if (method == CRUMB_ENCODE_RTN && (to == CRUMB_TYPE_Q4_0 || to == CRUMB_TYPE_Q8_0))
        return crumb_type_recode_block(from, blocks, to, unused);
    if (from != CRUMB_TYPE_INT2) return false;
    for (uint32_t i = 0; i < n; i++, blocks += info->block_bytes) {
        crumb_block_scales s;
        crumb_type_block_scales(from, blocks, &s);
        first = i ? first : s.wide_scales[0];
        if (s.wide_scales[0] != first) return false;
        if (method == CRUMB_ENCODE_SEQ ? !is_stretched(&s) : !is_sign_or_ternary(&s, blocks, to)) return false;
    }
    return true;
}

/* ---- all of them ---- */

typedef void encode_block_fn(const float *x, uint8_t *out);
typedef void encode_block_with_fn(const float *x, float tensor_scale, uint8_t *out);

static encode_block_fn *const encode_block[][CRUMB_TYPE_COUNT] = {
    [CRUMB_ENCODE_RTN] =
        {
            [CRUMB_TYPE_F32] = encode_f32,
            [CRUMB_TYPE_F16] = encode_f16,
            [CRUMB_TYPE_BF16] = encode_bf16,
            [CRUMB_TYPE_Q8_0] = encode_q8_0,
            [CRUMB_TYPE_Q4_0] = encode_q4_0,
            [CRUMB_TYPE_Q4_1] = encode_q4_1,
            [CRUMB_TYPE_MXFP4] = encode_mxfp4,
            [CRUMB_TYPE_TQ1_0] = encode_tq1_0,
            [CRUMB_TYPE_TQ2_0] = encode_tq2_0,
            [CRUMB_TYPE_Q2_0_G64] = encode_q2_0,
            [CRUMB_TYPE_Q1_0] = encode_q1_0,
        },
    [CRUMB_ENCODE_SEQ] = {[CRUMB_TYPE_Q4_0] = crumb_encode_seq_q4_0, [CRUMB_TYPE_Q2_K] = crumb_encode_seq_q2_k},
    [CRUMB_ENCODE_ABSMEAN] = {0},
};

static encode_block_with_fn *const encode_block_with[][CRUMB_TYPE_COUNT] = {
    [CRUMB_ENCODE_RTN] = {[CRUMB_TYPE_I2_S] = encode_i2_s},
    [CRUMB_ENCODE_SEQ] = {0},
    [CRUMB_ENCODE_ABSMEAN] = {[CRUMB_TYPE_I2_S] = encode_i2_s,
                              [CRUMB_TYPE_TQ1_0] = encode_tq1_0_with,
                              [CRUMB_TYPE_TQ2_0] = encode_tq2_0_with},
};

bool crumb_type_can_encode(crumb_type type, crumb_encode_method method) {
    return encode_block[method][type] || encode_block_with[method][type];
}

bool crumb_type_needs_tensor_scale(crumb_type type, crumb_encode_method method) {
    return encode_block_with[method][type];
}

void crumb_type_encode_row(crumb_type type, crumb_encode_method method, const float *row, uint64_t k,
                           float tensor_scale, uint8_t *out) {
    const crumb_type_info *info = crumb_type_get_info(type);
    for (uint64_t i = 0; i < k; i += info->block, out += info->block_bytes) {
        if (encode_block_with[method][type])
            encode_block_with[method][type](row + i, tensor_scale, out);
        else
            encode_block[method][type](row + i, out);
    }
}
