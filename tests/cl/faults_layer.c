/* An OpenCL layer (the loader's OPENCL_LAYERS) under which calls fail as tests/support/faults.h says, with
 * CL_OUT_OF_RESOURCES if no other code is chosen: a real driver beneath. Counted are calls that make objects or
 * enqueue, set, build or wait for something, and those that ask for devices and programs. Not counted are calls that
 * release, and clGetEventInfo, whose number is a matter of time: by its name, every event's state is that of a command
 * that failed.
 */
#define _GNU_SOURCE              /* dladdr */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>

#include "tests/support/faults.h"

#define EXPORT __attribute__((visibility("default")))

static struct _cl_icd_dispatch own;
static const struct _cl_icd_dispatch *below;

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

/* Functions that return a code, and those that return an object (or address) and set a code. */
#define CODE(name, parameters, arguments)                                                                              \
    static cl_int CL_API_CALL faulty_##name parameters {                                                               \
        return fails(#name) ? fault_code() : below->name arguments;                                                    \
    }
#define OBJECT(type, name, parameters, arguments)                                                                      \
    static type CL_API_CALL faulty_##name parameters {                                                                 \
        if (!fails(#name)) return below->name arguments;                                                               \
        if (code) *code = fault_code();                                                                                \
        return NULL;                                                                                                   \
    }
/* What waits, or enqueues and may wait, on queue `q`; a device that hangs does nothing of it. */
#define WAITING(name, parameters, arguments)                                                                           \
    static cl_int CL_API_CALL faulty_##name parameters {                                                               \
        if (fails(#name)) return fault_code();                                                                         \
        crumb_test_wait_for_hanging();                                                                                 \
        return below->name arguments;                                                                                  \
    }
#define ENQUEUE(name, parameters, arguments)                                                                           \
    static cl_int CL_API_CALL faulty_##name parameters {                                                               \
        if (fails(#name)) return fault_code();                                                                         \
        return crumb_test_device_hangs() ? leave(q, n_events, events, event) : below->name arguments;                  \
    }
#define COPY(name, parameters, arguments)                                                                              \
    static cl_int CL_API_CALL faulty_##name parameters {                                                               \
        if (fails(#name)) return fault_code();                                                                         \
        if (wait) crumb_test_wait_for_hanging();                                                                       \
        return crumb_test_device_hangs() ? leave(q, n_events, events, event) : below->name arguments;                  \
    }
#define WAITS cl_uint n_events, const cl_event *events, cl_event *event

/* What takes the place of a command that is never done: whoever asks for its event gets one. */
static cl_int leave(cl_command_queue q, WAITS) {
    return event ? below->clEnqueueMarkerWithWaitList(q, n_events, events, event) : CL_SUCCESS;
}

OBJECT(cl_context, clCreateContext,
       (const cl_context_properties *p, cl_uint n, const cl_device_id *devices,
        void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user, cl_int *code),
       (p, n, devices, notify, user, code))
static cl_command_queue CL_API_CALL faulty_clCreateCommandQueue(cl_context c, cl_device_id d,
                                                                cl_command_queue_properties p, cl_int *code) {
    if (fails("clCreateCommandQueue")) {
        if (code) *code = fault_code();
        return NULL;
    }
    cl_command_queue q = below->clCreateCommandQueue(c, d, p, code);
    if (q) remember(q);
    return q;
}
OBJECT(cl_mem, clCreateBuffer, (cl_context c, cl_mem_flags flags, size_t n, void *host, cl_int *code),
       (c, flags, n, host, code))
OBJECT(cl_program, clCreateProgramWithSource,
       (cl_context c, cl_uint n, const char **text, const size_t *sizes, cl_int *code), (c, n, text, sizes, code))
OBJECT(cl_program, clCreateProgramWithBinary,
       (cl_context c, cl_uint n, const cl_device_id *d, const size_t *sizes, const unsigned char **bytes, cl_int *each,
        cl_int *code),
       (c, n, d, sizes, bytes, each, code))
OBJECT(cl_kernel, clCreateKernel, (cl_program p, const char *name, cl_int *code), (p, name, code))
CODE(clBuildProgram,
     (cl_program p, cl_uint n, const cl_device_id *d, const char *options,
      void(CL_CALLBACK *notify)(cl_program, void *), void *user),
     (p, n, d, options, notify, user))
CODE(clSetKernelArg, (cl_kernel k, cl_uint i, size_t n, const void *value), (k, i, n, value))
ENQUEUE(clEnqueueNDRangeKernel,
        (cl_command_queue q, cl_kernel k, cl_uint n, const size_t *offset, const size_t *global, const size_t *local,
         WAITS),
        (q, k, n, offset, global, local, n_events, events, event))
COPY(clEnqueueReadBuffer, (cl_command_queue q, cl_mem m, cl_bool wait, size_t offset, size_t n, void *to, WAITS),
     (q, m, wait, offset, n, to, n_events, events, event))
COPY(clEnqueueWriteBuffer,
     (cl_command_queue q, cl_mem m, cl_bool wait, size_t offset, size_t n, const void *from, WAITS),
     (q, m, wait, offset, n, from, n_events, events, event))
ENQUEUE(clEnqueueFillBuffer,
        (cl_command_queue q, cl_mem m, const void *pattern, size_t size, size_t offset, size_t n, WAITS),
        (q, m, pattern, size, offset, n, n_events, events, event))
ENQUEUE(clEnqueueMarkerWithWaitList, (cl_command_queue q, WAITS), (q, n_events, events, event))
CODE(clFlush, (cl_command_queue q), (q))
WAITING(clFinish, (cl_command_queue q), (q))
WAITING(clWaitForEvents, (cl_uint n, const cl_event *events), (n, events))
CODE(clGetPlatformIDs, (cl_uint n, cl_platform_id *out, cl_uint *n_out), (n, out, n_out))
CODE(clGetDeviceIDs, (cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *out, cl_uint *n_out),
     (p, type, n, out, n_out))
CODE(clGetDeviceInfo, (cl_device_id d, cl_device_info what, size_t size, void *out, size_t *n_out),
     (d, what, size, out, n_out))
CODE(clGetProgramInfo, (cl_program p, cl_program_info what, size_t size, void *out, size_t *n_out),
     (p, what, size, out, n_out))

static cl_int CL_API_CALL faulty_clGetEventInfo(cl_event e, cl_event_info what, size_t size, void *out, size_t *n_out) {
    const char *fault = getenv("CRUMB_FAULT");
    const cl_int code = below->clGetEventInfo(e, what, size, out, n_out), failed = fault_code(), waits = CL_SUBMITTED;
    if (code != CL_SUCCESS || what != CL_EVENT_COMMAND_EXECUTION_STATUS || size < sizeof failed) return code;
    if (fault && strcmp(fault, "clGetEventInfo") == 0) memcpy(out, &failed, sizeof failed);
    if (crumb_test_device_hangs()) memcpy(out, &waits, sizeof waits);
    return code;
}

/* Releasing a queue or a context with work in it, a driver waits for that. */
static cl_int CL_API_CALL slow_clReleaseCommandQueue(cl_command_queue q) {
    crumb_test_wait_for_hanging();
    return below->clReleaseCommandQueue(q);
}
static cl_int CL_API_CALL slow_clReleaseContext(cl_context c) {
    crumb_test_wait_for_hanging();
    return below->clReleaseContext(c);
}

/* Extensions: found by name. */
static clDeviceMemAllocINTEL_fn device_alloc;
static clHostMemAllocINTEL_fn host_alloc;
static clMemBlockingFreeINTEL_fn blocking_free;
static clSetKernelArgMemPointerINTEL_fn set_arg;
static clEnqueueMemcpyINTEL_fn copy;
static clEnqueueMemFillINTEL_fn fill;

static void *CL_API_CALL faulty_device_alloc(cl_context c, cl_device_id d, const cl_mem_properties_intel *p, size_t n,
                                             cl_uint align, cl_int *code) {
    if (!fails("clDeviceMemAllocINTEL")) return device_alloc(c, d, p, n, align, code);
    if (code) *code = fault_code();
    return NULL;
}
static void *CL_API_CALL faulty_host_alloc(cl_context c, const cl_mem_properties_intel *p, size_t n, cl_uint align,
                                           cl_int *code) {
    if (!fails("clHostMemAllocINTEL")) return host_alloc(c, p, n, align, code);
    if (code) *code = fault_code();
    return NULL;
}
static cl_int CL_API_CALL slow_blocking_free(cl_context c, void *p) {
    crumb_test_wait_for_hanging();
    return blocking_free(c, p);
}
static cl_int CL_API_CALL faulty_set_arg(cl_kernel k, cl_uint i, const void *value) {
    return fails("clSetKernelArgMemPointerINTEL") ? fault_code() : set_arg(k, i, value);
}
static cl_int CL_API_CALL faulty_copy(cl_command_queue q, cl_bool wait, void *to, const void *from, size_t n, WAITS) {
    if (fails("clEnqueueMemcpyINTEL")) return fault_code();
    if (wait) crumb_test_wait_for_hanging();
    return crumb_test_device_hangs() ? leave(q, n_events, events, event)
                                     : copy(q, wait, to, from, n, n_events, events, event);
}
static cl_int CL_API_CALL faulty_fill(cl_command_queue q, void *to, const void *pattern, size_t size, size_t n, WAITS) {
    if (fails("clEnqueueMemFillINTEL")) return fault_code();
    return crumb_test_device_hangs() ? leave(q, n_events, events, event)
                                     : fill(q, to, pattern, size, n, n_events, events, event);
}

/* Command buffers. */
#if defined(CL_KHR_COMMAND_BUFFER_EXTENSION_VERSION) &&                                                                \
    CL_KHR_COMMAND_BUFFER_EXTENSION_VERSION >= CL_MAKE_VERSION(0, 9, 5)
typedef cl_command_properties_khr command_properties;
#else /* as older headers have it */
typedef cl_ndrange_kernel_command_properties_khr command_properties;
#endif
static clCreateCommandBufferKHR_fn create_list;
static clFinalizeCommandBufferKHR_fn finalize_list;
static clEnqueueCommandBufferKHR_fn enqueue_list;
static clCommandNDRangeKernelKHR_fn add_kernel;

static cl_command_buffer_khr CL_API_CALL faulty_create_list(cl_uint n, const cl_command_queue *queues_of,
                                                            const cl_command_buffer_properties_khr *p, cl_int *code) {
    if (!fails("clCreateCommandBufferKHR")) return create_list(n, queues_of, p, code);
    if (code) *code = fault_code();
    return NULL;
}
static cl_int CL_API_CALL faulty_finalize_list(cl_command_buffer_khr b) {
    return fails("clFinalizeCommandBufferKHR") ? fault_code() : finalize_list(b);
}
static cl_int CL_API_CALL faulty_enqueue_list(cl_uint n, cl_command_queue *queues_of, cl_command_buffer_khr b, WAITS) {
    if (fails("clEnqueueCommandBufferKHR")) return fault_code();
    return crumb_test_device_hangs() ? CL_SUCCESS : enqueue_list(n, queues_of, b, n_events, events, event);
}
static cl_int CL_API_CALL faulty_add_kernel(cl_command_buffer_khr b, cl_command_queue q, const command_properties *p,
                                            cl_kernel k, cl_uint n, const size_t *offset, const size_t *global,
                                            const size_t *local, cl_uint n_waits, const cl_sync_point_khr *waits,
                                            cl_sync_point_khr *point, cl_mutable_command_khr *handle) {
    return fails("clCommandNDRangeKernelKHR")
               ? fault_code()
               : add_kernel(b, q, p, k, n, offset, global, local, n_waits, waits, point, handle);
}

/* A pointer to a function and one to data are different things to C, and the same to every system with OpenCL. */
#define EXTENSION(name, real, faulty)                                                                                  \
    if (address && strcmp(function, name) == 0) {                                                                      \
        __typeof__(real) mine = faulty;                                                                                \
        memcpy(&real, &address, sizeof address);                                                                       \
        memcpy(&address, &mine, sizeof address);                                                                       \
    }
static void *CL_API_CALL find_extension(cl_platform_id p, const char *function) {
    void *address = below->clGetExtensionFunctionAddressForPlatform(p, function);
    EXTENSION("clDeviceMemAllocINTEL", device_alloc, faulty_device_alloc)
    EXTENSION("clHostMemAllocINTEL", host_alloc, faulty_host_alloc)
    EXTENSION("clSetKernelArgMemPointerINTEL", set_arg, faulty_set_arg)
    EXTENSION("clEnqueueMemcpyINTEL", copy, faulty_copy)
    EXTENSION("clEnqueueMemFillINTEL", fill, faulty_fill)
    EXTENSION("clMemBlockingFreeINTEL", blocking_free, slow_blocking_free)
    EXTENSION("clCreateCommandBufferKHR", create_list, faulty_create_list)
    EXTENSION("clFinalizeCommandBufferKHR", finalize_list, faulty_finalize_list)
    EXTENSION("clEnqueueCommandBufferKHR", enqueue_list, faulty_enqueue_list)
    EXTENSION("clCommandNDRangeKernelKHR", add_kernel, faulty_add_kernel)
    return address;
}

EXPORT cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *out, size_t *n_out) {
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (name != CL_LAYER_API_VERSION || (out && size < sizeof version)) return CL_INVALID_VALUE;
    if (out) memcpy(out, &version, sizeof version);
    if (n_out) *n_out = sizeof version;
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clInitLayer(cl_uint n_entries, const struct _cl_icd_dispatch *target, cl_uint *n_own,
                                      const struct _cl_icd_dispatch **out) {
    const size_t most = sizeof own / sizeof own.clGetPlatformIDs, n = n_entries < most ? n_entries : most;
    if (!target || !n_own || !out) return CL_INVALID_VALUE;
    below = target;
    memcpy(&own, target, n * sizeof own.clGetPlatformIDs);
#define TAKE(name) own.name = faulty_##name
    TAKE(clCreateContext);
    TAKE(clCreateCommandQueue);
    TAKE(clCreateBuffer);
    TAKE(clCreateProgramWithSource);
    TAKE(clCreateProgramWithBinary);
    TAKE(clCreateKernel);
    TAKE(clBuildProgram);
    TAKE(clSetKernelArg);
    TAKE(clEnqueueNDRangeKernel);
    TAKE(clEnqueueReadBuffer);
    TAKE(clEnqueueWriteBuffer);
    TAKE(clEnqueueFillBuffer);
    TAKE(clEnqueueMarkerWithWaitList);
    TAKE(clFlush);
    TAKE(clFinish);
    TAKE(clWaitForEvents);
    TAKE(clGetPlatformIDs);
    TAKE(clGetDeviceIDs);
    TAKE(clGetDeviceInfo);
    TAKE(clGetProgramInfo);
    TAKE(clGetEventInfo);
    own.clReleaseCommandQueue = slow_clReleaseCommandQueue;
    own.clReleaseContext = slow_clReleaseContext;
    own.clGetExtensionFunctionAddressForPlatform = find_extension;
    *n_own = (cl_uint)n;
    *out = &own;
    return CL_SUCCESS;
}
