/* Meeting other devices' plans in the middle of this one. The thread that replays a plan does it: it enqueues what
 * comes before a WAIT, watches the flag in the host's memory, and enqueues the rest; for a SIGNAL it watches the event
 * of what comes before, goes on enqueuing meanwhile, and raises the flag. Neither drains the queue, no kernel spins on
 * the device, where the kernel driver would end it, and it takes nothing of the driver that OpenCL 1.2 lacks. And the
 * memory that plans of several devices have values in. */
#ifndef CRUMB_CL_RENDEZVOUS_H
#define CRUMB_CL_RENDEZVOUS_H

#include "cl/device.h"

/* Entries of the backend: host USM. */
crumb_status crumb_cl_shared_create(crumb_device *d, uint64_t n_bytes, void **out, crumb_error *err);
void crumb_cl_shared_destroy(crumb_device *d, void *shared, uint64_t n_bytes);
/* Whether the device has made the n_bytes at `at`. */
bool crumb_cl_shared_has(const crumb_device *d, const void *at, uint64_t n_bytes);

typedef struct crumb_cl_rendezvous {
    size_t launch; /* it comes before this one */
    bool waits;    /* else it signals */
    uint32_t *flag;
    uint64_t *waited; /* NULL: nobody asks */
    const uint32_t *given_up;
    crumb_cl_event done; /* of a signal under way: what it waits for */
} crumb_cl_rendezvous;

/* A plan's, in their order. */
typedef struct crumb_cl_meetings {
    crumb_cl_rendezvous *items;
    size_t n;
    size_t next;   /* of a replay: the first that it has not come to */
    size_t raised; /* before this one no flag is still to be raised */
} crumb_cl_meetings;

/* `op` is a SIGNAL or a WAIT. */
crumb_status crumb_cl_meetings_add(crumb_cl_meetings *m, size_t launch, const crumb_op *op, crumb_error *err);
/* Before launch number `launch` of replay `number` is enqueued, and once for the number behind the last. */
crumb_status crumb_cl_meet(crumb_cl_meetings *m, crumb_device *d, crumb_cl_queue queue, size_t launch, uint32_t number,
                           crumb_error *err);
/* When all is enqueued: raises what flags are left, each when it may be. */
crumb_status crumb_cl_meetings_end(crumb_cl_meetings *m, crumb_device *d, uint32_t number, crumb_error *err);
/* After an error: forgets the replay's signals. Flags that were not raised stay so. */
void crumb_cl_meetings_drop(crumb_cl_meetings *m, crumb_device *d);
void crumb_cl_meetings_free(crumb_cl_meetings *m, crumb_device *d);

#endif
