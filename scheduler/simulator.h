/* Virtual cores with a virtual clock, on which the real balance, choice and chunks run: what must converge or pay is
 * asserted here, where no other program and no clock speed can interfere.
 *
 * A core works at its speed, less what a neighbour takes, and all cores together no faster than the memory that they
 * share. Measured times are noisy; the noise comes from a seed.
 */
#ifndef CRUMB_SCHEDULER_SIMULATOR_H
#define CRUMB_SCHEDULER_SIMULATOR_H

#include "scheduler/balance.h"
#include "scheduler/choice.h"
#include "scheduler/profile.h"

typedef struct crumb_sim_core {
    double speed; /* work per microsecond, by itself */
    /* Between these times the core is slower: a neighbour, or a lower clock. */
    double slower_from_us, slower_until_us;
    double left_over; /* the part of the core that is left then */
    /* 0: it is always that part. Else the neighbour has the whole core for a slice and gives it back for one, such that
     * the part is left on average: the longer of the two lasts this long. */
    double slice_us;
} crumb_sim_core;

typedef struct crumb_sim {
    int n_cores;
    crumb_sim_core cores[CRUMB_BALANCE_MAX_CORES];
    double bandwidth; /* work per microsecond of all cores together; 0: no limit */
    double noise;     /* standard deviation of a core's time for its part of an op, relative */
    double op_us;     /* what an op costs beside its work: the barrier */
    double chunk_us;  /* what taking a chunk costs */
    double clock_us;  /* virtual time */
    uint64_t seed;    /* state of the noise */
} crumb_sim;

typedef struct crumb_sim_op {
    uint32_t n_units;
    double unit_work;
    uint64_t unit_bytes; /* what chunks are cut by */
} crumb_sim_op;

/* n_first cores of speed `first`, then n_rest of speed `rest`, without noise, costs and limits. */
void crumb_sim_init(crumb_sim *sim, int n_first, double first, int n_rest, double rest, uint64_t seed);

/* The cores of a profile's processor, each kind after the other, without noise and costs. Work is counted in vectors of
 * 32 weights, which a core does in the kind's gamma cycles while the data are at hand, so that the kinds differ as they
 * do in kernels of that work; all cores together read no more than the memory gives. False where the profile tells of
 * no cores, of more than can be balanced, or of no gamma for the work. */
bool crumb_sim_from_profile(crumb_sim *sim, const crumb_profile_device *processor, crumb_work work, uint64_t seed);

/* Each runs one op on all cores and returns how many microseconds it took; the clock goes on. */
double crumb_sim_split(crumb_sim *sim, const crumb_sim_op *op, crumb_balance *balance); /* and the balance learns */
double crumb_sim_equal(crumb_sim *sim, const crumb_sim_op *op);                         /* the same for every core */
double crumb_sim_chunks(crumb_sim *sim, const crumb_sim_op *op);
/* The way that the choice names, which is told the time, as cpu/divide.c does. */
double crumb_sim_chosen(crumb_sim *sim, const crumb_sim_op *op, crumb_balance *balance, crumb_choice *choice);

/* How long it would take now if all cores ended together: no noise, no rounding, no costs. The clock stays. */
double crumb_sim_ideal(const crumb_sim *sim, const crumb_sim_op *op);

#endif
