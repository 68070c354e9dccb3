/* GEMM: many rows of activations, bound by the dot products.
 *
 * A tile-row's codes are unpacked once into a panel of one byte each (panel.h), which stays in L1 while it meets every
 * column (row of activations); so the inner loop has no unpacking: two loads of weights, one broadcast per column, one
 * dot product per vector and column. The panel spans a chunk of K; float and integer sums of all columns wait in memory
 * between chunks, in the one order that cpu/kernels.h fixes. Columns are taken in blocks whose activations stay in L2
 * while all tile-rows pass. How long a chunk and how wide a block is follows from the machine's caches (gemm_shape.h).
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
 * looked up while they are unpacked, and from there on are operands of DOT_ENTRY_BITS (of CRUMB_WIDE_BITS where
 * those are too few).
 */
#include "cpu/lowbit/gemm_columns.h"
#include "cpu/lowbit/gemm_dots.h"

/* The lines of y (and of what is added to it) that a strip's finished columns go to: too far apart for the hardware to
 * foresee. */
SIMD_INLINE void gemm_prefetch_out(const gemm_block *b, uint32_t tile, uint32_t c0, uint32_t columns) {
    const crumb_linear_args *a = b->a;
    for (uint32_t n = b->n0 + c0; n < b->n0 + c0 + columns; n++) {
        const size_t m = (size_t)tile * CRUMB_TILE_ROWS;
        for (size_t row = m; row < m + GEMM_ROWS; row += CRUMB_TILE_ROWS) {
            __builtin_prefetch(a->y + n * a->y_stride + row, 1);
            if (a->add) __builtin_prefetch(a->add + n * a->add_stride + row, 0);
        }
    }
}

/* Rows that are all there, without bias and other factors than the activations': what most strips are. */
SIMD_INLINE void gemm_finish_whole(const gemm_block *b, size_t m, uint32_t c0, uint32_t columns) {
    const crumb_linear_args *a = b->a;
    float *acc = b->accs + (size_t)c0 * GEMM_ROWS;
    for (uint32_t n = b->n0 + c0; n < b->n0 + c0 + columns; n++, acc += GEMM_ROWS) {
        float *y = a->y + n * a->y_stride + m;
        UNROLL for (uint32_t v = 0; v < GEMM_VECTORS; v++) {
            vflt sum = v_load_f32(acc + v * SIMD_LANES);
            v_store_f32(acc + v * SIMD_LANES, v_zero_f32());
            if (a->x.row_scale) sum = v_mul_f32(sum, v_broadcast_f32(a->x.sx[n]));
            if (a->add) sum = v_add_f32(sum, v_load_f32(a->add + n * a->add_stride + m + v * SIMD_LANES));
            v_store_f32(y + v * SIMD_LANES, sum);
        }
    }
}

/* The accumulators are left as zeros, for the next strip. Rows from m1 on are not this thread's, or not there. */
SIMD_INLINE void gemm_finish(const gemm_block *b, uint32_t tile, uint32_t c0, uint32_t columns) {
    const uint32_t end = b->a->tile1 * CRUMB_TILE_ROWS, m1 = end < b->a->w->m ? end : b->a->w->m;
    const uint32_t m0 = tile * CRUMB_TILE_ROWS;
    if (m0 + GEMM_ROWS <= m1 && !b->a->bias && b->a->out_scale == 1.0f) {
        gemm_finish_whole(b, m0, c0, columns);
        return;
    }
    for (uint32_t c = c0; c < c0 + columns; c++)
        for (uint32_t v = 0; v < GEMM_VECTORS; v++) {
            const uint32_t m = m0 + v * SIMD_LANES;
            float *acc = b->accs + c * GEMM_ROWS + v * SIMD_LANES;
            if (m < m1) finish_rows(b->a, b->n0 + c, m, v_load_f32(acc));
            v_store_f32(acc, v_zero_f32());
        }
}

/* A chunk of a strip, the last one with the way out. */
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

/* ---- strips and blocks of columns -------------------------------------------------------------------------- */

/* Converts the scales and mins of the groups that begin or go on in steps [step0, step1) of a tile-row, the one of the
 * strip whose rows begin at row0. The next strip's are fetched into L2: they are met too seldom for the hardware. */
