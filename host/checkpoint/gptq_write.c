#include "host/checkpoint/gptq_write.h"

#include "host/base/checked.h"
#include "host/base/file.h"
#include "host/base/file_out.h"
#include "host/base/half.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/checkpoint/internal.h"
#include "host/container/file_write.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 32, N_PARTS = 4 }; /* rows of an item, and columns of a run of whole words */

static const char *const part_names[N_PARTS] = {"g_idx", "qweight", "qzeros", "scales"};

typedef struct writing {
    const crumb_gptq_write *w;
    crumb_safetensors *files;
    cJSON *header;
    uint64_t *tensor_bytes; /* of the new file */
    uint64_t n_tensors, n_bytes;
    crumb_file_writer *out;
    uint64_t n_kept;   /* tensors of the new file that an earlier run has written */
    uint64_t n_listed; /* that are behind the one in hand */
    double all, done;
} writing;

/* ---- what becomes of a tensor -------------------------------------------------------------------------------- */

/* A matrix of a layer, "model.layers.3.mlp.up_proj.weight", that can be packed. */
static bool is_packed(const crumb_gptq_write *w, const crumb_safetensor *t) {
    static const char end[] = "_proj.weight";
    const size_t n = strlen(t->name), n_end = sizeof end - 1;
    const bool dense = t->dtype == CRUMB_DTYPE_F16 || t->dtype == CRUMB_DTYPE_BF16 || t->dtype == CRUMB_DTYPE_F32;
    if (!dense || t->n_dims != 2 || t->n_values == 0 || strncmp(t->name, "model.layers.", 13) != 0 || n < n_end ||
        strcmp(t->name + n - n_end, end) != 0)
        return false;
    return t->dims[0] % BLOCK == 0 && t->dims[1] % BLOCK == 0 && (!w->group || t->dims[1] % w->group == 0);
}

typedef struct shape {
    uint64_t m, k, group, n_groups;
    uint64_t bytes[N_PARTS];
} shape;

static shape shape_of(const crumb_gptq_write *w, const crumb_safetensor *t) {
    shape s = {.m = t->dims[0], .k = t->dims[1], .group = w->group ? w->group : t->dims[1]};
    s.n_groups = s.k / s.group;
    s.bytes[0] = s.k * 4;
    s.bytes[1] = s.k / BLOCK * w->bits * s.m * 4;
    s.bytes[2] = s.n_groups * (s.m / BLOCK * w->bits) * 4;
    s.bytes[3] = s.n_groups * s.m * 2;
    return s;
}

/* ---- the header ---------------------------------------------------------------------------------------------- */

static crumb_status list_tensor(writing *x, const char *name, const char *dtype, uint32_t n_dims, const uint64_t *dims,
                                uint64_t n_bytes, crumb_error *err) {
    cJSON *entry = cJSON_AddObjectToObject(x->header, name), *sizes = cJSON_AddArrayToObject(entry, "shape");
    bool good = cJSON_AddStringToObject(entry, "dtype", dtype) != NULL;
    for (uint32_t i = 0; i < n_dims; i++) good &= cJSON_AddItemToArray(sizes, cJSON_CreateNumber((double)dims[i]));
    cJSON *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    good &= cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)x->n_bytes));
    good &= cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)(x->n_bytes + n_bytes)));
    if (!good) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for the list of tensors");
    x->tensor_bytes[x->n_tensors++] = n_bytes;
    x->n_bytes += n_bytes;
    return CRUMB_OK;
}

static crumb_status list_packed(writing *x, const crumb_safetensor *t, crumb_error *err) {
    const shape s = shape_of(x->w, t);
    const uint64_t words = s.m / BLOCK * x->w->bits, rows = s.k / BLOCK * x->w->bits;
    const uint64_t dims[N_PARTS][2] = {{s.k}, {rows, s.m}, {s.n_groups, words}, {s.n_groups, s.m}};
    for (int i = 0; i < N_PARTS; i++) {
        char name[512];
        const int n = snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->name) - 6), t->name, part_names[i]);
        if (n < 0 || (size_t)n >= sizeof name)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "tensor '%.80s': the name is too long", t->name);
        CRUMB_TRY(list_tensor(x, name, i == 3 ? "F16" : "I32", i ? 2 : 1, dims[i], s.bytes[i], err));
    }
    return CRUMB_OK;
}

