/* llama: Llama 2 and 3, SmolLM2, Mistral, Falcon3, MobileLLM, TriLM. Pre-norm, gated SiLU; converters have permuted
 * q and k so that RoPE pairs neighbours. */
#include "host/model/arch.h"

static const crumb_tensor_rule tensors[] = {
    CRUMB_LAYER_VECTOR("attn_norm", attn_norm, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("attn_q", attn_q, CRUMB_DIM_Q, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("attn_k", attn_k, CRUMB_DIM_KV, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("attn_v", attn_v, CRUMB_DIM_KV, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("attn_output", attn_output, CRUMB_DIM_HIDDEN, CRUMB_DIM_Q),
    CRUMB_LAYER_VECTOR("ffn_norm", ffn_norm, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("ffn_gate", ffn_gate, CRUMB_DIM_FF, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("ffn_up", ffn_up, CRUMB_DIM_FF, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("ffn_down", ffn_down, CRUMB_DIM_HIDDEN, CRUMB_DIM_FF),
};

static crumb_value llama_layer(crumb_graph *g, const crumb_network *net, uint32_t index, crumb_value x) {
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

const crumb_arch crumb_arch_llama = {
    .name = "llama",
    .pairing = CRUMB_ROPE_NORMAL,
    .ffn_fn = CRUMB_ACT_FN_SILU,
    .layer_tensors = tensors,
    .n_layer_tensors = sizeof tensors / sizeof *tensors,
    .layer = llama_layer,
};
