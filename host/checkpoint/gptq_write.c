#include "host/checkpoint/gptq_write.h"

#include "host/base/checked.h"
#include "host/base/file.h"
#include "host/base/half.h"
#include "host/base/memory.h"
#include "host/checkpoint/internal.h"
#include "host/container/file_write.h"
#include "host/container/gguf_rows.h"
#include "host/text/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 32 };

static const char *const part_names[CHECKPOINT_GPTQ_PARTS] = {"g_idx", "qweight", "qzeros", "scales"};

/* A tensor of the model, in the order of the new file. */
typedef struct item {
    const crumb_gguf_tensor *t;
    checkpoint_tensor rows; /* how they change places */
    char name[128];         /* the checkpoint's */
    unsigned layer, rank;
    bool packed;
} item;

struct crumb_gptq_writer {
    crumb_gptq_form form;
    char *path;
    cJSON *config; /* the new config.json */
    item *items;   /* [n_items]: n_plain that are not packed, then the others */
    size_t n_items, n_plain;
    cJSON *header;
    uint8_t *head;
    uint64_t *tensor_bytes; /* of the new file's tensors: one for each that is not packed, four for each that is */
    uint64_t n_tensors, n_bytes;
    crumb_file_writer *out;
};

/* ---- what becomes of a tensor -------------------------------------------------------------------------------- */

/* A matrix of a layer, "model.layers.3.mlp.up_proj.weight", that can be packed. */
static bool is_packed(const crumb_gptq_form *f, const item *it) {
    static const char end[] = "_proj.weight";
    const size_t n = strlen(it->name), n_end = sizeof end - 1;
    if (it->t->n_dims != 2 || strncmp(it->name, "model.layers.", 13) != 0 || n < n_end ||
        strcmp(it->name + n - n_end, end) != 0)
        return false;
    return it->t->dims[0] % BLOCK == 0 && it->t->dims[1] % BLOCK == 0 &&
           (f->group % BLOCK == 0 || it->t->dims[0] % f->group == 0);
}

static int compare_items(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->packed != y->packed) return x->packed ? 1 : -1;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return strcmp(x->name, y->name);
}

static crumb_status find_items(crumb_gptq_writer *w, const crumb_hparams *h, crumb_error *err) {
    const crumb_gguf *g = w->form.from;
    CRUMB_TRY(crumb_calloc(crumb_gguf_n_tensors(g), sizeof *w->items, "the list of tensors", (void **)&w->items, err));
    for (size_t i = 0; i < crumb_gguf_n_tensors(g); i++) {
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(g, i);
        item *it = &w->items[w->n_items];
        if (strcmp(t->name, "rope_freqs.weight") == 0) continue; /* config.json says what they follow from */
        if (!t->supported) return crumb_gguf_require_tensor(g, t->name, &t, err);
        it->t = t;
        if (!checkpoint_name_of(t->name, it->name, &it->layer, &it->rank))
            return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "tensor '%.80s': transformers has no name for it", t->name);
        it->rows.n_heads =
            checkpoint_heads_of(h->architecture, h->num_attention_heads, h->num_key_value_heads, t->name);
        it->packed = is_packed(&w->form, it);
        w->n_plain += !it->packed;
        w->n_items++;
    }
    qsort(w->items, w->n_items, sizeof *w->items, compare_items);
    if (w->n_plain < w->n_items) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "no matrix of its layers has rows and columns in multiples of 32");
}

static crumb_dtype plain_dtype(const item *it) {
    return it->t->type == CRUMB_TYPE_F32    ? CRUMB_DTYPE_F32
           : it->t->type == CRUMB_TYPE_BF16 ? CRUMB_DTYPE_BF16
                                            : CRUMB_DTYPE_F16;
}

static uint64_t plain_bytes(const item *it) {
    return it->t->dims[0] * crumb_gguf_n_rows(it->t) * (plain_dtype(it) == CRUMB_DTYPE_F32 ? 4 : 2);
}

static uint64_t group_of(const crumb_gptq_writer *w, const item *it) {
    return w->form.group && w->form.group < it->t->dims[0] ? w->form.group : it->t->dims[0];
}

