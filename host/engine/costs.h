/* A model as the scheduler sees it: plain numbers for each layer (scheduler/cost.h). */
#ifndef CRUMB_ENGINE_COSTS_H
#define CRUMB_ENGINE_COSTS_H

#include "host/crumb.h"
#include "host/model/network.h"
#include "scheduler/cost.h"

/* Fills num_hidden_layers + 1 entries, the output matrix being the last. The embedding's memory counts with the first
 * layer, unless it is the output matrix. The network's weights need not be there, only their shapes and types. */
void crumb_engine_cost_layers(const crumb_network *net, crumb_kv_type kv_type, crumb_cost_layer *out);

/* What a model is opened for: params, the usual lengths where these leave them open, and no prompt, batch, nor what
 * follows it, beyond the context. */
typedef struct crumb_engine_lengths {
    uint32_t n_ctx, n_prompt, n_generate, n_batch;
} crumb_engine_lengths;
crumb_engine_lengths crumb_engine_lengths_of(const crumb_hparams *h, const crumb_model_params *params);

/* About what a device's plans for so many rows at once take of its memory beside weights, keys and values. */
uint64_t crumb_engine_scratch_bytes(const crumb_hparams *h, uint32_t n_batch);

/* A network with the shapes and types of a file's weights, or of a synthetic model's, but none of its weights. Of
 * `path` and `synthetic` one is given; both NULL: the embedded model. *name gets what it is called. */
crumb_status crumb_engine_outline_open(const char *path, const char *synthetic, crumb_network *out, char name[256],
                                       crumb_error *err);
/* Of an open file; free(out->layers) when it is done with, also after an error. */
crumb_status crumb_engine_outline_gguf(const crumb_gguf *g, crumb_network *out, char name[256], crumb_error *err);
void crumb_engine_outline_close(crumb_network *net); /* zeroed ones too */

#endif
