/* Attention over an 8-bit cache: the same results as cpu/ref/attention_q8.c, on vectors of any width. Its sums are of
 * integers and therefore exact, in whatever order; a pair of int8 codes, widened, meets a pair of int16 in one
 * multiply-add (v_dot2). Included behind a tier's simd.h; KV_Q8_INSTANCE makes the tier's functions. */
#ifndef CRUMB_CPU_ATTENTION_Q8_H
#define CRUMB_CPU_ATTENTION_Q8_H

#include "cpu/attention/tiles.h"

#include <string.h>

enum { BLOCK = CRUMB_KEY_BLOCK, GROUP = CRUMB_KV_GROUP, CHUNK = CRUMB_ATTENTION_CHUNK };

/* Bytes of a group of a block, with its scales. */
enum { GROUP_BYTES = BLOCK * (GROUP + 2) };

/* Steps that go on side by side for n sums: where an instruction multiplies and adds, the next one for the same sum
 * waits for it, so that 8 or more sums are wanted. Widths are multiples of 8, and so pairs of 4. */
enum { MOST_SIDE_BY_SIDE = 4 };

/* So many bytes of each block of keys ahead of what is read, lines are fetched from L2 into L1. */
enum { Q8_NEAR_BYTES = 512 };
SIMD_INLINE uint32_t side_by_side(uint32_t n) {
    uint32_t steps = DOT2_LATENCY == 1 ? 1 : MOST_SIDE_BY_SIDE;
    while (steps > 1 && n * steps > 12) steps /= 2;
    return steps;
}

/* ---- scores ------------------------------------------------------------------------------------------------ */

/* A tile's keys: two vectors, which share the queries. */
enum { BLOCK_VECTORS = BLOCK / SIMD_LANES, KEY_VECTORS = 2 };

/* Keeps the compiler from reordering fused instructions, which would cost registers. Where a product and a sum are two,
 * it makes no such mistake, and a copy of each sum out of pinning them: 1.2 x the time with 4 queries (gcc 12). */
SIMD_INLINE vint q8_pin_score(vint sum) {
    return DOT2_LATENCY == 1 ? sum : v_pin(sum);
}

/* acc[r][v] += sums of `steps` pairs of dimensions, which begin at codes[v] and `queries`. */
SIMD_INLINE void q8_scores_steps(const uint32_t rows, const uint32_t vectors, const uint32_t steps,
                                 const int8_t *const *codes, size_t at, const char *queries, size_t query_bytes,
                                 vint acc[ATTENTION_ROWS][KEY_VECTORS * MOST_SIDE_BY_SIDE]) {
    UNROLLED for (uint32_t i = 0; i < steps; i++) {
        vint k[KEY_VECTORS];
        UNROLLED for (uint32_t v = 0; v < vectors; v++) k[v] = v_widen_i8(codes[v] + at + (size_t)i * 2 * BLOCK);
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            const vint q = v_broadcast4(queries + r * query_bytes + (size_t)4 * i);
            UNROLLED for (uint32_t v = 0; v < vectors; v++) acc[r][i * vectors + v] =
                q8_pin_score(v_dot2(acc[r][i * vectors + v], k[v], q));
        }
    }
}

/* sum[r][v] += the exact sum of a group's products with its scales: `n_pairs` pairs of dimensions, a multiple of 4. */
SIMD_INLINE void q8_scores_group(const uint32_t rows, const uint32_t vectors, const char *queries, size_t query_bytes,
                                 const int8_t *const *codes, uint32_t n_pairs, const uint16_t *const *scales,
                                 const char *ahead, vflt sum[ATTENTION_ROWS][KEY_VECTORS]) {
    const uint32_t pair_bytes = 2 * BLOCK * vectors / BLOCK_VECTORS, bytes = GROUP_BYTES * vectors / BLOCK_VECTORS;
    const uint32_t steps = side_by_side(rows * vectors);
    vint acc[ATTENTION_ROWS][KEY_VECTORS * MOST_SIDE_BY_SIDE];
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t i = 0; i < steps * vectors; i++) acc[r][i] = v_zero();
    }
    fetch(ahead + GROUP / 2 * pair_bytes, bytes - GROUP / 2 * pair_bytes);
    ROLLED for (uint32_t pair = 0; pair < n_pairs; pair += steps) {
        fetch(ahead + (size_t)pair * pair_bytes, steps * pair_bytes);
        UNROLLED for (uint32_t v = 0; v < vectors; v += BLOCK_VECTORS)
            fetch_near((const char *)codes[v] + (size_t)pair * 2 * BLOCK + Q8_NEAR_BYTES, steps * 2 * BLOCK);
        q8_scores_steps(rows, vectors, steps, codes, (size_t)pair * 2 * BLOCK, queries + (size_t)4 * pair, query_bytes,
                        acc);
    }
    UNROLLED for (uint32_t v = 0; v < vectors; v++) {
        const vflt scale = v_load_f16(scales[v]);
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            vint s = acc[r][v];
            UNROLLED for (uint32_t i = 1; i < steps; i++) s = v_add(s, acc[r][i * vectors + v]);
            sum[r][v] = v_fma_f32(v_to_f32(s), scale, sum[r][v]);
        }
    }
}

