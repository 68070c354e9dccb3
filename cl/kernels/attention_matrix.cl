/* Attention on Intel's matrix instructions: as attention.cl, with the same chunks of keys, entries, arguments and
 * partials, so that attention_merge serves both.
 *
 *     kernel void attention_split(batch, q, keys, values, layer_offset, head_blocks, scale, partials, out)
 *     kernel void attention_whole(batch, q, keys, values, layer_offset, head_blocks, scale, out)
 *
 * Work-groups: as attention.cl's. Local size: SUB_GROUP * 8.
 * Options: HEAD_DIM (a multiple of 16, of 32 with KV=8; 32 to 16 * SUB_GROUP), KV, N_HEAD, N_HEAD_KV as there,
 *          -D SUB_GROUP=16|8  the width of the device's matrix instructions; 16: with 2D block loads
 *          -D SPLIT=0|1       1: attention_split, 0: attention_whole
 *          -D ROWS=n          attention_split: 1. Else ROWS * N_HEAD / N_HEAD_KV should not exceed 32, 16 in sub-groups
 *                             of 8.
 *                             Local memory: about ROWS * N_HEAD / N_HEAD_KV * (4 * HEAD_DIM + 700) bytes
 * Result: KV=16: queries and softmax's weights are each the sum of two f16 terms, within 2^-21 of what they are; sums are
 * in f32 in the order of the instructions. A row's result does not depend on ROWS, on the entry, or on other rows.
 * KV=8: exactly cpu/ref's. Queries and weights are integers of 16 bits there, here a signed high byte and an unsigned low
 * one; sums of their products with codes are exact, and all floats are made in attention.cl's order.
 *
 * Of a chunk of 128 keys each of the eight sub-groups scores 16 keys with all queries of the work-group, and then makes
 * a block of dimensions of their outputs (or one for a part of them, or several): 16 of them, 32 with KV=8. So keys are
 * loaded and paired into operands once in a work-group, and meet up to 32 queries there; values as well with KV=16. */
#define GROUPS  8 /* sub-groups of a work-group, and blocks of keys of a chunk */
#define WG      (SUB_GROUP * GROUPS)
#define SHARING (N_HEAD / N_HEAD_KV) /* query heads of a key head */
#define QUERIES (ROWS * SHARING)
#define TERMS   2
#if KV == 8
#define HALVES 2 /* 16 dimensions each, of a block */
#else
#define HALVES 1
#endif
#define BLOCK_DIMS (16 * HALVES)
#define STEPS      (HEAD_DIM / BLOCK_DIMS) /* instructions' k along a head, and blocks of dimensions */
#define UR      _Pragma("unroll")
#define ONE_BY_ONE _Pragma("unroll 1") /* else registers do not suffice */
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

/* Queries of an instruction, and instructions that all queries take. */
#if QUERIES >= 5
#define M 8
#elif QUERIES >= 3
#define M 4
#elif QUERIES == 2
#define M 2
#else
#define M 1
#endif
#define TILES DIV_UP(QUERIES, M)

#if M == 1
#define VECTOR(type) type
#define COUNT
#else
#define VECTOR(type) JOIN(type, M)
#define COUNT M
#endif
typedef VECTOR(float) d_rows;
#if SUB_GROUP == 16
typedef VECTOR(short) a_rows; /* lane l: element l of each row */
#define A_READ(p) JOIN(as_, VECTOR(short))(JOIN(intel_sub_group_block_read_us, COUNT)((local const ushort *)(p)))
#define PER_LANE 1            /* columns of 16 that a lane has */
#else
typedef VECTOR(int) a_rows; /* lane l: elements 2l and 2l + 1 */
#define A_READ(p) JOIN(as_, VECTOR(int))(JOIN(intel_sub_group_block_read, COUNT)((local const uint *)(p)))
#define PER_LANE 2
#endif
#define COLUMNS (PER_LANE * HALVES) /* of a block that a lane has */
#if KV == 8
typedef VECTOR(int) i_rows;
#if SUB_GROUP == 16
typedef VECTOR(ushort) u_rows;
#define UNSIGNED JOIN(as_, VECTOR(ushort))
#else
typedef VECTOR(uint) u_rows;
#define UNSIGNED JOIN(as_, VECTOR(uint))
#endif
#define TO_FLOATS JOIN(convert_, VECTOR(float))
i_rows __attribute__((overloadable)) intel_sub_group_i8_i8_matrix_mad_k32(a_rows a, int8 b, i_rows acc);
i_rows __attribute__((overloadable)) intel_sub_group_u8_i8_matrix_mad_k32(u_rows a, int8 b, i_rows acc);
#else
d_rows __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(a_rows a, int8 b, d_rows acc);
#endif

