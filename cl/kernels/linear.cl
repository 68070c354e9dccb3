/* Linear layers with weights in tiles and int8 activations, for every device: y = (W x) * out_scale + bias + add, for up
 * to three matrices that share x (q/k/v), or two whose results make a gated activation (gate/up).
 *
 *     kernel void linear(batch, uint on_outputs, uint k,
 *                        global const float *x, global const float *aux, global const uint *order, float eps,
 *                                                                                           read with X=32
 *                        global const int *q, global const float *sx, global const int *qsum,   read with X=8
 *                        global const char *codebook, int mul, int sub, global const float *add, local int *scratch,
 *                        and then for each of PARTS parts
 *                        global const uint *codes, global const uchar *scales, global const uchar *mins,
 *                        global const half *supers, global const half *super_mins, global const float *bias,
 *                        global float *y, uint tile0, uint n_tiles, uint m, uint width, float out_scale)
 *
 *     k           columns of the matrices; K' at most 65536
 *     x, aux, order, eps   what INPUT and ORDER quantize, as in quantize.cl; x f32 [N][k]: of rows of values f32 stands for what VALUES and
 *                 RESULTS say (common.cl), here and in all files
 *     q, sx, qsum what quantize.cl made with the same BITS, X_GROUP and ROW_SCALE
 *     codebook    16 int8 with CODEBOOK=1, else null; mul, sub: as in crumb_matrix, the same for all parts
 *     add         f32 like y of part 0, added last (may be y itself), or null
 *     scratch     local memory: X=32: TOKENS * (K' + 4 * (scales of a row + sums of a row)) bytes; X=8: 4
 *     codes, scales, mins, supers, super_mins   as in crumb_matrix; null where there are none
 *     bias        f32 [rows of w] or null
 *     y           f32 [N][width]; row r of w goes to column r
 *     tile0, n_tiles   the tile-rows to compute: rows 16 * tile0 to 16 * (tile0 + n_tiles) - 1, but not beyond
 *     m           rows of w
 *     out_scale   1: none
 *
 * Work-groups: (ceil(rows / TOKENS); the parts' ceil(n_tiles / TILES), one part's behind the other's). With GATED the
 * parts are computed together: (..., ceil(n_tiles / TILES) of part 0). Local size: 16 * SLICES.
 * A group takes TILES tile-rows one after the other for TOKENS rows of activations. A slice is 16 items, one per row of
 * a tile; slices divide K among them.
 *
 * Options
 *   BITS, SCALE, GROUP, SUPER_GROUP, X_GROUP, ROW_SCALE, INPUT, ORDER   common.cl; X_GROUP divides GROUP and K'
 *   -D X=8|32          8: int8 activations from memory; 32: f32, quantized by every work-group for itself
 *   -D MINS=0|1        weights have mins
 *   -D CODEBOOK=0|1    1: with BITS=4; codes stand for entries
 *   -D PARTS=1|2|3     matrices
 *   -D GATED=0|1|2     1, 2: PARTS is 2, y of part 0 = fn(part 0) * part 1; fn as in gated.cl; y, bias and out_scale of
 *                      each part hold as usual, add must be null
 *   -D TOKENS=n        1 to SLICES
 *   -D SLICES=n        1 to 16, a power of 2 (with X_GROUP=16 and TOKENS=8 at most 8)
 *   -D TILES=n         any
 *   -D DOT=0|1         1: cl_khr_integer_dot_product
 *   -D MATRIX=0|1      1: Intel's matrix instructions on bytes, to which all widths are expanded in registers. TOKENS is
 *                      1, 2, 4 or 8, X_GROUP not 16. gemv.cl and gemm.cl take codes as they lie
 *   -D SUB_GROUP=16|8  with MATRIX: the width of its matrix instructions
 * Result: exactly cpu/kernels.h's sequence; with INPUT=1 as near as the norm (norm.cl).
 *
 * Why sums are exact: int32 holds K' * 255 * 128. Codes are masked out of their dword where they stand, as on the CPU:
 * plane p then holds code << p * BASE, and its sum is shifted back; each item keeps one sum per plane. With more rows
 * of activations a mask serves them all, and codes are shifted down first. */
