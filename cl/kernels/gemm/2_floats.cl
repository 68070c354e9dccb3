/* gemm.cl: what becomes of sums: scales, a group's numbers of the activations, the floats of the sequence, results.
 *
 * Sums of groups begin at FLOAT_BASE, so that they are the bits of the float 1.5 * 2^23 + sum: the conversion is one
 * subtraction, which takes sub * qsum away with it. All are integers below 2^24, and so exact. FLOAT_BASE comes from
 * local memory since the compiler writes a constant into registers anew for every sum. */

#define FLOAT_BASE  0x4b400000
#define MUL_IN_CODE (MUL == 1 || (MUL == 2 && BITS == 1)) /* sums have it already */
#define VIA_BASE    (X_GROUP && MUL_IN_CODE)

/* The scale (or min) of this item's row of a block of rows. */
INLINE float block_scale(private const operands *o, global const uchar *values, global const half *supers, uint tile, uint c,
                         uint group) {
    return load_scale(values, supers, tile + min(c / HALVES, o->n_tiles - 1), c % HALVES * SUB_GROUP + LANE, group, o->k_padded);
}

#if X_GROUP
/* All blocks' for a group. With 2D blocks, those of f16 and f32 are surfaces of a line per tile-row, of which one load takes
 * TN. */
#if GROUP && SCALE != 8 && SUB_GROUP == 16
#if SCALE == 16
#define S_READ JOIN(JOIN(intel_sub_group_2d_block_read_16b_, TN), r16x1c)
typedef ushort s_lane;
#else
#define S_READ JOIN(JOIN(intel_sub_group_2d_block_read_32b_, TN), r16x1c)
typedef uint s_lane;
#endif
void OVERLOAD S_READ(global void *base, int width, int height, int pitch, int2 at, private s_lane *out);
#endif

INLINE void load_scales(private const operands *o, global const uchar *values, global const half *supers, uint tile, uint g,
                        float scales[BLOCKS]) {
    uint group = GROUP ? g * X_GROUP / (GROUP ? GROUP : 1) : 0;
#ifdef S_READ
    s_lane bits[TN];
    int width = (int)(o->k_padded / GROUP * TILE_ROWS * sizeof(s_lane));
    S_READ((global void *)values, width, (int)(tile + o->n_tiles), width, (int2)((int)(group * TILE_ROWS), (int)tile), bits);
    UR for (uint j = 0; j < TN; j++)
        scales[j] = SCALE == 32 ? as_float((uint)bits[j]) : vload_half(0, (private const half *)&bits[j]);
#else
    UR for (uint c = 0; c < BLOCKS; c++) scales[c] = block_scale(o, values, supers, tile, c, group);
#endif
}
#endif

/* A group's numbers of the activations: item r of set s has row SUB_GROUP * s + r. With PIECES > 1 they would take too
 * large a part of the loop over groups, and come from local memory: the work-group puts them there before. */
typedef struct {
    float minuend[ROW_SETS], sx[ROW_SETS], x_sum[ROW_SETS], row_sx[ROW_SETS]; /* sx or row_sx is 1 */
    int correction[ROW_SETS];
    int8 qsums[TM]; /* with IN_REGISTERS */
} row_numbers;

/* Set s's of row t. */
INLINE void load_row(private const operands *o, uint t, uint g, uint s, private row_numbers *z) {
    uint n_groups = GROUPS_OF(o->k_padded);
    int qsum = IN_REGISTERS ? 0 : o->qsum[t * n_groups + g];
    z->sx[s] = ROW_SCALE ? 1.0f : o->sx[t * n_groups + g];
    z->row_sx[s] = ROW_SCALE ? o->sx[t] : 1.0f;
    z->correction[s] = o->sub * qsum;
    z->minuend[s] = fma((float)o->sub, (float)qsum, as_float(FLOAT_BASE));
    z->x_sum[s] = z->sx[s] * (float)qsum;
}

INLINE void load_rows(private const operands *o, uint g, private row_numbers *z) {
    UR for (uint s = 0; s < ROW_SETS; s++) load_row(o, min(s * SUB_GROUP + (uint)LANE, o->last), g, s, z);
}

#if PIECES > 1
/* [group][what is subtracted, scale, with MINS sum][TOKENS] */
#define STAGED_ROW ((2 + MINS) * TOKENS)

