/* GEMV on the tile layout: a few rows of activations, bound by reading the weights once.
 *
 * The weights of two tile-rows are read at once (four of split codes, and on Intel's cores), each a long contiguous
 * stream of its own, since one stream does not keep enough cache lines in flight, and of more those compete for the
 * sets of a cache whose rows are a power of two. Packed codes are split into planes in registers, and each plane meets
 * all columns (rows of activations). The inner loop is a function of its own so that the compiler gives its
 * accumulators registers: streams * TILE_VECTORS * columns * dot_accumulators(bits) of them, at most 8 for AVX2. There
 * is one for each number of streams and columns, of one line at once and of two; which is used is a knob
 * (crumb_cpu_knobs). A loop over all groups of a row is compiled around each: of short groups, what is done between
 * them takes as long.
 *
 * Included after a tier's simd.h, which says how many streams are the default; GEMV_INSTANCES makes the kernels of a
 * tier, among them GEMV_CODEBOOK_INSTANCE the one for codebooks, whose 4-bit codes become operands of DOT_ENTRY_BITS in
 * registers.
 */
#ifndef CRUMB_CPU_LOWBIT_GEMV_H
#define CRUMB_CPU_LOWBIT_GEMV_H

#include "cpu/lowbit/split.h"

enum {
    GEMV_MAX_STREAMS = CRUMB_STREAM_TILES,
    GEMV_MAX_COLUMNS = 2,
    GEMV_MAX_SUMS = 8, /* streams * TILE_VECTORS * columns */
    /* How far ahead lines are fetched into L2 (far), and on into L1 (near). */
    GEMV_INTEL_FAR_BYTES = 2048,
    GEMV_INTEL_NEAR_BYTES = 1024,
    GEMV_FAR_BYTES = 4096, /* on other cores; less where little is done with a line, VNNI's products of whole codes */
    GEMV_NEAR_BYTES = 1024,
    GEMV_QUICK_FAR_BYTES = 2048,
    GEMV_QUICK_NEAR_BYTES = 512,
    GEMV_BYTES_NEAR_BYTES = 256, /* and with operands of 8 bits */
    /* Of four streams, of groups of up to 64: their scales are four more, and of 32 a ninth of 4-bit codes' bytes. Read
     * rates of 4 and 8 bits rise by 0 to 7 % (Golden Cove; 256 bytes gain less); of two streams on AVX2 they fall. */
    GEMV_SCALES_AHEAD_BYTES = 1024
};

typedef struct gemv_operands {
    const uint8_t *codes[GEMV_MAX_STREAMS]; /* a tile-row each */
    const int8_t *q;                        /* of the first column: activations, or what was made of them */
    size_t q_stride;
    int mul;
    unsigned max_code;
    size_t near, far; /* prefetch distances in bytes */
    vint table;       /* of a codebook */
} gemv_operands;

/* sums [stream][vector][column] = mul * sum(u*q) over lines [line, end) of the tile-rows; where groups are half a
 * 32-block of the first half, and odd of the second. A line of tiles is 64 bytes: a dword of each row, 32 / bits k. */
typedef void gemv_sums_fn(const gemv_operands *o, uint32_t line, uint32_t end, vint *sums, vint *odd);

/* A far of 0 asks for the line that is loaded next, which costs no more than a branch. */
SIMD_INLINE void gemv_fetch(const gemv_operands *o, const uint8_t *line) {
    _mm_prefetch((const char *)line + o->near, _MM_HINT_T0);
    _mm_prefetch((const char *)line + o->far, _MM_HINT_T1);
}

/* Lines whose products a lane's sum can hold. */
SIMD_INLINE uint32_t gemv_span_lines(int bits, int width, unsigned max_code) {
    return dot_span_steps(width, max_code) * (uint32_t)bits / 8;
}

