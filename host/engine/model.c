#include "host/engine/engine.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

crumb_model_params crumb_model_params_default(void) {
    return (crumb_model_params){.struct_size = sizeof(crumb_model_params)};
}

static crumb_verify verify_of_environment(void) {
    const char *text = getenv("CRUMB_VERIFY");
    if (text && strcmp(text, "on") == 0) return CRUMB_VERIFY_ALWAYS;
    return text && strcmp(text, "off") == 0 ? CRUMB_VERIFY_NEVER : CRUMB_VERIFY_AUTO;
}

crumb_model_params crumb_engine_model_params(const crumb_model_params *params) {
    crumb_model_params p = crumb_model_params_default();
    if (params && params->struct_size <= sizeof p) memcpy(&p, params, params->struct_size);
    if (!p.device) p.device = getenv("CRUMB_DEVICE");
    if (!p.device) p.device = "auto";
    if (!p.backend) p.backend = getenv("CRUMB_BACKEND");
    if (!p.backend) p.backend = "auto";
    if (!p.target) p.target = getenv("CRUMB_TARGET");
    if (!p.tuning) p.tuning = getenv("CRUMB_TUNING");
    if (p.verify == CRUMB_VERIFY_AUTO) p.verify = verify_of_environment();
    return p;
}

void crumb_engine_log(const crumb_model *m, crumb_log_level level, const char *format, ...) {
    if (!m->log) return;
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    m->log(m->log_user, level, line);
}

void crumb_model_close(crumb_model *m) {
    if (!m) return;
    if (m->buffer) m->backend->device.buffer_destroy(m->device, m->buffer);
    if (m->device) m->backend->device.close(m->device);
    crumb_tuning_close(m->tuning);
    crumb_tokenizer_close(m->tokenizer);
    free(m->net.layers);
    free(m);
}

/* Bytes that reading the whole matrix takes. */
static uint64_t matrix_bytes(const crumb_matrix *w) {
    const crumb_matrix_bytes n = crumb_matrix_get_bytes(w);
    return n.codes + n.scales + n.mins + n.supers + n.super_mins;
}

static uint64_t matrix_macs(const crumb_matrix *w) {
    return (uint64_t)w->m * w->k;
}

static uint64_t sum_layers(const crumb_network *net, uint64_t (*of)(const crumb_matrix *w)) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < net->hparams.num_hidden_layers; i++) {
        const crumb_layer *l = &net->layers[i];
        const crumb_weight *weights[] = {&l->attn_q,   &l->attn_k, &l->attn_v,  &l->attn_output,
                                         &l->ffn_gate, &l->ffn_up, &l->ffn_down};
        for (size_t j = 0; j < sizeof weights / sizeof *weights; j++) sum += of(&weights[j]->matrix);
    }
    return sum;
}

uint64_t crumb_engine_head_bytes(const crumb_model *m) {
    return matrix_bytes(&m->net.head.matrix);
}

uint64_t crumb_engine_layer_macs(const crumb_model *m) {
    return sum_layers(&m->net, matrix_macs);
}

void crumb_engine_model_describe(crumb_model *m, const char *name) {
    snprintf(m->name, sizeof m->name, "%s", name);
    snprintf(m->type, sizeof m->type, "%s", crumb_type_get_info(m->net.layers[0].ffn_up.matrix.type)->name);
}

void crumb_model_get_info(const crumb_model *m, crumb_model_info *out) {
    const crumb_hparams *h = &m->net.hparams;
    *out = (crumb_model_info){
        .name = m->name,
        .architecture = h->architecture,
        .type = m->type,
        .n_params = m->n_params,
        .file_bytes = m->file_bytes,
        .weight_bytes = m->weight_bytes,
        .decode_bytes = sum_layers(&m->net, matrix_bytes) + crumb_engine_head_bytes(m),
        .n_vocab = h->vocab_size,
        .n_ctx_train = h->max_position_embeddings,
        .hidden_size = h->hidden_size,
        .n_layers = h->num_hidden_layers,
        .bos_token = m->tokenizer ? crumb_tokenizer_bos(m->tokenizer) : -1,
        .eos_token = m->tokenizer ? crumb_tokenizer_eos(m->tokenizer) : -1,
        .device = m->device_info.name,
        .target = m->device_info.target,
        .head_type = crumb_type_get_info(m->net.head.matrix.type)->name,
        .load_ms = m->load_ms,
        .backend = m->backend->name,
        .device_detail = m->choice.device.listing.detail,
        .why_cpu = m->choice.why_cpu,
    };
}

/* ---- loading ----------------------------------------------------------------------------------------------- */

static crumb_status find_architecture(crumb_model *m, const crumb_gguf *g, crumb_error *err) {
    crumb_bytes text;
    char name[64];
    CRUMB_TRY(crumb_gguf_get_string(g, "general.architecture", true, &text, err));
    snprintf(name, sizeof name, "%.*s", (int)(text.size < 60 ? text.size : 60), text.data);
    m->net.arch = crumb_arch_find(name);
    if (m->net.arch) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "key 'general.architecture': '%s' is not supported (crumb runs %s)",
                      name, crumb_arch_names());
}

