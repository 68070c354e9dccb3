/* GEMM: many rows of activations, bound by the dot products.
 *
 * A tile-row's codes are unpacked once into a panel of one byte each (panel.h), which stays in L1 while it meets every
 * column (row of activations); so the inner loop has no unpacking: two loads of weights, one broadcast per column, one
 * dot product per vector and column. The panel spans at most GEMM_CHUNK_STEPS steps of K (four k each); float and
 * integer sums of all columns wait in memory between chunks, in the one order that cpu/kernels.h fixes. Columns are
 * taken in blocks whose activations stay in L2 while all tile-rows pass.
 *
 * Accumulators of 16 bits are widened after a *span*: as many steps as they hold of these activations (dot_reach),
 * which is found out once for all tile-rows (gemm_find_spans).
 *
 * Once unpacked, codes of different widths and layouts differ only in how many panel vectors a step takes (gemm_parts)
 * and how many steps an accumulator holds whatever the activations (gemm_unit_steps). So there is one loop for each
 * such *kind* of operands, and a kernel is a way of unpacking beside it.
 *
 * Included after a tier's simd.h, which gives the columns of a register block: GEMM_REGISTER_COLUMNS, and
 * GEMM_WHOLE_COLUMNS where sums are folded into floats every 8 steps, which takes registers as well.
 * GEMM_KINDS makes the loops, GEMM_INSTANCES all kernels of a tier: GEMM_INSTANCE(bits) one for tiles,
 * GEMM_INDEX_INSTANCES those for the index layout, GEMM_CODEBOOK_INSTANCE the one for codebooks: their 4-bit codes are
 * looked up while they are unpacked, and from there on are operands of DOT_ENTRY_BITS.
 */
#include "cpu/lowbit/gemm_shape.h"
#include "cpu/lowbit/panel.h"

/* One block of columns and its sums; all in the thread's scratch. */
typedef struct gemm_block {
    const crumb_linear_args *a;
    shape s;
    panel_fn *unpack;
    vint table;         /* of a codebook */
    uint32_t most_code; /* the largest operand */
    uint32_t n0, n_columns;
    const int8_t *q; /* activations: the register block from column c on begins at c * k_padded; [step][column][4] */
    int8_t *local_q; /* room for them */
    const uint16_t *reach; /* of the activations, where accumulators have a limit: as in crumb_q8 */
    uint16_t *local_reach; /* room for it */
    uint16_t *spans; /* [n_columns][32-blocks], at a register block's first column: the block after the span that begins
                      * here, and GEMM_SHORT where accumulators may not even hold one block */
    uint8_t *panel;  /* [steps of the chunk][parts][16 rows], 4 codes of a row each */
    float *scales;   /* [groups of the chunk][16] */
    float *mins;     /* as scales */
    size_t stride;   /* columns that there is room for */
    float *sx;       /* [n_groups][stride]: the activations' scales; 1 where they are per row */
    int32_t *zeros;  /* as sx: sub * qsum */
    float *sx_qsums; /* as sx: sx * qsum, for mins */
    int32_t *sums;   /* [n_columns][16]: sums of an unfinished group */
    float *accs;     /* [n_columns][16]; between tile-rows 0 */
} gemm_block;

/* What groups of activations are: half a 32-block, one, or more of them. */
typedef enum gemm_groups { GEMM_ANY, GEMM_BLOCKS, GEMM_HALVES } gemm_groups;

enum { GEMM_SHORT = 1 << 15 };

/* Whether accumulators may hold less than a 32-block. */
SIMD_INLINE bool gemm_is_short(int kind) {
    return gemm_unit_steps(kind) < BLOCK_STEPS;
}

/* ---- the dot products -------------------------------------------------------------------------------------- */

/* Steps [step0, step1) of the panel, all within one span of the accumulators and one group. */
SIMD_INLINE void gemm_span(const gemm_block *b, const int8_t *q, uint32_t step0, uint32_t step1, const int columns,
                           const int parts, const uint32_t unit, vint *acc) {
    UNROLL for (int i = 0; i < columns * TILE_VECTORS * parts; i++) acc[i] = v_zero();
    const uint8_t *panel = b->panel + (size_t)step0 * (size_t)parts * LINE_BYTES;
    q += (size_t)step0 * (size_t)columns * 4;
    for (uint32_t step = step0; step < step1; step += unit) { /* spans are whole units */
        UNROLL for (uint32_t u = 0; u < unit; u++, panel += parts * LINE_BYTES, q += columns * 4) {
            vint weights[TILE_VECTORS * 2];
            UNROLL for (int v = 0; v < TILE_VECTORS * parts; v++) weights[v] = v_load(panel + v * SIMD_LANES * 4);
            UNROLL for (int c = 0; c < columns; c++)
                dot_steps(&acc[c * TILE_VECTORS * parts], weights, v_broadcast4(q + c * 4), TILE_VECTORS * parts);
        }
    }
}

