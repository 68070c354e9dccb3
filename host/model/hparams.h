/* Hyper-parameters of a model, read and checked from a GGUF file's keys. Names are Hugging Face's. */
#ifndef CRUMB_MODEL_HPARAMS_H
#define CRUMB_MODEL_HPARAMS_H

#include "host/container/gguf.h"

/* What the feed-forward part gates with. */
typedef enum crumb_hidden_act {
    CRUMB_HIDDEN_ACT_DEFAULT, /* the file does not say: the architecture's own */
    CRUMB_HIDDEN_ACT_SILU,
    CRUMB_HIDDEN_ACT_RELU2,
} crumb_hidden_act;

typedef struct crumb_rope_scaling {
    float factor;      /* positions are divided by it; 1: no scaling */
    float attn_factor; /* on cosines and sines, beside YaRN's own */
    bool yarn;         /* fast pairs are not scaled, and those between fast and slow ones are in part: */
    float beta_fast;   /* turns within the original context of the slowest pair that is fast */
    float beta_slow;   /* of the fastest that is slow */
    uint32_t original_context;
} crumb_rope_scaling;

/* What is more than any model has. */
enum {
    CRUMB_MAX_LAYERS = 1024,
    CRUMB_MAX_CONTEXT = 1 << 30,
    CRUMB_MAX_HIDDEN_SIZE = 1 << 20,
    CRUMB_MAX_INTERMEDIATE_SIZE = 1 << 22,
    CRUMB_MAX_HEADS = 4096,
    CRUMB_MAX_HEAD_DIM = 4096,
    CRUMB_MAX_VOCAB_SIZE = 1 << 24,
};

typedef struct crumb_hparams {
    char architecture[32];
    uint32_t vocab_size;
    uint32_t hidden_size;
    uint32_t intermediate_size;
    uint32_t num_hidden_layers;
    uint32_t num_attention_heads;
    uint32_t num_key_value_heads;
    uint32_t head_dim;
    uint32_t rope_dims;               /* of each head, from its start */
    uint32_t max_position_embeddings; /* the context the model was trained for */
    float rms_norm_eps;
    float rope_theta;
    crumb_rope_scaling rope_scaling;
    crumb_hidden_act hidden_act;
} crumb_hparams;

/* Reads the keys of `architecture`. A missing or senseless value is FORMAT; a key that asks for something crumb does
 * not do (experts, soft-capping, a Hadamard transform ...) is UNSUPPORTED. Both name the key. */
crumb_status crumb_hparams_read(const crumb_gguf *g, const char *architecture, crumb_hparams *out, crumb_error *err);

/* Checks ranges and that the parts fit together; also for shapes that come from a table. */
crumb_status crumb_hparams_check(const crumb_hparams *h, crumb_error *err);

#endif