/* Which dimensions and queries a sub-group makes. */
#define BLOCKS      DIV_UP(STEPS, GROUPS)               /* of dimensions */
#define PARTS       (STEPS < GROUPS ? GROUPS / STEPS : 1) /* sub-groups that share a block's queries */
#define OWN_TILES   DIV_UP(TILES, PARTS)

#if KV == 8
typedef uchar terms[M][32];
#else
typedef ushort terms[M][16];
#endif
typedef struct {
    terms q[TILES][STEPS][TERMS];
#if KV == 8
    float p[TILES * M * (HEAD_DIM > KV_CHUNK ? HEAD_DIM : KV_CHUNK)]; /* [query][key]; before that the queries */
#else
    terms p[TILES][GROUPS][TERMS];
#endif
    float most[TILES * M][GROUPS], sum[TILES * M][GROUPS];
    float m[TILES * M], l[TILES * M]; /* of a chunk */
    float down[TILES * M];
    uint n_keys[TILES * M]; /* of the chunk, up to 128 */
} work;

#define FOR_ITEMS(i, n) for (uint i = get_local_id(0); i < (n); i += WG)
#define ROW(vector, r)  (((private float *)&(vector))[r])
#if SUB_GROUP == 16
#define ROW_OF_A(vector, r) (((private ushort *)&(vector))[r])
#else
#define ROW_OF_A(vector, r) (((private uint *)&(vector))[r])
#endif

#if KV == 16
/* x as two terms. */
static void split_float(float x, local ushort *high, local ushort *low) {
    ushort bits;
    vstore_half_rte(x, 0, (private half *)&bits);
    *high = bits;
    vstore_half_rte(x - vload_half(0, (private const half *)&bits), 0, (private half *)&bits);
    *low = bits;
}
#endif

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
        s->down[n] = most < QUANTIZE_TINY ? 0 : most / 32767;
        s->m[n] = most < QUANTIZE_TINY ? 0 : 32767 / most;
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

/* ---- operands ----------------------------------------------------------------------------------------------------- */

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

/* ---- one chunk ---------------------------------------------------------------------------------------------------- */

/* The sub-group's largest, and its sum in one order, of each row. */
static float most_of_row(float x) {
    return sub_group_reduce_max(x);
}
#if KV == 16
static float sum_of_row(float x) {
    UR for (uint distance = SUB_GROUP / 2; distance > 0; distance /= 2) x += intel_sub_group_shuffle_xor(x, distance);
    return x;
}
#endif

/* scores += products of tile t's queries and a block's keys, b, of the k that are number `step`. */
static void add_products(local const work *s, uint t, uint step, global const uchar *block, int8 b[PER_LANE],
                         d_rows scores[PER_LANE]) {
#if KV == 8
    a_rows high = A_READ(&s->q[t][step][0][0][0]), low = A_READ(&s->q[t][step][1][0][0]);
    UR for (uint c = 0; c < PER_LANE; c++) {
        uint key = get_sub_group_local_id() * PER_LANE + c;
        i_rows exact = intel_sub_group_i8_i8_matrix_mad_k32(high, b[c], (i_rows)0) << 8;
        exact = intel_sub_group_u8_i8_matrix_mad_k32(UNSIGNED(low), b[c], exact);
        scores[c] = fma(TO_FLOATS(exact), (d_rows)vload_half(step * KEY_BLOCK + key, (global const half *)block), scores[c]);
    }
#else
    UR for (uint term = 0; term < TERMS; term++) {
        a_rows a = A_READ(&s->q[t][step][term][0][0]);
        UR for (uint c = 0; c < PER_LANE; c++)
            scores[c] = intel_sub_group_f16_f16_matrix_mad_k16(a, b[c], scores[c]);
    }
#endif
}