/* acc[(vector * columns + column) * accumulators(width) ...] += a line of each stream. */
SIMD_INLINE void gemv_add_line(const gemv_operands *o, uint32_t line, const int bits, const int width,
                               const int columns, const int streams, vint *acc) {
    const bool codebook = width != bits;
    const int per_sum = dot_accumulators(width), planes = codebook ? 8 / bits : dot_planes(bits);
    const int8_t *q = o->q + (size_t)line * (32u / (unsigned)bits);
    UNROLL for (int v = 0; v < streams * TILE_VECTORS; v++) {
        const uint8_t *codes = o->codes[v / TILE_VECTORS] + (size_t)line * LINE_BYTES;
        if (v % TILE_VECTORS == 0) gemv_fetch(o, codes);
        vint packed = v_load(codes + v % TILE_VECTORS * SIMD_LANES * 4);
        UNROLL for (int p = 0; p < planes; p++) {
            vint plane = codebook ? codebook_plane(packed, o->table, p) : dot_plane(packed, bits, p);
            UNROLL for (int c = 0; c < columns; c++) {
                int i = (v * columns + c) * per_sum + dot_plane_accumulator(width, p);
                const int8_t *four = q + (size_t)c * o->q_stride + 4 * dot_plane_activation(width, p);
                acc[i] = dot_step(acc[i], plane, v_broadcast4(four));
            }
        }
    }
}

/* Codes of `bits` that become operands of `width` bits: the same, but for codebooks. `unroll` lines are taken at once.
 */
SIMD_INLINE void gemv_sums(const gemv_operands *o, uint32_t line, uint32_t end, vint *sums, const int bits,
                           const int width, const int columns, const int streams, const uint32_t unroll) {
    const int n_sums = streams * TILE_VECTORS * columns, per_sum = dot_accumulators(width);
    const uint32_t span = DOT_HOLDS_ROW ? end - line : gemv_span_lines(bits, width, o->max_code) / unroll * unroll;
    for (bool first = true; first || (!DOT_HOLDS_ROW && line < end); first = false) {
        const uint32_t span_end = end - line > span ? line + span : end;
        vint acc[GEMV_MAX_SUMS * 8];
        UNROLL for (int i = 0; i < n_sums * per_sum; i++) acc[i] = v_zero();
        for (; line < span_end; line += unroll)
            UNROLL for (uint32_t u = 0; u < unroll; u++) gemv_add_line(o, line + u, bits, width, columns, streams, acc);
        UNROLL for (int i = 0; i < n_sums; i++) {
            vint sum = dot_sum(&acc[i * per_sum], width, o->mul);
            sums[i] = first ? sum : v_add(sums[i], sum);
        }
    }
}

/* The same for split codes. A block's operands of one vector of rows meet all columns before the next vector's turn;
 * so only one of them is in a register, and sums are 32 bits wide. */
SIMD_INLINE void gemv_split_sums(const gemv_operands *o, uint32_t line, uint32_t end, vint *out, const int bits,
                                 const int columns, const int streams) {
    const int n_vectors = streams * TILE_VECTORS, unit = split_unit_steps(bits);
    const int8_t *q = o->q + line / (uint32_t)bits * CRUMB_TILE_K;
    vint sums[GEMV_MAX_SUMS];
    UNROLL for (int i = 0; i < n_vectors * columns; i++) sums[i] = v_zero();
    for (; line < end; line += (uint32_t)bits, q += CRUMB_TILE_K) {
        UNROLL for (int v = 0; v < n_vectors; v++) {
            const uint8_t *block = o->codes[v / TILE_VECTORS] + (size_t)line * LINE_BYTES;
            if (v % TILE_VECTORS == 0) UNROLL for (int i = 0; i < bits; i++) gemv_fetch(o, block + i * LINE_BYTES);
            block += v % TILE_VECTORS * SIMD_LANES * 4;
            UNROLL for (int step0 = 0; step0 < BLOCK_STEPS; step0 += unit) {
                vint parts[GEMV_MAX_COLUMNS];
                UNROLL for (int c = 0; c < columns; c++) parts[c] = split_begin(sums[v * columns + c]);
                UNROLL for (int step = step0; step < step0 + unit; step++) {
                    vint codes = split_operand(block, bits, step);
                    UNROLL for (int c = 0; c < columns; c++) parts[c] =
                        dot_step(parts[c], codes, v_broadcast4(q + (size_t)c * o->q_stride + 4 * step));
                }
                UNROLL for (int c = 0; c < columns; c++) sums[v * columns + c] =
                    split_end(sums[v * columns + c], parts[c], o->mul);
            }
            v_forget(); /* else activations are kept for the next vector, at the cost of spills */
        }
    }
    UNROLL for (int i = 0; i < n_vectors * columns; i++) out[i] = split_sum(sums[i], o->mul);
}

