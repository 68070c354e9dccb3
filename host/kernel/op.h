/* What every backend asks of ops and rows: which values an op reads and writes, whether shapes and pointers fit
 * together, whether a batch's rows may be replayed. */
#ifndef CRUMB_KERNEL_OP_H
#define CRUMB_KERNEL_OP_H

#include "host/backend.h"

/* The values that an op reads and writes; returns how many (at most CRUMB_OP_MAX_VALUES). */
enum { CRUMB_OP_MAX_VALUES = 4 };
size_t crumb_op_reads(const crumb_op *op, crumb_value out[CRUMB_OP_MAX_VALUES]);
size_t crumb_op_writes(const crumb_op *op, crumb_value out[CRUMB_OP_MAX_VALUES]);
const char *crumb_op_name(crumb_op_kind kind);

/* Checks the values, shapes and pointers of op `index`; `kv` is what the plan's cache was made with, NULL without. */
crumb_status crumb_op_check(const crumb_plan_desc *desc, const crumb_kv_params *kv, size_t index, crumb_error *err);
/* Fails with ARGUMENT where values of one slot name different shared memory. */
crumb_status crumb_values_check(const crumb_plan_desc *desc, crumb_error *err);
/* Puts "op 3 (linear, layer 1): " before the message. */
crumb_status crumb_op_fail(const crumb_plan_desc *desc, size_t index, crumb_status status, crumb_error *err);
/* Whether nobody reads the value v, made by op `index` or one before it, behind the op after `index`: ops up to that
 * may become one. Shared values others read. */
bool crumb_op_only_next_reads(const crumb_plan_desc *desc, size_t index, crumb_value v);

/* The values that a plan's INPUT ops name, and for how many rows each has been written since the last replay. */
enum { CRUMB_OP_MAX_INPUTS = 4 };
typedef struct crumb_inputs {
    size_t n;
    crumb_value value[CRUMB_OP_MAX_INPUTS];
    uint32_t n_rows[CRUMB_OP_MAX_INPUTS];
} crumb_inputs;
/* Fails with UNSUPPORTED where there are more. */
crumb_status crumb_inputs_find(const crumb_plan_desc *desc, crumb_inputs *out, crumb_error *err);
/* Notes that `value` gets n_rows rows; fails with ARGUMENT when it is no input, or they are not 1 to max_rows. */
crumb_status crumb_inputs_written(crumb_inputs *inputs, crumb_value value, uint32_t n_rows, uint32_t max_rows,
                                  crumb_error *err);
/* A replay of n_rows takes them; fails with ARGUMENT when one has not been written for these. */
crumb_status crumb_inputs_take(crumb_inputs *inputs, uint32_t n_rows, crumb_error *err);

typedef struct crumb_rows_rule {
    uint32_t max_rows, max_outputs;
    uint32_t n_vocab;          /* tokens are below it; 0: the plan embeds none */
    bool has_select;           /* rows may want outputs */
    const crumb_kv_params *kv; /* NULL: the plan has no attention */
    uint32_t *next_position;   /* [kv->n_sequences], scratch */
} crumb_rows_rule;

/* Fails with ARGUMENT, naming the row; *n_outputs: how many rows want an output. */
crumb_status crumb_rows_check(const crumb_rows_rule *rule, const crumb_row *rows, uint32_t n_rows, uint32_t *n_outputs,
                              crumb_error *err);

#endif
