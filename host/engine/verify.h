/* Whether a device's kernels compute what the CPU's do: each layer of a model on both, from the same input, in a batch
 * of a few rows, with the kernels that prompts get, and in one of a single row. */
#ifndef CRUMB_ENGINE_VERIFY_H
#define CRUMB_ENGINE_VERIFY_H

#include "host/engine/engine.h"

/* Fails with VERIFY, naming the layer and the first op that differs, or as the device fails. Takes memory for one layer
 * at a time, a copy of its weights among it, and leaves the model's sessions alone. */
crumb_status crumb_engine_verify(crumb_model *m, crumb_error *err);

/* What is known of a device's kernels from earlier runs, in files of the user's cache. A model is known by the kinds
 * and shapes of its ops, since these decide which kernels run. */
bool crumb_engine_is_verified(const crumb_model *m);
void crumb_engine_remember_verified(const crumb_model *m);

#endif
