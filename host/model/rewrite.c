#include "host/model/rewrite.h"

#include "host/base/cache.h"
#include "host/base/checked.h"
#include "host/base/file.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/container/gguf_build.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* One tensor on its way. */
typedef struct job {
    const crumb_rewrite *r;
    const crumb_gguf_tensor *t;
    crumb_type to;
    crumb_encode_method method;
    const uint8_t *in;
    uint8_t *out;
    uint64_t n_rows, rows_per_item;
    float scale;              /* of an I2_S tensor that is read */
    float new_scale;          /* of one that is written with one scale */
    crumb_ternary_sums *sums; /* [items] */
    const void *caller;
    atomic_uint_fast64_t n_done; /* items */
    uint64_t n_items;
    double done_before, part; /* of the whole file: what earlier tensors were, and what this one is */
} job;

static _Thread_local char thread_marker;

static uint64_t rows_of(const crumb_gguf_tensor *t) {
    return t->dims[1] * t->dims[2] * t->dims[3];
}

/* ---- rows ---- */

typedef struct row_range {
    const job *j;
    uint64_t begin, end, item;
    float *row;
    float *stored; /* as it is in the file, where its columns stand in an order of their own */
} row_range;

static crumb_status not_finite(uint64_t row, crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_FORMAT, "row %llu: a weight is NaN or infinite; the file is damaged",
                      (unsigned long long)row);
}

/* Runs inside crumb_file_guard. */
static crumb_status read_row(const row_range *r, uint64_t row, crumb_error *err) {
    const job *j = r->j;
    const uint64_t k = j->t->dims[0];
    const uint32_t *order = j->t->order;
    float sum = 0, *stored = order ? r->stored : r->row;
    crumb_type_row_to_f32(j->t->type, j->in + row * crumb_type_row_bytes(j->t->type, k), k, j->scale, stored);
    for (uint64_t i = 0; order && i < k; i++) r->row[order[i]] = stored[i];
    for (uint64_t i = 0; i < k; i++) sum += stored[i] * 0; /* NaN where any is not finite */
    return sum == 0 ? CRUMB_OK : not_finite(row, err);
}

static crumb_status sum_guarded(void *ctx, crumb_error *err) {
    const row_range *r = ctx;
    for (uint64_t i = r->begin; i < r->end; i++) {
        CRUMB_TRY(read_row(r, i, err));
        crumb_ternary_sums_add(&r->j->sums[r->item], r->row, r->j->t->dims[0]);
    }
    return CRUMB_OK;
}

/* Beyond what an f16 holds, no scale of one does. */
static crumb_status check_range(const job *j, uint64_t row, const float *values, crumb_error *err) {
    if (j->to == CRUMB_TYPE_F32 || j->to == CRUMB_TYPE_BF16) return CRUMB_OK;
    for (uint64_t i = 0; i < j->t->dims[0]; i++)
        if (fabsf(values[i]) > 65504)
            return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "row %llu: a weight of %g is more than %s holds; try BF16",
                              (unsigned long long)row, (double)values[i], crumb_type_get_info(j->to)->name);
    return CRUMB_OK;
}

/* Blocks whose codes the new type has are not rounded twice. */
static void keep_codes(const job *j, uint64_t row, uint8_t *out) {
    const crumb_type_info *from = crumb_type_get_info(j->t->type), *to = crumb_type_get_info(j->to);
    const uint8_t *in = j->in + row * crumb_type_row_bytes(j->t->type, j->t->dims[0]);
    if (from->scale_kind != CRUMB_SCALE_F32 || to->block != from->block || j->method != CRUMB_ENCODE_RTN || j->t->order)
        return;
    for (uint64_t k = 0; k < j->t->dims[0]; k += from->block, in += from->block_bytes, out += to->block_bytes)
        crumb_type_recode_block(j->t->type, in, j->to, out);
}

