/* A network: hyper-parameters, weights and the architecture that ties them together; knows no device and no text. */
#ifndef CRUMB_MODEL_NETWORK_H
#define CRUMB_MODEL_NETWORK_H

#include "host/backend.h"
#include "host/graph/graph.h"
#include "host/model/hparams.h"

/* A weight matrix as its linear layer uses it: y = (W x) * scale + bias, where W's column i is `matrix`'s column j with
 * order[j] = i. */
typedef struct crumb_weight {
    crumb_matrix matrix;
    float scale;           /* of a separate ".scale" tensor; else 1 */
    const float *bias;     /* NULL: none */
    const uint32_t *order; /* [k]; NULL: columns stand where they belong. The same pointer: the same order */
} crumb_weight;

/* The weights of one layer; what an architecture does not have stays zero. */
typedef struct crumb_layer {
    const float *inv_freq; /* rope_dims / 2 angles per position, all scaling applied; the same for all layers, which may
                            * lie in different memories */
    const float *attn_norm, *attn_sub_norm, *ffn_norm, *ffn_sub_norm;
    const float *attn_q_norm, *attn_k_norm; /* of each head, before it is rotated */
    crumb_weight attn_q, attn_k, attn_v, attn_output;
    crumb_weight ffn_gate, ffn_up, ffn_down;
} crumb_layer;

typedef struct crumb_network crumb_network;

/* What a tensor is for. */
typedef enum crumb_tensor_kind {
    CRUMB_TENSOR_VECTOR, /* const float *: norm weights */
    CRUMB_TENSOR_MATRIX, /* crumb_weight, with optional .bias and .scale tensors beside it */
} crumb_tensor_kind;

typedef enum crumb_dim { /* sizes that a tensor's shape must have */
                         CRUMB_DIM_ONE,
                         CRUMB_DIM_HIDDEN,
                         CRUMB_DIM_FF,
                         CRUMB_DIM_Q,  /* num_attention_heads * head_dim */
                         CRUMB_DIM_KV, /* num_key_value_heads * head_dim */
                         CRUMB_DIM_HEAD,
                         CRUMB_DIM_VOCAB,
                         CRUMB_DIM_ROPE_HALF, /* rope_dims / 2 */
} crumb_dim;

typedef struct crumb_tensor_rule {
    const char *name; /* within blk.N., without ".weight" */
    crumb_tensor_kind kind;
    bool biased;    /* a matrix whose .bias must be there, and not only may */
    size_t offset;  /* of its member in crumb_layer */
    crumb_dim m, k; /* rows and columns; a vector has k only */
} crumb_tensor_rule;

/* An architecture: data and one function. Adding one touches its own file and the list in arch.c. */
typedef struct crumb_arch {
    const char *name; /* general.architecture */
    crumb_rope_pairing pairing;
    crumb_activation_fn ffn_fn; /* unless the file names another */
    const crumb_tensor_rule *layer_tensors;
    size_t n_layer_tensors;
    /* Appends one layer to the graph; returns the residual stream after it. */
    crumb_value (*layer)(crumb_graph *g, const crumb_network *net, uint32_t index, crumb_value x);
} crumb_arch;

struct crumb_network {
    const crumb_arch *arch;
    crumb_hparams hparams;
    crumb_matrix embedding; /* vocab x hidden */
    crumb_weight head;      /* the embedding again where they are tied */
    bool tied;
    const float *output_norm;
    crumb_layer *layers;
};

/* NULL when crumb does not know it. */
const crumb_arch *crumb_arch_find(const char *name);
/* Comma-separated list for messages and help; static storage. */
const char *crumb_arch_names(void);

/* Layers [first, end) of the forward pass, where layer num_hidden_layers is the head: the final norm and the output
 * matrix. The first layer is preceded by the embedding, others by an input, the residual stream, of which only the rows
 * that want output go on behind the last layer's attention. Returns the residual stream after layer end - 1, or the
 * logits. */
crumb_value crumb_network_span(const crumb_network *net, crumb_graph *g, uint32_t first, uint32_t end);

#endif
