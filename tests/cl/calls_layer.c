/* An OpenCL layer (the loader's OPENCL_LAYERS) that counts: calls, calls that return an error, and objects that are
 * made and never released. When a process ends, what it has counted is added to the file CRUMB_CALLS_LOG, in lines:
 *     error FUNCTION CODE       a call that failed
 *     left KIND N               objects that are there still, or that were released too often (N < 0)
 *     calls N                   all that were counted: the last line of each process
 */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static struct _cl_icd_dispatch own;
static const struct _cl_icd_dispatch *below;

/* ---- counting ------------------------------------------------------------------------------------------------ */

typedef enum kind { CONTEXT, QUEUE, BUFFER, PROGRAM, KERNEL, EVENT, USM, N_KINDS } kind;
static const char *const kinds[] = {"contexts", "queues", "buffers", "programs", "kernels", "events", "usm"};
static atomic_ulong n_calls;
static atomic_long left[N_KINDS];

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    const char *path = getenv("CRUMB_CALLS_LOG");
    FILE *f = path ? fopen(path, "a") : NULL;
    va_list args;
    if (!f) return;
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    fclose(f);
}

static cl_int count(const char *function, cl_int code) {
    atomic_fetch_add(&n_calls, 1);
    if (code != CL_SUCCESS) say("error %s %d\n", function, code);
    return code;
}

static void *count_made(const char *function, kind k, void *made, cl_int code) {
    count(function, code);
    if (made) atomic_fetch_add(&left[k], 1);
    return made;
}

static cl_int count_released(const char *function, kind k, cl_int code) {
    if (code == CL_SUCCESS) atomic_fetch_sub(&left[k], 1);
    return count(function, code);
}

static cl_int count_enqueued(const char *function, const cl_event *event, cl_int code) {
    if (code == CL_SUCCESS && event) atomic_fetch_add(&left[EVENT], 1);
    return count(function, code);
}

__attribute__((destructor)) static void tell(void) {
    if (!below) return;
    for (int k = 0; k < N_KINDS; k++)
        if (left[k]) say("left %s %ld\n", kinds[k], left[k]);
    say("calls %lu\n", n_calls);
}

/* ---- functions ------------------------------------------------------------------------------------------------ */

#define CODE(name, parameters, arguments)                                                                              \
    static cl_int CL_API_CALL counted_##name parameters {                                                              \
        return count(#name, below->name arguments);                                                                    \
    }
#define ENQUEUE(name, parameters, arguments)                                                                           \
    static cl_int CL_API_CALL counted_##name parameters {                                                              \
        return count_enqueued(#name, event, below->name arguments);                                                    \
    }
#define OBJECT(type, kind, name, parameters, arguments)                                                                \
    static type CL_API_CALL counted_##name parameters {                                                                \
        cl_int own_code = CL_SUCCESS;                                                                                  \
        type made = below->name arguments;                                                                             \
        if (code) *code = own_code;                                                                                    \
        return count_made(#name, kind, made, own_code);                                                                \
    }
#define RELEASE(kind, name, type)                                                                                      \
    static cl_int CL_API_CALL counted_##name(type object) {                                                            \
        return count_released(#name, kind, below->name(object));                                                       \
    }
#define WAITS cl_uint n_events, const cl_event *events, cl_event *event

OBJECT(cl_context, CONTEXT, clCreateContext,
       (const cl_context_properties *p, cl_uint n, const cl_device_id *devices,
        void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user, cl_int *code),
       (p, n, devices, notify, user, &own_code))
OBJECT(cl_command_queue, QUEUE, clCreateCommandQueue,
       (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int *code), (c, d, p, &own_code))
OBJECT(cl_mem, BUFFER, clCreateBuffer, (cl_context c, cl_mem_flags flags, size_t n, void *host, cl_int *code),
       (c, flags, n, host, &own_code))
OBJECT(cl_program, PROGRAM, clCreateProgramWithSource,
       (cl_context c, cl_uint n, const char **text, const size_t *sizes, cl_int *code), (c, n, text, sizes, &own_code))
OBJECT(cl_program, PROGRAM, clCreateProgramWithBinary,
       (cl_context c, cl_uint n, const cl_device_id *d, const size_t *sizes, const unsigned char **bytes, cl_int *each,
        cl_int *code),
       (c, n, d, sizes, bytes, each, &own_code))
