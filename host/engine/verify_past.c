/* What lies in a cache when its device is checked. */
#include "host/engine/verify.h"

#include "host/base/checked.h"
#include "host/base/half.h"
#include "host/base/memory.h"
#include "host/kernel/kv.h"

#include <string.h>

/* Of pages of int8 codes, as cpu/attention.h has them. */
enum { GROUP = 32, LARGEST_CODE = 127 };

/* From 0 to below 1. */
static float next_noise(uint64_t *noise) {
    *noise = *noise * 6364136223846793005 + 1442695040888963407;
    return (float)(*noise >> 40) * 0x1p-24f;
}

static uint8_t *put_f16(uint8_t *at, float x) {
    const uint16_t half = crumb_f32_to_f16(x);
    memcpy(at, &half, sizeof half);
    return at + sizeof half;
}

static uint32_t key_dimension(uint32_t code) {
    return code / (2 * CRUMB_KV_PAGE) * 2 + code % 2;
}

static uint32_t value_dimension(uint32_t code, uint32_t n_stored) {
    const uint32_t of_group = GROUP * CRUMB_KV_PAGE, first = code / of_group * GROUP;
    const uint32_t width = n_stored - first < GROUP ? n_stored - first : GROUP;
    return first + code % of_group / 2 % width;
}

/* Keys are turned before they are stored: sums of up to 32 numbers, sqrt(32) times as large, whose scores are not. */
static void fill_q8_page(uint8_t *page, uint32_t head_dim, bool is_keys, uint64_t *noise) {
    const uint32_t n_stored = (uint32_t)crumb_round_up(head_dim, 8);
    const float most = is_keys ? 1.4f : 0.25f;
    uint8_t *at = page;
    for (uint64_t i = 0; i < crumb_div_up(head_dim, GROUP) * CRUMB_KV_PAGE; i++)
        at = put_f16(at, most / LARGEST_CODE * (0.5f + next_noise(noise) / 2));
    for (uint32_t i = 0; i < n_stored * CRUMB_KV_PAGE; i++) {
        const uint32_t dimension = is_keys ? key_dimension(i) : value_dimension(i, n_stored);
        const int code = (int)(next_noise(noise) * (2 * LARGEST_CODE + 1)) - LARGEST_CODE;
        *at++ = dimension < head_dim ? (uint8_t)code : 0;
    }
}

static void fill_f16_page(uint8_t *page, uint32_t head_dim, uint64_t *noise) {
    uint8_t *at = page;
    for (uint32_t i = 0; i < head_dim * CRUMB_KV_PAGE; i++) at = put_f16(at, next_noise(noise) / 2 - 0.25f);
}

crumb_status crumb_engine_make_past(const crumb_kv_params *p, const crumb_kv_range *range, void **out,
                                    crumb_error *err) {
    const uint64_t page_bytes = crumb_kv_page_bytes(p->type, p->head_dim);
    const uint64_t n_pages = crumb_kv_range_bytes(p, range) / page_bytes;
    uint64_t noise = 1;
    CRUMB_TRY(crumb_calloc(n_pages, page_bytes, "checking the device's kernels", out, err));
    for (uint64_t i = 0; i < n_pages; i++) {
        uint8_t *page = (uint8_t *)*out + i * page_bytes;
        if (p->type == CRUMB_KV_Q8)
            fill_q8_page(page, p->head_dim, i < n_pages / 2, &noise);
        else
            fill_f16_page(page, p->head_dim, &noise);
    }
    return CRUMB_OK;
}
