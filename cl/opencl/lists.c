/* Lists in OpenCL: command buffers (cl_khr_command_buffer). */
#include "cl/device.h"
#include "cl/opencl/driver.h"

bool crumb_cl_list_possible(const crumb_device *d) {
    return d->driver->lists.create != NULL;
}

/* The queue is in order, and so are the commands recorded for it. */
crumb_cl_code crumb_cl_list_create(crumb_device *d, crumb_cl_list *out) {
    cl_int code;
    cl_command_queue queue = d->queue;
    *out = d->driver->lists.create(1, &queue, NULL, &code);
    return code;
}

void crumb_cl_list_release(crumb_device *d, crumb_cl_list list) {
    if (!crumb_cl_limit_is_over(&d->limit)) d->driver->lists.release(list);
}

crumb_cl_code crumb_cl_list_add(crumb_device *d, crumb_cl_list list, crumb_cl_call call, uint32_t n_dims,
                                const size_t *global, const size_t *local) {
    return d->driver->lists.add_kernel(list, NULL, NULL, call, n_dims, NULL, global, local, 0, NULL, NULL, NULL);
}

crumb_cl_code crumb_cl_list_copy(crumb_device *d, crumb_cl_list list, void *to, const void *from, uint64_t n_bytes) {
    (void)d, (void)list, (void)to, (void)from, (void)n_bytes;
    return CL_INVALID_OPERATION; /* the extension copies cl_mem only */
}

crumb_cl_code crumb_cl_list_close(crumb_device *d, crumb_cl_list list) {
    return d->driver->lists.finalize(list);
}

crumb_cl_code crumb_cl_list_run(crumb_device *d, crumb_cl_list list) {
    if (!crumb_cl_starts(d)) return CRUMB_CL_STUCK;
    return d->driver->lists.enqueue(0, NULL, list, 0, NULL, NULL);
}
