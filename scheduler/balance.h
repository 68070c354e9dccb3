/* Who gets how much of one op: a performance ratio for each core, learned from how long the cores took.
 *
 * The method is that of "A dynamic parallel method for performance optimization on hybrid CPUs" (Luo, Liu, Shen 2024).
 * Core i with ratio r_i gets the part r_i of an op's work. From the times t_i that the cores then took,
 *
 *     r_i' = r_i / sum_j(t_i r_j / t_j)          what the ratio should have been
 *     r_i  = a r_i + (1 - a) r_i'                a = 0.3
 *
 * with two additions against noise. A core counts as changed when it is off by more than the dead band twice running,
 * in the same direction; one late reading (an interrupt) moves nothing. Inside the band readings are averaged, over 32
 * ops or more, until the average differs by more than noise explains: small differences are found, and noise is not
 * followed. The band is as wide as the noise that is seen: what a core differs by from one op to the next, since one
 * that is off by the same in every op has a wrong ratio, as behind a memory that cores share, where each step towards
 * the right ratios is followed by a smaller one.
 *
 * Pure logic: no clock, no threads, no allocation. One crumb_balance is for one class of kernels in one phase, since a
 * core's ratio depends on what it does: computing or waiting for memory.
 */
#ifndef CRUMB_SCHEDULER_BALANCE_H
#define CRUMB_SCHEDULER_BALANCE_H

#include "host/base/error.h"

enum { CRUMB_BALANCE_MAX_CORES = 31 };

typedef struct crumb_balance {
    int n_cores;
    float ratio[CRUMB_BALANCE_MAX_CORES]; /* sum 1 */
    uint32_t version;                     /* another number whenever crumb_balance_split would answer otherwise */
    bool fixed;                           /* the ratios stay: set by whoever compares with an unlearned split */

    uint32_t n_learned;                       /* ops */
    float noise;                              /* how far off the worst core is by chance, smoothed */
    float off[CRUMB_BALANCE_MAX_CORES];       /* by how much each core was off in the last op that measured it */
    uint32_t slow, fast;                      /* cores (bits) that were outside the band in the last op, by direction */
    uint32_t n_calm;                          /* ops in calm[] */
    float calm[CRUMB_BALANCE_MAX_CORES];      /* sums of r' over them */
    uint32_t n_idle[CRUMB_BALANCE_MAX_CORES]; /* ops since the core was measured */
    uint32_t patience[CRUMB_BALANCE_MAX_CORES]; /* after so many it is measured again: doubles while it stays slow */
    int probe; /* this core gets a unit even where its ratio is too small for one; -1: none */
} crumb_balance;

/* All cores alike; 1 <= n_cores <= CRUMB_BALANCE_MAX_CORES. */
void crumb_balance_init(crumb_balance *b, int n_cores);

/* The first n cores' parts of n_units units: core i gets [bounds[i], bounds[i + 1]), bounds[0] = 0, bounds[n] =
 * n_units. Whole units, so that the core that ends last ends as early as it can. */
void crumb_balance_split(const crumb_balance *b, int n, uint32_t n_units, uint32_t *bounds);

/* Takes in one op: core i of the first n did units[i] units in ticks[i], of any unit of time that all cores share. A
 * core without units was not measured. One that had not begun when others were done, so that they took its part, is
 * busy with something else: it counts as half as fast as the slowest. */
#define CRUMB_BALANCE_NOT_COME UINT32_MAX /* ticks of such a core */
void crumb_balance_learn(crumb_balance *b, int n, const uint32_t *units, const uint32_t *ticks);

#endif
