/* A small random model built from backend ops alone, for tests of backends: two layers with every kind of op, rotated
 * grouped-query attention, dense and low-bit weights, a folded and an unfolded norm, both activations. And the same
 * model evaluated in double precision, one weight at a time. */
#ifndef CRUMB_TEST_MINI_MODEL_H
#define CRUMB_TEST_MINI_MODEL_H

#include "host/backend.h"

enum {
    MINI_VOCAB = 50,
    MINI_HIDDEN = 128,
    MINI_HEADS = 6,
    MINI_KV_HEADS = 2,
    MINI_DIM = 24,
    MINI_FF = 256,
    MINI_LAYERS = 2,
    MINI_MAX_OPS = 64,
    MINI_MAX_VALUES = 16
};

typedef struct mini_weights {
    crumb_matrix matrix;
    void *memory;
} mini_weights;

typedef struct mini_layer {
    float attention_norm[MINI_HIDDEN], ff_norm[MINI_HIDDEN], sub_norm[MINI_FF], q_bias[MINI_HEADS * MINI_DIM];
    mini_weights q, k, v, o, gate, up, down;
    crumb_rope_pairing pairing;
    crumb_activation_fn fn;
    bool has_sub_norm;
    float out_scale;
} mini_layer;

typedef struct mini_model {
    mini_weights embedding, head;
    mini_layer layers[MINI_LAYERS];
    float final_norm[MINI_HIDDEN], inv_freq[MINI_DIM / 2];
    crumb_op ops[MINI_MAX_OPS];
    size_t n_ops;
    crumb_value_info values[MINI_MAX_VALUES];
    size_t n_values;
    crumb_value logits, folded; /* `folded`: a norm's result that only the next op reads */
    crumb_kv_params kv;
} mini_model;

/* Random weights of a type, packed; `state` is what the next are made from. Their memory is freed with free(). */
void mini_weights_create(uint32_t *state, crumb_type type, uint32_t m, uint32_t k, mini_weights *out);

/* act: how low-bit layers' activations are quantized. v: the type of the dense weights that make attention's values,
 * which quantized ops come behind. */
void mini_create(mini_model *m, crumb_act_quant act, crumb_type v, uint32_t seed, uint32_t n_sequences, uint32_t n_ctx);
void mini_destroy(mini_model *m);

/* Logits [n_tokens][MINI_VOCAB] of tokens at positions 0.. of one sequence, in double, activations not quantized, K and
 * V rounded as a cache of m->kv.type does. */
void mini_evaluate(const mini_model *m, const int32_t *tokens, uint32_t n_tokens, double *logits);

#endif
