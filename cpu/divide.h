/* How linear steps are divided among threads: where scheduler/ (what the cores are worth, which way pays) meets plans.
 *
 * A linear step's units (tiles of weights) go to threads in one of two ways. In chunks, cut when the plan is recorded,
 * which threads take one after the other; or as shares, one for each thread, in proportion to what its core has lately
 * done with this class of kernels in this phase. Which way is measured for each shape of the plan (scheduler/choice.h).
 * Results are the same: a unit's sums do not depend on who computes it.
 */
#ifndef CRUMB_CPU_DIVIDE_H
#define CRUMB_CPU_DIVIDE_H

#include "cpu/plan.h"

/* When all steps are recorded. A plan of one thread, or of more than can have shares, has no divider and only chunks.
 */
crumb_status crumb_divider_create(crumb_plan *p, crumb_error *err);
void crumb_divider_destroy(crumb_divider *d); /* NULL is allowed */

/* Before each replay. */
void crumb_divide_round(crumb_plan *p);
/* The items of a linear step, as a walk wants them; the step begins. */
uint32_t crumb_divide_items(const crumb_plan *p, const crumb_step *s);
/* The linear step that began last, if any, is over: its times are taken in. By one thread, after all of its items. */
void crumb_divide_over(crumb_plan *p);

typedef struct crumb_units {
    uint32_t begin, end;
} crumb_units;
/* The units of an item. */
crumb_units crumb_divide_units(const crumb_plan *p, const crumb_step *s, uint32_t item);
/* A thread has done an item in that many ticks; only needed for shares. */
void crumb_divide_took(const crumb_plan *p, uint32_t item, int thread, uint64_t ticks);

#endif