/* The sums of both halves of one 32-block, of any codes; one vector of rows after the other, as for split codes. */
SIMD_INLINE void gemv_half_sums(const gemv_operands *o, uint32_t line, vint *first, vint *odd, const int bits,
                                const int width, const int columns, const int streams) {
    const int block_lines = bits, hold = half_hold_steps(width);
    const int8_t *q = o->q + line / (uint32_t)bits * CRUMB_TILE_K;
    UNROLL for (int v = 0; v < streams * TILE_VECTORS; v++) {
        const uint8_t *block = o->codes[v / TILE_VECTORS] + (size_t)line * LINE_BYTES;
        if (v % TILE_VECTORS == 0) UNROLL for (int i = 0; i < block_lines; i++) gemv_fetch(o, block + i * LINE_BYTES);
        block += v % TILE_VECTORS * SIMD_LANES * 4;
        UNROLL for (int half = 0; half < 2; half++) {
            vint sums[GEMV_MAX_COLUMNS], parts[GEMV_MAX_COLUMNS];
            UNROLL for (int c = 0; c < columns; c++) sums[c] = parts[c] = v_zero();
            UNROLL for (int i = 0; i < BLOCK_STEPS / 2; i++) {
                const int step = 2 * i + half;
                vint codes = block_operand(block, bits, width, o->table, step);
                UNROLL for (int c = 0; c < columns; c++) {
                    parts[c] = dot_step(parts[c], codes, v_broadcast4(q + (size_t)c * o->q_stride + 4 * step));
                    if ((i + 1) % hold) continue;
                    sums[c] = v_add(sums[c], gemm_sum(parts[c], o->mul));
                    parts[c] = v_zero();
                }
            }
            UNROLL for (int c = 0; c < columns; c++)(half ? odd : first)[v * columns + c] = sums[c];
        }
        v_forget();
    }
}

/* Bytes of the two halves alternate. Dot products take them as they lie, with copies of the activations: one with zeros
 * for those of the second half, and behind it one with zeros for those of the first. So a lane of 16 bits has one
 * product, which is 255 * 128 at most, and 8-bit codes need not be split for it. */
SIMD_INLINE void gemv_part_halves(const int8_t *q, size_t n_bytes, int8_t *out) {
    const __m128i first = _mm_set1_epi16(0xff); /* k = 16 * (L % 2) + L / 2, and L % 2 is a byte's own in a dword */
    for (size_t i = 0; i < n_bytes; i += 16) {
        const __m128i all = _mm_loadu_si128((const __m128i *)(const void *)(q + i));
        _mm_storeu_si128((__m128i *)(void *)(out + i), _mm_and_si128(all, first));
        _mm_storeu_si128((__m128i *)(void *)(out + n_bytes + i), _mm_andnot_si128(first, all));
    }
}

/* The sums of both halves of one 32-block of bytes; o->q are what gemv_part_halves has made of all columns. */
SIMD_INLINE void gemv_byte_half_sums(const gemv_operands *o, uint32_t line, vint *first, vint *odd, const int columns,
                                     const int streams) {
    const int n_vectors = streams * TILE_VECTORS, n_sums = n_vectors * columns;
    vint sums[2][GEMV_MAX_SUMS];
    UNROLL for (int i = 0; i < n_sums; i++) sums[0][i] = sums[1][i] = v_zero();
    UNROLL for (uint32_t step = 0; step < BLOCK_STEPS; step++) {
        const int8_t *q = o->q + (size_t)(line + step) * 4;
        UNROLL for (int v = 0; v < n_vectors; v++) {
            const uint8_t *codes = o->codes[v / TILE_VECTORS] + (size_t)(line + step) * LINE_BYTES;
            if (v % TILE_VECTORS == 0) gemv_fetch(o, codes);
            const vint bytes = v_load(codes + v % TILE_VECTORS * SIMD_LANES * 4);
            UNROLL for (int i = 0; i < 2 * columns; i++) { /* first halves of all columns, then the others */
                vint *sum = &sums[i / columns][v * columns + i % columns];
                const vint four = v_broadcast4(q + (size_t)i * o->q_stride);
                *sum = split_end(*sum, dot_step(split_begin(*sum), bytes, four), o->mul);
            }
        }
    }
    UNROLL for (int i = 0; i < n_sums; i++) {
        first[i] = split_sum(sums[0][i], o->mul);
        odd[i] = split_sum(sums[1][i], o->mul);
    }
}

