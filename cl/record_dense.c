/* Linear ops with dense weights: on matrix instructions, through CLBlast, or on plain ones. */
#include "cl/record.h"

#include "host/base/checked.h"

#include <stdio.h>

enum { DENSE_ROWS = 16 };

/* The rule of blas.h. */
static bool suits_blas(const crumb_cl_recorder *r, const crumb_op *op, const crumb_linear_part *part) {
    const crumb_plan *p = r->p;
    return p->device->blas && part->w->type == CRUMB_TYPE_F32 && !part->bias &&
           crumb_cl_most_rows(r) >= CRUMB_CL_BLAS_MIN_ROWS &&
           (op->linear.add == CRUMB_NO_VALUE || p->values[op->linear.add].owner == p->values[part->out].owner);
}

const crumb_cl_kernel *crumb_cl_dense_kernel(const crumb_cl_recorder *r, const crumb_op *op,
                                             const crumb_linear_part *part) {
    const crumb_cl_target *ladder = &r->p->device->ladder;
    const crumb_cl_kernel *kernel = crumb_cl_dense_select(part->w, crumb_cl_most_rows(r), ladder);
    if (kernel) return kernel;
    return suits_blas(r, op, part) ? NULL : crumb_cl_floats_select(crumb_cl_most_rows(r), ladder->bf16);
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

/* x, norm, eps, terms, down. */
static void arg_activations(crumb_cl_builder *b, const crumb_op *op, const crumb_op *norm,
                            const crumb_cl_kernel *kernel) {
    const crumb_plan *p = b->r->p;
    const bool owns = crumb_cl_dense_owns(kernel);
    crumb_cl_arg_value(b, !owns ? CRUMB_NO_VALUE : norm ? norm->norm.x : op->linear.x);
    crumb_cl_arg_weights(b, owns && norm ? norm->norm.weight : NULL, op->linear.part[0].w->k * sizeof(float));
    crumb_cl_arg_f32(b, norm ? norm->norm.eps : 0);
    if (kernel->op != CRUMB_CL_DENSE_MATRIX) return;
    crumb_cl_arg_memory(b, owns ? NULL : &p->q);
    crumb_cl_arg_memory(b, owns ? NULL : &p->sx);
}

static void arg_part(crumb_cl_builder *b, const crumb_linear_part *part, crumb_value out) {
    const crumb_matrix rows = crumb_cl_part_matrix(part);
    crumb_cl_arg_weights(b, rows.codes, crumb_matrix_codes_bytes(&rows));
    crumb_cl_arg_weights(b, part->bias, part->w->m * sizeof(float));
    crumb_cl_arg_value(b, out);
    crumb_cl_arg_u32(b, part->m0);
    crumb_cl_arg_u32(b, part->m1);
    crumb_cl_arg_u32(b, b->r->desc->values[out].width);
    crumb_cl_arg_f32(b, part->out_scale);
}

static crumb_status record_parts(crumb_cl_recorder *r, const crumb_op *op, uint32_t first, const crumb_cl_dense *use,
                                 const crumb_cl_kernel *kernel, const crumb_op *norm, const crumb_op *gated,
                                 crumb_error *err) {
    const crumb_linear_part *parts = &op->linear.part[first];
    const uint32_t rows = kernel->op == CRUMB_CL_DENSE_MATRIX ? kernel->rows : DENSE_ROWS;
    char of_kernel[CRUMB_CL_OPTIONS_MAX], options[CRUMB_CL_OPTIONS_MAX + 32];
    crumb_cl_builder b;
    size_t groups = 0;
    crumb_cl_dense_options(kernel, use, of_kernel);
    snprintf(options, sizeof options, "%s%s", of_kernel,
             crumb_cl_results_option(r, gated ? gated->gated.out : parts->out));
    CRUMB_TRY(crumb_cl_launch_begin(r, kernel, options, &b, err));
    b.launch->time = time_of(r);
    crumb_cl_arg_u32(&b, r->after_select);
    crumb_cl_arg_u32(&b, parts->w->k);
    arg_activations(&b, op, norm, kernel);
    crumb_cl_arg_value(&b, op->linear.add);
    for (uint32_t i = 0; i < use->n_parts; i++) {
        arg_part(&b, &parts[i], gated ? gated->gated.out : parts[i].out);
        if (!gated || i == 0) groups += crumb_div_up(parts[i].m1 - parts[i].m0, rows);
    }
    return crumb_cl_launch_end(&b, groups, kernel->local_size, 0, kernel->tokens);
}

crumb_status crumb_cl_record_dense(crumb_cl_recorder *r, const crumb_op *op, uint32_t first, uint32_t n,
                                   const crumb_op *made, const crumb_op *gated, uint8_t *split, crumb_error *err) {
    const crumb_linear_part *part = &op->linear.part[first];
    const crumb_cl_kernel *kernel = crumb_cl_dense_kernel(r, op, part);
    if (!kernel) return record_sgemm(r, op, part, err);
    const crumb_cl_dense use = {
        .type = part->w->type, .n_parts = n, .gated = gated ? crumb_cl_fn_option(gated) : 0, .norm = made != NULL};
    if (!crumb_cl_dense_owns(kernel) && kernel->type != *split) {
        CRUMB_TRY(record_split(r, op, made, kernel, part->w->k, err));
        *split = kernel->type;
    }
    return record_parts(r, op, first, &use, kernel, made, gated, err);
}
