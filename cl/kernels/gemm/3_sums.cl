/* gemm.cl: the loops over K of one part. With X_GROUP a group follows the other, and its sums become floats at once;
 * with X_GROUP=0 sums are integers to the end of the sub-group's slice. Either has a run_part, which the kernel calls. */

#if X_GROUP
/* What of a group all tile-rows need. */
typedef struct {
    row_numbers z;
    float scale[BLOCKS], smallest[BLOCKS];
    int8 start;
} group_numbers;

INLINE void load_group(private const operands *o, private const target *to, uint g, private group_numbers *group) {
    private const part *w = to->w;
#if PIECES > 1
    load_staged(o, g, &group->z);
#else
    load_rows(o, g, &group->z);
#endif
    load_scales(o, w->scales, w->supers, w->tile0 + to->tile, g, group->scale);
    if (MINS) load_scales(o, w->mins, w->super_mins, w->tile0 + to->tile, g, group->smallest);
}

/* The operands of a tile-row for a step. */
typedef struct {
    b_columns columns[HALVES][STEP], high[HALVES][STEP]; /* high: with SPLIT_BITS */
} tile_operands;

INLINE void load_tile_row(private const operands *o, uint j, uint block, private tile_operands *tile) {
    uint b[B_SIZE];
    load_b(o, j, block, STEP, b);
    UR for (uint h = 0; h < HALVES; h++)
        UR for (uint u = 0; u < STEP; u++) {
            tile->columns[h][u] = columns_of(b, u, h);
#if SPLIT_BITS
            tile->high[h][u] = high_columns(b, u, h);
#endif
        }
}

/* Adds a group of a piece's rows to the results of tile-row j. */
INLINE void add_tile_row(private const operands *o, private const group_numbers *group, uint piece, a_lane a[STEP][PIECE],
                         uint j, private const tile_operands *tile, float8 results[BLOCKS][TM]) {
    UR for (uint c = j * HALVES; c < (j + 1) * HALVES; c++)
        UR for (uint p = 0; p < PIECE / 8; p++) { /* sums of one at a time, which takes fewer registers */
            uint i = piece * (PIECE / 8) + p;
            int8 sums = group->start;
#if SPLIT_BITS
            UR for (uint u = 0; u < STEP; u++) sums = MULTIPLY(rows_of(a[u], p), tile->high[c % HALVES][u], sums);
            sums <<= LOW_BITS;
#endif
            UR for (uint u = 0; u < STEP; u++) sums = MULTIPLY(rows_of(a[u], p), tile->columns[c % HALVES][u], sums);
            results[c][i] =
                add_group(o, &group->z, i, group->scale[c], MINS ? group->smallest[c] : 0, sums, results[c][i]);
        }
}

#if X_GROUP == 16
/* The activations of one half of a block's k, zeros beside them: with them an instruction, which takes 32 k, has the sum
 * of one group. In order of k the halves are lanes, in X_ORDER=8 every other byte. */
INLINE void half_of(a_lane a[STEP][PIECE], uint h, a_lane out[STEP][PIECE]) {
    const a_lane bytes = (a_lane)(h ? 0xff00ff00u : 0x00ff00ffu);
    const a_lane lanes = (a_lane)(LANE / (SUB_GROUP / 2) == h ? 0xffffffffu : 0);
    UR for (uint t = 0; t < PIECE; t++) out[0][t] = a[0][t] & (X_ORDER == 8 ? bytes : lanes);
}

INLINE void add_step(private const operands *o, private const target *to, uint block, private group_numbers *group,
                     float8 results[BLOCKS][TM]) {
    a_lane a[STEP][PIECE], of_half[STEP][PIECE];
    tile_operands tiles[TN];
    load_a(o, 0, block, STEP, a);
    UR for (uint j = 0; j < TN; j++) load_tile_row(o, j, block, &tiles[j]);
    UR for (uint h = 0; h < 2; h++) {
        half_of(a, h, of_half);
        load_group(o, to, 2 * block + h, group);
        UR for (uint j = 0; j < TN; j++) add_tile_row(o, group, 0, of_half, j, &tiles[j], results);
    }
}
#else
INLINE void add_step(private const operands *o, private const target *to, uint block, private group_numbers *group,
                     float8 results[BLOCKS][TM]) {
    tile_operands tiles[TN];
    UR for (uint piece = 0; piece < PIECES; piece++) {
        a_lane a[STEP][PIECE];
        load_a(o, piece, block, STEP, a);
        if (piece == 0) load_group(o, to, block / STEP, group);
        UR for (uint j = 0; j < TN; j++) {
            if (piece == 0) load_tile_row(o, j, block, &tiles[j]);
            add_tile_row(o, group, piece, a, j, &tiles[j], results);
        }
    }
}
#endif