static crumb_status encode_guarded(void *ctx, crumb_error *err) {
    const row_range *r = ctx;
    const job *j = r->j;
    const uint64_t k = j->t->dims[0], row_bytes = crumb_type_row_bytes(j->to, k);
    for (uint64_t i = r->begin; i < r->end; i++) {
        CRUMB_TRY(read_row(r, i, err));
        CRUMB_TRY(check_range(j, i, r->row, err));
        crumb_type_encode_row(j->to, j->method, r->row, k, j->new_scale, j->out + i * row_bytes);
        keep_codes(j, i, j->out + i * row_bytes);
    }
    return CRUMB_OK;
}

static crumb_status run_item(job *j, uint64_t item, crumb_status (*fn)(void *ctx, crumb_error *err), crumb_error *err) {
    row_range r = {.j = j, .item = item, .begin = item * j->rows_per_item};
    r.end = r.begin + j->rows_per_item < j->n_rows ? r.begin + j->rows_per_item : j->n_rows;
    CRUMB_TRY(crumb_calloc(2 * j->t->dims[0], sizeof *r.row, "a row of weights", (void **)&r.row, err));
    r.stored = r.row + j->t->dims[0];
    const crumb_status status = crumb_file_guard(crumb_gguf_path(j->r->from), fn, &r, err);
    free(r.row);
    return status;
}

static crumb_status report(const job *j, double part, crumb_error *err) {
    if (!j->r->progress || j->caller != &thread_marker) return CRUMB_OK;
    if (j->r->progress(j->r->progress_user, (float)(j->done_before + part * j->part))) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "interrupted; the same command goes on from here");
}

static crumb_status sum_item(void *ctx, uint64_t item, crumb_error *err) {
    return run_item(ctx, item, sum_guarded, err);
}

static crumb_status encode_item(void *ctx, uint64_t item, crumb_error *err) {
    job *j = ctx;
    CRUMB_TRY(run_item(j, item, encode_guarded, err));
    const uint64_t done = atomic_fetch_add(&j->n_done, 1) + 1;
    return report(j, (double)done / (double)j->n_items, err);
}

/* ---- tensors ---- */

static crumb_status find_ternary_scale(job *j, crumb_error *err) {
    CRUMB_TRY(crumb_calloc(j->n_items, sizeof *j->sums, "sums of weights", (void **)&j->sums, err));
    const crumb_status status = crumb_parallel_for(j->r->n_threads, j->n_items, sum_item, j, err);
    crumb_ternary_sums all = {0};
    for (uint64_t i = 0; i < j->n_items; i++) crumb_ternary_sums_join(&all, &j->sums[i]);
    j->new_scale = crumb_ternary_scale(&all);
    free(j->sums);
    return status;
}

static crumb_status copy_guarded(void *ctx, crumb_error *err) {
    const job *j = ctx;
    (void)err;
    memcpy(j->out, j->in, j->t->n_bytes);
    return CRUMB_OK;
}

static crumb_status load_scale_guarded(void *ctx, crumb_error *err) {
    job *j = ctx;
    (void)err;
    j->scale = crumb_type_i2_s_scale(j->in, j->n_rows, j->t->dims[0]);
    return CRUMB_OK;
}

static crumb_status encode_all(job *j, crumb_error *err) {
    const uint64_t k = j->t->dims[0];
    j->rows_per_item = crumb_div_up(1u << 18, k); /* about a MB of floats */
    j->n_items = crumb_div_up(j->n_rows, j->rows_per_item);
    if (j->t->type == CRUMB_TYPE_I2_S)
        CRUMB_TRY(crumb_file_guard(crumb_gguf_path(j->r->from), load_scale_guarded, j, err));
    if (crumb_type_needs_tensor_scale(j->to, j->method)) CRUMB_TRY(find_ternary_scale(j, err));
    if (j->to == CRUMB_TYPE_I2_S)
        memcpy(j->out + j->n_rows * crumb_type_row_bytes(j->to, k), &j->new_scale, sizeof j->new_scale);
    return crumb_parallel_for(j->r->n_threads, j->n_items, encode_item, j, err);
}

