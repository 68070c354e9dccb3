/* Trials: random linear layers on which kernels are compared with the reference and timed, by tests and by the command.
 *
 * A trial has weights in the tile layout, activations both as int8 and as floats, and all that a kernel's arguments
 * point to. The same seed makes the same trial everywhere.
 */
#ifndef CRUMB_CPU_TRIAL_H
#define CRUMB_CPU_TRIAL_H

#include "cpu/kernels.h"

typedef enum crumb_trial_fill {
    CRUMB_FILL_RANDOM,   /* random codes, activations, scales */
    CRUMB_FILL_SUMS,     /* as above, but all scales 0 or 1 so that y is one group's int32 sum */
    CRUMB_FILL_POSITIVE, /* CRUMB_FILL_SUMS with every code that of the largest value, every activation 127 or 1.0f */
    CRUMB_FILL_NEGATIVE, /* ... -128 or -1.0f */
    CRUMB_FILL_OPPOSED,  /* ... -128 or -1.0f and every code that of the smallest value */
    CRUMB_FILL_COUNT
} crumb_trial_fill;

typedef struct crumb_trial_params {
    unsigned bits;
    unsigned max_code; /* 0: all that `bits` can say */
    int mul, sub;
    const int8_t *codebook;  /* with 4 bits, mul 1 and sub 0 */
    uint32_t m, k, n, group; /* group 0: the whole row */
    uint32_t super_group;    /* 0: scales have one level */
    crumb_act_quant act;     /* CRUMB_ACT_F32: kernels read the floats; the int8 ones are there all the same, by row */
    uint32_t act_group;      /* for CRUMB_ACT_GROUP */
    bool has_min, scales_f32;
    bool quantized; /* int8 activations are what the floats, of a normal distribution, become; else both are random */
    crumb_trial_fill fill;
} crumb_trial_params;

typedef struct crumb_trial {
    crumb_trial_params params;
    crumb_matrix w;
    crumb_q8 x;
    float *xf;         /* [n][k]; in [-1, 1], or normal */
    float *bias, *add; /* [m], [n][m] */
    void *scratch;
    size_t scratch_bytes, codes_bytes;
    void *packed, *prepared; /* of the last crumb_trial_pack, for packed_for */
    size_t packed_bytes;
    const crumb_cpu_layout *packed_for; /* NULL: nothing is packed */
    double power;                       /* of crumb_trial_power; below 0: not asked yet */
} crumb_trial;

uint64_t crumb_random_u64(uint64_t *state);
float crumb_random_f32(uint64_t *state); /* in [-1, 1) */

/* Destroyed by the caller, also after a failure (MEMORY). */
crumb_status crumb_trial_create(const crumb_trial_params *params, uint64_t *seed, crumb_trial *out, crumb_error *err);
void crumb_trial_destroy(crumb_trial *trial);

/* Arguments for all of the trial, into y [n][m] with row stride y_stride. */
crumb_linear_args crumb_trial_args(const crumb_trial *trial, float *y, size_t y_stride);

/* Makes weights and activations what a kernel with a layout of its own reads, and points args there. The trial keeps
 * them until it is packed for another layout. */
crumb_status crumb_trial_pack(crumb_trial *trial, const crumb_cpu_layout *layout, crumb_linear_args *args,
                              crumb_error *err);

/* What the squared error of results is judged by where a kernel's row allows one: the sum of the squares of the
 * reference's results y [n][m], or, where it is larger, what that would be were the signs of products random, since a
 * few y may be next to 0 by chance. Computed once. Overwrites the trial's scratch. */
double crumb_trial_power(crumb_trial *trial, const float *y);

#endif
