/* Unpacking for the GEMM: a part of a tile-row's codes becomes a panel of one byte each, four k per row and step:
 * [step][parts][16 rows][4]. The dot header says what the 4 bytes are (gemm_panel): codes, or two codes of 16 bits.
 *
 * Included after a tier's simd.h.
 */
#ifndef CRUMB_CPU_LOWBIT_PANEL_H
#define CRUMB_CPU_LOWBIT_PANEL_H

#include "cpu/lowbit/panel_index.h"
#include "cpu/lowbit/split.h"

/* Unpacks steps [step0, step1) of the tile-row whose codes begin at `codes`, and fetches others into L2, `far` bytes
 * behind each line or PANEL_NEXT. `table` is a codebook's. */
typedef void panel_fn(const uint8_t *codes, uint32_t step0, uint32_t step1, vint table, size_t far, uint8_t *out);

/* One line of a codebook's codes: two steps of operands of `width` bits. Returns the end of what it wrote. */
SIMD_INLINE uint8_t *panel_entries(const uint8_t *line, vint table, int width, uint8_t *out) {
    const int parts = gemm_parts(width);
    for (int i = 0; i < 2 * parts; i++)
        for (int v = 0; v < TILE_VECTORS; v++, out += 4 * SIMD_LANES) {
            const vint entries = codebook_plane(v_load(line + v * 4 * SIMD_LANES), table, i / parts);
            v_store(out, parts == 1 ? entries : v_and(v_shift_right(entries, 8 * (i % 2)), v_broadcast(0x00ff00ff)));
        }
    return out;
}

/* A 32-block of split codes. Returns the end of what it wrote. */
SIMD_INLINE uint8_t *panel_split(const uint8_t *block, int bits, uint8_t *out) {
    for (int v = 0; v < TILE_VECTORS; v++) {
        vint codes[BLOCK_STEPS]; /* all of them before the first is written: stores end the compiler's knowledge */
        UNROLL for (int i = 0; i < BLOCK_STEPS; i++) codes[i] = split_operand(block + v * 4 * SIMD_LANES, bits, i);
        UNROLL for (int i = 0; i < BLOCK_STEPS; i++) v_store(out + i * LINE_BYTES + v * 4 * SIMD_LANES, codes[i]);
    }
    return out + BLOCK_STEPS * LINE_BYTES;
}

/* Operands become codes times mul, which are bytes: 32-bit accumulators hold their sums as well. */
SIMD_INLINE void panel_multiply(uint8_t *panel, uint32_t n_lines, int mul) {
    for (uint8_t *end = panel + (size_t)n_lines * LINE_BYTES; panel < end; panel += 4 * SIMD_LANES) {
        const vint codes = v_load(panel);
        vint product = codes;
        for (int i = 1; i < mul; i++) product = v_add(product, codes); /* no byte overflows into the next */
        v_store(panel, product);
    }
}

SIMD_INLINE void panel(const uint8_t *codes, uint32_t step0, uint32_t step1, vint table, size_t far, uint8_t *out,
                       const int bits, const int width) {
    /* What is unpacked at once: a line, one dword of each row, or a whole block. */
    const uint32_t unit_steps = is_split(bits) ? BLOCK_STEPS : 8 / (uint32_t)bits;
    const size_t unit_lines = is_split(bits) ? (size_t)bits : 1;
    far = panel_far(far, (step1 - step0) / unit_steps * unit_lines * LINE_BYTES); /* chunks and tile-rows in order */
    for (uint32_t unit = step0 / unit_steps; unit < step1 / unit_steps; unit++) {
        const uint8_t *from = codes + unit * unit_lines * LINE_BYTES;
        for (size_t i = 0; i < unit_lines; i++) _mm_prefetch((const char *)from + far + i * LINE_BYTES, _MM_HINT_T1);
        if (is_split(bits))
            out = panel_split(from, bits, out);
        else
            out = width != bits ? panel_entries(from, table, width, out) : gemm_panel(from, bits, out);
    }
}

/* A tier need not use all of them. */
#define PANEL(name, bits, width)                                                                                       \
    __attribute__((unused)) static void panel_##name(const uint8_t *codes, uint32_t step0, uint32_t step1, vint table, \
                                                     size_t far, uint8_t *out) {                                       \
        panel(codes, step0, step1, table, far, out, bits, width);                                                      \
    }
#define PANEL_OF_CODES(bits) PANEL(u##bits, bits, bits)
LOWBIT_WHOLE_WIDTHS(PANEL_OF_CODES)
LOWBIT_SPLIT_WIDTHS(PANEL_OF_CODES)
PANEL_OF_CODES(8)
PANEL(c4, 4, DOT_ENTRY_BITS)
PANEL(c4_wide, 4, CRUMB_WIDE_BITS)

/* Bytes of groups of 16, the halves of a 32-block, which alternate: of two lines the first half's become a step, and
 * the second half's the next one. Activations are in that order (gemm_columns.h). */
static void panel_u8_halves(const uint8_t *codes, uint32_t step0, uint32_t step1, vint table, size_t far,
                            uint8_t *out) {
    const vint first = v_broadcast(0x00ff00ff), second = v_broadcast((int32_t)0xff00ff00);
    (void)table;
    far = panel_far(far, (size_t)(step1 - step0) * LINE_BYTES);
    for (uint32_t step = step0; step < step1; step += 2) {
        const uint8_t *line = codes + (size_t)step * LINE_BYTES;
        uint8_t steps[2 * LINE_BYTES];
        for (size_t i = 0; i < 2; i++) _mm_prefetch((const char *)line + far + i * LINE_BYTES, _MM_HINT_T1);
        for (int at = 0; at < LINE_BYTES; at += 4 * SIMD_LANES) {
            const vint a = v_load(line + at), b = v_load(line + LINE_BYTES + at);
            v_store(steps + at, v_or(v_and(a, first), v_and(v_shift_left(b, 8), second)));
            v_store(steps + LINE_BYTES + at, v_or(v_and(v_shift_right(a, 8), first), v_and(b, second)));
        }
        for (int i = 0; i < 2; i++) out = gemm_panel(steps + i * LINE_BYTES, 8, out);
    }
}

#endif
