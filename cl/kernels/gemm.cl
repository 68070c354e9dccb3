/* Linear layers for many rows of activations on Intel's matrix instructions with 2D block loads (Xe2 and later): what
 * linear.cl computes, with its arguments, from int8 activations in memory (X=8). A sub-group has TM * 8 rows of
 * activations x TN tile-rows of sums in registers, so that a load of activations feeds TN matrix instructions.
 *
 * Arguments: linear.cl's, of which x, aux, eps, codebook and scratch are not read; q is in the order of 8 bits.
 * q and codes begin at a multiple of 64 bytes, and K' is at least 64.
 * Work-groups: (as linear.cl's, with TILES = TN * SLICES; ceil(rows / TOKENS)), TOKENS = TM * 8.
 * Local size: 16 * SLICES.
 *
 * Options
 *   BITS               2 or 4
 *   SCALE, GROUP, SUPER_GROUP, X_GROUP, ROW_SCALE   common.cl; X_GROUP not 16
 *   MINS, PARTS, GATED  linear.cl; with GATED part 0's results wait in y for part 1's
 *   -D TM=1|2|4         -D TN=n   int8 sums of TM * TN * 8 registers: 16 of them need -cl-intel-256-GRF-per-thread
 *   -D SLICES=n         sub-groups of a work-group, which take other tile-rows
 *   -D AHEAD=n          128 k at a time: how many steps ahead codes and activations are fetched into L1; 0: not
 * Result: exactly cpu/kernels.h's sequence. */
#define STEP 4 /* 32-blocks that are loaded together */
#define UR   _Pragma("unroll")
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

#if BITS == 2
typedef uint2 b_columns;
#define MULTIPLY intel_sub_group_i8_u2_matrix_mad_k32
#else
typedef uint4 b_columns;
#define MULTIPLY intel_sub_group_i8_u4_matrix_mad_k32
#endif
int8 __attribute__((overloadable)) MULTIPLY(short8 a, b_columns b, int8 acc);

#if TM == 1
#define A_2D(op) JOIN(intel_sub_group_2d_block_##op, _8b_8r32x1c)
#elif TM == 2
#define A_2D(op) JOIN(intel_sub_group_2d_block_##op, _8b_16r32x1c)
#else
#define A_2D(op) JOIN(intel_sub_group_2d_block_##op, _8b_32r32x1c)
#endif
#if BITS == 2
#define B_2D(op) JOIN(intel_sub_group_2d_block_##op, _32b_8r16x1c)
#else
#define B_2D(op) JOIN(intel_sub_group_2d_block_##op, _32b_16r16x1c)
#endif
#define B_ROWS (STEP * BITS)
#define OVERLOAD __attribute__((overloadable))
void OVERLOAD A_2D(read)(global void *base, int width, int height, int pitch, int2 at, private ushort *out);
void OVERLOAD A_2D(prefetch)(global void *base, int width, int height, int pitch, int2 at);
void OVERLOAD B_2D(read)(global void *base, int width, int height, int pitch, int2 at, private uint *out);
void OVERLOAD B_2D(prefetch)(global void *base, int width, int height, int pitch, int2 at);

/* What of a launch the loop needs: the tile-rows as surfaces 64 bytes wide, the activations as one K' bytes wide. */
typedef struct {
    global const uint *codes; /* of the sub-group's first tile-row */
    global const int *q;
    uint n, first, k_padded, n_blocks;
} operands;

static global void *tile_row(private const operands *o, uint j) {
    return (global void *)(o->codes + (size_t)j * o->n_blocks * BITS * TILE_ROWS);
}

/* Beyond the last tile-row of a part the same one is read again. */
static void load_step(private const operands *o, uint block, uint n_tiles, ushort a[STEP][TM * 8], uint b[TN][B_ROWS]) {
    UR for (uint j = 0; j < TN; j++)
        B_2D(read)(tile_row(o, min(j, n_tiles - 1)), 64, (int)(o->n_blocks * BITS), 64, (int2)(0, (int)(block * BITS)), b[j]);
    UR for (uint u = 0; u < STEP; u++)
        A_2D(read)((global void *)o->q, (int)o->k_padded, (int)o->n, (int)o->k_padded,
                   (int2)((int)((block + u) * TILE_K), (int)o->first), a[u]);
}

