/* The low-bit GEMM's dot products, and how the sums of groups become floats. Included by gemm.h. */
#ifndef CRUMB_CPU_LOWBIT_GEMM_DOTS_H
#define CRUMB_CPU_LOWBIT_GEMM_DOTS_H

#include "cpu/lowbit/gemm_block.h"

/* Vector v of a step's weights. */
SIMD_INLINE vint gemm_weights(const uint8_t *panel, const int v, const int parts) {
    const int per_tile = TILE_VECTORS * parts;
    return v_load(panel + v / per_tile * GEMM_PANEL + v % per_tile * SIMD_LANES * 4);
}

/* Fetches the activations that stand where q is in the next register block, if a line begins in this step of a span,
 * whose q are step_bytes behind those of the one before: from L2 they would come later than a core's window reaches. */
SIMD_INLINE void gemm_fetch_next(const gemm_block *b, const int8_t *q, uint32_t step, const int step_bytes,
                                 const int kind, const int columns) {
    const size_t next = (size_t)columns * b->a->x.k_padded * (size_t)gemm_code_bytes(kind);
    if (step == 0 || step * (uint32_t)step_bytes / 64 > (step - 1) * (uint32_t)step_bytes / 64)
        _mm_prefetch((const char *)q + next, _MM_HINT_T0);
}

/* Accumulators that a span's steps take in turns, for each column and vector of rows. A dot product of 32 bits takes 4
 * or 5 cycles until the next one can add to its sum, and a core begins two of them a cycle: few columns' would wait. */
SIMD_INLINE int gemm_turns(const int kind, const int columns) {
    return gemm_sum_limit(kind) > 0 || columns > 3 ? 1 : columns == 1 ? 4 : 2;
}

/* With 16 registers of which a block's accumulators take 12, gcc 12 moves those from one to another and loads weights
 * again for every column (of AVX-VNNI's 254 instructions for 96 products 47 moves and 35 loads), if it may. */
SIMD_INLINE bool gemm_fills_registers(const int kind) {
    return SIMD_REGISTERS < 32 && gemm_sum_limit(kind) == 0;
}
/* Has gcc keep the twelve accumulators in a register each, at once. Clang refuses vectors that tests emulate here. */
SIMD_INLINE void gemm_pin_block(vint *acc) {
#if defined(__clang__)
    (void)acc;
#else
    __asm__ volatile(""
                     : "+v"(acc[0]), "+v"(acc[1]), "+v"(acc[2]), "+v"(acc[3]), "+v"(acc[4]), "+v"(acc[5]), "+v"(acc[6]),
                       "+v"(acc[7]), "+v"(acc[8]), "+v"(acc[9]), "+v"(acc[10]), "+v"(acc[11]));
#endif
}

/* n_steps of the panel from step0 on join the accumulators, which hold them. */
SIMD_INLINE void gemm_span(const gemm_block *b, const int8_t *q, uint32_t step0, uint32_t n_steps, const int kind,
                           const int columns, vint *acc) {
    const int parts = gemm_parts(kind), step_bytes = 4 * gemm_code_bytes(kind);
    const uint32_t unit = gemm_unit_steps(kind);
    const uint8_t *panel = b->panel + (size_t)step0 * (size_t)parts * LINE_BYTES;
    const int turns = gemm_turns(kind, columns), n_acc = columns * GEMM_VECTORS;
    vint others[GEMM_REGISTER_COLUMNS * GEMM_VECTORS]; /* those of all turns but the first */
    UNROLL for (int i = 0; i < (turns - 1) * n_acc; i++) others[i] = v_zero();
    q += (size_t)step0 * (size_t)(columns * step_bytes);
    for (uint32_t step = 0; step < n_steps; step += unit) { /* spans are whole units */
        UNROLL for (uint32_t u = 0; u < unit; u++, panel += parts * LINE_BYTES, q += columns * step_bytes) {
            vint weights[GEMM_VECTORS * 2];
            gemm_fetch_next(b, q, u, columns * step_bytes, kind, columns);
            UNROLL for (int v = 0; v < GEMM_VECTORS * parts; v++) weights[v] = gemm_weights(panel, v, parts);
            const int turn = (int)u % turns;
            vint *sums = turn ? others + (turn - 1) * n_acc : acc;
            UNROLL for (int i = 0; i < columns * parts; i++) {
                gemm_part(&sums[i / parts * GEMM_VECTORS], &weights[i % parts * GEMM_VECTORS], q + i * 4, kind,
                          GEMM_VECTORS);
                if (gemm_fills_registers(kind)) v_forget(); /* what may have changed is not loaded again */
            }
            if (gemm_fills_registers(kind) && n_acc == 12) gemm_pin_block(acc);
        }
    }
    UNROLL for (int i = 0; i < (turns - 1) * n_acc; i++) acc[i % n_acc] = v_add(acc[i % n_acc], others[i]);
}

