#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* State of one planning pass. */
typedef struct planner {
    const crumb_gguf *g;
    const uint8_t *memories; /* of layers and head; NULL: all in the first */
    uint8_t memory;          /* that entries are added to */
    size_t layer_begin;      /* the first entry of the layer under way */
    crumb_network *net;
    crumb_weights *out;
    bool *used; /* per tensor of the file */
    crumb_error *err;
} planner;

static uint32_t dim_value(const crumb_hparams *h, crumb_dim d) {
    switch (d) {
    case CRUMB_DIM_HIDDEN: return h->hidden_size;
    case CRUMB_DIM_FF: return h->intermediate_size;
    case CRUMB_DIM_Q: return h->num_attention_heads * h->head_dim;
    case CRUMB_DIM_KV: return h->num_key_value_heads * h->head_dim;
    case CRUMB_DIM_HEAD: return h->head_dim;
    case CRUMB_DIM_VOCAB: return h->vocab_size;
    case CRUMB_DIM_ROPE_HALF: return h->rope_dims / 2;
    case CRUMB_DIM_ONE: break;
    }
    return 1;
}

/* The tensor called name, with the given shape (k columns, m rows; m = 1 for a vector), or NULL when it is absent. */
static crumb_status take(planner *p, const char *name, uint64_t k, uint64_t m, bool required,
                         const crumb_gguf_tensor **out) {
    const crumb_gguf_tensor *t = crumb_gguf_find_tensor(p->g, name);
    *out = t;
    if (!t) {
        if (!required) return CRUMB_OK;
        return crumb_fail(p->err, CRUMB_ERR_FORMAT, "tensor '%s' is missing", name);
    }
    if (!t->supported) return crumb_gguf_require_tensor(p->g, name, out, p->err); /* which says why */
    if (t->dims[0] != k || t->dims[1] != m || t->dims[2] != 1 || t->dims[3] != 1)
        return crumb_fail(p->err, CRUMB_ERR_FORMAT,
                          "tensor '%s' is %llu x %llu, but the model's keys ask for %llu x %llu", name,
                          (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], (unsigned long long)k,
                          (unsigned long long)m);
    p->used[t - crumb_gguf_tensor_at(p->g, 0)] = true; /* tensors lie in one array */
    return CRUMB_OK;
}

static crumb_status add_entry(planner *p, crumb_weights_entry entry, uint64_t n_bytes) {
    crumb_weights *w = p->out;
    if (w->n_entries == w->capacity) {
        size_t larger = w->capacity ? 2 * w->capacity : 256;
        void *grown = realloc(w->entries, larger * sizeof *w->entries);
        if (!grown) return crumb_fail(p->err, CRUMB_ERR_MEMORY, "not enough memory for the list of tensors");
        w->entries = grown;
        w->capacity = larger;
    }
    uint64_t *total = &w->total_bytes[p->memory], end;
    entry.memory = p->memory;
    if (!entry.is_there) entry.offset = *total;
    w->entries[w->n_entries++] = entry;
    if (entry.is_there) return CRUMB_OK;
    if (!crumb_add_u64(*total, n_bytes, &end) || end > INT64_MAX)
        return crumb_fail(p->err, CRUMB_ERR_FORMAT, "the tensors' sizes overflow");
    *total = crumb_round_up(end, 64);
    return CRUMB_OK;
}

static bool is_dense(const crumb_gguf_tensor *t) {
    return crumb_type_get_info(t->type)->bits == 0;
}

static crumb_status add_vector(planner *p, const char *name, uint64_t k, bool required, const float **vector) {
    const crumb_gguf_tensor *t;
    CRUMB_TRY(take(p, name, k, 1, required, &t));
    if (!t) return CRUMB_OK;
    if (!is_dense(t)) return crumb_fail(p->err, CRUMB_ERR_UNSUPPORTED, "tensor '%s' should be F32, F16 or BF16", name);
    return add_entry(p, (crumb_weights_entry){.tensor = t, .vector = vector}, k * sizeof(float));
}