#ifndef MATRIX
#define MATRIX 0
#endif
#define SIZE        (TILE_ROWS * SLICES)
#define HALVES      (X_GROUP == 16 ? 2 : 1)
#define UNIT_BLOCKS (X_GROUP > 32 ? X_GROUP / 32 : 1)
#define SPLIT       (BITS == 3 || BITS == 5 || BITS == 6)
#define SPLIT_WAYS  (BITS == 5 ? 4 : 2) /* base dwords that share a dword of high bits */
#define IN_PLACE    (TOKENS == 1 && !SPLIT && !CODEBOOK && !MATRIX && !(BITS == 8 && HALVES == 2))
#define CHUNK       (MATRIX ? 4 : 1) /* blocks that a slice takes at a time */
#define ACCS        (IN_PLACE ? PLANES : 2) /* in place: one per plane; else one per half of a block's k */

/* The rows of activations that a work-group works on. Row t of the group is row min(t, last): beyond the batch the last
 * one is computed again and not stored. */
typedef struct {
    Q_READ int *q;
    Q_READ int *qsum;
    Q_READ float *sx;
    uint n_ints, n_groups, n_scales, last;
} activations;

/* ---- sums --------------------------------------------------------------------------------------------------------- */

static int dot_us(uint u, int q, int acc) {
#if DOT
    return dot_acc_sat_4x8packed_us_int(u, (uint)q, acc);
#else
    uchar4 a = as_uchar4(u);
    char4 b = as_char4(q);
    return acc + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
#endif
}

static int dot_ss(uint u, int q, int acc) {
#if DOT
    return dot_acc_sat_4x8packed_ss_int(u, (uint)q, acc);
#else
    char4 a = as_char4(u), b = as_char4(q);
    return acc + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
#endif
}

/* Four codes of plane p, one per byte: of a base dword w and, where codes are split, the dword of their high bits,
 * shifted so that they lie below w's. */
static uint codes_of_plane(uint w, uint high, uint p, local const char *entries) {
    if (IN_PLACE) return w & (BASE_MASK << (p * BASE));
    uint codes = w >> (p * BASE) & BASE_MASK;
#if SPLIT
    codes |= (high >> (p * BASE) & (EXTRA == 1 ? 0x01010101u : 0x03030303u)) << BASE;
#endif
#if CODEBOOK
    uchar4 i = as_uchar4(codes);
    codes = as_uint((char4)(entries[i.x], entries[i.y], entries[i.z], entries[i.w]));
#endif
    return codes;
}

#if !MATRIX
typedef struct {
    int of[TOKENS][ACCS];
} totals;

static void clear(private totals *acc) {
#pragma unroll
    for (uint t = 0; t < TOKENS; t++)
#pragma unroll
        for (uint i = 0; i < ACCS; i++) acc->of[t][i] = 0;
}

static void add_four(uint codes, int q, uint p, int acc[ACCS]) {
#if CODEBOOK
    acc[p % 2] = dot_ss(codes, q, acc[p % 2]);
#elif BITS == 8 && HALVES == 2 /* the k of a dword's bytes are of both halves in turn */
    acc[0] = dot_us(codes & 0x00ff00ff, q, acc[0]);
    acc[1] = dot_us(codes & 0xff00ff00, q, acc[1]);
#else
    acc[IN_PLACE ? p : p % 2] = dot_us(codes, q, acc[IN_PLACE ? p : p % 2]);
#endif
}

/* Adds a 32-block to the sums of this item's row. */
static void add_block(private const activations *a, global const uint *tiles, uint block, local const char *entries,
                      private totals *acc) {
    global const uint *tile = tiles + (size_t)block * BITS * TILE_ROWS + get_local_id(0) % TILE_ROWS;
    uint high = 0;
#pragma unroll
    for (uint d = 0; d < BASE; d++) {
        uint dword = tile[d * TILE_ROWS];
#if SPLIT
        if (d % (BASE / EXTRA) == 0)
            high = tile[(BASE + d * EXTRA / BASE) * TILE_ROWS];
        else
            high >>= EXTRA;
#endif
#pragma unroll
        for (uint p = 0; p < PLANES; p++) {
            uint codes = codes_of_plane(dword, high, p, entries);
#pragma unroll
            for (uint t = 0; t < TOKENS; t++)
                add_four(codes, a->q[min(t, a->last) * a->n_ints + block * 8 + d * PLANES + p], p, acc->of[t]);
        }
    }
}

