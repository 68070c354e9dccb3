/* T-MAC's weights and tables (cpu/papers/tmac_layout.h). Rows are padded to 64 with zero codes. */
#include "cpu/papers/tmac_layout.h"

#include "cpu/papers/codes.h"
#include "host/base/half.h"

#include <math.h>
#include <string.h>

/* The row of a block that index i of its 64 belongs to. Sums of bytes are widened twice, by taking every other one:
 * in this order what comes out is rows 8v .. 8v+7 in vector v. Halves are unpacked in order. */
static uint32_t row_of_index(uint32_t i, tmac_method how) {
    uint32_t byte = i % 32;
    return i / 32 * 32 + (how.quantized ? 8 * (byte % 4) + byte / 4 : byte);
}

/* Bit `bit` of the codes of four weights of a row, as an index into their table. */
static unsigned index_of(const uint8_t codes[4], unsigned bit) {
    return (codes[0] >> bit & 1u) | (codes[1] >> bit & 1u) << 1 | (codes[2] >> bit & 1u) << 2 |
           (codes[3] >> bit & 1u) << 3;
}

/* 64 indices into one table, two a byte, for each bit: bit b's at to + (bits - 1 - b) * bit_stride. */
static void pack_block(const crumb_matrix *w, tmac_method how, uint32_t block, uint32_t table, uint8_t *to,
                       size_t bit_stride) {
    for (unsigned bit = 0; bit < w->bits; bit++) memset(to + bit * bit_stride, 0, TMAC_BLOCK_BYTES);
    for (uint32_t i = 0; i < TMAC_BLOCK_ROWS; i++) {
        const uint32_t m = block * TMAC_BLOCK_ROWS + row_of_index(i, how);
        const uint32_t byte = how.interleaved ? i % 32 : i / 2, half = how.interleaved ? i / 32 : i % 2;
        uint8_t codes[4];
        for (uint32_t j = 0; j < 4; j++) codes[j] = (uint8_t)crumb_papers_code(w, m, 4 * table + j);
        for (unsigned bit = 0; bit < w->bits; bit++)
            to[(w->bits - 1 - bit) * bit_stride + byte] |= (uint8_t)(index_of(codes, bit) << (4 * half));
    }
}

static void pack(const crumb_matrix *w, void *packed, tmac_method how) {
    const tmac_shape s = tmac_shape_of(w, how);
    for (uint32_t block = 0; block < s.n_blocks; block++)
        for (uint32_t step = 0; step < s.n_steps; step++) {
            const tmac_place place = tmac_place_of(&s, w->bits, how, block, step);
            for (uint32_t t = 0; t < TMAC_TABLES; t++)
                pack_block(w, how, block, step * TMAC_TABLES + t,
                           (uint8_t *)packed + place.offset + t * place.table_stride, place.bit_stride);
        }
}

static size_t packed_bytes(const crumb_matrix *w) {
    const tmac_shape s = tmac_shape_of(w, (tmac_method){0});
    return (size_t)s.n_blocks * s.n_steps * TMAC_TABLES * TMAC_BLOCK_BYTES * w->bits;
}

/* Four activations, zeros behind the row's end. */
static void load4(const float *x, uint32_t k, uint32_t n_k, float out[4]) {
    for (uint32_t j = 0; j < 4; j++) out[j] = k + j < n_k ? x[k + j] : 0.0f;
}

static float entry(const float x[4], unsigned p, tmac_method how) {
    float sum = 0;
    for (unsigned j = 0; j < 4; j++) sum += p >> j & 1 ? x[j] : how.transformed ? -x[j] : 0.0f;
    return sum;
}

/* The largest magnitude of a table's entries. */
static float largest_entry(const float x[4], tmac_method how) {
    float positive = 0, negative = 0;
    for (unsigned j = 0; j < 4; j++) {
        positive += fmaxf(x[j], 0);
        negative += fmaxf(-x[j], 0);
    }
    return how.transformed ? positive + negative : fmaxf(positive, negative);
}

/* The factor from entries to integers up to 127 in the tables of [k0, k1), and its inverse. */
static float quantizing_factor(const float *x, uint32_t k0, uint32_t k1, uint32_t n_k, tmac_method how,
                               float *inverse) {
    float largest = 0;
    for (uint32_t k = k0; k < k1; k += 4) {
        float v[4];
        load4(x, k, n_k, v);
        largest = fmaxf(largest, largest_entry(v, how));
    }
    if (largest < CRUMB_QUANTIZE_TINY) return *inverse = 0;
    *inverse = largest / 127.0f;
    return 127.0f / largest;
}

