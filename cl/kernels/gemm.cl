/* Linear layers for many rows of activations on Intel's matrix instructions: what linear.cl computes, with its
 * arguments. A sub-group has TM * 8 rows of activations x TN tile-rows of sums in registers, so that a load of
 * activations feeds TN tile-rows and one of weights TM * 8 rows. With X=32 a work-group quantizes its rows once, into
 * local memory, or, however long they are, finds their scales, and each sub-group quantizes in registers.
 *
 * Arguments: linear.cl's, but for codebook, which is not read. q and codes begin at a multiple of 64 bytes, and K' is at
 * least 64. scratch: X=32: TOKENS * (K'' + 4 * (scales of a row + sums of a row)) bytes; K'' = K' rounded up to 128. With
 * IN_REGISTERS=1 it is not used, x begins at a multiple of 64 bytes, its rows have whole 16 bytes, and it is finite. Behind it, with
 * SLICES > 1, 64 * TOKENS * TN * SLICES bytes; with TM=8 (2 + MINS) * 4 * TOKENS * (sums of a row).
 * Work-groups: as linear.cl's, with TILES = TN * ACROSS and TOKENS = TM * 8.
 * Local size: SUB_GROUP * ACROSS * SLICES.
 *
 * Options
 *   BITS               1, 2, 3, 4, 8; with X_GROUP also 5 and 6
 *   SCALE, GROUP, SUPER_GROUP, X_GROUP, ROW_SCALE, INPUT, ORDER   common.cl; X_GROUP 0, 16, 32, 64 or 128
 *   X_ORDER            common.cl: 8; 0 with 1 bit, and with 3 in sub-groups of 8
 *   X_ROWS             quantize.cl: 1, with SUB_GROUP=8 8
 *   X, MINS, PARTS, GATED  linear.cl; with GATED part 0's results wait in y for part 1's
 *   -D SUB_GROUP=16|8  16: loads are 2D blocks (Xe2 and later), zeros outside a surface. 8 (dg2, arl-h): plain blocks
 *   -D MUL=0|1|2       1: `mul` is 1; 2: with BITS=1, it is 2; 0: whatever it is
 *   -D TM=1|2|4|8      -D TN=n   sums take TM * TN * 8 registers (of 8 items: twice that; of 3 bits with SUB_GROUP=16 and
 *                      X_GROUP=0 too): more than half of what a thread has makes it spill. 8: with SUB_GROUP=16, X=8
 *                      and X_GROUP of 32 or more; an operand, once put together, then meets 64 rows, 16 after 16
 *   -D IN_REGISTERS=0|1  1: with SUB_GROUP=16, X=32, X_GROUP=0, INPUT=0, ORDER=0, X_ORDER=8, SLICES=1: quantize in registers; TM is
 *                      1 or 2
 *   -D SCALED=0|1      with IN_REGISTERS=1: 1: sx is the largest |x| of each row, by quantize.cl with ONLY_SCALES; 0: each
 *                      work-group looks for it
 *   -D ACROSS=n        sub-groups of a work-group that take other tile-rows
 *   -D SLICES=n        sub-groups of a work-group that divide K: n > 1 with ACROSS=1 and X_GROUP=0 alone, since floats of
 *                      groups are added in their order
 *   -D AHEAD=n         with SUB_GROUP=16 and X_GROUP=0 alone: how many steps ahead codes, and activations in memory, are fetched
 *                      into L1; 0: not
 * Result: exactly cpu/kernels.h's sequence.
 *
 * Behind this file, which has the sizes and what the loop needs of a launch, stand those of gemm/, each of which uses the
 * ones before it:
 *     1_operands.cl  loads, and the columns that codes become: all that knows the width of codes and of sub-groups
 *     2_floats.cl    what becomes of sums: scales, numbers of rows, the sequence's floats, results
 *     3_sums.cl      the loops over K, with groups and without
 *     4_kernel.cl    the kernel: what a work-group has of the launch and prepares once */
#if X_GROUP == 16
#define STEP 1 /* 32-blocks of a step: two groups */
#elif X_GROUP
#define STEP (X_GROUP / TILE_K) /* a group */
#else
#define STEP (SUB_GROUP == 16 ? 4 : 2)
#endif
#define TOKENS (TM * 8)
#if TM == 1 /* rows of activations that are loaded at once */
#define PIECE 8
#elif TM == 4
#define PIECE 32
#else
#define PIECE 16
#endif
#define PIECES (TOKENS / PIECE)
#define SIZE   (SUB_GROUP * ACROSS * SLICES)
#define HALVES (TILE_ROWS / SUB_GROUP)
#define BLOCKS (TN * HALVES) /* of SUB_GROUP rows of weights, of a sub-group */
#define LANE   (get_local_id(0) % SUB_GROUP)
#define UR     _Pragma("unroll")
#define INLINE static __attribute__((always_inline))
#define OVERLOAD __attribute__((overloadable))
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

/* Two operands: low bits as they lie, 2 or 4, and high ones, whose sums count 1 << LOW_BITS. */
#define SPLIT_BITS ((BITS == 3 && SUB_GROUP == 16) || BITS == 5 || BITS == 6)
#define LOW_BITS   (BITS == 3 ? 2 : 4)
#if BITS <= 2 || (BITS == 3 && SUB_GROUP == 16)
typedef uint2 b_columns;
#define MULTIPLY intel_sub_group_i8_u2_matrix_mad_k32
#elif BITS <= 6
typedef uint4 b_columns;
#define MULTIPLY intel_sub_group_i8_u4_matrix_mad_k32
#else
typedef uint8 b_columns;
#define MULTIPLY intel_sub_group_i8_u8_matrix_mad_k32
#endif
#if SUB_GROUP == 16
typedef ushort a_lane; /* lane l: elements 2l, 2l + 1 of a row of 32 */
typedef short8 a_rows;
#else
typedef uint a_lane; /* elements 4l to 4l + 3 */
typedef int8 a_rows;
#endif
int8 OVERLOAD MULTIPLY(a_rows a, b_columns b, int8 acc);

#ifndef IN_REGISTERS
#define IN_REGISTERS 0
#endif
#define ROW_SETS DIV_UP(TOKENS, SUB_GROUP) /* of as many rows of activations as there are items */
#define B_ROWS   (STEP * BITS) /* dwords of each row of a tile-row, for a step */

/* What of a launch the loop needs. */
typedef struct {
    global const uint *codes; /* of the sub-group's first tile-row */
    Q_READ int *q, *qsum;     /* of the work-group's first row; a surface begins with the batch's */
    Q_READ float *sx;
    uint first, last;         /* row `first` of the batch is row 0 of the work-group; beyond row `last` none is stored */
    uint k_padded, n_blocks, n_tiles, slice;
    int mul, sub;
    global const crumb_value *x; /* with IN_REGISTERS: the batch's */
    float to_code;          /* item r has row r's */
    uint n, k;
    local const int *start; /* with VIA_BASE: what groups' sums begin with, 8 x 16 times */
    local int *partials;    /* with SLICES > 1: [slice][block of rows][TOKENS][SUB_GROUP] */
    local const float *staged; /* with PIECES > 1: [group][STAGED_ROW] */
} operands;

/* Beyond the last tile-row of a part the same one is read again. */
INLINE global const uint *tile_row(private const operands *o, uint j) {
    return o->codes + min(j, o->n_tiles - 1) * o->n_blocks * (BITS * TILE_ROWS);
}
