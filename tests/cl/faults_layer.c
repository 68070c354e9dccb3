/* An OpenCL layer (the loader's OPENCL_LAYERS) under which calls fail as tests/support/faults.h says, with
 * CL_OUT_OF_RESOURCES if no other code is chosen: a real driver beneath. Counted are calls that make objects or
 * enqueue, set, build or wait for something, and those that ask for devices and programs. Not counted are calls that
 * release, and clGetEventInfo, whose number is a matter of time: by its name, every event's state is that of a command
 * that failed. Nor are lookups of functions by name: the file CRUMB_LOOKUP_LOG gets a line for each, like those of
 * CRUMB_FAULT_LOG.
 */
#define _GNU_SOURCE /* dladdr */
#include "tests/cl/layer.h"
#include "tests/support/faults.h"

enum { MAX_QUEUES = 8 };
static cl_command_queue queues[MAX_QUEUES];
static atomic_uint n_queues;

static void remember(cl_command_queue q) {
    const unsigned at = atomic_fetch_add(&n_queues, 1);
    if (at < MAX_QUEUES && below->clRetainCommandQueue(q) == CL_SUCCESS) queues[at] = q;
}

/* A device that is lost runs nothing any more; so neither does the one beneath, before memory that its kernels use is
 * released: no call that fails has waited for them. */
static bool fails(const char *function) {
    if (!crumb_test_call_fails(function)) return false;
    if (crumb_test_device_lost())
        for (unsigned i = 0; i < MAX_QUEUES && queues[i]; i++) below->clFinish(queues[i]);
    return true;
}

static cl_int fault_code(void) {
    return crumb_test_fault_code(CL_OUT_OF_RESOURCES, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_DEVICE_NOT_AVAILABLE,
                                 CL_INVALID_OPERATION);
}

/* What takes the place of a command that is never done: whoever asks for its event gets one. */
static cl_int leave(cl_command_queue q, LAYER_WAITS) {
    return event ? below->clEnqueueMarkerWithWaitList(q, n_events, events, event) : CL_SUCCESS;
}

/* ---- functions ------------------------------------------------------------------------------------------------ */