/* Scales and mins of a pass, and how many sum groups they have served. */
typedef struct gemv_scales {
    tile_scales scales[GEMV_MAX_STREAMS], mins[GEMV_MAX_STREAMS];
    uint32_t served, supers_served; /* scales that the super-scales have served */
} gemv_scales;

typedef struct gemv_pass gemv_pass;

/* acc [stream][vector][column] = the sums of all groups of a pass, in f32 as kernels.h has it. */
typedef void gemv_groups_fn(const crumb_linear_args *a, const shape *s, const gemv_pass *pass, const gemv_operands *o,
                            const gemv_scales *scales, vflt *acc);

/* One pass over K: tile-rows tile, tile + step ... (those below tile_end), activation rows n0 .. n0 + columns - 1. */
struct gemv_pass {
    uint32_t tile[GEMV_MAX_STREAMS];
    uint32_t n0;
    int streams, columns;
    uint32_t unroll;
    size_t near, far;    /* bytes ahead that are fetched into L1 and L2; knobs and Intel's cores have others */
    size_t scales_ahead; /* bytes ahead that scales and mins are fetched into L1; 0: they are few */
    int zero;            /* zero point */
    vint table;          /* of a codebook */
    gemv_groups_fn *groups;
    uint32_t group_lines; /* of a sum group, or of both in a 32-block */
    const int8_t *q;      /* for the activation rows from q_row on */
    size_t q_stride;
    uint32_t q_row;
};

/* Folds the sums of group g into acc. */
SIMD_INLINE void gemv_fold(const crumb_linear_args *a, const shape *s, const gemv_pass *pass, const vint *sums,
                           uint32_t g, const gemv_scales *scales, const size_t scale_bytes, const bool has_min,
                           const int columns, const int streams, vflt *acc) {
    const bool row = a->x.row_scale;
    UNROLL for (int c = 0; c < columns; c++) {
        size_t i = (size_t)(pass->n0 + (uint32_t)c) * s->n_groups + g;
        float sx = row ? 1.0f : a->x.sx[i];
        vint zero = v_broadcast(pass->zero * a->x.qsum[i]);
        vflt sx_all = v_broadcast_f32(sx), sx_qsum = v_broadcast_f32(sx * (float)a->x.qsum[i]);
        UNROLL for (int v = 0; v < streams * TILE_VECTORS; v++) {
            int at = v * columns + c, t = v / TILE_VECTORS, part = v % TILE_VECTORS;
            vflt scale = load_first_scale(&scales->scales[t], scale_bytes, part);
            vflt value = v_mul_f32(sx_all, v_to_f32(v_sub(sums[at], zero))); /* times 1 changes nothing */
            acc[at] = v_fma_f32(scale, value, acc[at]);
            if (has_min) acc[at] = v_fma_f32(load_first_scale(&scales->mins[t], scale_bytes, part), sx_qsum, acc[at]);
        }
    }
}

/* On to the next sum group. */
SIMD_INLINE void gemv_next_group(const shape *s, const gemv_pass *pass, const size_t scale_bytes, const bool has_min,
                                 const int streams, gemv_scales *scales) {
    const size_t ahead = streams == GEMV_MAX_STREAMS ? pass->scales_ahead : 0;
    if (++scales->served < s->scale_groups) return;
    scales->served = 0;
    const bool next_supers = scale_bytes == 1 && ++scales->supers_served == s->super_scales;
    if (next_supers) scales->supers_served = 0;
    UNROLL for (int t = 0; t < streams; t++) {
        scales->scales[t].scales += CRUMB_TILE_ROWS * scale_bytes;
        if (ahead) _mm_prefetch((const char *)scales->scales[t].scales + ahead, _MM_HINT_T0);
        if (next_supers) scales->scales[t].supers += CRUMB_TILE_ROWS;
        if (!has_min) continue;
        scales->mins[t].scales += CRUMB_TILE_ROWS * scale_bytes;
        if (ahead) _mm_prefetch((const char *)scales->mins[t].scales + ahead, _MM_HINT_T0);
        if (next_supers) scales->mins[t].supers += CRUMB_TILE_ROWS;
    }
}

