#include "cl/solo.h"

#include "cl/plan.h"
#include "cl/probe.h"
#include "cl/program.h"
#include "host/base/cache.h"
#include "host/base/checked.h"
#include "host/base/half.h"
#include "host/base/memory.h"

#include <stdio.h>
#include <stdlib.h>

enum { QUANTIZE_WG = 128 };

/* ---- memory -------------------------------------------------------------------------------------------------- */

static crumb_status copy(crumb_cl_solo *s, const void *from, uint64_t n_bytes, crumb_cl_memory *out, crumb_error *err) {
    if (!from || n_bytes == 0) return CRUMB_OK;
    CRUMB_TRY(crumb_cl_memory_create(s->d, n_bytes, "a trial", out, err));
    return crumb_cl_memory_write(s->d, out, from, n_bytes, err);
}

static crumb_status copy_weights(crumb_cl_solo *s, crumb_error *err) {
    const crumb_matrix *w = &s->trial->w;
    const crumb_matrix_bytes n = crumb_matrix_get_bytes(w);
    CRUMB_TRY(copy(s, w->codes, n.codes, &s->codes, err));
    CRUMB_TRY(copy(s, w->scales, n.scales, &s->scales, err));
    CRUMB_TRY(copy(s, w->mins, n.mins, &s->mins, err));
    CRUMB_TRY(copy(s, w->supers, n.supers, &s->supers, err));
    CRUMB_TRY(copy(s, w->super_mins, n.super_mins, &s->super_mins, err));
    return copy(s, w->codebook, CRUMB_CODEBOOK_ENTRIES, &s->codebook, err);
}

static crumb_status copy_activations(crumb_cl_solo *s, crumb_error *err) {
    const crumb_trial_params *p = &s->trial->params;
    const crumb_q8 *x = &s->trial->x;
    const uint64_t n_groups = x->k_padded / x->group, n_sx = x->row_scale ? 1 : n_groups;
    const crumb_cl_batch batch = {.n_rows = p->n, .max_kv = 1, .number = 1};
    CRUMB_TRY(
        crumb_cl_memory_create(s->d, crumb_cl_linear_x_bytes(p->n, (uint32_t)x->k_padded), "a trial", &s->q, err));
    CRUMB_TRY(copy(s, s->trial->xf, (uint64_t)p->n * p->k * sizeof(float), &s->x, err));
    CRUMB_TRY(copy(s, x->sx, p->n * n_sx * sizeof *x->sx, &s->sx, err));
    CRUMB_TRY(copy(s, x->qsum, p->n * n_groups * sizeof *x->qsum, &s->qsum, err));
    CRUMB_TRY(crumb_cl_memory_create(s->d, p->n * sizeof(float), "a trial", &s->largest, err));
    return copy(s, &batch, sizeof batch, &s->batch, err);
}

crumb_status crumb_cl_solo_create(crumb_device *d, const crumb_trial *trial, crumb_cl_solo *out, crumb_error *err) {
    const uint64_t n_y = (uint64_t)trial->params.n * trial->params.m;
    void *zeros;
    *out = (crumb_cl_solo){.d = d, .trial = trial};
    CRUMB_TRY(copy_weights(out, err));
    CRUMB_TRY(copy_activations(out, err));
    CRUMB_TRY(crumb_calloc(n_y, sizeof(float), "results", &zeros, err));
    crumb_status status = copy(out, zeros, n_y * sizeof(float), &out->y, err);
    free(zeros);
    return status;
}

void crumb_cl_solo_destroy(crumb_cl_solo *s) {
    crumb_cl_memory *const all[] = {&s->codes,    &s->scales, &s->mins,     &s->supers, &s->super_mins,
                                    &s->codebook, &s->batch,  &s->x,        &s->q,      &s->sx,
                                    &s->qsum,     &s->y,      &s->narrow_x, &s->largest};
    for (size_t i = 0; s->d && i < sizeof all / sizeof *all; i++) crumb_cl_memory_free(s->d, all[i]);
}

/* What tells one order of activations from another. */
static uint64_t order_of(const crumb_cl_kernel *kernel) {
    uint64_t hash = CRUMB_HASH_SEED;
    for (uint32_t k = 0; k < 4 * CRUMB_TILE_K; k++) {
        const uint64_t place = crumb_cl_linear_x_place(kernel, 4 * CRUMB_TILE_K, 1, k);
        hash = crumb_hash(hash, &place, sizeof place);
    }
    return hash;
}

