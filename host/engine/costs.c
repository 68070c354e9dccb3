#include "host/engine/costs.h"

#include "host/checkpoint/checkpoint.h"
#include "host/engine/engine.h"
#include "host/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- layers -------------------------------------------------------------------------------------------------- */

static crumb_work work_of(const crumb_matrix *w) {
    switch (w->bits) {
    case 0: return CRUMB_WORK_F16;
    case 1: return CRUMB_WORK_U1;
    case 2: return CRUMB_WORK_U2;
    case 3: return CRUMB_WORK_U3;
    case 4: return CRUMB_WORK_U4;
    default: return CRUMB_WORK_U8;
    }
}

/* Before the weights are there, only their type tells whether a matrix has mins, and scales of two levels. */
static uint64_t bytes_of(const crumb_matrix *w) {
    static const uint16_t there;
    crumb_matrix planned = *w;
    if (!w->codes && w->bits) {
        const bool has_min = crumb_type_get_info(w->type)->has_min;
        planned.mins = has_min ? &there : NULL;
        planned.supers = w->super_group ? &there : NULL;
        planned.super_mins = has_min ? planned.supers : NULL;
    }
    const crumb_matrix_bytes n = crumb_matrix_get_bytes(&planned);
    return n.codes + n.scales + n.mins + n.supers + n.super_mins;
}

static void add_matrix(const crumb_matrix *w, crumb_cost_layer *out) {
    if (w->m == 0) return; /* the architecture has none */
    const uint64_t n_bytes = bytes_of(w);
    out->weight_bytes[work_of(w)] += n_bytes;
    out->macs[work_of(w)] += (uint64_t)w->m * w->k;
    out->resident_bytes += n_bytes;
}

static uint64_t kv_bytes_of(uint64_t n_values, crumb_kv_type type) {
    return type == CRUMB_KV_Q8 ? n_values + n_values / 32 * sizeof(uint16_t) : n_values * sizeof(uint16_t);
}

void crumb_engine_cost_layers(const crumb_network *net, crumb_kv_type kv_type, crumb_cost_layer *out) {
    const crumb_hparams *h = &net->hparams;
    const uint64_t q = (uint64_t)h->num_attention_heads * h->head_dim,
                   kv = (uint64_t)h->num_key_value_heads * h->head_dim;
    for (uint32_t i = 0; i < h->num_hidden_layers; i++) {
        const crumb_layer *l = &net->layers[i];
        const crumb_weight *weights[] = {&l->attn_q,   &l->attn_k, &l->attn_v,  &l->attn_output,
                                         &l->ffn_gate, &l->ffn_up, &l->ffn_down};
        out[i] = (crumb_cost_layer){.attention_macs = 2 * q,
                                    .kv_bytes = kv_bytes_of(2 * kv, kv_type),
                                    .vector_bytes = (uint64_t)h->hidden_size * sizeof(float),
                                    .exchanged_bytes =
                                        (q + 2 * (uint64_t)h->hidden_size + h->intermediate_size) * sizeof(float)};
        for (size_t j = 0; j < sizeof weights / sizeof *weights; j++) add_matrix(&weights[j]->matrix, &out[i]);
    }
    if (!net->tied) out[0].resident_bytes += bytes_of(&net->embedding);
    crumb_cost_layer *head = &out[h->num_hidden_layers];
    *head = (crumb_cost_layer){.head = true, .exchanged_bytes = (uint64_t)h->vocab_size * sizeof(float)};
    add_matrix(&net->head.matrix, head);
    if (!net->head.matrix.m) add_matrix(&net->embedding, head); /* tied, and not yet bound to the embedding */
}

crumb_engine_lengths crumb_engine_lengths_of(const crumb_hparams *h, const crumb_model_params *params) {
    const uint32_t trained = h->max_position_embeddings;
    crumb_engine_lengths n = {.n_ctx = params->n_ctx,
                              .n_prompt = params->n_prompt,
                              .n_generate = params->n_generate,
                              .n_batch = params->n_batch};
    if (n.n_ctx == 0) n.n_ctx = trained < 4096 ? trained : 4096;
    if (n.n_prompt == 0) n.n_prompt = 512;
    if (n.n_generate == 0) n.n_generate = 128;
    if (n.n_batch == 0) n.n_batch = 512;
    if (n.n_batch > n.n_ctx) n.n_batch = n.n_ctx;
    if (n.n_prompt > n.n_ctx) n.n_prompt = n.n_ctx;
    if (n.n_generate > n.n_ctx - n.n_prompt) n.n_generate = n.n_ctx - n.n_prompt;
    if (n.n_generate == 0) n.n_generate = 1;
    return n;
}

uint64_t crumb_engine_scratch_bytes(const crumb_hparams *h, uint32_t n_batch) {
    return (uint64_t)n_batch * 4 * (6 * (uint64_t)h->hidden_size + 2 * (uint64_t)h->intermediate_size) + (64 << 20);
}

/* ---- outlines ------------------------------------------------------------------------------------------------ */

crumb_status crumb_engine_outline_gguf(const crumb_gguf *g, crumb_network *out, char name[256], crumb_error *err) {
    crumb_bytes text;
    crumb_weights weights;
    char architecture[64];
    CRUMB_TRY(crumb_gguf_get_string(g, "general.architecture", true, &text, err));
    snprintf(architecture, sizeof architecture, "%.*s", (int)(text.size < 60 ? text.size : 60), text.data);
    out->arch = crumb_arch_find(architecture);
    if (!out->arch)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "key 'general.architecture': '%s' is not supported (crumb runs %s)", architecture,
                          crumb_arch_names());
    CRUMB_TRY(crumb_hparams_read(g, out->arch->name, &out->hparams, err));
    const crumb_status status = crumb_weights_plan(g, NULL, out, &weights, err);
    crumb_weights_free(&weights);
    const char *path = crumb_gguf_path(g), *slash = strrchr(path, '/');
    snprintf(name, 256, "%s", slash ? slash + 1 : path);
    return status;
}

crumb_status crumb_engine_outline_open(const char *path, const char *synthetic, crumb_network *out, char name[256],
                                       crumb_error *err) {
    crumb_gguf *g;
    *out = (crumb_network){.arch = NULL};
    if (synthetic) {
        snprintf(name, 256, "%s", synthetic);
        return crumb_engine_synthetic_outline(synthetic, out, err);
    }
    CRUMB_TRY(path ? crumb_checkpoint_open_any(path, &g, err) : crumb_engine_open_embedded_file(&g, err));
    crumb_status status = crumb_engine_outline_gguf(g, out, name, err);
    if (status != CRUMB_OK) {
        status = crumb_fail_prefix(err, status, "%s", crumb_gguf_path(g));
        crumb_engine_outline_close(out);
    }
    crumb_gguf_close(g);
    return status;
}

void crumb_engine_outline_close(crumb_network *net) {
    free(net->layers);
    *net = (crumb_network){.arch = NULL};
}