static crumb_status write_held(job *j, crumb_file_writer *w, crumb_error *err) {
    uint64_t n_bytes;
    j->in = crumb_gguf_tensor_data(j->r->from, j->t);
    CRUMB_TRY(crumb_type_tensor_bytes(j->to, j->n_rows, j->t->dims[0], &n_bytes, err));
    CRUMB_TRY(crumb_pages_alloc(n_bytes, "a tensor", (void **)&j->out, err));
    crumb_status status =
        j->to == j->t->type ? crumb_file_guard(crumb_gguf_path(j->r->from), copy_guarded, j, err) : encode_all(j, err);
    if (status == CRUMB_OK) status = crumb_file_writer_append(w, j->out, n_bytes, err);
    if (status == CRUMB_OK) status = report(j, 1, err);
    crumb_pages_free(j->out, n_bytes);
    return status;
}

static crumb_status write_tensor(job *j, crumb_file_writer *w, crumb_error *err) {
    CRUMB_TRY(crumb_gguf_tensor_hold(j->r->from, j->t, err));
    const crumb_status status = write_held(j, w, err);
    crumb_gguf_tensor_drop(j->r->from, j->t);
    crumb_gguf_tensor_release(j->r->from, j->t);
    return status == CRUMB_OK ? status : crumb_fail_prefix(err, status, "tensor '%s'", j->t->name);
}

/* ---- what keeps a tensor's codes ---- */

typedef struct candidate {
    const crumb_gguf *g;
    const crumb_gguf_tensor *t;
    crumb_type to;
    crumb_encode_method method;
    bool keeps;
} candidate;

/* Runs inside crumb_file_guard. */
static crumb_status check_blocks(void *ctx, crumb_error *err) {
    candidate *c = ctx;
    const uint32_t block = crumb_type_get_info(c->to)->block;
    const uint8_t *data = crumb_gguf_tensor_data(c->g, c->t);
    (void)err;
    c->keeps = c->t->dims[0] % block == 0;
    for (uint64_t at = 0; at < c->t->n_bytes && c->keeps; at += crumb_type_row_bytes(c->t->type, block))
        c->keeps = crumb_type_keeps_codes(c->t->type, data + at, c->to, c->method);
    return CRUMB_OK;
}

crumb_status crumb_rewrite_same_type(const crumb_gguf *g, const crumb_gguf_tensor *t, crumb_type *out,
                                     crumb_encode_method *method, crumb_error *err) {
    static const struct {
        crumb_type to;
        crumb_encode_method method;
    } smallest_first[] = {{CRUMB_TYPE_Q1_0, CRUMB_ENCODE_RTN}, {CRUMB_TYPE_TQ2_0, CRUMB_ENCODE_RTN},
                          {CRUMB_TYPE_Q2_K, CRUMB_ENCODE_SEQ}, {CRUMB_TYPE_Q4_0, CRUMB_ENCODE_SEQ},
                          {CRUMB_TYPE_Q4_0, CRUMB_ENCODE_RTN}, {CRUMB_TYPE_Q8_0, CRUMB_ENCODE_RTN}};
    uint32_t id;
    *out = t->type;
    *method = CRUMB_ENCODE_RTN;
    if (crumb_type_gguf_id(t->type, &id, NULL) == CRUMB_OK) return CRUMB_OK;
    *out = CRUMB_TYPE_F16;
    if (t->order) return CRUMB_OK; /* where its columns belong, blocks of them have not one scale */
    CRUMB_TRY(crumb_gguf_tensor_hold(g, t, err));
    crumb_status status = CRUMB_OK;
    for (size_t i = 0; i < sizeof smallest_first / sizeof *smallest_first && status == CRUMB_OK; i++) {
        candidate c = {.g = g, .t = t, .to = smallest_first[i].to, .method = smallest_first[i].method};
        status = crumb_file_guard(crumb_gguf_path(g), check_blocks, &c, err);
        if (!c.keeps) continue;
        *out = c.to;
        *method = c.method;
        break;
    }
    crumb_gguf_tensor_drop(g, t);
    crumb_gguf_tensor_release(g, t);
    return status;
}

/* ---- the file ---- */

static double weights_of(const crumb_gguf_tensor *t) {
    return (double)t->dims[0] * (double)rows_of(t);
}

static crumb_encode_method method_of(const crumb_rewrite *r, size_t index) {
    return r->methods ? r->methods[index] : CRUMB_ENCODE_RTN;
}