OBJECT(cl_kernel, KERNEL, clCreateKernel, (cl_program p, const char *name, cl_int *code), (p, name, &own_code))
RELEASE(CONTEXT, clReleaseContext, cl_context)
RELEASE(QUEUE, clReleaseCommandQueue, cl_command_queue)
RELEASE(BUFFER, clReleaseMemObject, cl_mem)
RELEASE(PROGRAM, clReleaseProgram, cl_program)
RELEASE(KERNEL, clReleaseKernel, cl_kernel)
RELEASE(EVENT, clReleaseEvent, cl_event)
CODE(clGetPlatformIDs, (cl_uint n, cl_platform_id *out, cl_uint *n_out), (n, out, n_out))
CODE(clGetPlatformInfo, (cl_platform_id p, cl_platform_info what, size_t size, void *out, size_t *n),
     (p, what, size, out, n))
CODE(clGetDeviceIDs, (cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *out, cl_uint *n_out),
     (p, type, n, out, n_out))
CODE(clGetDeviceInfo, (cl_device_id d, cl_device_info what, size_t size, void *out, size_t *n), (d, what, size, out, n))
CODE(clGetProgramInfo, (cl_program p, cl_program_info what, size_t size, void *out, size_t *n), (p, what, size, out, n))
CODE(clGetProgramBuildInfo,
     (cl_program p, cl_device_id d, cl_program_build_info what, size_t size, void *out, size_t *n),
     (p, d, what, size, out, n))
CODE(clGetEventInfo, (cl_event e, cl_event_info what, size_t size, void *out, size_t *n), (e, what, size, out, n))
CODE(clGetEventProfilingInfo, (cl_event e, cl_profiling_info what, size_t size, void *out, size_t *n),
     (e, what, size, out, n))
CODE(clBuildProgram,
     (cl_program p, cl_uint n, const cl_device_id *d, const char *options,
      void(CL_CALLBACK *notify)(cl_program, void *), void *user),
     (p, n, d, options, notify, user))
CODE(clSetKernelArg, (cl_kernel k, cl_uint i, size_t n, const void *value), (k, i, n, value))
CODE(clFlush, (cl_command_queue q), (q))
CODE(clFinish, (cl_command_queue q), (q))
CODE(clWaitForEvents, (cl_uint n, const cl_event *events), (n, events))
ENQUEUE(clEnqueueNDRangeKernel,
        (cl_command_queue q, cl_kernel k, cl_uint n, const size_t *offset, const size_t *global, const size_t *local,
         WAITS),
        (q, k, n, offset, global, local, n_events, events, event))
ENQUEUE(clEnqueueReadBuffer, (cl_command_queue q, cl_mem m, cl_bool wait, size_t offset, size_t n, void *to, WAITS),
        (q, m, wait, offset, n, to, n_events, events, event))
ENQUEUE(clEnqueueWriteBuffer,
        (cl_command_queue q, cl_mem m, cl_bool wait, size_t offset, size_t n, const void *from, WAITS),
        (q, m, wait, offset, n, from, n_events, events, event))
ENQUEUE(clEnqueueFillBuffer,
        (cl_command_queue q, cl_mem m, const void *pattern, size_t size, size_t offset, size_t n, WAITS),
        (q, m, pattern, size, offset, n, n_events, events, event))
ENQUEUE(clEnqueueMarkerWithWaitList, (cl_command_queue q, WAITS), (q, n_events, events, event))

/* ---- extensions: found by name ------------------------------------------------------------------------------- */

static clDeviceMemAllocINTEL_fn device_alloc;
static clHostMemAllocINTEL_fn host_alloc;
static clMemBlockingFreeINTEL_fn release_usm;
static clSetKernelArgMemPointerINTEL_fn set_arg;
static clEnqueueMemcpyINTEL_fn copy;
static clEnqueueMemFillINTEL_fn fill;

