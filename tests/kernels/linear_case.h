/* Random low-bit linear layers for tests and timing: a matrix in the tile layout and quantized activations. */
#ifndef CRUMB_TESTS_LINEAR_CASE_H
#define CRUMB_TESTS_LINEAR_CASE_H

#include "cpu/kernels.h"

typedef enum case_fill {
    FILL_RANDOM,   /* random codes, activations, scales */
    FILL_SUMS,     /* as above, but all scales 0 or 1 so that y is one group's int32 sum */
    FILL_POSITIVE, /* FILL_SUMS with every code that of the largest value and every activation 127 */
    FILL_NEGATIVE, /* ... -128 */
    FILL_COUNT
} case_fill;

typedef struct case_params {
    unsigned bits;
    unsigned max_code; /* 0: all that `bits` can say */
    int mul, sub;
    const int8_t *codebook;  /* with 4 bits, mul 1 and sub 0 */
    uint32_t m, k, n, group; /* group 0: the whole row */
    crumb_act_quant act;
    uint32_t act_group; /* for CRUMB_ACT_GROUP */
    bool has_min, scales_f32;
    case_fill fill;
} case_params;

typedef struct linear_case {
    crumb_matrix w;
    crumb_q8 x;
    float *bias, *add; /* [m], [n][m] */
    void *scratch;
    size_t scratch_bytes;
    uint32_t n;
} linear_case;

uint64_t case_random(uint64_t *state);
float case_random_f32(uint64_t *state); /* in [-1, 1) */

/* Aborts the program when memory runs out. */
void case_create(const case_params *params, uint64_t *state, linear_case *out);
void case_destroy(linear_case *c);
/* Arguments for all of the case, into y [n][m] with row stride y_stride. */
crumb_linear_args case_args(const linear_case *c, float *y, size_t y_stride);

#endif