/* ---- the header ---------------------------------------------------------------------------------------------- */

static crumb_status list_tensor(crumb_gptq_writer *w, const char *name, crumb_dtype dtype, uint32_t n_dims,
                                const uint64_t *dims, uint64_t n_bytes, crumb_error *err) {
    cJSON *entry = cJSON_AddObjectToObject(w->header, name), *sizes = cJSON_AddArrayToObject(entry, "shape");
    bool good = cJSON_AddStringToObject(entry, "dtype", crumb_dtype_name(dtype)) != NULL;
    for (uint32_t i = 0; i < n_dims; i++) good &= cJSON_AddItemToArray(sizes, cJSON_CreateNumber((double)dims[i]));
    cJSON *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    good &= cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)w->n_bytes));
    good &= cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)(w->n_bytes + n_bytes)));
    if (!good) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for the list of tensors");
    w->tensor_bytes[w->n_tensors++] = n_bytes;
    w->n_bytes += n_bytes;
    return CRUMB_OK;
}

static crumb_status list_packed(crumb_gptq_writer *w, const item *it, crumb_error *err) {
    const uint64_t k = it->t->dims[0], m = it->t->dims[1], n_groups = crumb_div_up(k, group_of(w, it));
    const uint64_t words = m / BLOCK * w->form.bits, rows = k / BLOCK * w->form.bits;
    const uint64_t dims[CHECKPOINT_GPTQ_PARTS][2] = {{k}, {rows, m}, {n_groups, words}, {n_groups, m}};
    checkpoint_gptq_parts parts;
    checkpoint_gptq_layout(m, k, n_groups, w->form.bits, &parts);
    for (int i = 0; i < CHECKPOINT_GPTQ_PARTS; i++) {
        char name[160];
        snprintf(name, sizeof name, "%.*s%s", (int)(strlen(it->name) - 6), it->name, part_names[i]);
        const crumb_dtype dtype = i == CHECKPOINT_SCALES ? CRUMB_DTYPE_F16 : CRUMB_DTYPE_I32;
        CRUMB_TRY(list_tensor(w, name, dtype, i == CHECKPOINT_G_IDX ? 1 : 2, dims[i], parts.n_bytes[i], err));
    }
    return CRUMB_OK;
}

static crumb_status list_plain(crumb_gptq_writer *w, const item *it, crumb_error *err) {
    const uint64_t dims[2] = {it->t->dims[1], it->t->dims[0]};
    const uint32_t n_dims = it->t->n_dims == 1 ? 1 : 2;
    return list_tensor(w, it->name, plain_dtype(it), n_dims, dims + 2 - n_dims, plain_bytes(it), err);
}

static crumb_status list_all(crumb_gptq_writer *w, crumb_error *err) {
    CRUMB_TRY(crumb_calloc(CHECKPOINT_GPTQ_PARTS * w->n_items, sizeof *w->tensor_bytes, "the list of tensors",
                           (void **)&w->tensor_bytes, err));
    w->header = cJSON_CreateObject();
    cJSON_AddStringToObject(cJSON_AddObjectToObject(w->header, "__metadata__"), "format", "pt");
    for (size_t i = 0; i < w->n_items; i++)
        CRUMB_TRY(w->items[i].packed ? list_packed(w, &w->items[i], err) : list_plain(w, &w->items[i], err));
    return CRUMB_OK;
}

/* The length of the header in eight bytes, then the header, with spaces up to a multiple of eight. */
static crumb_status make_head(crumb_gptq_writer *w, uint64_t *n_bytes, crumb_error *err) {
    char *text = cJSON_PrintUnformatted(w->header);
    if (!text) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for the list of tensors");
    const uint64_t n = strlen(text), padded = crumb_round_up(n, 8);
    const crumb_status status = crumb_calloc(8 + padded, 1, "the list of tensors", (void **)&w->head, err);
    if (status == CRUMB_OK) {
        memcpy(w->head, &padded, 8);
        memset(w->head + 8, ' ', padded);
        memcpy(w->head + 8, text, n);
        *n_bytes = 8 + padded;
    }
    free(text);
    return status;
}

