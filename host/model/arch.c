#include "host/model/arch.h"

#include "host/model/rope.h"

#include <math.h>
#include <string.h>

static const crumb_arch *const architectures[] = {
    &crumb_arch_llama,  &crumb_arch_qwen2,     &crumb_arch_qwen3,
    &crumb_arch_bitnet, &crumb_arch_bitnet_25, &crumb_arch_bitnet_b158,
};

const crumb_arch *crumb_arch_find(const char *name) {
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (strcmp(architectures[i]->name, name) == 0) return architectures[i];
    return NULL;
}

const char *crumb_arch_names(void) {
    return "llama, qwen2, qwen3, bitnet, bitnet-25, bitnet-b1.58";
}

crumb_value crumb_network_span(const crumb_network *net, crumb_graph *g, uint32_t first, uint32_t end) {
    const crumb_hparams *h = &net->hparams;
    crumb_value x = first == 0 ? crumb_graph_embed(g, &net->embedding) : crumb_graph_input(g, h->hidden_size);
    for (uint32_t i = first; i < end && i < h->num_hidden_layers; i++) {
        g->layer = (uint16_t)i;
        x = net->arch->layer(g, net, i, x);
    }
    if (end <= h->num_hidden_layers) return x;
    crumb_value normed = crumb_graph_rms_norm(g, x, net->output_norm, h->rms_norm_eps);
    crumb_graph_release(g, x);
    crumb_value logits = crumb_graph_value(g, h->vocab_size);
    const crumb_weight *head = &net->head;
    crumb_graph_linear(g, normed, 1, &head, &logits, CRUMB_NO_VALUE);
    crumb_graph_release(g, normed);
    return logits;
}

/* In place. */
static void norm_heads(crumb_graph *g, const crumb_hparams *h, crumb_value heads, const float *weight) {
    if (!weight) return;
    crumb_graph_append(
        g, &(crumb_op){
               .kind = CRUMB_OP_RMS_NORM,
               .norm = {.x = heads, .out = heads, .weight = weight, .eps = h->rms_norm_eps, .head_dim = h->head_dim}});
}

crumb_value crumb_arch_attention(crumb_graph *g, const crumb_network *net, uint32_t index, crumb_value x) {
    const crumb_hparams *h = &net->hparams;
    const crumb_layer *layer = &net->layers[index];
    crumb_value q = crumb_graph_value(g, h->num_attention_heads * h->head_dim);
    crumb_value k = crumb_graph_value(g, h->num_key_value_heads * h->head_dim);
    crumb_value v = crumb_graph_value(g, h->num_key_value_heads * h->head_dim);
    const crumb_weight *weights[] = {&layer->attn_q, &layer->attn_k, &layer->attn_v};
    crumb_graph_linear(g, x, 3, weights, (crumb_value[]){q, k, v}, CRUMB_NO_VALUE);
    norm_heads(g, h, q, layer->attn_q_norm);
    norm_heads(g, h, k, layer->attn_k_norm);
    crumb_graph_append(g, &(crumb_op){.kind = CRUMB_OP_ROPE,
                                      .rope = {.q = q,
                                               .k = k,
                                               .n_head = h->num_attention_heads,
                                               .n_head_kv = h->num_key_value_heads,
                                               .head_dim = h->head_dim,
                                               .dims = h->rope_dims,
                                               .pairing = net->arch->pairing,
                                               .inv_freq = layer->inv_freq,
                                               .magnitude = crumb_rope_magnitude(h)}});
    crumb_value out = crumb_graph_value(g, h->num_attention_heads * h->head_dim);
    crumb_graph_append(g, &(crumb_op){.kind = CRUMB_OP_ATTENTION,
                                      .attention = {.q = q,
                                                    .k = k,
                                                    .v = v,
                                                    .out = out,
                                                    .kv_layer = index,
                                                    .n_head = h->num_attention_heads,
                                                    .n_head_kv = h->num_key_value_heads,
                                                    .head_dim = h->head_dim,
                                                    .scale = 1.0f / sqrtf((float)h->head_dim)}});
    crumb_graph_release(g, q);
    crumb_graph_release(g, k);
    crumb_graph_release(g, v);
    return out;
}

/* v's rows whose logits are wanted, in its place. */
static crumb_value keep_outputs(crumb_graph *g, crumb_value v) {
    crumb_value kept = crumb_graph_select(g, v);
    crumb_graph_release(g, v);
    return kept;
}

void crumb_arch_leave_attention(crumb_graph *g, const crumb_network *net, uint32_t index, crumb_value *attended,
                                crumb_value *residual) {
    if (index + 1 < net->hparams.num_hidden_layers) return;
    *attended = keep_outputs(g, *attended);
    *residual = keep_outputs(g, *residual);
}

static crumb_activation_fn gate_fn(const crumb_network *net) {
    switch (net->hparams.hidden_act) {
    case CRUMB_HIDDEN_ACT_SILU: return CRUMB_ACT_FN_SILU;
    case CRUMB_HIDDEN_ACT_RELU2: return CRUMB_ACT_FN_RELU2;
    case CRUMB_HIDDEN_ACT_DEFAULT: break;
    }
    return net->arch->ffn_fn;
}

crumb_value crumb_arch_gated(crumb_graph *g, const crumb_network *net, uint32_t index, crumb_value x) {
    const crumb_hparams *h = &net->hparams;
    const crumb_layer *layer = &net->layers[index];
    crumb_value gate = crumb_graph_value(g, h->intermediate_size), up = crumb_graph_value(g, h->intermediate_size);
    const crumb_weight *weights[] = {&layer->ffn_gate, &layer->ffn_up};
    crumb_graph_linear(g, x, 2, weights, (crumb_value[]){gate, up}, CRUMB_NO_VALUE);
    crumb_graph_append(
        g, &(crumb_op){.kind = CRUMB_OP_GATED, .gated = {.gate = gate, .up = up, .out = gate, .fn = gate_fn(net)}});
    crumb_graph_release(g, up);
    return gate;
}

crumb_value crumb_arch_plain_layer(crumb_graph *g, const crumb_network *net, uint32_t index, crumb_value x) {
    const crumb_layer *layer = &net->layers[index];
    float eps = net->hparams.rms_norm_eps;

    crumb_value normed = crumb_graph_rms_norm(g, x, layer->attn_norm, eps);
    crumb_value attended = crumb_arch_attention(g, net, index, normed);
    crumb_graph_release(g, normed);
    crumb_arch_leave_attention(g, net, index, &attended, &x);
    crumb_arch_add(g, &layer->attn_output, attended, x);

    normed = crumb_graph_rms_norm(g, x, layer->ffn_norm, eps);
    crumb_value gated = crumb_arch_gated(g, net, index, normed);
    crumb_graph_release(g, normed);
    crumb_arch_add(g, &layer->ffn_down, gated, x);
    return x;
}

void crumb_arch_add(crumb_graph *g, const crumb_weight *w, crumb_value in, crumb_value residual) {
    crumb_graph_linear(g, in, 1, &w, &residual, residual);
    crumb_graph_release(g, in);
}
