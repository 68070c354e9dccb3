/* Whether a device's kernels compute what the CPU's do: each layer of a model on both, from the same input, in a batch
 * of a few rows, with the kernels that prompts get, and in one of a single row, with a KV cache of one type; each kind
 * of layer in plans of 2, 4, 8 and 16 rows as well. */
#ifndef CRUMB_ENGINE_VERIFY_H
#define CRUMB_ENGINE_VERIFY_H

#include "host/engine/engine.h"

/* Fails with VERIFY, naming the layer and the first op that differs, or as the device fails. Takes memory for one layer
 * at a time, a copy of its weights among it, and leaves the model's sessions alone. */
crumb_status crumb_engine_verify(crumb_model *m, crumb_kv_type kv_type, crumb_error *err);

/* What decides which kernels a layer runs, of one model; layer number num_hidden_layers is the head. */
uint64_t crumb_engine_layer_kind(const crumb_network *net, uint32_t layer);

/* Keys and values up to about 1/4 by chance, as kv_write takes them, of a range of a cache with these parameters:
 * scores of all have a part in what a row makes of them. The caller frees *out. */
crumb_status crumb_engine_make_past(const crumb_kv_params *params, const crumb_kv_range *range, void **out,
                                    crumb_error *err);

/* Verifies, on a GPU, where m->checks asks for it and neither this model nor, unless it is asked for each time, one of
 * an earlier run (in files of the user's cache) has been found right with such a cache. A model is known by the kinds
 * and shapes of its ops, and by the type of its cache, since these decide which kernels run. Of any thread. */
crumb_status crumb_engine_check_kernels(crumb_model *m, crumb_kv_type kv_type, crumb_error *err);

#endif
