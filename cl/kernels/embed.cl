/* Embedding: out = scale * row `token` of the table, from any form of table.
 *
 *     kernel void embed(batch, uint k, global const uchar *codes, global const uchar *scales, global const uchar *mins,
 *                       global const half *supers, global const half *super_mins, global const char *codebook, int mul,
 *                       int sub, float scale, global float *out)
 *
 *     k           values per row
 *     codes       tiles, or with BITS=0 dense rows of TYPE
 *     scales, mins, supers, super_mins, codebook, mul, sub   as in crumb_matrix; null or 0 where there are none
 *     scale       factor on the row; 1: none
 *     out         f32 [n_rows][k]
 *
 * A token is trusted to be a row of the table.
 * Work-groups: (ceil(k / WG), rows); local size -D WG=n (default 128).
 * Options: BITS; with BITS > 0: SCALE, GROUP, SUPER_GROUP (common.cl), -D MINS=0|1, -D CODEBOOK=0|1 (4 bits only);
 *          with BITS=0: -D TYPE=32|16|17: f32, f16, bf16
 * Result: exactly the CPU's. */
#ifndef WG
#define WG 128
#endif
#ifndef MINS
#define MINS 0
#endif
#ifndef CODEBOOK
#define CODEBOOK 0
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
embed(global const crumb_batch *batch, uint k, global const uchar *codes, global const uchar *scales,
      global const uchar *mins, global const half *supers, global const half *super_mins, global const char *codebook,
      int mul, int sub, float scale, global crumb_result *out) {
    uint column = get_global_id(0), n = get_group_id(1);
    if (n >= batch->n_rows || column >= k) return;
    uint token = (uint)ROWS_OF(batch)[n].token;
#if BITS
    uint k_padded = ROUND_UP(k, TILE_K), tile = token / TILE_ROWS, lane = token % TILE_ROWS;
    uint group = GROUP ? column / (GROUP ? GROUP : 1) : 0;
    size_t block = (size_t)tile * (k_padded / TILE_K) + column / TILE_K;
    int code = (int)tile_code((global const uint *)codes + block * BITS * TILE_ROWS + lane, linear_of_k(column % TILE_K));
    if (CODEBOOK) code = codebook[code];
    float value = load_scale(scales, supers, tile, lane, group, k_padded) * (float)(mul * code - sub);
    if (MINS) value = value + load_scale(mins, super_mins, tile, lane, group, k_padded);
#else
    size_t at = (size_t)token * k + column;
#if TYPE == 32
    float value = ((global const float *)codes)[at];
#elif TYPE == 16
    float value = vload_half(at, (global const half *)codes);
#else
    float value = as_float((uint)((global const ushort *)codes)[at] << 16);
#endif
#endif
    out[(size_t)n * k + column] = TO_RESULT(scale == 1.0f ? value : value * scale);
}
