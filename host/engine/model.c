#include "host/engine/costs.h"
#include "host/engine/places.h"
#include "host/engine/substitute.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/checkpoint/checkpoint.h"
#include "host/model/weights.h"
#include "host/text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

crumb_model_params crumb_model_params_default(void) {
    return (crumb_model_params){.struct_size = sizeof(crumb_model_params), .n_gpu_layers = -1, .split = -1};
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
    if (p.n_gpu_layers == 0 && strcmp(p.device, "auto") == 0 && strcmp(p.backend, "auto") == 0) p.device = "cpu";
    if (!p.target) p.target = getenv("CRUMB_TARGET");
    if (!p.tuning) p.tuning = getenv("CRUMB_TUNING");
    if (!p.cpu_kind) p.cpu_kind = getenv("CRUMB_CPU_KIND");
    if (!p.balance) p.balance = getenv("CRUMB_BALANCE");
    if (!p.profile) p.profile = getenv("CRUMB_PROFILE");
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
    for (size_t i = m->n_units; i-- > 0;) {
        crumb_engine_unit *u = &m->units[i];
        if (u->buffer) u->backend->device.buffer_destroy(u->device, u->buffer);
        if (u->device) u->backend->device.close(u->device);
    }
    crumb_engine_substitute_close(m);
    crumb_tuning_close(m->tuning);
    crumb_tokenizer_close(m->tokenizer);
    free(m->chat_template);
    crumb_engine_advice_free(m->advice);
    crumb_lock_destroy(m->checks.lock);
    free(m->net.layers);
    free(m->places);
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
        .device = m->units[0].info.name,
        .target = m->units[0].info.target,
        .head_type = crumb_type_get_info(m->net.head.matrix.type)->name,
        .load_ms = m->load_ms,
        .backend = m->units[0].backend->name,
        .device_detail = m->choice.device.listing.detail,
        .why_cpu = m->choice.why_cpu,
        .placement = m->placement,
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

/* Plans again with the memories that layers have been given, where these are two. */
static crumb_status plan_places(crumb_model *m, const crumb_gguf *g, const crumb_model_params *params,
                                uint8_t *memories, crumb_weights *weights, crumb_error *err) {
    const uint32_t n = m->net.hparams.num_hidden_layers + 1;
    bool several = false;
    CRUMB_TRY(crumb_engine_place_layers(m, params, weights->total_bytes[0], err));
    for (uint32_t i = 0; i < n; i++) several |= (memories[i] = m->places[i].memory) != 0;
    if (!several) return CRUMB_OK;
    crumb_weights_free(weights);
    free(m->net.layers);
    m->net.layers = NULL;
    return crumb_weights_plan(g, memories, &m->net, weights, err);
}

static crumb_status make_buffers(crumb_model *m, const crumb_weights *weights,
                                 crumb_weights_place places[CRUMB_WEIGHTS_MEMORIES], crumb_error *err) {
    for (size_t i = 0; i < m->n_units; i++) {
        crumb_engine_unit *u = &m->units[i];
        void *base;
        if (!weights->total_bytes[i]) continue;
        CRUMB_TRY(u->backend->device.buffer_create(u->device, weights->total_bytes[i], "the model's weights",
                                                   &u->buffer, &base, err));
        places[i] = (crumb_weights_place){.backend = u->backend,
                                          .device = u->device,
                                          .buffer = u->buffer,
                                          .base = base,
                                          .host_memory = u->info.host_memory,
                                          .index_bits = u->info.index_bits,
                                          .rows = m->divided ? crumb_engine_rows_on_first : NULL,
                                          .user = m};
    }
    return CRUMB_OK;
}

static crumb_status load_weights(crumb_model *m, const crumb_gguf *g, const crumb_model_params *params,
                                 crumb_error *err) {
    crumb_weights weights;
    crumb_weights_place places[CRUMB_WEIGHTS_MEMORIES] = {0};
    uint8_t *memories = NULL;
    crumb_status status = crumb_weights_plan(g, NULL, &m->net, &weights, err);
    if (status == CRUMB_OK)
        status = crumb_calloc(m->net.hparams.num_hidden_layers + 1, 1, "the layers", (void **)&memories, err);
    if (status == CRUMB_OK) status = plan_places(m, g, params, memories, &weights, err);
    if (status == CRUMB_OK) status = make_buffers(m, &weights, places, err);
    if (status == CRUMB_OK)
        status = crumb_weights_pack(g, &weights, &m->net, places, m->units[0].info.n_threads, params->progress,
                                    params->progress_user, err);
    for (int i = 0; i < CRUMB_WEIGHTS_MEMORIES; i++) m->weight_bytes += weights.total_bytes[i];
    m->weight_bytes = m->weight_bytes - weights.freed_bytes + weights.copied_bytes;
    crumb_weights_free(&weights);
    free(memories);
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

static crumb_status keep_chat_template(crumb_model *m, const crumb_gguf *g, crumb_error *err) {
    crumb_bytes text = {0};
    CRUMB_TRY(crumb_gguf_get_string(g, "tokenizer.chat_template", false, &text, err));
    if (!text.data) return CRUMB_OK;
    if (memchr(text.data, 0, text.size))
        return crumb_fail(err, CRUMB_ERR_FORMAT, "key 'tokenizer.chat_template': a byte 0 in it; the file is damaged");
    CRUMB_TRY(crumb_calloc(text.size + 1, 1, "the chat template", (void **)&m->chat_template, err));
    memcpy(m->chat_template, text.data, text.size);
    return CRUMB_OK;
}

/* Takes an open file through architecture, hyper-parameters, tokenizer and weights. */
static crumb_status load_all(crumb_model *m, const crumb_gguf *g, const crumb_model_params *params, crumb_error *err) {
    CRUMB_TRY(find_architecture(m, g, err));
    CRUMB_TRY(crumb_hparams_read(g, m->net.arch->name, &m->net.hparams, err));
    CRUMB_TRY(open_tokenizer(m, g, err));
    CRUMB_TRY(keep_chat_template(m, g, err));
    CRUMB_TRY(load_weights(m, g, params, err));
    describe_file(m, g);
    return CRUMB_OK;
}

static crumb_status load(crumb_model *m, const void *source, const crumb_model_params *params, crumb_error *err) {
    const crumb_gguf *g = source;
    crumb_status status = load_all(m, g, params, err);
    return status == CRUMB_OK ? status : crumb_fail_prefix(err, status, "%s", crumb_gguf_path(g));
}

static crumb_status outline(const void *source, crumb_network *out, crumb_error *err) {
    char name[256];
    return crumb_engine_outline_gguf(source, out, name, err);
}

crumb_status crumb_engine_finish_open(crumb_model **m, const char *path, const char *spec,
                                      const crumb_model_params *params, uint64_t start_ns, crumb_error *err) {
    const crumb_status status = crumb_engine_note_origin(*m, path, spec, params, err);
    (*m)->load_ms = (double)(crumb_now_ns() - start_ns) / 1e6;
    if (status == CRUMB_OK) return status;
    crumb_model_close(*m);
    *m = NULL;
    return status;
}

/* path: NULL for the embedded file. */
static crumb_status open_gguf(crumb_gguf *g, const char *path, const crumb_model_params *params, uint64_t start_ns,
                              crumb_model **out, crumb_error *err) {
    static const crumb_engine_source_kind kind = {.load = load, .outline = outline};
    crumb_status status = crumb_engine_model_open(params, &kind, g, out, err);
    crumb_gguf_close(g);
    if (status == CRUMB_OK) status = crumb_engine_finish_open(out, path, NULL, params, start_ns, err);
    return status;
}

crumb_status crumb_model_open(const char *path, const crumb_model_params *params, crumb_model **out, crumb_error *err) {
    uint64_t start = crumb_now_ns();
    *out = NULL;
    if (!path) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "no model given");
    crumb_model_params p = crumb_engine_model_params(params);
    crumb_gguf *g;
    CRUMB_TRY(crumb_checkpoint_open_any(path, &g, err));
    return open_gguf(g, path, &p, start, out, err);
}

crumb_status crumb_model_open_embedded(const crumb_model_params *params, crumb_model **out, crumb_error *err) {
    uint64_t start = crumb_now_ns();
    *out = NULL;
    crumb_model_params p = crumb_engine_model_params(params);
    crumb_gguf *g;
    CRUMB_TRY(crumb_engine_open_embedded_file(&g, err));
    return open_gguf(g, NULL, &p, start, out, err);
}

/* ---- text -------------------------------------------------------------------------------------------------- */

crumb_status crumb_model_tokenize(const crumb_model *m, const char *text, size_t n_bytes, unsigned flags,
                                  int32_t *tokens, size_t capacity, size_t *n_tokens, crumb_error *err) {
    if (!m->tokenizer) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a synthetic model has no tokenizer");
    return crumb_tokenizer_encode(m->tokenizer, text, n_bytes, flags, tokens, capacity, n_tokens, err);
}

const char *crumb_model_chat_template(const crumb_model *m) {
    return m->chat_template;
}

crumb_chat crumb_chat_default(void) {
    return (crumb_chat){.struct_size = sizeof(crumb_chat), .answer = true};
}

crumb_status crumb_model_tokenize_chat(const crumb_model *m, const crumb_chat *given, int32_t *tokens, size_t capacity,
                                       size_t *n_tokens, crumb_error *err) {
    crumb_chat chat = crumb_chat_default();
    memcpy(&chat, given, given->struct_size < sizeof chat ? given->struct_size : sizeof chat);
    if (!chat.source) {
        chat.source = m->chat_template;
        chat.source_name = m->origin.path;
    }
    if (!m->tokenizer) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a synthetic model has no tokenizer");
    if (!chat.source)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "%s has no chat template: give one (--chat-template chatml, --chat-template-file FILE)",
                          m->name);
    return crumb_chat_tokenize(m->tokenizer, &chat, tokens, capacity, n_tokens, err);
}

const char *crumb_model_token_bytes(const crumb_model *m, int32_t token, bool special, size_t *n_bytes) {
    if (m->tokenizer) return crumb_tokenizer_token_bytes(m->tokenizer, token, special, n_bytes);
    *n_bytes = 0;
    return "";
}

bool crumb_model_token_ends(const crumb_model *m, int32_t token) {
    return m->tokenizer && crumb_tokenizer_ends(m->tokenizer, token);
}
