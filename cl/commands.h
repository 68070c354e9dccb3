/* A plan's launches as one command buffer (cl_khr_command_buffer): enqueued as one command, where each launch by itself
 * costs the host microseconds. Intel's GPU driver does not have the extension, its CPU runtime does; without it, and
 * where a driver refuses a launch, replays enqueue kernels one by one. */
#ifndef CRUMB_CL_COMMANDS_H
#define CRUMB_CL_COMMANDS_H

#include "cl/api.h"
#include "host/backend.h"

/* What the recorded sizes depend on. */
typedef struct crumb_cl_sizes {
    uint32_t n_rows, n_outputs, chunks;
} crumb_cl_sizes;

typedef struct crumb_cl_commands {
    clCreateCommandBufferKHR_fn create;
    clFinalizeCommandBufferKHR_fn finalize;
    clReleaseCommandBufferKHR_fn release;
    clEnqueueCommandBufferKHR_fn enqueue;
    clCommandNDRangeKernelKHR_fn add_kernel;
    cl_command_buffer_khr buffer;  /* NULL: none is recorded */
    crumb_cl_sizes recorded, last; /* what it is for; of the replay before */
    bool usable;                   /* the device has them, and has refused nothing yet */
} crumb_cl_commands;

/* Finds the device's functions; without them nothing below does anything. */
void crumb_cl_commands_find(const crumb_device *d, crumb_cl_commands *out);
/* Whether the plan's launches for these sizes are recorded: they are when they come a second time in a row, since
 * recording costs more than enqueuing once. */
bool crumb_cl_commands_ready(crumb_plan *p, const crumb_cl_sizes *sizes);
cl_int crumb_cl_commands_run(const crumb_plan *p);
void crumb_cl_commands_free(crumb_cl_commands *c);

#endif
