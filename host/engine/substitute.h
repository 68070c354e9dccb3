/* The CPU in the place of a device that has failed. */
#ifndef CRUMB_ENGINE_SUBSTITUTE_H
#define CRUMB_ENGINE_SUBSTITUTE_H

#include "host/engine/engine.h"

/* Notes where a model comes from: `path`, or the synthetic `spec`, or neither: the embedded one; and what params say of
 * the CPU: threads, cores, balance, tuning. */
crumb_status crumb_engine_note_origin(crumb_model *m, const char *path, const char *spec,
                                      const crumb_model_params *params, crumb_error *err);

/* The same model on the CPU, opened from where it came when this is first asked for; closed with `m`. Threads may ask
 * at once. Fails where the file is gone, is another by now, or does not fit into memory. */
crumb_status crumb_engine_substitute(crumb_model *m, crumb_model **out, crumb_error *err);

void crumb_engine_substitute_close(crumb_model *m); /* and forgets the origin */

#endif