/* Writes the activations in the order that a kernel reads: in the trial they are in the plane order of its weights. */
static crumb_status write_q(crumb_cl_solo *s, const crumb_cl_kernel *kernel, crumb_error *err) {
    const crumb_q8 *x = &s->trial->x;
    const uint32_t n = s->trial->params.n, k_padded = (uint32_t)x->k_padded;
    const uint64_t n_bytes = crumb_cl_linear_x_bytes(n, k_padded), order = order_of(kernel);
    void *memory;
    if (s->q_order == order) return CRUMB_OK;
    CRUMB_TRY(crumb_calloc(n_bytes, 1, "activations", &memory, err));
    int8_t *q = memory;
    for (uint32_t row = 0; row < n; row++)
        for (uint32_t k = 0; k < k_padded; k++) {
            const uint32_t in = k % CRUMB_TILE_K, from = k - in + crumb_tile_plane_position(s->trial->w.bits, in);
            q[crumb_cl_linear_x_place(kernel, k_padded, row, k)] = x->q[(uint64_t)row * k_padded + from];
        }
    crumb_status status = crumb_cl_memory_write(s->d, &s->q, q, n_bytes, err);
    free(memory);
    if (status == CRUMB_OK) s->q_order = order;
    return status;
}

/* The floats as bf16, which they are equal to where the trial is of such. */
static crumb_status write_narrow_x(crumb_cl_solo *s, crumb_error *err) {
    const uint64_t n = (uint64_t)s->trial->params.n * s->trial->params.k;
    void *memory;
    if (s->narrow_x.n_bytes) return CRUMB_OK;
    CRUMB_TRY(crumb_calloc(n, sizeof(uint16_t), "activations", &memory, err));
    uint16_t *x = memory;
    for (uint64_t i = 0; i < n; i++) x[i] = crumb_f32_to_bf16(s->trial->xf[i]);
    crumb_status status = copy(s, x, n * sizeof *x, &s->narrow_x, err);
    free(memory);
    return status;
}

/* ---- kernels ------------------------------------------------------------------------------------------------- */

crumb_cl_linear crumb_cl_solo_use(const crumb_matrix *w, const crumb_trial_params *p, uint32_t x) {
    return (crumb_cl_linear){.w = w, .act = p->act, .act_group = p->act_group, .n_parts = 1, .x = x};
}

/* A kernel's arguments in their order; the first that is refused counts. */
typedef struct args {
    const crumb_device *d;
    crumb_cl_call call;
    uint32_t n;
    crumb_cl_code code;
} args;

static void note(args *a, crumb_cl_code code) {
    if (a->code == CRUMB_CL_OK) a->code = code;
    a->n++;
}
static void arg_memory(args *a, const crumb_cl_memory *m) {
    note(a, crumb_cl_call_set_memory(a->d, a->call, a->n, m));
}
static void arg_u32(args *a, uint32_t value) {
    note(a, crumb_cl_call_set(a->call, a->n, sizeof value, &value));
}
static void arg_f32(args *a, float value) {
    note(a, crumb_cl_call_set(a->call, a->n, sizeof value, &value));
}
static void arg_local(args *a, uint64_t n_bytes) {
    note(a, crumb_cl_call_set(a->call, a->n, (size_t)n_bytes, NULL));
}

static const crumb_cl_memory *scales_for(const crumb_cl_solo *s, const crumb_cl_variant *v) {
    return crumb_cl_linear_scaled(&v->kernel) ? &s->largest : &s->sx;
}

static void set_linear(const crumb_cl_solo *s, const crumb_cl_variant *v, const crumb_cl_linear *use, args *a) {
    static const crumb_cl_memory none;
    const crumb_matrix *w = use->w;
    const crumb_cl_memory *const parts[] = {&s->codes, &s->scales, &s->mins, &s->supers, &s->super_mins, &none, &s->y};
    arg_memory(a, &s->batch);
    arg_u32(a, 0);
    arg_u32(a, w->k);
    arg_memory(a, v->kernel.bf16 ? &s->narrow_x : &s->x);
    arg_memory(a, &none);
    arg_memory(a, &none);
    arg_f32(a, 0);
    arg_memory(a, &s->q);
    arg_memory(a, scales_for(s, v));
    arg_memory(a, &s->qsum);
    arg_memory(a, &s->codebook);
    arg_u32(a, (uint32_t)w->mul);
    arg_u32(a, (uint32_t)w->sub);
    arg_memory(a, &none);
    arg_local(a, crumb_cl_linear_scratch_bytes(&v->kernel, use));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) arg_memory(a, parts[i]);
    arg_u32(a, 0);
    arg_u32(a, (uint32_t)crumb_div_up(w->m, CRUMB_TILE_ROWS));
    arg_u32(a, w->m);
    arg_u32(a, w->m);
    arg_f32(a, 1);
}

static void set_quantize(const crumb_cl_solo *s, const crumb_cl_variant *v, args *a) {
    static const crumb_cl_memory none;
    const crumb_q8 *x = &s->trial->x;
    const uint64_t n_groups = x->k_padded / x->group;
    arg_memory(a, &s->batch);
    arg_u32(a, 0);
    arg_u32(a, s->trial->w.k);
    arg_memory(a, v->kernel.bf16 ? &s->narrow_x : &s->x);
    arg_memory(a, &none);
    arg_memory(a, &none);
    arg_f32(a, 0);
    arg_memory(a, &s->q);
    arg_memory(a, scales_for(s, v));
    arg_memory(a, &s->qsum);
    arg_local(a, sizeof(int32_t) * (n_groups + (x->row_scale ? 1 : n_groups)));
}