/* Group g is complete: its sums join the float accumulators of `columns` columns from column c0 on. group0 is the
 * chunk's first group. Types with mins have no zero point, so an instance does one of the two. */
SIMD_INLINE void gemm_fold(const gemm_block *b, uint32_t c0, uint32_t g, uint32_t group0, const vint *sums,
                           const int columns, const bool has_zero, const bool has_min) {
    const size_t at = g * b->stride + c0;
    const float *sx = b->sx + at, *sx_qsums = b->sx_qsums + at;
    const int32_t *zeros = b->zeros + at;
    const float *scales = b->scales + (size_t)(g - group0) * CRUMB_TILE_ROWS;
    const float *mins = b->mins + (size_t)(g - group0) * CRUMB_TILE_ROWS;
    float *accs = b->accs + (size_t)c0 * CRUMB_TILE_ROWS;
    UNROLL for (int c = 0; c < columns; c++) {
        vflt scale_x = v_broadcast_f32(sx[c]);
        UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
            float *acc = accs + c * CRUMB_TILE_ROWS + v * SIMD_LANES;
            vint exact = sums[c * TILE_VECTORS + v];
            if (has_zero) exact = v_sub(exact, v_broadcast(zeros[c]));
            vflt sum = v_mul_f32(scale_x, v_to_f32(exact));
            sum = v_fma_f32(v_load_f32(scales + v * SIMD_LANES), sum, v_load_f32(acc));
            if (has_min) sum = v_fma_f32(v_load_f32(mins + v * SIMD_LANES), v_broadcast_f32(sx_qsums[c]), sum);
            v_store_f32(acc, sum);
        }
    }
}

/* Sums of one span, of `columns` columns: steps [step0, step1) of the panel. */
SIMD_INLINE void gemm_sums(const gemm_block *b, const int8_t *q, uint32_t step0, uint32_t step1, const int kind,
                           const int columns, vint *sums) {
    const int parts = gemm_parts(kind);
    vint acc[GEMM_REGISTER_COLUMNS * TILE_VECTORS * 2];
    gemm_span(b, q, step0, step1, columns, parts, gemm_unit_steps(kind), acc);
    UNROLL for (int i = 0; i < columns * TILE_VECTORS; i++) sums[i] =
        gemm_sum(&acc[i / TILE_VECTORS * TILE_VECTORS * parts + i % TILE_VECTORS], kind, b->a->w->mul);
}

/* The same where accumulators hold less than a 32-block, for any number of steps: two steps of a column at a time are
 * summed and widened while their codes stay in registers, and only the sums wait. */
SIMD_INLINE void gemm_short_sums(const gemm_block *b, const int8_t *q, uint32_t step0, uint32_t step1, const int kind,
                                 const int columns, vint *sums) {
    UNROLL for (int i = 0; i < columns * TILE_VECTORS; i++) sums[i] = v_zero();
    const uint8_t *panel = b->panel + (size_t)step0 * LINE_BYTES;
    q += (size_t)step0 * (size_t)columns * 4;
    for (uint32_t step = step0; step < step1; step += 2, panel += 2 * LINE_BYTES, q += columns * 8) {
        vint weights[2 * TILE_VECTORS];
        UNROLL for (int i = 0; i < 2 * TILE_VECTORS; i++) weights[i] = v_load(panel + i * SIMD_LANES * 4);
        UNROLL for (int c = 0; c < columns; c++) {
            vint q0 = v_broadcast4(q + c * 4), q1 = v_broadcast4(q + (columns + c) * 4);
            UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
                vint acc = dot_step(dot_step(v_zero(), weights[v], q0), weights[TILE_VECTORS + v], q1);
                vint *sum = &sums[c * TILE_VECTORS + v];
                *sum = v_pin(v_add(*sum, gemm_sum(&acc, kind, b->a->w->mul)));
            }
        }
    }
}

