/* Queues and events in OpenCL. */
#include "cl/opencl/driver.h"

bool crumb_cl_starts(crumb_device *d) {
    if (crumb_cl_limit_is_over(&d->limit)) return false;
    __atomic_store_n(&d->driver->may_run, 1, __ATOMIC_RELAXED);
    return true;
}

bool crumb_cl_settles(crumb_device *d) {
    if (__atomic_load_n(&d->driver->may_run, __ATOMIC_RELAXED)) crumb_cl_queue_finish(d, d->queue);
    return !crumb_cl_limit_is_over(&d->limit);
}

crumb_cl_code crumb_cl_queue_launch(crumb_device *d, crumb_cl_queue queue, crumb_cl_call call, uint32_t n_dims,
                                    const size_t *global, const size_t *local, crumb_cl_event *event) {
    cl_event made = NULL;
    if (!crumb_cl_starts(d)) return CRUMB_CL_STUCK;
    const cl_int code = clEnqueueNDRangeKernel(queue, call, n_dims, NULL, global, local, 0, NULL, event ? &made : NULL);
    if (event) *event = code == CL_SUCCESS ? made : NULL;
    return code;
}

crumb_cl_code crumb_cl_queue_finish(crumb_device *d, crumb_cl_queue queue) {
    if (queue == d->queue) __atomic_store_n(&d->driver->may_run, 0, __ATOMIC_RELAXED);
    return crumb_cl_waiter_wait(d->driver->waiter, &d->limit, queue, NULL);
}

crumb_cl_code crumb_cl_queue_mark(crumb_device *d, crumb_cl_queue queue, crumb_cl_event *out) {
    cl_event made = NULL;
    *out = NULL;
    if (!crumb_cl_starts(d)) return CRUMB_CL_STUCK;
    const cl_int code = clEnqueueMarkerWithWaitList(queue, 0, NULL, &made);
    *out = code == CL_SUCCESS ? made : NULL;
    return code == CL_SUCCESS ? clFlush(queue) : code;
}

crumb_cl_code crumb_cl_event_query(crumb_cl_event event, bool *over) {
    cl_int state = CL_COMPLETE;
    const cl_int code = clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    *over = code == CL_SUCCESS && state == CL_COMPLETE;
    return code == CL_SUCCESS && state < 0 ? state : code;
}

crumb_cl_code crumb_cl_event_wait(crumb_device *d, crumb_cl_event event) {
    return crumb_cl_waiter_wait(d->driver->waiter, &d->limit, NULL, event);
}

bool crumb_cl_event_span(crumb_cl_event first, crumb_cl_event last, uint64_t *ns) {
    cl_ulong begin = 0, end = 0;
    if (clGetEventProfilingInfo(first, CL_PROFILING_COMMAND_START, sizeof begin, &begin, NULL) != CL_SUCCESS ||
        clGetEventProfilingInfo(last, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL) != CL_SUCCESS || end < begin)
        return false;
    *ns = end - begin;
    return true;
}

void crumb_cl_event_release(crumb_device *d, crumb_cl_event event) {
    if (!crumb_cl_limit_is_over(&d->limit)) clReleaseEvent(event);
}
