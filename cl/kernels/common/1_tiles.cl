/* common.cl: weights in tiles, the order of activations that suits them, and scales. */

#ifndef BITS
#define BITS 0
#endif
#if BITS == 3
#define BASE 2
#elif BITS == 5 || BITS == 6
#define BASE 4
#elif BITS == 0
#define BASE 8
#else
#define BASE BITS
#endif
#define EXTRA     (BITS ? BITS - BASE : 0)
#define PLANES    (8 / BASE)  /* codes of a byte of a base dword */
#define PER_DWORD (32 / BASE) /* codes of a base dword */
#define BASE_MASK (BASE == 1 ? 0x01010101u : BASE == 2 ? 0x03030303u : BASE == 4 ? 0x0f0f0f0fu : 0xffffffffu)

/* The k within its 32-block of linear index L. */
static uint k_of_linear(uint linear) {
    return 16 * (linear % 2) + linear / 2;
}
static uint linear_of_k(uint k) {
    return 2 * (k % 16) + k / 16;
}

/* Activations are stored in an order that suits the weights. Byte j of int i = dword * planes + plane of a 32-block is
 * this k:
 * -D X_ORDER=b    plane order for weights of b bits, [dword][plane][4 bytes]; BITS where left out. For 8 that is linear
 *                 order, which is what matrix instructions want for most widths
 * -D X_ORDER=0    rising k
 * -D X_PAIRS=0|1  1: of two 32-blocks the second and the third 16 bytes change places */
#ifndef X_ORDER
#define X_ORDER BITS
#endif
#ifndef X_PAIRS
#define X_PAIRS 0
#endif
#if X_ORDER == 0
static uint k_of_byte(uint i, uint j) {
    return 4 * i + j;
}
#else
#define ORDER_PLANES (X_ORDER == 8 ? 1 : PLANES)
static uint k_of_byte(uint i, uint j) {
    return k_of_linear(4 * ORDER_PLANES * (i / ORDER_PLANES) + ORDER_PLANES * j + i % ORDER_PLANES);
}
#endif
/* Where X_PAIRS puts int i of a row. */
static uint place_of_int(uint i) {
    return X_PAIRS ? (i & ~12u) | (i & 4) << 1 | (i & 8) >> 1 : i;
}

#if BITS
/* The code of a row at linear index L; `tile` points to the row's lane. */
static uint tile_code(global const uint *tile, uint linear) {
    uint d = linear / PER_DWORD, at = linear % PER_DWORD * BASE;
    uint code = tile[d * TILE_ROWS] >> at & ((1u << BASE) - 1);
#if BITS == 3 || BITS == 5 || BITS == 6
    uint high = tile[(BASE + d * EXTRA / BASE) * TILE_ROWS];
    code |= (high >> (at + EXTRA * (d % (BASE / EXTRA))) & ((1u << EXTRA) - 1)) << BASE;
#endif
    return code;
}
#endif

/* ---- scales ------------------------------------------------------------------------------------------------------- *
 * -D SCALE=16|32|8     f16, f32, or int8 that multiply f16 super-scales ("two levels")
 * -D GROUP=g           weights per scale: 16, a multiple of 32, or 0: one per row
 * -D SUPER_GROUP=g     with SCALE=8: weights per super-scale, a multiple of GROUP and of 32 */
#ifdef SCALE
#ifndef GROUP
#define GROUP 0
#endif
#ifndef SUPER_GROUP
#define SUPER_GROUP 32
#endif

/* Scale (or min) `group` of the row at `lane` of a tile-row; values are [tile][K'/GROUP][16]. */
static float load_scale(global const uchar *values, global const half *supers, uint tile, uint lane, uint group,
                        uint k_padded) {
    size_t n_groups = GROUP ? k_padded / (GROUP ? GROUP : 1) : 1, i = (tile * n_groups + group) * TILE_ROWS + lane;
#if SCALE == 32
    return ((global const float *)values)[i];
#elif SCALE == 16
    return vload_half(i, (global const half *)values);
#else
    size_t above = tile * (size_t)(k_padded / SUPER_GROUP) + group * (GROUP ? GROUP : k_padded) / SUPER_GROUP;
    return vload_half(above * TILE_ROWS + lane, supers) * (float)((global const char *)values)[i];
#endif
}
#endif
