#include "tests/support/random_tensor.h"

#include "host/base/half.h"

#include <stdlib.h>
#include <string.h>

uint64_t crumb_test_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* In (-2, 2), exact in every float format. */
static float random_value(uint64_t *state) {
    return (float)((int)(crumb_test_random(state) % 255) - 127) / 64;
}

static void put_f16(uint8_t *p, float value) {
    uint16_t h = crumb_f32_to_f16(value);
    memcpy(p, &h, 2);
}

static void fill_dense(crumb_type type, uint8_t *p, uint64_t n, uint64_t *state) {
    for (uint64_t i = 0; i < n; i++) {
        float value = random_value(state);
        uint16_t h = type == CRUMB_TYPE_F16 ? crumb_f32_to_f16(value) : crumb_f32_to_bf16(value);
        if (type == CRUMB_TYPE_F32)
            memcpy(p + 4 * i, &value, 4);
        else
            memcpy(p + 2 * i, &h, 2);
    }
}

static uint8_t random_code_byte(crumb_type type, uint64_t *state) {
    uint64_t r = crumb_test_random(state);
    if (type != CRUMB_TYPE_I2_S && type != CRUMB_TYPE_TQ2_0) return (uint8_t)r;
    uint8_t byte = 0; /* codes 0, 1, 2 only */
    for (int i = 0; i < 4; i++, r >>= 16) byte = (uint8_t)(byte << 2 | (r & 0xffff) % 3);
    return byte;
}

uint8_t *crumb_test_random_tensor(crumb_type type, uint64_t m, uint64_t k, uint64_t seed) {
    const crumb_type_info *info = crumb_type_get_info(type);
    uint64_t n_bytes;
    if (crumb_type_tensor_bytes(type, m, k, &n_bytes, NULL) != CRUMB_OK) return NULL;
    uint8_t *tensor = malloc(n_bytes);
    if (!tensor) return NULL;
    if (info->bits == 0) {
        fill_dense(type, tensor, m * k, &seed);
        return tensor;
    }
    for (uint64_t i = 0; i < n_bytes; i++) tensor[i] = random_code_byte(type, &seed);
    if (type == CRUMB_TYPE_I2_S) {
        float scale = random_value(&seed);
        memcpy(tensor + n_bytes - 32, &scale, 4);
        return tensor;
    }
    for (uint8_t *block = tensor; block < tensor + n_bytes; block += info->block_bytes) {
        if (info->scale_kind == CRUMB_SCALE_E8M0) {
            block[info->scale_offset] = (uint8_t)(120 + crumb_test_random(&seed) % 16);
            continue;
        }
        if (info->scale_kind == CRUMB_SCALE_F32) {
            for (uint32_t at = 0; at < info->codes_offset; at += 4) { /* scales, and mins behind them */
                const float value = random_value(&seed);
                memcpy(block + at, &value, sizeof value);
            }
            continue;
        }
        put_f16(block + info->scale_offset, random_value(&seed));
        if (info->has_min) put_f16(block + info->min_offset, random_value(&seed));
    }
    return tensor;
}
