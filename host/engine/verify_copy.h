/* What a check keeps for one layer, copies of a device's weights among it, which a CPU's ops name in their stead. */
#ifndef CRUMB_ENGINE_VERIFY_COPY_H
#define CRUMB_ENGINE_VERIFY_COPY_H

#include "host/backend.h"
#include "host/graph/graph.h"

/* Zeros: nothing is kept. Of one thread. */
typedef struct crumb_verify_copies {
    void **owned;
    size_t n, capacity;
} crumb_verify_copies;

/* *out: n_bytes of zeros, with a cache line behind them that may be read. MEMORY. */
crumb_status crumb_verify_own(crumb_verify_copies *c, uint64_t n_bytes, void **out, crumb_error *err);
/* Lets `op`, with these values, name copies of what it names, as the device has it; of matrices the rows that it
 * computes. MEMORY, or as the device fails. */
crumb_status crumb_verify_copy_weights(crumb_verify_copies *c, const crumb_backend *backend, crumb_device *device,
                                       const crumb_value_info *values, crumb_op *op, crumb_error *err);
/* All that has been kept; the list stays for the next layer. */
void crumb_verify_drop_copies(crumb_verify_copies *c);
void crumb_verify_free_copies(crumb_verify_copies *c);

#endif
