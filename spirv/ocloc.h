/* SPIR-V of OpenCL C by Intel's offline compiler, where its library is installed (libocloc.so): for Level Zero drivers
 * that take no OpenCL C, which the specification does not ask of them. */
#ifndef CRUMB_ZE_OCLOC_H
#define CRUMB_ZE_OCLOC_H

#include "host/base/error.h"

/* Whether the library is there; it stays loaded. */
bool crumb_ze_ocloc_is_there(void);

/* SPIR-V of a text for a GPU of that IP version (Intel's numbers), freed by the caller; NULL: it does not compile, or
 * there is no compiler, and `log` says what it says. Matrix instructions stay calls, which the driver resolves. */
void *crumb_ze_ocloc_compile(uint64_t ip_version, const char *text, const char *options, size_t *n_bytes, char *log,
                             size_t log_size);
/* The same for GPUs by Intel's names ("bmg" or "bmg,lnl"): native binaries of all, or SPIR-V of the first. */
void *crumb_ze_ocloc_compile_for(const char *devices, bool native, const char *text, const char *options,
                                 size_t *n_bytes, char *log, size_t log_size);

#endif
