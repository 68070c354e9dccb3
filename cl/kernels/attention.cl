/* Attention over the KV cache, after rope.cl has stored the batch's keys and values: out = softmax(scale * q K^T) V over
 * the positions up to each row's own, of its sequence. Two ways to the same numbers:
 *
 *     kernel void attention_split(batch, global const float *q, global const uchar *keys, global const uchar *values,
 *                                 ulong layer_offset, uint head_blocks, float scale, global float *partials,
 *                                 global uint *arrived, global float *out)
 *         for few rows (decode): every chunk of 128 keys is a work-group, and the last of a row's key head to be done merges
 *         the chunks' results
 *     kernel void attention_whole(batch, global const float *q, global const uchar *keys, global const uchar *values,
 *                                 ulong layer_offset, uint head_blocks, float scale, global float *out)
 *         for many rows (prefill): a work-group takes ROWS rows of a key head through all their keys
 *
 *     q, out     f32 [n_rows][N_HEAD][HEAD_DIM]
 *     keys, values, layer_offset, head_blocks   common.cl
 *     scale      factor on the scores
 *     partials, arrived   common/7_attention.cl; chunks: the number of work-groups along dimension 0
 *
 * Work-groups: attention_split: (chunks, N_HEAD_KV, rows), chunks at least ceil(batch->max_kv / 128); those beyond a
 * row's keys return at once. attention_whole: (N_HEAD_KV, ceil(rows / ROWS)).
 * Local size of all: 128.
 * Options: HEAD_DIM, KV (common.cl), -D N_HEAD=n, -D N_HEAD_KV=n,
 *          -D ROWS=n   1 for attention_split; else ROWS * N_HEAD / N_HEAD_KV should not exceed 16.
 *                      Local memory: about (ROWS * N_HEAD / N_HEAD_KV) * (12 * HEAD_DIM + 600) bytes
 * Result: exactly cpu/ref's: chunks, and the order of sums in them, are cpu/attention.h's. */
#define LANES   (HEAD_DIM < WG ? ROUND_UP(HEAD_DIM, 16) : WG) /* items that divide a head's dimensions */
#define PARTS   (WG / LANES)                                  /* and that divide the queries */
#define SHARE   DIV_UP(QUERIES, PARTS)

typedef struct {
    float q[QUERIES * HEAD_DIM]; /* [query][d]; KV=8: ints, of 16 bits */
    float p[QUERIES][KV_CHUNK];
    float o[QUERIES][HEAD_DIM]; /* of a chunk */
    float m[QUERIES], l[QUERIES];
    float lanes[QUERIES][8];
    float q_scale[QUERIES];
    uint n_keys[QUERIES]; /* of the chunk, up to 128 */
#if KV == 8
    int w[QUERIES][KV_CHUNK];
    float w_scale[QUERIES];
#endif
} work;
typedef char work_has_room_for_merging[sizeof(work) >= sizeof(merging) ? 1 : -1];

