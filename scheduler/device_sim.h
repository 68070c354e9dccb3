/* Two virtual devices with a virtual clock, that decode token after token under the real code of split.h: for tests,
 * and for `crumb plan`. Nothing here measures time. */
#ifndef CRUMB_SCHEDULER_DEVICE_SIM_H
#define CRUMB_SCHEDULER_DEVICE_SIM_H

#include "scheduler/split.h"

typedef struct crumb_sim_device {
    double gb_s;     /* that it reads at most */
    double fixed_ns; /* of a token, whatever its part: launches */
    double noise;    /* standard deviation of its times, as a part of them */
    /* From token `from` on (until `until`) it is slower: heat, or a neighbour that takes a part of it. */
    double slower; /* times as slow: 1 or more; 0: never */
    uint32_t from, until;
} crumb_sim_device;

typedef struct crumb_sim_machine {
    crumb_sim_device device[2];
    double shared_gb_s; /* what both together read at most; 0: each has memory of its own */
    double token_bytes; /* weights and KV that a token reads */
    double exchange_ns; /* of a split token, all of them together */
    double change_ns;   /* of changing the share; plans for the first one are there */
    uint64_t seed;      /* of the noise */
} crumb_sim_machine;

typedef struct crumb_sim_token {
    double first_ns, second_ns, wall_ns;
} crumb_sim_token;

/* One token with `share` of its bytes read by the first device. *state is the noise's: begin with the seed. */
crumb_sim_token crumb_sim_run_token(const crumb_sim_machine *m, uint32_t token, double share, uint64_t *state);

typedef struct crumb_sim_result {
    double total_ns;
    double first_ns, second_ns; /* what all tokens would have taken on either device alone, with the same noise */
    uint32_t n_split;           /* tokens that ran split */
    uint32_t n_changes;         /* of the share */
    double changes_ns;          /* of total_ns: what these took */
    bool on;                    /* split at the end */
    double share;               /* then, or of the last trial */
} crumb_sim_result;

/* Decodes n_tokens. `each` (may be NULL) gets every token's share in steps and its time. */
typedef void crumb_sim_token_fn(void *user, uint32_t token, uint32_t share, const crumb_sim_token *t);
void crumb_sim_decode(const crumb_sim_machine *m, const crumb_split_params *params, uint32_t n_tokens,
                      crumb_sim_token_fn *each, void *user, crumb_sim_result *out);
/* The same with a share, 0 to 1, that stays whether it pays or not. */
void crumb_sim_decode_fixed(const crumb_sim_machine *m, double share, uint32_t n_tokens, crumb_sim_result *out);

#endif
