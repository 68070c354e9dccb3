/* What `crumb tune` has measured, as plans look it up. */
#ifndef CRUMB_CL_TUNED_H
#define CRUMB_CL_TUNED_H

#include "cl/device.h"
#include "cl/variant.h"

/* What measurements hold for: card and driver, the rung in use, a hash of the kernels' text and rows. */
void crumb_cl_tuned_identify(const crumb_device *d, char device[96], char target[32], char source[20]);

/* The best that is known for a layer and n rows of activations, or for the shape nearest to it. *found is false where
 * nothing is, or what is does not work for this layer; use->x becomes the variant's where it is true. */
crumb_status crumb_cl_tuned_find(const crumb_device *d, crumb_cl_linear *use, uint32_t n, crumb_cl_variant *out,
                                 bool *found, crumb_error *err);

/* What a plan takes when nothing is tuned; use->x becomes the variant's. `may_fuse`: the kernel may read its input
 * while results are written. NULL: nothing fits. */
const crumb_cl_kernel *crumb_cl_untuned(const crumb_device *d, crumb_cl_linear *use, uint32_t n, bool may_fuse,
                                        crumb_cl_variant *out);

#endif
