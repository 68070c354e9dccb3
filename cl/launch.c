#include "cl/record.h"

#include "cl/program.h"
#include "host/base/checked.h"

#include <stdio.h>
#include <stdlib.h>

/* Room for one more, which is not counted yet. */
static crumb_status next_launch(crumb_cl_recorder *r, const char *name, crumb_cl_launch **out, crumb_error *err) {
    crumb_plan *p = r->p;
    if (p->n_launches == p->launch_capacity) {
        size_t capacity = 2 * p->launch_capacity + 64;
        crumb_cl_launch *grown = realloc(p->launches, capacity * sizeof *grown);
        if (!grown) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a plan");
        p->launches = grown;
        p->launch_capacity = capacity;
    }
    *out = &p->launches[p->n_launches];
    **out = (crumb_cl_launch){.name = name, .on_outputs = r->after_select, .time = CRUMB_CL_TIME_OTHER};
    return CRUMB_OK;
}

crumb_status crumb_cl_launch_begin(crumb_cl_recorder *r, const crumb_cl_kernel *kernel, const char *options,
                                   crumb_cl_builder *out, crumb_error *err) {
    crumb_plan *p = r->p;
    crumb_cl_launch *launch;
    CRUMB_TRY(next_launch(r, kernel->name, &launch, err));
    CRUMB_TRY(crumb_cl_kernel_create(p->device, kernel->file, options, kernel->entry, &launch->call, err));
    p->n_launches++;
    *out = (crumb_cl_builder){.r = r, .launch = launch, .name = kernel->name, .err = err};
    crumb_cl_arg_memory(out, &p->batch);
    return CRUMB_OK;
}

/* CLBlast builds its programs when they are first used, which must not be a replay. */
crumb_status crumb_cl_launch_sgemm(crumb_cl_recorder *r, const crumb_cl_sgemm *sgemm, crumb_cl_time time,
                                   crumb_error *err) {
    crumb_plan *p = r->p;
    crumb_cl_launch *launch;
    CRUMB_TRY(next_launch(r, "clblast_sgemm", &launch, err));
    launch->sgemm = *sgemm;
    launch->time = time;
    p->n_launches++;
    crumb_cl_code code = crumb_cl_blas_sgemm(p->device->blas, sgemm, crumb_cl_most_rows(r), p->device->queue, NULL);
    if (code == CRUMB_CL_OK) code = crumb_cl_queue_finish(p->device, p->device->queue);
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, p->device->label, "CLBlast's Sgemm", code);
}

static void note(crumb_cl_builder *b, crumb_cl_code code) {
    if (code != CRUMB_CL_OK && b->code == CRUMB_CL_OK) {
        b->code = code;
        b->refused = b->n_args;
    }
    b->n_args++;
}

static void arg(crumb_cl_builder *b, size_t size, const void *value) {
    note(b, crumb_cl_call_set(b->launch->call, b->n_args, size, value));
}

void crumb_cl_arg_u32(crumb_cl_builder *b, uint32_t value) {
    arg(b, sizeof value, &value);
}
void crumb_cl_arg_i32(crumb_cl_builder *b, int32_t value) {
    arg(b, sizeof value, &value);
}
void crumb_cl_arg_u64(crumb_cl_builder *b, uint64_t value) {
    arg(b, sizeof value, &value);
}
void crumb_cl_arg_f32(crumb_cl_builder *b, float value) {
    arg(b, sizeof value, &value);
}
void crumb_cl_arg_local(crumb_cl_builder *b, uint64_t n_bytes) {
    arg(b, (size_t)n_bytes, NULL);
}
void crumb_cl_arg_null(crumb_cl_builder *b) {
    crumb_cl_arg_memory(b, NULL);
}
void crumb_cl_arg_memory(crumb_cl_builder *b, const crumb_cl_memory *memory) {
    note(b, crumb_cl_call_set_memory(b->r->p->device, b->launch->call, b->n_args, memory));
}
void crumb_cl_arg_value(crumb_cl_builder *b, crumb_value v) {
    if (v == CRUMB_NO_VALUE)
        crumb_cl_arg_null(b);
    else
        crumb_cl_arg_memory(b, crumb_cl_value_memory(b->r->p, v));
}

void crumb_cl_arg_weights(crumb_cl_builder *b, const void *host, uint64_t n_bytes) {
    crumb_plan *p = b->r->p;
    crumb_cl_memory memory = {0};
    if (b->status == CRUMB_OK) b->status = crumb_cl_weights_find(p->device, &p->copies, host, n_bytes, &memory, b->err);
    crumb_cl_arg_memory(b, &memory);
}

void crumb_cl_arg_matrix(crumb_cl_builder *b, const crumb_matrix *w) {
    const crumb_matrix_bytes n = crumb_matrix_get_bytes(w);
    crumb_cl_arg_weights(b, w->codes, n.codes);
    crumb_cl_arg_weights(b, n.scales ? w->scales : NULL, n.scales);
    crumb_cl_arg_weights(b, n.mins ? w->mins : NULL, n.mins);
    crumb_cl_arg_weights(b, w->supers, n.supers);
    crumb_cl_arg_weights(b, w->super_mins, n.super_mins);
}

crumb_matrix crumb_cl_part_matrix(const crumb_linear_part *part) {
    return crumb_matrix_rows(part->w, 0, part->m1);
}

void crumb_cl_arg_codebook(crumb_cl_builder *b, const crumb_matrix *w) {
    crumb_cl_arg_weights(b, w->codebook, CRUMB_CODEBOOK_ENTRIES);
}

crumb_status crumb_cl_launch_end(crumb_cl_builder *b, size_t groups, size_t local, uint8_t row_dim, uint32_t tokens) {
    crumb_cl_launch *l = b->launch;
    CRUMB_TRY(b->status);
    if (b->code != CRUMB_CL_OK)
        return crumb_fail(b->err, CRUMB_ERR_DEVICE, "%s: argument %u of kernel %s is refused: %s",
                          b->r->p->device->label, b->refused, b->name, crumb_cl_error_name(b->code));
    size_t row_groups = row_dim == CRUMB_CL_NO_DIM ? 1 : crumb_div_up(crumb_cl_most_rows(b->r), tokens);
    l->row_dim = row_dim;
    l->tokens = tokens;
    const int group_dim = row_dim == 0;
    l->n_dims = row_dim == CRUMB_CL_NO_DIM ? 1 : row_dim == 2 ? 3 : 2;
    for (int i = 0; i < 3; i++) {
        l->local[i] = i == 0 ? local : 1;
        l->groups[i] = i == row_dim ? row_groups : i == group_dim ? groups : 1;
    }
    return CRUMB_OK;
}
