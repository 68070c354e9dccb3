/* Queues and events in OpenCL. */
#include "cl/opencl/driver.h"

crumb_cl_code crumb_cl_queue_launch(crumb_device *d, crumb_cl_queue queue, crumb_cl_call call, uint32_t n_dims,
                                    const size_t *global, const size_t *local, crumb_cl_event *event) {
    cl_event made = NULL;
    (void)d;
    const cl_int code = clEnqueueNDRangeKernel(queue, call, n_dims, NULL, global, local, 0, NULL, event ? &made : NULL);
    if (event) *event = code == CL_SUCCESS ? made : NULL;
    return code;
}

crumb_cl_code crumb_cl_queue_finish(crumb_device *d, crumb_cl_queue queue) {
    (void)d;
    return clFinish(queue);
}

crumb_cl_code crumb_cl_queue_mark(crumb_device *d, crumb_cl_queue queue, crumb_cl_event *out) {
    cl_event made = NULL;
    (void)d;
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

crumb_cl_code crumb_cl_event_wait(crumb_cl_event event) {
    cl_event e = event;
    return clWaitForEvents(1, &e);
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
    (void)d;
    clReleaseEvent(event);
}
