/* An OpenCL layer (the loader's OPENCL_LAYERS) under which calls fail as tests/support/faults.h says, with
 * CL_OUT_OF_RESOURCES: a real driver beneath. Counted are calls that make objects or enqueue, set, build or wait for
 * something; those that ask or release are not.
 */
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

/* Functions that return a code, and those that return an object (or address) and set a code. */
#define CODE(name, parameters, arguments)                                                                              \
    static cl_int CL_API_CALL faulty_##name parameters {                                                               \
        return fails(#name) ? CL_OUT_OF_RESOURCES : below->name arguments;                                             \
    }
#define OBJECT(type, name, parameters, arguments)                                                                      \
    static type CL_API_CALL faulty_##name parameters {                                                                 \
        if (!fails(#name)) return below->name arguments;                                                               \
        if (code) *code = CL_OUT_OF_RESOURCES;                                                                         \
        return NULL;                                                                                                   \
    }
#define WAITS cl_uint n_events, const cl_event *events, cl_event *event

OBJECT(cl_context, clCreateContext,
       (const cl_context_properties *p, cl_uint n, const cl_device_id *devices,
        void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user, cl_int *code),
       (p, n, devices, notify, user, code))
static cl_command_queue CL_API_CALL faulty_clCreateCommandQueue(cl_context c, cl_device_id d,
                                                                cl_command_queue_properties p, cl_int *code) {
    if (fails("clCreateCommandQueue")) {
        if (code) *code = CL_OUT_OF_RESOURCES;
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
CODE(clEnqueueNDRangeKernel,
     (cl_command_queue q, cl_kernel k, cl_uint n, const size_t *offset, const size_t *global, const size_t *local,
      WAITS),
     (q, k, n, offset, global, local, n_events, events, event))
CODE(clEnqueueReadBuffer, (cl_command_queue q, cl_mem m, cl_bool wait, size_t offset, size_t n, void *to, WAITS),
     (q, m, wait, offset, n, to, n_events, events, event))
CODE(clEnqueueWriteBuffer,
     (cl_command_queue q, cl_mem m, cl_bool wait, size_t offset, size_t n, const void *from, WAITS),
     (q, m, wait, offset, n, from, n_events, events, event))
CODE(clEnqueueFillBuffer,
     (cl_command_queue q, cl_mem m, const void *pattern, size_t size, size_t offset, size_t n, WAITS),
     (q, m, pattern, size, offset, n, n_events, events, event))
CODE(clEnqueueMarkerWithWaitList, (cl_command_queue q, WAITS), (q, n_events, events, event))
CODE(clFlush, (cl_command_queue q), (q))
CODE(clFinish, (cl_command_queue q), (q))
CODE(clWaitForEvents, (cl_uint n, const cl_event *events), (n, events))

/* Extensions: found by name. */
static clDeviceMemAllocINTEL_fn device_alloc;
static clHostMemAllocINTEL_fn host_alloc;
static clSetKernelArgMemPointerINTEL_fn set_arg;
static clEnqueueMemcpyINTEL_fn copy;
static clEnqueueMemFillINTEL_fn fill;

static void *CL_API_CALL faulty_device_alloc(cl_context c, cl_device_id d, const cl_mem_properties_intel *p, size_t n,
                                             cl_uint align, cl_int *code) {
    if (!fails("clDeviceMemAllocINTEL")) return device_alloc(c, d, p, n, align, code);
    if (code) *code = CL_OUT_OF_RESOURCES;
    return NULL;
}
static void *CL_API_CALL faulty_host_alloc(cl_context c, const cl_mem_properties_intel *p, size_t n, cl_uint align,
                                           cl_int *code) {
    if (!fails("clHostMemAllocINTEL")) return host_alloc(c, p, n, align, code);
    if (code) *code = CL_OUT_OF_RESOURCES;
    return NULL;
}
static cl_int CL_API_CALL faulty_set_arg(cl_kernel k, cl_uint i, const void *value) {
    return fails("clSetKernelArgMemPointerINTEL") ? CL_OUT_OF_RESOURCES : set_arg(k, i, value);
}
static cl_int CL_API_CALL faulty_copy(cl_command_queue q, cl_bool wait, void *to, const void *from, size_t n, WAITS) {
    return fails("clEnqueueMemcpyINTEL") ? CL_OUT_OF_RESOURCES : copy(q, wait, to, from, n, n_events, events, event);
}
static cl_int CL_API_CALL faulty_fill(cl_command_queue q, void *to, const void *pattern, size_t size, size_t n, WAITS) {
    return fails("clEnqueueMemFillINTEL") ? CL_OUT_OF_RESOURCES
                                          : fill(q, to, pattern, size, n, n_events, events, event);
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
    own.clGetExtensionFunctionAddressForPlatform = find_extension;
    *n_own = (cl_uint)n;
    *out = &own;
    return CL_SUCCESS;
}