/* ---- tensors that are not packed ----------------------------------------------------------------------------- */

static crumb_status put_value(const item *it, float value, uint8_t *out, crumb_error *err) {
    const crumb_dtype dtype = plain_dtype(it);
    if (dtype == CRUMB_DTYPE_F32) return memcpy(out, &value, 4), CRUMB_OK;
    const uint16_t half = dtype == CRUMB_DTYPE_BF16 ? crumb_f32_to_bf16(value) : crumb_f32_to_f16(value);
    if (dtype == CRUMB_DTYPE_F16 && (half & 0x7fff) == 0x7c00)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "tensor '%.80s': a weight of %g is more than F16 holds",
                          it->t->name, (double)value);
    memcpy(out, &half, 2);
    return CRUMB_OK;
}

/* Rows of a matrix, or the numbers of a vector, in the checkpoint's order. */
static crumb_status convert(const crumb_gptq_writer *w, const item *it, float *row, uint8_t *out, crumb_error *err) {
    const bool vector = it->t->n_dims == 1;
    const uint64_t k = it->t->dims[0], n_rows = vector ? k : crumb_gguf_n_rows(it->t), width = vector ? 1 : k;
    const uint64_t size = plain_bytes(it) / (n_rows * width);
    for (uint64_t m = 0; m < n_rows; m++) {
        const uint64_t to = checkpoint_row_from(&it->rows, n_rows, m);
        if (!vector || m == 0) CRUMB_TRY(crumb_gguf_read_rows(w->form.from, it->t, vector ? 0 : m, 1, row, err));
        for (uint64_t i = 0; i < width; i++)
            CRUMB_TRY(put_value(it, row[vector ? m : i], out + (to * width + i) * size, err));
    }
    return CRUMB_OK;
}

static crumb_status write_plain(const crumb_gptq_writer *w, const item *it, crumb_error *err) {
    const uint64_t n_bytes = plain_bytes(it);
    uint8_t *out = NULL;
    float *row;
    CRUMB_TRY(crumb_calloc(it->t->dims[0], sizeof *row, "a row of weights", (void **)&row, err));
    crumb_status status = crumb_pages_alloc(n_bytes, "a tensor", (void **)&out, err);
    if (status == CRUMB_OK) status = crumb_gguf_tensor_hold(w->form.from, it->t, err);
    if (status == CRUMB_OK) {
        status = convert(w, it, row, out, err);
        crumb_gguf_tensor_drop(w->form.from, it->t);
        crumb_gguf_tensor_release(w->form.from, it->t);
    }
    if (status == CRUMB_OK) status = crumb_file_writer_append(w->out, out, n_bytes, err);
    if (out) crumb_pages_free(out, n_bytes);
    free(row);
    return status;
}

/* ---- opening and closing ------------------------------------------------------------------------------------- */

/* Of the model, with what says how its weights are packed. */
static crumb_status make_config(crumb_gptq_writer *w, const crumb_hparams *h, crumb_error *err) {
    const crumb_gptq_form *f = &w->form;
    if (crumb_folder_exists(f->from_path))
        CRUMB_TRY(checkpoint_read_json(f->from_path, "config.json", true, &w->config, err));
    else
        CRUMB_TRY(checkpoint_config_make(f->from, h, &w->config, err));
    const cJSON *w_bits = checkpoint_get(w->config, "w_bits");
    if (cJSON_IsNumber(w_bits) && w_bits->valuedouble < 16)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "%s: its weights were trained on few levels (w_bits): crumb convert keeps these",
                          f->from_path);
    cJSON_DeleteItemFromObjectCaseSensitive(w->config, "quantization_config");
    cJSON *q = cJSON_AddObjectToObject(w->config, "quantization_config");
    cJSON_AddStringToObject(q, "quant_method", "gptq");
    cJSON_AddNumberToObject(q, "bits", f->bits);
    cJSON_AddNumberToObject(q, "group_size", f->group ? (double)f->group : -1);
    cJSON_AddBoolToObject(q, "desc_act", f->free_groups);
    cJSON_AddFalseToObject(q, "sym");
    cJSON_AddStringToObject(q, "checkpoint_format", "gptq");
    return CRUMB_OK;
}