static crumb_cl_queue queue_of(const crumb_cl_solo *s) {
    return s->d->profiling ? s->d->profiling : s->d->queue;
}

static crumb_status enqueue(const crumb_cl_solo *s, const args *a, const size_t groups[2], size_t local,
                            crumb_cl_event *event, crumb_error *err) {
    const size_t global[2] = {groups[0] * local, groups[1]}, locals[2] = {local, 1};
    if (a->code != CRUMB_CL_OK) return crumb_cl_fail(err, s->d->label, "a kernel's arguments", a->code);
    const crumb_cl_code code = crumb_cl_queue_launch(s->d, queue_of(s), a->call, 2, global, locals, event);
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, s->d->label, "starting a kernel", code);
}

static crumb_status run_quantize(const crumb_cl_solo *s, const crumb_cl_variant *v, const crumb_cl_linear *use,
                                 crumb_cl_event *event, crumb_error *err) {
    char options[CRUMB_CL_OPTIONS_MAX];
    args a = {.d = s->d};
    crumb_cl_quantize_options(&v->kernel, use, options);
    CRUMB_TRY(crumb_cl_kernel_create(s->d, "quantize.cl", options, "quantize_rows", &a.call, err));
    set_quantize(s, v, &a);
    crumb_status status = enqueue(s, &a, (const size_t[]){s->trial->params.n, 1}, QUANTIZE_WG, event, err);
    crumb_cl_call_release(a.call);
    return status;
}

static crumb_status run_linear(const crumb_cl_solo *s, const crumb_cl_variant *v, const crumb_cl_linear *use,
                               crumb_cl_event *event, crumb_error *err) {
    char options[CRUMB_CL_LINEAR_OPTIONS_MAX];
    args a = {.d = s->d};
    const size_t tiles = crumb_div_up(use->w->m, CRUMB_TILE_ROWS);
    const size_t groups[2] = {crumb_div_up(s->trial->params.n, v->kernel.tokens), crumb_div_up(tiles, v->kernel.tiles)};
    crumb_cl_linear_program(s->d, &v->kernel, use, options);
    CRUMB_TRY(crumb_cl_kernel_create(s->d, v->kernel.file, options, v->kernel.entry, &a.call, err));
    set_linear(s, v, use, &a);
    crumb_status status = enqueue(s, &a, groups, v->kernel.local_size, event, err);
    crumb_cl_call_release(a.call);
    return status;
}

crumb_status crumb_cl_solo_run(crumb_cl_solo *s, const crumb_cl_variant *v, bool whole, double *ns, crumb_error *err) {
    const crumb_cl_linear use = crumb_cl_solo_use(&s->trial->w, &s->trial->params, v->x);
    const bool scaled = crumb_cl_linear_scaled(&v->kernel), quantizes = scaled || (whole && v->x == 8);
    crumb_cl_event first = NULL, last = NULL;
    *ns = 0;
    if (v->x == 8 && !quantizes) CRUMB_TRY(write_q(s, &v->kernel, err));
    if (v->kernel.bf16 && (v->x == 32 || quantizes)) CRUMB_TRY(write_narrow_x(s, err));
    s->narrow_y = v->kernel.bf16;
    crumb_cl_code code = crumb_cl_queue_finish(s->d, s->d->queue); /* what was written there comes first */
    if (code != CRUMB_CL_OK) return crumb_cl_fail(err, s->d->label, "copying to the device", code);
    crumb_status status = quantizes ? run_quantize(s, v, &use, whole ? &first : NULL, err) : CRUMB_OK;
    if (quantizes && !scaled) s->q_order = 0;
    if (status == CRUMB_OK) status = run_linear(s, v, &use, &last, err);
    code = crumb_cl_queue_finish(s->d, queue_of(s));
    *ns = crumb_cl_events_ns(s->d, first, last);
    if (status == CRUMB_OK && code != CRUMB_CL_OK) status = crumb_cl_fail(err, s->d->label, "running a kernel", code);
    return status;
}

crumb_status crumb_cl_solo_read(crumb_cl_solo *s, float *y, crumb_error *err) {
    const uint64_t n = (uint64_t)s->trial->params.n * s->trial->params.m;
    const uint64_t n_bytes = n * (s->narrow_y ? sizeof(uint16_t) : sizeof *y);
    void *narrow = NULL;
    if (s->narrow_y) CRUMB_TRY(crumb_calloc(n, sizeof(uint16_t), "results", &narrow, err));
    const crumb_cl_code code = crumb_cl_driver_read(s->d, &s->y, 0, narrow ? narrow : y, n_bytes, true);
    for (uint64_t i = 0; narrow && i < n; i++) y[i] = crumb_bf16_to_f32(((const uint16_t *)narrow)[i]);
    free(narrow);
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, s->d->label, "reading results", code);
}
