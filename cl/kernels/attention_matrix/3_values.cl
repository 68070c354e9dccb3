/* attention_matrix.cl: a chunk's values times the weights of 2_keys.cl. A sub-group makes blocks of dimensions for its
 * queries: weigh_values one of them, own_block says which. */

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
        float inverse = most < QUANTIZE_TINY ? 0 : crumb_divide(32767, most), scale = most < QUANTIZE_TINY ? 0 : crumb_divide(most, 32767);
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