/* Eight sums in the order of all kernels. */
static float fold_lanes(local const float *s) {
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static float most_of_lanes(local const float *s) {
    float most = s[0];
    for (uint i = 1; i < 8; i++) most = s[i] > most ? s[i] : most;
    return most;
}

/* ---- queries ------------------------------------------------------------------------------------------------------ */

/* Query i is that of row i / SHARING and head i % SHARING of the key head's. */
static void load_queries(global const crumb_value *q, uint row0, uint n_rows, uint kv_head, local work *s) {
    FOR_ITEMS(i, QUERIES * HEAD_DIM) {
        uint query = i / HEAD_DIM, row = min(query / SHARING, n_rows - 1);
        size_t head = (size_t)(row0 + row) * N_HEAD + kv_head * SHARING + query % SHARING;
        s->q[i] = FROM_VALUE(q[head * HEAD_DIM + i % HEAD_DIM]);
    }
#if KV == 8
    barrier(CLK_LOCAL_MEM_FENCE);
    kv_turn(s->q, QUERIES);
    FOR_ITEMS(i, QUERIES * HEAD_DIM) {
        uint n = kv_group_dims(i % HEAD_DIM / KV_GROUP);
        s->q[i] *= 1 / (float)(n & -n);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(i, QUERIES * 8) {
        float most = 0;
        for (uint d = i % 8; d < HEAD_DIM; d += 8) most = fmax(most, fabs(s->q[i / 8 * HEAD_DIM + d]));
        s->lanes[i / 8][i % 8] = most;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(i, QUERIES * HEAD_DIM) {
        uint query = i / HEAD_DIM;
        float a = most_of_lanes(s->lanes[query]), inverse = a < QUANTIZE_TINY ? 0 : crumb_divide(32767, a);
        int code = (int)rint(kv_within(s->q[i] * inverse, 32767));
        s->q[i] = as_float(code);
        if (i % HEAD_DIM == 0) s->q_scale[query] = a < QUANTIZE_TINY ? 0 : crumb_divide(a, 32767);
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* ---- one chunk ---------------------------------------------------------------------------------------------------- */

/* p[i][j] = q[i] . k[j], not yet scaled; an item is a key. */
static void make_scores(global const uchar *keys, local work *s) {
    uint key = get_local_id(0), place = key % KEY_BLOCK;
    global const uchar *block = keys + (size_t)(key / KEY_BLOCK) * KV_BLOCK_BYTES;
    float sums[QUERIES];
#pragma unroll
    for (uint i = 0; i < QUERIES; i++) sums[i] = 0;
#if KV == 16
    for (uint d = 0; d < HEAD_DIM; d++) {
        float k = vload_half(d * KEY_BLOCK + place, (global const half *)block);
#pragma unroll
        for (uint i = 0; i < QUERIES; i++) sums[i] = fma(s->q[i * HEAD_DIM + d], k, sums[i]);
    }
#pragma unroll
    for (uint i = 0; i < QUERIES; i++) s->p[i][key] = sums[i];
#else
    global const char *codes = (global const char *)block + KV_CODES_OFFSET + 2 * place;
    for (uint g = 0; g < KV_GROUPS; g++) {
        int exact[QUERIES];
#pragma unroll
        for (uint i = 0; i < QUERIES; i++) exact[i] = 0;
        for (uint d = g * KV_GROUP; d < g * KV_GROUP + kv_group_dims(g); d += 2) {
            int low = codes[d / 2 * (2 * KEY_BLOCK)], high = codes[d / 2 * (2 * KEY_BLOCK) + 1];
#pragma unroll
            for (uint i = 0; i < QUERIES; i++) exact[i] += as_int(s->q[i * HEAD_DIM + d]) * low + as_int(s->q[i * HEAD_DIM + d + 1]) * high;
        }
        float scale = vload_half(g * KEY_BLOCK + place, (global const half *)block);
#pragma unroll
        for (uint i = 0; i < QUERIES; i++) sums[i] = fma((float)exact[i], scale, sums[i]);
    }
#pragma unroll
    for (uint i = 0; i < QUERIES; i++) s->p[i][key] = sums[i] * s->q_scale[i];
#endif
}

/* p = exp(scale * p - m) with m and l of the chunk; 0 beyond a query's keys. Eight items share a query. */
static void make_softmax(float scale, local work *s) {
    FOR_ITEMS(i, QUERIES * 8) {
        uint query = i / 8;
        float most = -INFINITY;
        for (uint j = i % 8; j < s->n_keys[query]; j += 8) {
            float score = s->p[query][j] * scale;
            s->p[query][j] = score;
            most = score > most ? score : most;
        }
        s->lanes[query][i % 8] = most;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(query, QUERIES) s->m[query] = most_of_lanes(s->lanes[query]);
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(i, QUERIES * 8) {
        uint query = i / 8;
        float sum = 0;
        for (uint j = i % 8; j < KV_CHUNK; j += 8) {
            float p = j < s->n_keys[query] ? crumb_exp(s->p[query][j] - s->m[query]) : 0;
            s->p[query][j] = p;
            sum += p;
        }
        s->lanes[query][i % 8] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(query, QUERIES) s->l[query] = fold_lanes(s->lanes[query]);
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* o[i] = sum of p[i][j] * v[j] over the chunk's first n keys. */
#if KV == 16
static void weigh_values(global const uchar *values, uint n, local work *s) {
    uint part = get_local_id(0) / LANES;
    if (part >= PARTS) return;
    for (uint d = get_local_id(0) % LANES; d < HEAD_DIM; d += LANES) {
        float sums[SHARE];
#pragma unroll
        for (uint i = 0; i < SHARE; i++) sums[i] = 0;
        for (uint j = 0; j < n; j++) {
            size_t block = (size_t)(j / KEY_BLOCK) * KV_BLOCK_BYTES;
            float v = vload_half(j % KEY_BLOCK * HEAD_DIM + d, (global const half *)(values + block));
#pragma unroll
            for (uint i = 0; i < SHARE; i++) sums[i] = fma(s->p[min(part * SHARE + i, (uint)QUERIES - 1)][j], v, sums[i]);
        }
#pragma unroll
        for (uint i = 0; i < SHARE; i++)
            if (part * SHARE + i < QUERIES) s->o[part * SHARE + i][d] = sums[i];
    }
}
#else
/* Weights of 16 bits for group g of the values: p times the values' scales. */
static void quantize_weights(global const uchar *values, uint g, local work *s) {
    FOR_ITEMS(i, QUERIES * 8) {
        uint query = i / 8;
        float most = 0;
        for (uint j = i % 8; j < s->n_keys[query]; j += 8) {
            global const uchar *block = values + (size_t)(j / KEY_BLOCK) * KV_BLOCK_BYTES;
            float w = s->p[query][j] * vload_half(g * KEY_BLOCK + j % KEY_BLOCK, (global const half *)block);
            s->w[query][j] = as_int(w);
            most = w > most ? w : most;
        }
        s->lanes[query][i % 8] = most;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(i, QUERIES * 8) {
        uint query = i / 8;
        float most = most_of_lanes(s->lanes[query]), inverse = most < QUANTIZE_TINY ? 0 : crumb_divide(32767, most);
        for (uint j = i % 8; j < s->n_keys[query]; j += 8)
            s->w[query][j] = (int)rint(kv_within(as_float(s->w[query][j]) * inverse, 32767));
        if (i % 8 == 0) s->w_scale[query] = most < QUANTIZE_TINY ? 0 : crumb_divide(most, 32767);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

static void weigh_values(global const uchar *values, uint n, local work *s) {
    for (uint g = 0; g < KV_GROUPS; g++) {
        quantize_weights(values, g, s);
        uint first = g * KV_GROUP, dims = kv_group_dims(g), width = kv_group_width(g);
        FOR_ITEMS(i, QUERIES * dims) {
            uint query = i / dims, d = i % dims;
            global const char *codes = (global const char *)values + KV_CODES_OFFSET + first * KEY_BLOCK;
            int exact = 0;
            for (uint j = 0; j < min(n, s->n_keys[query]); j++) {
                uint pair = j % KEY_BLOCK / 2 * width + d;
                exact += s->w[query][j] * codes[(size_t)(j / KEY_BLOCK) * KV_BLOCK_BYTES + 2 * pair + j % 2];
            }
            s->o[query][first + d] = (float)exact * s->w_scale[query];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
#endif

/* (m, l, o) of chunk `chunk` for all queries whose n_keys is not 0; n is the most keys of any. */
static void attend_chunk(global const uchar *keys, global const uchar *values, uint chunk, uint n, float scale,
                         local work *s) {
    size_t offset = (size_t)chunk * (KV_CHUNK / KEY_BLOCK) * KV_BLOCK_BYTES;
    if (get_local_id(0) < ROUND_UP(n, KEY_BLOCK)) make_scores(keys + offset, s);
    barrier(CLK_LOCAL_MEM_FENCE);
    make_softmax(scale, s);
    weigh_values(values + offset, n, s);
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* ---- decode: a chunk per work-group ------------------------------------------------------------------------------- */

#if ROWS == 1
kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention_split(global const crumb_batch *batch, global const crumb_value *q, global const uchar *keys,
                global const uchar *values, ulong layer_offset, uint head_blocks, float scale,
                global float *partials, global uint *arrived, global crumb_result *out) {
    local work s;
    uint chunk = get_group_id(0), kv_head = get_group_id(1), n = get_group_id(2), chunks = get_num_groups(0);
    if (n >= batch->n_rows) return;
    crumb_row row = ROWS_OF(batch)[n];
    uint end = row.position / KV_CHUNK + 1;
    if (chunk >= end) return;
    uint n_keys = min((uint)KV_CHUNK, row.position + 1 - chunk * KV_CHUNK);
    FOR_ITEMS(i, QUERIES) s.n_keys[i] = n_keys;
    load_queries(q, n, 1, kv_head, &s);
    size_t head = kv_head_offset(layer_offset, row.sequence, N_HEAD_KV, kv_head, head_blocks);
    attend_chunk(keys + head, values + head, chunk, n_keys, scale, &s);
    for (uint i = 0; i < QUERIES; i++) {
        if (end == 1) {
            float factor = crumb_divide(1, s.l[i]);
            size_t at = ((size_t)n * N_HEAD + kv_head * SHARING + i) * HEAD_DIM;
            FOR_ITEMS(d, HEAD_DIM) out[at + d] = TO_RESULT(s.o[i][d] * factor);
            continue;
        }
        global float *to = partials + partial_at(n, kv_head, i, chunks, chunk);
        FOR_ITEMS(d, HEAD_DIM) put_partial(to + d, s.o[i][d]);
        if (get_local_id(0) == 0) {
            put_partial(to + HEAD_DIM, s.m[i]);
            put_partial(to + HEAD_DIM + 1, s.l[i]);
        }
    }
    if (end > 1) join_chunks(partials, arrived, n, kv_head, chunks, end, out, (local merging *)&s);
}
#endif

/* ---- prefill: all chunks, one after the other --------------------------------------------------------------------- */

/* Rows [from, to) of the work-group's, which are of one sequence. */
static void attend_run(global const crumb_row *rows, uint from, uint to, global const uchar *keys,
                       global const uchar *values, float scale, local work *s, local float o[QUERIES][HEAD_DIM],
                       local float *m, local float *l) {
    uint end = rows[to - 1].position + 1; /* positions rise */
    for (uint first = 0; first < end; first += KV_CHUNK) {
        FOR_ITEMS(i, QUERIES) {
            uint r = i / SHARING, position = r >= from && r < to ? rows[r].position : 0;
            bool none = r < from || r >= to || position < first;
            s->n_keys[i] = none ? 0 : min((uint)KV_CHUNK, position - first + 1);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        attend_chunk(keys, values, first / KV_CHUNK, min((uint)KV_CHUNK, end - first), scale, s);
        FOR_ITEMS(i, QUERIES * HEAD_DIM) {
            uint query = i / HEAD_DIM, d = i % HEAD_DIM;
            if (s->n_keys[query] == 0) continue;
            float most = fmax(m[query], s->m[query]);
            float old = crumb_exp(m[query] - most), new = crumb_exp(s->m[query] - most);
            o[query][d] = fma(o[query][d], old, s->o[query][d] * new);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        FOR_ITEMS(query, QUERIES) {
            if (s->n_keys[query] == 0) continue;
            float most = fmax(m[query], s->m[query]);
            l[query] = l[query] * crumb_exp(m[query] - most) + s->l[query] * crumb_exp(s->m[query] - most);
            m[query] = most;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention_whole(global const crumb_batch *batch, global const crumb_value *q, global const uchar *keys,
                global const uchar *values, ulong layer_offset, uint head_blocks, float scale,
                global crumb_result *out) {
    local work s;
    local float o[QUERIES][HEAD_DIM], m[QUERIES], l[QUERIES];
    uint kv_head = get_group_id(0), row0 = get_group_id(1) * ROWS;
    if (row0 >= batch->n_rows) return;
    uint n_rows = min((uint)ROWS, batch->n_rows - row0);
    global const crumb_row *rows = ROWS_OF(batch) + row0;
    FOR_ITEMS(i, QUERIES * HEAD_DIM) o[i / HEAD_DIM][i % HEAD_DIM] = 0;
    FOR_ITEMS(i, QUERIES) {
        m[i] = -INFINITY;
        l[i] = 0;
    }
    load_queries(q, row0, n_rows, kv_head, &s);
    for (uint from = 0, to; from < n_rows; from = to) {
        for (to = from + 1; to < n_rows && rows[to].sequence == rows[from].sequence;) to++;
        size_t head = kv_head_offset(layer_offset, rows[from].sequence, N_HEAD_KV, kv_head, head_blocks);
        attend_run(rows, from, to, keys + head, values + head, scale, &s, o, m, l);
    }
    FOR_ITEMS(i, n_rows * SHARING * HEAD_DIM) {
        uint query = i / HEAD_DIM, d = i % HEAD_DIM;
        size_t head = (size_t)(row0 + query / SHARING) * N_HEAD + kv_head * SHARING + query % SHARING;
        out[head * HEAD_DIM + d] = TO_RESULT(o[query][d] * crumb_divide(1, l[query]));
    }
}