static crumb_status add_scalar(planner *p, const char *name, float *scalar) {
    const crumb_gguf_tensor *t;
    CRUMB_TRY(take(p, name, 1, 1, false, &t));
    if (!t) return CRUMB_OK;
    if (!is_dense(t)) return crumb_fail(p->err, CRUMB_ERR_UNSUPPORTED, "tensor '%s' should be F32, F16 or BF16", name);
    return add_entry(p, (crumb_weights_entry){.tensor = t, .scalar = scalar}, 0);
}

/* Matrices of a layer that share their input mostly have one order, which is then there once. */
static crumb_status add_order(planner *p, const crumb_gguf_tensor *t, const uint32_t **order) {
    const size_t n_bytes = (size_t)t->dims[0] * sizeof *t->order;
    crumb_weights_entry entry = {.tensor = t, .order = order};
    for (size_t i = p->layer_begin; i < p->out->n_entries && !entry.is_there; i++) {
        const crumb_weights_entry *e = &p->out->entries[i];
        if (!e->order || e->tensor->dims[0] != t->dims[0] || memcmp(e->tensor->order, t->order, n_bytes) != 0) continue;
        entry.is_there = true;
        entry.offset = e->offset;
    }
    return add_entry(p, entry, n_bytes);
}

/* `order`: where the order of its columns goes; NULL: they must stand where they belong. */
static crumb_status add_matrix(planner *p, const char *name, uint64_t m, uint64_t k, bool required,
                               crumb_matrix *matrix, const uint32_t **order) {
    const crumb_gguf_tensor *t;
    CRUMB_TRY(take(p, name, k, m, required, &t));
    if (!t) return CRUMB_OK;
    crumb_weights_entry entry = {.tensor = t, .matrix = matrix};
    crumb_status status = crumb_matrix_plan(t->type, m, k, matrix, &entry.layout, p->err);
    if (status != CRUMB_OK) return crumb_fail_prefix(p->err, status, "tensor '%s'", name);
    if (t->order && !order)
        return crumb_fail(
            p->err, CRUMB_ERR_UNSUPPORTED,
            "tensor '%s' has its columns in an order of their own (act-order), which crumb does not do here", name);
    if (t->order) CRUMB_TRY(add_order(p, t, order));
    return add_entry(p, entry, entry.layout.total_bytes);
}

/* PREFIX.weight with its optional .scale and .bias, which may have to be there. */
static crumb_status add_weight(planner *p, const char *prefix, uint64_t m, uint64_t k, bool required, bool biased,
                               crumb_weight *w) {
    char name[160];
    w->scale = 1;
    snprintf(name, sizeof name, "%s.weight", prefix);
    CRUMB_TRY(add_matrix(p, name, m, k, required, &w->matrix, &w->order));
    snprintf(name, sizeof name, "%s.scale", prefix);
    CRUMB_TRY(add_scalar(p, name, &w->scale));
    snprintf(name, sizeof name, "%s.bias", prefix);
    return add_vector(p, name, m, biased, &w->bias);
}

static crumb_status plan_layer(planner *p, uint32_t index) {
    const crumb_arch *arch = p->net->arch;
    const crumb_hparams *h = &p->net->hparams;
    char *layer = (char *)&p->net->layers[index];
    for (size_t i = 0; i < arch->n_layer_tensors; i++) {
        const crumb_tensor_rule *rule = &arch->layer_tensors[i];
        char name[128];
        uint32_t k = dim_value(h, rule->k);
        if (rule->kind == CRUMB_TENSOR_VECTOR) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", index, rule->name);
            CRUMB_TRY(add_vector(p, name, k, true, (const float **)(void *)(layer + rule->offset)));
        } else {
            snprintf(name, sizeof name, "blk.%u.%s", index, rule->name);
            CRUMB_TRY(add_weight(p, name, dim_value(h, rule->m), k, true, rule->biased,
                                 (crumb_weight *)(void *)(layer + rule->offset)));
        }
    }
    return CRUMB_OK;
}