/* Row t's sum of half h where sums are of 16, else of all. */
static int total(private const totals *acc, uint t, uint h) {
    int sum = 0;
#pragma unroll
    for (uint i = 0; i < ACCS; i++)
        if (HALVES == 1 || i % 2 == h) sum += IN_PLACE ? acc->of[t][i] >> (i * BASE) : acc->of[t][i];
    return sum;
}
#else
/* With matrix instructions the items of a sub-group work together: D(TOKENS x SUB_GROUP) += A(TOKENS x 32) *
 * B(32 x SUB_GROUP), A being activations and B weights; an item has the sums of its row of weights, as without. */
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)
#if TOKENS == 1
#define VECTOR(type)    type
#define BLOCK_READ(way) JOIN(intel_sub_group_block_read, way)
#else
#define VECTOR(type)    JOIN(type, TOKENS)
#define BLOCK_READ(way) JOIN(JOIN(intel_sub_group_block_read, way), TOKENS)
#endif
#if SUB_GROUP == 16
typedef VECTOR(short) a_rows; /* lane l: elements 2l, 2l + 1 of each row */
typedef ushort a_lane;
#define A_READ      BLOCK_READ(_us)
#define A_READ_ONE  intel_sub_group_block_read_us
#define AS_A(x)     JOIN(as_, VECTOR(short))(x)
#else
typedef VECTOR(int) a_rows; /* lane l: elements 4l to 4l + 3 */
typedef uint a_lane;
#if TOKENS == 1
#define A_READ intel_sub_group_block_read
#else
#define A_READ JOIN(intel_sub_group_block_read, TOKENS)
#endif
#define A_READ_ONE  intel_sub_group_block_read
#define AS_A(x)     JOIN(as_, VECTOR(int))(x)
#endif
typedef VECTOR(int) d_rows;

#if CODEBOOK
typedef int8 b_columns;
#define MULTIPLY intel_sub_group_i8_i8_matrix_mad_k32
#else
typedef uint8 b_columns;
#define MULTIPLY intel_sub_group_i8_u8_matrix_mad_k32
#endif
d_rows __attribute__((overloadable)) MULTIPLY(a_rows a, b_columns b, d_rows acc);

typedef d_rows totals;

static void clear(private totals *acc) {
    *acc = 0;
}

static a_rows load_a(private const activations *a, uint block) {
#if X == 32
    return AS_A(A_READ((local const a_lane *)(a->q + block * 8 * TOKENS)));
#else
    a_rows rows;
    private a_lane *lane = (private a_lane *)&rows;
#pragma unroll
    for (uint t = 0; t < TOKENS; t++)
        lane[t] = A_READ_ONE((global const a_lane *)(a->q + min(t, a->last) * a->n_ints + block * 8));
    return rows;
#endif
}

static void load_tile(global const uint *tile, uint dwords[BITS]) {
#if SUB_GROUP == 16 && (BITS == 2 || BITS == 4 || BITS == 8) /* the whole tile at once */
    JOIN(uint, BITS) all = JOIN(intel_sub_group_block_read, BITS)(tile);
#pragma unroll
    for (uint d = 0; d < BITS; d++) dwords[d] = ((private const uint *)&all)[d];
#else
    uint first = get_local_id(0) % TILE_ROWS / SUB_GROUP * SUB_GROUP; /* of this sub-group's rows */
#pragma unroll
    for (uint d = 0; d < BITS; d++) dwords[d] = intel_sub_group_block_read(tile + d * TILE_ROWS + first);
#endif
}

static void add_block(private const activations *a, global const uint *tiles, uint block, local const char *entries,
                      private totals *acc) {
    uint dwords[BITS];
    b_columns b;
    a_rows rows = load_a(a, block);
    load_tile(tiles + (size_t)block * BITS * TILE_ROWS, dwords);
#pragma unroll
    for (uint d = 0; d < BASE; d++)
#pragma unroll
        for (uint p = 0; p < PLANES; p++)
            ((private uint *)&b)[d * PLANES + p] = codes_of_plane(
                dwords[d], SPLIT ? dwords[BASE + d * EXTRA / BASE] >> EXTRA * (d % SPLIT_WAYS) : 0, p, entries);
    *acc = MULTIPLY(rows, b, *acc);
}

static int total(private const totals *acc, uint t, uint h) {
    return ((private const int *)acc)[t];
}
#endif

static int exact_sum(private const activations *a, uint t, uint group, int sum, int mul, int sub) {
    return mul * sum - sub * a->qsum[min(t, a->last) * a->n_groups + group];
}

/* ---- a tile-row's results: of row `lane` for the activations' row number `slice`, where that is below TOKENS ------ */

#if X_GROUP == 0
/* One sum per row: slices add theirs up. */
typedef struct {
    int sums[TOKENS][SLICES][TILE_ROWS];
} stage;

