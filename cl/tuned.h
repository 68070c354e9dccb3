/* What `crumb tune` has measured, as plans look it up. */
#ifndef CRUMB_CL_TUNED_H
#define CRUMB_CL_TUNED_H

#include "cl/device.h"
#include "cl/variant.h"

/* What measurements hold for: card and driver, the rung in use, a hash of the kernels' text and rows. */
void crumb_cl_tuned_identify(const crumb_device *d, char device[96], char target[32], char source[20]);

/* Whether a plan takes a variant, which fits, for a layer and n rows of activations. `may_fuse`: the kernel may read
 * its input while results are written; else it must find codes in memory. One row on a GPU is quantized by kernels
 * themselves wherever they may and one can, however fast others are: tuning sees a layer alone, not the four launches
 * that q/k/v, o, gate/up and down would add to a layer's six, and a token has at most eight a layer. */
bool crumb_cl_tuned_allows(const crumb_device *d, const crumb_cl_variant *v, const crumb_cl_linear *use, uint32_t n,
                           bool may_fuse);

/* The best that is known for a layer and n rows of activations, or for the shape nearest to it. *found is false where
 * nothing is, or what is does not work for this layer or is not allowed there; use->x becomes the variant's where it is
 * true. */
crumb_status crumb_cl_tuned_find(const crumb_device *d, crumb_cl_linear *use, uint32_t n, bool may_fuse,
                                 crumb_cl_variant *out, bool *found, crumb_error *err);

/* What a plan takes when nothing is tuned; use->x becomes the variant's. NULL: nothing fits. */
const crumb_cl_kernel *crumb_cl_untuned(const crumb_device *d, crumb_cl_linear *use, uint32_t n, bool may_fuse,
                                        crumb_cl_variant *out);

#endif
