#include "host/gptq/layers.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/container/gguf_rows.h"
#include "host/kernel/op.h"
#include "host/model/rope.h"
#include "host/model/weights.h"

#include <stdlib.h>
#include <string.h>

struct crumb_layers {
    crumb_layers_params p;
    crumb_network net;     /* of the file; a layer's pointers are set while it is in hand */
    crumb_weights weights; /* which tensor is whose */
    float *inv_freq;
    const crumb_backend *backend;
    crumb_device *device;
    crumb_kv_cache *kv; /* of one layer and one sequence */
    crumb_row *rows;    /* [length] */
    float *residual;    /* [n_tokens][hidden_size]: what the next layer begins with */
    uint32_t n_begun;
    /* the layer in hand */
    crumb_graph graph;
    float *memory; /* its weights */
    uint64_t memory_bytes;
    float **values; /* [graph.n_values], each [n_tokens][width] while an op to come reads it */
    crumb_value result;
    size_t at; /* the op that is computed next */
};

static uint64_t value_bytes(const crumb_layers *l, crumb_value v) {
    return l->p.n_tokens * l->graph.values[v].width * sizeof(float);
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

static crumb_status embed_held(const crumb_layers *l, const crumb_gguf_tensor *t, crumb_error *err) {
    for (uint64_t i = 0; i < l->p.n_tokens; i++) {
        const int32_t token = l->p.tokens[i];
        if (token < 0 || (uint64_t)token >= t->dims[1])
            return crumb_fail(err, CRUMB_ERR_ARGUMENT, "calibration: the model has no token %d", (int)token);
        CRUMB_TRY(crumb_gguf_read_rows(l->p.from, t, (uint64_t)token, 1, l->residual + i * t->dims[0], err));
    }
    return CRUMB_OK;
}

static crumb_status embed(crumb_layers *l, crumb_error *err) {
    const crumb_gguf_tensor *t = crumb_gguf_find_tensor(l->p.from, "token_embd.weight");
    CRUMB_TRY(crumb_pages_alloc(l->p.n_tokens * t->dims[0] * sizeof(float), "the calibration's activations",
                                (void **)&l->residual, err));
    CRUMB_TRY(crumb_gguf_tensor_hold(l->p.from, t, err));
    const crumb_status status = embed_held(l, t, err);
    crumb_gguf_tensor_drop(l->p.from, t);
    crumb_gguf_tensor_release(l->p.from, t);
    return status;
}

static crumb_status find_network(crumb_layers *l, crumb_error *err) {
    crumb_bytes name;
    char architecture[32];
    CRUMB_TRY(crumb_gguf_get_string(l->p.from, "general.architecture", true, &name, err));
    if (name.size < sizeof architecture) {
        memcpy(architecture, name.data, name.size);
        architecture[name.size] = 0;
        l->net.arch = crumb_arch_find(architecture);
    }
    if (!l->net.arch)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "architecture '%.*s' is not one of: %s",
                          (int)(name.size < 64 ? name.size : 64), name.data, crumb_arch_names());
    CRUMB_TRY(crumb_hparams_read(l->p.from, architecture, &l->net.hparams, err));
    return crumb_weights_plan(l->p.from, NULL, &l->net, &l->weights, err);
}

static crumb_status find_frequencies(crumb_layers *l, crumb_error *err) {
    const crumb_gguf_tensor *t = l->weights.rope_freqs;
    const uint32_t n = l->net.hparams.rope_dims / 2;
    float *divisors = NULL;
    CRUMB_TRY(crumb_calloc(n, sizeof *l->inv_freq, "frequencies", (void **)&l->inv_freq, err));
    if (t) CRUMB_TRY(crumb_calloc(n, sizeof *divisors, "frequencies", (void **)&divisors, err));
    const crumb_status status = t ? crumb_gguf_read_tensor(l->p.from, t, divisors, err) : CRUMB_OK;
    if (status == CRUMB_OK) crumb_rope_inv_freq(&l->net.hparams, divisors, l->inv_freq);
    free(divisors);
    return status;
}