/* Groups of one 32-block, whose sums never leave the registers: n_groups from the chunk's first, group0, on. */
SIMD_INLINE void gemm_whole_groups(const gemm_block *b, uint32_t c0, const int8_t *q, uint32_t group0,
                                   uint32_t n_groups, const int kind, const int columns, const bool has_zero,
                                   const bool has_min) {
    const uint32_t unit = gemm_unit_steps(kind);
    for (uint32_t g = 0; g < n_groups; g++) {
        vint sums[GEMM_REGISTER_COLUMNS * TILE_VECTORS];
        gemm_sums(b, q, g * BLOCK_STEPS, g * BLOCK_STEPS + unit, kind, columns, sums);
        for (uint32_t step = unit; step < BLOCK_STEPS; step += unit) {
            vint more[GEMM_REGISTER_COLUMNS * TILE_VECTORS];
            gemm_sums(b, q, g * BLOCK_STEPS + step, g * BLOCK_STEPS + step + unit, kind, columns, more);
            UNROLL for (int i = 0; i < columns * TILE_VECTORS; i++) sums[i] = v_add(sums[i], more[i]);
        }
        gemm_fold(b, c0, group0 + g, group0, sums, columns, has_zero, has_min);
        v_forget(); /* float accumulators kept in registers would push out those of the dot products */
    }
}

/* Groups of 16, which are every other step of a 32-block: n_blocks from the chunk's first group, group0, on. */
SIMD_INLINE void gemm_half_groups(const gemm_block *b, uint32_t c0, const int8_t *q, uint32_t group0, uint32_t n_blocks,
                                  const int kind, const int columns, const bool has_min) {
    const uint32_t hold = (uint32_t)half_hold_steps(kind);
    for (uint32_t g = 0; g < 2 * n_blocks; g++) {
        vint sums[GEMM_REGISTER_COLUMNS * TILE_VECTORS];
        UNROLL for (int i = 0; i < columns * TILE_VECTORS; i++) sums[i] = v_zero();
        UNROLL for (uint32_t part = 0; part < BLOCK_STEPS / 2; part += hold) {
            vint acc[GEMM_REGISTER_COLUMNS * TILE_VECTORS];
            UNROLL for (int i = 0; i < columns * TILE_VECTORS; i++) acc[i] = v_zero();
            UNROLL for (uint32_t i = part; i < part + hold; i++) {
                const size_t step = g / 2 * BLOCK_STEPS + 2 * i + g % 2;
                vint weights[TILE_VECTORS];
                UNROLL for (int v = 0; v < TILE_VECTORS; v++) weights[v] =
                    v_load(b->panel + step * LINE_BYTES + v * SIMD_LANES * 4);
                UNROLL for (int c = 0; c < columns; c++)
                    dot_steps(&acc[c * TILE_VECTORS], weights,
                              v_broadcast4(q + (step * (size_t)columns + (size_t)c) * 4), TILE_VECTORS);
            }
            UNROLL for (int i = 0; i < columns * TILE_VECTORS; i++) sums[i] =
                v_add(sums[i], gemm_sum(&acc[i], kind, b->a->w->mul));
        }
        gemm_fold(b, c0, group0 + g, group0, sums, columns, true, has_min);
        v_forget();
    }
}

/* The block after the span that begins at `step`, with GEMM_SHORT where that is so. Without a limit: `end`. */
SIMD_INLINE uint32_t gemm_span_at(const gemm_block *b, uint32_t c0, uint32_t step, uint32_t end) {
    if (DOT_SUM_LIMIT == 0) return end / BLOCK_STEPS;
    return b->spans[(size_t)c0 * b->s.n_blocks + step / BLOCK_STEPS];
}

/* Groups of more than a 32-block: their sums wait in memory between spans, and between chunks. */
SIMD_INLINE void gemm_long_groups(const gemm_block *b, uint32_t c0, const int8_t *q, uint32_t step0, uint32_t step1,
                                  const int kind, const int columns, const bool has_min) {
    const uint32_t group_steps = b->s.group_steps, group0 = step0 / group_steps;
    int32_t *saved = b->sums + (size_t)c0 * CRUMB_TILE_ROWS;
    uint32_t g = group0;
    for (uint32_t step = step0, end; step < step1; step = end) {
        uint32_t group_end = (g + 1) * group_steps;
        vint sums[GEMM_REGISTER_COLUMNS * TILE_VECTORS];
        const uint32_t span = gemm_span_at(b, c0, step, group_end < step1 ? group_end : step1);
        end = (span & ~(uint32_t)GEMM_SHORT) * BLOCK_STEPS;
        if (gemm_is_short(kind) && span & GEMM_SHORT)
            gemm_short_sums(b, q, step - step0, end - step0, kind, columns, sums);
        else
            gemm_sums(b, q, step - step0, end - step0, kind, columns, sums);
        if (step > g * group_steps)
            UNROLL for (int i = 0; i < columns * TILE_VECTORS; i++) sums[i] =
                v_add(sums[i], v_load(saved + i * SIMD_LANES));
        if (end < group_end)
            UNROLL for (int i = 0; i < columns * TILE_VECTORS; i++) v_store(saved + i * SIMD_LANES, sums[i]);
        else
            gemm_fold(b, c0, g++, group0, sums, columns, true, has_min);
        v_forget();
    }
}

