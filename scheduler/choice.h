/* Which way an op is divided among cores, by measurement: split in proportion to what the cores are known to do, or in
 * chunks that they take one after the other. Neither is always the faster. A split costs nothing and leaves each core
 * one long stream; chunks cost an atomic operation each, but a core that the system takes away in the middle of an op
 * holds up less.
 *
 * Ops begin with the split. Now and then both ways take turns for some ops, and the faster one, by a margin, is kept.
 * How many ops that takes is seen from the times: until the means differ by more than their noise explains, and at most
 * so many that it does not matter. One op that an interrupt has held up for long decides nothing, since it makes the
 * noise as large as the difference. One crumb_choice is for ops that are alike: one kernel, one shape. A round is one
 * pass over all ops (a token).
 */
#ifndef CRUMB_SCHEDULER_CHOICE_H
#define CRUMB_SCHEDULER_CHOICE_H

#include "host/base/error.h"

typedef enum crumb_way { CRUMB_WAY_CHUNKS, CRUMB_WAY_SPLIT } crumb_way;

/* Both ways, and the one that is measured to be faster. */
typedef enum crumb_way_wanted { CRUMB_WAY_MEASURED, CRUMB_WAY_ONLY_CHUNKS, CRUMB_WAY_ONLY_SPLIT } crumb_way_wanted;

/* "auto": measured; "chunks", "split"; NULL: auto. */
bool crumb_way_wanted_parse(const char *text, crumb_way_wanted *out);

/* Ops that went one way, and their times. */
typedef struct crumb_way_times {
    uint32_t n;
    double sum, squares;
} crumb_way_times;

typedef struct crumb_choice {
    crumb_way way;             /* outside of trials */
    bool fixed, trying;        /* no trials at all; a trial is under way */
    uint32_t n_rounds, period; /* rounds until the next trial; between two trials */
    uint32_t n_next;           /* ops of this trial, by which the ways take turns */
    uint32_t n_skipped;        /* ops of this trial in which ratios were still learned */
    crumb_way_times of[2];     /* the others of this trial, by way */
    double least;              /* the shortest of them */
    double last[2];            /* means of the trial before, for people; 0: there was none */
} crumb_choice;

void crumb_choice_init(crumb_choice *c, crumb_way_wanted wanted);
/* Before each round. */
void crumb_choice_round(crumb_choice *c);
/* The way for the next op. */
crumb_way crumb_choice_next(crumb_choice *c);
/* How long an op took that went this way, in any unit, per row of activations or whatever it is proportional to. While
 * c->trying; at other times nobody needs to look at a clock. */
void crumb_choice_measured(crumb_choice *c, crumb_way way, double time);

#endif