static crumb_status open_device(crumb_layers *l, crumb_error *err) {
    const crumb_hparams *h = &l->net.hparams;
    const crumb_device_params params = {.n_threads = l->p.n_threads};
    const crumb_kv_params kv = {.n_layers = 1,
                                .n_sequences = 1,
                                .n_ctx = l->p.length,
                                .n_head_kv = h->num_key_value_heads,
                                .head_dim = h->head_dim,
                                .type = CRUMB_KV_F16};
    uint64_t n_bytes;
    l->backend = &crumb_backend_cpu;
    CRUMB_TRY(l->backend->device.open(&params, &l->device, err));
    CRUMB_TRY(l->backend->device.kv_create(l->device, &kv, &l->kv, &n_bytes, err));
    CRUMB_TRY(crumb_calloc(l->p.length, sizeof *l->rows, "the calibration's rows", (void **)&l->rows, err));
    for (uint32_t i = 0; i < l->p.length; i++) l->rows[i] = (crumb_row){.position = i};
    return CRUMB_OK;
}

crumb_status crumb_layers_open(const crumb_layers_params *params, crumb_layers **out, crumb_error *err) {
    crumb_layers *l;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof *l, "a model's layers", (void **)&l, err));
    l->p = *params;
    crumb_status status = find_network(l, err);
    if (status == CRUMB_OK) status = find_frequencies(l, err);
    if (status == CRUMB_OK) status = open_device(l, err);
    if (status == CRUMB_OK) status = embed(l, err);
    if (status == CRUMB_OK)
        *out = l;
    else
        crumb_layers_close(l);
    return status;
}

static void free_value(crumb_layers *l, crumb_value v) {
    if (l->values[v]) crumb_pages_free(l->values[v], value_bytes(l, v));
    l->values[v] = NULL;
}

/* The layer in hand, and all of its values. */
static void end_layer(crumb_layers *l) {
    for (size_t i = 0; l->values && i < l->graph.n_values; i++) free_value(l, (crumb_value)i);
    free(l->values);
    l->values = NULL;
    if (l->memory) crumb_pages_free(l->memory, l->memory_bytes);
    l->memory = NULL;
    crumb_graph_free(&l->graph);
}

void crumb_layers_close(crumb_layers *l) {
    if (!l) return;
    end_layer(l);
    if (l->residual) crumb_pages_free(l->residual, l->p.n_tokens * l->net.hparams.hidden_size * sizeof *l->residual);
    if (l->kv) l->backend->device.kv_destroy(l->device, l->kv);
    if (l->device) l->backend->device.close(l->device);
    crumb_weights_free(&l->weights);
    free(l->net.layers);
    free(l->inv_freq);
    free(l->rows);
    free(l);
}

uint32_t crumb_layers_count(const crumb_layers *l) {
    return l->net.hparams.num_hidden_layers;
}

/* ---- a layer's weights --------------------------------------------------------------------------------------- */

static bool is_of_layer(const crumb_layers *l, const crumb_weights_entry *e, uint32_t layer) {
    const uintptr_t first = (uintptr_t)&l->net.layers[layer], end = (uintptr_t)&l->net.layers[layer + 1];
    /* one of these is not NULL; or all are, of an order of columns, and these are read in their own order */
    const uintptr_t at = (uintptr_t)e->matrix + (uintptr_t)e->vector + (uintptr_t)e->scalar;
    return at >= first && at < end;
}

static uint64_t n_weights(const crumb_gguf_tensor *t) {
    return t->dims[0] * crumb_gguf_n_rows(t);
}

static crumb_status load_entry(const crumb_layers *l, const crumb_weights_entry *e, float *to, crumb_error *err) {
    crumb_matrix_layout layout;
    CRUMB_TRY(crumb_gguf_read_tensor(l->p.from, e->tensor, to, err));
    if (e->scalar) *e->scalar = *to;
    if (e->vector) *e->vector = to;
    if (!e->matrix) return CRUMB_OK;
    CRUMB_TRY(crumb_matrix_plan(CRUMB_TYPE_F32, e->tensor->dims[1], e->tensor->dims[0], e->matrix, &layout, err));
    e->matrix->codes = to;
    return CRUMB_OK;
}

