/* Codes of 3, 5 and 6 bits, which a tile holds as a base and an extra part (host/lowbit/tile.h): the two are joined in
 * registers to one operand per plane of the base, so that there are as many dot products as for the base alone.
 * Included after a tier's simd.h. */
#ifndef CRUMB_CPU_LOWBIT_SPLIT_H
#define CRUMB_CPU_LOWBIT_SPLIT_H

#include "cpu/lowbit/linear.h"

SIMD_INLINE bool is_split(int bits) {
    return (int)crumb_tile_base_bits((unsigned)bits) != bits;
}

/* A shift right by n or, where n is negative, left; what crosses a byte is masked away by the caller. */
SIMD_INLINE vint split_shift(vint a, int n) {
    return n < 0 ? v_shift_left(a, -n) : v_shift_right(a, n);
}

/* The operand of step 0..7 of a 32-block: a code in each byte, of the rows whose dwords begin at `block`. */
SIMD_INLINE vint split_operand(const uint8_t *block, const int bits, const int step) {
    const int base_bits = (int)crumb_tile_base_bits((unsigned)bits), extra_bits = bits - base_bits;
    const int planes = 8 / base_bits, d = step / planes, plane = step % planes, per_extra = base_bits / extra_bits;
    vint base = v_load(block + d * LINE_BYTES), extra = v_load(block + (base_bits + d / per_extra) * LINE_BYTES);
    const int down = extra_bits * (d % per_extra) - base_bits; /* from the extra bits to where they are wanted */
    if (bits == 3) { /* planes p and p + 2 are joined at once, in the nibbles of a byte */
        const int pair = plane % 2 * 2;
        vint low = v_and(v_shift_right(base, pair), v_broadcast_bytes(0x33));
        vint codes = v_or(low, v_and(split_shift(extra, pair + down), v_broadcast_bytes(0x44)));
        return v_and(v_shift_right(codes, plane / 2 * 4), v_broadcast_bytes(15));
    }
    vint low = v_and(v_shift_right(base, base_bits * plane), v_broadcast_bytes((1 << base_bits) - 1));
    vint high = split_shift(extra, base_bits * plane + down);
    return v_or(low, v_and(high, v_broadcast_bytes(((1 << extra_bits) - 1) << base_bits)));
}

/* The same for codes of any width, and of codebooks, whose operands have another one. */
SIMD_INLINE vint block_operand(const uint8_t *block, const int bits, const int width, vint table, const int step) {
    if (is_split(bits)) return split_operand(block, bits, step);
    const int planes = 8 / bits;
    const vint packed = v_load(block + step / planes * LINE_BYTES);
    if (width != bits) return codebook_plane(packed, table, step % planes);
    return v_and(v_shift_right(packed, bits * (step % planes)), v_broadcast_bytes((1 << bits) - 1));
}

#endif