static crumb_status list_all(writing *x, crumb_error *err) {
    const size_t n = crumb_safetensors_n(x->files);
    size_t n_packed = 0;
    CRUMB_TRY(
        crumb_calloc(N_PARTS * n + 1, sizeof *x->tensor_bytes, "the list of tensors", (void **)&x->tensor_bytes, err));
    x->header = cJSON_CreateObject();
    cJSON_AddStringToObject(cJSON_AddObjectToObject(x->header, "__metadata__"), "format", "pt");
    for (size_t i = 0; i < n; i++) {
        const crumb_safetensor *t = crumb_safetensors_at(x->files, i);
        const bool packed = is_packed(x->w, t);
        n_packed += packed;
        x->all += (double)t->n_values;
        CRUMB_TRY(packed ? list_packed(x, t, err)
                         : list_tensor(x, t->name, crumb_dtype_name(t->dtype), t->n_dims, t->dims, t->n_bytes, err));
    }
    if (n_packed) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s: no matrix of its layers has whole groups of %u", x->w->from,
                      x->w->group);
}

/* ---- one matrix ---------------------------------------------------------------------------------------------- */

typedef struct job {
    const writing *x;
    const crumb_safetensor *t;
    shape s;
    uint8_t *parts[N_PARTS];
} job;

typedef struct row_block {
    const job *j;
    uint64_t first;
    float *row;
} row_block;

static crumb_status load_row(const job *j, uint64_t m, float *row, crumb_error *err) {
    const uint64_t size = j->t->n_bytes / j->t->n_values;
    const uint8_t *in = crumb_safetensors_data(j->x->files, j->t) + m * j->s.k * size;
    for (uint64_t i = 0; i < j->s.k; i++) {
        row[i] = checkpoint_load_float(j->t->dtype, in + i * size);
        if (!(fabsf(row[i]) <= 65504))
            return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "tensor '%.80s': row %llu has a weight of %g", j->t->name,
                              (unsigned long long)m, (double)row[i]);
    }
    return CRUMB_OK;
}

/* Writes `bits` bits of value at bit `at` of words that are `stride` apart, where zeros are. */
static void put_bits(uint8_t *words, uint64_t stride, uint64_t at, unsigned bits, unsigned value) {
    uint32_t *low = (uint32_t *)(void *)words + at / 32 * stride;
    *low |= value << at % 32;
    if (at % 32 + bits > 32) low[stride] |= value >> (32 - at % 32);
}

/* Scale and zero point such that codes reach from the least to the largest weight, and 0 is one of their values. */
static float fit(const float *w, uint64_t n, unsigned max_code, unsigned *zero) {
    float low = 0, high = 0;
    for (uint64_t i = 0; i < n; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
    }
    const float scale = crumb_f16_to_f32(crumb_f32_to_f16((high - low) / (float)max_code));
    const float at = scale > 0 ? roundf(-low / scale) : 1;
    *zero = at<1 ? 1 : at>(float) max_code ? max_code : (unsigned)at;
    return scale;
}

static void pack_group(const job *j, uint64_t m, uint64_t g, const float *w) {
    const shape *s = &j->s;
    const unsigned bits = j->x->w->bits, max_code = (1u << bits) - 1;
    unsigned zero;
    const float scale = fit(w, s->group, max_code, &zero), inverse = scale > 0 ? 1 / scale : 0;
    const uint16_t half = crumb_f32_to_f16(scale);
    memcpy(j->parts[3] + 2 * (g * s->m + m), &half, 2);
    put_bits(j->parts[2] + 4 * g * (s->m / BLOCK * bits), 1, m * bits, bits, zero - 1);
    for (uint64_t i = 0; i < s->group; i++) {
        const float code = roundf(w[i] * inverse) + (float)zero;
        const unsigned value = code<0 ? 0 : code>(float) max_code ? max_code : (unsigned)code;
        put_bits(j->parts[1] + 4 * m, s->m, (g * s->group + i) * bits, bits, value);
    }
}

/* Runs inside crumb_file_guard. 32 rows end where a word of zero points does: no other item writes there. */
static crumb_status pack_rows(void *ctx, crumb_error *err) {
    const row_block *b = ctx;
    const job *j = b->j;
    for (uint64_t m = b->first; m < b->first + BLOCK; m++) {
        CRUMB_TRY(load_row(j, m, b->row, err));
        for (uint64_t g = 0; g < j->s.n_groups; g++) pack_group(j, m, g, b->row + g * j->s.group);
    }
    return CRUMB_OK;
}

