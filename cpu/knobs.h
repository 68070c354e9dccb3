/* The knobs of the CPU's kernels (crumb_cpu_knobs) as names and candidate values. */
#ifndef CRUMB_CPU_KNOBS_H
#define CRUMB_CPU_KNOBS_H

#include "cpu/kernels.h"

/* All combinations of an op's knobs; number 0 is the default. Several may come to the same for a problem: what a kernel
 * makes of them it says itself (crumb_linear_args.effect). */
size_t crumb_cpu_knobs_count(crumb_cpu_op op);
crumb_cpu_knobs crumb_cpu_knobs_candidate(crumb_cpu_op op, size_t number);

/* "streams=2 near=2048": those that are not the default. Knobs that are unknown, or whose value is none of the
 * candidates', are ignored: a database may come from anywhere. */
void crumb_cpu_knobs_print(crumb_cpu_op op, const crumb_cpu_knobs *knobs, char *out, size_t size);
crumb_cpu_knobs crumb_cpu_knobs_parse(crumb_cpu_op op, const char *text);

/* How many of n_threads threads are to compute. */
int crumb_cpu_knobs_threads(const crumb_cpu_knobs *knobs, int n_threads);

/* Scratch that suffices for a matrix whatever the knobs. */
size_t crumb_cpu_knobs_scratch(const crumb_matrix *w);

#endif