/* Scores of `rows` queries against `vectors` vectors of keys from the start of a block. */
SIMD_INLINE void q8_scores_tile(const uint32_t rows, const uint32_t vectors, const char *queries, size_t query_bytes,
                                uint32_t head_dim, const char *block, size_t block_bytes, const char *ahead, float *s) {
    const uint16_t *scales[KEY_VECTORS];
    const int8_t *codes[KEY_VECTORS];
    vflt sum[ATTENTION_ROWS][KEY_VECTORS];
    UNROLLED for (uint32_t v = 0; v < vectors; v++) {
        const char *own = block + v / BLOCK_VECTORS * block_bytes;
        const uint32_t lane = v % BLOCK_VECTORS * SIMD_LANES;
        scales[v] = (const uint16_t *)(const void *)own + lane;
        codes[v] = (const int8_t *)own + crumb_kv_codes_offset(head_dim) + (size_t)2 * lane;
        UNROLLED for (uint32_t r = 0; r < rows; r++) sum[r][v] = v_zero_f32();
    }
    const uint32_t bytes = GROUP_BYTES * vectors / BLOCK_VECTORS;
    for (uint32_t first = 0; first < head_dim; first += GROUP, ahead += bytes) {
        q8_scores_group(rows, vectors, queries + (size_t)2 * first, query_bytes, codes,
                        crumb_kv_group_width(head_dim, first / GROUP) / 2, scales, ahead, sum);
        UNROLLED for (uint32_t v = 0; v < vectors; v++) {
            scales[v] += BLOCK;
            codes[v] += BLOCK * GROUP;
        }
    }
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        float scale;
        memcpy(&scale, queries + (r + 1) * query_bytes - sizeof scale, sizeof scale);
        UNROLLED for (uint32_t v = 0; v < vectors; v++)
            v_store_f32(s + (size_t)r * CHUNK + (size_t)SIMD_LANES * v, v_mul_f32(sum[r][v], v_broadcast_f32(scale)));
    }
}

static void q8_scores(const void *queries, uint32_t n_rows, uint32_t head_dim, const void *keys, uint32_t n_blocks,
                      const char *ahead, float *s) {
    const size_t query_bytes = crumb_kv_q8_query_bytes(head_dim), block_bytes = crumb_kv_q8_block_bytes(head_dim);
    const uint32_t step = KEY_VECTORS / BLOCK_VECTORS; /* blocks */
    for (uint32_t row = 0, rows; row < n_rows; row += rows) {
        rows = tile_rows(n_rows - row);
        const char *q = (const char *)queries + row * query_bytes;
        for (uint32_t b = 0; b < n_blocks; b += step) {
            const char *block = (const char *)keys + b * block_bytes, *next = ahead + b * block_bytes;
            float *to = s + (size_t)row * CHUNK + b * BLOCK;
#define SCORES(r, v) q8_scores_tile(r, v, q, query_bytes, head_dim, block, block_bytes, next, to)
#define TILE(r)                                                                                                        \
    if (step == 1 || b + step <= n_blocks)                                                                             \
        SCORES(r, KEY_VECTORS);                                                                                        \
    else                                                                                                               \
        SCORES(r, 1)
            SELECT_ROWS(rows)
#undef TILE
#undef SCORES
        }
    }
}

/* ---- values ------------------------------------------------------------------------------------------------ */

enum { CHUNK_VECTORS = CHUNK / SIMD_LANES };

/* w[j] of one row, zeros behind its n keys up to n_vectors vectors; returns the largest of each lane. */
SIMD_INLINE vflt q8_scale_weights(const float *p, uint32_t n, uint32_t n_vectors, const vflt *scales, vflt *w) {
    vflt most = v_zero_f32();
    uint32_t i = 0;
    for (; i < n / SIMD_LANES; i++) {
        w[i] = v_mul_f32(v_load_f32(p + (size_t)SIMD_LANES * i), scales[i]);
        most = v_max_f32(w[i], most);
    }
    for (; i < n_vectors; i++) {
        const uint32_t left = SIMD_LANES * i < n ? n - SIMD_LANES * i : 0;
        w[i] = v_first_f32(v_mul_f32(v_load_f32(p + (size_t)SIMD_LANES * i), scales[i]), left);
        most = v_max_f32(w[i], most);
    }
    return most;
}

