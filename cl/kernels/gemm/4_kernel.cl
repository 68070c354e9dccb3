/* gemm.cl: the kernel: what a work-group and its sub-groups have of the launch, the activations that it quantizes,
 * numbers that it puts into local memory once, and its parts one after the other. */

/* The results of the group's tile-rows of part w, as many as this sub-group has of them; with GATED `up` is the part that they
 * are multiplied with. */
INLINE void run_group(private operands *o, private const part *w, private const part *up, uint group,
                      global const crumb_result *add) {
    uint tile = (group * ACROSS + get_local_id(0) / SUB_GROUP / SLICES) * TN;
    if (tile >= w->n_tiles) return; /* no slice waits for it: ACROSS > 1 */
    o->n_tiles = min((uint)TN, w->n_tiles - tile);
    target to = {w, 0, add, tile};
    o->codes = w->codes + (size_t)(w->tile0 + tile) * o->n_blocks * BITS * TILE_ROWS;
    run_part(o, &to);
#if GATED
    target product = {up, w, 0, tile};
    o->codes = up->codes + (size_t)(up->tile0 + tile) * o->n_blocks * BITS * TILE_ROWS;
    run_part(o, &product);
#endif
}

__attribute__((intel_reqd_sub_group_size(SUB_GROUP))) __attribute__((reqd_work_group_size(SIZE, 1, 1))) kernel void
linear(global const crumb_batch *batch, uint on_outputs, uint k, global const crumb_value *x,
       global const crumb_aux *aux, global const uint *order, float eps, global const int *q, global const float *sx, global const int *qsum, global const char *codebook,
       int mul, int sub, global const crumb_result *add, local int *scratch, PART_ARGS_LIST) {
    part parts[PARTS] = {PART_LIST};
    uint n = N_OF(batch, on_outputs);
    operands o;
    o.first = ROW_BLOCK * TOKENS;
    if (o.first >= n) return;
    o.k_padded = ROUND_UP(k, TILE_K);
    o.mul = mul;
    o.sub = sub;
    o.slice = get_local_id(0) / SUB_GROUP % SLICES;
    o.last = min(n - o.first, (uint)TOKENS) - 1;
    o.n_blocks = o.k_padded / TILE_K;
    uint n_groups = GROUPS_OF(o.k_padded), n_scales = ROW_SCALE ? 1 : n_groups;
#if IN_REGISTERS
    local int largest[TOKENS];
    local float row_sx[TOKENS];
#if SCALED
    for (uint t = get_local_id(0); t < TOKENS; t += SIZE) largest[t] = t <= o.last ? as_int(sx[o.first + t]) : 0;
#else
    for (uint t = get_local_id(0); t < TOKENS; t += SIZE) largest[t] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint t = 0; t <= o.last; t++) find_largest(x + (size_t)(o.first + t) * k, aux, order, 1, k, o.k_padded / 4,
                                                largest + t);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint t = get_local_id(0); t < TOKENS; t += SIZE) row_sx[t] = quantizer_of(as_float(largest[t]), ROW_SCALE).sx;
    barrier(CLK_LOCAL_MEM_FENCE);
    o.x = x;
    o.n = n;
    o.k = k;
    o.to_code = quantizer_of(as_float(largest[get_local_id(0) % TOKENS]), ROW_SCALE).to_code;
    o.sx = row_sx;
#elif X == 32
    local float2 sum_scratch[SIZE];
    local int *codes = scratch, *scales = codes + TOKENS * ROUND_UP(o.k_padded, STEP * TILE_K) / 4;
    local int *sums = scales + TOKENS * n_scales;
    scratch = sums + TOKENS * n_groups;
    for (uint t = 0; t <= o.last; t++) {
        size_t row = (size_t)(o.first + t) * k;
        quantize_row(x + row, INPUT >= 2 ? aux + row : aux, order, eps, k, o.k_padded / 4, sum_scratch, scales + t * n_scales,
                     sums + t * n_groups, codes + t * 8, 8 * TOKENS);
        for (uint g = get_local_id(0); g < n_scales; g += SIZE)
            scales[t * n_scales + g] = as_int(quantizer_of(as_float(scales[t * n_scales + g]), ROW_SCALE).sx);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    o.q = codes;
    o.qsum = sums;
    o.sx = (local const float *)scales;
#else
    o.q = SUB_GROUP == 16 ? q : q + (size_t)o.first * (o.k_padded / 4);
    o.qsum = qsum + (size_t)o.first * n_groups;
    o.sx = sx + (size_t)o.first * n_scales;
#endif
#if VIA_BASE
    local int start[8 * TILE_ROWS];
    for (uint i = get_local_id(0); i < 8 * TILE_ROWS; i += SIZE) start[i] = SPLIT_BITS ? FLOAT_BASE >> LOW_BITS : FLOAT_BASE;
    barrier(CLK_LOCAL_MEM_FENCE);
    o.start = start;
#endif
#if PIECES > 1
    o.staged = (local const float *)scratch;
    stage_rows(&o, (local float *)scratch);
#endif
    o.partials = scratch;
#define RUN(w, group) run_group(&o, w, &parts[PARTS - 1], group, add)
    RUN_PART_OF_GROUP(parts, TN * ACROSS, RUN);
}
