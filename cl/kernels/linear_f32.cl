/* Linear layers with weights in tiles and activations that are not quantized: y = (W x) * out_scale + bias + add.
 *
 *     kernel void linear_f32(batch, uint on_outputs, uint k, global const float *x, global const char *codebook, int mul,
 *                            int sub, global const float *add, global const uint *codes, global const uchar *scales,
 *                            global const uchar *mins, global const half *supers, global const half *super_mins,
 *                            global const float *bias, global float *y, uint tile0, uint n_tiles, uint m, uint width,
 *                            float out_scale)
 *
 * The arguments are linear.cl's, of one part; x f32 [N][k].
 * Work-groups: (ceil(rows / TOKENS), n_tiles); local size 16 * SLICES.
 * Options: BITS, SCALE, GROUP, SUPER_GROUP (common.cl), -D MINS=0|1, -D CODEBOOK=0|1, -D TOKENS=n (1 to SLICES),
 *          -D SLICES=n
 * Result: f32 sums, nearer than 1e-5 of the sum of the products' magnitudes to the exact one. */
#define SIZE   (TILE_ROWS * SLICES)
#define HALVES (GROUP == 16 ? 2 : 1)

/* The products of a 32-block with TOKENS rows of activations, and the sums of these, by halves of its k. */
static void add_block(global const uint *tile, global const crumb_value *x, uint last, uint k, uint block, int mul, int sub,
                      local const char *entries, float sums[TOKENS][HALVES], float x_sums[TOKENS][HALVES]) {
    for (uint i = 0; i < TILE_K; i++) {
        uint column = block * TILE_K + i, h = HALVES == 2 ? i / 16 : 0;
        if (column >= k) break;
        int code = (int)tile_code(tile, linear_of_k(i));
        if (CODEBOOK) code = entries[code];
        float value = (float)(mul * code - sub);
#pragma unroll
        for (uint t = 0; t < TOKENS; t++) {
            float v = FROM_VALUE(x[(size_t)min(t, last) * k + column]);
            sums[t][h] = fma(value, v, sums[t][h]);
            if (MINS) x_sums[t][h] += v;
        }
    }
}

kernel __attribute__((reqd_work_group_size(SIZE, 1, 1))) void
linear_f32(global const crumb_batch *batch, uint on_outputs, uint k, global const crumb_value *x,
           global const char *codebook, int mul, int sub, global const crumb_result *add, global const uint *codes,
           global const uchar *scales, global const uchar *mins, global const half *supers,
           global const half *super_mins, global const float *bias, global crumb_result *y, uint tile0, uint n_tiles, uint m,
           uint width, float out_scale) {
    local float partial[TOKENS][SLICES][TILE_ROWS];
    local char entries[16];
    uint n = N_OF(batch, on_outputs), first = ROW_BLOCK * TOKENS;
    if (first >= n || WEIGHTS_BLOCK >= n_tiles) return;
    uint lane = get_local_id(0) % TILE_ROWS, slice = get_local_id(0) / TILE_ROWS;
    uint tile = tile0 + WEIGHTS_BLOCK, row = tile * TILE_ROWS + lane, last = min(n - first, (uint)TOKENS) - 1;
    uint k_padded = ROUND_UP(k, TILE_K), n_blocks = k_padded / TILE_K;
    if (CODEBOOK && get_local_id(0) < 16) entries[get_local_id(0)] = codebook[get_local_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);

    float result[TOKENS];
#pragma unroll
    for (uint t = 0; t < TOKENS; t++) result[t] = 0;
    for (uint block = slice; block < n_blocks; block += SLICES) {
        float sums[TOKENS][HALVES], x_sums[TOKENS][HALVES];
#pragma unroll
        for (uint t = 0; t < TOKENS; t++)
            for (uint h = 0; h < HALVES; h++) sums[t][h] = x_sums[t][h] = 0;
        add_block(codes + ((size_t)tile * n_blocks + block) * BITS * TILE_ROWS + lane, x + (size_t)first * k, last, k,
                  block, mul, sub, entries, sums, x_sums);
        for (uint h = 0; h < HALVES; h++) {
            uint group = GROUP ? (block * TILE_K + h * 16) / (GROUP ? GROUP : 1) : 0;
            float scale = load_scale(scales, supers, tile, lane, group, k_padded);
            float smallest = MINS ? load_scale(mins, super_mins, tile, lane, group, k_padded) : 0;
#pragma unroll
            for (uint t = 0; t < TOKENS; t++) {
                result[t] = fma(scale, sums[t][h], result[t]);
                if (MINS) result[t] = fma(smallest, x_sums[t][h], result[t]);
            }
        }
    }
#pragma unroll
    for (uint t = 0; t < TOKENS; t++) partial[t][slice][lane] = result[t];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (slice <= last && row < m) {
        float sum = 0;
        for (uint i = 0; i < SLICES; i++) sum += partial[slice][i][lane];
        size_t at = (size_t)(first + slice) * width + row;
        sum = sum * out_scale;
        if (bias) sum = sum + bias[row];
        y[at] = sum_with(add, at, sum);
    }
}