static crumb_status pack_item(void *ctx, uint64_t item, crumb_error *err) {
    const job *j = ctx;
    row_block b = {.j = j, .first = item * BLOCK};
    CRUMB_TRY(crumb_calloc(j->s.k, sizeof *b.row, "a row of weights", (void **)&b.row, err));
    const crumb_status status = crumb_file_guard(crumb_safetensors_path(j->x->files, j->t), pack_rows, &b, err);
    free(b.row);
    return status;
}

static crumb_status pack_and_write(job *j, uint8_t *base, crumb_error *err) {
    for (int i = 0; i < N_PARTS; base += j->s.bytes[i++]) j->parts[i] = base;
    for (uint64_t k = 0; k < j->s.k; k++) {
        const uint32_t group = (uint32_t)(k / j->s.group);
        memcpy(j->parts[0] + 4 * k, &group, sizeof group);
    }
    CRUMB_TRY(crumb_parallel_for(j->x->w->n_threads, j->s.m / BLOCK, pack_item, j, err));
    for (int i = 0; i < N_PARTS; i++)
        if (j->x->n_listed + (uint64_t)i >= j->x->n_kept)
            CRUMB_TRY(crumb_file_writer_append(j->x->out, j->parts[i], j->s.bytes[i], err));
    return CRUMB_OK;
}

static crumb_status write_packed(const writing *x, const crumb_safetensor *t, crumb_error *err) {
    job j = {.x = x, .t = t, .s = shape_of(x->w, t)};
    const uint64_t n_bytes = j.s.bytes[0] + j.s.bytes[1] + j.s.bytes[2] + j.s.bytes[3];
    uint8_t *base;
    CRUMB_TRY(crumb_pages_alloc(n_bytes, "a matrix", (void **)&base, err));
    const crumb_status status = pack_and_write(&j, base, err);
    crumb_pages_free(base, n_bytes);
    return status;
}

/* ---- the rest ------------------------------------------------------------------------------------------------ */

typedef struct copying {
    const writing *x;
    const crumb_safetensor *t;
    uint8_t *to;
} copying;

/* Runs inside crumb_file_guard. */
static crumb_status copy_guarded(void *ctx, crumb_error *err) {
    const copying *c = ctx;
    (void)err;
    memcpy(c->to, crumb_safetensors_data(c->x->files, c->t), c->t->n_bytes);
    return CRUMB_OK;
}

static crumb_status write_copy(const writing *x, const crumb_safetensor *t, crumb_error *err) {
    copying c = {.x = x, .t = t};
    if (t->n_bytes == 0) return crumb_file_writer_append(x->out, "", 0, err);
    CRUMB_TRY(crumb_pages_alloc(t->n_bytes, "a tensor", (void **)&c.to, err));
    crumb_status status = crumb_file_guard(crumb_safetensors_path(x->files, t), copy_guarded, &c, err);
    if (status == CRUMB_OK) status = crumb_file_writer_append(x->out, c.to, t->n_bytes, err);
    crumb_pages_free(c.to, t->n_bytes);
    return status;
}

static crumb_status write_tensors(writing *x, crumb_error *err) {
    for (size_t i = 0; i < crumb_safetensors_n(x->files); i++) {
        const crumb_safetensor *t = crumb_safetensors_at(x->files, i);
        const bool packed = is_packed(x->w, t);
        const uint64_t n_parts = packed ? N_PARTS : 1;
        if (x->n_listed + n_parts > x->n_kept) CRUMB_TRY(packed ? write_packed(x, t, err) : write_copy(x, t, err));
        x->n_listed += n_parts;
        x->done += (double)t->n_values;
        if (x->w->progress && !x->w->progress(x->w->progress_user, (float)(x->done / x->all)))
            return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "interrupted; the same command goes on from here");
    }
    return crumb_file_writer_finish(x->out, err);
}

static crumb_status write_text(const char *folder, const char *name, const char *text, size_t n, crumb_error *err) {
    char path[CHECKPOINT_MAX_PATH], partial[CHECKPOINT_MAX_PATH];
    crumb_file_out f;
    char partial_name[64];
    snprintf(partial_name, sizeof partial_name, "%s.partial", name);
    CRUMB_TRY(checkpoint_path(folder, name, path, err));
    CRUMB_TRY(checkpoint_path(folder, partial_name, partial, err));
    CRUMB_TRY(crumb_file_out_open(partial, &f, err));
    crumb_status status = crumb_file_out_truncate(&f, 0, err);
    if (status == CRUMB_OK) status = crumb_file_out_write(&f, 0, text, n, err);
    if (status == CRUMB_OK) status = crumb_file_out_publish(&f, path, err);
    crumb_file_out_close(&f);
    return status;
}