static crumb_status refuse_unused(planner *p) {
    for (size_t i = 0; i < crumb_gguf_n_tensors(p->g); i++)
        if (!p->used[i])
            return crumb_fail(
                p->err, CRUMB_ERR_UNSUPPORTED,
                "tensor '%s' is not part of architecture '%s' as crumb knows it: running without it would be wrong",
                crumb_gguf_tensor_at(p->g, i)->name, p->net->arch->name);
    return CRUMB_OK;
}

static uint8_t memory_of(const planner *p, uint32_t layer) {
    return p->memories ? p->memories[layer] : 0;
}

/* The head, which may be the embedding once more. */
static crumb_status plan_head(planner *p) {
    crumb_network *net = p->net;
    const crumb_hparams *h = &net->hparams;
    p->memory = memory_of(p, h->num_hidden_layers);
    CRUMB_TRY(add_vector(p, "output_norm.weight", h->hidden_size, true, &net->output_norm));
    net->tied = crumb_gguf_find_tensor(p->g, "output.weight") == NULL;
    CRUMB_TRY(add_weight(p, "output", h->vocab_size, h->hidden_size, !net->tied, false, &net->head));
    p->out->head_apart = net->tied && p->memory != memory_of(p, 0);
    if (!p->out->head_apart) return CRUMB_OK;
    return add_matrix(p, "token_embd.weight", h->vocab_size, h->hidden_size, true, &net->head.matrix, NULL);
}

static void plan_frequencies(planner *p) {
    for (int i = 0; i < CRUMB_WEIGHTS_MEMORIES; i++) {
        p->out->inv_freq_offset[i] = p->out->total_bytes[i];
        if (p->out->total_bytes[i])
            p->out->total_bytes[i] += crumb_round_up((uint64_t)p->net->hparams.rope_dims / 2 * sizeof(float), 64);
    }
}

static crumb_status plan_all(planner *p) {
    crumb_network *net = p->net;
    const crumb_hparams *h = &net->hparams;
    p->memory = memory_of(p, 0);
    CRUMB_TRY(add_matrix(p, "token_embd.weight", h->vocab_size, h->hidden_size, true, &net->embedding, NULL));
    CRUMB_TRY(plan_head(p));
    for (uint32_t i = 0; i < h->num_hidden_layers; i++) {
        p->memory = memory_of(p, i);
        p->layer_begin = p->out->n_entries;
        CRUMB_TRY(plan_layer(p, i));
    }
    CRUMB_TRY(take(p, "rope_freqs.weight", h->rope_dims / 2, 1, false, &p->out->rope_freqs));
    if (p->out->rope_freqs && !is_dense(p->out->rope_freqs))
        return crumb_fail(p->err, CRUMB_ERR_UNSUPPORTED, "tensor 'rope_freqs.weight' should be F32");
    plan_frequencies(p);
    return refuse_unused(p);
}

crumb_status crumb_weights_plan(const crumb_gguf *g, const uint8_t *memories, crumb_network *net, crumb_weights *out,
                                crumb_error *err) {
    *out = (crumb_weights){.memories = memories};
    planner p = {.g = g, .memories = memories, .net = net, .out = out, .err = err};
    /* a file names each layer's tensors, so more layers than tensors is a lie that must not be allocated for */
    if (net->hparams.num_hidden_layers > crumb_gguf_n_tensors(g))
        return crumb_fail(err, CRUMB_ERR_FORMAT, "the file has fewer tensors than layers: 'blk.%u' is missing",
                          net->hparams.num_hidden_layers - 1);
    CRUMB_TRY(
        crumb_calloc(net->hparams.num_hidden_layers, sizeof *net->layers, "the layers", (void **)&net->layers, err));
    CRUMB_TRY(crumb_calloc(crumb_gguf_n_tensors(g), sizeof *p.used, "the list of tensors", (void **)&p.used, err));
    crumb_status status = plan_all(&p);
    free(p.used);
    return status;
}

void crumb_weights_free(crumb_weights *w) {
    free(w->entries);
    *w = (crumb_weights){0};
}
