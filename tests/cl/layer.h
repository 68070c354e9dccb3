/* What OpenCL layers (the loader's OPENCL_LAYERS) have in common: what the loader calls, and the functions that crumb
 * calls, in lists by what they do. A layer is one file that includes this and defines layer_take.
 */
#ifndef CRUMB_TESTS_CL_LAYER_H
#define CRUMB_TESTS_CL_LAYER_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>

#include <string.h>

/* ---- functions ------------------------------------------------------------------------------------------------
 *
 * X(kind, result, name, parameters, arguments): `kind` is that of the objects that are made or released, else NONE.
 */
enum layer_kind {
    LAYER_CONTEXT,
    LAYER_QUEUE,
    LAYER_BUFFER,
    LAYER_PROGRAM,
    LAYER_KERNEL,
    LAYER_EVENT,
    LAYER_USM,
    LAYER_N_KINDS,
    LAYER_NONE = LAYER_N_KINDS,
};

typedef void(CL_CALLBACK *layer_context_notify)(const char *, const void *, size_t, void *);
typedef void(CL_CALLBACK *layer_program_notify)(cl_program, void *);
#define LAYER_WAITS cl_uint n_events, const cl_event *events, cl_event *event

/* What makes an object, and says in *code, which may be NULL, whether it has. */
#define LAYER_OBJECTS(X)                                                                                               \
    X(CONTEXT, cl_context, clCreateContext,                                                                            \
      (const cl_context_properties *p, cl_uint n, const cl_device_id *d, layer_context_notify notify, void *user,      \
       cl_int *code),                                                                                                  \
      (p, n, d, notify, user, code))                                                                                   \
    X(QUEUE, cl_command_queue, clCreateCommandQueue,                                                                   \
      (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int * code), (c, d, p, code))                   \
    X(BUFFER, cl_mem, clCreateBuffer, (cl_context c, cl_mem_flags flags, size_t n, void *host, cl_int *code),          \
      (c, flags, n, host, code))                                                                                       \
    X(PROGRAM, cl_program, clCreateProgramWithSource,                                                                  \
      (cl_context c, cl_uint n, const char **text, const size_t *sizes, cl_int *code), (c, n, text, sizes, code))      \
    X(PROGRAM, cl_program, clCreateProgramWithBinary,                                                                  \
      (cl_context c, cl_uint n, const cl_device_id *d, const size_t *sizes, const unsigned char **bytes, cl_int *each, \
       cl_int *code),                                                                                                  \
      (c, n, d, sizes, bytes, each, code))                                                                             \
    X(KERNEL, cl_kernel, clCreateKernel, (cl_program p, const char *name, cl_int *code), (p, name, code))
#define LAYER_RELEASES(X)                                                                                              \
    X(CONTEXT, cl_int, clReleaseContext, (cl_context c), (c))                                                          \
    X(QUEUE, cl_int, clReleaseCommandQueue, (cl_command_queue q), (q))                                                 \
    X(BUFFER, cl_int, clReleaseMemObject, (cl_mem m), (m))                                                             \
    X(PROGRAM, cl_int, clReleaseProgram, (cl_program p), (p))                                                          \
    X(KERNEL, cl_int, clReleaseKernel, (cl_kernel k), (k))                                                             \
    X(EVENT, cl_int, clReleaseEvent, (cl_event e), (e))