static crumb_status load_layer(crumb_layers *l, uint32_t layer, crumb_error *err) {
    uint64_t used = 0;
    l->memory_bytes = 0;
    for (size_t i = 0; i < l->weights.n_entries; i++)
        if (is_of_layer(l, &l->weights.entries[i], layer))
            l->memory_bytes += crumb_round_up(n_weights(l->weights.entries[i].tensor) * sizeof(float), 64);
    CRUMB_TRY(crumb_pages_alloc(l->memory_bytes, "a layer's weights", (void **)&l->memory, err));
    for (size_t i = 0; i < l->weights.n_entries; i++) {
        const crumb_weights_entry *e = &l->weights.entries[i];
        if (!is_of_layer(l, e, layer)) continue;
        CRUMB_TRY(load_entry(l, e, l->memory + used / sizeof(float), err));
        used += crumb_round_up(n_weights(e->tensor) * sizeof(float), 64);
    }
    l->net.layers[layer].inv_freq = l->inv_freq;
    return CRUMB_OK;
}

/* The ops of a layer that others follow: no rows are left behind. */
static crumb_status build_graph(crumb_layers *l, uint32_t layer, crumb_error *err) {
    crumb_network alone = l->net;
    alone.layers = &l->net.layers[layer];
    alone.hparams.num_hidden_layers = 2;
    crumb_graph_init(&l->graph, CRUMB_ACTIVATION_FLOAT, err);
    const crumb_value x = crumb_graph_input(&l->graph, l->net.hparams.hidden_size);
    l->result = alone.arch->layer(&l->graph, &alone, 0, x);
    CRUMB_TRY(l->graph.status);
    CRUMB_TRY(crumb_calloc(l->graph.n_values, sizeof *l->values, "a layer's values", (void **)&l->values, err));
    l->values[x] = l->residual;
    l->residual = NULL;
    l->at = 1; /* behind the input */
    return CRUMB_OK;
}

crumb_status crumb_layers_begin(crumb_layers *l, crumb_error *err) {
    const uint32_t layer = l->n_begun++;
    CRUMB_TRY(load_layer(l, layer, err));
    return build_graph(l, layer, err);
}

/* ---- computing ----------------------------------------------------------------------------------------------- */

static bool contains(const crumb_value *values, size_t n, crumb_value v) {
    for (size_t i = 0; i < n; i++)
        if (values[i] == v) return true;
    return false;
}

/* Whether an op from `from` on reads what v holds there; or whoever comes behind the layer. */
static bool is_wanted(const crumb_layers *l, crumb_value v, size_t from) {
    crumb_value values[CRUMB_OP_MAX_VALUES];
    for (size_t i = from; i < l->graph.n_ops; i++) {
        if (contains(values, crumb_op_reads(&l->graph.ops[i], values), v)) return true;
        if (contains(values, crumb_op_writes(&l->graph.ops[i], values), v)) return false;
    }
    return v == l->result;
}

/* Ops [begin, end) as a plan of their own: what they read that is made before comes in by INPUT ops. */
typedef struct piece {
    size_t begin, end;
    crumb_op *ops; /* [n_ops]: the inputs first */
    size_t n_ops, n_inputs;
    crumb_plan *plan;
} piece;

static void find_inputs(const crumb_layers *l, piece *p) {
    bool written[CRUMB_NO_VALUE] = {false};
    crumb_value values[CRUMB_OP_MAX_VALUES];
    for (size_t i = p->begin; i < p->end; i++) {
        size_t n = crumb_op_reads(&l->graph.ops[i], values);
        for (size_t j = 0; j < n; j++) {
            if (written[values[j]]) continue;
            written[values[j]] = true;
            p->ops[p->n_inputs++] = (crumb_op){.kind = CRUMB_OP_INPUT, .input = {.out = values[j]}};
        }
        n = crumb_op_writes(&l->graph.ops[i], values);
        for (size_t j = 0; j < n; j++) written[values[j]] = true;
    }
}

static crumb_status record_piece(const crumb_layers *l, piece *p, crumb_error *err) {
    const size_t n_most = p->end - p->begin + l->graph.n_values;
    CRUMB_TRY(crumb_calloc(n_most, sizeof *p->ops, "a layer's ops", (void **)&p->ops, err));
    find_inputs(l, p);
    memcpy(p->ops + p->n_inputs, l->graph.ops + p->begin, (p->end - p->begin) * sizeof *p->ops);
    p->n_ops = p->n_inputs + p->end - p->begin;
    const crumb_plan_desc desc = {.ops = p->ops,
                                  .n_ops = p->n_ops,
                                  .values = l->graph.values,
                                  .n_values = l->graph.n_values,
                                  .max_rows = l->p.length,
                                  .kv = l->kv};
    return l->backend->plan.record(l->device, &desc, &p->plan, err);
}

