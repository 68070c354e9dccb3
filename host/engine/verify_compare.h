/* How far results of a device are off the CPU's. */
#ifndef CRUMB_ENGINE_VERIFY_COMPARE_H
#define CRUMB_ENGINE_VERIFY_COMPARE_H

#include <stddef.h>
#include <stdint.h>

/* Squared errors. `whole`, of all results, as a part of the CPU's squares: what finds kernels that are wrong
 * everywhere. `output`, of the one output (a column, over all rows) that is furthest off, as a part of its own squares
 * and those of an output at the mean, and not of what a layer was given and adds to: a few outputs that are wrong are a
 * small part of the whole. */
typedef struct crumb_verify_error {
    double whole, output;
    uint32_t column; /* the one of `output` */
} crumb_verify_error;

/* [n_rows][width] each; `given`: what the results were added to, or NULL. What is not finite, or where the CPU's are
 * nothing but zeros, is infinitely wrong: weights that a device does not give back look like the latter. */
crumb_verify_error crumb_verify_compare(const float *got, const float *expected, const float *given, uint32_t n_rows,
                                        uint32_t width);

#endif