/* W[j] of `rows` rows for the group whose f16 scales begin at `block`, and their b / 32767. All rows go through a stage
 * together, so that none waits for another's division. */
static void q8_quantize_weights(const float *p, uint32_t rows, const uint32_t *n_keys, uint32_t n_blocks,
                                const char *block, size_t block_bytes, int16_t *weights, float *factors) {
    vflt scales[CHUNK_VECTORS], w[ATTENTION_ROWS][CHUNK_VECTORS], most[ATTENTION_ROWS], inverse[ATTENTION_ROWS];
    uint32_t n_vectors = n_blocks * BLOCK_VECTORS;
    for (uint32_t i = 0; i < n_vectors; i++) {
        const char *of_block = block + i / BLOCK_VECTORS * block_bytes;
        scales[i] = v_load_f16((const uint16_t *)(const void *)of_block + i % BLOCK_VECTORS * SIMD_LANES);
    }
    if (n_vectors % 2) scales[n_vectors++] = v_zero_f32(); /* they are stored by twos */
    for (uint32_t r = 0; r < rows; r++)
        most[r] = q8_scale_weights(p + (size_t)r * CHUNK, n_keys[r], n_vectors, scales, w[r]);
    for (uint32_t r = 0; r < rows; r++) {
        const float b = v_largest_f32(most[r]);
        factors[r] = b < CRUMB_QUANTIZE_TINY ? 0 : b / 32767;
        inverse[r] = v_broadcast_f32(b < CRUMB_QUANTIZE_TINY ? 0 : 32767 / b);
    }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < n_vectors; i += 2)
            v_store_i16(weights + (size_t)r * CHUNK + (size_t)SIMD_LANES * i, v_round(v_mul_f32(w[r][i], inverse[r])),
                        v_round(v_mul_f32(w[r][i + 1], inverse[r])));
}

/* acc[r][i] += sums of `steps` pairs of positions; `half`: the last vector has only half of its dimensions. */
SIMD_INLINE void q8_values_steps(const uint32_t rows, const uint32_t vectors, const uint32_t steps, const bool half,
                                 const int16_t *weights, const int8_t *codes, uint32_t width,
                                 vint acc[ATTENTION_ROWS][ATTENTION_VECTORS * MOST_SIDE_BY_SIDE]) {
    UNROLLED for (uint32_t s = 0; s < steps; s++) {
        vint v[ATTENTION_VECTORS];
        UNROLLED for (uint32_t i = 0; i < vectors; i++) {
            const int8_t *from = codes + (size_t)s * width * 2 + (size_t)2 * SIMD_LANES * i;
            v[i] = half && i + 1 == vectors ? v_widen_half_i8(from) : v_widen_i8(from);
        }
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            const vint w = v_broadcast4(weights + (size_t)r * CHUNK + (size_t)2 * s);
            UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][s * vectors + i] =
                v_pin(v_dot2(acc[r][s * vectors + i], v[i], w));
        }
    }
}

/* `vectors` vectors of dimensions of a group, `width` of which are stored, for `rows` rows: out [rows][GROUP]. */
SIMD_INLINE void q8_values_tile(const uint32_t rows, const uint32_t vectors, const bool half, const int16_t *weights,
                                const float *scales, uint32_t n_blocks, const int8_t *codes, size_t block_bytes,
                                uint32_t width, const char *ahead, float *out) {
    const uint32_t steps = side_by_side(rows * vectors), pair_bytes = 2 * SIMD_LANES * vectors;
    const uint32_t bytes = GROUP_BYTES / GROUP * SIMD_LANES * vectors;
    vint acc[ATTENTION_ROWS][ATTENTION_VECTORS * MOST_SIDE_BY_SIDE];
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t i = 0; i < vectors * steps; i++) acc[r][i] = v_zero();
    }
    for (uint32_t b = 0; b < n_blocks; b++, codes += block_bytes, weights += BLOCK, ahead += bytes) {
        fetch(ahead + BLOCK / 2 * pair_bytes, bytes - BLOCK / 2 * pair_bytes);
        ROLLED for (uint32_t pair = 0; pair < BLOCK / 2; pair += steps) {
            fetch(ahead + (size_t)pair * pair_bytes, steps * pair_bytes);
            q8_values_steps(rows, vectors, steps, half, weights + (size_t)2 * pair, codes + (size_t)pair * width * 2,
                            width, acc);
        }
    }
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t i = 0; i < vectors; i++) {
            vint s = acc[r][i];
            UNROLLED for (uint32_t j = 1; j < steps; j++) s = v_add(s, acc[r][j * vectors + i]);
            v_store_f32(out + r * GROUP + (size_t)SIMD_LANES * i, v_mul_f32(v_to_f32(s), v_broadcast_f32(scales[r])));
        }
    }
}