/* What a group's sums begin with: 32-bit accumulators take the zero point and the bias along, which saves additions at
 * the end. `offsets` are those of the group and the columns; without a zero point there is a bias. */
SIMD_INLINE void gemm_begin(const int32_t *offsets, const int kind, const int columns, const bool has_zero,
                            vint *sums) {
    const bool narrow = gemm_sum_limit(kind) > 0;
    UNROLL for (int i = 0; i < columns * GEMM_VECTORS; i++) sums[i] = !has_zero ? v_broadcast(V_F32_BIAS)
                                                                      : narrow  ? v_zero()
                                                                               : v_broadcast(offsets[i / GEMM_VECTORS]);
}

/* With 32 registers, floats of groups of a 32-block and of half of one stay in registers for a chunk. */
SIMD_INLINE bool gemm_holds_floats(void) {
    return SIMD_REGISTERS >= 32;
}
SIMD_INLINE void gemm_take_floats(const gemm_block *b, uint32_t c0, const int columns, vflt *held) {
    const float *accs = b->accs + (size_t)c0 * GEMM_ROWS;
    UNROLL for (int i = 0; i < columns * GEMM_VECTORS; i++) held[i] = v_load_f32(accs + i * SIMD_LANES);
}
SIMD_INLINE void gemm_leave_floats(const gemm_block *b, uint32_t c0, const int columns, const vflt *held) {
    float *accs = b->accs + (size_t)c0 * GEMM_ROWS;
    UNROLL for (int i = 0; i < columns * GEMM_VECTORS; i++) v_store_f32(accs + i * SIMD_LANES, held[i]);
}

/* Group g is complete: its sums join the float accumulators of `columns` columns from column c0 on: those that are held
 * in registers, or with NULL those in memory. group0 is the chunk's first group. Types with mins have no zero point, so
 * an instance does one of the two. */
SIMD_INLINE void gemm_fold(const gemm_block *b, uint32_t c0, uint32_t g, uint32_t group0, const vint *sums,
                           const int kind, const int columns, const bool has_zero, const bool has_min,
                           const bool biased, vflt *held) {
    const size_t at = g * b->stride + c0;
    const float *sx = b->sx + at, *sx_qsums = b->sx_qsums + at;
    const float *mins = b->mins + (size_t)(g - group0) * GEMM_ROWS;
    float *accs = b->accs + (size_t)c0 * GEMM_ROWS;
    __asm__("" : "+r"(accs)); /* else gcc keeps a pointer for each vector, on the stack */
    vflt scales[GEMM_VECTORS];
    UNROLL for (int v = 0; v < GEMM_VECTORS; v++) scales[v] =
        v_load_f32(b->scales + (size_t)(g - group0) * GEMM_ROWS + v * SIMD_LANES);
    UNROLL for (int c = 0; c < columns; c++) {
        vflt scale_x = v_broadcast_f32(sx[c]);
        const vint offset = v_broadcast(b->offsets[at + (size_t)c]);
        UNROLL for (int v = 0; v < GEMM_VECTORS; v++) {
            float *acc = accs + c * GEMM_ROWS + v * SIMD_LANES;
            vint exact = sums[c * GEMM_VECTORS + v];
            if (gemm_sum_limit(kind) > 0 && has_zero) exact = v_add(exact, offset);
            vflt sum = v_fma_f32(scales[v], v_mul_f32(scale_x, biased ? v_biased_to_f32(exact) : v_to_f32(exact)),
                                 held ? held[c * GEMM_VECTORS + v] : v_load_f32(acc));
            if (has_min) sum = v_fma_f32(v_load_f32(mins + v * SIMD_LANES), v_broadcast_f32(sx_qsums[c]), sum);
            if (held)
                held[c * GEMM_VECTORS + v] = sum;
            else
                v_store_f32(acc, sum);
        }
    }
}