SIMD_INLINE void gemm_take_scales(const gemm_block *b, uint32_t tile, uint32_t row0, uint32_t step0, uint32_t step1) {
    const crumb_linear_args *a = b->a;
    const uint32_t group_steps = b->s.group_steps, group0 = step0 / group_steps;
    const size_t scale_bytes = CRUMB_TILE_ROWS * b->s.scale_bytes, next = GEMM_TILES * b->s.n_scales * scale_bytes;
    const tile_scales scales = scales_of_tile(a, &b->s, tile);
    tile_scales mins = scales;
    if (a->w->mins) mins = mins_of_tile(a, &b->s, tile);
    for (uint32_t g = group0; g * group_steps < step1; g++) {
        const uint32_t from = g / b->s.scale_groups;
        size_t to = (size_t)(g - group0) * GEMM_ROWS + row0;
        _mm_prefetch((const char *)scales.scales + from * scale_bytes + next, _MM_HINT_T1);
        if (a->w->mins) _mm_prefetch((const char *)mins.scales + from * scale_bytes + next, _MM_HINT_T1);
        for (int v = 0; v < TILE_VECTORS; v++, to += SIMD_LANES) {
            v_store_f32(b->scales + to, load_scale(&scales, &b->s, from, v));
            if (a->w->mins) v_store_f32(b->mins + to, load_scale(&mins, &b->s, from, v));
        }
    }
}

/* Where a strip has fewer tile-rows than there is room for, what the rest of it computes is not used. */
SIMD_INLINE void gemm_strip(const gemm_block *b, uint32_t tile, const int kind, const int wide, const bool has_zero,
                            const bool has_min, const gemm_groups groups) {
    const uint32_t n_steps = b->s.n_blocks * BLOCK_STEPS, chunk = b->chunk_steps;
    for (uint32_t step = 0; step < n_steps; step += chunk) {
        uint32_t end = step + chunk < n_steps ? step + chunk : n_steps;
        for (uint32_t i = 0; i < GEMM_TILES && tile + i < b->a->tile1; i++) {
            b->unpack(codes_of_tile(b->a, &b->s, tile + i), step, end, b->table, b->far,
                      b->panel + (size_t)i * GEMM_PANEL);
            if (gemm_sum_limit(kind) == 0 && b->a->w->mul != 1)
                panel_multiply(b->panel + (size_t)i * GEMM_PANEL, (end - step) * (uint32_t)gemm_parts(kind),
                               b->a->w->mul);
            gemm_take_scales(b, tile + i, i * CRUMB_TILE_ROWS, step, end);
        }
        gemm_all_columns(b, tile, step, end, kind, wide, has_zero, has_min, groups);
    }
}

/* The parts of the thread's scratch, in the sizes of crumb_gemm_scratch_bytes. */
SIMD_INLINE void gemm_carve(gemm_block *b, const int code_bytes) {
    const size_t strip = GEMM_ROWS * 4, per_group = b->stride * b->s.n_groups * 4;
    uint8_t *p = b->a->scratch;
    b->local_q = (int8_t *)p;
    p += b->stride * b->a->x.k_padded * (size_t)code_bytes;
    b->panel = p;
    p += GEMM_PANEL * GEMM_MAX_PANELS;
    b->scales = (float *)(void *)p;
    b->mins = (float *)(void *)(p + GEMM_CHUNK_GROUPS * strip);
    p += GEMM_CHUNK_GROUPS * strip * 2;
    b->sums = (int32_t *)(void *)p;
    b->accs = (float *)(void *)(p + b->stride * strip);
    p += b->stride * strip * 2;
    b->sx = (float *)(void *)p;
    b->offsets = (int32_t *)(void *)(p + per_group);
    b->sx_qsums = (float *)(void *)(p + 2 * per_group);
    p += 3 * per_group;
    b->local_reach = (uint16_t *)(void *)p;
    b->spans = b->local_reach + b->stride * b->s.n_blocks * CRUMB_Q8_REACH;
}

/* The block is a copy, so that compilers keep what it holds in registers. */
SIMD_INLINE void gemm_rows(gemm_block b, const int kind, const int wide, const bool has_zero, const bool has_min,
                           const gemm_groups groups) {
    const crumb_linear_args *a = b.a;
    for (b.n0 = 0; b.n0 < a->n; b.n0 += b.n_columns) {
        b.n_columns = a->n - b.n0 < b.stride ? a->n - b.n0 : (uint32_t)b.stride;
        gemm_take_columns(&b, kind, wide);
        if (gemm_sum_limit(kind) > 0 && groups == GEMM_ANY) gemm_find_spans(&b, kind, (uint32_t)wide);
        gemm_prepare(&b);
        for (uint32_t tile = a->tile0; tile < a->tile1; tile += GEMM_TILES)
            gemm_strip(&b, tile, kind, wide, has_zero, has_min, groups);
    }
}