/* Steps [step0, step1) of K, which the panel holds, for `columns` columns from c0 of the block on. */
SIMD_INLINE void gemm_columns(const gemm_block *b, uint32_t c0, uint32_t step0, uint32_t step1, const int kind,
                              const int columns, const bool has_zero, const bool has_min, const gemm_groups groups) {
    const int8_t *q = b->q + (size_t)c0 * b->a->x.k_padded + (size_t)step0 * (size_t)columns * 4;
    if (groups == GEMM_HALVES)
        gemm_half_groups(b, c0, q, step0 / BLOCK_STEPS * 2, (step1 - step0) / BLOCK_STEPS, kind, columns, has_min);
    else if (groups == GEMM_BLOCKS)
        gemm_whole_groups(b, c0, q, step0 / BLOCK_STEPS, (step1 - step0) / BLOCK_STEPS, kind, columns, has_zero,
                          has_min);
    else
        gemm_long_groups(b, c0, q, step0, step1, kind, columns, has_min);
}

SIMD_INLINE gemm_groups gemm_groups_of(uint32_t group) {
    return group < CRUMB_TILE_K ? GEMM_HALVES : group == CRUMB_TILE_K ? GEMM_BLOCKS : GEMM_ANY;
}

/* Columns of a register block, of as many as there are registers for. Where accumulators rarely hold a 32-block, sums
 * take registers as well. */
SIMD_INLINE int gemm_wide(int bits, gemm_groups groups) {
    const bool few = groups != GEMM_ANY || gemm_unit_steps(bits) < BLOCK_STEPS / 2;
    return (few ? GEMM_WHOLE_COLUMNS : GEMM_REGISTER_COLUMNS) / gemm_parts(bits);
}

/* Columns of the next register block where `left` are left: all, half of them, two or one. */
SIMD_INLINE uint32_t gemm_next_columns(uint32_t left, uint32_t wide) {
    if (left >= wide) return wide;
    return wide > 4 && left >= wide / 2 ? wide / 2 : wide > 2 && left >= 2 ? 2 : 1;
}

/* The lines of y (and of what is added to it) that a tile-row's finished columns go to: too far apart for the hardware
 * to foresee. */
SIMD_INLINE void gemm_prefetch_out(const gemm_block *b, uint32_t tile, uint32_t c0, uint32_t columns) {
    const crumb_linear_args *a = b->a;
    for (uint32_t n = b->n0 + c0; n < b->n0 + c0 + columns; n++) {
        __builtin_prefetch(a->y + n * a->y_stride + (size_t)tile * CRUMB_TILE_ROWS, 1);
        if (a->add) __builtin_prefetch(a->add + n * a->add_stride + (size_t)tile * CRUMB_TILE_ROWS, 0);
    }
}

/* The accumulators are left as zeros, for the next tile-row. */
SIMD_INLINE void gemm_finish(const gemm_block *b, uint32_t tile, uint32_t c0, uint32_t columns) {
    for (uint32_t c = c0; c < c0 + columns; c++)
        for (uint32_t v = 0; v < TILE_VECTORS; v++) {
            uint32_t m = tile * CRUMB_TILE_ROWS + v * SIMD_LANES;
            float *acc = b->accs + c * CRUMB_TILE_ROWS + v * SIMD_LANES;
            if (m < b->a->w->m) finish_rows(b->a, b->n0 + c, m, v_load_f32(acc));
            v_store_f32(acc, v_zero_f32());
        }
}

