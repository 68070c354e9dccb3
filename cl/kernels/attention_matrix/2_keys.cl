/* attention_matrix.cl: a chunk's keys: scores of the sub-group's 16 with all queries, the largest of each query, and
 * the weights that softmax makes of them, in local memory. */

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
