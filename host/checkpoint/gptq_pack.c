/* One matrix as GPTQ's form has it, version 1: bits of codes and of zero points less one in a stream of words. */
#include "host/base/half.h"
#include "host/base/thread.h"
#include "host/checkpoint/internal.h"

#include <string.h>

enum { BLOCK = 32 }; /* rows of an item, and columns of a run of whole words */

void checkpoint_gptq_layout(uint64_t m, uint64_t k, uint64_t n_groups, unsigned bits, checkpoint_gptq_parts *out) {
    out->n_bytes[CHECKPOINT_G_IDX] = k * 4;
    out->n_bytes[CHECKPOINT_QWEIGHT] = k / BLOCK * bits * m * 4;
    out->n_bytes[CHECKPOINT_QZEROS] = n_groups * (m / BLOCK * bits) * 4;
    out->n_bytes[CHECKPOINT_SCALES] = n_groups * m * 2;
}

/* Writes `bits` bits of value at bit `at` of words that are `stride` apart, where zeros are. */
static void put_bits(uint8_t *words, uint64_t stride, uint64_t at, unsigned bits, unsigned value) {
    uint32_t *low = (uint32_t *)(void *)words + at / 32 * stride;
    *low |= value << at % 32;
    if (at % 32 + bits > 32) low[stride] |= (uint32_t)((uint64_t)value << at % 32 >> 32);
}

static unsigned get_bits(const uint8_t *words, uint64_t stride, uint64_t at, unsigned bits) {
    const uint32_t *low = (const uint32_t *)(const void *)words + at / 32 * stride;
    uint64_t pair = *low;
    if (at % 32 + bits > 32) pair |= (uint64_t)low[stride] << 32;
    return (unsigned)(pair >> at % 32 &
                      ((1u << (bits & 7)) - 1)); /* bits is at most 4, which clang-tidy does not see */
}

typedef struct packing {
    const crumb_coded *from;
    const checkpoint_tensor *t;
    const checkpoint_gptq_parts *to;
} packing;

static void pack_row(const packing *p, uint64_t m, uint64_t row) {
    const crumb_coded *c = p->from;
    const crumb_grid *grids = c->grids + m * c->n_groups;
    const uint8_t *codes = c->codes + m * c->k;
    uint8_t *const *parts = p->to->bytes;
    for (uint64_t g = 0; g < c->n_groups; g++) {
        const uint16_t half = crumb_f32_to_f16(grids[g].scale);
        memcpy(parts[CHECKPOINT_SCALES] + 2 * (g * c->m + row), &half, 2);
        put_bits(parts[CHECKPOINT_QZEROS] + 4 * g * (c->m / BLOCK * c->bits), 1, row * c->bits, c->bits,
                 grids[g].zero - 1u);
    }
    for (uint64_t i = 0; i < c->k; i++)
        put_bits(parts[CHECKPOINT_QWEIGHT] + 4 * row, c->m, i * c->bits, c->bits, codes[i]);
}

/* 32 rows of the checkpoint end where a word of zero points does: no other item writes there. */
static crumb_status pack_item(void *ctx, uint64_t item, crumb_error *err) {
    const packing *p = ctx;
    (void)err;
    for (uint64_t row = item * BLOCK; row < (item + 1) * BLOCK; row++)
        pack_row(p, checkpoint_row_to(p->t, p->from->m, row), row);
    return CRUMB_OK;
}

crumb_status checkpoint_gptq_pack(const crumb_coded *from, const checkpoint_tensor *t, int n_threads,
                                  const checkpoint_gptq_parts *to, crumb_error *err) {
    packing p = {from, t, to};
    memcpy(to->bytes[CHECKPOINT_G_IDX], from->group_of, to->n_bytes[CHECKPOINT_G_IDX]);
    return crumb_parallel_for(n_threads, from->m / BLOCK, pack_item, &p, err);
}

void checkpoint_gptq_unpack(const checkpoint_gptq_parts *from, const checkpoint_tensor *t, crumb_coded *to) {
    memcpy(to->group_of, from->bytes[CHECKPOINT_G_IDX], from->n_bytes[CHECKPOINT_G_IDX]);
    for (uint64_t m = 0; m < to->m; m++) {
        const uint64_t row = checkpoint_row_from(t, to->m, m);
        for (uint64_t g = 0; g < to->n_groups; g++) {
            uint16_t half;
            memcpy(&half, from->bytes[CHECKPOINT_SCALES] + 2 * (g * to->m + row), 2);
            const unsigned zero = get_bits(from->bytes[CHECKPOINT_QZEROS] + 4 * g * (to->m / BLOCK * to->bits), 1,
                                           row * to->bits, to->bits);
            to->grids[m * to->n_groups + g] = (crumb_grid){.scale = crumb_f16_to_f32(half),
                                                           .zero = (uint8_t)(zero + 1),
                                                           .max_code = (uint8_t)((1u << to->bits) - 1)};
        }
        for (uint64_t i = 0; i < to->k; i++)
            to->codes[m * to->k + i] =
                (uint8_t)get_bits(from->bytes[CHECKPOINT_QWEIGHT] + 4 * row, to->m, i * to->bits, to->bits);
    }
}