static void *CL_API_CALL counted_device_alloc(cl_context c, cl_device_id d, const cl_mem_properties_intel *p, size_t n,
                                              cl_uint align, cl_int *code) {
    cl_int own_code = CL_SUCCESS;
    void *made = device_alloc(c, d, p, n, align, &own_code);
    if (code) *code = own_code;
    return count_made("clDeviceMemAllocINTEL", USM, made, own_code);
}
static void *CL_API_CALL counted_host_alloc(cl_context c, const cl_mem_properties_intel *p, size_t n, cl_uint align,
                                            cl_int *code) {
    cl_int own_code = CL_SUCCESS;
    void *made = host_alloc(c, p, n, align, &own_code);
    if (code) *code = own_code;
    return count_made("clHostMemAllocINTEL", USM, made, own_code);
}
static cl_int CL_API_CALL counted_release_usm(cl_context c, void *usm) {
    return count_released("clMemBlockingFreeINTEL", USM, release_usm(c, usm));
}
static cl_int CL_API_CALL counted_set_arg(cl_kernel k, cl_uint i, const void *value) {
    return count("clSetKernelArgMemPointerINTEL", set_arg(k, i, value));
}
static cl_int CL_API_CALL counted_copy(cl_command_queue q, cl_bool wait, void *to, const void *from, size_t n, WAITS) {
    return count_enqueued("clEnqueueMemcpyINTEL", event, copy(q, wait, to, from, n, n_events, events, event));
}
static cl_int CL_API_CALL counted_fill(cl_command_queue q, void *to, const void *pattern, size_t size, size_t n,
                                       WAITS) {
    return count_enqueued("clEnqueueMemFillINTEL", event, fill(q, to, pattern, size, n, n_events, events, event));
}

/* A pointer to a function and one to data are different things to C, and the same to every system with OpenCL. */
#define EXTENSION(name, real, counted)                                                                                 \
    if (address && strcmp(function, name) == 0) {                                                                      \
        __typeof__(real) mine = counted;                                                                               \
        memcpy(&real, &address, sizeof address);                                                                       \
        memcpy(&address, &mine, sizeof address);                                                                       \
    }
static void *CL_API_CALL find_extension(cl_platform_id p, const char *function) {
    void *address = below->clGetExtensionFunctionAddressForPlatform(p, function);
    EXTENSION("clDeviceMemAllocINTEL", device_alloc, counted_device_alloc)
    EXTENSION("clHostMemAllocINTEL", host_alloc, counted_host_alloc)
    EXTENSION("clMemBlockingFreeINTEL", release_usm, counted_release_usm)
    EXTENSION("clSetKernelArgMemPointerINTEL", set_arg, counted_set_arg)
    EXTENSION("clEnqueueMemcpyINTEL", copy, counted_copy)
    EXTENSION("clEnqueueMemFillINTEL", fill, counted_fill)
    return address;
}

/* ---- the layer ------------------------------------------------------------------------------------------------ */

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
#define TAKE(name) own.name = counted_##name
    TAKE(clCreateContext);
    TAKE(clCreateCommandQueue);
    TAKE(clCreateBuffer);
    TAKE(clCreateProgramWithSource);
    TAKE(clCreateProgramWithBinary);
    TAKE(clCreateKernel);
    TAKE(clReleaseContext);
    TAKE(clReleaseCommandQueue);
    TAKE(clReleaseMemObject);
    TAKE(clReleaseProgram);
    TAKE(clReleaseKernel);
    TAKE(clReleaseEvent);
    TAKE(clGetPlatformIDs);
    TAKE(clGetPlatformInfo);
    TAKE(clGetDeviceIDs);
    TAKE(clGetDeviceInfo);
    TAKE(clGetProgramInfo);
    TAKE(clGetProgramBuildInfo);
    TAKE(clGetEventInfo);
    TAKE(clGetEventProfilingInfo);
    TAKE(clBuildProgram);
    TAKE(clSetKernelArg);
    TAKE(clFlush);
    TAKE(clFinish);
    TAKE(clWaitForEvents);
    TAKE(clEnqueueNDRangeKernel);
    TAKE(clEnqueueReadBuffer);
    TAKE(clEnqueueWriteBuffer);
    TAKE(clEnqueueFillBuffer);
    TAKE(clEnqueueMarkerWithWaitList);
    own.clGetExtensionFunctionAddressForPlatform = find_extension;
    *n_own = (cl_uint)n;
    *out = &own;
    return CL_SUCCESS;
}