static crumb_status write_tensors(const crumb_rewrite *r, crumb_file_writer *w, crumb_error *err) {
    const size_t n = crumb_gguf_n_tensors(r->from);
    double all = 0, done = 0;
    for (size_t i = 0; i < n; i++) all += weights_of(crumb_gguf_tensor_at(r->from, i));
    for (size_t i = 0; i < n; i++) {
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(r->from, i);
        job j = {.r = r,
                 .t = t,
                 .to = r->types[i],
                 .method = method_of(r, i),
                 .n_rows = rows_of(t),
                 .caller = &thread_marker,
                 .done_before = done / all,
                 .part = weights_of(t) / all};
        if (i >= crumb_file_writer_n_done(w)) CRUMB_TRY(write_tensor(&j, w, err));
        done += weights_of(t);
    }
    return crumb_file_writer_finish(w, err);
}

/* Where tensors lie is the new file's own affair. */
static bool is_of_the_file(crumb_bytes key) {
    static const char *const begins[] = {"split.", "general.alignment", "general.file_type"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        const size_t n = strlen(begins[i]);
        if (key.size >= n && memcmp(key.data, begins[i], n) == 0) return true;
    }
    return false;
}

static crumb_status list_tensor(const crumb_rewrite *r, size_t index, crumb_gguf_builder *header, crumb_error *err) {
    const crumb_gguf_tensor *t = crumb_gguf_tensor_at(r->from, index);
    const crumb_type to = r->types[index];
    uint32_t id;
    uint64_t n_bytes;
    if (!t->supported) return crumb_gguf_require_tensor(r->from, t->name, &t, err);
    crumb_status status = crumb_type_gguf_id(to, &id, err);
    if (status == CRUMB_OK && to != t->type && !crumb_type_can_encode(to, method_of(r, index)))
        status = crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "crumb does not write %s so", crumb_type_get_info(to)->name);
    if (status == CRUMB_OK) status = crumb_type_tensor_bytes(to, rows_of(t), t->dims[0], &n_bytes, err);
    if (status != CRUMB_OK) return crumb_fail_prefix(err, status, "tensor '%s'", t->name);
    crumb_gguf_build_tensor(header, t->name, t->n_dims, t->dims, id, n_bytes);
    return header->status;
}

static crumb_status make_header(const crumb_rewrite *r, crumb_gguf_builder *header, crumb_error *err) {
    for (size_t i = 0; i < crumb_gguf_n_values(r->from); i++)
        if (!is_of_the_file(crumb_gguf_value_at(r->from, i)->key))
            crumb_gguf_build_copy(header, crumb_gguf_value_at(r->from, i));
    for (size_t i = 0; i < crumb_gguf_n_tensors(r->from); i++) CRUMB_TRY(list_tensor(r, i, header, err));
    return crumb_gguf_build_finish(header);
}

/* What was begun by other methods is not taken up. */
static uint64_t identity_of(const crumb_rewrite *r) {
    return r->methods ? crumb_hash(r->identity, r->methods, crumb_gguf_n_tensors(r->from) * sizeof *r->methods)
                      : r->identity;
}

crumb_status crumb_rewrite_run(const crumb_rewrite *r, uint64_t *n_kept, crumb_error *err) {
    crumb_gguf_builder header;
    crumb_file_writer *w = NULL;
    *n_kept = 0;
    crumb_gguf_build_begin(&header, err);
    crumb_status status = make_header(r, &header, err);
    if (status != CRUMB_OK) crumb_fail_prefix(err, status, "%s", crumb_gguf_path(r->from));
    const crumb_file_plan plan = crumb_gguf_build_plan(&header);
    if (status == CRUMB_OK) status = crumb_file_writer_open(r->path, &plan, identity_of(r), &w, err);
    if (status == CRUMB_OK) {
        *n_kept = crumb_file_writer_n_done(w);
        status = write_tensors(r, w, err);
    }
    crumb_file_writer_close(w, status == CRUMB_ERR_INTERRUPTED || status == CRUMB_ERR_IO || status == CRUMB_ERR_MEMORY);
    crumb_gguf_build_free(&header);
    return status;
}
