/* What the low-bit GEMV and GEMM share: how operands are laid out, the float sequence of cpu/kernels.h, the epilogue.
 * Included after a tier's simd.h. */
#ifndef CRUMB_CPU_LOWBIT_LINEAR_H
#define CRUMB_CPU_LOWBIT_LINEAR_H

#include "cpu/kernels.h"
#include "cpu/lowbit/widths.h"

#if defined(CRUMB_SANITIZED) /* unrolled and instrumented code takes minutes to compile */
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

enum {
    TILE_VECTORS = CRUMB_TILE_ROWS / SIMD_LANES,
    LINE_BYTES = CRUMB_TILE_ROWS * 4, /* one dword of each row of a tile */
    BLOCK_STEPS = CRUMB_TILE_K / 4    /* dot product steps of four k per 32-block */
};

/* Sizes that follow from the arguments. A sum group is what one int32 sum spans: the activations' group. */
typedef struct shape {
    uint32_t n_blocks;     /* 32-blocks along K */
    uint32_t n_groups;     /* sum groups along K */
    uint32_t group_steps;  /* steps of four k per sum group; 4 for groups of 16, which are every other step */
    uint32_t n_scales;     /* weight groups along K */
    uint32_t scale_groups; /* sum groups per weight group */
    uint32_t n_supers;     /* super-scales along K, and weight groups of each; 0: scales have one level */
    uint32_t super_scales;
    size_t tile_bytes;  /* codes of one tile-row */
    size_t scale_bytes; /* of one scale */
} shape;

/* Groups of 16 are the halves of a 32-block: k = 16 * (L % 2) + L / 2 (host/lowbit/tile.h), and planes alternate
 * between even and odd L, as long as there is more than one in a byte. */
SIMD_INLINE bool has_halves(const shape *s) {
    return s->group_steps < BLOCK_STEPS;
}

SIMD_INLINE shape shape_of(const crumb_linear_args *a, int bits) {
    shape s;
    s.n_blocks = a->x.k_padded / CRUMB_TILE_K;
    s.n_groups = a->x.k_padded / a->x.group;
    s.group_steps = a->x.group / 4;
    s.n_scales = a->x.k_padded / a->w->group;
    s.scale_groups = a->w->group / a->x.group;
    s.n_supers = a->w->super_group ? a->x.k_padded / a->w->super_group : 0;
    s.super_scales = a->w->super_group ? a->w->super_group / a->w->group : 0;
    s.tile_bytes = (size_t)s.n_blocks * (size_t)bits * LINE_BYTES;
    s.scale_bytes = a->w->super_group ? 1 : a->w->scales_f32 ? 4 : 2;
    return s;
}

/* Codebooks. Where operands are unsigned, they are the entries less the smallest one, which is the zero point that this
 * asks for: sum(entry * q) = sum((entry - low) * q) + low * sum(q). A table of operands is looked up with codes. */
SIMD_INLINE int codebook_low(const int8_t *codebook) {
    return DOT_SIGNED_ENTRIES ? 0 : crumb_codebook_get_range(codebook).low;
}
SIMD_INLINE vint codebook_table(const int8_t *codebook) {
    uint8_t operands[CRUMB_CODEBOOK_ENTRIES];
    const int low = codebook_low(codebook);
    for (int i = 0; i < CRUMB_CODEBOOK_ENTRIES; i++) operands[i] = (uint8_t)(codebook[i] - low);
    return v_broadcast16(operands);
}
/* The operands of one plane of packed codes. */
SIMD_INLINE vint codebook_plane(vint packed, vint table, int plane) {
    return v_lookup(table, v_and(v_shift_right(packed, 4 * plane), v_broadcast_bytes(15)));
}
/* What is to be subtracted from the sums of operands, per unit of sum(q). */
SIMD_INLINE int zero_point(const crumb_matrix *w) {
    return w->codebook ? -codebook_low(w->codebook) : w->sub;
}

/* Kernels for the index layout find the codes where they are packed. */
SIMD_INLINE const uint8_t *codes_of_tile(const crumb_linear_args *a, const shape *s, uint32_t tile) {
    return (const uint8_t *)(a->packed ? a->packed : a->w->codes) + tile * s->tile_bytes;
}

/* Scales or mins of a tile-row. */
typedef struct tile_scales {
    const uint8_t *scales;  /* [n_scales][16] */
    const uint16_t *supers; /* [n_supers][16] */
} tile_scales;

SIMD_INLINE tile_scales levels_of_tile(const void *scales, const uint16_t *supers, const shape *s, uint32_t tile) {
    const size_t at = (size_t)tile * s->n_scales * CRUMB_TILE_ROWS * s->scale_bytes;
    return (tile_scales){(const uint8_t *)scales + at,
                         s->n_supers ? supers + (size_t)tile * s->n_supers * CRUMB_TILE_ROWS : NULL};
}
SIMD_INLINE tile_scales scales_of_tile(const crumb_linear_args *a, const shape *s, uint32_t tile) {
    return levels_of_tile(a->w->scales, a->w->supers, s, tile);
}
SIMD_INLINE tile_scales mins_of_tile(const crumb_linear_args *a, const shape *s, uint32_t tile) {
    return levels_of_tile(a->w->mins, a->w->super_mins, s, tile);
}

/* The scales that `from` begins with, of a vector of rows. A product of two levels is exact: 8 + 11 bits. */
SIMD_INLINE vflt load_first_scale(const tile_scales *from, size_t scale_bytes, int vector) {
    const size_t row = (size_t)vector * SIMD_LANES;
    if (scale_bytes == 2) return v_load_f16((const uint16_t *)(const void *)from->scales + row);
    if (scale_bytes == 4) return v_load_f32((const float *)(const void *)from->scales + row);
    return v_mul_f32(v_load_f16(from->supers + row), v_to_f32(v_load_i8((const int8_t *)from->scales + row)));
}
/* Scale `index`. */
SIMD_INLINE vflt load_scale(const tile_scales *from, const shape *s, uint32_t index, int vector) {
    const tile_scales at = {from->scales + (size_t)index * CRUMB_TILE_ROWS * s->scale_bytes,
                            s->n_supers ? from->supers + (size_t)(index / s->super_scales) * CRUMB_TILE_ROWS : NULL};
    return load_first_scale(&at, s->scale_bytes, vector);
}

/* y for rows m .. m + SIMD_LANES - 1 of activation row n. */
SIMD_INLINE void finish_rows(const crumb_linear_args *a, uint32_t n, uint32_t m, vflt acc) {
    if (a->x.row_scale) acc = v_mul_f32(acc, v_broadcast_f32(a->x.sx[n]));
    if (a->out_scale != 1.0f) acc = v_mul_f32(acc, v_broadcast_f32(a->out_scale));
    float *y = a->y + n * a->y_stride + m;
    const float *add = a->add ? a->add + n * a->add_stride + m : NULL;
    if (m + SIMD_LANES <= a->w->m) {
        if (a->bias) acc = v_add_f32(acc, v_load_f32(a->bias + m));
        if (add) acc = v_add_f32(acc, v_load_f32(add));
        v_store_f32(y, acc);
        return;
    }
    float lanes[SIMD_LANES];
    v_store_f32(lanes, acc);
    for (uint32_t i = 0; m + i < a->w->m; i++) {
        float v = lanes[i];
        if (a->bias) v = v + a->bias[m + i];
        if (add) v = v + add[i];
        y[i] = v;
    }
}

#endif
