/* A walk: a fixed row of steps that several threads do together, each step being some items of work, and no item of a
 * step before all items of the steps before it are done.
 *
 * It is a barrier for work and not for threads: a step is over when its items are done, by whoever took them. Threads
 * that come late find the step that is under way. So a thread that the system has taken off its core holds up the
 * others only if it is in the middle of an item, and with all cores busy elsewhere a walk is never slower than on one
 * thread, nearly.
 *
 * A step's items are either alike to all threads, which take the next one each, or shares, of which every thread has
 * its own: it takes that first, and then those whose threads have not come by then. Of items that are alike a step may
 * leave the last threads out: they wait for the next step.
 */
#ifndef CRUMB_CPU_WALK_H
#define CRUMB_CPU_WALK_H

#include "cpu/pool.h"

#include <stdatomic.h>

/* What n_items returns for a step of shares: this, and a bit for each thread that has one. Its items are this plus the
 * thread whose share it is. */
#define CRUMB_WALK_SHARES (1u << 31)
enum { CRUMB_WALK_MAX_SHARES = 31 };

/* The same for a step whose items are alike, but for the first n_takers of the walk's threads only: CRUMB_WALK_FEW, how
 * many they are, and in the last bits how many items there are, less than CRUMB_WALK_FEW_ITEMS. */
#define CRUMB_WALK_FEW       (1u << 30)
#define CRUMB_WALK_FEW_ITEMS (1u << 20)

typedef struct crumb_walker {
    int thread;
    uint32_t prepared_step; /* for the steps' use: UINT32_MAX when the walk begins */
    uint32_t shared_step;   /* the step of which it last had a share */
} crumb_walker;

typedef struct crumb_walk {
    /* Set by crumb_walk_init. */
    crumb_pool *pool;
    crumb_job job;
    uint32_t n_steps;
    uint32_t (*n_items)(void *ctx, uint32_t step); /* asked when the steps before are done; 0: left out. Less than
                                                    * CRUMB_WALK_FEW, or see there and at CRUMB_WALK_SHARES */
    void (*run)(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker);
    void *ctx;
    /* May be set after crumb_walk_init. Called by a thread for which nothing of a step is left, before it waits for the
     * next one; others may still be at it, or further on. NULL: nothing. */
    void (*idle)(void *ctx, uint32_t step, int thread);

    /* Steps are numbered through all walks (modulo 2^32); the walk under way has base .. base + n_steps - 1. */
    _Alignas(64) _Atomic uint64_t ticket;  /* step number << 32 | items not yet taken, the highest is next; of shares
                                            * those not yet taken, as n_items says */
    _Alignas(64) _Atomic uint32_t pending; /* items of the step that are not done */
    _Alignas(64) _Atomic uint32_t step;    /* number of the step; what waiting threads watch */
    _Atomic uint32_t n_sleepers;
    _Atomic uint32_t base;
} crumb_walk;

/* What n_items returns for n items, n < CRUMB_WALK_FEW_ITEMS, that threads 0 .. n_takers - 1 of n_threads take. */
static inline uint32_t crumb_walk_items(uint32_t n, int n_takers, int n_threads) {
    return n && n_takers < n_threads ? CRUMB_WALK_FEW | (uint32_t)n_takers * CRUMB_WALK_FEW_ITEMS | n : n;
}

/* The walk must not move in memory afterwards. */
void crumb_walk_init(crumb_walk *walk, crumb_pool *pool, int n_threads, uint32_t n_steps,
                     uint32_t (*n_items)(void *ctx, uint32_t step),
                     void (*run)(void *ctx, uint32_t step, uint32_t item, crumb_walker *walker), void *ctx);
/* Returns when all steps are done. What the caller wrote before is seen by every item, and what items wrote by later
 * steps and by the caller afterwards. */
void crumb_walk_run(crumb_walk *walk);
/* Before the walk's memory goes: waits until no thread looks at it any more. */
void crumb_walk_retire(crumb_walk *walk);

#endif