/* Scores of the sub-group's block of keys with all queries, scaled; -infinity beyond a query's keys. */
static void make_scores(global const uchar *keys, uint group, float scale, local work *s,
                        d_rows scores[TILES][PER_LANE]) {
    uint lane = get_sub_group_local_id();
    global const uchar *block = keys + group * KV_BLOCK_BYTES;
    UR for (uint t = 0; t < TILES; t++)
        UR for (uint c = 0; c < PER_LANE; c++) scores[t][c] = 0;
    ONE_BY_ONE for (uint step = 0; step < STEPS; step++) {
        int8 b[PER_LANE];
        load_keys((global const ushort *)(block + KV_CODES_OFFSET) + step * 16 * KEY_BLOCK, b);
        UR for (uint t = 0; t < TILES; t++) add_products(s, t, step, block, b, scores[t]);
    }
    UR for (uint t = 0; t < TILES; t++)
        UR for (uint r = 0; r < M; r++) {
            uint n = t * M + r;
            float most = -INFINITY;
            UR for (uint c = 0; c < PER_LANE; c++) {
                bool has = group * KEY_BLOCK + lane * PER_LANE + c < s->n_keys[n];
                ROW(scores[t][c], r) = has ? ROW(scores[t][c], r) * s->down[n] * scale : -INFINITY;
                most = fmax(most, ROW(scores[t][c], r));
            }
            most = most_of_row(most);
            if (lane == 0) s->most[n][group] = most;
        }
}

/* The weights exp(score - m); KV=16: as terms of 2^15 times them, and their sum. */
static void make_weights(uint group, local work *s, d_rows scores[TILES][PER_LANE]) {
    uint lane = get_sub_group_local_id();
    UR for (uint t = 0; t < TILES; t++)
        UR for (uint r = 0; r < M; r++) {
            uint n = t * M + r;
            float m = s->m[n];
#if KV == 16
            float sum = 0;
#endif
            UR for (uint c = 0; c < PER_LANE; c++) {
                float score = ROW(scores[t][c], r);
                float p = select(crumb_exp(score - m), 0.0f, (int)(score == -INFINITY));
                uint at = lane * PER_LANE + c;
#if KV == 8
                s->p[n * KV_CHUNK + group * KEY_BLOCK + at] = p;
#else
                split_float(p * 32768, &s->p[t][group][0][r][at], &s->p[t][group][1][r][at]);
                sum += p;
#endif
            }
#if KV == 16
            sum = sum_of_row(sum);
            if (lane == 0) s->sum[n][group] = sum;
#endif
        }
}

/* The sub-group has no keys. */
static void make_nothing(uint group, local work *s) {
    for (uint i = get_sub_group_local_id(); i < TILES * M; i += SUB_GROUP) {
        s->most[i][group] = -INFINITY;
#if KV == 16
        s->sum[i][group] = 0;
#endif
    }
#if KV == 8
    for (uint i = get_sub_group_local_id(); i < TILES * M * KEY_BLOCK; i += SUB_GROUP)
        s->p[i / KEY_BLOCK * KV_CHUNK + group * KEY_BLOCK + i % KEY_BLOCK] = 0;
#endif
}

