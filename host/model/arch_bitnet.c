/* bitnet: BitNet b1.58. As llama, with a norm before the attention output and one before the down projection
 * (sub-norms). The first published models (`bitnet`) gate with SiLU, 2B-4T and later ones with relu^2. */
#include "host/model/arch.h"

static const crumb_tensor_rule tensors[] = {
    CRUMB_LAYER_VECTOR("attn_norm", attn_norm, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("attn_q", attn_q, CRUMB_DIM_Q, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("attn_k", attn_k, CRUMB_DIM_KV, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("attn_v", attn_v, CRUMB_DIM_KV, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_VECTOR("attn_sub_norm", attn_sub_norm, CRUMB_DIM_Q),
    CRUMB_LAYER_MATRIX("attn_output", attn_output, CRUMB_DIM_HIDDEN, CRUMB_DIM_Q),
    CRUMB_LAYER_VECTOR("ffn_norm", ffn_norm, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("ffn_gate", ffn_gate, CRUMB_DIM_FF, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("ffn_up", ffn_up, CRUMB_DIM_FF, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_VECTOR("ffn_sub_norm", ffn_sub_norm, CRUMB_DIM_FF),
    CRUMB_LAYER_MATRIX("ffn_down", ffn_down, CRUMB_DIM_HIDDEN, CRUMB_DIM_FF),
};

static crumb_value bitnet_layer(crumb_graph *g, const crumb_network *net, uint32_t index, crumb_value x) {
    const crumb_layer *layer = &net->layers[index];
    float eps = net->hparams.rms_norm_eps;

    crumb_value normed = crumb_graph_rms_norm(g, x, layer->attn_norm, eps);
    crumb_value attended = crumb_arch_attention(g, net, index, normed);
    crumb_graph_release(g, normed);
    crumb_arch_leave_attention(g, net, index, &attended, &x);
    crumb_value sub = crumb_graph_rms_norm(g, attended, layer->attn_sub_norm, eps);
    crumb_graph_release(g, attended);
    crumb_arch_add(g, &layer->attn_output, sub, x);

    normed = crumb_graph_rms_norm(g, x, layer->ffn_norm, eps);
    crumb_value gated = crumb_arch_gated(g, net, index, normed);
    crumb_graph_release(g, normed);
    sub = crumb_graph_rms_norm(g, gated, layer->ffn_sub_norm, eps);
    crumb_graph_release(g, gated);
    crumb_arch_add(g, &layer->ffn_down, sub, x);
    return x;
}

#define BITNET(variable, file_name, fn)                                                                                \
    const crumb_arch variable = {.name = file_name,                                                                    \
                                 .pairing = CRUMB_ROPE_HALVES,                                                         \
                                 .ffn_fn = fn,                                                                         \
                                 .layer_tensors = tensors,                                                             \
                                 .n_layer_tensors = sizeof tensors / sizeof *tensors,                                  \
                                 .layer = bitnet_layer}

BITNET(crumb_arch_bitnet, "bitnet", CRUMB_ACT_FN_SILU);
BITNET(crumb_arch_bitnet_25, "bitnet-25", CRUMB_ACT_FN_RELU2);
BITNET(crumb_arch_bitnet_b158, "bitnet-b1.58", CRUMB_ACT_FN_RELU2);