/* A chunk of a tile-row, the last one with the way out. */
SIMD_INLINE void gemm_all_columns(const gemm_block *b, uint32_t tile, uint32_t step0, uint32_t step1, const int kind,
                                  const int wide, const bool has_zero, const bool has_min, const gemm_groups groups) {
    const bool last = step1 == b->s.n_blocks * BLOCK_STEPS;
    for (uint32_t c = 0, n; c < b->n_columns; c += n) {
        n = gemm_next_columns(b->n_columns - c, (uint32_t)wide);
        if (last) gemm_prefetch_out(b, tile, c, n);
        if (n == (uint32_t)wide)
            gemm_columns(b, c, step0, step1, kind, wide, has_zero, has_min, groups);
        else if (wide > 4 && n == (uint32_t)wide / 2)
            gemm_columns(b, c, step0, step1, kind, wide / 2, has_zero, has_min, groups);
        else if (wide > 2 && n == 2)
            gemm_columns(b, c, step0, step1, kind, 2, has_zero, has_min, groups);
        else
            gemm_columns(b, c, step0, step1, kind, 1, has_zero, has_min, groups);
        if (last) gemm_finish(b, tile, c, n);
    }
}

/* ---- tile-rows and blocks of columns ----------------------------------------------------------------------- */

/* Converts the scales and mins of the groups that begin or go on in steps [step0, step1) of a tile-row. */
SIMD_INLINE void gemm_take_scales(const gemm_block *b, uint32_t tile, uint32_t step0, uint32_t step1) {
    const crumb_linear_args *a = b->a;
    const uint32_t group_steps = b->s.group_steps, group0 = step0 / group_steps;
    const tile_scales scales = scales_of_tile(a, &b->s, tile);
    tile_scales mins = scales;
    if (a->w->mins) mins = mins_of_tile(a, &b->s, tile);
    for (uint32_t g = group0; g * group_steps < step1; g++) {
        const uint32_t from = g / b->s.scale_groups;
        size_t to = (size_t)(g - group0) * CRUMB_TILE_ROWS;
        for (int v = 0; v < TILE_VECTORS; v++, to += SIMD_LANES) {
            v_store_f32(b->scales + to, load_scale(&scales, &b->s, from, v));
            if (a->w->mins) v_store_f32(b->mins + to, load_scale(&mins, &b->s, from, v));
        }
    }
}

/* Steps of K per panel: whole groups where they are smaller than a panel. */
SIMD_INLINE uint32_t gemm_chunk_steps(const gemm_block *b) {
    const uint32_t group_steps = b->s.group_steps, wanted = b->a->knobs.steps;
    if (b->unpack == panel_t5) return GEMM_TRIT_STEPS;
    const uint32_t most = wanted ? wanted : GEMM_CHUNK_STEPS;
    return group_steps < most ? most / group_steps * group_steps : most;
}

SIMD_INLINE void gemm_tile(const gemm_block *b, uint32_t tile, const int kind, const int wide, const bool has_zero,
                           const bool has_min, const gemm_groups groups) {
    const uint32_t n_steps = b->s.n_blocks * BLOCK_STEPS, chunk = gemm_chunk_steps(b);
    for (uint32_t step = 0; step < n_steps; step += chunk) {
        uint32_t end = step + chunk < n_steps ? step + chunk : n_steps;
        b->unpack(codes_of_tile(b->a, &b->s, tile), step, end, b->table, b->panel);
        gemm_take_scales(b, tile, step, end);
        gemm_all_columns(b, tile, step, end, kind, wide, has_zero, has_min, groups);
    }
}

/* The parts of the thread's scratch, in the sizes of crumb_gemm_scratch_bytes. */
SIMD_INLINE void gemm_carve(gemm_block *b) {
    const size_t tile_row = CRUMB_TILE_ROWS * 4, per_group = b->stride * b->s.n_groups * 4;
    uint8_t *p = b->a->scratch;
    b->local_q = (int8_t *)p;
    p += b->stride * b->a->x.k_padded;
    b->panel = p;
    p += GEMM_TRIT_STEPS * tile_row * GEMM_MAX_PARTS;
    b->scales = (float *)(void *)p;
    b->mins = (float *)(void *)(p + GEMM_CHUNK_GROUPS * tile_row);
    p += GEMM_CHUNK_GROUPS * tile_row * 2;
    b->sums = (int32_t *)(void *)p;
    b->accs = (float *)(void *)(p + b->stride * tile_row);
    p += b->stride * tile_row * 2;
    b->sx = (float *)(void *)p;
    b->zeros = (int32_t *)(void *)(p + per_group);
    b->sx_qsums = (float *)(void *)(p + 2 * per_group);
    p += 3 * per_group;
    b->local_reach = (uint16_t *)(void *)p;
    b->spans = b->local_reach + b->stride * b->s.n_blocks * CRUMB_Q8_REACH;
}

