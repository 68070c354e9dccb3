/* The folder's tensors under GGUF's names and in its order of rows. */
#include "host/base/file.h"
#include "host/base/half.h"
#include "host/base/memory.h"
#include "host/checkpoint/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tensors {
    crumb_safetensors *files;
    checkpoint_tensor *list; /* [n] */
    crumb_gguf_tensor *described;
    size_t n;
    float divisors[CHECKPOINT_MAX_ROPE];
    uint32_t n_divisors;
    struct checkpoint_packing packing;
} tensors;

/* What a model computes with is in its weights; older files have tables beside them that follow from config.json. */
static bool is_table(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".inv_freq") == 0;
}

/* ---- contents ------------------------------------------------------------------------------------------------ */

/* RoPE turns pairs (i, i + head_dim/2) of a head in a checkpoint, and (2i, 2i + 1) in a GGUF file of llama: the row of
 * the checkpoint that becomes row m. */
uint64_t checkpoint_row_from(const checkpoint_tensor *t, uint64_t n_rows, uint64_t m) {
    if (!t->n_heads) return m;
    const uint64_t head_dim = n_rows / t->n_heads, within = m % head_dim;
    return m - within + within % 2 * (head_dim / 2) + within / 2;
}

uint64_t checkpoint_row_to(const checkpoint_tensor *t, uint64_t n_rows, uint64_t row) {
    if (!t->n_heads) return row;
    const uint64_t head_dim = n_rows / t->n_heads, within = row % head_dim;
    return row - within + within % (head_dim / 2) * 2 + within / (head_dim / 2);
}

float checkpoint_load_float(crumb_dtype dtype, const uint8_t *p) {
    uint16_t half;
    float value;
    memcpy(&half, p, 2);
    if (dtype == CRUMB_DTYPE_F16) return crumb_f16_to_f32(half);
    if (dtype == CRUMB_DTYPE_BF16) return crumb_bf16_to_f32(half);
    memcpy(&value, p, 4);
    return value;
}

typedef struct making {
    const tensors *all;
    const checkpoint_tensor *t;
    uint8_t *out;
} making;

/* Runs inside crumb_file_guard. */
static crumb_status make_guarded(void *ctx, crumb_error *err) {
    const making *m = ctx;
    const checkpoint_tensor *t = m->t;
    if (t->kind == CHECKPOINT_LEVELS) return checkpoint_levels_make(m->all->files, t, m->out, err);
    if (t->packing) return checkpoint_packed_make(m->all->files, t, m->out, err);
    const uint8_t *in = crumb_safetensors_data(m->all->files, t->from);
    const uint64_t n_rows = t->from->dims[0], row_bytes = t->from->n_bytes / n_rows;
    for (uint64_t i = 0; i < n_rows; i++) {
        const uint8_t *row = in + checkpoint_row_from(t, n_rows, i) * row_bytes;
        const float value = t->kind == CHECKPOINT_FLOATS ? checkpoint_load_float(t->from->dtype, row) : 0;
        if (t->kind == CHECKPOINT_FLOATS)
            memcpy(m->out + i * sizeof value, &value, sizeof value);
        else
            memcpy(m->out + i * row_bytes, row, row_bytes);
    }
    return CRUMB_OK;
}

static crumb_status make(void *user, size_t index, uint8_t *out, crumb_error *err) {
    const tensors *all = user;
    const making m = {all, &all->list[index], out};
    if (m.t->kind == CHECKPOINT_DIVISORS) {
        memcpy(out, all->divisors, all->n_divisors * sizeof *all->divisors);
        return CRUMB_OK;
    }
    return crumb_file_guard(crumb_safetensors_path(all->files, m.t->from), make_guarded, (void *)(uintptr_t)&m, err);
}

static const uint8_t *view(void *user, size_t index) {
    const tensors *all = user;
    const checkpoint_tensor *t = &all->list[index];
    return t->kind == CHECKPOINT_AS_IT_IS ? crumb_safetensors_data(all->files, t->from) : NULL;
}