INLINE void run_part(private const operands *o, private const target *to) {
    float8 results[BLOCKS][TM];
    group_numbers group;
    group.start = VIA_BASE ? as_int8(intel_sub_group_block_read8((local const uint *)o->start)) : 0;
    UR for (uint c = 0; c < BLOCKS; c++) UR for (uint i = 0; i < TM; i++) results[c][i] = 0;
    for (uint block = 0; block < o->n_blocks; block += STEP) add_step(o, to, block, &group, results);
    row_numbers last;
    load_rows(o, 0, &last);
    UR for (uint c = 0; c < BLOCKS; c++) store_block(o, to, &last, c, results[c]);
}
#else

INLINE void add_blocks(private const operands *o, uint block, uint n, int8 sums[BLOCKS][TM], int8 high[BLOCKS][TM],
                       int8 qsums[TM]) {
    a_lane a[STEP][PIECE];
    load_a(o, 0, block, n, a);
#if SUB_GROUP == 16
    if (AHEAD) fetch_step(o, block + AHEAD * SLICES * STEP);
#endif
    UR for (uint j = 0; j < TN; j++) {
        uint b[B_SIZE];
        load_b(o, j, block, n, b);
        UR for (uint c = j * HALVES; c < (j + 1) * HALVES; c++)
            UR for (uint u = 0; u < n; u++) {
                b_columns columns = columns_of(b, u, c % HALVES);
                UR for (uint i = 0; i < TM; i++) sums[c][i] = MULTIPLY(rows_of(a[u], i), columns, sums[c][i]);
#if SPLIT_BITS
                columns = high_columns(b, u, c % HALVES);
                UR for (uint i = 0; i < TM; i++) high[c][i] = MULTIPLY(rows_of(a[u], i), columns, high[c][i]);
#endif
            }
    }
    if (IN_REGISTERS) add_codes(a, qsums);
}

INLINE void store_sums(private const operands *o, private const target *to, private const row_numbers *z, uint c,
                       const int8 sums[TM]) {
    private const part *w = to->w;
    uint tile = w->tile0 + to->tile;
    float8 results[TM];
    float scale = block_scale(o, w->scales, w->supers, tile, c, 0);
    float smallest = MINS ? block_scale(o, w->mins, w->super_mins, tile, c, 0) : 0;
    UR for (uint i = 0; i < TM; i++) results[i] = add_group(o, z, i, scale, smallest, sums[i], 0);
    store_block(o, to, z, c, results);
}

#if SLICES > 1
/* Slices put their sums into local memory; then each adds up those of some blocks of rows. */
INLINE void join_slices(private const operands *o, private const target *to, private const row_numbers *z,
                        int8 sums[BLOCKS][TM]) {
    local int *own = o->partials + o->slice * (BLOCKS * TOKENS * SUB_GROUP) + LANE;
    barrier(CLK_LOCAL_MEM_FENCE); /* part 0's have been read */
    UR for (uint c = 0; c < BLOCKS; c++)
        UR for (uint t = 0; t < TOKENS; t++)
            own[(c * TOKENS + t) * SUB_GROUP] = ((private const int *)&sums[c][t / 8])[t % 8];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint c = o->slice; c < BLOCKS; c += SLICES) {
        int8 joined[TM];
        UR for (uint t = 0; t < TOKENS; t++) {
            int sum = 0;
            UR for (uint s = 0; s < SLICES; s++) sum += o->partials[((s * BLOCKS + c) * TOKENS + t) * SUB_GROUP + LANE];
            ((private int *)&joined[t / 8])[t % 8] = sum;
        }
        store_sums(o, to, z, c, joined);
    }
}
#endif

INLINE void run_part(private const operands *o, private const target *to) {
    int8 sums[BLOCKS][TM], high[BLOCKS][TM], qsums[TM]; /* high: with SPLIT_BITS */
    row_numbers z;
    UR for (uint i = 0; i < TM; i++) qsums[i] = 0;
    UR for (uint c = 0; c < BLOCKS; c++) UR for (uint i = 0; i < TM; i++) sums[c][i] = high[c][i] = 0;
#if SUB_GROUP == 16
    for (uint block = o->slice * STEP; block < o->n_blocks; block += SLICES * STEP) add_blocks(o, block, STEP, sums, high, qsums);
#else
    uint whole = o->n_blocks / STEP * STEP;
    for (uint block = o->slice * STEP; block < whole; block += SLICES * STEP) add_blocks(o, block, STEP, sums, high, qsums);
    for (uint block = whole + o->slice; block < o->n_blocks; block += SLICES) add_blocks(o, block, 1, sums, high, qsums);
#endif
    if (SPLIT_BITS) UR for (uint c = 0; c < BLOCKS; c++) UR for (uint i = 0; i < TM; i++) sums[c][i] += high[c][i] << LOW_BITS;
    load_rows(o, 0, &z);
    UR for (uint i = 0; i < TM; i++) z.qsums[i] = qsums[i];
#if SLICES > 1
    join_slices(o, to, &z, sums);
#else
    UR for (uint c = 0; c < BLOCKS; c++) store_sums(o, to, &z, c, sums[c]);
#endif
}
#endif
