/* A model on the first GPU and on the CPU backend, and what of it must agree: what the programs of this folder that run
 * whole models share. Calls that fail end the test. */
#ifndef CRUMB_TESTS_CL_MODEL_PAIR_H
#define CRUMB_TESTS_CL_MODEL_PAIR_H

#include "host/crumb.h"
#include "tests/support/compare_tokens.h"

extern crumb_error pair_err;
#define PAIR_OK(call)                                                                                                  \
    do {                                                                                                               \
        if ((call) != CRUMB_OK) fail_msg("%s", pair_err.message);                                                      \
    } while (0)

extern char pair_target[32]; /* as in --target: "cl:portable", "ze:dpas+exact": a backend of two letters, and a rung */
/* Names of kernels on matrix instructions in what plans log: the rungs that have them must use them. */
extern size_t pair_n_matrix;
/* Also called with what models log; NULL: nothing. */
extern void (*pair_listen)(const char *message);

void pair_set_target(const char *target);

/* How near the device must come to the CPU: by what its plans have run since pair_begin, which stands before sessions.
 */
typedef struct pair_bounds {
    token_rule rule;
    double max_nmse; /* of all logits, as a part of their power */
} pair_bounds;
void pair_begin(void);
const pair_bounds *pair_get_bounds(void);

/* Prints what the device is; false where there is none with that target, or it computes wrongly, for the reason on
 * stderr. That fails a program. */
bool pair_find_device(void);

const char *pair_place(void); /* CRUMB_PLACE, or NULL */
double pair_split(void);      /* CRUMB_TEST_SPLIT, or 0 */
/* path: NULL is the embedded model; device: "cpu" or "gpu0". NULL where its layers cannot be divided, as is asked for.
 */
crumb_model *pair_open(const char *path, const char *device);
crumb_session *pair_session(crumb_model *model, crumb_activation activation, crumb_kv_type kv, uint32_t n_ctx,
                            uint32_t n_batch);

size_t pair_equal_bits(const float *a, const float *b, size_t n);
/* A prompt, then decoding: at each step the CPU's best token is fed to both. */
bool pair_compare_prompt(const char *name, crumb_model *cpu, crumb_model *gpu, crumb_kv_type kv, size_t n_prompt,
                         size_t n_decode, uint32_t n_batch);

#endif