/* Keeps what ops to come read of a sequence, whose rows begin at `first`. */
static crumb_status keep_results(crumb_layers *l, const piece *p, uint64_t first, uint32_t n, crumb_error *err) {
    for (size_t index = 0; index < l->graph.n_values; index++) {
        const crumb_value v = (crumb_value)index;
        const uint64_t width = l->graph.values[v].width;
        bool written = false;
        crumb_value values[CRUMB_OP_MAX_VALUES];
        for (size_t i = p->begin; i < p->end && !written; i++)
            written = contains(values, crumb_op_writes(&l->graph.ops[i], values), v);
        if (!written || !is_wanted(l, v, p->end)) continue;
        const float *rows;
        uint32_t n_rows;
        if (!l->values[v])
            CRUMB_TRY(
                crumb_pages_alloc(value_bytes(l, v), "the calibration's activations", (void **)&l->values[v], err));
        CRUMB_TRY(l->backend->plan.read(p->plan, v, &rows, &n_rows, err));
        memcpy(l->values[v] + first * width, rows, n * width * sizeof(float));
    }
    return CRUMB_OK;
}

static crumb_status run_sequences(crumb_layers *l, const piece *p, crumb_error *err) {
    for (uint64_t first = 0; first < l->p.n_tokens; first += l->p.length) {
        const uint64_t left = l->p.n_tokens - first;
        const uint32_t n = left < l->p.length ? (uint32_t)left : l->p.length;
        if (l->p.should_stop && l->p.should_stop(l->p.should_stop_user))
            return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "interrupted; the same command goes on from here");
        for (size_t i = 0; i < p->n_inputs; i++) {
            const crumb_value v = p->ops[i].input.out;
            const float *rows = l->values[v] + first * l->graph.values[v].width;
            CRUMB_TRY(l->backend->plan.write(p->plan, v, rows, n, err));
        }
        CRUMB_TRY(l->backend->plan.replay(p->plan, l->rows, n, err));
        CRUMB_TRY(keep_results(l, p, first, n, err));
    }
    return CRUMB_OK;
}

static crumb_status compute(crumb_layers *l, size_t begin, size_t end, crumb_error *err) {
    piece p = {.begin = begin, .end = end};
    crumb_status status = record_piece(l, &p, err);
    if (status == CRUMB_OK) status = run_sequences(l, &p, err);
    if (p.plan) l->backend->plan.destroy(p.plan);
    free(p.ops);
    for (size_t v = 0; v < l->graph.n_values; v++)
        if (!is_wanted(l, (crumb_value)v, end)) free_value(l, (crumb_value)v);
    return status;
}

static const char *name_of(const crumb_layers *l, const crumb_matrix *matrix) {
    for (size_t i = 0; i < l->weights.n_entries; i++)
        if (l->weights.entries[i].matrix == matrix) return l->weights.entries[i].tensor->name;
    return "";
}

crumb_status crumb_layers_next(crumb_layers *l, crumb_layers_stop *out, crumb_error *err) {
    const crumb_op *ops = l->graph.ops;
    const size_t begin = l->at;
    size_t end = begin + (l->at > 1); /* but for the first time, the op at `begin` is the one that was halted before */
    while (end < l->graph.n_ops && ops[end].kind != CRUMB_OP_LINEAR) end++;
    if (end > begin) CRUMB_TRY(compute(l, begin, end, err));
    l->at = end;
    *out = (crumb_layers_stop){.n = 0};
    if (end == l->graph.n_ops) {
        l->residual = l->values[l->result];
        l->values[l->result] = NULL;
        end_layer(l);
        out->x = l->residual;
        out->k = l->net.hparams.hidden_size;
        return CRUMB_OK;
    }
    out->x = l->values[ops[end].linear.x];
    out->n = ops[end].linear.n_parts;
    for (size_t i = 0; i < out->n; i++) {
        const crumb_matrix *w = ops[end].linear.part[i].w;
        out->tensor[i] = name_of(l, w);
        out->weights[i] = (float *)(uintptr_t)w->codes;
        out->m[i] = w->m;
        out->k = w->k;
    }
    return CRUMB_OK;
}
