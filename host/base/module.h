/* Libraries that are loaded while the program runs, and where this program's own files are. */
#ifndef CRUMB_BASE_MODULE_H
#define CRUMB_BASE_MODULE_H

#include "host/base/error.h"

/* Loads the library `path` and finds `symbol` in it. It stays loaded for good: drivers that it brings in start threads
 * and leave handlers behind. Fails with DEVICE and the system's reason, which names a missing dependency. */
crumb_status crumb_module_open(const char *path, const char *symbol, const void **out, crumb_error *err);

/* The folder, without a '/' at its end, of the library or program that `address` lies in. False where the system does
 * not say. */
bool crumb_module_folder(const void *address, char *out, size_t size);

#endif