static void release(void *user, size_t index) {
    const tensors *all = user;
    const checkpoint_tensor *t = &all->list[index];
    const crumb_safetensor *const parts[] = {t->from, t->scales, t->zeros, t->group_of};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i]) crumb_safetensors_release(all->files, parts[i]);
}

static void close_tensors(void *user) {
    tensors *all = user;
    crumb_safetensors_close(all->files);
    for (size_t i = 0; i < all->n; i++) free(all->list[i].order);
    free(all->list);
    free(all->described);
    free(all);
}

/* ---- the list ------------------------------------------------------------------------------------------------ */

static crumb_status fail(const tensors *all, const crumb_safetensor *from, const char *problem, crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s: tensor '%.80s': %s", crumb_safetensors_path(all->files, from),
                      from->name, problem);
}

static crumb_gguf_tensor *add(tensors *all, const checkpoint_tensor *t, crumb_type type, uint32_t type_id) {
    checkpoint_tensor *kept = &all->list[all->n];
    crumb_gguf_tensor *d = &all->described[all->n++];
    *kept = *t;
    *d = (crumb_gguf_tensor){.name = kept->name, .n_dims = 1, .dims = {1, 1, 1, 1}, .type = type, .type_id = type_id};
    return d;
}

static bool dense_type(crumb_dtype dtype, crumb_type *type, uint32_t *id) {
    switch (dtype) {
    case CRUMB_DTYPE_F32: return *type = CRUMB_TYPE_F32, *id = 0, true;
    case CRUMB_DTYPE_F16: return *type = CRUMB_TYPE_F16, *id = 1, true;
    case CRUMB_DTYPE_BF16: return *type = CRUMB_TYPE_BF16, *id = 30, true;
    default: return false;
    }
}

/* A matrix on levels: *found says whether it is one. */
static crumb_status add_levels(tensors *all, checkpoint_tensor *t, bool *found, crumb_error *err) {
    static const enum checkpoint_levels of_bits[] = {CHECKPOINT_LEVELS_TERNARY, CHECKPOINT_LEVELS_SIGN,
                                                     CHECKPOINT_LEVELS_SEQ, CHECKPOINT_LEVELS_3_BITS,
                                                     CHECKPOINT_LEVELS_4_BITS};
    crumb_gguf_tensor d = {.dims = {1, 1, 1, 1}};
    const bool paretoq = all->packing.method == CHECKPOINT_PARETOQ, in_layer = strncmp(t->name, "blk.", 4) == 0;
    *found = false;
    t->scales = paretoq ? checkpoint_beside(all->files, t, "weight_clip_val") : NULL;
    if (t->scales) t->levels = of_bits[all->packing.bits];
    if (!t->scales && (!in_layer || (!paretoq && all->packing.method != CHECKPOINT_PLAIN))) return CRUMB_OK;
    CRUMB_TRY(checkpoint_levels_plan(all->files, t, &d, found, err));
    crumb_safetensors_release(all->files, t->from);
    if (!*found && paretoq)
        return fail(all, t->from,
                    "neither weight_clip_val is beside it nor is it on levels, though config.json has w_bits", err);
    if (!*found) return CRUMB_OK;
    crumb_gguf_tensor *kept = add(all, t, d.type, d.type_id);
    kept->n_dims = 2;
    memcpy(kept->dims, d.dims, sizeof d.dims);
    return CRUMB_OK;
}