/* Accumulators of 16 bits join the sums. */
SIMD_INLINE void gemm_add_sums(const gemm_block *b, const vint *acc, const int columns, vint *sums) {
    UNROLL for (int i = 0; i < columns * GEMM_VECTORS; i++) sums[i] = v_add(sums[i], gemm_sum(acc[i], b->a->w->mul));
}

/* One span of `columns` columns joins their sums: n_steps of the panel from step0 on. */
SIMD_INLINE void gemm_sums(const gemm_block *b, const int8_t *q, uint32_t step0, uint32_t n_steps, const int kind,
                           const int columns, vint *sums) {
    if (gemm_sum_limit(kind) == 0) {
        gemm_span(b, q, step0, n_steps, kind, columns, sums);
        return;
    }
    vint acc[GEMM_REGISTER_COLUMNS * GEMM_VECTORS];
    UNROLL for (int i = 0; i < columns * GEMM_VECTORS; i++) acc[i] = v_zero();
    gemm_span(b, q, step0, n_steps, kind, columns, acc);
    gemm_add_sums(b, acc, columns, sums);
}

/* The same where accumulators hold less than a 32-block, for any number of steps: two steps of a column at a time are
 * summed and widened while their codes stay in registers, and only the sums wait. */
SIMD_INLINE void gemm_short_sums(const gemm_block *b, const int8_t *q, uint32_t step0, uint32_t step1,
                                 const int columns, vint *sums) {
    const uint8_t *panel = b->panel + (size_t)step0 * LINE_BYTES;
    q += (size_t)step0 * (size_t)columns * 4;
    for (uint32_t step = step0; step < step1; step += 2, panel += 2 * LINE_BYTES, q += columns * 8) {
        vint weights[2 * GEMM_VECTORS];
        UNROLL for (int i = 0; i < 2 * GEMM_VECTORS; i++) weights[i] =
            gemm_weights(panel + i / GEMM_VECTORS * LINE_BYTES, i % GEMM_VECTORS, 1);
        UNROLL for (int c = 0; c < columns; c++) {
            vint q0 = v_broadcast4(q + c * 4), q1 = v_broadcast4(q + (columns + c) * 4);
            UNROLL for (int v = 0; v < GEMM_VECTORS; v++) {
                vint acc = dot_step(dot_step(v_zero(), weights[v], q0), weights[GEMM_VECTORS + v], q1);
                vint *sum = &sums[c * GEMM_VECTORS + v];
                *sum = v_pin(v_add(*sum, gemm_sum(acc, b->a->w->mul)));
            }
        }
    }
}

/* Groups of one 32-block, whose sums never leave the registers: n_groups from the chunk's first, group0, on. */
SIMD_INLINE void gemm_whole_groups(const gemm_block *b, uint32_t c0, const int8_t *q, uint32_t group0,
                                   uint32_t n_groups, const int kind, const int columns, const bool has_zero,
                                   const bool has_min) {
    const uint32_t unit = gemm_unit_steps(kind);
    vflt floats[GEMM_REGISTER_COLUMNS * GEMM_VECTORS], *held = gemm_holds_floats() ? floats : NULL;
    if (held) gemm_take_floats(b, c0, columns, held);
    for (uint32_t g = 0; g < n_groups; g++) {
        vint sums[GEMM_REGISTER_COLUMNS * GEMM_VECTORS];
        gemm_begin(b->offsets + (group0 + g) * b->stride + c0, kind, columns, has_zero, sums);
        UNROLL for (uint32_t step = 0; step < BLOCK_STEPS; step += unit)
            gemm_sums(b, q, g * BLOCK_STEPS + step, unit, kind, columns, sums);
        gemm_fold(b, c0, group0 + g, group0, sums, kind, columns, has_zero, has_min, true, held);
        if (!held) v_forget(); /* floats kept in registers would push out the accumulators of the dot products */
    }
    if (held) gemm_leave_floats(b, c0, columns, held);
}

