/* Two devices that share each layer's rows while decoding: which part each gets, and whether that pays at all.
 *
 * The part is learned from the times that both take for theirs, by the rule that balances a processor's cores. Whether
 * it pays is found by trying: a few tokens of one device alone, a few split, and the better one stays. Since other
 * programs, heat and a growing context change the answer, the one that does not run is measured again now and then, so
 * seldom that what is lost by it stays below 2% of all time. A split that no longer gains anything leaves by itself.
 *
 * A share is counted in steps, since changing it costs its user something (plans are recorded for rows, keys and values
 * move): 0 .. n_steps, n_steps being all rows on the first device. For each token: crumb_split_next, run,
 * crumb_split_done. Where changes cost something, crumb_split_spent says how much; further ones then wait until all
 * together are below 2% of the time, and until `settle` tokens agree. What the first one will take is told before, so
 * that it waits as well: whoever decodes CRUMB_SPLIT_FORESEEN tokens or more loses at most 3% to what does not pay.
 */
#ifndef CRUMB_SCHEDULER_SPLIT_H
#define CRUMB_SCHEDULER_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CRUMB_SPLIT_STEPS = 32, /* of a share where a change records plans anew: finer ones would gain less than that */
    CRUMB_SPLIT_SETTLE = 4, /* likewise: tokens that agree before the share changes */
    CRUMB_SPLIT_TRIAL_TOKENS = 4, /* of a trial, at a share that has settled, */
    CRUMB_SPLIT_TRIAL_MOST = 10,  /* and in all */
    CRUMB_SPLIT_FORESEEN = 128,   /* tokens that are counted upon when changes are weighed */
    CRUMB_SPLIT_WINDOW = 5,
};

typedef struct crumb_split_params {
    uint32_t n_steps; /* at least 2 */
    uint32_t share;   /* to begin with, as predicted: 1 .. n_steps - 1 */
    uint32_t alone;   /* 0 or n_steps: who runs where it does not pay */
    uint32_t settle;  /* split tokens in a row that ask for another share before this one is left; 0: 1 */
    double change_ns; /* that a change takes, until one has been measured; 0: unknown, the first one is free */
} crumb_split_params;

typedef enum crumb_split_state {
    CRUMB_SPLIT_BASELINE, /* alone, measuring what a split has to beat */
    CRUMB_SPLIT_TRIAL,    /* split, on trial */
    CRUMB_SPLIT_ON,
    CRUMB_SPLIT_OFF, /* alone, until the next trial */
} crumb_split_state;

/* The last times of one way to run. */
typedef struct crumb_split_times {
    double ns[CRUMB_SPLIT_WINDOW];
    uint32_t n; /* in all, since it was cleared */
} crumb_split_times;

/* No pointers; to be copied and thrown away freely. */
typedef struct crumb_split {
    crumb_split_params params;
    crumb_split_state state;
    uint32_t share; /* in use whenever split */
    double ideal;   /* 0..1: the share that the devices' speeds ask for, smoothed */
    crumb_split_times alone, both;
    uint32_t n_in_state, n_since_check, wait;
    bool waits;               /* off, since another share is wanted and still too dear */
    bool checking;            /* the next token runs alone, though the split is on */
    double alone_at_trial_ns; /* what the last trial was compared with */
    double elapsed_ns, lost_ns;
    uint32_t n_changes;          /* of the share in use */
    uint32_t n_wanting;          /* tokens in a row that ask for another one */
    double spent_ns, dearest_ns; /* of the changes: all of them, and the one that cost the most */
} crumb_split;

void crumb_split_init(crumb_split *s, const crumb_split_params *params);

/* The share for the next token: 0, n_steps, or between. The same until crumb_split_done. */
uint32_t crumb_split_next(const crumb_split *s);

/* The times of that token: what each device took for its part (0 without a part), and what the token took in all. Times
 * that are not above 0 teach nothing. */
void crumb_split_done(crumb_split *s, double first_ns, double second_ns, double wall_ns);

/* A change of the share, or going over to it, has cost so much, which is in no token's time. */
void crumb_split_spent(crumb_split *s, double ns);

bool crumb_split_is_on(const crumb_split *s);
/* "split 0.62 of the rows: 34.1 ms a token, 51.0 ms alone" */
void crumb_split_explain(const crumb_split *s, char *out, size_t size);

#endif