static void fetch_step(private const operands *o, uint block, uint n_tiles) {
    UR for (uint j = 0; j < TN; j++)
        B_2D(prefetch)(tile_row(o, min(j, n_tiles - 1)), 64, (int)(o->n_blocks * BITS), 64, (int2)(0, (int)(block * BITS)));
    UR for (uint u = 0; u < STEP; u++)
        A_2D(prefetch)((global void *)o->q, (int)o->k_padded, (int)o->n, (int)o->k_padded,
                       (int2)((int)((block + u) * TILE_K), (int)o->first));
}

static short8 rows_of(private const ushort *a, uint i) {
    short8 rows;
    UR for (uint r = 0; r < 8; r++) ((private short *)&rows)[r] = as_short(a[i * 8 + r]);
    return rows;
}

static b_columns columns_of(private const uint *b, uint u) {
    b_columns columns;
    UR for (uint d = 0; d < BITS; d++) ((private uint *)&columns)[d] = b[u * BITS + d];
    return columns;
}

/* The activations' numbers that the float sequence needs. */
typedef struct {
    global const float *sx;
    global const int *qsum;
    uint n_groups, n_scales;
    int mul, sub;
} corrections;

/* The sequence of cpu/kernels.h for group g of one sum; t is a row of activations that exists. */
static float add_group(private const corrections *c, uint t, uint g, int sum, float scale, float smallest, float result) {
    int qsum = c->qsum[(size_t)t * c->n_groups + g];
    float sx = ROW_SCALE ? 1.0f : c->sx[(size_t)t * c->n_scales + (c->n_scales == 1 ? 0 : g)];
    result = fma(scale, sx * (float)(c->mul * sum - c->sub * qsum), result);
    return MINS ? fma(smallest, sx * (float)qsum, result) : result;
}

/* Adds group g's sums, one per row of activations and tile-row, to the results. */
static void add_groups(private const operands *o, private const corrections *c, private const part *w, uint tile, uint n_tiles, uint g,
                       int8 sums[TM][TN], float8 results[TM][TN]) {
    uint lane = get_local_id(0) % TILE_ROWS, group = GROUP && X_GROUP ? g * X_GROUP / (GROUP ? GROUP : 1) : 0;
    UR for (uint j = 0; j < TN; j++) {
        uint own = w->tile0 + tile + min(j, n_tiles - 1);
        float scale = load_scale(w->scales, w->supers, own, lane, group, o->k_padded);
        float smallest = MINS ? load_scale(w->mins, w->super_mins, own, lane, group, o->k_padded) : 0;
        UR for (uint i = 0; i < TM; i++)
            UR for (uint r = 0; r < 8; r++) {
                uint t = min(o->first + i * 8 + r, o->n - 1);
                private float *result = (private float *)&results[i][j] + r;
                *result = add_group(c, t, g, ((int *)&sums[i][j])[r], scale, smallest, *result);
            }
    }
}

static void clear(int8 sums[TM][TN]) {
    UR for (uint i = 0; i < TM; i++) UR for (uint j = 0; j < TN; j++) sums[i][j] = 0;
}

/* One 32-block of those loaded. */
static void multiply(private const ushort *a, const uint b[TN][B_ROWS], uint u, int8 sums[TM][TN]) {
    UR for (uint j = 0; j < TN; j++) {
        b_columns columns = columns_of(b[j], u);
        UR for (uint i = 0; i < TM; i++) sums[i][j] = MULTIPLY(rows_of(a, i), columns, sums[i][j]);
    }
}