static crumb_status copy_others(const crumb_gptq_write *w, crumb_error *err) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                        "generation_config.json", "chat_template.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *text;
        size_t n;
        CRUMB_TRY(checkpoint_read(w->from, names[i], false, &text, &n, err));
        const crumb_status status = text ? write_text(w->to, names[i], text, n, err) : CRUMB_OK;
        free(text);
        CRUMB_TRY(status);
    }
    return CRUMB_OK;
}

static crumb_status write_config(const crumb_gptq_write *w, cJSON *root, crumb_error *err) {
    cJSON *q = cJSON_AddObjectToObject(root, "quantization_config");
    cJSON_AddStringToObject(q, "quant_method", "gptq");
    cJSON_AddNumberToObject(q, "bits", w->bits);
    cJSON_AddNumberToObject(q, "group_size", w->group ? (double)w->group : -1);
    cJSON_AddFalseToObject(q, "desc_act");
    cJSON_AddFalseToObject(q, "sym");
    cJSON_AddStringToObject(q, "checkpoint_format", "gptq");
    char *text = cJSON_Print(root);
    if (!text) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for config.json");
    const crumb_status status = write_text(w->to, "config.json", text, strlen(text), err);
    free(text);
    return status;
}

/* The length of the header in eight bytes, then the header, with spaces up to a multiple of eight. */
static crumb_status make_head(const writing *x, uint8_t **head, uint64_t *n_bytes, crumb_error *err) {
    char *text = cJSON_PrintUnformatted(x->header);
    if (!text) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for the list of tensors");
    const uint64_t n = strlen(text), padded = crumb_round_up(n, 8);
    const crumb_status status = crumb_calloc(8 + padded, 1, "the list of tensors", (void **)head, err);
    if (status == CRUMB_OK) {
        memcpy(*head, &padded, 8);
        memset(*head + 8, ' ', padded);
        memcpy(*head + 8, text, n);
        *n_bytes = 8 + padded;
    }
    free(text);
    return status;
}

static crumb_status write_model(writing *x, const char *path, uint64_t *n_kept, crumb_error *err) {
    uint8_t *head = NULL;
    crumb_file_plan plan = {.tensor_bytes = x->tensor_bytes, .n_tensors = x->n_tensors, .alignment = 1};
    crumb_status status = make_head(x, &head, &plan.head_bytes, err);
    plan.head = head;
    if (status == CRUMB_OK) status = crumb_file_writer_open(path, &plan, x->w->identity, &x->out, err);
    if (status == CRUMB_OK) {
        *n_kept = x->n_kept = crumb_file_writer_n_done(x->out);
        status = write_tensors(x, err);
    }
    crumb_file_writer_close(x->out, status == CRUMB_ERR_INTERRUPTED || status == CRUMB_ERR_IO);
    free(head);
    return status;
}

static crumb_status write_folder(writing *x, cJSON *root, uint64_t *n_kept, crumb_error *err) {
    char path[CHECKPOINT_MAX_PATH], old[CHECKPOINT_MAX_PATH];
    const cJSON *w_bits = checkpoint_get(root, "w_bits");
    if (cJSON_IsNumber(w_bits) && w_bits->valuedouble < 16)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "%s: its weights were trained on few levels (w_bits): crumb convert keeps these", x->w->from);
    if (checkpoint_get(root, "quantization_config"))
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s: its weights are packed already (quantization_config)",
                          x->w->from);
    CRUMB_TRY(checkpoint_path(x->w->to, "model.safetensors", path, err));
    CRUMB_TRY(checkpoint_path(x->w->to, "config.json", old, err));
    if (crumb_file_exists(old))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%s: is there already; give another folder", old);
    CRUMB_TRY(checkpoint_files_open(x->w->from, &x->files, err));
    CRUMB_TRY(list_all(x, err));
    CRUMB_TRY(crumb_file_make_folder_of(path, err));
    CRUMB_TRY(write_model(x, path, n_kept, err));
    CRUMB_TRY(copy_others(x->w, err));
    return write_config(x->w, root, err);
}

crumb_status crumb_gptq_write_run(const crumb_gptq_write *w, uint64_t *n_kept, crumb_error *err) {
    writing x = {.w = w};
    cJSON *root;
    *n_kept = 0;
    CRUMB_TRY(checkpoint_read_json(w->from, "config.json", true, &root, err));
    const crumb_status status = write_folder(&x, root, n_kept, err);
    crumb_safetensors_close(x.files);
    cJSON_Delete(x.header);
    cJSON_Delete(root);
    free(x.tensor_bytes);
    return status;
}