static crumb_status add_dense(tensors *all, checkpoint_tensor *t, crumb_error *err) {
    const crumb_safetensor *from = t->from;
    crumb_type type;
    uint32_t id;
    if (!dense_type(from->dtype, &type, &id)) return fail(all, from, "weights should be F32, F16 or BF16", err);
    if (from->n_dims < 1 || from->n_dims > 2) return fail(all, from, "neither a vector nor a matrix", err);
    if (from->n_values == 0) return fail(all, from, "it is empty", err);
    if (t->n_heads && (from->dims[0] % t->n_heads != 0 || from->dims[0] / t->n_heads % 2 != 0))
        return fail(all, from,
                    "its rows are not whole heads by config.json's keys 'num_attention_heads', 'num_key_value_heads'",
                    err);
    bool on_levels = false;
    if (from->n_dims == 2) CRUMB_TRY(add_levels(all, t, &on_levels, err));
    if (on_levels) return CRUMB_OK;
    t->kind = from->n_dims == 1 ? CHECKPOINT_FLOATS : t->n_heads ? CHECKPOINT_ROWS : CHECKPOINT_AS_IT_IS;
    if (from->n_dims == 1) type = CRUMB_TYPE_F32, id = 0;
    crumb_gguf_tensor *d = add(all, t, type, id);
    d->n_dims = from->n_dims;
    d->dims[0] = from->dims[from->n_dims - 1];
    if (from->n_dims == 2) d->dims[1] = from->dims[0];
    return CRUMB_OK;
}

uint32_t checkpoint_heads_of(const char *architecture, uint32_t n_heads, uint32_t n_heads_kv, const char *name) {
    const char *dot = strchr(name, '.'), *tensor = dot ? strchr(dot + 1, '.') : NULL;
    if (strcmp(architecture, "llama") != 0 || !tensor) return 0;
    const size_t n = strcspn(tensor + 1, ".");
    return n == 6 && strncmp(tensor, ".attn_q", 7) == 0   ? n_heads
           : n == 6 && strncmp(tensor, ".attn_k", 7) == 0 ? n_heads_kv
                                                          : 0;
}

static crumb_status add_packed(tensors *all, checkpoint_tensor *t, const char *name, crumb_error *err) {
    crumb_gguf_tensor d = {.dims = {1, 1, 1, 1}};
    snprintf(t->name, sizeof t->name, "%s.weight", name);
    t->packing = &all->packing;
    CRUMB_TRY(checkpoint_packed_plan(all->files, t, &d, err));
    crumb_gguf_tensor *kept = add(all, t, d.type, d.type_id);
    kept->n_dims = 2;
    kept->order = d.order;
    memcpy(kept->dims, d.dims, sizeof d.dims);
    return CRUMB_OK;
}

static crumb_status add_part(tensors *all, const checkpoint_config *c, checkpoint_tensor *t,
                             const checkpoint_name *name, crumb_error *err) {
    const crumb_safetensor *from = t->from;
    bool is_absmean;
    CRUMB_TRY(checkpoint_is_absmean(c, from, &is_absmean, err));
    if (is_absmean || checkpoint_is_packed(&c->packing, name->part, from->dtype))
        return add_packed(all, t, name->gguf, err);
    if (checkpoint_is_beside(&c->packing, name->part)) return CRUMB_OK;
    if (strcmp(name->part, "weight_clip_val") == 0)
        return fail(all, from, "scales as ParetoQ trains them, but config.json has no w_bits that says of which levels",
                    err);
    if (strcmp(name->part, "weight") != 0 && strcmp(name->part, "bias") != 0)
        return fail(all, from,
                    "neither a weight nor a bias, nor packed as the folder's settings (quantization_config) say", err);
    snprintf(t->name, sizeof t->name, "%s.%s", name->gguf, name->part);
    return add_dense(all, t, err);
}

