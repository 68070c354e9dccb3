/* The mini model (mini_model.h) on a device of any backend, for tests of backends. A call of the backend that fails
 * fails the test, with the backend's message. */
#ifndef CRUMB_TEST_RIG_H
#define CRUMB_TEST_RIG_H

#include "tests/kernels/mini_model.h"

enum {
    RIG_TOKENS = 150,
    RIG_CTX = 160,
    RIG_SEQUENCES = 3,
    RIG_LOGITS = RIG_TOKENS * MINI_VOCAB
}; /* > a chunk of keys */

typedef struct rig_params {
    const crumb_backend *backend;
    const char *target; /* NULL: the device's best */
    crumb_act_quant act;
    crumb_kv_type kv;
    int n_threads;
    uint32_t max_rows;   /* of the plan, and its outputs */
    bool f32_v;          /* attention's values come of f32 weights, not of bf16 */
    const char *balance; /* of crumb_device_params */
} rig_params;

typedef struct rig {
    const crumb_backend *backend;
    mini_model model;
    crumb_device *device;
    crumb_kv_cache *kv;
    crumb_plan *plan;
} rig;

extern crumb_error rig_error; /* of the call that failed last */
void rig_ok(crumb_status status);

/* The backend `name`; false, with the reason on stderr: there is none, or it has no such device. That fails a program.
 */
bool rig_find_device(const char *name, const char *target, const crumb_backend **out);

void rig_open(rig *r, const rig_params *params);
void rig_close(rig *r);
crumb_plan_desc rig_describe(const rig *r, uint32_t max_rows);

int32_t rig_token(uint32_t sequence, uint32_t position);
/* logits: [wanted rows][MINI_VOCAB] */
void rig_replay(rig *r, const crumb_row *rows, uint32_t n, float *logits);
/* RIG_TOKENS tokens of sequence 1 in batches, on a rig of their own. */
void rig_feed(const rig_params *params, uint32_t batch, float logits[RIG_LOGITS]);

#endif
