/* What the low-bit GEMV and GEMM share: how operands are laid out, the float sequence of cpu/kernels.h, the epilogue.
 * Included after a tier's simd.h. */
#ifndef CRUMB_CPU_LOWBIT_LINEAR_H
#define CRUMB_CPU_LOWBIT_LINEAR_H

#include "cpu/kernels.h"

#if defined(CRUMB_ROLLED) /* sanitizer builds: unrolled and instrumented code takes minutes to compile */
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
    uint32_t group_blocks; /* 32-blocks per sum group */
    uint32_t n_scales;     /* weight groups along K */
    uint32_t scale_groups; /* sum groups per weight group */
    size_t tile_bytes;     /* codes of one tile-row */
    size_t scale_bytes;    /* of one scale */
} shape;

SIMD_INLINE shape shape_of(const crumb_linear_args *a, int bits) {
    shape s;
    s.n_blocks = a->x.k_padded / CRUMB_TILE_K;
    s.n_groups = a->x.k_padded / a->x.group;
    s.group_blocks = a->x.group / CRUMB_TILE_K;
    s.n_scales = a->x.k_padded / a->w->group;
    s.scale_groups = a->w->group / a->x.group;
    s.tile_bytes = (size_t)s.n_blocks * (size_t)bits * LINE_BYTES;
    s.scale_bytes = a->w->scales_f32 ? 4 : 2;
    return s;
}

/* Codebooks. An entry less the smallest one is an unsigned operand, and the smallest one the zero point that this asks
 * for: sum(entry * q) = sum((entry - low) * q) + low * sum(q). A table of operands is looked up with codes. */
SIMD_INLINE vint codebook_table(const int8_t *codebook) {
    uint8_t operands[CRUMB_CODEBOOK_ENTRIES];
    const int low = crumb_codebook_get_range(codebook).low;
    for (int i = 0; i < CRUMB_CODEBOOK_ENTRIES; i++) operands[i] = (uint8_t)(codebook[i] - low);
    return v_broadcast16(operands);
}
/* The operands of one plane of packed codes. */
SIMD_INLINE vint codebook_plane(vint packed, vint table, int plane) {
    return v_lookup(table, v_and(v_shift_right(packed, 4 * plane), v_broadcast_bytes(15)));
}
/* What is to be subtracted from the sums of operands, per unit of sum(q). */
SIMD_INLINE int zero_point(const crumb_matrix *w) {
    return w->codebook ? -crumb_codebook_get_range(w->codebook).low : w->sub;
}

/* Kernels for the index layout find the codes where they are packed. */
SIMD_INLINE const uint8_t *codes_of_tile(const crumb_linear_args *a, const shape *s, uint32_t tile) {
    return (const uint8_t *)(a->packed ? a->packed : a->w->codes) + tile * s->tile_bytes;
}

/* Scales or mins of a tile-row: scale i of its 16 rows lies at i * 16 * scale_bytes. */
SIMD_INLINE const uint8_t *scales_of_tile(const void *scales, const shape *s, uint32_t tile) {
    return (const uint8_t *)scales + (size_t)tile * s->n_scales * CRUMB_TILE_ROWS * s->scale_bytes;
}

SIMD_INLINE vflt load_scale(const uint8_t *p, size_t scale_bytes, int vector) {
    return scale_bytes == 4 ? v_load_f32((const float *)p + vector * SIMD_LANES)
                            : v_load_f16((const uint16_t *)p + vector * SIMD_LANES);
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
