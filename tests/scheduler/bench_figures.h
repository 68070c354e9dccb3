/* The figures of scheduler/README.md's table, on this machine (bench_balance). */
#ifndef CRUMB_TESTS_SCHEDULER_BENCH_FIGURES_H
#define CRUMB_TESTS_SCHEDULER_BENCH_FIGURES_H

#include "tests/scheduler/bench_rig.h"

/* Median microseconds of replays of each plan, in turns. */
void figures_times(crumb_plan *const *plans, int n_plans, uint32_t n_rows, int n_replays, double *median);
void figures_print(void);

#endif