/* What is done when it returns. */
#define LAYER_CODES(X)                                                                                                 \
    X(NONE, cl_int, clGetPlatformIDs, (cl_uint n, cl_platform_id * out, cl_uint * n_out), (n, out, n_out))             \
    X(NONE, cl_int, clGetPlatformInfo,                                                                                 \
      (cl_platform_id p, cl_platform_info what, size_t size, void *out, size_t *n_out), (p, what, size, out, n_out))   \
    X(NONE, cl_int, clGetDeviceIDs,                                                                                    \
      (cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id * out, cl_uint * n_out),                         \
      (p, type, n, out, n_out))                                                                                        \
    X(NONE, cl_int, clGetDeviceInfo, (cl_device_id d, cl_device_info what, size_t size, void *out, size_t *n_out),     \
      (d, what, size, out, n_out))                                                                                     \
    X(NONE, cl_int, clGetProgramInfo, (cl_program p, cl_program_info what, size_t size, void *out, size_t *n_out),     \
      (p, what, size, out, n_out))                                                                                     \
    X(NONE, cl_int, clGetProgramBuildInfo,                                                                             \
      (cl_program p, cl_device_id d, cl_program_build_info what, size_t size, void *out, size_t *n_out),               \
      (p, d, what, size, out, n_out))                                                                                  \
    X(NONE, cl_int, clBuildProgram,                                                                                    \
      (cl_program p, cl_uint n, const cl_device_id *d, const char *options, layer_program_notify notify, void *user),  \
      (p, n, d, options, notify, user))                                                                                \
    X(NONE, cl_int, clSetKernelArg, (cl_kernel k, cl_uint i, size_t n, const void *value), (k, i, n, value))           \
    X(NONE, cl_int, clFlush, (cl_command_queue q), (q))
/* What asks for events: how often is a matter of time. */
#define LAYER_EVENTS(X)                                                                                                \
    X(NONE, cl_int, clGetEventInfo, (cl_event e, cl_event_info what, size_t size, void *out, size_t *n_out),           \
      (e, what, size, out, n_out))                                                                                     \
    X(NONE, cl_int, clGetEventProfilingInfo,                                                                           \
      (cl_event e, cl_profiling_info what, size_t size, void *out, size_t *n_out), (e, what, size, out, n_out))
/* What waits for the device. */
#define LAYER_BARRIERS(X)                                                                                              \
    X(NONE, cl_int, clFinish, (cl_command_queue q), (q))                                                               \
    X(NONE, cl_int, clWaitForEvents, (cl_uint n, const cl_event *events), (n, events))
/* What makes *event, unless `event` is NULL. */
#define LAYER_ENQUEUES(X)                                                                                              \
    X(EVENT, cl_int, clEnqueueNDRangeKernel,                                                                           \
      (cl_command_queue q, cl_kernel k, cl_uint n, const size_t *offset, const size_t *global, const size_t *local,    \
       LAYER_WAITS),                                                                                                   \
      (q, k, n, offset, global, local, n_events, events, event))                                                       \
    X(EVENT, cl_int, clEnqueueFillBuffer,                                                                              \
      (cl_command_queue q, cl_mem m, const void *pattern, size_t size, size_t offset, size_t n, LAYER_WAITS),          \
      (q, m, pattern, size, offset, n, n_events, events, event))                                                       \
    X(EVENT, cl_int, clEnqueueMarkerWithWaitList, (cl_command_queue q, LAYER_WAITS), (q, n_events, events, event))
/* The same, and may wait for the device. */
#define LAYER_COPIES(X)                                                                                                \
    X(EVENT, cl_int, clEnqueueReadBuffer,                                                                              \
      (cl_command_queue q, cl_mem m, cl_bool wait, size_t offset, size_t n, void *to, LAYER_WAITS),                    \
      (q, m, wait, offset, n, to, n_events, events, event))                                                            \
    X(EVENT, cl_int, clEnqueueWriteBuffer,                                                                             \
      (cl_command_queue q, cl_mem m, cl_bool wait, size_t offset, size_t n, const void *from, LAYER_WAITS),            \
      (q, m, wait, offset, n, from, n_events, events, event))

/* The same of extensions, whose functions are found by name. */
#define LAYER_USM_OBJECTS(X)                                                                                           \
    X(USM, void *, clDeviceMemAllocINTEL,                                                                              \
      (cl_context c, cl_device_id d, const cl_mem_properties_intel *p, size_t n, cl_uint align, cl_int *code),         \
      (c, d, p, n, align, code))                                                                                       \
    X(USM, void *, clHostMemAllocINTEL,                                                                                \
      (cl_context c, const cl_mem_properties_intel *p, size_t n, cl_uint align, cl_int *code), (c, p, n, align, code))
#define LAYER_USM_RELEASES(X) X(USM, cl_int, clMemBlockingFreeINTEL, (cl_context c, void *usm), (c, usm))
#define LAYER_USM_CODES(X)                                                                                             \
    X(NONE, cl_int, clSetKernelArgMemPointerINTEL, (cl_kernel k, cl_uint i, const void *value), (k, i, value))
