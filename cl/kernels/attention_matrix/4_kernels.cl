/* attention_matrix.cl: the kernels. Decoding has a chunk per work-group, and the last one merges them
 * (common/7_attention.cl); for a prompt's rows a work-group takes all chunks, one after the other. */

/* ---- decode: a chunk per work-group ------------------------------------------------------------------------------- */

#define ATTRIBUTES                                                                                                     \
    __attribute__((intel_reqd_sub_group_size(SUB_GROUP))) __attribute__((reqd_work_group_size(WG, 1, 1)))

#if SPLIT
ATTRIBUTES kernel void attention_split(global const crumb_batch *batch, global const crumb_value *q,
                                       global const uchar *keys, global const uchar *values, ulong layer_offset,
                                       uint head_blocks, float scale, global float *partials,
                                       global uint *arrived, global crumb_result *out) {
    local work s;
    uint chunk = get_group_id(0), kv_head = get_group_id(1), n = get_group_id(2), chunks = get_num_groups(0);
    uint group = get_local_id(0) / SUB_GROUP, lane = get_sub_group_local_id();
    if (n >= batch->n_rows) return;
    crumb_row row = ROWS_OF(batch)[n];
    uint end = row.position / KV_CHUNK + 1;
    if (chunk >= end) return;
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
                size_t at = ((size_t)n * N_HEAD + kv_head * SHARING + query) * HEAD_DIM;
                global float *to = partials + partial_at(n, kv_head, query, chunks, chunk);
                if (end == 1)
                    UR for (uint c = 0; c < COLUMNS; c++)
                        out[at + dim_of(block, lane, c)] = TO_RESULT(ROW(sums[t][c], r) * crumb_divide(1, s.l[query]));
                else
                    UR for (uint c = 0; c < COLUMNS; c++) put_partial(to + dim_of(block, lane, c), ROW(sums[t][c], r));
            }
    }
    if (end == 1) return;
    FOR_ITEMS(i, QUERIES) {
        global float *to = partials + partial_at(n, kv_head, i, chunks, chunk) + HEAD_DIM;
        put_partial(to, s.m[i]);
        put_partial(to + 1, s.l[i]);
    }
    join_chunks(partials, arrived, n, kv_head, chunks, end, out, (local merging *)&s);
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
                        TO_RESULT(ROW(o[i][t][c], r) * crumb_divide(1, all.l[query]));
            }
    }
}
#endif
