#include "host/gptq/run.h"

#include "host/base/cache.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/container/gguf_rows.h"
#include "host/gptq/layers.h"

#include <stdlib.h>
#include <string.h>

typedef struct running {
    const crumb_gptq_run *run;
    crumb_gptq_writer *out;
    crumb_layers *layers;
    size_t next; /* matrix of the writer's */
    double all, done;
} running;

static double n_weights(const crumb_gguf_tensor *t) {
    return (double)t->dims[0] * (double)t->dims[1];
}

static bool goes_on(const running *r) {
    const crumb_gptq_run *run = r->run;
    return !run->progress || run->progress(run->progress_user, (float)(r->done / r->all));
}

static bool should_stop(void *user) {
    return !goes_on(user);
}

static crumb_status report(running *r, const crumb_gguf_tensor *t, crumb_error *err) {
    r->done += n_weights(t);
    if (goes_on(r)) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "interrupted; the same command goes on from here");
}

/* ---- rounding to the nearest code ---------------------------------------------------------------------------- */

enum { ROWS = 16 }; /* of an item */

typedef struct rounding {
    const crumb_gguf *from;
    const crumb_gguf_tensor *t;
    crumb_coded *codes;
} rounding;

static crumb_status round_item(void *ctx, uint64_t item, crumb_error *err) {
    const rounding *r = ctx;
    const uint64_t k = r->codes->k, end = (item + 1) * ROWS < r->codes->m ? (item + 1) * ROWS : r->codes->m;
    float *row;
    double *room;
    CRUMB_TRY(crumb_calloc(k, sizeof *row + sizeof *room, "a row of weights", (void **)&room, err));
    row = (float *)(void *)(room + k);
    crumb_status status = CRUMB_OK;
    for (uint64_t m = item * ROWS; m < end && status == CRUMB_OK; m++) {
        status = crumb_gguf_read_rows(r->from, r->t, m, 1, row, err);
        if (status == CRUMB_OK) crumb_coded_round_row(r->codes, m, row, room);
    }
    free(room);
    return status;
}

static crumb_status round_matrix(const running *r, const crumb_gguf_tensor *t, crumb_coded *codes, crumb_error *err) {
    rounding work = {r->run->form.from, t, codes};
    CRUMB_TRY(crumb_gguf_tensor_hold(work.from, t, err));
    const crumb_status status =
        crumb_parallel_for(r->run->n_threads, (codes->m + ROWS - 1) / ROWS, round_item, &work, err);
    crumb_gguf_tensor_drop(work.from, t);
    crumb_gguf_tensor_release(work.from, t);
    return status;
}

static crumb_status round_all(running *r, crumb_error *err) {
    for (; r->next < crumb_gptq_writer_n(r->out); r->next++) {
        const crumb_gguf_tensor *t = crumb_gptq_writer_tensor(r->out, r->next);
        crumb_coded codes = {0};
        if (r->next >= crumb_gptq_writer_n_done(r->out)) {
            crumb_status status = crumb_gptq_writer_alloc(r->out, r->next, &codes, err);
            if (status == CRUMB_OK) status = round_matrix(r, t, &codes, err);
            if (status == CRUMB_OK) status = crumb_gptq_writer_append(r->out, &codes, r->run->n_threads, err);
            crumb_coded_free(&codes);
            CRUMB_TRY(status);
        }
        CRUMB_TRY(report(r, t, err));
    }
    return CRUMB_OK;
}

/* ---- GPTQ's method ------------------------------------------------------------------------------------------- */

/* Whether the stop's matrix is the next one that the writer packs; if not, it stays as it is. */
static bool is_next(const running *r, const char *tensor) {
    return r->next < crumb_gptq_writer_n(r->out) &&
           strcmp(crumb_gptq_writer_tensor(r->out, r->next)->name, tensor) == 0;
}

/* The matrix's codes: an earlier run's, or new ones, which are written. */
static crumb_status make_codes(running *r, const float *weights, const crumb_hessian *h, crumb_coded *codes,
                               crumb_error *err) {
    CRUMB_TRY(crumb_gptq_writer_alloc(r->out, r->next, codes, err));
    if (r->next < crumb_gptq_writer_n_done(r->out)) return crumb_gptq_writer_read(r->out, r->next, codes, err);
    CRUMB_TRY(crumb_gptq_solve(weights, h, r->run->order, r->run->n_threads, codes, err));
    return crumb_gptq_writer_append(r->out, codes, r->run->n_threads, err);
}

static crumb_status replace_weights(running *r, float *weights, const crumb_hessian *h, crumb_error *err) {
    crumb_coded codes = {0};
    const crumb_gguf_tensor *t = crumb_gptq_writer_tensor(r->out, r->next);
    const crumb_status status = make_codes(r, weights, h, &codes, err);
    for (uint64_t m = 0; m < codes.m && status == CRUMB_OK; m++) crumb_coded_row(&codes, m, weights + m * codes.k);
    crumb_coded_free(&codes);
    if (status != CRUMB_OK) return crumb_fail_prefix(err, status, "tensor '%s'", t->name);
    r->next++;
    return report(r, t, err);
}