SIMD_INLINE __m128i load_steps(const int8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* Four steps of four, two or one column, k_padded apart; a step's columns lie together, steps to_stride apart. */
SIMD_INLINE void interleave4(const int8_t *from, size_t k_padded, int8_t *to, size_t to_stride) {
    __m128i a = load_steps(from), b = load_steps(from + k_padded);
    __m128i c = load_steps(from + 2 * k_padded), d = load_steps(from + 3 * k_padded);
    __m128i ab_low = _mm_unpacklo_epi32(a, b), cd_low = _mm_unpacklo_epi32(c, d);
    __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
    _mm_storeu_si128((__m128i *)(void *)to, _mm_unpacklo_epi64(ab_low, cd_low));
    _mm_storeu_si128((__m128i *)(void *)(to + to_stride), _mm_unpackhi_epi64(ab_low, cd_low));
    _mm_storeu_si128((__m128i *)(void *)(to + 2 * to_stride), _mm_unpacklo_epi64(ab_high, cd_high));
    _mm_storeu_si128((__m128i *)(void *)(to + 3 * to_stride), _mm_unpackhi_epi64(ab_high, cd_high));
}
SIMD_INLINE void interleave2(const int8_t *from, size_t k_padded, int8_t *to, size_t to_stride) {
    __m128i a = load_steps(from), b = load_steps(from + k_padded);
    __m128i pairs[2] = {_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)};
    for (size_t i = 0; i < 4; i++) memcpy(to + i * to_stride, (const char *)pairs + 8 * i, 8);
}
SIMD_INLINE void interleave1(const int8_t *from, int8_t *to, size_t to_stride) {
    for (size_t i = 0; i < 4; i++) memcpy(to + i * to_stride, from + 4 * i, 4);
}

/* n_columns columns in the order that register blocks read them, which is one stream, and their reach. Read in place,
 * columns a power of two apart would compete for the same sets of the caches (a quarter of the speed on Zen 3). */
SIMD_INLINE void gemm_interleave(const int8_t *columns, size_t k_padded, uint32_t n_columns, uint32_t wide, int8_t *out,
                                 uint16_t *reach) {
    for (uint32_t c = 0, n; c < n_columns; c += n) {
        n = gemm_next_columns(n_columns - c, wide);
        dot_reach(columns + c * k_padded, k_padded, n, reach + c * (k_padded / CRUMB_TILE_K) * CRUMB_Q8_REACH);
        for (size_t k = 0; k < k_padded; k += 16) {
            const int8_t *from = columns + c * k_padded + k;
            int8_t *to = out + c * k_padded + k * n;
            uint32_t i = 0;
            for (; i + 4 <= n; i += 4) interleave4(from + i * k_padded, k_padded, to + (size_t)i * 4, (size_t)n * 4);
            if (n & 2) interleave2(from + i * k_padded, k_padded, to + (size_t)i * 4, (size_t)n * 4);
            if (n & 1) interleave1(from + (n - 1) * k_padded, to + ((size_t)n - 1) * 4, (size_t)n * 4);
        }
    }
}

/* What the fold of every tile-row needs of the activations, in the order that it is read. */
SIMD_INLINE void gemm_prepare(const gemm_block *b) {
    const crumb_q8 *x = &b->a->x;
    const int zero = zero_point(b->a->w);
    for (uint32_t c = 0; c < b->n_columns; c++)
        for (uint32_t g = 0; g < b->s.n_groups; g++) {
            size_t from = (size_t)(b->n0 + c) * b->s.n_groups + g, to = g * b->stride + c;
            float sx = x->row_scale ? 1.0f : x->sx[from];
            b->sx[to] = sx;
            b->zeros[to] = zero * x->qsum[from];
            b->sx_qsums[to] = sx * (float)x->qsum[from];
        }
}

/* Interleaved by the caller for all tile-rows, or here for these. */
SIMD_INLINE void gemm_take_columns(gemm_block *b, int wide) {
    const crumb_q8 *x = &b->a->x;
    const size_t at = (size_t)b->n0 * x->k_padded;
    if (x->interleaved) {
        b->q = x->interleaved + at;
        b->reach = x->reach + at / CRUMB_TILE_K * CRUMB_Q8_REACH;
        return;
    }
    gemm_interleave(x->q + at, x->k_padded, b->n_columns, (uint32_t)wide, b->local_q, b->local_reach);
    b->q = b->local_q;
    b->reach = b->local_reach;
}

SIMD_INLINE __m128i load_reach(const uint16_t *p) {
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}