/* Group g of up to ATTENTION_ROWS rows. */
static void q8_values_group(const float *p, uint32_t rows, const uint32_t *n_keys, uint32_t n_blocks, uint32_t head_dim,
                            uint32_t g, const char *values, const char *ahead, float *o) {
    const size_t block_bytes = crumb_kv_q8_block_bytes(head_dim);
    const uint32_t first = g * GROUP, width = crumb_kv_group_width(head_dim, g);
    int16_t weights[ATTENTION_ROWS * CHUNK];
    float scales[ATTENTION_ROWS], out[ATTENTION_ROWS * GROUP];
    q8_quantize_weights(p, rows, n_keys, n_blocks, values + (size_t)g * BLOCK * 2, block_bytes, weights, scales);
    const int8_t *codes = (const int8_t *)values + crumb_kv_codes_offset(head_dim) + (size_t)first * BLOCK;
    for (uint32_t d = 0, vectors; d < width; d += SIMD_LANES * vectors) {
        const uint32_t left = width - d;
        const bool half = left < SIMD_LANES,
                   wide = SIMD_LANES * ATTENTION_VECTORS == GROUP && left == GROUP && rows <= 2;
        vectors = wide ? ATTENTION_VECTORS : left >= 2 * SIMD_LANES ? 2 : 1;
        const char *next = ahead + (size_t)GROUP_BYTES / GROUP * n_blocks * (first + d);
#define VALUES(r, v, h)                                                                                                \
    q8_values_tile(r, v, h, weights, scales, n_blocks, codes + (size_t)2 * d, block_bytes, width, next, out + d)
#define TILE(r)                                                                                                        \
    if ((r) <= 2 && wide)                                                                                              \
        VALUES(r, ATTENTION_VECTORS, false);                                                                           \
    else if (vectors == 2)                                                                                             \
        VALUES(r, 2, false);                                                                                           \
    else if (half)                                                                                                     \
        VALUES(r, 1, true);                                                                                            \
    else                                                                                                               \
        VALUES(r, 1, false)
        SELECT_ROWS(rows)
#undef TILE
#undef VALUES
    }
    const uint32_t n = head_dim - first < GROUP ? head_dim - first : GROUP;
    for (uint32_t r = 0; r < rows; r++) {
        float *to = o + (size_t)r * head_dim + first;
        const float *from = out + (size_t)r * GROUP;
        if (n == GROUP)
            memcpy(to, from, GROUP * sizeof *to); /* vectors; a length that is not known becomes a slow string move */
        else
            for (uint32_t i = 0; i < n; i++) to[i] = from[i];
    }
}

static void q8_values(const float *p, uint32_t n_rows, const uint32_t *n_keys, uint32_t head_dim, const void *values,
                      const char *ahead, float *o) {
    for (uint32_t row = 0, rows; row < n_rows; row += rows) {
        rows = tile_rows(n_rows - row);
        uint32_t most = 0;
        for (uint32_t r = row; r < row + rows; r++) most = n_keys[r] > most ? n_keys[r] : most;
        for (uint32_t g = 0; g < crumb_kv_groups(head_dim); g++)
            q8_values_group(p + (size_t)row * CHUNK, rows, n_keys + row, (most + BLOCK - 1) / BLOCK, head_dim, g,
                            values, ahead, o + (size_t)row * head_dim);
    }
}

/* softmax_fn: the softmax of the tier, or of a lower one. */
#define KV_Q8_INSTANCE(softmax_fn)                                                                                     \
    const crumb_kv_ops SIMD_NAME(crumb_kv_q8) = {                                                                      \
        .block_bytes = crumb_kv_q8_block_bytes,                                                                        \
        .store = crumb_kv_q8_store__avx2,                                                                              \
        .query_bytes = crumb_kv_q8_query_bytes,                                                                        \
        .prepare = crumb_kv_q8_prepare__avx2,                                                                          \
        .softmax = softmax_fn,                                                                                         \
        .scores = q8_scores,                                                                                           \
        .values = q8_values,                                                                                           \
    };

#endif