static crumb_status check_folder(crumb_gptq_writer *w, crumb_error *err) {
    char path[CHECKPOINT_MAX_PATH];
    CRUMB_TRY(checkpoint_path(w->form.to, "config.json", path, err));
    if (crumb_file_exists(path))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%s: is there already; give another folder", path);
    CRUMB_TRY(checkpoint_path(w->form.to, "model.safetensors", path, err));
    w->path = strdup(path);
    return w->path ? CRUMB_OK : crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a path");
}

static crumb_status read_hparams(const crumb_gguf *g, crumb_hparams *h, crumb_error *err) {
    crumb_bytes name;
    char architecture[sizeof h->architecture];
    CRUMB_TRY(crumb_gguf_get_string(g, "general.architecture", true, &name, err));
    snprintf(architecture, sizeof architecture, "%.*s", (int)(name.size < 31 ? name.size : 31), name.data);
    return crumb_hparams_read(g, architecture, h, err);
}

/* What cannot be written is found out before all the work. */
static crumb_status check_vocabulary(const crumb_gptq_writer *w, crumb_error *err) {
    char *text = NULL;
    if (crumb_folder_exists(w->form.from_path)) return CRUMB_OK;
    const crumb_status status = crumb_tokenizer_json_from_keys(w->form.from, &text, err);
    free(text);
    return status;
}

static crumb_status begin(crumb_gptq_writer *w, crumb_error *err) {
    crumb_hparams h;
    crumb_file_plan plan = {.alignment = 1};
    CRUMB_TRY(check_folder(w, err));
    CRUMB_TRY(read_hparams(w->form.from, &h, err));
    CRUMB_TRY(make_config(w, &h, err));
    CRUMB_TRY(check_vocabulary(w, err));
    CRUMB_TRY(find_items(w, &h, err));
    CRUMB_TRY(list_all(w, err));
    CRUMB_TRY(make_head(w, &plan.head_bytes, err));
    CRUMB_TRY(crumb_file_make_folder_of(w->path, err));
    plan.head = w->head;
    plan.tensor_bytes = w->tensor_bytes;
    plan.n_tensors = w->n_tensors;
    CRUMB_TRY(crumb_file_writer_open(w->path, &plan, w->form.identity, &w->out, err));
    for (uint64_t i = crumb_file_writer_n_done(w->out); i < w->n_plain; i++)
        CRUMB_TRY(write_plain(w, &w->items[i], err));
    return CRUMB_OK;
}

crumb_status crumb_gptq_writer_open(const crumb_gptq_form *form, crumb_gptq_writer **out, crumb_error *err) {
    crumb_gptq_writer *w;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof *w, "a checkpoint's writer", (void **)&w, err));
    w->form = *form;
    const crumb_status status = begin(w, err);
    if (status == CRUMB_OK)
        *out = w;
    else
        crumb_gptq_writer_close(w, status == CRUMB_ERR_IO);
    return status;
}

void crumb_gptq_writer_close(crumb_gptq_writer *w, bool keep) {
    if (!w) return;
    crumb_file_writer_close(w->out, keep);
    cJSON_Delete(w->config);
    cJSON_Delete(w->header);
    free(w->head);
    free(w->items);
    free(w->tensor_bytes);
    free(w->path);
    free(w);
}

/* ---- matrices ------------------------------------------------------------------------------------------------ */

size_t crumb_gptq_writer_n(const crumb_gptq_writer *w) {
    return w->n_items - w->n_plain;
}

size_t crumb_gptq_writer_n_done(const crumb_gptq_writer *w) {
    return (crumb_file_writer_n_done(w->out) - w->n_plain) / CHECKPOINT_GPTQ_PARTS;
}

const crumb_gguf_tensor *crumb_gptq_writer_tensor(const crumb_gptq_writer *w, size_t index) {
    return w->items[w->n_plain + index].t;
}

crumb_status crumb_gptq_writer_alloc(const crumb_gptq_writer *w, size_t index, crumb_coded *out, crumb_error *err) {
    const item *it = &w->items[w->n_plain + index];
    return crumb_coded_alloc(it->t->dims[1], it->t->dims[0], group_of(w, it), w->form.bits, out, err);
}

