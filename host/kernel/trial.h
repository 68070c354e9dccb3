/* Trials: random linear layers on which kernels are compared with the reference and timed, by tests and by the command.
 *
 * A trial has weights in the tile layout, activations both as int8 and as floats, and all that a kernel's arguments
 * point to. The same seed makes the same trial everywhere.
 */
#ifndef CRUMB_KERNEL_TRIAL_H
#define CRUMB_KERNEL_TRIAL_H

#include "host/kernel/suite.h"
#include "host/lowbit/q8.h"

typedef enum crumb_trial_fill {
    CRUMB_FILL_RANDOM,   /* random codes, activations (most of them small, as in models) and scales */
    CRUMB_FILL_SUMS,     /* as above, but all activations equally likely, and all scales 0 or 1 so that y is one group's
                          * int32 sum */
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
    bool normal;  /* the floats have a normal distribution, and the int8 activations are to be made of them; else both
                   * are random */
    bool bf16;    /* the floats are numbers of bf16, and so are results to be */
    bool rounded; /* codes and scales are those of weights of a normal distribution, which the trial keeps; without
                   * mins, scales of one level */
    crumb_trial_fill fill;
} crumb_trial_params;

struct crumb_trial {
    crumb_trial_params params;
    crumb_matrix w;
    crumb_q8 x;
    float *xf;         /* [n][k]; in [-1, 1], or normal */
    float *wf;         /* [m][k], what the codes were rounded from; NULL: nothing */
    float *bias, *add; /* [m], [n][m] */
    size_t codes_bytes;
    /* What a backend that runs kernels on the host hangs on it, freed with it; NULL: nothing. */
    void *scratch;
    size_t scratch_bytes;
    void *packed, *prepared; /* weights (crumb_pages_alloc) and activations in the layout that packed_for names */
    size_t packed_bytes;
    const void *packed_for;
    void *interleaved, *reach; /* activations as x has them, for GEMMs */
    double power;              /* of the reference's results, for who judges errors by it; below 0: not asked yet */
};

uint64_t crumb_random_u64(uint64_t *state);
float crumb_random_f32(uint64_t *state); /* in [-1, 1) */

/* Weights and activations; with params->normal the int8 activations are zeros. Destroyed by the caller, also after a
 * failure (MEMORY). */
crumb_status crumb_trial_generate(const crumb_trial_params *params, uint64_t *seed, crumb_trial *out, crumb_error *err);
void crumb_trial_unpack(crumb_trial *trial); /* frees packed and prepared */
void crumb_trial_destroy(crumb_trial *trial);

/* A problem as a trial's parameters; as a matrix without pointers; whether its groups divide its K. */
crumb_trial_params crumb_problem_trial(const crumb_kernel_problem *problem);
crumb_matrix crumb_problem_matrix(const crumb_kernel_problem *problem);
bool crumb_problem_fits(const crumb_kernel_problem *problem);
/* Fails with ARGUMENT for one that does not fit, and says which groups do. */
crumb_status crumb_problem_refuse(const crumb_kernel_problem *problem, crumb_error *err);

#endif
