/* Which device computes which layer of a model. */
#ifndef CRUMB_ENGINE_PLACES_H
#define CRUMB_ENGINE_PLACES_H

#include "host/engine/engine.h"

/* Fills m->places once the network's shapes are known and before its weights are packed, which take weight_bytes, and
 * opens the CPU beside the device that was chosen where it gets layers: those that params->n_gpu_layers or a pattern in
 * CRUMB_PLACE leave to it, that the scheduler advises to (advice.h), or, without advice, that do not fit into the
 * device's memory.
 *
 * A pattern is letters g (the device that was chosen) and c (the CPU), one for each layer, the head being the last, and
 * begun anew where it ends; of prefill, and behind a colon of decoding where that differs: "gc", "g:c". */
crumb_status crumb_engine_place_layers(crumb_model *m, const crumb_model_params *params, uint64_t weight_bytes,
                                       crumb_error *err);

/* Of a matrix of `model`, a crumb_model that is divided: how many rows, the first, its first unit computes, and whether
 * the CPU reads these too. For crumb_weights_place. */
uint32_t crumb_engine_rows_on_first(const void *model, const crumb_matrix *w, bool *kept);

#endif
