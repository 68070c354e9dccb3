/* What the files that record a plan share: record.c (values, memory, order), launch.c (one kernel and its arguments),
 * record_ops.c, record_linear.c and record_dense.c (which kernels an op becomes). */
#ifndef CRUMB_CL_RECORD_H
#define CRUMB_CL_RECORD_H

#include "cl/plan.h"
#include "cl/registry.h"

/* Memory that a plan is to have. */
typedef struct crumb_cl_wish {
    uint64_t n_bytes;
    const char *what;
    crumb_cl_memory *out;
} crumb_cl_wish;

typedef struct crumb_cl_recorder {
    crumb_plan *p;
    const crumb_plan_desc *desc;
    bool after_select;
    crumb_cl_wish *wishes; /* until they are granted */
    size_t n_wishes;
    uint64_t wished_bytes;
    /* The options with which the plan's activations were quantized last, for the ops that are recorded together: they
     * read one value, so the same options make the same codes. Empty: none were. */
    char quantized[CRUMB_CL_OPTIONS_MAX];
    const uint32_t *quantized_order; /* of columns, where these have ORDER */
} crumb_cl_recorder;

/* A launch under construction: begin, of a row with all of its options, then its arguments in order, then end, which
 * names the kernel and the argument that was refused. */
typedef struct crumb_cl_builder {
    crumb_cl_recorder *r;
    crumb_cl_launch *launch;
    const char *name;
    uint32_t n_args;
    crumb_cl_code code; /* of the first argument that was refused */
    uint32_t refused;
    crumb_status status; /* of finding weights */
    crumb_error *err;
} crumb_cl_builder;

crumb_status crumb_cl_launch_begin(crumb_cl_recorder *r, const crumb_cl_kernel *kernel, const char *options,
                                   crumb_cl_builder *out, crumb_error *err);
void crumb_cl_arg_u32(crumb_cl_builder *b, uint32_t value);
void crumb_cl_arg_i32(crumb_cl_builder *b, int32_t value);
void crumb_cl_arg_u64(crumb_cl_builder *b, uint64_t value);
void crumb_cl_arg_f32(crumb_cl_builder *b, float value);
void crumb_cl_arg_local(crumb_cl_builder *b, uint64_t n_bytes);
void crumb_cl_arg_null(crumb_cl_builder *b);
void crumb_cl_arg_memory(crumb_cl_builder *b, const crumb_cl_memory *memory); /* NULL: null */
void crumb_cl_arg_value(crumb_cl_builder *b, crumb_value v);                  /* CRUMB_NO_VALUE: null */
void crumb_cl_arg_weights(crumb_cl_builder *b, const void *host, uint64_t n_bytes);
/* codes, scales, mins, supers, super_mins of a matrix. */
void crumb_cl_arg_matrix(crumb_cl_builder *b, const crumb_matrix *w);
/* The rows of a part's matrix up to the last that it computes: all that the device needs to have. */
crumb_matrix crumb_cl_part_matrix(const crumb_linear_part *part);
void crumb_cl_arg_codebook(crumb_cl_builder *b, const crumb_matrix *w);
/* One dimension for rows (CRUMB_CL_NO_DIM: none), of which a work-group takes `tokens`, and `groups` in dimension 0, or
 * in 1 where 0 is the rows'. Local size along dimension 0. */
crumb_status crumb_cl_launch_end(crumb_cl_builder *b, size_t groups, size_t local, uint8_t row_dim, uint32_t tokens);

/* A launch of CLBlast's. */
crumb_status crumb_cl_launch_sgemm(crumb_cl_recorder *r, const crumb_cl_sgemm *sgemm, crumb_cl_time time,
                                   crumb_error *err);

/* The row of an op that has one variant only, for this device's values. */
static inline const crumb_cl_kernel *crumb_cl_row_of(const crumb_cl_recorder *r, crumb_cl_op op) {
    return crumb_cl_kernel_of(op, r->p->device->ladder.bf16);
}

/* What a row's options end with where it writes `out`. */
static inline const char *crumb_cl_results_option(const crumb_cl_recorder *r, crumb_value out) {
    return r->p->device->ladder.bf16 && r->p->values[out].item_bytes == 4 ? CRUMB_CL_F32_RESULTS : "";
}

