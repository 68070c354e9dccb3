/* Kernels of one problem timed in turns, beside what the machine can do at best in the same seconds: a machine whose
 * speed drifts treats all alike, and ratios are taken round by round. */
#ifndef CRUMB_TOOLS_KERNELS_TURNS_H
#define CRUMB_TOOLS_KERNELS_TURNS_H

#include "tools/crumb/kernels.h"

typedef enum turns_measure {
    TURNS_NS,
    TURNS_PREPARE_NS, /* of the input, on one thread: no part of TURNS_NS. 0: there is nothing to prepare, or not here
                       */
    TURNS_READ_SHARE, /* bytes of weights per second, of what memory delivers */
    TURNS_PEAK_SHARE, /* operations per second, of the peak of the kernel's tier */
    TURNS_GAMMA,      /* cycles per 256-bit vector of 8 outputs x 4 inputs, weights in the core's own cache */
    TURNS_NEAR_SHARE, /* part of the time that the instructions alone take */
    TURNS_READ_GB_S,
    TURNS_PEAK_GOPS,
    TURNS_CLOCK_GHZ,
    TURNS_LAUNCH_NS, /* that a launch costs without work */
    TURNS_REORDER,   /* instructions that a core has on their way, the least of before and after; 0: unknown */
    TURNS_N_MEASURES
} turns_measure;

enum { TURNS_MAX_KERNELS = 64 };

typedef struct turns_series {
    size_t kernel;
    char knobs[CRUMB_KNOBS_BYTES];
    crumb_kernel_info info;
    double *values;      /* [TURNS_N_MEASURES][rounds] */
    uint64_t cold_bytes; /* that were taken out of caches before a run: the least of all rounds */
} turns_series;

typedef struct kernels_turns {
    const kernels_choice *choice;
    crumb_kernel_problem problem;
    crumb_kernel_bench *bench;
    bool cold;
    size_t rounds, n_series;
    turns_series series[TURNS_MAX_KERNELS];
    double *sorted;        /* [rounds] */
    uint32_t most_reorder; /* that the machine had; 0: unknown */
} kernels_turns;

/* The choice and its machine outlive them. Destroyed by the caller, also after a failure. */
crumb_status kernels_turns_create(const kernels_choice *choice, const crumb_kernel_problem *problem, size_t rounds,
                                  bool cold, kernels_turns *out, crumb_error *err);
/* Kernels after the TURNS_MAX_KERNELS first ones are left out. knobs "": as by default, as near measurements always
 * are. */
crumb_status kernels_turns_add(kernels_turns *turns, size_t kernel, const char *knobs, crumb_error *err);
/* Ends early when Ctrl-C was pressed; then nothing of it means anything. */
crumb_status kernels_turns_run(kernels_turns *turns, crumb_error *err);
void kernels_turns_destroy(kernels_turns *turns);

/* Medians of the rounds; `series` counts kernels as they were added. */
double kernels_turns_median(const kernels_turns *turns, size_t series, turns_measure measure);
/* Of what one kernel took in a round over what the other took. */
double kernels_turns_ratio(const kernels_turns *turns, size_t over, size_t under, turns_measure measure);
/* The same of the rounds in which the kernel had its cores to itself, as far as that shows: the reorder window was
 * whole. `under` SIZE_MAX: of the measure itself. *n: how many they are; none where nothing shows it. */
double kernels_turns_alone(const kernels_turns *turns, size_t over, size_t under, turns_measure measure, size_t *n);
/* Bytes of weights that a run reads, and 10^9 operations per second from the median time. */
uint64_t kernels_turns_bytes(const kernels_turns *turns, size_t series);
double kernels_turns_gops(const kernels_turns *turns, size_t series);

#endif
