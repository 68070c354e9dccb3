/* T-MAC's kernel (cpu/papers/tmac_layout.h) for 256-bit tiers: one vpshufb looks up 32 rows' partial sums of four k.
 *
 * Loops are K first: the tables of a step, 32 k, stay in eight registers while the rows of a tile pass, whose sums lie
 * in the first-level cache. Included after a tier's simd.h; TMAC_INSTANCE makes one kernel of a width and a method.
 */
#include "cpu/papers/fold.h"
#include "cpu/papers/tmac_layout.h"

enum { TMAC_VECTORS = TMAC_BLOCK_ROWS / SIMD_LANES }; /* of floats in a block */

/* The sums of a tile's rows, in units of tables, of scales and of results. */
typedef struct tmac_tile {
    _Alignas(32) int16_t table_sums[TMAC_TILE_ROWS];
    _Alignas(32) float scale_sums[TMAC_TILE_ROWS];
    _Alignas(32) float results[TMAC_TILE_ROWS];
} tmac_tile;

/* Indices of rows 0 .. 31 and 32 .. 63 of a block. */
SIMD_INLINE void tmac_unpack(const uint8_t *from, const bool interleaved, vint *indices) {
    const vint low_half = v_broadcast_bytes(15);
    vint packed = v_pin(v_load(from)), low = v_and(packed, low_half), high = v_and(v_shift_right(packed, 4), low_half);
    if (!interleaved) { /* neighbours in order again */
        vint a = _mm256_unpacklo_epi8(low, high), b = _mm256_unpackhi_epi8(low, high);
        low = _mm256_permute2x128_si256(a, b, 0x20);
        high = _mm256_permute2x128_si256(a, b, 0x31);
    }
    indices[0] = low;
    indices[1] = high;
}

/* 16 bytes of a table in each 128 bits; the second half of a mirrored one is its first backwards, negated. */
SIMD_INLINE vint tmac_table(const uint8_t *from, const bool mirrored) {
    const vint there_and_back = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 7, 6, 5, 4, 3, 2, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7,
                                                 7, 6, 5, 4, 3, 2, 1, 0);
    const vint sign = _mm256_setr_epi8(1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, 1, 1,
                                       -1, -1, -1, -1, -1, -1, -1, -1);
    if (!mirrored) return v_broadcast16(from);
    int64_t half;
    memcpy(&half, from, 8);
    return _mm256_sign_epi8(v_lookup(_mm256_set1_epi64x(half), there_and_back), sign);
}

/* Average of the entries of all tables, rounded up at every level of a tree of three. */
SIMD_INLINE vint tmac_average(const vint *found) {
    vint a = _mm256_avg_epu8(_mm256_avg_epu8(found[0], found[1]), _mm256_avg_epu8(found[2], found[3]));
    vint b = _mm256_avg_epu8(_mm256_avg_epu8(found[4], found[5]), _mm256_avg_epu8(found[6], found[7]));
    return _mm256_avg_epu8(a, b);
}

/* Bytes added up as 16 bits: all of them, the odd ones counting 256 times, modulo 2^16, and the odd ones alone, which
 * are at most 8 tables x 255 x 15. Three instructions for 32 bytes, and no shuffle. */
typedef struct tmac_wide {
    vint all, odd;
} tmac_wide;

SIMD_INLINE tmac_wide tmac_wide_add(tmac_wide sum, vint bytes) {
    return (tmac_wide){v_pin(_mm256_add_epi16(sum.all, bytes)),
                       v_pin(_mm256_add_epi16(sum.odd, _mm256_srli_epi16(bytes, 8)))};
}

/* sum_i 2^i * R_i of one step as 16 bits: out[2h] and out[2h + 1] are the even and the odd bytes of rows 32h ... */
SIMD_INLINE void tmac_sums(const uint8_t *from, const tmac_place *place, const vint *tables, const int bits,
                           const tmac_method how, vint *out) {
    tmac_wide sums[2] = {{v_zero(), v_zero()}, {v_zero(), v_zero()}};
    UNROLL for (int bit = 0; bit < bits; bit++, from += place->bit_stride) {
        vint found[2][TMAC_TABLES];
        if (bit)
            for (int h = 0; h < 2; h++)
                sums[h] = (tmac_wide){_mm256_slli_epi16(sums[h].all, 1), _mm256_slli_epi16(sums[h].odd, 1)};
        UNROLL for (int t = 0; t < TMAC_TABLES; t++) {
            vint indices[2];
            tmac_unpack(from + (size_t)t * place->table_stride, how.interleaved, indices);
            for (int h = 0; h < 2; h++) {
                found[h][t] = v_lookup(tables[t], indices[h]);
                if (!how.averaged) sums[h] = tmac_wide_add(sums[h], found[h][t]);
            }
        }
        if (how.averaged)
            for (int h = 0; h < 2; h++) sums[h] = tmac_wide_add(sums[h], tmac_average(found[h]));
    }
    const vint offset = _mm256_set1_epi16((short)(128 * ((1 << bits) - 1) * (how.averaged ? 1 : TMAC_TABLES)));
    for (int h = 0; h < 2; h++) {
        vint even = _mm256_sub_epi16(sums[h].all, _mm256_slli_epi16(sums[h].odd, 8));
        out[2 * h] = _mm256_sub_epi16(even, offset);
        out[2 * h + 1] = _mm256_sub_epi16(sums[h].odd, offset);
    }
}

