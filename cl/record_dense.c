/* Linear ops with dense weights: on matrix instructions, through CLBlast, or on plain ones. */
#include "cl/record.h"

#include "host/base/checked.h"

#include <stdio.h>

enum { WG = 128, DENSE_ROWS = 16 };

const crumb_cl_kernel *crumb_cl_dense_kernel(const crumb_cl_recorder *r, const crumb_matrix *w) {
    return w->bits ? NULL : crumb_cl_dense_select(w, crumb_cl_most_rows(r), &r->p->device->ladder);
}

static crumb_cl_time time_of(const crumb_cl_recorder *r) {
    return r->after_select ? CRUMB_CL_TIME_HEAD : CRUMB_CL_TIME_LINEAR;
}

/* Activations as `kernel` reads them. */
static crumb_status record_split(crumb_cl_recorder *r, const crumb_op *op, const crumb_op *norm,
                                 const crumb_cl_kernel *kernel, uint32_t k, crumb_error *err) {
    char options[CRUMB_CL_OPTIONS_MAX];
    crumb_cl_builder b;
    const crumb_cl_kernel *split = crumb_cl_row_of(r, CRUMB_CL_SPLIT);
    crumb_cl_split_options(kernel, norm != NULL, options);
    *r->quantized = '\0'; /* it writes where codes and scales were */
    CRUMB_TRY(crumb_cl_launch_begin(r, split, options, &b, err));
    b.launch->time = time_of(r);
    crumb_cl_arg_u32(&b, r->after_select);
    crumb_cl_arg_u32(&b, k);
    crumb_cl_arg_value(&b, norm ? norm->norm.x : op->linear.x);
    crumb_cl_arg_weights(&b, norm ? norm->norm.weight : NULL, k * sizeof(float));
    crumb_cl_arg_f32(&b, norm ? norm->norm.eps : 0);
    crumb_cl_arg_memory(&b, &r->p->q);
    crumb_cl_arg_memory(&b, &r->p->sx);
    return crumb_cl_launch_end(&b, 1, split->local_size, 0, 1);
}

/* What both kernels of dense weights take last. */
static void arg_dense(crumb_cl_builder *b, const crumb_op *op, const crumb_linear_part *part) {
    const crumb_matrix rows = crumb_cl_part_matrix(part);
    crumb_cl_arg_value(b, op->linear.add);
    crumb_cl_arg_weights(b, rows.codes, crumb_matrix_codes_bytes(&rows));
    crumb_cl_arg_weights(b, part->bias, part->w->m * sizeof(float));
    crumb_cl_arg_value(b, part->out);
    crumb_cl_arg_u32(b, part->m0);
    crumb_cl_arg_u32(b, part->m1);
    crumb_cl_arg_u32(b, b->r->desc->values[part->out].width);
    crumb_cl_arg_f32(b, part->out_scale);
}

/* Dense weights on matrix instructions; the activations are split. */
static crumb_status record_dense_matrix(crumb_cl_recorder *r, const crumb_op *op, const crumb_linear_part *part,
                                        const crumb_cl_kernel *kernel, crumb_error *err) {
    char options[CRUMB_CL_OPTIONS_MAX];
    crumb_cl_builder b;
    snprintf(options, sizeof options, "%s%s", kernel->options, crumb_cl_results_option(r, part->out));
    CRUMB_TRY(crumb_cl_launch_begin(r, kernel, options, &b, err));
    b.launch->time = time_of(r);
    crumb_cl_arg_u32(&b, r->after_select);
    crumb_cl_arg_u32(&b, part->w->k);
    crumb_cl_arg_memory(&b, &r->p->q);
    crumb_cl_arg_memory(&b, &r->p->sx);
    arg_dense(&b, op, part);
    return crumb_cl_launch_end(&b, crumb_div_up(part->m1 - part->m0, kernel->rows), kernel->local_size, 1,
                               kernel->tokens);
}

/* The rule of blas.h. */
static bool suits_blas(const crumb_cl_recorder *r, const crumb_op *op, const crumb_linear_part *part) {
    const crumb_plan *p = r->p;
    return p->device->blas && part->w->type == CRUMB_TYPE_F32 && !part->bias &&
           crumb_cl_most_rows(r) >= CRUMB_CL_BLAS_MIN_ROWS &&
           (op->linear.add == CRUMB_NO_VALUE || p->values[op->linear.add].owner == p->values[part->out].owner);
}

static crumb_status record_sgemm(crumb_cl_recorder *r, const crumb_op *op, const crumb_linear_part *part,
                                 crumb_error *err) {
    crumb_plan *p = r->p;
    crumb_cl_memory w = {0};
    CRUMB_TRY(crumb_cl_weights_find(p->device, &p->copies, part->w->codes, crumb_matrix_codes_bytes(part->w), &w, err));
    const crumb_cl_sgemm sgemm = {.x = crumb_cl_value_memory(p, op->linear.x)->mem,
                                  .w = w.mem,
                                  .y = crumb_cl_value_memory(p, part->out)->mem,
                                  .k = part->w->k,
                                  .m0 = part->m0,
                                  .m1 = part->m1,
                                  .y_width = r->desc->values[part->out].width,
                                  .scale = part->out_scale,
                                  .add = op->linear.add != CRUMB_NO_VALUE};
    return crumb_cl_launch_sgemm(r, &sgemm, time_of(r), err);
}

static crumb_status record_floats(crumb_cl_recorder *r, const crumb_op *op, const crumb_linear_part *part,
                                  crumb_error *err) {
    char matrix[CRUMB_CL_OPTIONS_MAX], options[CRUMB_CL_OPTIONS_MAX + 80];
    crumb_cl_builder b;
    const crumb_matrix *w = part->w;
    const crumb_cl_kernel *kernel = crumb_cl_floats_select(crumb_cl_most_rows(r), r->p->device->ladder.bf16);
    crumb_cl_matrix_options(w, matrix);
    snprintf(options, sizeof options, "%s %s%s", matrix, kernel->options, crumb_cl_results_option(r, part->out));
    CRUMB_TRY(crumb_cl_launch_begin(r, kernel, options, &b, err));
    b.launch->time = time_of(r);
    crumb_cl_arg_u32(&b, r->after_select);
    crumb_cl_arg_u32(&b, w->k);
    crumb_cl_arg_value(&b, op->linear.x);
    arg_dense(&b, op, part);
    return crumb_cl_launch_end(&b, crumb_div_up(part->m1 - part->m0, DENSE_ROWS), WG, 1, kernel->tokens);
}

crumb_status crumb_cl_record_dense(crumb_cl_recorder *r, const crumb_op *op, const crumb_linear_part *part,
                                   const crumb_op *norm, uint8_t *split, crumb_error *err) {
    const crumb_cl_kernel *kernel = crumb_cl_dense_kernel(r, part->w);
    if (!kernel) return suits_blas(r, op, part) ? record_sgemm(r, op, part, err) : record_floats(r, op, part, err);
    if (kernel->type != *split) CRUMB_TRY(record_split(r, op, norm, kernel, part->w->k, err));
    *split = kernel->type;
    return record_dense_matrix(r, op, part, kernel, err);
}
