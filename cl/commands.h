/* A plan's launches as one list, enqueued as one command where each launch by itself costs the host microseconds: a
 * closed command list of Level Zero, with the batch's and the result's copies; a command buffer of OpenCL
 * (cl_khr_command_buffer), which Intel's GPU driver does not have, and its CPU runtime does. Without them, and where a
 * driver refuses a launch, replays enqueue kernels one by one. */
#ifndef CRUMB_CL_COMMANDS_H
#define CRUMB_CL_COMMANDS_H

#include "cl/driver.h"
#include "host/backend.h"

/* What the recorded sizes depend on. */
typedef struct crumb_cl_sizes {
    uint32_t n_rows, n_outputs, chunks;
} crumb_cl_sizes;

typedef struct crumb_cl_commands {
    crumb_cl_list list;            /* NULL: none is recorded */
    crumb_cl_sizes recorded, last; /* what it is for; of the replay before */
    bool usable;                   /* the device has them, and has refused nothing yet */
} crumb_cl_commands;

/* Whether the plan's launches for these sizes are recorded: they are when they come a second time in a row, since
 * recording costs more than enqueuing once; at once for few rows where lists have copies, as in Level Zero, whose lists
 * are cheaper to record. */
bool crumb_cl_commands_ready(crumb_plan *p, const crumb_cl_sizes *sizes);
crumb_cl_code crumb_cl_commands_run(const crumb_plan *p);
void crumb_cl_commands_free(crumb_device *d, crumb_cl_commands *c);

#endif