#define LAYER_USM_ENQUEUES(X)                                                                                          \
    X(EVENT, cl_int, clEnqueueMemFillINTEL,                                                                            \
      (cl_command_queue q, void *to, const void *pattern, size_t size, size_t n, LAYER_WAITS),                         \
      (q, to, pattern, size, n, n_events, events, event))
#define LAYER_USM_COPIES(X)                                                                                            \
    X(EVENT, cl_int, clEnqueueMemcpyINTEL,                                                                             \
      (cl_command_queue q, cl_bool wait, void *to, const void *from, size_t n, LAYER_WAITS),                           \
      (q, wait, to, from, n, n_events, events, event))

#define LAYER_USM_FUNCTIONS(X)                                                                                         \
    LAYER_USM_OBJECTS(X)                                                                                               \
    LAYER_USM_RELEASES(X) LAYER_USM_CODES(X) LAYER_USM_ENQUEUES(X) LAYER_USM_COPIES(X)

/* ---- taking a function's place ----------------------------------------------------------------------------------
 *
 * For the lists: a layer's own functions are called layer_NAME, those in whose place they are NAME_below.
 */
#define LAYER_DECLARE(kind, result, name, parameters, arguments)                                                       \
    static __typeof__(((struct _cl_icd_dispatch *)NULL)->name) name##_below;
#define LAYER_TAKE(kind, result, name, parameters, arguments)                                                          \
    name##_below = below->name;                                                                                        \
    layer_own.name = layer_##name;

/* Of functions that are found by name: where `function` is this one, what is at `address` gives way. A pointer to a
 * function and one to data are different things to C, and the same to every system with OpenCL. */
#define LAYER_DECLARE_FOUND(kind, result, name, parameters, arguments) static name##_fn name##_below;
#define LAYER_TAKE_FOUND(kind, result, name, parameters, arguments)                                                    \
    if (address && strcmp(function, #name) == 0) {                                                                     \
        const name##_fn mine = layer_##name;                                                                           \
        memcpy(&name##_below, &address, sizeof address);                                                               \
        memcpy(&address, &mine, sizeof address);                                                                       \
    }

/* ---- what the loader calls ------------------------------------------------------------------------------------ */

#define LAYER_EXPORT __attribute__((visibility("default")))

static struct _cl_icd_dispatch layer_own;
static const struct _cl_icd_dispatch *below;

/* Defined by each layer: puts its functions into layer_own, which has those of `below`. */
static void layer_take(void);

LAYER_EXPORT cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *out, size_t *n_out) {
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (name != CL_LAYER_API_VERSION || (out && size < sizeof version)) return CL_INVALID_VALUE;
    if (out) memcpy(out, &version, sizeof version);
    if (n_out) *n_out = sizeof version;
    return CL_SUCCESS;
}

LAYER_EXPORT cl_int CL_API_CALL clInitLayer(cl_uint n_entries, const struct _cl_icd_dispatch *target, cl_uint *n_own,
                                            const struct _cl_icd_dispatch **out) {
    const size_t most = sizeof layer_own / sizeof layer_own.clGetPlatformIDs, n = n_entries < most ? n_entries : most;
    if (!target || !n_own || !out) return CL_INVALID_VALUE;
    below = target;
    memcpy(&layer_own, target, n * sizeof layer_own.clGetPlatformIDs);
    layer_take();
    *n_own = (cl_uint)n;
    *out = &layer_own;
    return CL_SUCCESS;
}

/* What Khronos's newer loaders, such as that beside Intel's runtime, call instead. Their headers are not everywhere. */
LAYER_EXPORT cl_int CL_API_CALL clInitLayerWithProperties(cl_uint n_entries, const struct _cl_icd_dispatch *target,
                                                          cl_uint *n_own, const struct _cl_icd_dispatch **out,
                                                          const void *properties) {
    (void)properties;
    return clInitLayer(n_entries, target, n_own, out);
}

LAYER_EXPORT cl_int CL_API_CALL clDeinitLayer(void) {
    return CL_SUCCESS;
}

#endif
