/* Rotates queries and keys by their row's position, and stores keys and values in the cache: ROPE and the first half of
 * ATTENTION in one launch, with RMS_NORM of queries' and keys' heads before, where a model has that.
 *
 *     kernel void rope_store(batch, global float *q, global float *k, global const float *v, global const float2 *table,
 *                            global uchar *keys, global uchar *values, ulong layer_offset, uint head_blocks,
 *                            global const float *q_norm, float q_eps, global const float *k_norm, float k_eps)
 *
 *     q       f32 [n_rows][N_HEAD][HEAD_DIM], in place; not read with N_HEAD=0
 *     k, v    f32 [n_rows][N_HEAD_KV][HEAD_DIM]; k in place
 *     table   [n_ctx][DIMS/2] (cosine, sine) of angle position * inv_freq[i], each times the magnitude: made by the host
 *             in double, as the CPU's, since most GPUs have none; null with DIMS=0
 *     keys, values, layer_offset, head_blocks   common.cl; unused with STORE=0
 *     q_norm, k_norm, q_eps, k_eps   f32 [HEAD_DIM], the weights of each head's norm, or null: none
 *
 * Work-groups: (N_HEAD + N_HEAD_KV, rows); local size -D WG=n, default 64.
 * Options: HEAD_DIM, KV (common.cl), -D N_HEAD=n, -D N_HEAD_KV=n, -D DIMS=n (the first of each head are rotated; 0:
 *          none), -D PAIRING=0|1 (0: pairs (2i, 2i+1), 1: (i, i + DIMS/2)), -D STORE=0|1
 * Result: exactly the CPU's, given its table; behind a norm as near to it as norm.cl's. */
#ifndef WG
#define WG 64
#endif

/* A head's number d, normed where it has weights. */
static float load_normed(global const crumb_value *head, uint d, float r, global const float *weight) {
    float x = FROM_VALUE(head[d]);
    return weight ? x * r * weight[d] : x;
}

/* Norms a head that has weights, and rotates it: into local memory, so that all its dimensions can be stored. */
static void rotate_head(global crumb_value *head, global const float2 *table, global const float *weight, float eps,
                        local float2 *scratch, local float *x) {
    float r = 1;
    if (weight) {
        float2 sum = 0;
        for (uint d = get_local_id(0); d < HEAD_DIM; d += WG) sum = pair_add_square(sum, FROM_VALUE(head[d]));
        r = inverse_rms(work_group_sum(sum, scratch), HEAD_DIM, eps);
        barrier(CLK_GLOBAL_MEM_FENCE); /* others have read what is written below */
    }
    for (uint d = DIMS + get_local_id(0); d < HEAD_DIM; d += WG) {
        x[d] = load_normed(head, d, r, weight);
        if (weight) head[d] = TO_RESULT(x[d]);
    }
    for (uint i = get_local_id(0); i < DIMS / 2; i += WG) {
        uint a = PAIRING ? i : 2 * i, b = PAIRING ? i + DIMS / 2 : 2 * i + 1;
        float2 turn = table[i];
        float low = load_normed(head, a, r, weight), high = load_normed(head, b, r, weight);
        x[a] = fma(low, turn.x, -(high * turn.y));
        x[b] = fma(high, turn.x, low * turn.y);
        head[a] = TO_RESULT(x[a]);
        head[b] = TO_RESULT(x[b]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

#if KV == 16
/* |x| beyond 65504 saturates, so that the cache holds no infinity. */
static void store_half(float x, size_t at, global uchar *to) {
    vstore_half_rte(kv_within(x, 65504.0f), at, (global half *)to);
}

static void store(local const float *key, global const crumb_value *value, uint place, global uchar *keys,
                  global uchar *values, local int *largest, local float *scales) {
    for (uint d = get_local_id(0); d < HEAD_DIM; d += WG) {
        store_half(key[d], d * KEY_BLOCK + place, keys);
        store_half(FROM_VALUE(value[d]), place * HEAD_DIM + d, values);
    }
}
#else
/* The scales of a head's groups, as the f16 that the cache holds KEY_BLOCK apart; `largest` is scratch. */
static void make_scales(local const float *x, local int *largest, local float *scales, global half *to) {
    uint g = get_local_id(0); /* there are more items than groups */
    if (g < KV_GROUPS) largest[g] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint d = get_local_id(0); d < HEAD_DIM; d += WG) atomic_max(&largest[d / KV_GROUP], as_int(fabs(x[d])));
    barrier(CLK_LOCAL_MEM_FENCE);
    if (g < KV_GROUPS) {
        float scale = crumb_divide(as_float(largest[g]), 127);
        vstore_half_rte(scale < 65504.0f ? scale : 65504.0f, g * KEY_BLOCK, to);
        scales[g] = vload_half(g * KEY_BLOCK, to);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

static char code_of(float x, float scale) {
    float inverse = scale != 0 ? crumb_divide(1, scale) : 0;
    return (char)rint(kv_within(x * inverse, 127));
}

static void store(local float *key, global const crumb_value *value, uint place, global uchar *keys, global uchar *values,
                  local int *largest, local float *scales) {
    kv_turn(key, 1);
    make_scales(key, largest, scales, (global half *)keys + place);
    for (uint d = get_local_id(0); d < HEAD_DIM; d += WG)
        keys[KV_CODES_OFFSET + d / 2 * (2 * KEY_BLOCK) + 2 * place + d % 2] = as_uchar(code_of(key[d], scales[d / KV_GROUP]));
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint d = get_local_id(0); d < HEAD_DIM; d += WG) key[d] = FROM_VALUE(value[d]);
    barrier(CLK_LOCAL_MEM_FENCE);
    make_scales(key, largest, scales, (global half *)values + place);
    for (uint d = get_local_id(0); d < HEAD_DIM; d += WG) {
        uint g = d / KV_GROUP, pair = place / 2 * kv_group_width(g) + d % KV_GROUP;
        values[KV_CODES_OFFSET + g * KV_GROUP * KEY_BLOCK + 2 * pair + place % 2] = as_uchar(code_of(key[d], scales[d / KV_GROUP]));
    }
}
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
rope_store(global const crumb_batch *batch, global crumb_value *q, global crumb_value *k, global const crumb_value *v,
           global const float2 *table, global uchar *keys, global uchar *values, ulong layer_offset,
           uint head_blocks, global const float *q_norm, float q_eps, global const float *k_norm, float k_eps) {
    local float x[HEAD_DIM];
    local float2 scratch[WG];
    local int largest[KV_GROUPS];
    local float scales[KV_GROUPS];
    uint n = get_group_id(1), head = get_group_id(0);
    if (n >= batch->n_rows) return;
    crumb_row row = ROWS_OF(batch)[n];
    global const float2 *turns = table + (size_t)row.position * (DIMS / 2);
    bool is_query = head < N_HEAD;
    size_t at = is_query ? ((size_t)n * N_HEAD + head) * HEAD_DIM : ((size_t)n * N_HEAD_KV + head - N_HEAD) * HEAD_DIM;
    rotate_head((is_query ? q : k) + at, turns, is_query ? q_norm : k_norm, is_query ? q_eps : k_eps, scratch, x);
    if (is_query || !STORE) return;
    size_t block = kv_head_offset(layer_offset, row.sequence, N_HEAD_KV, head - N_HEAD, head_blocks) +
                   (size_t)(row.position / KEY_BLOCK) * KV_BLOCK_BYTES;
    store(x, v + at, row.position % KEY_BLOCK, keys + block, values + block, largest, scales);
}