/* Room for all parts, one behind the other. */
static crumb_status alloc_parts(const crumb_coded *codes, checkpoint_gptq_parts *parts, uint64_t *n_bytes,
                                crumb_error *err) {
    uint8_t *base;
    checkpoint_gptq_layout(codes->m, codes->k, codes->n_groups, codes->bits, parts);
    *n_bytes = 0;
    for (int i = 0; i < CHECKPOINT_GPTQ_PARTS; i++) *n_bytes += parts->n_bytes[i];
    CRUMB_TRY(crumb_pages_alloc(*n_bytes, "a matrix", (void **)&base, err));
    for (int i = 0; i < CHECKPOINT_GPTQ_PARTS; base += parts->n_bytes[i++]) parts->bytes[i] = base;
    return CRUMB_OK;
}

crumb_status crumb_gptq_writer_append(crumb_gptq_writer *w, const crumb_coded *codes, int n_threads, crumb_error *err) {
    const uint64_t n_done = crumb_file_writer_n_done(w->out) - w->n_plain;
    const item *it = &w->items[w->n_plain + n_done / CHECKPOINT_GPTQ_PARTS];
    checkpoint_gptq_parts parts;
    uint64_t n_bytes;
    CRUMB_TRY(alloc_parts(codes, &parts, &n_bytes, err));
    crumb_status status = checkpoint_gptq_pack(codes, &it->rows, n_threads, &parts, err);
    /* an earlier run may have been ended between two of them */
    for (uint64_t i = n_done % CHECKPOINT_GPTQ_PARTS; i < CHECKPOINT_GPTQ_PARTS && status == CRUMB_OK; i++)
        status = crumb_file_writer_append(w->out, parts.bytes[i], parts.n_bytes[i], err);
    crumb_pages_free(parts.bytes[0], n_bytes);
    return status;
}

crumb_status crumb_gptq_writer_read(const crumb_gptq_writer *w, size_t index, crumb_coded *out, crumb_error *err) {
    const item *it = &w->items[w->n_plain + index];
    checkpoint_gptq_parts parts;
    uint64_t n_bytes;
    CRUMB_TRY(alloc_parts(out, &parts, &n_bytes, err));
    crumb_status status = CRUMB_OK;
    for (uint64_t i = 0; i < CHECKPOINT_GPTQ_PARTS && status == CRUMB_OK; i++)
        status = crumb_file_writer_read(w->out, w->n_plain + index * CHECKPOINT_GPTQ_PARTS + i, parts.bytes[i], err);
    if (status == CRUMB_OK) checkpoint_gptq_unpack(&parts, &it->rows, out);
    crumb_pages_free(parts.bytes[0], n_bytes);
    return status;
}

/* ---- the rest ------------------------------------------------------------------------------------------------ */

static crumb_status copy_others(const crumb_gptq_form *f, crumb_error *err) {
    static const char *const names[] = {"tokenizer.json",         "tokenizer_config.json", "special_tokens_map.json",
                                        "generation_config.json", "chat_template.jinja",   "chat_template.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *text;
        size_t n;
        CRUMB_TRY(checkpoint_read(f->from_path, names[i], false, &text, &n, err));
        const crumb_status status = text ? checkpoint_write_text(f->to, names[i], text, n, err) : CRUMB_OK;
        free(text);
        CRUMB_TRY(status);
    }
    return CRUMB_OK;
}

crumb_status crumb_gptq_writer_finish(crumb_gptq_writer *w, crumb_error *err) {
    if (crumb_folder_exists(w->form.from_path))
        CRUMB_TRY(copy_others(&w->form, err));
    else
        CRUMB_TRY(checkpoint_vocabulary_write(w->form.from, w->form.to, err));
    CRUMB_TRY(crumb_file_writer_finish(w->out, err)); /* behind what may fail still: what is done can be taken up */
    char *text = cJSON_Print(w->config);
    if (!text) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for config.json");
    const crumb_status status = checkpoint_write_text(w->form.to, "config.json", text, strlen(text), err);
    free(text);
    return status;
}