/* FN and GATED of the kernels. */
static inline uint32_t crumb_cl_fn_option(const crumb_op *gated) {
    return gated->gated.fn == CRUMB_ACT_FN_SILU ? 1 : 2;
}

/* Rows that a launch now works on at most. */
static inline uint32_t crumb_cl_most_rows(const crumb_cl_recorder *r) {
    return r->after_select ? r->p->max_outputs : r->p->max_rows;
}

crumb_status crumb_cl_record_embed(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err);
crumb_status crumb_cl_record_norm(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err);
crumb_status crumb_cl_record_gated(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err);
crumb_status crumb_cl_record_select(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err);
crumb_status crumb_cl_record_gather(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err);
crumb_status crumb_cl_record_place(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err);
crumb_status crumb_cl_record_top(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err);
/* Bytes of keys that one row's launches hand on, in each of two places that take turns. */
uint64_t crumb_cl_top_row_bytes(const crumb_plan_desc *desc, const crumb_op *op);
/* What one launch does with queries and keys: norms their heads, rotates, stores for attention. Each op may be NULL,
 * but for one of `rope` and `attention`; norms need `rope`. */
typedef struct crumb_cl_turn {
    const crumb_op *q_norm, *k_norm, *rope, *attention;
} crumb_cl_turn;
crumb_status crumb_cl_record_rope_store(crumb_cl_recorder *r, const crumb_cl_turn *turn, crumb_error *err);
crumb_status crumb_cl_record_attention(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err);

/* What is computed where a linear op's activations are quantized, each an op before it or NULL: the norm or gate, and
 * the order of columns behind that, or behind a value. Both NULL: the op reads its value. */
typedef struct crumb_cl_source {
    const crumb_op *made, *gather;
} crumb_cl_source;
/* How many ops right behind op `index`, a norm, have it as their part: linear ops that read it, more than one where
 * q/k/v or gate/up differ in what their activations become, and orders of its columns with the linear ops that read
 * those. 0: the norm is a launch. */
size_t crumb_cl_norm_folds(const crumb_cl_recorder *r, size_t index);
/* How many linear ops right behind op `index`, a gather, read it, and each has it as its part. `norm`: the one before
 * that is folded too, or NULL. 0: the gather is a launch. */
size_t crumb_cl_gather_folds(const crumb_cl_recorder *r, size_t index, const crumb_op *norm);
/* Whether op `index`, linear, can be part of the gate behind it. */
bool crumb_cl_gated_folds(const crumb_cl_recorder *r, size_t index);
/* Whether op `index`, a gate, becomes part of the launch that quantizes for the linear op behind it. Fails only where
 * what has been tuned cannot be read. */
crumb_status crumb_cl_gate_is_quantized(const crumb_cl_recorder *r, size_t index, bool *out, crumb_error *err);
/* `from`, and `gated`, the gate behind it, or NULL, are the ops folded in. Behind a gate or a gather all parts are
 * low-bit weights whose activations are quantized. */
crumb_status crumb_cl_record_linear(crumb_cl_recorder *r, const crumb_op *op, const crumb_cl_source *from,
                                    const crumb_op *gated, crumb_error *err);
/* The kernel for dense weights; NULL: CLBlast multiplies with them. */
const crumb_cl_kernel *crumb_cl_dense_kernel(const crumb_cl_recorder *r, const crumb_op *op,
                                             const crumb_linear_part *part);
/* Parts of `op` [first, first + n), dense ones that have one kernel; `made`, a norm before it, and `gated`, the gate
 * behind it, are the ops folded in, or NULL. *split is the type of weights for which the op's activations lie split; 0:
 * they do not. */
crumb_status crumb_cl_record_dense(crumb_cl_recorder *r, const crumb_op *op, uint32_t first, uint32_t n,
                                   const crumb_op *made, const crumb_op *gated, uint8_t *split, crumb_error *err);
/* Bytes that prepared activations of a linear op's rows take, at most: codes or terms, scales, sums. */
typedef struct crumb_cl_prepared_bytes {
    uint64_t q, sx, qsum;
} crumb_cl_prepared_bytes;
void crumb_cl_linear_bytes(const crumb_cl_recorder *r, const crumb_op *op, crumb_cl_prepared_bytes *most);

#endif
