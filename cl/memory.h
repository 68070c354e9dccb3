/* Memory of a device. With Level Zero, and with OpenCL where it has cl_intel_unified_shared_memory, an allocation is a
 * pointer, else a cl_mem.
 *
 * Weights: ops name them by the host's addresses. A device that shares the machine's memory reads them there (host
 * USM). For others the host writes into pages of its own: with device USM each committed range is copied and the pages
 * go; with cl_mem each matrix part and vector is copied when the first plan names it, since a cl_mem has no address
 * inside.
 */
#ifndef CRUMB_CL_MEMORY_H
#define CRUMB_CL_MEMORY_H

#include "cl/device.h"

struct crumb_cl_memory {
    void *usm; /* device or host USM, or */
    void *mem; /* a cl_mem; neither: no memory */
    uint64_t n_bytes;
};

/* Fails with MEMORY, naming `what` and the sizes, also where it would take what the device's other users need. */
crumb_status crumb_cl_memory_create(crumb_device *d, uint64_t n_bytes, const char *what, crumb_cl_memory *out,
                                    crumb_error *err);
void crumb_cl_memory_free(crumb_device *d, crumb_cl_memory *m);
/* From the host, at its beginning; returns when `from` may be changed. */
crumb_status crumb_cl_memory_write(crumb_device *d, const crumb_cl_memory *m, const void *from, uint64_t n_bytes,
                                   crumb_error *err);

/* Host memory, zeroed, that the device can copy from and to quickly; freed with crumb_cl_host_free. */
crumb_status crumb_cl_host_create(crumb_device *d, uint64_t n_bytes, void **out, crumb_error *err);
void crumb_cl_host_free(crumb_device *d, void *p);

/* Copies of memory that no buffer of the device holds: tables of the program's own, weights in tests. */
typedef struct crumb_cl_copies {
    struct crumb_cl_copy *first;
} crumb_cl_copies;
void crumb_cl_copies_free(crumb_device *d, crumb_cl_copies *copies);

/* Where the device finds the n_bytes at `host` that an op names; NULL: nowhere. */
crumb_status crumb_cl_weights_find(crumb_device *d, crumb_cl_copies *copies, const void *host, uint64_t n_bytes,
                                   crumb_cl_memory *out, crumb_error *err);
/* Their bytes, also after the host's pages have gone. */
crumb_status crumb_cl_weights_read(crumb_device *d, const void *host, uint64_t n_bytes, void *to, crumb_error *err);

/* Entries of the backend. */
crumb_status crumb_cl_buffer_create(crumb_device *d, uint64_t n_bytes, const char *what, crumb_buffer **out,
                                    void **host, crumb_error *err);
crumb_status crumb_cl_buffer_commit(crumb_device *d, crumb_buffer *b, uint64_t offset, uint64_t n_bytes, bool kept,
                                    crumb_error *err);
void crumb_cl_buffer_destroy(crumb_device *d, crumb_buffer *b);

#endif