/* gemv_groups_fn, of sums that are inlined, for scales of one kind. */
SIMD_INLINE void gemv_groups_of(const crumb_linear_args *a, const shape *s, const gemv_pass *pass,
                                const gemv_operands *o, const gemv_scales *from, vflt *acc, gemv_sums_fn *const sums_of,
                                const int columns, const int streams, const bool halves, const size_t scale_bytes,
                                const bool has_min) {
    const int n_sums = streams * TILE_VECTORS * columns;
    const uint32_t n_units = halves ? s->n_groups / 2 : s->n_groups;
    gemv_scales scales = *from;
    vint sums[GEMV_MAX_SUMS], odd[GEMV_MAX_SUMS];
    vflt all[GEMV_MAX_SUMS];
    UNROLL for (int i = 0; i < n_sums; i++) all[i] = v_zero_f32();
    for (uint32_t unit = 0; unit < n_units; unit++) {
        sums_of(o, unit * pass->group_lines, (unit + 1) * pass->group_lines, sums, odd);
        gemv_fold(a, s, pass, sums, halves ? 2 * unit : unit, &scales, scale_bytes, has_min, columns, streams, all);
        gemv_next_group(s, pass, scale_bytes, has_min, streams, &scales);
        if (!halves) continue;
        gemv_fold(a, s, pass, odd, 2 * unit + 1, &scales, scale_bytes, has_min, columns, streams, all);
        gemv_next_group(s, pass, scale_bytes, has_min, streams, &scales);
    }
    UNROLL for (int i = 0; i < n_sums; i++) acc[i] = all[i];
}

/* The same for any: f16, with and without mins, has loops of its own where `fast`, as most files do. */
SIMD_INLINE void gemv_groups(const crumb_linear_args *a, const shape *s, const gemv_pass *pass, const gemv_operands *o,
                             const gemv_scales *from, vflt *acc, gemv_sums_fn *const sums_of, const int columns,
                             const int streams, const bool halves, const bool fast) {
    if (fast && s->scale_bytes == 2 && !a->w->mins)
        gemv_groups_of(a, s, pass, o, from, acc, sums_of, columns, streams, halves, 2, false);
    else if (fast && s->scale_bytes == 2)
        gemv_groups_of(a, s, pass, o, from, acc, sums_of, columns, streams, halves, 2, true);
    else
        gemv_groups_of(a, s, pass, o, from, acc, sums_of, columns, streams, halves, s->scale_bytes, a->w->mins != NULL);
}

/* What the end of a pass needs, which may be in no cache: the sums take long enough for it to arrive. */
SIMD_INLINE void gemv_prefetch(const crumb_linear_args *a, uint32_t n, uint32_t tile, const uint8_t *scales,
                               const uint8_t *mins) {
    _mm_prefetch((const char *)scales, _MM_HINT_T0);
    if (mins) _mm_prefetch((const char *)mins, _MM_HINT_T0);
    __builtin_prefetch(a->y + n * a->y_stride + (size_t)tile * CRUMB_TILE_ROWS, 1);
    if (a->add) __builtin_prefetch(a->add + n * a->add_stride + (size_t)tile * CRUMB_TILE_ROWS, 0);
}

/* How far ahead lines are fetched into L1. Memory is kept busy by fetches into L2, which free their fill buffers early;
 * what goes on from there into L1 holds one for as long as L2 takes. */
SIMD_INLINE size_t gemv_near(const crumb_linear_args *a, const gemv_pass *pass) {
    if (a->knobs.near_bytes) return a->knobs.near_bytes;
    return crumb_core_is_intel() ? GEMV_INTEL_NEAR_BYTES : pass->near;
}

/* How far ahead into L2; 0: not at all, which a knob says by 1 KB. What lies no further than the other fetch need not
 * be asked for. */
SIMD_INLINE size_t gemv_far(const crumb_linear_args *a, const gemv_pass *pass, size_t near) {
    if (a->knobs.far_kb == 1) return 0;
    const size_t wanted = a->knobs.far_kb         ? (size_t)a->knobs.far_kb << 10
                          : crumb_core_is_intel() ? GEMV_INTEL_FAR_BYTES
                                                  : pass->far;
    return wanted > near ? wanted : 0;
}