/* Whether accumulators hold blocks [block, end) of a register block of `columns`. */
SIMD_INLINE bool gemm_span_fits(const gemm_block *b, const uint16_t *reach, uint32_t columns, uint32_t block,
                                uint32_t end) {
    const __m128i most = _mm_set1_epi16((short)(DOT_SUM_LIMIT / b->most_code / 2));
    const size_t width = (size_t)columns * CRUMB_Q8_REACH;
    __m128i beyond = _mm_setzero_si128();
    for (size_t i = 0; i < width; i += CRUMB_Q8_REACH) {
        __m128i sums = load_reach(reach + (end - 1) * width + i);
        if (block > 0) sums = _mm_sub_epi16(sums, load_reach(reach + (block - 1) * width + i));
        beyond = _mm_or_si128(beyond, _mm_subs_epu16(sums, most));
    }
    return _mm_cvtsi128_si64(beyond) == 0;
}

/* The block after the span that begins at `block`: at least the next, and none in another chunk or group. */
SIMD_INLINE uint32_t gemm_span_end(const gemm_block *b, const uint16_t *reach, uint32_t columns, uint32_t block,
                                   uint32_t chunk_blocks, uint32_t group_blocks) {
    uint32_t end = (block / chunk_blocks + 1) * chunk_blocks, fits = block + 1;
    const uint32_t group_end = (block / group_blocks + 1) * group_blocks;
    if (end > group_end) end = group_end;
    if (end > b->s.n_blocks) end = b->s.n_blocks;
    if (gemm_span_fits(b, reach, columns, block, end)) return end;
    while (end - fits > 1) {
        const uint32_t middle = (fits + end) / 2;
        if (gemm_span_fits(b, reach, columns, block, middle))
            fits = middle;
        else
            end = middle;
    }
    return fits;
}

/* Where accumulators hold one block at most, short sums serve, for as many blocks as follow. */
SIMD_INLINE void gemm_find_spans(const gemm_block *b, const int kind, uint32_t wide) {
    const uint32_t n_blocks = b->s.n_blocks, chunk = gemm_chunk_steps(b) / BLOCK_STEPS;
    const uint32_t group = b->s.group_steps / BLOCK_STEPS;
    for (uint32_t c = 0, n; c < b->n_columns; c += n) {
        n = gemm_next_columns(b->n_columns - c, wide);
        const uint16_t *reach = b->reach + (size_t)c * n_blocks * CRUMB_Q8_REACH;
        uint16_t *spans = b->spans + (size_t)c * n_blocks, *before = NULL; /* a short span, which may go on */
        for (uint32_t block = 0, end; block < n_blocks; block = end) {
            end = gemm_span_end(b, reach, n, block, chunk, group);
            const bool is_short = gemm_is_short(kind) && end == block + 1;
            if (!before || !is_short || block % chunk == 0 || block % group == 0) before = &spans[block];
            *before = (uint16_t)(end | (is_short ? GEMM_SHORT : 0));
            if (!is_short) before = NULL;
        }
    }
}

/* The block is a copy, so that compilers keep what it holds in registers. */
SIMD_INLINE void gemm_rows(gemm_block b, const int kind, const int wide, const bool has_zero, const bool has_min,
                           const gemm_groups groups) {
    const crumb_linear_args *a = b.a;
    for (b.n0 = 0; b.n0 < a->n; b.n0 += b.n_columns) {
        b.n_columns = a->n - b.n0 < b.stride ? a->n - b.n0 : (uint32_t)b.stride;
        gemm_take_columns(&b, wide);
        if (DOT_SUM_LIMIT > 0 && groups == GEMM_ANY) gemm_find_spans(&b, kind, (uint32_t)wide);
        gemm_prepare(&b);
        for (uint32_t tile = a->tile0; tile < a->tile1; tile++)
            gemm_tile(&b, tile, kind, wide, has_zero, has_min, groups);
    }
}

/* The loops of a kind: for groups of any size, for groups of 32 by what their weights have, for groups of 16. */
typedef void gemm_rows_fn(const gemm_block *b);
typedef struct gemm_loops {
    gemm_rows_fn *any, *block_zero, *block_min, *block_both, *half; /* NULL: none */
} gemm_loops;

#define GEMM_LOOP(name, kind, wide, has_zero, has_min, groups)                                                         \
    static void gemm_##name(const gemm_block *b) {                                                                     \
        gemm_rows(*b, kind, wide, has_zero, has_min, groups);                                                          \
    }