static float tile_result(private const activations *a, private const part *w, uint tile, uint k_padded, int mul, int sub,
                         local const char *entries, local stage *s) {
    uint lane = get_local_id(0) % TILE_ROWS, slice = get_local_id(0) / TILE_ROWS, n_blocks = k_padded / TILE_K;
    global const uint *codes = w->codes + (size_t)tile * n_blocks * BITS * TILE_ROWS;
    totals acc;
    clear(&acc);
    uint whole = n_blocks / CHUNK * CHUNK;
    for (uint chunk = slice * CHUNK; chunk < whole; chunk += SLICES * CHUNK) {
#pragma unroll
        for (uint i = 0; i < CHUNK; i++) add_block(a, codes, chunk + i, entries, &acc);
    }
    for (uint block = whole + slice; block < n_blocks; block += SLICES) add_block(a, codes, block, entries, &acc);
    barrier(CLK_LOCAL_MEM_FENCE); /* the stage may still be read for the tile-row before */
#pragma unroll
    for (uint t = 0; t < TOKENS; t++) s->sums[t][slice][lane] = total(&acc, t, 0);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (slice >= TOKENS) return 0;
    int sum = 0;
    for (uint i = 0; i < SLICES; i++) sum += s->sums[slice][i][lane];
    uint row = min(slice, a->last);
    float sx = a->sx[row], unit_sx = ROW_SCALE ? 1.0f : sx;
    float scale = load_scale(w->scales, w->supers, tile, lane, 0, k_padded);
    float result = fma(scale, unit_sx * (float)exact_sum(a, slice, 0, sum, mul, sub), 0.0f);
    if (MINS)
        result = fma(load_scale(w->mins, w->super_mins, tile, lane, 0, k_padded), unit_sx * (float)a->qsum[row], result);
    return ROW_SCALE ? result * sx : result;
}
#else
/* A round: each slice makes the sums of one unit, which is a group or, where groups are halves of a block, two. Then
 * one slice per row of activations adds the round's groups in their order. Two stages take turns, so that a round needs
 * one barrier. */
typedef struct {
    float scales[SLICES][HALVES][TILE_ROWS], mins[MINS ? SLICES : 1][HALVES][TILE_ROWS];
    float sums[TOKENS][SLICES][HALVES][TILE_ROWS];
} stage;

static float sx_of(private const activations *a, uint t, uint group) {
    return ROW_SCALE ? 1.0f : a->sx[min(t, a->last) * a->n_scales + group];
}

static void make_unit(private const activations *a, private const part *w, uint tile, uint unit, uint k_padded, int mul, int sub,
                      local const char *entries, local stage *s) {
    uint lane = get_local_id(0) % TILE_ROWS, slice = get_local_id(0) / TILE_ROWS;
    global const uint *codes = w->codes + (size_t)tile * (k_padded / TILE_K) * BITS * TILE_ROWS;
    totals acc;
    clear(&acc);
    for (uint b = 0; b < UNIT_BLOCKS; b++) add_block(a, codes, unit * UNIT_BLOCKS + b, entries, &acc);
#pragma unroll
    for (uint t = 0; t < TOKENS; t++)
#pragma unroll
        for (uint h = 0; h < HALVES; h++) {
            uint group = unit * HALVES + h;
            int sum = exact_sum(a, t, group, total(&acc, t, h), mul, sub);
            s->sums[t][slice][h][lane] = sx_of(a, t, group) * (float)sum;
        }
    for (uint h = 0; h < HALVES; h++) {
        uint group = GROUP ? (unit * HALVES + h) * X_GROUP / (GROUP ? GROUP : 1) : 0;
        s->scales[slice][h][lane] = load_scale(w->scales, w->supers, tile, lane, group, k_padded);
        if (MINS) s->mins[slice][h][lane] = load_scale(w->mins, w->super_mins, tile, lane, group, k_padded);
    }
}

/* The groups of a round, rising; `n` units of it exist. */
static float add_round(private const activations *a, uint first, uint n, local const stage *s, float result) {
    uint lane = get_local_id(0) % TILE_ROWS, t = get_local_id(0) / TILE_ROWS;
    for (uint i = 0; i < n; i++)
        for (uint h = 0; h < HALVES; h++) {
            result = fma(s->scales[i][h][lane], s->sums[t][i][h][lane], result);
            if (MINS) {
                uint group = (first + i) * HALVES + h;
                int sum = a->qsum[min(t, a->last) * a->n_groups + group];
                result = fma(s->mins[i][h][lane], sx_of(a, t, group) * (float)sum, result);
            }
        }
    return result;
}