/* A part of group g of 16 joins the accumulators: steps `part` to part + hold - 1 of its four, every other one of a
 * 32-block; or, of 8-bit codes whose steps have two parts, of its four pairs of steps: one part belongs to either half.
 */
SIMD_INLINE void gemm_half_span(const gemm_block *b, const int8_t *q, uint32_t g, uint32_t part, const uint32_t hold,
                                const int kind, const int columns, vint *acc) {
    const int parts = gemm_parts(kind), step_bytes = 4 * gemm_code_bytes(kind);
    const bool by_part = kind == 8 && parts > 1;
    const size_t half = g % 2, step0 = (size_t)(g / 2) * BLOCK_STEPS + (by_part ? 0 : half);
    const uint8_t *panel = b->panel + step0 * (size_t)parts * LINE_BYTES + (by_part ? half * LINE_BYTES : 0);
    q += step0 * (size_t)(columns * step_bytes) + (by_part ? half * 4 : 0);
    UNROLL for (uint32_t i = part * (uint32_t)parts; i < (part + hold) * (uint32_t)parts; i++) {
        const size_t step = by_part ? i : i / (uint32_t)parts * 2; /* from step0 on, by constants */
        const size_t in_step = by_part ? 0 : i % (uint32_t)parts;
        vint weights[GEMM_VECTORS];
        UNROLL for (int v = 0; v < GEMM_VECTORS; v++) weights[v] =
            gemm_weights(panel + (step * (size_t)parts + in_step) * LINE_BYTES, v, parts);
        UNROLL for (int c = 0; c < columns; c++)
            gemm_part(&acc[c * GEMM_VECTORS], weights,
                      q + (step * (size_t)columns + (size_t)c) * (size_t)step_bytes + in_step * 4, kind, GEMM_VECTORS);
    }
}

/* Groups of 16: n_blocks of two from the chunk's first group, group0, on. */
SIMD_INLINE void gemm_half_groups(const gemm_block *b, uint32_t c0, const int8_t *q, uint32_t group0, uint32_t n_blocks,
                                  const int kind, const int columns, const bool has_min) {
    const uint32_t hold = (uint32_t)half_hold_steps(kind);
    vflt floats[GEMM_REGISTER_COLUMNS * GEMM_VECTORS], *held = gemm_holds_floats() ? floats : NULL;
    if (held) gemm_take_floats(b, c0, columns, held);
    for (uint32_t g = 0; g < 2 * n_blocks; g++) {
        vint sums[GEMM_REGISTER_COLUMNS * GEMM_VECTORS];
        gemm_begin(b->offsets + (group0 + g) * b->stride + c0, kind, columns, true, sums);
        UNROLL for (uint32_t part = 0; part < BLOCK_STEPS / 2; part += hold) {
            if (gemm_sum_limit(kind) == 0) {
                gemm_half_span(b, q, g, part, hold, kind, columns, sums);
                continue;
            }
            vint acc[GEMM_REGISTER_COLUMNS * GEMM_VECTORS];
            UNROLL for (int i = 0; i < columns * GEMM_VECTORS; i++) acc[i] = v_zero();
            gemm_half_span(b, q, g, part, hold, kind, columns, acc);
            gemm_add_sums(b, acc, columns, sums);
        }
        gemm_fold(b, c0, group0 + g, group0, sums, kind, columns, true, has_min, true, held);
        if (!held) v_forget();
    }
    if (held) gemm_leave_floats(b, c0, columns, held);
}

/* The block after the span that begins at `step`, with GEMM_SHORT where that is so. Without a limit: `end`. */
SIMD_INLINE uint32_t gemm_span_at(const gemm_block *b, uint32_t c0, uint32_t step, uint32_t end, const int kind) {
    if (gemm_sum_limit(kind) == 0) return end / BLOCK_STEPS;
    return b->spans[(size_t)c0 * b->s.n_blocks + step / BLOCK_STEPS];
}

/* A span of a group: steps [step, end), behind steps of the group whose sums wait in memory (`goes_on`) or not, and the
 * group's last (`ends`) or not. Beside as many accumulators of 16 bits there are no registers for sums, so these are
 * read when the span is over. */