/* Results of tile-rows [tile, tile + n_tiles) of a part, up to TN. */
static void run_part(private const operands *o, private const corrections *c, private const part *w, uint tile, uint n_tiles,
                     float8 results[TM][TN]) {
    int8 sums[TM][TN];
    clear(sums);
    UR for (uint i = 0; i < TM; i++) UR for (uint j = 0; j < TN; j++) results[i][j] = 0;
    for (uint block = 0; block < o->n_blocks; block += STEP) {
        ushort a[STEP][TM * 8];
        uint b[TN][B_ROWS];
        if (AHEAD) fetch_step(o, block + AHEAD * STEP, n_tiles);
        load_step(o, block, n_tiles, a, b);
        UR for (uint u = 0; u < STEP; u++) {
            multiply(a[u], b, u, sums);
#if X_GROUP
            if ((u + 1) % (X_GROUP / TILE_K) == 0 && block + u < o->n_blocks) {
                add_groups(o, c, w, tile, n_tiles, (block + u) / (X_GROUP / TILE_K), sums, results);
                clear(sums);
            }
#endif
        }
    }
#if X_GROUP == 0
    add_groups(o, c, w, tile, n_tiles, 0, sums, results);
#endif
}

static void store_part(private const operands *o, private const corrections *c, private const part *w, uint tile, uint n_tiles,
                       const float8 results[TM][TN], global const float *add, private const part *gate) {
    uint lane = get_local_id(0) % TILE_ROWS;
    UR for (uint i = 0; i < TM; i++)
        UR for (uint r = 0; r < 8; r++) {
            uint t = o->first + i * 8 + r;
            float sx = ROW_SCALE ? c->sx[min(t, o->n - 1)] : 1;
            UR for (uint j = 0; j < TN; j++) {
                uint row = (w->tile0 + tile + j) * TILE_ROWS + lane;
                float y = ((private const float *)&results[i][j])[r];
                y = finish(w, row, ROW_SCALE ? y * sx : y);
                if (t >= o->n || j >= n_tiles || row >= w->m) continue;
                size_t at = (size_t)t * w->width + row;
                if (gate) { /* part 0's result is where this item has put it */
                    at = (size_t)t * gate->width + (gate->tile0 + tile + j) * TILE_ROWS + lane;
                    gate->y[at] = crumb_gated(GATED, gate->y[at], y);
                } else {
                    w->y[at] = add ? y + add[at] : y;
                }
            }
        }
}

__attribute__((intel_reqd_sub_group_size(16))) __attribute__((reqd_work_group_size(TILE_ROWS *SLICES, 1, 1))) kernel void
linear(global const crumb_batch *batch, uint on_outputs, uint k, global const float *x, global const float *aux,
       float eps, global const int *q, global const float *sx, global const int *qsum, global const char *codebook,
       int mul, int sub, global const float *add, local int *scratch, PART_ARGS_LIST) {
    part parts[PARTS] = {PART_LIST};
    uint group, k_padded = ROUND_UP(k, TILE_K);
    part w = part_of_group(parts, TN * SLICES, &group);
    uint tile = (group * SLICES + get_local_id(0) / TILE_ROWS) * TN;
    operands o = {0, q, N_OF(batch, on_outputs), get_group_id(1) * TM * 8, k_padded, k_padded / TILE_K};
    corrections c = {sx, qsum, GROUPS_OF(k_padded), ROW_SCALE ? 1 : GROUPS_OF(k_padded), mul, sub};
    if (o.first >= o.n || tile >= w.n_tiles) return;
    uint n_tiles = min((uint)TN, w.n_tiles - tile);
    float8 results[TM][TN];
    o.codes = w.codes + (size_t)(w.tile0 + tile) * o.n_blocks * BITS * TILE_ROWS;
    run_part(&o, &c, &w, tile, n_tiles, results);
    store_part(&o, &c, &w, tile, n_tiles, results, add, 0);
#if GATED
    part up = parts[1];
    o.codes = up.codes + (size_t)(up.tile0 + tile) * o.n_blocks * BITS * TILE_ROWS;
    run_part(&o, &c, &up, tile, n_tiles, results);
    store_part(&o, &c, &up, tile, n_tiles, results, 0, &w);
#endif
}
