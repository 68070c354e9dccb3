/* What the suite's rows of single kernels share: which kernel is timed, on which problem, and how. */
#ifndef CRUMB_TOOLS_SUITE_KERNELS_H
#define CRUMB_TOOLS_SUITE_KERNELS_H

#include "tools/crumb/kernels_turns.h"
#include "tools/crumb/suite.h"

/* The kernel that a plan takes, on the best tier (NULL) or on the one given. SIZE_MAX: none. */
size_t suite_pick(const suite_state *s, const crumb_kernel_problem *p, const char *tier);
/* Tiers that owners of Arc cards have, where this machine has a better one, --target leaves the choice, and plans of
 * the tier take a kernel of their own. Returns how many. */
enum { SUITE_LOWER_TIERS = 3 };
size_t suite_lower_tiers(const suite_state *s, const crumb_kernel_problem *p, const char *out[SUITE_LOWER_TIERS]);
crumb_kernel_problem suite_problem(const suite_state *s, const char *format, uint32_t group, kernels_shape shape);
/* With groups as files of the format have them, or one scale per row where they do not divide it. */
crumb_kernel_problem suite_usual_problem(const suite_state *s, const char *format, kernels_shape shape);
/* Times one kernel, or two in turns (the second may be SIZE_MAX), on weights that no cache has. The caller destroys
 * *out in any case. */
crumb_status suite_turns(const suite_state *s, const crumb_kernel_problem *p, size_t first, size_t second,
                         size_t rounds, kernels_turns *out, crumb_error *err);
/* Fills in what the row's ratio is without other threads on the kernels' cores: kernels_turns_alone. */
void suite_alone(suite_row *row, const kernels_turns *turns, size_t over, size_t under, turns_measure measure);
/* A row without a measurement. */
crumb_status suite_skip(suite_state *s, suite_row *row, const char *why, crumb_error *err);
/* "2-bit", "ternary", "mxfp4". */
const char *suite_weights_name(const char *format, char out[16]);

#endif