#define GEMM_KIND(name, kind)                                                                                          \
    GEMM_LOOP(name##_any, kind, gemm_wide(kind, GEMM_ANY), true, b->a->w->mins != NULL, GEMM_ANY)                      \
    GEMM_LOOP(name##_block_zero, kind, gemm_wide(kind, GEMM_BLOCKS), true, false, GEMM_BLOCKS)                         \
    GEMM_LOOP(name##_block_both, kind, gemm_wide(kind, GEMM_BLOCKS), true, true, GEMM_BLOCKS)
#define GEMM_HALF_LOOP(name, kind)                                                                                     \
    GEMM_LOOP(name##_half, kind, gemm_wide(kind, GEMM_HALVES), true, b->a->w->mins != NULL, GEMM_HALVES)

GEMM_KINDS

/* The largest operand that dot products see: 8-bit codes are two of 4 bits where accumulators are small, and of a
 * codebook's entries the smallest is subtracted. */
SIMD_INLINE uint32_t gemm_most_code(const crumb_matrix *w, int width) {
    if (w->codebook) return (1u << DOT_ENTRY_BITS) - 1;
    return gemm_parts(width) > 1 ? 15 : w->max_code;
}

/* Codes of `bits` become operands of `width` bits: the same, but for codebooks. */
static void gemm(const crumb_linear_args *a, int bits, int width, panel_fn *unpack) {
    const gemm_loops *loops = gemm_loops_of(bits, width != bits);
    const uint32_t most = crumb_gemm_block_columns(a->n, a->x.k_padded, &a->knobs);
    gemm_block b = {.a = a, .s = shape_of(a, bits), .unpack = unpack, .stride = most};
    if (width != bits) b.table = codebook_table(a->w->codebook);
    b.most_code = gemm_most_code(a->w, width);
    if (a->packed) b.s.tile_bytes = (size_t)crumb_index_lines(a->w) * CRUMB_INDEX_LINE_BYTES;
    gemm_carve(&b);
    memset(b.accs, 0, (size_t)most * CRUMB_TILE_ROWS * sizeof *b.accs);
    switch (gemm_groups_of(a->x.group)) {
    case GEMM_ANY: loops->any(&b); break;
    case GEMM_HALVES:
        if (loops->half)
            loops->half(&b);
        else
            crumb_linear_i8__ref(a); /* a byte has no halves; the registry does not ask for them */
        break;
    case GEMM_BLOCKS:
        (!a->w->mins ? loops->block_zero : zero_point(a->w) ? loops->block_both : loops->block_min)(&b);
        break;
    }
}

#define GEMM_KERNEL(name, bits, width)                                                                                 \
    void SIMD_NAME(crumb_gemm_##name##_i8)(const crumb_linear_args *a) {                                               \
        gemm(a, bits, width, panel_##name);                                                                            \
    }
#define GEMM_INSTANCE(bits)    GEMM_KERNEL(u##bits, bits, bits)
#define GEMM_CODEBOOK_INSTANCE GEMM_KERNEL(c4, 4, DOT_ENTRY_BITS)
#define GEMM_INDEX_INSTANCES                                                                                           \
    GEMM_KERNEL(b8, 1, 1)                                                                                              \
    GEMM_KERNEL(t5, 2, 2)

/* The crumb_interleave_fn of the tier. */
#define GEMM_INSTANCES                                                                                                 \
    GEMM_INSTANCE(1)                                                                                                   \
    GEMM_INSTANCE(2)                                                                                                   \
    GEMM_INSTANCE(3)                                                                                                   \
    GEMM_INSTANCE(4)                                                                                                   \
    GEMM_INSTANCE(5)                                                                                                   \
    GEMM_INSTANCE(6)                                                                                                   \
    GEMM_INSTANCE(8)                                                                                                   \
    GEMM_CODEBOOK_INSTANCE                                                                                             \
    GEMM_INDEX_INSTANCES
#define GEMM_INTERLEAVE_INSTANCE                                                                                       \
    void SIMD_NAME(crumb_interleave)(const crumb_q8 *x, unsigned bits, uint32_t n0, uint32_t n1) {                     \
        const size_t at = (size_t)n0 * x->k_padded;                                                                    \
        const int wide = gemm_wide((int)bits, gemm_groups_of(x->group));                                               \
        gemm_interleave(x->q + at, x->k_padded, n1 - n0, (uint32_t)wide, x->interleaved + at,                          \
                        x->reach + at / CRUMB_TILE_K * CRUMB_Q8_REACH);                                                \
    }
