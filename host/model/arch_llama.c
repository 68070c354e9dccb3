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

const crumb_arch crumb_arch_llama = {
    .name = "llama",
    .pairing = CRUMB_ROPE_NORMAL,
    .ffn_fn = CRUMB_ACT_FN_SILU,
    .layer_tensors = tensors,
    .n_layer_tensors = sizeof tensors / sizeof *tensors,
    .layer = crumb_arch_plain_layer,
};