static crumb_status open_tokenizer(crumb_model *m, const crumb_gguf *g, crumb_error *err) {
    CRUMB_TRY(crumb_tokenizer_open(g, &m->tokenizer, err));
    uint32_t n = crumb_tokenizer_n_vocab(m->tokenizer), rows = m->net.hparams.vocab_size;
    if (n != rows)
        return crumb_fail(
            err, CRUMB_ERR_FORMAT,
            "key 'tokenizer.ggml.tokens': %u tokens do not fit the model, whose token_embd.weight has %u rows", n,
            rows);
    return CRUMB_OK;
}

static crumb_status load_weights(crumb_model *m, const crumb_gguf *g, const crumb_model_params *params,
                                 crumb_error *err) {
    crumb_weights weights;
    void *base = NULL;
    crumb_status status = crumb_weights_plan(g, &m->net, &weights, err);
    if (status == CRUMB_OK)
        status = m->backend->device.buffer_create(m->device, weights.total_bytes, "the model's weights", &m->buffer,
                                                  &base, err);
    crumb_weights_place place = {.backend = m->backend,
                                 .device = m->device,
                                 .buffer = m->buffer,
                                 .base = base,
                                 .index = m->device_info.wants_index};
    if (status == CRUMB_OK)
        status = crumb_weights_pack(g, &weights, &m->net, &place, m->device_info.n_threads, params->progress,
                                    params->progress_user, err);
    m->weight_bytes = weights.total_bytes - weights.freed_bytes;
    crumb_weights_free(&weights);
    return status;
}

static void count_params(crumb_model *m, const crumb_gguf *g) {
    for (size_t i = 0; i < crumb_gguf_n_tensors(g); i++) {
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(g, i);
        m->n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        m->file_bytes += t->n_bytes;
    }
}

static void describe_file(crumb_model *m, const crumb_gguf *g) {
    char name[256];
    const char *path = crumb_gguf_path(g), *slash = strrchr(path, '/');
    crumb_bytes text = {slash ? slash + 1 : path, strlen(slash ? slash + 1 : path)};
    crumb_gguf_get_string(g, "general.name", false, &text, NULL);
    snprintf(name, sizeof name, "%.*s", (int)(text.size < sizeof name ? text.size : sizeof name - 1), text.data);
    count_params(m, g);
    crumb_engine_model_describe(m, name);
}

/* Takes an open file through architecture, hyper-parameters, tokenizer and weights. */
static crumb_status load_all(crumb_model *m, const crumb_gguf *g, const crumb_model_params *params, crumb_error *err) {
    CRUMB_TRY(find_architecture(m, g, err));
    CRUMB_TRY(crumb_hparams_read(g, m->net.arch->name, &m->net.hparams, err));
    CRUMB_TRY(open_tokenizer(m, g, err));
    CRUMB_TRY(load_weights(m, g, params, err));
    describe_file(m, g);
    return CRUMB_OK;
}

static crumb_status load(crumb_model *m, const void *source, const crumb_model_params *params, crumb_error *err) {
    const crumb_gguf *g = source;
    crumb_status status = load_all(m, g, params, err);
    return status == CRUMB_OK ? status : crumb_fail_prefix(err, status, "%s", crumb_gguf_path(g));
}

static crumb_status open_gguf(crumb_gguf *g, const crumb_model_params *params, uint64_t start_ns, crumb_model **out,
                              crumb_error *err) {
    crumb_status status = crumb_engine_model_open(params, load, g, out, err);
    if (status == CRUMB_OK) (*out)->load_ms = (double)(crumb_now_ns() - start_ns) / 1e6;
    crumb_gguf_close(g);
    return status;
}

crumb_status crumb_model_open(const char *path, const crumb_model_params *params, crumb_model **out, crumb_error *err) {
    uint64_t start = crumb_now_ns();
    *out = NULL;
    if (!path) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "no model file given");
    crumb_model_params p = crumb_engine_model_params(params);
    crumb_gguf *g;
    CRUMB_TRY(crumb_gguf_open(path, &g, err));
    return open_gguf(g, &p, start, out, err);
}

crumb_status crumb_model_open_embedded(const crumb_model_params *params, crumb_model **out, crumb_error *err) {
    uint64_t start = crumb_now_ns();
    *out = NULL;
    crumb_model_params p = crumb_engine_model_params(params);
    crumb_gguf *g;
    CRUMB_TRY(crumb_engine_open_embedded_file(&g, err));
    return open_gguf(g, &p, start, out, err);
}

/* ---- text -------------------------------------------------------------------------------------------------- */

crumb_status crumb_model_tokenize(const crumb_model *m, const char *text, size_t n_bytes, unsigned flags,
                                  int32_t *tokens, size_t capacity, size_t *n_tokens, crumb_error *err) {
    if (!m->tokenizer) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a synthetic model has no tokenizer");
    return crumb_tokenizer_encode(m->tokenizer, text, n_bytes, flags, tokens, capacity, n_tokens, err);
}

const char *crumb_model_token_bytes(const crumb_model *m, int32_t token, bool special, size_t *n_bytes) {
    if (m->tokenizer) return crumb_tokenizer_token_bytes(m->tokenizer, token, special, n_bytes);
    *n_bytes = 0;
    return "";
}

bool crumb_model_token_ends(const crumb_model *m, int32_t token) {
    return m->tokenizer && crumb_tokenizer_ends(m->tokenizer, token);
}
