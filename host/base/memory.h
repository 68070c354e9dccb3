/* Large aligned memory and the machine's memory figures. */
#ifndef CRUMB_BASE_MEMORY_H
#define CRUMB_BASE_MEMORY_H

#include "host/base/error.h"

/* Zeroed, 64-byte aligned (2 MiB where n_bytes is at least that, and then with huge pages asked for). Fails with
 * MEMORY, naming `what` and the size, also when the machine plainly has not that much free. */
crumb_status crumb_pages_alloc(uint64_t n_bytes, const char *what, void **out, crumb_error *err);
void crumb_pages_free(void *p, uint64_t n_bytes);
/* Gives whole pages within a part of such memory back; what they held is gone. Returns how many bytes that were. */
uint64_t crumb_pages_discard(void *p, uint64_t n_bytes);

/* Small allocations: malloc/calloc that fail with MEMORY and name `what`. Freed with free(). n * size is checked. */
crumb_status crumb_calloc(uint64_t n, uint64_t size, const char *what, void **out, crumb_error *err);

uint64_t crumb_memory_total_bytes(void);     /* of the machine; 0 if unknown */
uint64_t crumb_memory_available_bytes(void); /* what can be allocated without swapping; UINT64_MAX if unknown */
uint64_t crumb_memory_resident_bytes(void);  /* of this process; 0 if unknown */
uint64_t crumb_memory_peak_bytes(void);

#endif
