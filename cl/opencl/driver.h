/* An open device's OpenCL side. */
#ifndef CRUMB_CL_OPENCL_DRIVER_H
#define CRUMB_CL_OPENCL_DRIVER_H

#include "cl/device.h"
#include "cl/opencl/waiter.h"

/* Functions of cl_intel_unified_shared_memory; all or none are there. */
typedef struct crumb_cl_usm {
    clDeviceMemAllocINTEL_fn device_alloc;
    clHostMemAllocINTEL_fn host_alloc;
    clMemBlockingFreeINTEL_fn release;
    clSetKernelArgMemPointerINTEL_fn set_arg;
    clEnqueueMemcpyINTEL_fn copy;
    clEnqueueMemFillINTEL_fn fill;
} crumb_cl_usm;

/* Of cl_khr_command_buffer; all or none are there. */
typedef struct crumb_cl_lists {
    clCreateCommandBufferKHR_fn create;
    clFinalizeCommandBufferKHR_fn finalize;
    clReleaseCommandBufferKHR_fn release;
    clEnqueueCommandBufferKHR_fn enqueue;
    clCommandNDRangeKernelKHR_fn add_kernel;
} crumb_cl_lists;

struct crumb_cl_driver {
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    crumb_cl_waiter *waiter;
    uint32_t may_run; /* something was enqueued since d->queue was waited for; atomic */
    crumb_cl_usm usm;
    crumb_cl_lists lists;
};

/* Before something is enqueued; false: nothing may be, the device is stuck. */
bool crumb_cl_starts(crumb_device *d);
/* Before memory is released, for which drivers wait without a limit: waits for what runs. False: the device is stuck.
 */
bool crumb_cl_settles(crumb_device *d);

#endif