/* The same as floats, in order: four vectors of 8 rows from two of 16 bits. */
SIMD_INLINE void tmac_widen(const vint *sums, vflt *out) {
    for (int h = 0; h < 2; h++) {
        vint even = sums[2 * h], odd = sums[2 * h + 1];
        out[4 * h] = v_to_f32(v_shift_right_signed(_mm256_slli_epi32(even, 16), 16));
        out[4 * h + 1] = v_to_f32(v_shift_right_signed(_mm256_slli_epi32(odd, 16), 16));
        out[4 * h + 2] = v_to_f32(v_shift_right_signed(even, 16));
        out[4 * h + 3] = v_to_f32(v_shift_right_signed(odd, 16));
    }
}

/* sum_i 2^i * R_i of one step from fp16 tables: two look-ups, put together and widened. */
SIMD_INLINE void tmac_sums_f16(const uint8_t *from, const tmac_place *place, const uint8_t *tables, const int bits,
                               const tmac_method how, vflt *out) {
    for (int v = 0; v < TMAC_VECTORS; v++) out[v] = v_zero_f32();
    for (int bit = 0; bit < bits; bit++, from += place->bit_stride) {
        if (bit)
            for (int v = 0; v < TMAC_VECTORS; v++) out[v] = v_add_f32(out[v], out[v]);
        UNROLL for (int t = 0; t < TMAC_TABLES; t++) {
            vint indices[2], low = v_broadcast16(tables + t * 32), high = v_broadcast16(tables + t * 32 + 16);
            tmac_unpack(from + (size_t)t * place->table_stride, how.interleaved, indices);
            for (int h = 0; h < 2; h++) {
                vint low_found = v_lookup(low, indices[h]), high_found = v_lookup(high, indices[h]);
                vint a = _mm256_unpacklo_epi8(low_found, high_found), b = _mm256_unpackhi_epi8(low_found, high_found);
                vflt *sums = out + 4 * h;
                sums[0] = v_add_f32(sums[0], _mm256_cvtph_ps(_mm256_castsi256_si128(a)));
                sums[1] = v_add_f32(sums[1], _mm256_cvtph_ps(_mm256_castsi256_si128(b)));
                sums[2] = v_add_f32(sums[2], _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
                sums[3] = v_add_f32(sums[3], _mm256_cvtph_ps(_mm256_extracti128_si256(b, 1)));
            }
        }
    }
}

/* Where a step stands, and what its sums are multiplied with. */
typedef struct tmac_step {
    bool table_first, table_last; /* of a table group */
    bool scale_first, scale_last; /* of a group of the weights */
    uint32_t scale_group;
    float table_scale;
    float x_sum, start; /* X of the group of the weights, and what it has beside its tables' sums: its share of X */
} tmac_step;

SIMD_INLINE tmac_step tmac_step_of(const crumb_matrix *w, const tmac_shape *s, uint32_t step, const uint8_t *row,
                                   const tmac_method how) {
    const float *scales = (const float *)(const void *)row, *sums = (const float *)(const void *)(row + s->sums_offset);
    const float x = sums[step / s->scale_steps];
    return (tmac_step){.table_first = step % s->group_steps == 0,
                       .table_last = (step + 1) % s->group_steps == 0,
                       .scale_first = step % s->scale_steps < s->group_steps,
                       .scale_last = (step + 1) % s->scale_steps == 0,
                       .scale_group = step / s->scale_steps,
                       .table_scale = scales[step / s->group_steps],
                       .x_sum = x,
                       .start = tmac_value_of(w, how).zero * x};
}

/* A table group's sums join those of the group of the weights. */
SIMD_INLINE void tmac_fold(const tmac_step *step, const vflt *sums, float *scale_sums) {
    const vflt scale = v_broadcast_f32(step->table_scale), start = v_broadcast_f32(step->start);
    UNROLL for (int v = 0; v < TMAC_VECTORS; v++) {
        float *at = scale_sums + v * SIMD_LANES;
        v_store_f32(at, v_fma_f32(scale, sums[v], step->scale_first ? start : v_load_f32(at)));
    }
}

/* The sums of a group of the weights join the results of the tile's rows. */
SIMD_INLINE void tmac_apply_scales(const crumb_linear_args *a, const shape *s, const tmac_step *step, uint32_t block,
                                   uint32_t end, tmac_tile *tile) {
    const vflt x_sum = v_broadcast_f32(step->x_sum);
    const float *sums = tile->scale_sums;
    float *results = tile->results;
    for (uint32_t row = block * TMAC_BLOCK_ROWS; row < end * TMAC_BLOCK_ROWS && row < a->w->m;
         row += SIMD_LANES, sums += SIMD_LANES, results += SIMD_LANES) {
        const int part = (int)(row / SIMD_LANES % TILE_VECTORS);
        const tile_scales scales = scales_of_tile(a, s, row / CRUMB_TILE_ROWS);
        vflt scale = load_scale(&scales, s, step->scale_group, part);
        vflt result = v_fma_f32(scale, v_load_f32(sums), v_load_f32(results));
        if (a->w->mins) {
            const tile_scales mins = mins_of_tile(a, s, row / CRUMB_TILE_ROWS);
            result = v_fma_f32(load_scale(&mins, s, step->scale_group, part), x_sum, result);
        }
        v_store_f32(results, result);
    }
}

/* The integer sums of a step join those of the steps before it in its table group; whether the group is complete, and
 * then its sums as floats. */
SIMD_INLINE bool tmac_complete(const tmac_step *step, vint *sums, int16_t *table_sums, const float rounding,
                               vflt *out) {
    if (!step->table_first)
        for (int i = 0; i < 4; i++) sums[i] = _mm256_add_epi16(sums[i], v_load(table_sums + 16 * i));
    if (!step->table_last) {
        for (int i = 0; i < 4; i++) v_store(table_sums + 16 * i, sums[i]);
        return false;
    }
    tmac_widen(sums, out);
    if (rounding != 0.0f)
        for (int v = 0; v < TMAC_VECTORS; v++) out[v] = v_add_f32(out[v], v_broadcast_f32(-rounding));
    return true;
}

/* One step of K for blocks [block, end) of a tile. */
SIMD_INLINE void tmac_run_step(const crumb_linear_args *a, const shape *s, const tmac_shape *ts, const uint8_t *row,
                               uint32_t at, uint32_t block, uint32_t end, tmac_tile *tile, const int bits,
                               const tmac_method how) {
    const tmac_step step = tmac_step_of(a->w, ts, at, row, how);
    const uint8_t *from = row + ts->tables_offset + (size_t)at * TMAC_TABLES * ts->table_bytes;
    /* Each of a tree's three roundings adds a quarter on average, for every bit. The paper does not speak of it; its
     * authors' code subtracts such a bias too. */
    const float rounding = how.averaged ? 0.75f * (float)(((1 << bits) - 1) * (int)ts->group_steps) : 0.0f;
    vint tables[TMAC_TABLES];
    if (how.quantized)
        UNROLL for (int t = 0; t < TMAC_TABLES; t++) tables[t] =
            tmac_table(from + (size_t)t * ts->table_bytes, how.mirrored);
    for (uint32_t b = block, i = 0; b < end; b++, i += TMAC_BLOCK_ROWS) {
        const tmac_place place = tmac_place_of(ts, (unsigned)bits, how, b, at);
        const uint8_t *indices = (const uint8_t *)a->packed + place.offset;
        vflt sums[TMAC_VECTORS];
        if (how.quantized) {
            vint found[4];
            tmac_sums(indices, &place, tables, bits, how, found);
            if (!tmac_complete(&step, found, tile->table_sums + i, rounding, sums)) continue;
        } else {
            tmac_sums_f16(indices, &place, from, bits, how, sums);
        }
        tmac_fold(&step, sums, tile->scale_sums + i);
    }
    if (step.scale_last) tmac_apply_scales(a, s, &step, block, end, tile);
}

/* For activations in f32. K is outside and rows inside: a tile's in one go, or block by block where it is not tiled. */
SIMD_INLINE void tmac(const crumb_linear_args *args, const int bits, const tmac_method how) {
    crumb_linear_args a = *args;
    a.x.row_scale = false; /* of int8 activations */
    const tmac_shape ts = tmac_shape_of(a.w, how);
    const shape s = {.n_scales = ts.n_steps / ts.scale_steps, .scale_bytes = a.w->scales_f32 ? 4 : 2};
    const uint32_t tiles_per_block = TMAC_BLOCK_ROWS / CRUMB_TILE_ROWS;
    const uint32_t end = (a.tile1 + tiles_per_block - 1) / tiles_per_block, most = how.tiled ? TMAC_TILE_BLOCKS : 1;
    for (uint32_t block = a.tile0 / tiles_per_block, n_blocks; block < end; block += n_blocks) {
        n_blocks = end - block < most ? end - block : most;
        for (uint32_t n = 0; n < a.n; n++) {
            tmac_tile tile;
            memset(tile.results, 0, n_blocks * TMAC_BLOCK_ROWS * sizeof tile.results[0]);
            for (uint32_t step = 0; step < ts.n_steps; step++)
                tmac_run_step(&a, &s, &ts, (const uint8_t *)a.prepared + n * ts.row_bytes, step, block,
                              block + n_blocks, &tile, bits, how);
            for (uint32_t v = 0; v < n_blocks * TMAC_VECTORS; v++) {
                vflt result = v_load_f32(tile.results + v * SIMD_LANES);
                papers_finish(&a, block * TMAC_VECTORS + v, 1, n, &result);
            }
        }
    }
}

#define TMAC_INSTANCE(name, bits, ...)                                                                                 \
    void SIMD_NAME(crumb_tmac_##name)(const crumb_linear_args *a) {                                                    \
        tmac(a, bits, (tmac_method)__VA_ARGS__);                                                                       \
    }
