/* A plan of linear layers whose kernels tell what each worker took, on this machine's cores, which are made unequal: by
 * work that one worker repeats, and by another program's thread beside it. For tests/scheduler/bench_balance. */
#ifndef CRUMB_TESTS_SCHEDULER_BENCH_RIG_H
#define CRUMB_TESTS_SCHEDULER_BENCH_RIG_H

#include "cpu/plan.h"

enum { RIG_OPS = 32, RIG_MANY = 32, RIG_VICTIM = 1 }; /* of a replay; rows; the worker that is made slower */
/* How ops are divided: RIG_EQUAL: by ratios that stay alike. */
enum { RIG_EQUAL, RIG_SPLIT, RIG_CHUNKS, RIG_CHOSEN, RIG_WAYS };

/* What a worker did of an op in the last replay. */
typedef struct rig_sample {
    uint32_t n_tiles, ns;
    uint64_t began, ended;
} rig_sample;
extern rig_sample rig_samples[CRUMB_BALANCE_MAX_CORES][RIG_OPS];

/* Opens the CPU with a core for each thread; false where there are not two that threads can be pinned to. Errors end
 * the program. */
bool rig_open(void);
void rig_close(void);
int rig_n_workers(void);
void rig_forget(void); /* all that was learned about cores */

crumb_plan *rig_record(int way, uint32_t n_rows);
void rig_destroy(crumb_plan *plan);
double rig_replay_us(crumb_plan *plan, uint32_t n_rows);

/* The victim does its work so many times, or has a neighbour that spins on its core: from now on. */
void rig_set_repetitions(int n);
void rig_set_neighbour(bool there);
/* Calls fn(argument) once, when the first worker begins with that op of the next replay. */
void rig_at(int op, void (*fn)(int argument), int argument);

#endif
