/* The reference of attention over an 8-bit cache: see cpu/attention.h. */
#include "cpu/attention.h"

#include "host/base/half.h"

#include <math.h>
#include <string.h>

static float largest(const float *x, uint32_t n) {
    float most = 0;
    for (uint32_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

static int32_t round_within(float x, float most) {
    x = x > -most ? x : -most; /* written so that NaN becomes a number */
    x = x < most ? x : most;
    return (int32_t)rintf(x);
}

/* Codes of n values, code i at out[i * stride]; returns their scale. */
static uint16_t quantize(const float *x, uint32_t n, int8_t *out, size_t stride) {
    float scale = largest(x, n) / 127;
    uint16_t half = crumb_f32_to_f16(scale < 65504.0f ? scale : 65504.0f);
    float inverse = half ? 1 / crumb_f16_to_f32(half) : 0;
    for (uint32_t i = 0; i < n; i++) out[i * stride] = (int8_t)round_within(x[i] * inverse, 127);
    return half;
}

static void store(const float *key, const float *value, uint32_t head_dim, uint32_t place, void *keys, void *values) {
    uint16_t *key_scales = keys, *value_scales = values;
    int8_t codes[CRUMB_KV_GROUP];
    float turned[CRUMB_KV_GROUP];
    int8_t *k = (int8_t *)keys + crumb_kv_codes_offset(head_dim) + 2 * place;
    int8_t *v = (int8_t *)values + crumb_kv_codes_offset(head_dim) + place % 2;
    for (uint32_t g = 0; g < crumb_kv_groups(head_dim); g++) {
        uint32_t first = g * CRUMB_KV_GROUP, width = crumb_kv_group_width(head_dim, g);
        uint32_t n = head_dim - first < CRUMB_KV_GROUP ? head_dim - first : CRUMB_KV_GROUP;
        memcpy(turned, key + first, n * sizeof *turned);
        crumb_kv_turn(turned, n);
        key_scales[g * CRUMB_KEY_BLOCK + place] = quantize(turned, n, codes, 1);
        for (uint32_t d = first; d < first + n; d++)
            k[(size_t)(d / 2) * 2 * CRUMB_KEY_BLOCK + d % 2] = codes[d - first];
        int8_t *to = v + (size_t)first * CRUMB_KEY_BLOCK + (size_t)(place / 2) * width * 2;
        value_scales[g * CRUMB_KEY_BLOCK + place] = quantize(value + first, n, to, 2);
    }
}

/* Group g of a query as it meets keys; returns its dimensions. */
static uint32_t turn_query(const float *q, uint32_t head_dim, uint32_t g, float turned[CRUMB_KV_GROUP]) {
    uint32_t first = g * CRUMB_KV_GROUP, n = head_dim - first < CRUMB_KV_GROUP ? head_dim - first : CRUMB_KV_GROUP;
    memcpy(turned, q + first, n * sizeof *turned);
    float part = 1 / (float)crumb_kv_turn(turned, n);
    for (uint32_t d = 0; d < n; d++) turned[d] *= part;
    return n;
}

static void prepare_one(const float *q, uint32_t head_dim, char *row) {
    int16_t *codes = (int16_t *)(void *)row;
    float turned[CRUMB_KV_GROUP], a = 0;
    for (uint32_t g = 0; g < crumb_kv_groups(head_dim); g++) {
        uint32_t n = turn_query(q, head_dim, g, turned);
        float most = largest(turned, n);
        a = most > a ? most : a;
    }
    float inverse = a < CRUMB_QUANTIZE_TINY ? 0 : 32767 / a, scale = a < CRUMB_QUANTIZE_TINY ? 0 : a / 32767;
    for (uint32_t g = 0; g < crumb_kv_groups(head_dim); g++) {
        uint32_t n = turn_query(q, head_dim, g, turned);
        for (uint32_t d = 0; d < n; d++)
            codes[(size_t)g * CRUMB_KV_GROUP + d] = (int16_t)round_within(turned[d] * inverse, 32767);
    }
    memcpy(row + crumb_kv_q8_query_bytes(head_dim) - sizeof scale, &scale, sizeof scale);
}

static void prepare(const float *q, uint32_t n_rows, uint32_t head_dim, void *queries) {
    size_t n_bytes = crumb_kv_q8_query_bytes(head_dim);
    memset(queries, 0, n_rows * n_bytes);
    for (uint32_t r = 0; r < n_rows; r++)
        prepare_one(q + (size_t)r * head_dim, head_dim, (char *)queries + r * n_bytes);
}

/* Of one query and the key at `place` of a block. */
static float score(const int16_t *q, uint32_t head_dim, const void *block, uint32_t place) {
    const uint16_t *scales = block;
    const int8_t *codes = (const int8_t *)block + crumb_kv_codes_offset(head_dim) + 2 * place;
    float sum = 0;
    for (uint32_t g = 0; g < crumb_kv_groups(head_dim); g++) {
        int32_t exact = 0;
        for (uint32_t d = g * CRUMB_KV_GROUP; d < head_dim && d < (g + 1) * CRUMB_KV_GROUP; d++)
            exact += q[d] * codes[(size_t)(d / 2) * 2 * CRUMB_KEY_BLOCK + d % 2];
        sum = fmaf((float)exact, crumb_f16_to_f32(scales[g * CRUMB_KEY_BLOCK + place]), sum);
    }
    return sum;
}

static void scores(const void *queries, uint32_t n_rows, uint32_t head_dim, const void *keys, uint32_t n_blocks,
                   const char *ahead, float *s) {
    (void)ahead;
    size_t query_bytes = crumb_kv_q8_query_bytes(head_dim), block_bytes = crumb_kv_q8_block_bytes(head_dim);
    for (uint32_t r = 0; r < n_rows; r++) {
        const char *row = (const char *)queries + r * query_bytes;
        float scale;
        memcpy(&scale, row + query_bytes - sizeof scale, sizeof scale);
        for (uint32_t j = 0; j < n_blocks * CRUMB_KEY_BLOCK; j++) {
            const char *block = (const char *)keys + (size_t)(j / CRUMB_KEY_BLOCK) * block_bytes;
            s[r * CRUMB_ATTENTION_CHUNK + j] =
                score((const int16_t *)(const void *)row, head_dim, block, j % CRUMB_KEY_BLOCK) * scale;
        }
    }
}

/* W[j] for group g of n keys; returns b / 32767. */
static float quantize_weights(const float *p, uint32_t n, uint32_t head_dim, uint32_t g, const void *values,
                              int16_t *weights) {
    size_t block_bytes = crumb_kv_q8_block_bytes(head_dim);
    float w[CRUMB_ATTENTION_CHUNK], most = 0;
    for (uint32_t j = 0; j < n; j++) {
        const void *block = (const char *)values + (size_t)(j / CRUMB_KEY_BLOCK) * block_bytes;
        w[j] = p[j] * crumb_f16_to_f32(((const uint16_t *)block)[g * CRUMB_KEY_BLOCK + j % CRUMB_KEY_BLOCK]);
        most = w[j] > most ? w[j] : most;
    }
    float inverse = most < CRUMB_QUANTIZE_TINY ? 0 : 32767 / most;
    for (uint32_t j = 0; j < n; j++) weights[j] = (int16_t)round_within(w[j] * inverse, 32767);
    return most < CRUMB_QUANTIZE_TINY ? 0 : most / 32767;
}

static void weigh_values(const float *p, uint32_t n_rows, const uint32_t *n_keys, uint32_t head_dim, const void *values,
                         const char *ahead, float *o) {
    (void)ahead;
    size_t block_bytes = crumb_kv_q8_block_bytes(head_dim);
    const int8_t *codes = (const int8_t *)values + crumb_kv_codes_offset(head_dim);
    int16_t weights[CRUMB_ATTENTION_CHUNK];
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t g = 0; g < crumb_kv_groups(head_dim); g++) {
            uint32_t first = g * CRUMB_KV_GROUP, width = crumb_kv_group_width(head_dim, g);
            float scale =
                quantize_weights(p + (size_t)r * CRUMB_ATTENTION_CHUNK, n_keys[r], head_dim, g, values, weights);
            for (uint32_t d = first; d < head_dim && d < first + CRUMB_KV_GROUP; d++) {
                int32_t exact = 0;
                for (uint32_t j = 0; j < n_keys[r]; j++) {
                    size_t pair = j % CRUMB_KEY_BLOCK / 2 * width + (d - first);
                    exact +=
                        weights[j] *
                        codes[j / CRUMB_KEY_BLOCK * block_bytes + (size_t)first * CRUMB_KEY_BLOCK + 2 * pair + j % 2];
                }
                o[(size_t)r * head_dim + d] = (float)exact * scale;
            }
        }
}

const crumb_kv_ops crumb_kv_q8__ref = {
    .block_bytes = crumb_kv_q8_block_bytes,
    .store = store,
    .query_bytes = crumb_kv_q8_query_bytes,
    .prepare = prepare,
    .softmax = crumb_softmax__ref,
    .scores = scores,
    .values = weigh_values,
};