static float tile_result(private const activations *a, private const part *w, uint tile, uint k_padded, int mul, int sub,
                         local const char *entries, local stage *stages) {
    uint slice = get_local_id(0) / TILE_ROWS, n_units = a->n_groups / HALVES;
    float result = 0;
    barrier(CLK_LOCAL_MEM_FENCE); /* the stages may still be read for the tile-row before */
    for (uint first = 0; first < n_units; first += SLICES) {
        local stage *s = &stages[first / SLICES % 2];
        if (first + slice < n_units) make_unit(a, w, tile, first + slice, k_padded, mul, sub, entries, s);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice < TOKENS) result = add_round(a, first, min((uint)SLICES, n_units - first), s, result);
    }
    return ROW_SCALE ? result * a->sx[min(slice, a->last)] : result;
}
#endif

/* ---- the kernel --------------------------------------------------------------------------------------------------- */

/* The results of the group's tile-rows of part w, for rows of activations from `first` on; with GATED `up` is the part that
 * they are multiplied with. */
static void run_group(private const activations *a, private const part *w, private const part *up, uint group, uint first,
                      uint k_padded, int mul, int sub, global const crumb_result *add, local const char *entries,
                      local stage *stages) {
    uint lane = get_local_id(0) % TILE_ROWS, slice = get_local_id(0) / TILE_ROWS, end = min((group + 1) * TILES, w->n_tiles);
    for (uint i = group * TILES; i < end; i++) {
        uint tile = w->tile0 + i, row = tile * TILE_ROWS + lane;
        size_t at = (size_t)(first + slice) * w->width + row;
        float y = finish(w, row, tile_result(a, w, tile, k_padded, mul, sub, entries, stages));
#if GATED
        uint other = up->tile0 + i;
        float of_up = finish(up, other * TILE_ROWS + lane, tile_result(a, up, other, k_padded, mul, sub, entries, stages));
        if (slice <= a->last && row < w->m) w->y[at] = gated_result(GATED, TO_RESULT(y), of_up);
#else
        if (slice <= a->last && row < w->m) w->y[at] = sum_with(add, at, y);
#endif
    }
}

#if MATRIX
__attribute__((intel_reqd_sub_group_size(SUB_GROUP)))
#endif
kernel __attribute__((reqd_work_group_size(SIZE, 1, 1))) void
linear(global const crumb_batch *batch, uint on_outputs, uint k, global const crumb_value *x,
       global const crumb_aux *aux, global const uint *order, float eps, global const int *q, global const float *sx, global const int *qsum, global const char *codebook,
       int mul, int sub, global const crumb_result *add, local int *scratch, PART_ARGS_LIST) {
    local stage stages[X_GROUP ? 2 : 1];
    local char entries[16];
    uint n = N_OF(batch, on_outputs), first = ROW_BLOCK * TOKENS;
    uint k_padded = ROUND_UP(k, TILE_K);
    if (first >= n) return;
    if (CODEBOOK && get_local_id(0) < 16) entries[get_local_id(0)] = codebook[get_local_id(0)];

    activations a;
    a.n_ints = k_padded / 4;
    a.n_groups = GROUPS_OF(k_padded);
    a.n_scales = ROW_SCALE ? 1 : a.n_groups;
    a.last = min(n - first, (uint)TOKENS) - 1;
#if X == 32
    local float2 sum_scratch[SIZE];
    local int *codes = scratch, *scales = codes + TOKENS * a.n_ints, *sums = scales + TOKENS * a.n_scales;
    uint row_stride = MATRIX ? 8 : a.n_ints, block_stride = MATRIX ? 8 * TOKENS : 8; /* matrix: a block's rows together */
    for (uint t = 0; t <= a.last; t++) {
        size_t row = (size_t)(first + t) * k;
        quantize_row(x + row, INPUT >= 2 ? aux + row : aux, order, eps, k, a.n_ints, sum_scratch, scales + t * a.n_scales,
                     sums + t * a.n_groups, codes + t * row_stride, block_stride);
        for (uint g = get_local_id(0); g < a.n_scales; g += SIZE)
            scales[t * a.n_scales + g] = as_int(quantizer_of(as_float(scales[t * a.n_scales + g]), ROW_SCALE).sx);
    }
    a.q = codes;
    a.qsum = sums;
    a.sx = (local const float *)scales;
#else
    a.q = q + (size_t)first * a.n_ints;
    a.qsum = qsum + (size_t)first * a.n_groups;
    a.sx = sx + (size_t)first * a.n_scales;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);

    part parts[PARTS] = {PART_LIST};
#define RUN(w, group) run_group(&a, w, &parts[PARTS - 1], group, first, k_padded, mul, sub, add, entries, stages)
    RUN_PART_OF_GROUP(parts, TILES, RUN);
}
