/* One linear layer on the device, outside of plans: a trial's weights and activations, and kernels that run on them. */
#ifndef CRUMB_CL_SOLO_H
#define CRUMB_CL_SOLO_H

#include "cl/memory.h"
#include "cl/variant.h"
#include "host/kernel/trial.h"

typedef struct crumb_cl_solo {
    crumb_device *d;
    const crumb_trial *trial; /* outlives it */
    crumb_cl_memory codes, scales, mins, supers, super_mins, codebook;
    crumb_cl_memory batch, x, q, sx, qsum, y;
    crumb_cl_memory largest;  /* |x| of each row, for kernels whose scales another finds */
    crumb_cl_memory narrow_x; /* x in bf16, once a kernel has read it so */
    bool narrow_y;            /* y is bf16 */
    uint64_t q_order;         /* the order that q is in, as a hash; 0: it is not written */
} crumb_cl_solo;

/* Copies the trial to the device. Destroyed by the caller, also after a failure (MEMORY, DEVICE). */
crumb_status crumb_cl_solo_create(crumb_device *d, const crumb_trial *trial, crumb_cl_solo *out, crumb_error *err);
void crumb_cl_solo_destroy(crumb_cl_solo *s);

/* How a variant would be called for the trial. */
crumb_cl_linear crumb_cl_solo_use(const crumb_matrix *w, const crumb_trial_params *params, uint32_t x);

/* Runs a variant that fits and waits. `whole`: quantizing, or finding scales, before it, where the kernel does not do
 * that itself. *ns: how long that took by the driver's clock; 0: it does not say. */
crumb_status crumb_cl_solo_run(crumb_cl_solo *s, const crumb_cl_variant *v, bool whole, double *ns, crumb_error *err);
/* y [n][m], as the last run left it. */
crumb_status crumb_cl_solo_read(crumb_cl_solo *s, float *y, crumb_error *err);

#endif