/* The loops of a kind: for groups of any size, for groups of 32 and of 16 by what their weights have. */
typedef void gemm_rows_fn(const gemm_block *b);
typedef struct gemm_loops {
    gemm_rows_fn *any, *block_zero, *block_min, *block_both, *half, *half_min;
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
    GEMM_LOOP(name##_half, kind, gemm_wide(kind, GEMM_HALVES), true, false, GEMM_HALVES)                               \
    GEMM_LOOP(name##_half_min, kind, gemm_wide(kind, GEMM_HALVES), true, true, GEMM_HALVES)

GEMM_KINDS

/* The largest operand that dot products see: of a codebook's entries the smallest is subtracted. */
SIMD_INLINE uint32_t gemm_most_code(const crumb_matrix *w) {
    return w->codebook ? (1u << DOT_ENTRY_BITS) - 1 : w->max_code;
}

/* Whether no group's sum is too large for a bias: weights are integers of 9 bits at most, so those of up to 128 are
 * small enough. A block's always is, and its loops know. */
SIMD_INLINE bool gemm_has_small_sums(const crumb_matrix *w, const shape *s) {
    int low = crumb_matrix_code_value(w, 0), high = crumb_matrix_code_value(w, w->max_code);
    if (w->codebook) {
        const crumb_codebook_range range = crumb_codebook_get_range(w->codebook);
        low = range.low;
        high = range.high;
    }
    const uint64_t most = (uint64_t)(-low > high ? -low : high);
    return most * 128 * s->group_steps * 4 < V_F32_BIAS_RANGE;
}

/* Codes of `bits` become operands of `width` bits: the same, but for codebooks. */
static void gemm(const crumb_linear_args *a, int bits, int width, panel_fn *unpack) {
    const gemm_loops *loops = gemm_loops_of(width);
    const int code_bytes = gemm_code_bytes(width);
    const uint32_t most = crumb_gemm_block_columns(a->n, a->x.k_padded * (uint32_t)code_bytes, &a->knobs);
    gemm_block b = {.a = a, .s = shape_of(a, bits), .unpack = unpack, .stride = most};
    b.most_code = gemm_most_code(a->w);
    b.chunk_steps = crumb_gemm_chunk_steps(b.s.n_blocks * BLOCK_STEPS, b.s.group_steps,
                                           (uint32_t)(GEMM_TILES * gemm_parts(width)), unpack == panel_t5, &a->knobs);
    if (a->effect) {
        *a->effect = (crumb_cpu_knobs){
            .far_kb = a->knobs.far_kb, .columns = most, .steps = b.chunk_steps, .share = a->knobs.share};
        return;
    }
    b.far = a->knobs.far_kb == 1 ? 1 : (size_t)a->knobs.far_kb << 10; /* a byte ahead is what is read anyway */
    if (width != bits) b.table = codebook_table(a->w->codebook);
    const gemm_groups groups = gemm_groups_of(a->x.group);
    b.biased = gemm_has_small_sums(a->w, &b.s);
    if (gemm_order_of(bits, groups) == GEMM_BYTE_HALVES) b.unpack = panel_u8_halves;
    if (a->packed) b.s.tile_bytes = (size_t)crumb_index_lines(a->w) * CRUMB_INDEX_LINE_BYTES;
    gemm_carve(&b, code_bytes);
    memset(b.accs, 0, (size_t)most * GEMM_ROWS * sizeof *b.accs);
    switch (groups) {
    case GEMM_ANY: loops->any(&b); break;
    case GEMM_HALVES: (a->w->mins ? loops->half_min : loops->half)(&b); break;
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
    LOWBIT_WHOLE_WIDTHS(GEMM_INSTANCE)                                                                                 \
    LOWBIT_SPLIT_WIDTHS(GEMM_INSTANCE)                                                                                 \
    GEMM_INSTANCE(8)                                                                                                   \
    GEMM_CODEBOOK_INSTANCE                                                                                             \
    GEMM_INDEX_INSTANCES
#define GEMM_INTERLEAVE_INSTANCE                                                                                       \
    void SIMD_NAME(crumb_interleave)(const crumb_q8 *x, unsigned bits, uint32_t n0, uint32_t n1) {                     \
        const size_t at = (size_t)n0 * x->k_padded, code_bytes = (size_t)gemm_code_bytes((int)bits);                   \
        const gemm_groups groups = gemm_groups_of(x->group);                                                           \
        const uint32_t wide = (uint32_t)gemm_wide((int)bits, groups);                                                  \
        uint16_t *reach = x->reach + at / CRUMB_TILE_K * CRUMB_Q8_REACH;                                               \
        gemm_interleave(x->q + at, x->k_padded, n1 - n0, wide, gemm_order_of((int)bits, groups),                       \
                        x->interleaved + at * code_bytes, reach);                                                      \
    }
