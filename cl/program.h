/* Programs: kernel text with options, built once per device, driver and text, and kept in the user's cache. */
#ifndef CRUMB_CL_PROGRAM_H
#define CRUMB_CL_PROGRAM_H

#include "cl/device.h"

/* A kernel of the program that is the text common.cl followed by `file` ("norm.cl"), built with `options`; released by
 * the caller. Fails with DEVICE and the compiler's words where it does not build. */
crumb_status crumb_cl_kernel_create(crumb_device *d, const char *file, const char *options, const char *name,
                                    crumb_cl_call *out, crumb_error *err);
void crumb_cl_programs_free(crumb_device *d);

/* A name for this driver with these kernels' texts: another where either has changed. */
void crumb_cl_kernels_id(const crumb_device *d, char *out, size_t size);

/* The texts of cl/kernels, number `index`; NULL: there are no more. A text is a file NAME.cl and what the folder NAME
 * has, with #line where each begins. */
const char *crumb_cl_text_at(size_t index);
/* The text "NAME.cl", NUL-terminated; NULL: there is none. */
const char *crumb_cl_text(const char *name);

/* All options of a linear layer's program: its row's, the layer's, and the registers that the row wants, where the
 * device lets them be chosen. */
enum { CRUMB_CL_LINEAR_OPTIONS_MAX = CRUMB_CL_OPTIONS_MAX + sizeof CRUMB_CL_LARGE_REGISTERS + 1 };
void crumb_cl_linear_program(const crumb_device *d, const crumb_cl_kernel *kernel, const crumb_cl_linear *use,
                             char out[CRUMB_CL_LINEAR_OPTIONS_MAX]);
bool crumb_cl_chooses_registers(const crumb_device *d);

#endif