/* s->l, of the weights or of the sub-groups' sums, behind a barrier. */
static void add_weights(local work *s) {
#if KV == 8
    FOR_ITEMS(i, TILES * M * 8) {
        float sum = 0;
        UR for (uint j = 0; j < KV_CHUNK; j += 8) sum += s->p[i / 8 * KV_CHUNK + i % 8 + j];
        s->sum[i / 8][i % 8] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    FOR_ITEMS(i, TILES * M) {
        local const float *sum = s->sum[i];
#if KV == 8
        s->l[i] = ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
#else
        float l = sum[0];
        for (uint j = 1; j < GROUPS; j++) l += sum[j];
        s->l[i] = l;
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* m, l and the weights of a chunk, for queries whose n_keys is not 0; n is the most keys of any. */
static void weigh_keys(global const uchar *keys, uint n, uint group, float scale, local work *s) {
    d_rows scores[TILES][PER_LANE];
    if (group * KEY_BLOCK < n) {
        make_scores(keys, group, scale, s, scores);
    } else {
        make_nothing(group, s);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(i, TILES * M) {
        float m = s->most[i][0];
        for (uint j = 1; j < GROUPS; j++) m = fmax(m, s->most[i][j]);
        s->m[i] = m;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (group * KEY_BLOCK < n) make_weights(group, s, scores);
    barrier(CLK_LOCAL_MEM_FENCE);
    add_weights(s);
}

/* A block of dimensions of a chunk's weighted values, for the sub-group's queries. */
#if KV == 8
#define TERM_KEYS (32 / SUB_GROUP) /* that a lane has in a row, of an instruction's k */

/* Of 32 keys those that a lane has: the scales of their values; 0 behind n. */
static void load_scales(global const uchar *values, uint block, uint first, uint n, private float *scales) {
    UR for (uint k = 0; k < TERM_KEYS; k++) {
        uint key = first + get_sub_group_local_id() * TERM_KEYS + k;
        global const half *of_block = (global const half *)(values + key / KEY_BLOCK * KV_BLOCK_BYTES);
        scales[k] = key < n ? vload_half(block * KEY_BLOCK + key % KEY_BLOCK, of_block) : 0;
    }
}

/* And a query's weights times them. */
static void scale_weights(local const work *s, uint query, uint first, private const float *scales, private float *w) {
    local const float *p = s->p + query * KV_CHUNK + first + get_sub_group_local_id() * TERM_KEYS;
    UR for (uint k = 0; k < TERM_KEYS; k++) w[k] = p[k] * scales[k];
}

/* The largest of a tile's weights times scales: lane r has row r's. */
static float most_weights(global const uchar *values, uint n, uint block, local const work *s, uint tile) {
    float most = 0, scales[KV_CHUNK / 32][TERM_KEYS], w[TERM_KEYS];
    UR for (uint i = 0; i < KV_CHUNK / 32; i++) load_scales(values, block, i * 32, n, scales[i]);
    ONE_BY_ONE for (uint r = 0; r < M; r++) {
        float own = 0;
        UR for (uint i = 0; i < KV_CHUNK / 32; i++) {
            scale_weights(s, tile * M + r, i * 32, scales[i], w);
            UR for (uint k = 0; k < TERM_KEYS; k++) own = fmax(own, w[k]);
        }
        own = most_of_row(own);
        if (get_sub_group_local_id() == r) most = own;
    }
    return most;
}

/* A tile's weights of 32 keys as integers of 16 bits, in operands. None is negative, or as large as 32767.5, so that
 * adding 1.5 * 2^23 rounds them to nearest even and leaves them in the low bits. */
static void quantize_weights(local const work *s, uint tile, uint first, private const float *scales, float inverse,
                             private a_rows *high, private a_rows *low) {
    UR for (uint r = 0; r < M; r++) {
        uint highs = 0, lows = 0;
        float w[TERM_KEYS], factor = sub_group_broadcast(inverse, r);
        scale_weights(s, tile * M + r, first, scales, w);
        UR for (uint k = 0; k < TERM_KEYS; k++) {
            uint code = as_uint(w[k] * factor + 0x1.8p23f);
            highs |= (code >> 8 & 255) << (8 * k);
            lows |= (code & 255) << (8 * k);
        }
        ROW_OF_A(*high, r) = highs;
        ROW_OF_A(*low, r) = lows;
    }
}

static void weigh_values(global const uchar *values, uint n, uint block, uint tile0, local const work *s,
                         d_rows sums[OWN_TILES][COLUMNS]) {
    global const uchar *codes = values + KV_CODES_OFFSET + block * (BLOCK_DIMS * KEY_BLOCK);
    UR for (uint t = 0; t < OWN_TILES; t++) {
        uint tile = min(tile0 + t, (uint)TILES - 1);
        float most = most_weights(values, n, block, s, tile);
        float inverse = most < QUANTIZE_TINY ? 0 : 32767 / most, scale = most < QUANTIZE_TINY ? 0 : most / 32767;
        i_rows exact[TERMS][COLUMNS];
        UR for (uint c = 0; c < COLUMNS; c++) exact[0][c] = exact[1][c] = 0;
        ONE_BY_ONE for (uint first = 0; first < n; first += 32) {
            a_rows high, low;
            int8 b[COLUMNS];
            float scales[TERM_KEYS];
            load_values(codes, first / KEY_BLOCK, n, b);
            load_scales(values, block, first, n, scales);
            quantize_weights(s, tile, first, scales, inverse, &high, &low);
            UR for (uint c = 0; c < COLUMNS; c++) {
                exact[0][c] = intel_sub_group_i8_i8_matrix_mad_k32(high, b[c], exact[0][c]);
                exact[1][c] = intel_sub_group_u8_i8_matrix_mad_k32(UNSIGNED(low), b[c], exact[1][c]);
            }
        }
        UR for (uint c = 0; c < COLUMNS; c++) {
            sums[t][c] = TO_FLOATS((exact[0][c] << 8) + exact[1][c]);
            UR for (uint r = 0; r < M; r++) ROW(sums[t][c], r) *= sub_group_broadcast(scale, r);
        }
    }
}
#else
static void weigh_values(global const uchar *values, uint n, uint block, uint tile0, local const work *s,
                         d_rows sums[OWN_TILES][COLUMNS]) {
    UR for (uint t = 0; t < OWN_TILES; t++)
        UR for (uint c = 0; c < PER_LANE; c++) sums[t][c] = 0;
    ONE_BY_ONE for (uint j = 0; j * KEY_BLOCK < n; j++) {
        int8 b[PER_LANE];
        load_values((global const ushort *)(values + (size_t)j * KV_BLOCK_BYTES), block * 16, b);
        UR for (uint t = 0; t < OWN_TILES; t++)
            UR for (uint term = 0; term < TERMS; term++) {
                a_rows a = A_READ(&s->p[min(tile0 + t, (uint)TILES - 1)][j][term][0][0]);
                UR for (uint c = 0; c < PER_LANE; c++)
                    sums[t][c] = intel_sub_group_f16_f16_matrix_mad_k16(a, b[c], sums[t][c]);
            }
    }
    UR for (uint t = 0; t < OWN_TILES; t++)
        UR for (uint c = 0; c < PER_LANE; c++) sums[t][c] *= 0x1p-15f;
}
#endif

/* The sub-group's part of the outputs: its i-th block of dimensions; false: it has none. */
static bool own_block(uint i, uint group, private uint *block, private uint *tile0) {
    *block = PARTS > 1 ? group % STEPS : group + i * GROUPS;
    *tile0 = PARTS > 1 ? group / STEPS * OWN_TILES : 0;
    return *block < STEPS && *tile0 < TILES;
}

/* Column c's dimension. A lane that is asked for here makes attention_whole 4 % longer; held through its loops, it spills
 * over int8 caches in sub-groups of 8. */
static uint dim_of(uint block, uint lane, uint c) {
    return block * BLOCK_DIMS + c / PER_LANE * 16 + lane * PER_LANE + c % PER_LANE;
}

/* ---- decode: a chunk per work-group ------------------------------------------------------------------------------- */

#define ATTRIBUTES                                                                                                     \
    __attribute__((intel_reqd_sub_group_size(SUB_GROUP))) __attribute__((reqd_work_group_size(WG, 1, 1)))

#if SPLIT
ATTRIBUTES kernel void attention_split(global const crumb_batch *batch, global const crumb_value *q,
                                       global const uchar *keys, global const uchar *values, ulong layer_offset,
                                       uint head_blocks, float scale, global float *partials,
                                       global crumb_result *out) {
    local work s;
    uint chunk = get_group_id(0), kv_head = get_group_id(1), n = get_group_id(2), chunks = get_num_groups(0);
    uint group = get_local_id(0) / SUB_GROUP, lane = get_sub_group_local_id();
    if (n >= batch->n_rows) return;
    crumb_row row = ROWS_OF(batch)[n];
    if (chunk * KV_CHUNK > row.position) return;
    uint n_keys = min((uint)KV_CHUNK, row.position + 1 - chunk * KV_CHUNK);
    FOR_ITEMS(i, TILES * M) s.n_keys[i] = n_keys;
    load_queries(q, n, 1, kv_head, &s);
    size_t head = kv_head_offset(layer_offset, row.sequence, N_HEAD_KV, kv_head, head_blocks) +
                  (size_t)chunk * GROUPS * KV_BLOCK_BYTES;
    weigh_keys(keys + head, n_keys, group, scale, &s);
    for (uint i = 0; i < BLOCKS; i++) {
        uint block, tile0;
        d_rows sums[OWN_TILES][COLUMNS];
        if (!own_block(i, group, &block, &tile0)) break;
        weigh_values(values + head, n_keys, block, tile0, &s, sums);
        UR for (uint t = 0; t < OWN_TILES; t++)
            UR for (uint r = 0; r < M; r++) {
                uint query = (tile0 + t) * M + r;
                if (query >= QUERIES) continue;
                size_t at = (size_t)n * N_HEAD + kv_head * SHARING + query;
                if (chunks == 1)
                    UR for (uint c = 0; c < COLUMNS; c++)
                        out[at * HEAD_DIM + dim_of(block, lane, c)] = TO_RESULT(ROW(sums[t][c], r) * (1 / s.l[query]));
                else
                    UR for (uint c = 0; c < COLUMNS; c++)
                        partials[(at * chunks + chunk) * (HEAD_DIM + 2) + dim_of(block, lane, c)] = ROW(sums[t][c], r);
            }
    }
    if (chunks == 1) return;
    FOR_ITEMS(i, QUERIES) {
        size_t at = ((size_t)n * N_HEAD + kv_head * SHARING + i) * chunks + chunk;
        partials[at * (HEAD_DIM + 2) + HEAD_DIM] = s.m[i];
        partials[at * (HEAD_DIM + 2) + HEAD_DIM + 1] = s.l[i];
    }
}
#else

/* ---- prefill: all chunks, one after the other --------------------------------------------------------------------- */

typedef struct {
    float m[TILES * M], l[TILES * M];     /* of the chunks so far */
    float old[TILES * M], new[TILES * M]; /* what they and the chunk's results are multiplied with */
} merged;

/* Keys of a chunk that each query has, of rows [from, to) alone. */
static void count_keys(global const crumb_row *rows, uint from, uint to, uint first, local work *s) {
    FOR_ITEMS(i, TILES * M) {
        uint r = i / SHARING;
        bool has = r >= from && r < to && rows[r].position >= first;
        s->n_keys[i] = has ? min((uint)KV_CHUNK, rows[r].position - first + 1) : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

static void merge_sums(local const work *s, local merged *all) {
    FOR_ITEMS(i, TILES * M) {
        bool has = s->n_keys[i] > 0;
        float most = has ? fmax(all->m[i], s->m[i]) : 0;
        float old = has ? crumb_exp(all->m[i] - most) : 1, new = has ? crumb_exp(s->m[i] - most) : 0;
        all->l[i] = all->l[i] * old + s->l[i] * new;
        if (has) all->m[i] = most;
        all->old[i] = old;
        all->new[i] = new;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Rows [from, to) of the work-group's, which are of one sequence. */
static void attend_run(global const crumb_row *rows, uint from, uint to, global const uchar *keys,
                       global const uchar *values, uint group, float scale, local work *s, local merged *all,
                       d_rows o[BLOCKS][OWN_TILES][COLUMNS]) {
    uint end = rows[to - 1].position + 1; /* positions rise */
    for (uint first = 0; first < end; first += KV_CHUNK) {
        uint n = min((uint)KV_CHUNK, end - first);
        size_t offset = (size_t)first / KEY_BLOCK * KV_BLOCK_BYTES;
        count_keys(rows, from, to, first, s);
        weigh_keys(keys + offset, n, group, scale, s);
        merge_sums(s, all);
        UR for (uint i = 0; i < BLOCKS; i++) {
            uint block, tile0;
            d_rows sums[OWN_TILES][COLUMNS];
            if (!own_block(i, group, &block, &tile0)) continue;
            weigh_values(values + offset, n, block, tile0, s, sums);
            UR for (uint t = 0; t < OWN_TILES; t++)
                UR for (uint r = 0; r < M; r++) {
                    uint query = min((tile0 + t) * M + r, (uint)(TILES * M - 1));
                    UR for (uint c = 0; c < COLUMNS; c++)
                        ROW(o[i][t][c], r) = fma(ROW(o[i][t][c], r), all->old[query], ROW(sums[t][c], r) * all->new[query]);
                }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

ATTRIBUTES kernel void attention_whole(global const crumb_batch *batch, global const crumb_value *q,
                                       global const uchar *keys, global const uchar *values, ulong layer_offset,
                                       uint head_blocks, float scale, global crumb_result *out) {
    local work s;
    local merged all;
    d_rows o[BLOCKS][OWN_TILES][COLUMNS];
    uint kv_head = get_group_id(0), row0 = get_group_id(1) * ROWS;
    uint group = get_local_id(0) / SUB_GROUP;
    if (row0 >= batch->n_rows) return;
    uint n_rows = min((uint)ROWS, batch->n_rows - row0);
    global const crumb_row *rows = ROWS_OF(batch) + row0;
    UR for (uint i = 0; i < BLOCKS; i++)
        UR for (uint t = 0; t < OWN_TILES; t++)
            UR for (uint c = 0; c < COLUMNS; c++) o[i][t][c] = 0;
    FOR_ITEMS(i, TILES * M) {
        all.m[i] = -INFINITY;
        all.l[i] = 0;
    }
    load_queries(q, row0, n_rows, kv_head, &s);
    for (uint from = 0, to; from < n_rows; from = to) {
        for (to = from + 1; to < n_rows && rows[to].sequence == rows[from].sequence;) to++;
        size_t head = kv_head_offset(layer_offset, rows[from].sequence, N_HEAD_KV, kv_head, head_blocks);
        attend_run(rows, from, to, keys + head, values + head, group, scale, &s, &all, o);
    }
    uint lane = get_sub_group_local_id();
    UR for (uint i = 0; i < BLOCKS; i++) {
        uint block, tile0;
        if (!own_block(i, group, &block, &tile0)) continue;
        UR for (uint t = 0; t < OWN_TILES; t++)
            UR for (uint r = 0; r < M; r++) {
                uint query = (tile0 + t) * M + r;
                if (query >= n_rows * SHARING) continue;
                size_t head = (size_t)(row0 + query / SHARING) * N_HEAD + kv_head * SHARING + query % SHARING;
                UR for (uint c = 0; c < COLUMNS; c++)
                    out[head * HEAD_DIM + dim_of(block, lane, c)] =
                        TO_RESULT(ROW(o[i][t][c], r) * (1 / all.l[query]));
            }
    }
}
#endif
