/* What the files that record a plan share: plan.c (ops become steps), record_linear.c, record_scratch.c. */
#ifndef CRUMB_CPU_RECORD_H
#define CRUMB_CPU_RECORD_H

#include "cpu/plan.h"

enum { CRUMB_RECORD_MAX_VALUES = 1 << 15 };

typedef struct crumb_recorder {
    crumb_plan *p;
    const crumb_plan_desc *desc;
    bool after_select;
    bool folded[CRUMB_RECORD_MAX_VALUES]; /* values that no memory ever holds: their only reader makes them itself */
    size_t chunk_capacity, n_chunk_bounds;
    uint32_t max_k, max_n_head_kv, max_group;
    size_t attention_floats_per_chunk; /* most (m, l, o) of a row in one chunk of keys */
} crumb_recorder;

/* NULL behind the last op. */
static inline const crumb_op *crumb_record_op(const crumb_recorder *r, size_t i) {
    return i < r->desc->n_ops ? &r->desc->ops[i] : NULL;
}
static inline uint32_t crumb_record_slot(const crumb_recorder *r, crumb_value v) {
    return r->desc->values[v].slot;
}

crumb_step *crumb_record_step(crumb_recorder *r, const crumb_op *op, const crumb_step_kind *kind);

/* Whether op `index`, a norm, or the op behind op `index`, a gate, can be part of the linear step. `norm` is the one
 * folded in before, or NULL. */
bool crumb_record_norm_folds(const crumb_recorder *r, size_t index);
bool crumb_record_gated_folds(const crumb_recorder *r, size_t index, const crumb_op *norm);
/* A linear op's steps: inputs, kernels and chunks. `norm` and `gated` are the ops folded in, or NULL. */
crumb_status crumb_record_linear(crumb_recorder *r, const crumb_op *op, const crumb_op *norm, const crumb_op *gated,
                                 crumb_error *err);

/* All memory of a replay, once all steps are known. */
crumb_status crumb_record_scratch(crumb_recorder *r, crumb_error *err);
crumb_status crumb_record_replay_state(crumb_recorder *r, crumb_error *err);

#endif
