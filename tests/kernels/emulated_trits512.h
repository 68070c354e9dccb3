/* The operations of cpu/avx512vbmi/trits512.h, byte by byte. */
#ifndef CRUMB_TESTS_EMULATED_TRITS512_H
#define CRUMB_TESTS_EMULATED_TRITS512_H

SIMD_INLINE vint trits_by_row(const uint8_t bytes[64]) {
    uint8_t rows[64];
    for (int row = 0; row < 16; row++)
        for (int i = 0; i < 4; i++) rows[4 * row + i] = bytes[16 * i + row];
    return v_load(rows);
}
SIMD_INLINE vint trits_load(const uint8_t *p) {
    return trits_by_row(p);
}
SIMD_INLINE vint trits_load_half(const uint8_t *p) {
    uint8_t bytes[64] = {0};
    memcpy(bytes, p, 32);
    return trits_by_row(bytes);
}
SIMD_INLINE vint trits_find(const vint table[2], vint indices) {
    uint8_t entries[128], found[64];
    v_store(entries, table[0]);
    v_store(entries + 64, table[1]);
    v_store(found, indices);
    for (int i = 0; i < 64; i++) found[i] = entries[found[i] & 127];
    return v_load(found);
}
SIMD_INLINE vint trits_mirror(vint values, vint most, vint signs) {
    uint8_t value[64], mirrored[64], sign[64];
    v_store(value, values);
    v_store(mirrored, most);
    v_store(sign, signs);
    for (int i = 0; i < 64; i++)
        if (sign[i] & 128) value[i] = (uint8_t)(mirrored[i] - value[i]);
    return v_load(value);
}

#endif