#define FAIL_OBJECT(kind, result, name, parameters, arguments)                                                         \
    static result CL_API_CALL layer_##name parameters {                                                                \
        if (fails(#name)) {                                                                                            \
            if (code) *code = fault_code();                                                                            \
            return NULL;                                                                                               \
        }                                                                                                              \
        result made = name##_below arguments;                                                                          \
        if (made && LAYER_##kind == LAYER_QUEUE) remember((void *)made);                                               \
        return made;                                                                                                   \
    }
#define FAIL_CODE(kind, result, name, parameters, arguments)                                                           \
    static cl_int CL_API_CALL layer_##name parameters {                                                                \
        return fails(#name) ? fault_code() : name##_below arguments;                                                   \
    }
/* What waits, or enqueues and may wait, on queue `q`; a device that hangs does nothing of it. */
#define FAIL_BARRIER(kind, result, name, parameters, arguments)                                                        \
    static cl_int CL_API_CALL layer_##name parameters {                                                                \
        if (fails(#name)) return fault_code();                                                                         \
        crumb_test_wait_for_hanging();                                                                                 \
        return name##_below arguments;                                                                                 \
    }
#define FAIL_ENQUEUE(kind, result, name, parameters, arguments)                                                        \
    static cl_int CL_API_CALL layer_##name parameters {                                                                \
        if (fails(#name)) return fault_code();                                                                         \
        return crumb_test_device_hangs() ? leave(q, n_events, events, event) : name##_below arguments;                 \
    }
#define FAIL_COPY(kind, result, name, parameters, arguments)                                                           \
    static cl_int CL_API_CALL layer_##name parameters {                                                                \
        if (fails(#name)) return fault_code();                                                                         \
        if (wait) crumb_test_wait_for_hanging();                                                                       \
        return crumb_test_device_hangs() ? leave(q, n_events, events, event) : name##_below arguments;                 \
    }
/* Releasing a queue, a context or memory with work on it, a driver waits for that. */
#define WAIT_TO_RELEASE(kind, result, name, parameters, arguments)                                                     \
    static cl_int CL_API_CALL layer_##name parameters {                                                                \
        if (LAYER_##kind == LAYER_QUEUE || LAYER_##kind == LAYER_CONTEXT || LAYER_##kind == LAYER_USM)                 \
            crumb_test_wait_for_hanging();                                                                             \
        return name##_below arguments;                                                                                 \
    }

#define FUNCTIONS(X)                                                                                                   \
    LAYER_OBJECTS(X)                                                                                                   \
    LAYER_RELEASES(X)                                                                                                  \
    LAYER_CODES(X)                                                                                                     \
    LAYER_BARRIERS(X)                                                                                                  \
    LAYER_ENQUEUES(X)                                                                                                  \
    LAYER_COPIES(X)

FUNCTIONS(LAYER_DECLARE)
LAYER_OBJECTS(FAIL_OBJECT)
LAYER_RELEASES(WAIT_TO_RELEASE)
LAYER_CODES(FAIL_CODE)
LAYER_BARRIERS(FAIL_BARRIER)
LAYER_ENQUEUES(FAIL_ENQUEUE)
LAYER_COPIES(FAIL_COPY)

static cl_int CL_API_CALL get_event_info(cl_event e, cl_event_info what, size_t size, void *out, size_t *n_out) {
    const char *fault = getenv("CRUMB_FAULT");
    const cl_int code = below->clGetEventInfo(e, what, size, out, n_out), failed = fault_code(), waits = CL_SUBMITTED;
    if (code != CL_SUCCESS || what != CL_EVENT_COMMAND_EXECUTION_STATUS || size < sizeof failed) return code;
    if (fault && strcmp(fault, "clGetEventInfo") == 0) memcpy(out, &failed, sizeof failed);
    if (crumb_test_device_hangs()) memcpy(out, &waits, sizeof waits);
    return code;
}

LAYER_USM_FUNCTIONS(LAYER_DECLARE_FOUND)
LAYER_USM_OBJECTS(FAIL_OBJECT)
LAYER_USM_RELEASES(WAIT_TO_RELEASE)
LAYER_USM_CODES(FAIL_CODE)
LAYER_USM_ENQUEUES(FAIL_ENQUEUE)
LAYER_USM_COPIES(FAIL_COPY)

/* Command buffers. */
#if defined(CL_KHR_COMMAND_BUFFER_EXTENSION_VERSION) &&                                                                \
    CL_KHR_COMMAND_BUFFER_EXTENSION_VERSION >= CL_MAKE_VERSION(0, 9, 5)
typedef cl_command_properties_khr command_properties;
#else /* as older headers have it */
typedef cl_ndrange_kernel_command_properties_khr command_properties;
#endif
#define LISTS_OBJECTS(X)                                                                                               \
    X(NONE, cl_command_buffer_khr, clCreateCommandBufferKHR,                                                           \
      (cl_uint n, const cl_command_queue *q, const cl_command_buffer_properties_khr *p, cl_int *code),                 \
      (n, q, p, code))
#define LISTS_CODES(X)                                                                                                 \
    X(NONE, cl_int, clFinalizeCommandBufferKHR, (cl_command_buffer_khr b), (b))                                        \
    X(NONE, cl_int, clCommandNDRangeKernelKHR,                                                                         \
      (cl_command_buffer_khr b, cl_command_queue q, const command_properties *p, cl_kernel k, cl_uint n,               \
       const size_t *offset, const size_t *global, const size_t *local, cl_uint n_waits,                               \
       const cl_sync_point_khr *waits, cl_sync_point_khr *point, cl_mutable_command_khr *handle),                      \
      (b, q, p, k, n, offset, global, local, n_waits, waits, point, handle))

LISTS_OBJECTS(LAYER_DECLARE_FOUND)
LISTS_CODES(LAYER_DECLARE_FOUND)
LISTS_OBJECTS(FAIL_OBJECT)
LISTS_CODES(FAIL_CODE)

static clEnqueueCommandBufferKHR_fn clEnqueueCommandBufferKHR_below;
static cl_int CL_API_CALL layer_clEnqueueCommandBufferKHR(cl_uint n, cl_command_queue *q, cl_command_buffer_khr b,
                                                          LAYER_WAITS) {
    if (fails("clEnqueueCommandBufferKHR")) return fault_code();
    return crumb_test_device_hangs() ? CL_SUCCESS : clEnqueueCommandBufferKHR_below(n, q, b, n_events, events, event);
}

static void *CL_API_CALL find_extension(cl_platform_id p, const char *function) {
    void *address = below->clGetExtensionFunctionAddressForPlatform(p, function);
    const char *log = getenv("CRUMB_LOOKUP_LOG");
    if (log) crumb_test_log_call(log, "clGetExtensionFunctionAddressForPlatform");
    LAYER_USM_FUNCTIONS(LAYER_TAKE_FOUND)
    LISTS_OBJECTS(LAYER_TAKE_FOUND)
    LISTS_CODES(LAYER_TAKE_FOUND)
    LAYER_TAKE_FOUND(NONE, cl_int, clEnqueueCommandBufferKHR, , )
    return address;
}

static void layer_take(void) {
    FUNCTIONS(LAYER_TAKE)
    layer_own.clGetEventInfo = get_event_info;
    layer_own.clGetExtensionFunctionAddressForPlatform = find_extension;
}
