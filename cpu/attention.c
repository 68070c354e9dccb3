#include "cpu/attention.h"

#include <string.h>

size_t crumb_kv_f16_block_bytes(uint32_t head_dim) {
    return (size_t)CRUMB_KEY_BLOCK * head_dim * sizeof(uint16_t);
}

size_t crumb_kv_f16_query_bytes(uint32_t head_dim) {
    return head_dim * sizeof(float);
}

void crumb_kv_f16_prepare(const float *q, uint32_t n_rows, uint32_t head_dim, void *queries) {
    memcpy(queries, q, (size_t)n_rows * head_dim * sizeof(float));
}

size_t crumb_kv_q8_block_bytes(uint32_t head_dim) {
    return crumb_kv_codes_offset(head_dim) + CRUMB_KEY_BLOCK * crumb_kv_stored_dims(head_dim);
}

uint32_t crumb_kv_turn(float *x, uint32_t n) {
    uint32_t order = n & -n;
    for (uint32_t distance = 1; distance < order; distance *= 2)
        for (uint32_t i = 0; i < n; i += 2 * distance)
            for (uint32_t j = i; j < i + distance; j++) {
                float a = x[j], b = x[j + distance];
                x[j] = a + b;
                x[j + distance] = a - b;
            }
    return order;
}

/* Codes, then the scale. */
size_t crumb_kv_q8_query_bytes(uint32_t head_dim) {
    return crumb_kv_stored_dims(head_dim) * sizeof(int16_t) + sizeof(float);
}
