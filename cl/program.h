/* Programs: kernel text with options, built once per device, driver and text, and kept in the user's cache. */
#ifndef CRUMB_CL_PROGRAM_H
#define CRUMB_CL_PROGRAM_H

#include "cl/device.h"

/* A kernel of the program that is common.cl followed by `file` ("norm.cl"), built with `options`; released by the
 * caller. Fails with DEVICE and the compiler's words where it does not build. */
crumb_status crumb_cl_kernel_create(crumb_device *d, const char *file, const char *options, const char *name,
                                    cl_kernel *out, crumb_error *err);
void crumb_cl_programs_free(crumb_device *d);

/* The text of cl/kernels/NAME, NUL-terminated; NULL: there is none. */
const char *crumb_cl_text(const char *name);

#endif
