/* An open device's Level Zero side. */
#ifndef CRUMB_ZE_DRIVER_H
#define CRUMB_ZE_DRIVER_H

#include "cl/device.h"
#include "host/base/thread.h"
#include "spirv/sysman.h"

typedef struct crumb_ze_event {
    struct crumb_ze_event *next; /* among those that nobody has */
    const struct crumb_cl_driver *driver;
    ze_event_handle_t handle;
} crumb_ze_event;

typedef struct crumb_ze_events crumb_ze_events; /* queue.c */

/* What is enqueued goes into short lists, which are submitted as they fill: recording a launch takes the host half of
 * what appending it to an immediate list does. A list can be filled again when the device is done with it. */
enum { CRUMB_ZE_LISTS = 32 };
typedef struct crumb_ze_queue {
    ze_command_list_handle_t immediate; /* what lists are appended to, in their order */
    ze_command_queue_handle_t plain;    /* the same, one by one, where the loader cannot append lists; else NULL */
    ze_command_list_handle_t lists[CRUMB_ZE_LISTS];
    uint32_t n_lists, n_used; /* made; filled since the device was waited for, the open one among them */
    ze_command_list_handle_t open;
    uint32_t n_open; /* what it holds */
    bool may_run;    /* something has been submitted, and nobody has waited since */
} crumb_ze_queue;

struct crumb_cl_driver {
    const crumb_ze_functions *z;
    crumb_cl_limit *limit; /* the device's */
    ze_driver_handle_t handle;
    ze_device_handle_t id;
    ze_context_handle_t context;
    uint32_t ordinal;        /* of the group of queues that kernels run in */
    crumb_ze_queue queue;    /* d->queue */
    crumb_lock *lock;        /* of the queue, and of: */
    void *stage;             /* host memory that the device sees, for copies of what it does not */
    crumb_ze_events *events; /* made so far */
    crumb_ze_event *unused;
    crumb_ze_sysman *sysman; /* NULL: nobody has asked for sensors */
    double ns_per_tick;      /* of timestamps */
    uint64_t tick_mask;
};

ze_result_t crumb_ze_queue_create(crumb_cl_driver *o);
void crumb_ze_queue_destroy(crumb_cl_driver *o);
/* The list to append one command to. */
ze_result_t crumb_ze_queue_open(crumb_cl_driver *o, ze_command_list_handle_t *out);
ze_result_t crumb_ze_queue_submit(crumb_cl_driver *o);
ze_result_t crumb_ze_queue_finish(crumb_cl_driver *o);
/* Waits for what may run, before memory or lists go: Level Zero wants that of the caller, also after a failure. False:
 * the device is stuck, and they must stay. */
bool crumb_ze_queue_settle(crumb_cl_driver *o);
void crumb_ze_events_free(crumb_cl_driver *o);

#endif