/* The whole work-group's part. */
INLINE void stage_rows(private const operands *o, local float *staged) {
    uint n_groups = GROUPS_OF(o->k_padded);
    for (uint t = get_local_id(0) / SUB_GROUP; t < TOKENS; t += ACROSS)
        for (uint g = LANE; g < n_groups; g += SUB_GROUP) {
            row_numbers z;
            local float *to = staged + g * STAGED_ROW + t;
            load_row(o, min(t, o->last), g, 0, &z);
            to[0] = VIA_BASE ? z.minuend[0] : as_float(z.correction[0]);
            to[TOKENS] = z.sx[0];
            if (MINS) to[2 * TOKENS] = z.x_sum[0];
        }
    barrier(CLK_LOCAL_MEM_FENCE);
}

INLINE void load_staged(private const operands *o, uint g, private row_numbers *z) {
    local const uint *from = (local const uint *)(o->staged + g * STAGED_ROW);
    uint8 two = intel_sub_group_block_read8(from);
    uint4 x_sum = MINS ? intel_sub_group_block_read4(from + 2 * TOKENS) : 0;
    UR for (uint s = 0; s < ROW_SETS; s++) {
        z->correction[s] = ((private const int *)&two)[s];
        z->minuend[s] = as_float(z->correction[s]);
        z->sx[s] = ((private const float *)&two)[ROW_SETS + s];
        z->x_sum[s] = ((private const float *)&x_sum)[s];
    }
}
#endif

/* What the item that has it says of a row. */
INLINE float float_of_row(private const float *of_sets, uint row) {
    return intel_sub_group_shuffle(of_sets[row / SUB_GROUP], row % SUB_GROUP);
}

INLINE float exact_sum(private const operands *o, private const row_numbers *z, uint row, int sum) {
#if VIA_BASE
    return as_float(sum) - float_of_row(z->minuend, row);
#else
    int correction = IN_REGISTERS ? o->sub * ((private const int *)&z->qsums[row / 8])[row % 8]
                                  : intel_sub_group_shuffle(z->correction[row / SUB_GROUP], row % SUB_GROUP);
    return (float)((MUL_IN_CODE ? sum : o->mul * sum) - correction);
#endif
}

INLINE float x_sum(private const row_numbers *z, uint row) {
#if IN_REGISTERS
    return float_of_row(z->sx, row) * (float)((private const int *)&z->qsums[row / 8])[row % 8];
#else
    return float_of_row(z->x_sum, row);
#endif
}

/* The sequence of cpu/kernels.h for a group: rows i * 8 to i * 8 + 7 of activations, a block of rows of weights. */
INLINE float8 add_group(private const operands *o, private const row_numbers *z, uint i, float scale, float smallest,
                        int8 sums, float8 results) {
    UR for (uint r = 0; r < 8; r++) {
        private float *result = (private float *)&results + r;
        float sum = exact_sum(o, z, i * 8 + r, ((private const int *)&sums)[r]);
        if (!ROW_SCALE) sum = float_of_row(z->sx, i * 8 + r) * sum;
        *result = fma(scale, sum, *result);
        if (MINS) *result = fma(smallest, x_sum(z, i * 8 + r), *result);
    }
    return results;
}

/* What becomes of results: those of part 0 wait in y for those of `gate`'s part 1. */
typedef struct {
    private const part *w, *gate;
    global const crumb_result *add;
    uint tile; /* the sub-group's first */
} target;

INLINE void store_block(private const operands *o, private const target *to, private const row_numbers *z, uint c,
                        const float8 results[TM]) {
    private const part *w = to->w;
    uint tile = to->tile + c / HALVES, lane = c % HALVES * SUB_GROUP + LANE, row = (w->tile0 + tile) * TILE_ROWS + lane;
    UR for (uint i = 0; i < TM; i++)
        UR for (uint r = 0; r < 8; r++) {
            uint t = i * 8 + r;
            float y = ((private const float *)&results[i])[r];
            y = finish(w, row, ROW_SCALE ? y * float_of_row(z->row_sx, t) : y);
            if (t > o->last || c / HALVES >= o->n_tiles || row >= w->m) continue;
            size_t at = (size_t)(o->first + t) * w->width + row;
            if (to->gate) { /* this item has put part 0's there */
                at = (size_t)(o->first + t) * to->gate->width + (to->gate->tile0 + tile) * TILE_ROWS + lane;
                to->gate->y[at] = gated_result(GATED, to->gate->y[at], y);
            } else {
                w->y[at] = sum_with(to->add, at, y);
            }
        }
}
