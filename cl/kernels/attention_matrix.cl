/* Attention on Intel's matrix instructions: as attention.cl, with the same chunks of keys, entries and arguments.
 *
 *     kernel void attention_split(batch, q, keys, values, layer_offset, head_blocks, scale, partials, arrived, out)
 *     kernel void attention_whole(batch, q, keys, values, layer_offset, head_blocks, scale, out)
 *
 * Work-groups: as attention.cl's. Local size: SUB_GROUP * 8.
 * Options: HEAD_DIM (a multiple of 16, of 32 with KV=8; 32 to 16 * SUB_GROUP), KV, N_HEAD, N_HEAD_KV as there,
 *          -D SUB_GROUP=16|8  the width of the device's matrix instructions; 16: with 2D block loads
 *          -D SPLIT=0|1       1: attention_split, 0: attention_whole
 *          -D ROWS=n          attention_split: 1. Else ROWS * N_HEAD / N_HEAD_KV should not exceed 32, 16 in sub-groups
 *                             of 8.
 *                             Local memory: about ROWS * N_HEAD / N_HEAD_KV * (4 * HEAD_DIM + 700) bytes
 * Result: KV=16: queries and softmax's weights are each the sum of two f16 terms, within 2^-21 of what they are; sums are
 * in f32 in the order of the instructions. A row's result does not depend on ROWS, on the entry, or on other rows.
 * KV=8: exactly cpu/ref's. Queries and weights are integers of 16 bits there, here a signed high byte and an unsigned low
 * one; sums of their products with codes are exact, and all floats are made in attention.cl's order.
 *
 * Of a chunk of 128 keys each of the eight sub-groups scores 16 keys with all queries of the work-group, and then makes
 * a block of dimensions of their outputs (or one for a part of them, or several): 16 of them, 32 with KV=8. So keys are
 * loaded and paired into operands once in a work-group, and meet up to 32 queries there; values as well with KV=16.
 *
 * Behind this file, which has the sizes and what lies in local memory, stand those of attention_matrix/, each of which
 * uses the ones before it:
 *     1_operands.cl  queries, put into local memory; keys and values as they come from the cache
 *     2_keys.cl      a chunk's scores, and the weights that softmax makes of them (weigh_keys)
 *     3_values.cl    the chunk's values times their weights (weigh_values), and who makes which
 *     4_kernels.cl   the two kernels, and how chunks are merged */
#define GROUPS  8 /* sub-groups of a work-group, and blocks of keys of a chunk */
#define TERMS   2
#if KV == 8
#define HALVES 2 /* 16 dimensions each, of a block */
#else
#define HALVES 1
#endif
#define BLOCK_DIMS (16 * HALVES)
#define STEPS      (HEAD_DIM / BLOCK_DIMS) /* instructions' k along a head, and blocks of dimensions */
#define UR      _Pragma("unroll")
#define ONE_BY_ONE _Pragma("unroll 1") /* else registers do not suffice */
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

/* Queries of an instruction, and instructions that all queries take. */
#if QUERIES >= 5
#define M 8
#elif QUERIES >= 3
#define M 4
#elif QUERIES == 2
#define M 2
#else
#define M 1
#endif
#define TILES DIV_UP(QUERIES, M)

#if M == 1
#define VECTOR(type) type
#define COUNT
#else
#define VECTOR(type) JOIN(type, M)
#define COUNT M
#endif
typedef VECTOR(float) d_rows;
#if SUB_GROUP == 16
typedef VECTOR(short) a_rows; /* lane l: element l of each row */
#define A_READ(p) JOIN(as_, VECTOR(short))(JOIN(intel_sub_group_block_read_us, COUNT)((local const ushort *)(p)))
#define PER_LANE 1            /* columns of 16 that a lane has */
#else
typedef VECTOR(int) a_rows; /* lane l: elements 2l and 2l + 1 */
#define A_READ(p) JOIN(as_, VECTOR(int))(JOIN(intel_sub_group_block_read, COUNT)((local const uint *)(p)))
#define PER_LANE 2
#endif
#define COLUMNS (PER_LANE * HALVES) /* of a block that a lane has */
#if KV == 8
typedef VECTOR(int) i_rows;
#if SUB_GROUP == 16
typedef VECTOR(ushort) u_rows;
#define UNSIGNED JOIN(as_, VECTOR(ushort))
#else
typedef VECTOR(uint) u_rows;
#define UNSIGNED JOIN(as_, VECTOR(uint))
#endif
#define TO_FLOATS JOIN(convert_, VECTOR(float))
i_rows __attribute__((overloadable)) intel_sub_group_i8_i8_matrix_mad_k32(a_rows a, int8 b, i_rows acc);
i_rows __attribute__((overloadable)) intel_sub_group_u8_i8_matrix_mad_k32(u_rows a, int8 b, i_rows acc);
#else
d_rows __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(a_rows a, int8 b, d_rows acc);
#endif

/* Which dimensions and queries a sub-group makes. */
#define BLOCKS      DIV_UP(STEPS, GROUPS)               /* of dimensions */
#define PARTS       (STEPS < GROUPS ? GROUPS / STEPS : 1) /* sub-groups that share a block's queries */
#define OWN_TILES   DIV_UP(TILES, PARTS)

#if KV == 8
typedef uchar terms[M][32];
#else
typedef ushort terms[M][16];
#endif
typedef struct {
    terms q[TILES][STEPS][TERMS];
#if KV == 8
    float p[TILES * M * (HEAD_DIM > KV_CHUNK ? HEAD_DIM : KV_CHUNK)]; /* [query][key]; before that the queries */
#else
    terms p[TILES][GROUPS][TERMS];
#endif
    float most[TILES * M][GROUPS], sum[TILES * M][GROUPS];
    float m[TILES * M], l[TILES * M]; /* of a chunk */
    float down[TILES * M];
    uint n_keys[TILES * M]; /* of the chunk, up to 128 */
} work;
typedef char work_has_room_for_merging[sizeof(work) >= sizeof(merging) ? 1 : -1];

#define ROW(vector, r)  (((private float *)&(vector))[r])
#if SUB_GROUP == 16
#define ROW_OF_A(vector, r) (((private ushort *)&(vector))[r])
#else
#define ROW_OF_A(vector, r) (((private uint *)&(vector))[r])
#endif

#if KV == 16
/* x as two terms. */
static void split_float(float x, local ushort *high, local ushort *low) {
    ushort bits;
    vstore_half_rte(x, 0, (private half *)&bits);
    *high = bits;
    vstore_half_rte(x - vload_half(0, (private const half *)&bits), 0, (private half *)&bits);
    *low = bits;
}
#endif
