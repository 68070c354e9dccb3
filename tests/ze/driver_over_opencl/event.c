/* Events: what OpenCL's event of the command that signals them says. */
#include "driver.h"

#include <level_zero/ze_api.h>

#include <stdlib.h>

#define TICK_MASK (((uint64_t)1 << TICK_BITS) - 1)

ze_result_t ZE_APICALL zeEventPoolCreate(ze_context_handle_t context, const ze_event_pool_desc_t *desc,
                                         uint32_t n_devices, ze_device_handle_t *devices, ze_event_pool_handle_t *out) {
    CALL();
    (void)context, (void)n_devices, (void)devices;
    *out = calloc(1, sizeof **out);
    if (!*out) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    (*out)->n_events = desc->count;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeEventPoolDestroy(ze_event_pool_handle_t pool) {
    free(pool);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeEventCreate(ze_event_pool_handle_t pool, const ze_event_desc_t *desc, ze_event_handle_t *out) {
    CALL();
    if (desc->index >= pool->n_events) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    *out = calloc(1, sizeof **out);
    return *out ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

void event_attach(ze_event_handle_t event, cl_event signal, uint64_t n_launch) {
    if (event->signal) clReleaseEvent(event->signal);
    event->signal = signal;
    event->n_launch = n_launch;
}

ze_result_t ZE_APICALL zeEventDestroy(ze_event_handle_t event) {
    event_attach(event, NULL, 0);
    free(event);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeEventHostReset(ze_event_handle_t event) {
    CALL();
    event_attach(event, NULL, 0);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeEventQueryStatus(ze_event_handle_t event) {
    cl_int state = CL_QUEUED;
    if (event->signal) clGetEventInfo(event->signal, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    return state == CL_COMPLETE ? ZE_RESULT_SUCCESS : state < 0 ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_NOT_READY;
}

ze_result_t ZE_APICALL zeEventHostSynchronize(ze_event_handle_t event, uint64_t timeout_ns) {
    if (hangs_for(timeout_ns)) return ZE_RESULT_NOT_READY;
    if (!event->signal) stop("zeEventHostSynchronize of an event that nothing submitted will signal");
    const cl_int code = clWaitForEvents(1, &event->signal);
    CALL();
    return result_of(code);
}

static uint64_t ticks_of(cl_event event, cl_profiling_info what, cl_int *code) {
    cl_ulong ns = 0;
    if (*code == CL_SUCCESS) *code = clGetEventProfilingInfo(event, what, sizeof ns, &ns, NULL);
    const uint64_t ticks = ns / 1000000000 * TICKS_PER_SECOND + ns % 1000000000 * TICKS_PER_SECOND / 1000000000;
    return ticks & TICK_MASK;
}

/* Launch `n` takes its ticks behind the one before it. */
static uint64_t made_ticks(uint64_t n, uint64_t each) {
    return (TICK_MASK - 10 * each + n * each) & TICK_MASK;
}

ze_result_t ZE_APICALL zeEventQueryKernelTimestamp(ze_event_handle_t event, ze_kernel_timestamp_result_t *out) {
    cl_int code = CL_SUCCESS;
    CALL();
    if (zeEventQueryStatus(event) != ZE_RESULT_SUCCESS) return ZE_RESULT_NOT_READY;
    if (getenv("CRUMB_DRIVER_TICKS")) {
        const uint64_t each = strtoull(getenv("CRUMB_DRIVER_TICKS"), NULL, 10);
        out->global.kernelStart = made_ticks(event->n_launch - 1, each);
        out->global.kernelEnd = made_ticks(event->n_launch, each);
        out->context = out->global;
        return ZE_RESULT_SUCCESS;
    }
    out->global.kernelStart = ticks_of(event->signal, CL_PROFILING_COMMAND_START, &code);
    out->global.kernelEnd = ticks_of(event->signal, CL_PROFILING_COMMAND_END, &code);
    out->context = out->global;
    return result_of(code);
}