/* Matrices of a stop that are to be packed, and whether one of them is not there yet. */
static bool has_work(const running *r, const crumb_layers_stop *stop) {
    size_t next = r->next;
    for (size_t i = 0; i < stop->n; i++)
        if (next < crumb_gptq_writer_n(r->out) &&
            strcmp(crumb_gptq_writer_tensor(r->out, next)->name, stop->tensor[i]) == 0)
            next++;
    return next > r->next && next > crumb_gptq_writer_n_done(r->out);
}

static crumb_status find_hessian(const running *r, const crumb_layers_stop *stop, crumb_hessian *h, crumb_error *err) {
    const crumb_gptq_run *run = r->run;
    const bool act_order = run->order != CRUMB_GPTQ_ORDER_PLAIN;
    CRUMB_TRY(crumb_hessian_alloc(stop->k, h, err));
    CRUMB_TRY(crumb_hessian_add(h, stop->x, run->n_tokens, run->n_threads, err));
    const crumb_status status = crumb_hessian_factor(h, run->damping, act_order, run->n_threads, err);
    return status == CRUMB_OK ? status : crumb_fail_prefix(err, status, "tensor '%s'", stop->tensor[0]);
}

static crumb_status take_stop(running *r, const crumb_layers_stop *stop, crumb_error *err) {
    crumb_hessian h = {0};
    crumb_status status = has_work(r, stop) ? find_hessian(r, stop, &h, err) : CRUMB_OK;
    for (size_t i = 0; i < stop->n && status == CRUMB_OK; i++)
        if (is_next(r, stop->tensor[i])) status = replace_weights(r, stop->weights[i], &h, err);
    crumb_hessian_free(&h);
    return status;
}

static crumb_status solve_layers(running *r, crumb_error *err) {
    crumb_layers_stop stop;
    for (uint32_t i = 0; i < crumb_layers_count(r->layers); i++) {
        CRUMB_TRY(crumb_layers_begin(r->layers, err));
        do {
            CRUMB_TRY(crumb_layers_next(r->layers, &stop, err));
            CRUMB_TRY(take_stop(r, &stop, err));
        } while (stop.n);
    }
    if (r->next == crumb_gptq_writer_n(r->out)) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_INTERNAL, "tensor '%s': no layer has come to it",
                      crumb_gptq_writer_tensor(r->out, r->next)->name);
}

static crumb_status solve_all(running *r, crumb_error *err) {
    const crumb_gptq_run *run = r->run;
    const crumb_layers_params params = {.from = run->form.from,
                                        .tokens = run->tokens,
                                        .n_tokens = run->n_tokens,
                                        .length = run->length,
                                        .n_threads = run->n_threads,
                                        .should_stop = should_stop,
                                        .should_stop_user = r};
    CRUMB_TRY(crumb_layers_open(&params, &r->layers, err));
    const crumb_status status = solve_layers(r, err);
    crumb_layers_close(r->layers);
    return status;
}

/* ---- all of it ----------------------------------------------------------------------------------------------- */

/* Codes of another method, or of another text, are others. */
static uint64_t identity_of(const crumb_gptq_run *run) {
    uint64_t hash = run->form.identity;
    if (!run->tokens) return hash;
    hash = crumb_hash(hash, run->tokens, run->n_tokens * sizeof *run->tokens);
    hash = crumb_hash(hash, &run->length, sizeof run->length);
    hash = crumb_hash(hash, &run->damping, sizeof run->damping);
    return crumb_hash(hash, &run->order, sizeof run->order);
}

crumb_status crumb_gptq_run_all(const crumb_gptq_run *run, uint64_t *n_kept, crumb_error *err) {
    running r = {.run = run};
    crumb_gptq_form form = run->form;
    *n_kept = 0;
    form.identity = identity_of(run);
    form.free_groups = run->tokens && run->order == CRUMB_GPTQ_ORDER_FREE;
    CRUMB_TRY(crumb_gptq_writer_open(&form, &r.out, err));
    *n_kept = crumb_gptq_writer_n_done(r.out);
    for (size_t i = 0; i < crumb_gptq_writer_n(r.out); i++) r.all += n_weights(crumb_gptq_writer_tensor(r.out, i));
    crumb_status status = run->tokens ? solve_all(&r, err) : round_all(&r, err);
    if (status == CRUMB_OK) status = crumb_gptq_writer_finish(r.out, err);
    crumb_gptq_writer_close(r.out,
                            status == CRUMB_ERR_INTERRUPTED || status == CRUMB_ERR_IO || status == CRUMB_ERR_MEMORY);
    return status;
}
