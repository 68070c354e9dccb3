/* Waiting with a limit. OpenCL's calls that wait have none, so a thread of the device's own makes them: a driver that
 * never returns keeps that thread, and whoever asked for it goes on. */
#ifndef CRUMB_CL_OPENCL_WAITER_H
#define CRUMB_CL_OPENCL_WAITER_H

#include "cl/limit.h"
#include "cl/opencl/api.h"
#include "host/base/error.h"

typedef struct crumb_cl_waiter crumb_cl_waiter;

crumb_status crumb_cl_waiter_create(crumb_cl_waiter **out, crumb_error *err);
/* Not of a device whose limit is over: its thread may still be in the driver. NULL is allowed. */
void crumb_cl_waiter_destroy(crumb_cl_waiter *w);

/* Until `event` is over or, where it is NULL, all of `queue`; CRUMB_CL_STUCK where that takes longer than the limit,
 * which is over then. One call at a time waits, others wait for it. */
cl_int crumb_cl_waiter_wait(crumb_cl_waiter *w, crumb_cl_limit *limit, cl_command_queue queue, cl_event event);

#endif
