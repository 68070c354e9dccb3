/* How long a device is waited for. One that has not answered within that counts as failed for as long as it is open:
 * whoever waited goes on without it. Nothing that it may still be working with is given back, on purpose, since a
 * driver would wait for it then, and it could write there afterwards; and nothing new is asked of it. */
#ifndef CRUMB_CL_LIMIT_H
#define CRUMB_CL_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct crumb_cl_limit {
    uint64_t ns;      /* of a wait; UINT64_MAX: none */
    uint32_t is_over; /* a wait has taken longer; atomic */
} crumb_cl_limit;

static inline bool crumb_cl_limit_is_over(const crumb_cl_limit *l) {
    return __atomic_load_n(&l->is_over, __ATOMIC_ACQUIRE) != 0;
}

static inline void crumb_cl_limit_end(crumb_cl_limit *l) {
    __atomic_store_n(&l->is_over, 1, __ATOMIC_RELEASE);
}

#endif
