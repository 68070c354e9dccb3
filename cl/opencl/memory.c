/* Memory in OpenCL: USM, or cl_mem. */
#include "cl/memory.h"
#include "cl/opencl/driver.h"

crumb_cl_code crumb_cl_driver_allocate(crumb_device *d, crumb_cl_memory *m) {
    const crumb_cl_driver *o = d->driver;
    cl_int code = CL_SUCCESS;
    if (crumb_cl_limit_is_over(&d->limit)) return CRUMB_CL_STUCK;
    if (d->has_usm)
        m->usm = o->usm.device_alloc(o->context, o->id, NULL, (size_t)m->n_bytes, 0, &code);
    else
        m->mem = clCreateBuffer(o->context, CL_MEM_READ_WRITE, (size_t)m->n_bytes, NULL, &code);
    return code == CL_SUCCESS && !m->usm && !m->mem ? CL_MEM_OBJECT_ALLOCATION_FAILURE : code;
}

void crumb_cl_driver_free(crumb_device *d, crumb_cl_memory *m) {
    if (!crumb_cl_settles(d)) return;
    if (m->usm) d->driver->usm.release(d->driver->context, m->usm);
    if (m->mem) clReleaseMemObject(m->mem);
}

crumb_cl_code crumb_cl_driver_allocate_host(crumb_device *d, uint64_t n_bytes, uint32_t align, void **out) {
    cl_int code = CL_SUCCESS;
    *out = NULL;
    if (crumb_cl_limit_is_over(&d->limit)) return CRUMB_CL_STUCK;
    *out = d->driver->usm.host_alloc(d->driver->context, NULL, (size_t)n_bytes, align, &code);
    return code == CL_SUCCESS && !*out ? CL_OUT_OF_HOST_MEMORY : code;
}

void crumb_cl_driver_free_host(crumb_device *d, void *host) {
    if (crumb_cl_settles(d)) d->driver->usm.release(d->driver->context, host);
}

/* Blocking calls would wait in the driver, without a limit. */
static crumb_cl_code wait_if(crumb_device *d, bool blocking, cl_int code) {
    return code == CL_SUCCESS && blocking ? crumb_cl_queue_finish(d, d->queue) : code;
}

crumb_cl_code crumb_cl_driver_read(crumb_device *d, const crumb_cl_memory *m, uint64_t offset, void *to,
                                   uint64_t n_bytes, bool blocking) {
    const size_t n = (size_t)n_bytes;
    if (!crumb_cl_starts(d)) return CRUMB_CL_STUCK;
    if (m->usm)
        return wait_if(d, blocking,
                       d->driver->usm.copy(d->queue, CL_FALSE, to, (const char *)m->usm + offset, n, 0, NULL, NULL));
    return wait_if(d, blocking, clEnqueueReadBuffer(d->queue, m->mem, CL_FALSE, (size_t)offset, n, to, 0, NULL, NULL));
}

crumb_cl_code crumb_cl_driver_write(crumb_device *d, const crumb_cl_memory *m, uint64_t offset, const void *from,
                                    uint64_t n_bytes, bool blocking) {
    const size_t n = (size_t)n_bytes;
    if (!crumb_cl_starts(d)) return CRUMB_CL_STUCK;
    if (m->usm)
        return wait_if(d, blocking,
                       d->driver->usm.copy(d->queue, CL_FALSE, (char *)m->usm + offset, from, n, 0, NULL, NULL));
    return wait_if(d, blocking,
                   clEnqueueWriteBuffer(d->queue, m->mem, CL_FALSE, (size_t)offset, n, from, 0, NULL, NULL));
}

crumb_cl_code crumb_cl_driver_zero(crumb_device *d, const crumb_cl_memory *m) {
    const cl_uchar zero = 0;
    if (!crumb_cl_starts(d)) return CRUMB_CL_STUCK;
    if (m->usm) return d->driver->usm.fill(d->queue, m->usm, &zero, sizeof zero, (size_t)m->n_bytes, 0, NULL, NULL);
    return clEnqueueFillBuffer(d->queue, m->mem, &zero, sizeof zero, 0, (size_t)m->n_bytes, 0, NULL, NULL);
}
