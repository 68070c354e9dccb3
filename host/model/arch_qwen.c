/* qwen2, qwen3: Qwen 2, 2.5 and 3, and what is built like them (Bonsai). As llama with pairs (i, i + dims/2); Qwen 2
 * has biases on q, k and v, Qwen 3 instead a norm of each head's q and k before they are rotated. */
#include "host/model/arch.h"

static const crumb_tensor_rule qwen2_tensors[] = {
    CRUMB_LAYER_VECTOR("attn_norm", attn_norm, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_BIASED("attn_q", attn_q, CRUMB_DIM_Q, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_BIASED("attn_k", attn_k, CRUMB_DIM_KV, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_BIASED("attn_v", attn_v, CRUMB_DIM_KV, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("attn_output", attn_output, CRUMB_DIM_HIDDEN, CRUMB_DIM_Q),
    CRUMB_LAYER_VECTOR("ffn_norm", ffn_norm, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("ffn_gate", ffn_gate, CRUMB_DIM_FF, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("ffn_up", ffn_up, CRUMB_DIM_FF, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("ffn_down", ffn_down, CRUMB_DIM_HIDDEN, CRUMB_DIM_FF),
};

static const crumb_tensor_rule qwen3_tensors[] = {
    CRUMB_LAYER_VECTOR("attn_norm", attn_norm, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("attn_q", attn_q, CRUMB_DIM_Q, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("attn_k", attn_k, CRUMB_DIM_KV, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("attn_v", attn_v, CRUMB_DIM_KV, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_VECTOR("attn_q_norm", attn_q_norm, CRUMB_DIM_HEAD),
    CRUMB_LAYER_VECTOR("attn_k_norm", attn_k_norm, CRUMB_DIM_HEAD),
    CRUMB_LAYER_MATRIX("attn_output", attn_output, CRUMB_DIM_HIDDEN, CRUMB_DIM_Q),
    CRUMB_LAYER_VECTOR("ffn_norm", ffn_norm, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("ffn_gate", ffn_gate, CRUMB_DIM_FF, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("ffn_up", ffn_up, CRUMB_DIM_FF, CRUMB_DIM_HIDDEN),
    CRUMB_LAYER_MATRIX("ffn_down", ffn_down, CRUMB_DIM_HIDDEN, CRUMB_DIM_FF),
};

#define QWEN(variable, file_name, tensors)                                                                             \
    const crumb_arch variable = {.name = file_name,                                                                    \
                                 .pairing = CRUMB_ROPE_HALVES,                                                         \
                                 .ffn_fn = CRUMB_ACT_FN_SILU,                                                          \
                                 .layer_tensors = tensors,                                                             \
                                 .n_layer_tensors = sizeof tensors / sizeof *tensors,                                  \
                                 .layer = crumb_arch_plain_layer}

QWEN(crumb_arch_qwen2, "qwen2", qwen2_tensors);
QWEN(crumb_arch_qwen3, "qwen3", qwen3_tensors);
