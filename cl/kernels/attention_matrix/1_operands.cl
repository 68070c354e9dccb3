/* attention_matrix.cl: the operands of its matrix instructions: queries, which the work-group puts into local memory
 * once, and keys and values, which sub-groups load from the cache. */

/* ---- queries ------------------------------------------------------------------------------------------------------ */

/* Query i is that of row i / SHARING and head i % SHARING of the key head's. */
static global const crumb_value *query_of(global const crumb_value *q, uint i, uint row0, uint n_rows, uint kv_head) {
    uint row = row0 + min(i / SHARING, n_rows - 1);
    return q + ((size_t)row * N_HEAD + kv_head * SHARING + min(i, (uint)QUERIES - 1) % SHARING) * HEAD_DIM;
}

#if KV == 8
/* Codes of 16 bits, as attention.cl makes them; s->down is their scale. */
static void load_queries(global const crumb_value *q, uint row0, uint n_rows, uint kv_head, local work *s) {
    const float part = 1.0f / KV_GROUP; /* what turning has multiplied them with */
    FOR_ITEMS(i, TILES * M * HEAD_DIM)
        s->p[i] = FROM_VALUE(query_of(q, i / HEAD_DIM, row0, n_rows, kv_head)[i % HEAD_DIM]);
    barrier(CLK_LOCAL_MEM_FENCE);
    kv_turn(s->p, TILES * M);
    FOR_ITEMS(i, TILES * M * GROUPS) {
        float most = 0;
        for (uint d = i % GROUPS; d < HEAD_DIM; d += GROUPS) most = fmax(most, fabs(s->p[i / GROUPS * HEAD_DIM + d]));
        s->most[i / GROUPS][i % GROUPS] = most * part;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(n, TILES * M) {
        float most = s->most[n][0];
        for (uint j = 1; j < GROUPS; j++) most = fmax(most, s->most[n][j]);
        s->down[n] = most < QUANTIZE_TINY ? 0 : crumb_divide(most, 32767);
        s->m[n] = most < QUANTIZE_TINY ? 0 : crumb_divide(32767, most);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(i, TILES * M * HEAD_DIM) {
        uint n = i / HEAD_DIM, d = i % HEAD_DIM;
        int code = (int)rint(kv_within(s->p[i] * part * s->m[n], 32767));
        local terms *to = s->q[n / M][d / 32];
        to[0][n % M][d % 32] = (uchar)(code >> 8);
        to[1][n % M][d % 32] = (uchar)code;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#else
/* Each in f16's range: its largest becomes 128 to 256; the exponent is held where both factors are normal numbers. */
static void load_queries(global const crumb_value *q, uint row0, uint n_rows, uint kv_head, local work *s) {
    FOR_ITEMS(i, TILES * M * GROUPS) {
        global const crumb_value *query = query_of(q, i / GROUPS, row0, n_rows, kv_head);
        float most = 0;
        for (uint d = i % GROUPS; d < HEAD_DIM; d += GROUPS) most = fmax(most, fabs(FROM_VALUE(query[d])));
        s->most[i / GROUPS][i % GROUPS] = most;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(i, TILES * M * HEAD_DIM) {
        uint n = i / HEAD_DIM, d = i % HEAD_DIM;
        float most = s->most[n][0];
        for (uint j = 1; j < GROUPS; j++) most = fmax(most, s->most[n][j]);
        int exponent = max(as_int(most) >> 23, 32);
        if (d == 0) s->down[n] = as_float((exponent - 7) << 23);
        local terms *to = s->q[n / M][d / 16];
        float x = FROM_VALUE(query_of(q, n, row0, n_rows, kv_head)[d]);
        split_float(x * as_float((261 - exponent) << 23), &to[0][n % M][d % 16], &to[1][n % M][d % 16]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

/* ---- keys and values ---------------------------------------------------------------------------------------------- */

/* 16 dimensions of a block's keys, from their first, or 16 pairs of codes. Lane l's columns are keys PER_LANE * l and on. */
static void load_keys(global const ushort *from, int8 b[PER_LANE]) {
#if SUB_GROUP == 16
    ushort8 low = intel_sub_group_block_read_us8(from), high = intel_sub_group_block_read_us8(from + 8 * 16);
    ushort16 rows = (ushort16)(low, high);
    UR for (uint i = 0; i < 8; i++)
        ((private uint *)b)[i] = ((private ushort *)&rows)[2 * i] | (uint)((private ushort *)&rows)[2 * i + 1] << 16;
#else
    uint8 low = intel_sub_group_block_read8((global const uint *)from);
    uint8 high = intel_sub_group_block_read8((global const uint *)from + 8 * 8);
    uint16 rows = (uint16)(low, high);
    UR for (uint i = 0; i < 8; i++) {
        uint one = ((private uint *)&rows)[2 * i], two = ((private uint *)&rows)[2 * i + 1];
        ((private uint *)&b[0])[i] = (one & 0xffff) | two << 16;
        ((private uint *)&b[1])[i] = one >> 16 | (two & 0xffff0000);
    }
#endif
}

#if KV == 8
/* Of up to n keys from the first of two blocks 32, which are paired as codes lie: [block][pair][32 dimensions]. Behind
 * the last block its codes again, which meet no weights. Lane l's columns are dimensions PER_LANE * l and on of a half. */
static void load_values(global const uchar *codes, uint first, uint n, int8 b[COLUMNS]) {
    UR for (uint j = 0; j < 2; j++) {
        uint block = min(first + j, (n - 1) / KEY_BLOCK);
#if SUB_GROUP == 16
        global const ushort *from = (global const ushort *)(codes + block * KV_BLOCK_BYTES);
        ushort16 rows = (ushort16)(intel_sub_group_block_read_us8(from), intel_sub_group_block_read_us8(from + 8 * 16));
        UR for (uint i = 0; i < 8; i++) {
            uint half_of = i % HALVES, row = i / HALVES * 2 * HALVES + half_of;
            ((private uint *)&b[half_of])[4 * j + i / HALVES] =
                ((private ushort *)&rows)[row] | (uint)((private ushort *)&rows)[row + HALVES] << 16;
        }
#else
        global const uint *from = (global const uint *)(codes + block * KV_BLOCK_BYTES);
        uint16 rows = (uint16)(intel_sub_group_block_read8(from), intel_sub_group_block_read8(from + 8 * 8));
        UR for (uint i = 0; i < 8; i++) {
            uint half_of = i % HALVES, row = i / HALVES * 2 * HALVES + half_of;
            uint one = ((private uint *)&rows)[row], two = ((private uint *)&rows)[row + HALVES];
            ((private uint *)&b[2 * half_of])[4 * j + i / HALVES] = (one & 0xffff) | two << 16;
            ((private uint *)&b[2 * half_of + 1])[4 * j + i / HALVES] = one >> 16 | (two & 0xffff0000);
        }
#endif
    }
}
#else
#if SUB_GROUP == 16
void __attribute__((overloadable))
intel_sub_group_2d_block_read_transform_16b_16r16x1c(global void *base, int width, int height, int pitch, int2 at,
                                                     private uint *out);
#endif

/* Dimensions [d, d + 16) of a block's 16 values. Lane l's columns are dimensions d + PER_LANE * l and on. */
static void load_values(global const ushort *block, uint d, int8 b[PER_LANE]) {
#if SUB_GROUP == 16
    intel_sub_group_2d_block_read_transform_16b_16r16x1c((global void *)block, 2 * HEAD_DIM, 16, 2 * HEAD_DIM,
                                                         (int2)((int)d, 0), (private uint *)b);
#else
    UR for (uint i = 0; i < 8; i++) {
        uint one = intel_sub_group_block_read((global const uint *)(block + 2 * i * HEAD_DIM + d));
        uint two = intel_sub_group_block_read((global const uint *)(block + (2 * i + 1) * HEAD_DIM + d));
        ((private uint *)&b[0])[i] = (one & 0xffff) | two << 16;
        ((private uint *)&b[1])[i] = one >> 16 | (two & 0xffff0000);
    }
#endif
}
#endif
