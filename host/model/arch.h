/* The architectures, and the pieces they share. */
#ifndef CRUMB_MODEL_ARCH_H
#define CRUMB_MODEL_ARCH_H

#include "host/model/network.h"

extern const crumb_arch crumb_arch_llama, crumb_arch_qwen2, crumb_arch_qwen3;
extern const crumb_arch crumb_arch_bitnet, crumb_arch_bitnet_25, crumb_arch_bitnet_b158;

/* One row of a layer's tensor table. */
#define CRUMB_LAYER_VECTOR(file_name, member, columns)                                                                 \
    {.name = file_name, .kind = CRUMB_TENSOR_VECTOR, .offset = offsetof(crumb_layer, member), .k = columns}
#define CRUMB_LAYER_MATRIX(file_name, member, rows, columns)                                                           \
    {.name = file_name, .kind = CRUMB_TENSOR_MATRIX, .offset = offsetof(crumb_layer, member), .m = rows, .k = columns}
/* A matrix whose .bias must be there. */
#define CRUMB_LAYER_BIASED(file_name, member, rows, columns)                                                           \
    {.name = file_name,                                                                                                \
     .kind = CRUMB_TENSOR_MATRIX,                                                                                      \
     .biased = true,                                                                                                   \
     .offset = offsetof(crumb_layer, member),                                                                          \
     .m = rows,                                                                                                        \
     .k = columns}

/* A layer of the llama kind: a norm and attention, a norm and a gated feed-forward part, each added to the residual
 * stream. */
crumb_value crumb_arch_plain_layer(crumb_graph *g, const crumb_network *net, uint32_t index, crumb_value x);
/* q/k/v, norms of their heads where the layer has them, RoPE and attention over x (normed); the result is
 * num_attention_heads * head_dim wide. */
crumb_value crumb_arch_attention(crumb_graph *g, const crumb_network *net, uint32_t index, crumb_value x);
/* In the last layer, what follows attention serves only the rows whose logits are wanted: leaves the others behind. */
void crumb_arch_leave_attention(crumb_graph *g, const crumb_network *net, uint32_t index, crumb_value *attended,
                                crumb_value *residual);
/* activation(gate x) * (up x), intermediate_size wide. */
crumb_value crumb_arch_gated(crumb_graph *g, const crumb_network *net, uint32_t index, crumb_value x);
/* residual += w in, and `in` is released. */
void crumb_arch_add(crumb_graph *g, const crumb_weight *w, crumb_value in, crumb_value residual);

#endif
