/* Trials (host/kernel/trial.h) as the CPU's kernels take them. */
#ifndef CRUMB_CPU_TRIAL_H
#define CRUMB_CPU_TRIAL_H

#include "cpu/kernels.h"
#include "host/kernel/trial.h"

/* With scratch for the kernels, and with int8 activations also where the floats are normal. Destroyed by the caller,
 * also after a failure (MEMORY). */
crumb_status crumb_trial_create(const crumb_trial_params *params, uint64_t *seed, crumb_trial *out, crumb_error *err);

/* Arguments for all of the trial, into y [n][m] with row stride y_stride. */
crumb_linear_args crumb_trial_args(const crumb_trial *trial, float *y, size_t y_stride);

/* Makes weights and activations what a kernel with a layout of its own reads, and points args there. The trial keeps
 * them until it is packed for another layout. */
crumb_status crumb_trial_pack(crumb_trial *trial, const crumb_cpu_layout *layout, crumb_linear_args *args,
                              crumb_error *err);

/* Interleaves the activations for GEMMs of a tier, as a plan does once for all chunks of a layer, and points args
 * there: into the trial, until the next call. */
crumb_status crumb_trial_interleave(crumb_trial *trial, crumb_isa isa, crumb_linear_args *args, crumb_error *err);

/* What the squared error of results is judged by where a kernel's row allows one: the sum of the squares of the
 * reference's results y [n][m], or, where it is larger, what that would be were the signs of products random, since a
 * few y may be next to 0 by chance. Computed once. Overwrites the trial's scratch. */
double crumb_trial_power(crumb_trial *trial, const float *y);

#endif