static void gemv_run_pass(const crumb_linear_args *a, const shape *s, const gemv_pass *pass) {
    gemv_operands o; /* not cleared as a whole: it is large, and this runs every few microseconds */
    o.q = pass->q + (pass->n0 - pass->q_row) * pass->q_stride;
    o.q_stride = pass->q_stride;
    o.mul = a->w->mul;
    o.max_code = a->w->max_code;
    o.table = pass->table;
    o.near = gemv_near(a, pass);
    o.far = gemv_far(a, pass, o.near);
    gemv_scales scales;
    scales.served = scales.supers_served = 0;
    for (int t = 0; t < pass->streams; t++) {
        uint32_t tile = pass->tile[t] < a->tile1 ? pass->tile[t] : a->tile1 - 1; /* results will be dropped */
        o.codes[t] = codes_of_tile(a, s, tile);
        scales.scales[t] = scales_of_tile(a, s, tile);
        if (a->w->mins) scales.mins[t] = mins_of_tile(a, s, tile);
        gemv_prefetch(a, pass->n0, tile, scales.scales[t].scales, a->w->mins ? scales.mins[t].scales : NULL);
    }
    vflt acc[GEMV_MAX_SUMS];
    pass->groups(a, s, pass, &o, &scales, acc);
    for (int v = 0; v < pass->streams * TILE_VECTORS; v++) {
        if (pass->tile[v / TILE_VECTORS] >= a->tile1) continue;
        uint32_t m = pass->tile[v / TILE_VECTORS] * CRUMB_TILE_ROWS + (uint32_t)(v % TILE_VECTORS) * SIMD_LANES;
        for (int c = 0; c < pass->columns && m < a->w->m; c++)
            finish_rows(a, pass->n0 + (uint32_t)c, m, acc[v * pass->columns + c]);
    }
}

enum { GEMV_TWO_COLUMNS = 3 }; /* behind those of one column and 1, 2 and 4 streams */
typedef struct gemv_variants {
    gemv_groups_fn *any[GEMV_TWO_COLUMNS + 1];
    gemv_groups_fn *unrolled[GEMV_TWO_COLUMNS]; /* one column, two lines at once; of split codes there are none */
    gemv_groups_fn *half[2];                    /* groups of 16, one column and two */
} gemv_variants;

/* Streams of groups of 16. Bytes' sums of both halves are in registers at once: 8 of them at most. */
SIMD_INLINE int gemv_half_streams(int bits, int columns) {
    return bits == 8 && columns * TILE_VECTORS > 2 ? 1 : 2;
}

/* All tile-rows, each stream a part of them, for the activations from row pass->n0 on: pass->columns rows, until
 * row n_end. */
static void gemv_run_streams(const crumb_linear_args *a, const shape *s, gemv_pass *pass, uint32_t n_end) {
    const uint32_t first = pass->n0,
                   step = (a->tile1 - a->tile0 + (uint32_t)pass->streams - 1) / (uint32_t)pass->streams;
    for (uint32_t i = 0; i < step; i++) {
        for (int t = 0; t < pass->streams; t++) pass->tile[t] = a->tile0 + (uint32_t)t * step + i;
        for (pass->n0 = first; pass->n0 < n_end; pass->n0 += (uint32_t)pass->columns) gemv_run_pass(a, s, pass);
    }
}

/* The pass's activations for 8-bit codes: at most 4 * K' bytes of scratch, which a row of floats takes as well. */
SIMD_INLINE void gemv_take_halves(const crumb_linear_args *a, gemv_pass *pass) {
    gemv_part_halves(a->x.q + pass->n0 * pass->q_stride, (size_t)pass->columns * pass->q_stride, a->scratch);
    pass->q = a->scratch;
    pass->q_row = pass->n0;
}

/* For who asks what the knobs come to (crumb_linear_args.effect). */
static inline void gemv_tell(const crumb_linear_args *a, const gemv_pass *pass) {
    const size_t near = gemv_near(a, pass);
    *a->effect = a->knobs;
    a->effect->streams = (uint32_t)pass->streams;
    a->effect->unroll = pass->unroll;
    a->effect->near_bytes = (uint32_t)near;
    a->effect->far_kb = (uint32_t)(gemv_far(a, pass, near) >> 10);
}

/* Lines taken at once: two where that is wanted, and a group and what a lane holds have so many. */
static inline uint32_t gemv_unroll(const crumb_linear_args *a, int bits, int width, const gemv_pass *pass) {
    const bool can = pass->columns == 1 && !is_split(bits) && pass->group_lines % 2 == 0 &&
                     gemv_span_lines(bits, width, a->w->max_code) >= 2;
    return can && a->knobs.unroll == 2 ? 2 : 1;
}