typedef struct gemm_part_of_group {
    uint32_t g, group0; /* the group, and the chunk's first */
    uint32_t step, end; /* from the chunk's first on */
    bool goes_on, ends;
} gemm_part_of_group;

SIMD_INLINE void gemm_group_span(const gemm_block *b, uint32_t c0, const int8_t *q, const gemm_part_of_group s,
                                 const int kind, const int columns, const bool is_short, const bool has_min) {
    const bool narrow = gemm_sum_limit(kind) > 0 && !is_short;
    int32_t *saved = b->sums + (size_t)c0 * GEMM_ROWS;
    vint sums[GEMM_REGISTER_COLUMNS * GEMM_VECTORS];
    if (narrow || !s.goes_on)
        gemm_begin(b->offsets + s.g * b->stride + c0, kind, columns, true, sums);
    else
        UNROLL for (int i = 0; i < columns * GEMM_VECTORS; i++) sums[i] = v_load(saved + i * SIMD_LANES);
    if (is_short)
        gemm_short_sums(b, q, s.step, s.end, columns, sums);
    else
        gemm_span(b, q, s.step, s.end - s.step, kind, columns, sums);
    if (narrow) UNROLL for (int i = 0; i < columns * GEMM_VECTORS; i++) sums[i] = gemm_sum(sums[i], b->a->w->mul);
    if (narrow && s.goes_on)
        UNROLL for (int i = 0; i < columns * GEMM_VECTORS; i++) sums[i] =
            v_add(sums[i], v_load(saved + i * SIMD_LANES));
    if (s.ends && b->biased)
        gemm_fold(b, c0, s.g, s.group0, sums, kind, columns, true, has_min, true, NULL);
    else if (s.ends)
        gemm_fold(b, c0, s.g, s.group0, sums, kind, columns, true, has_min, false, NULL);
    else
        UNROLL for (int i = 0; i < columns * GEMM_VECTORS; i++) v_store(saved + i * SIMD_LANES, sums[i]);
}

/* Groups of more than a 32-block. */
SIMD_INLINE void gemm_long_groups(const gemm_block *b, uint32_t c0, const int8_t *q, uint32_t step0, uint32_t step1,
                                  const int kind, const int columns, const bool has_min) {
    const uint32_t group_steps = b->s.group_steps, group0 = step0 / group_steps;
    uint32_t g = group0;
    for (uint32_t step = step0, end; step < step1; step = end) {
        const uint32_t group_end = (g + 1) * group_steps;
        const uint32_t span = gemm_span_at(b, c0, step, group_end < step1 ? group_end : step1, kind);
        end = (span & ~(uint32_t)GEMM_SHORT) * BLOCK_STEPS;
        const gemm_part_of_group part = {.g = g,
                                         .group0 = group0,
                                         .step = step - step0,
                                         .end = end - step0,
                                         .goes_on = step > g * group_steps,
                                         .ends = end == group_end};
        if (gemm_is_short(kind) && span & GEMM_SHORT)
            gemm_group_span(b, c0, q, part, kind, columns, true, has_min);
        else
            gemm_group_span(b, c0, q, part, kind, columns, false, has_min);
        g += part.ends;
        v_forget();
    }
}

/* Steps [step0, step1) of K, which the panel holds, for `columns` columns from c0 of the block on. */
SIMD_INLINE void gemm_columns(const gemm_block *b, uint32_t c0, uint32_t step0, uint32_t step1, const int kind,
                              const int columns, const bool has_zero, const bool has_min, const gemm_groups groups) {
    const size_t code_bytes = (size_t)gemm_code_bytes(kind);
    const int8_t *q = b->q + ((size_t)c0 * b->a->x.k_padded + (size_t)step0 * (size_t)columns * 4) * code_bytes;
    if (groups == GEMM_HALVES)
        gemm_half_groups(b, c0, q, step0 / BLOCK_STEPS * 2, (step1 - step0) / BLOCK_STEPS, kind, columns, has_min);
    else if (groups == GEMM_BLOCKS)
        gemm_whole_groups(b, c0, q, step0 / BLOCK_STEPS, (step1 - step0) / BLOCK_STEPS, kind, columns, has_zero,
                          has_min);
    else
        gemm_long_groups(b, c0, q, step0, step1, kind, columns, has_min);
}

#endif
