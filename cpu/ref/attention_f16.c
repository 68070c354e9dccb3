/* The reference of attention over an f16 cache: see cpu/attention.h. */
#include "cpu/attention.h"

#include "host/base/half.h"

#include <math.h>

/* |x| beyond 65504 saturates, so that the cache holds no infinity. */
static uint16_t to_f16(float x) {
    x = -65504.0f > x ? -65504.0f : x;
    x = 65504.0f < x ? 65504.0f : x;
    return crumb_f32_to_f16(x);
}

static void store(const float *key, const float *value, uint32_t head_dim, uint32_t place, void *keys, void *values) {
    uint16_t *k = (uint16_t *)keys + place, *v = (uint16_t *)values + (size_t)place * head_dim;
    for (uint32_t d = 0; d < head_dim; d++) {
        k[(size_t)d * CRUMB_KEY_BLOCK] = to_f16(key[d]);
        v[d] = to_f16(value[d]);
    }
}

static void scores(const void *queries, uint32_t n_rows, uint32_t head_dim, const void *keys, uint32_t n_blocks,
                   const char *ahead, float *s) {
    (void)ahead;
    const float *q = queries;
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t j = 0; j < n_blocks * CRUMB_KEY_BLOCK; j++) {
            const uint16_t *k = (const uint16_t *)keys + (size_t)(j / CRUMB_KEY_BLOCK) * CRUMB_KEY_BLOCK * head_dim;
            float sum = 0;
            for (uint32_t d = 0; d < head_dim; d++)
                sum = fmaf(q[r * head_dim + d], crumb_f16_to_f32(k[d * CRUMB_KEY_BLOCK + j % CRUMB_KEY_BLOCK]), sum);
            s[r * CRUMB_ATTENTION_CHUNK + j] = sum;
        }
}

static void weigh_values(const float *p, uint32_t n_rows, const uint32_t *n_keys, uint32_t head_dim, const void *values,
                         const char *ahead, float *o) {
    (void)ahead;
    const uint16_t *v = values;
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t d = 0; d < head_dim; d++) {
            float sum = 0;
            for (uint32_t j = 0; j < n_keys[r]; j++)
                sum = fmaf(p[r * CRUMB_ATTENTION_CHUNK + j], crumb_f16_to_f32(v[(size_t)j * head_dim + d]), sum);
            o[(size_t)r * head_dim + d] = sum;
        }
}

const crumb_kv_ops crumb_kv_f16__ref = {
    .block_bytes = crumb_kv_f16_block_bytes,
    .store = store,
    .query_bytes = crumb_kv_f16_query_bytes,
    .prepare = crumb_kv_f16_prepare,
    .softmax = crumb_softmax__ref,
    .scores = scores,
    .values = weigh_values,
};