static crumb_status add_one(tensors *all, const checkpoint_config *c, const crumb_safetensor *from, crumb_error *err) {
    checkpoint_tensor t = {.from = from};
    const size_t n_before = all->n;
    if (is_table(from->name)) return CRUMB_OK;
    const checkpoint_name name = checkpoint_translate(from->name);
    if (!name.pair)
        return fail(all, from, "not part of a model as crumb knows it: running without it would be wrong", err);
    if (name.layer >= c->n_layers)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: key 'num_hidden_layers': %u, but there is a tensor '%.80s'",
                          c->path, c->n_layers, from->name);
    /* the embedding is used, whatever is stored here */
    if (c->tied && strcmp(name.gguf, "output") == 0) return CRUMB_OK;
    t.n_heads = checkpoint_heads_of(c->architecture, c->n_heads, c->n_heads_kv, name.gguf);
    CRUMB_TRY(add_part(all, c, &t, &name, err));
    return all->n == n_before ? CRUMB_OK : checkpoint_check_sizes(c, &name, from->name, &all->described[n_before], err);
}

/* What config.json says that there is, and there is not. */
static crumb_status check_what_is_said(const tensors *all, const checkpoint_config *c, crumb_error *err) {
    const struct {
        bool said;
        const char *key, *tensor;
    } biases[] = {{c->attention_bias, "attention_bias", "model.layers.0.self_attn.q_proj.bias"},
                  {c->mlp_bias, "mlp_bias", "model.layers.0.mlp.gate_proj.bias"}};
    const checkpoint_object root = {.path = c->path, .err = err};
    char last[64];
    size_t n_packed = 0;
    snprintf(last, sizeof last, "model.layers.%u.input_layernorm.weight", c->n_layers - 1);
    if (!crumb_safetensors_find(all->files, last))
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: key 'num_hidden_layers': %u, but there is no tensor '%s'",
                          c->path, c->n_layers, last);
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        if (biases[i].said && !crumb_safetensors_find(all->files, biases[i].tensor))
            return checkpoint_damaged(&root, biases[i].key, "true, but the first layer has no such tensor");
    for (size_t i = 0; i < all->n; i++) n_packed += all->list[i].packing != NULL;
    if (n_packed || c->packing.method == CHECKPOINT_PLAIN || c->packing.method == CHECKPOINT_PARETOQ) return CRUMB_OK;
    return crumb_fail(
        err, CRUMB_ERR_FORMAT,
        "%s: key 'quantization_config.quant_method' (or quant_method in a file of settings beside it): no "
        "tensor is packed so",
        c->path);
}

static crumb_status add_all(tensors *all, const checkpoint_config *c, crumb_error *err) {
    const size_t n = crumb_safetensors_n(all->files);
    all->packing = c->packing;
    CRUMB_TRY(crumb_calloc(n + 1, sizeof *all->list, "the list of tensors", (void **)&all->list, err));
    CRUMB_TRY(crumb_calloc(n + 1, sizeof *all->described, "the list of tensors", (void **)&all->described, err));
    for (size_t i = 0; i < n; i++) CRUMB_TRY(add_one(all, c, crumb_safetensors_at(all->files, i), err));
    CRUMB_TRY(check_what_is_said(all, c, err));
    if (!c->n_divisors) return CRUMB_OK;
    all->n_divisors = c->n_divisors;
    memcpy(all->divisors, c->divisors, sizeof all->divisors);
    add(all, &(checkpoint_tensor){.name = "rope_freqs.weight", .kind = CHECKPOINT_DIVISORS}, CRUMB_TYPE_F32, 0)
        ->dims[0] = c->n_divisors;
    return CRUMB_OK;
}

crumb_status checkpoint_tensors_open(const checkpoint_config *c, crumb_safetensors *files, crumb_gguf_source *out,
                                     crumb_error *err) {
    tensors *all;
    crumb_status status = crumb_calloc(1, sizeof *all, "the list of tensors", (void **)&all, err);
    if (status != CRUMB_OK) {
        crumb_safetensors_close(files);
        return status;
    }
    all->files = files;
    status = add_all(all, c, err);
    if (status != CRUMB_OK) {
        close_tensors(all);
        return status;
    }
    *out = (crumb_gguf_source){.user = all,
                               .tensors = all->described,
                               .n = all->n,
                               .view = view,
                               .make = make,
                               .release = release,
                               .close = close_tensors};
    return CRUMB_OK;
}