static void make_table(const float x[4], float factor, tmac_method how, uint8_t *to) {
    const unsigned n_entries = how.mirrored ? 8 : 16;
    for (unsigned p = 0; p < n_entries; p++) {
        float value = entry(x, p, how);
        if (how.quantized) {
            to[p] = (uint8_t)(lrintf(value * factor) + 128);
        } else {
            uint16_t half = crumb_f32_to_f16(value);
            to[p] = (uint8_t)half;
            to[n_entries + p] = (uint8_t)(half >> 8);
        }
    }
}

static void prepare_row(const crumb_matrix *w, const tmac_shape *s, tmac_method how, const float *x, uint8_t *to) {
    float *scales = (float *)(void *)to, *sums = (float *)(void *)(to + s->sums_offset);
    /* sums of looked-up entries become parts of sum((mul * u - sub) * x); averages of 8 are eighths of sums */
    const float unit = tmac_value_of(w, how).unit * (how.averaged ? TMAC_TABLES : 1);
    const uint32_t group_k = s->group_steps * TMAC_STEP_K;
    uint8_t *table = to + s->tables_offset;
    for (uint32_t g = 0; g < s->n_steps / s->group_steps; g++) {
        float scale = 1, factor = 1, x4[4];
        if (how.quantized) factor = quantizing_factor(x, g * group_k, (g + 1) * group_k, w->k, how, &scale);
        scales[g] = scale * unit;
        for (uint32_t k = g * group_k; k < (g + 1) * group_k; k += 4, table += s->table_bytes) {
            load4(x, k, w->k, x4);
            make_table(x4, factor, how, table);
        }
    }
    for (uint32_t g = 0; g < s->n_steps / s->scale_steps; g++) {
        float sum = 0;
        for (uint32_t k = g * w->group; k < (g + 1) * w->group && k < w->k; k++) sum += x[k];
        sums[g] = sum;
    }
}

static void prepare(const crumb_linear_args *a, void *prepared, tmac_method how) {
    const tmac_shape s = tmac_shape_of(a->w, how);
    for (uint32_t n = 0; n < a->n; n++)
        prepare_row(a->w, &s, how, a->xf + n * a->xf_stride, (uint8_t *)prepared + n * s.row_bytes);
}

static size_t prepared_bytes(const crumb_linear_args *a, tmac_method how) {
    return a->n * tmac_shape_of(a->w, how).row_bytes;
}

#define TMAC_LAYOUT(method, text, ...)                                                                                 \
    static void pack_##method(const crumb_matrix *w, void *packed) {                                                   \
        pack(w, packed, (tmac_method)__VA_ARGS__);                                                                     \
    }                                                                                                                  \
    static void prepare_##method(const crumb_linear_args *a, void *prepared) {                                         \
        prepare(a, prepared, (tmac_method)__VA_ARGS__);                                                                \
    }                                                                                                                  \
    static size_t prepared_bytes_##method(const crumb_linear_args *a) {                                                \
        return prepared_bytes(a, (tmac_method)__VA_ARGS__);                                                            \
    }                                                                                                                  \
    const crumb_cpu_layout crumb_layout_tmac_##method = {.name = text,                                                 \
                                                         .rows = TMAC_TILE_ROWS,                                       \
                                                         .packed_bytes = packed_bytes,                                 \
                                                         .pack = pack_##method,                                        \
                                                         .prepared_bytes = prepared_bytes_##method,                    \
                                                         .prepare = prepare_##method};

TMAC_LAYOUT(base_01, "[bit][K/4][M] indices, fp16 tables of set bits", TMAC_BASE_01)
TMAC_LAYOUT(base, "[bit][K/4][M] indices, fp16 tables", TMAC_BASE)
TMAC_LAYOUT(quantized, "[bit][K/4][M] indices, whole byte tables", TMAC_QUANTIZED)
TMAC_LAYOUT(mirrored, "[bit][K/4][M] indices, halves of byte tables", TMAC_MIRRORED)
TMAC_LAYOUT(permuted, "[M/512][K/32][M8][bit][k8][m64] indices, halves of byte tables", TMAC_PERMUTED)
TMAC_LAYOUT(full, "[M/512][K/32][M8][bit][k8][m32][m2] indices, halves of byte tables", TMAC_FULL)
TMAC_LAYOUT(whole, "[M/512][K/32][M8][bit][k8][m32][m2] indices, whole byte tables", TMAC_WHOLE)
TMAC_LAYOUT(whole_01, "[M/512][K/32][M8][bit][k8][m32][m2] indices, byte tables of set bits", TMAC_WHOLE_01)
TMAC_LAYOUT(averaged, "[M/512][K/32][M8][bit][k8][m32][m2] indices, halves of byte tables to average", TMAC_AVERAGED)