/* Tile-rows that a row of activations meets at once: `standard` of them where nothing else is said, of the last and
 * smallest chunks two. Intel's cores get more of memory from four than from two, even where sums do not fit into
 * registers: each stream has a prefetcher of its own that looks ahead. AMD's get less. */
static inline int gemv_row_streams(const crumb_linear_args *a, int standard) {
    const int streams = a->knobs.streams ? (int)a->knobs.streams : crumb_core_is_intel() ? GEMV_MAX_STREAMS : standard;
    return streams > 2 && a->tile1 - a->tile0 < GEMV_MAX_STREAMS ? 2 : streams;
}

/* The streams of a pass over K, and its sums. */
static inline void gemv_choose(const crumb_linear_args *a, const shape *s, int bits, int width,
                               const gemv_variants *variants, gemv_pass *pass) {
    pass->streams = gemv_streams(width, pass->columns);
    if (has_halves(s)) {
        pass->streams = gemv_half_streams(bits, pass->columns);
        pass->groups = variants->half[pass->columns - 1];
        return;
    }
    if (pass->columns == 1 && !is_split(bits)) pass->streams = gemv_row_streams(a, pass->streams);
    pass->unroll = gemv_unroll(a, bits, width, pass);
    pass->groups = pass->unroll == 2    ? variants->unrolled[pass->streams / 2]
                   : pass->columns == 2 ? variants->any[GEMV_TWO_COLUMNS]
                                        : variants->any[pass->streams / 2];
}

static inline void gemv(const crumb_linear_args *a, int bits, int width, const gemv_variants *variants) {
    const shape s = shape_of(a, bits);
    const uint32_t unit_steps = has_halves(&s) ? BLOCK_STEPS : s.group_steps;
    const bool quick = DOT_HOLDS_ROW && !is_split(bits);
    gemv_pass pass = {.near = !quick       ? GEMV_NEAR_BYTES
                              : width == 8 ? GEMV_BYTES_NEAR_BYTES
                                           : GEMV_QUICK_NEAR_BYTES,
                      .far = quick ? GEMV_QUICK_FAR_BYTES : GEMV_FAR_BYTES,
                      .scales_ahead = s.group_steps <= 2 * BLOCK_STEPS ? GEMV_SCALES_AHEAD_BYTES : 0,
                      .zero = zero_point(a->w),
                      .table = v_zero(),
                      .columns = a->n % 2 ? 1 : 2, /* of the last pass */
                      .group_lines = unit_steps * (uint32_t)bits / BLOCK_STEPS,
                      .q = a->x.q,
                      .q_stride = a->x.k_padded};
    if (a->effect) {
        gemv_choose(a, &s, bits, width, variants, &pass);
        gemv_tell(a, &pass);
        return;
    }
    if (width != bits) pass.table = codebook_table(a->w->codebook);
    for (uint32_t n = 0; n < a->n; n += (uint32_t)pass.columns) {
        pass.n0 = n;
        pass.columns = a->n - n >= 2 ? 2 : 1;
        gemv_choose(a, &s, bits, width, variants, &pass);
        if (has_halves(&s) && bits == 8) gemv_take_halves(a, &pass);
        gemv_run_streams(a, &s, &pass, n + (uint32_t)pass.columns);
    }
}

