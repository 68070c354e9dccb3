/* Memory in OpenCL: USM, or cl_mem. */
#include "cl/memory.h"
#include "cl/opencl/driver.h"

crumb_cl_code crumb_cl_driver_allocate(crumb_device *d, crumb_cl_memory *m) {
    const crumb_cl_driver *o = d->driver;
    cl_int code = CL_SUCCESS;
    if (d->has_usm)
        m->usm = o->usm.device_alloc(o->context, o->id, NULL, (size_t)m->n_bytes, 0, &code);
    else
        m->mem = clCreateBuffer(o->context, CL_MEM_READ_WRITE, (size_t)m->n_bytes, NULL, &code);
    return code == CL_SUCCESS && !m->usm && !m->mem ? CL_MEM_OBJECT_ALLOCATION_FAILURE : code;
}

void crumb_cl_driver_free(crumb_device *d, crumb_cl_memory *m) {
    if (m->usm) d->driver->usm.release(d->driver->context, m->usm);
    if (m->mem) clReleaseMemObject(m->mem);
}

crumb_cl_code crumb_cl_driver_allocate_host(crumb_device *d, uint64_t n_bytes, uint32_t align, void **out) {
    cl_int code = CL_SUCCESS;
    *out = d->driver->usm.host_alloc(d->driver->context, NULL, (size_t)n_bytes, align, &code);
    return code == CL_SUCCESS && !*out ? CL_OUT_OF_HOST_MEMORY : code;
}

void crumb_cl_driver_free_host(crumb_device *d, void *host) {
    d->driver->usm.release(d->driver->context, host);
}

crumb_cl_code crumb_cl_driver_read(crumb_device *d, const crumb_cl_memory *m, uint64_t offset, void *to,
                                   uint64_t n_bytes, bool blocking) {
    const cl_bool wait = blocking ? CL_TRUE : CL_FALSE;
    if (m->usm)
        return d->driver->usm.copy(d->queue, wait, to, (const char *)m->usm + offset, (size_t)n_bytes, 0, NULL, NULL);
    return clEnqueueReadBuffer(d->queue, m->mem, wait, (size_t)offset, (size_t)n_bytes, to, 0, NULL, NULL);
}

crumb_cl_code crumb_cl_driver_write(crumb_device *d, const crumb_cl_memory *m, uint64_t offset, const void *from,
                                    uint64_t n_bytes, bool blocking) {
    const cl_bool wait = blocking ? CL_TRUE : CL_FALSE;
    if (m->usm)
        return d->driver->usm.copy(d->queue, wait, (char *)m->usm + offset, from, (size_t)n_bytes, 0, NULL, NULL);
    return clEnqueueWriteBuffer(d->queue, m->mem, wait, (size_t)offset, (size_t)n_bytes, from, 0, NULL, NULL);
}

crumb_cl_code crumb_cl_driver_zero(crumb_device *d, const crumb_cl_memory *m) {
    const cl_uchar zero = 0;
    if (m->usm) return d->driver->usm.fill(d->queue, m->usm, &zero, sizeof zero, (size_t)m->n_bytes, 0, NULL, NULL);
    return clEnqueueFillBuffer(d->queue, m->mem, &zero, sizeof zero, 0, (size_t)m->n_bytes, 0, NULL, NULL);
}
