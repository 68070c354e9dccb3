/* Finding and loading backends that are modules. */
#ifndef CRUMB_ENGINE_MODULES_H
#define CRUMB_ENGINE_MODULES_H

#include "host/backend.h"

/* The module of the backend `name` ("ze", "cl"). Fails with DEVICE and one line that says what is missing and what to
 * do: this build has no such module, a library that it needs is not there, it belongs to another version. */
crumb_status crumb_engine_module_load(const char *name, const crumb_module **out, crumb_error *err);

/* Names of all backends that may be loaded, in the order in which they are asked for devices; ends with NULL. */
extern const char *const crumb_engine_module_names[];

#endif