/* A gemv_groups_fn of that name, whose sums are `call`'s. */
#define GEMV_GROUPS(name, columns, streams, halves, fast, call)                                                        \
    SIMD_INLINE void name##_sums(const gemv_operands *o, uint32_t line, uint32_t end, vint *sums, vint *odd) {         \
        (void)end, (void)odd;                                                                                          \
        call;                                                                                                          \
    }                                                                                                                  \
    static void name(const crumb_linear_args *a, const shape *s, const gemv_pass *pass, const gemv_operands *o,        \
                     const gemv_scales *scales, vflt *acc) {                                                           \
        gemv_groups(a, s, pass, o, scales, acc, name##_sums, columns, streams, halves, fast);                          \
    }
#define GEMV_ALONE(name, bits, width, streams)                                                                         \
    GEMV_GROUPS(gemv_##name##_c1_s##streams, 1, streams, false, streams > 1,                                           \
                gemv_sums(o, line, end, sums, bits, width, 1, streams, 1))                                             \
    GEMV_GROUPS(gemv_##name##_c1_s##streams##_u2, 1, streams, false, false,                                            \
                gemv_sums(o, line, end, sums, bits, width, 1, streams, 2))
#define GEMV_HALF(name, bits, width, columns)                                                                          \
    GEMV_GROUPS(gemv_half_##name##_c##columns, columns, gemv_half_streams(bits, columns), true, false,                 \
                gemv_half_sums(o, line, sums, odd, bits, width, columns, gemv_half_streams(bits, columns)))
#define GEMV_HALVES(name, bits, width)                                                                                 \
    GEMV_HALF(name, bits, width, 1)                                                                                    \
    GEMV_HALF(name, bits, width, 2)
#define GEMV_BYTE_HALF(columns)                                                                                        \
    GEMV_GROUPS(gemv_half_u8_c##columns, columns, gemv_half_streams(8, columns), true, false,                          \
                gemv_byte_half_sums(o, line, sums, odd, columns, gemv_half_streams(8, columns)))
#define GEMV_KERNEL(name, bits, width)                                                                                 \
    GEMV_ALONE(name, bits, width, 1)                                                                                   \
    GEMV_ALONE(name, bits, width, 2)                                                                                   \
    GEMV_ALONE(name, bits, width, 4)                                                                                   \
    GEMV_GROUPS(gemv_##name##_c2, 2, gemv_streams(width, 2), false, false,                                             \
                gemv_sums(o, line, end, sums, bits, width, 2, gemv_streams(width, 2), 1))                              \
    void SIMD_NAME(crumb_gemv_##name##_i8)(const crumb_linear_args *a) {                                               \
        static const gemv_variants variants = {                                                                        \
            {gemv_##name##_c1_s1, gemv_##name##_c1_s2, gemv_##name##_c1_s4, gemv_##name##_c2},                         \
            {gemv_##name##_c1_s1_u2, gemv_##name##_c1_s2_u2, gemv_##name##_c1_s4_u2},                                  \
            {gemv_half_##name##_c1, gemv_half_##name##_c2}};                                                           \
        gemv(a, bits, width, &variants);                                                                               \
    }
#define GEMV_INSTANCE(bits)                                                                                            \
    GEMV_HALVES(u##bits, bits, bits)                                                                                   \
    GEMV_KERNEL(u##bits, bits, bits)
#define GEMV_BYTES_INSTANCE                                                                                            \
    GEMV_BYTE_HALF(1)                                                                                                  \
    GEMV_BYTE_HALF(2)                                                                                                  \
    GEMV_KERNEL(u8, 8, 8)
#define GEMV_CODEBOOK_INSTANCE                                                                                         \
    GEMV_HALVES(c4, 4, DOT_ENTRY_BITS)                                                                                 \
    GEMV_KERNEL(c4, 4, DOT_ENTRY_BITS)

#define GEMV_SPLIT(bits, columns)                                                                                      \
    GEMV_GROUPS(gemv_u##bits##_c##columns, columns, gemv_streams(bits, columns), false, columns == 1,                  \
                gemv_split_sums(o, line, end, sums, bits, columns, gemv_streams(bits, columns)))
#define GEMV_SPLIT_INSTANCE(bits)                                                                                      \
    GEMV_SPLIT(bits, 1)                                                                                                \
    GEMV_SPLIT(bits, 2)                                                                                                \
    GEMV_HALVES(u##bits, bits, bits)                                                                                   \
    void SIMD_NAME(crumb_gemv_u##bits##_i8)(const crumb_linear_args *a) {                                              \
        static const gemv_variants variants = {                                                                        \
            {gemv_u##bits##_c1, gemv_u##bits##_c1, gemv_u##bits##_c1, gemv_u##bits##_c2},                              \
            {NULL, NULL, NULL},                                                                                        \
            {gemv_half_u##bits##_c1, gemv_half_u##bits##_c2}};                                                         \
        gemv(a, bits, bits, &variants);                                                                                \
    }

/* All kernels of a tier on tiles. */
#define GEMV_INSTANCES                                                                                                 \
    LOWBIT_WHOLE_WIDTHS(GEMV_INSTANCE)                                                                                 \
    LOWBIT_SPLIT_WIDTHS(GEMV_SPLIT_INSTANCE)                                                                           \
    GEMV_BYTES_INSTANCE                                                                                                \
    GEMV_CODEBOOK_INSTANCE

#endif
