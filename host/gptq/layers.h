/* A model's layers one at a time with float weights and activations, halting before each linear op: what that gets as
 * input for a calibration text is there to be read, and its weights can still be changed. What follows is computed with
 * what they then are. So each layer's inputs are those that the rounded layers before it make. */
#ifndef CRUMB_GPTQ_LAYERS_H
#define CRUMB_GPTQ_LAYERS_H

#include "host/backend.h"
#include "host/container/gguf.h"

typedef struct crumb_layers crumb_layers;

typedef struct crumb_layers_params {
    const crumb_gguf *from;
    const int32_t *tokens; /* of the text, cut into sequences of `length` that know nothing of each other */
    uint64_t n_tokens;
    uint32_t length;
    int n_threads;
    /* Asked between sequences; true: gives up with INTERRUPTED. May be NULL. */
    bool (*should_stop)(void *user);
    void *should_stop_user;
} crumb_layers_params;

/* Reads the model's shapes and the tokens' embeddings. Memory: a few activations for each token, and one layer's
 * weights as f32. Fails with ARGUMENT for tokens that the model does not have, and as loading a model does. */
crumb_status crumb_layers_open(const crumb_layers_params *params, crumb_layers **out, crumb_error *err);
void crumb_layers_close(crumb_layers *l); /* NULL is allowed */

/* A linear op that is about to be computed. */
typedef struct crumb_layers_stop {
    size_t n;                                   /* matrices that share the input; 0: the layer is at its end */
    const char *tensor[CRUMB_LINEAR_MAX_PARTS]; /* their names */
    float *weights[CRUMB_LINEAR_MAX_PARTS];     /* [m][k] */
    uint64_t m[CRUMB_LINEAR_MAX_PARTS], k;
    const float *x; /* [n_tokens][k]; at the layer's end what it adds to: the residual stream, hidden_size wide */
} crumb_layers_stop;

uint32_t crumb_layers_count(const crumb_layers *l);
/* Loads the next layer's weights; the layer before it must have come to its end. */
crumb_status crumb_layers_begin(crumb_layers *l, crumb_error *err);
/* Computes up to the next linear op of the layer. What `out` points to is valid until the next call. */
crumb_status crumb_layers_next(crumb_layers *l, crumb_layers_stop *out, crumb_error *err);

#endif
