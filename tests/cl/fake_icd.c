/* OpenCL drivers that misbehave, for tests of discovery; never installed. One file, compiled once for each:
 *     FAKE_CRASHES   dies when it is asked for its platforms
 *     FAKE_HANGS     never answers that question
 *     FAKE_FAILS     dies as often as the file that FAKE_FAILURES names has bytes, and takes one of them; then it is as
 *                    FAKE_LIES
 *     FAKE_LIES      an Intel GPU with every extension and none of their functions, which cannot make a context
 *     FAKE_SMALL     an Intel GPU of another name with 512 bytes of memory
 * A byte is added to the file that FAKE_ASKED names whenever one is asked for its platforms. clGetDeviceInfo fails with
 * CL_OUT_OF_RESOURCES for what FAKE_REFUSES lists by number, as in ",0x1027,0x102b,". A GPU says that it shares the
 * host's memory where FAKE_INTEGRATED is its name. FAKE_VERSION is the driver's, else "1.0". */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct object { /* of every kind: what the loader finds its functions in */
    cl_icd_dispatch *dispatch;
} object;

static cl_icd_dispatch functions;
static object platform = {&functions}, device = {&functions}, queue = {&functions};
#ifdef FAKE_SMALL
#define FAKE_NAME "Small\nArc"
static object context = {&functions};
#else
#define FAKE_NAME "Fake\nArc"
#endif

static cl_int give(const void *value, size_t n, size_t size, void *out, size_t *size_out) {
    if (size_out) *size_out = n;
    if (!out) return CL_SUCCESS;
    if (size < n) return CL_INVALID_VALUE;
    memcpy(out, value, n);
    return CL_SUCCESS;
}

static cl_int give_text(const char *text, size_t size, void *out, size_t *size_out) {
    return give(text, strlen(text) + 1, size, out, size_out);
}

static cl_int CL_API_CALL platform_info(cl_platform_id p, cl_platform_info what, size_t size, void *out, size_t *n) {
    (void)p;
    switch (what) {
    case CL_PLATFORM_EXTENSIONS: return give_text("cl_khr_icd", size, out, n);
    case CL_PLATFORM_ICD_SUFFIX_KHR: return give_text("FAKE", size, out, n);
    case CL_PLATFORM_VERSION: return give_text("OpenCL 3.0 fake", size, out, n);
    default: return give_text("Fake\x1b[31m platform", size, out, n);
    }
}

static cl_int CL_API_CALL device_ids(cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *out,
                                     cl_uint *n_out) {
    (void)p;
    (void)type;
    if (n_out) *n_out = 4000000000u; /* announced: many; given: one */
    if (out && n) out[0] = (cl_device_id)&device;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL device_info(cl_device_id d, cl_device_info what, size_t size, void *out, size_t *n) {
    (void)d;
    char number[16];
    const char *refused = getenv("FAKE_REFUSES"), *integrated = getenv("FAKE_INTEGRATED"),
               *version = getenv("FAKE_VERSION");
    snprintf(number, sizeof number, ",0x%x,", (unsigned)what);
    if (refused && strstr(refused, number)) return CL_OUT_OF_RESOURCES;
    const cl_device_type type = CL_DEVICE_TYPE_GPU;
    const cl_bool yes = CL_TRUE;
    const cl_uint vendor = 0x8086, bits = 64, units = 8;
    const cl_ulong local = 65536;
#ifdef FAKE_SMALL
    const cl_ulong memory = 512;
#else
    const cl_ulong memory = 8ull << 30;
#endif
    const size_t group = 1024;
    switch (what) {
    case CL_DEVICE_NAME: return give_text(FAKE_NAME, size, out, n);
    case CL_DEVICE_VENDOR: return give_text("Intel(R) Corporation", size, out, n);
    case CL_DRIVER_VERSION: return give_text(version ? version : "1.0", size, out, n);
    case CL_DEVICE_VERSION: return give_text("OpenCL 3.0", size, out, n);
    case CL_DEVICE_EXTENSIONS:
        return give_text("cl_khr_fp16 cl_intel_unified_shared_memory cl_khr_integer_dot_product", size, out, n);
    case CL_DEVICE_TYPE: return give(&type, sizeof type, size, out, n);
    case CL_DEVICE_VENDOR_ID: return give(&vendor, sizeof vendor, size, out, n);
    case CL_DEVICE_ADDRESS_BITS: return give(&bits, sizeof bits, size, out, n);
    case CL_DEVICE_MAX_COMPUTE_UNITS: return give(&units, sizeof units, size, out, n);
    case CL_DEVICE_LOCAL_MEM_SIZE: return give(&local, sizeof local, size, out, n);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE: return give(&memory, sizeof memory, size, out, n);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: return give(&group, sizeof group, size, out, n);
    case CL_DEVICE_AVAILABLE:
    case CL_DEVICE_COMPILER_AVAILABLE:
    case CL_DEVICE_ENDIAN_LITTLE: return give(&yes, sizeof yes, size, out, n);
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
        return integrated && strcmp(integrated, FAKE_NAME) == 0 ? give(&yes, sizeof yes, size, out, n)
                                                                : CL_INVALID_VALUE;
    default: return CL_INVALID_VALUE;
    }
}

static cl_context CL_API_CALL create_context(const cl_context_properties *properties, cl_uint n, const cl_device_id *d,
                                             void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                                             void *user, cl_int *code) {
    (void)properties;
    (void)n;
    (void)d;
    (void)notify;
    (void)user;
#ifdef FAKE_SMALL
    *code = CL_SUCCESS;
    return (cl_context)&context;
#else
    *code = CL_DEVICE_NOT_AVAILABLE;
    return NULL;
#endif
}

static cl_command_queue CL_API_CALL create_queue(cl_context c, cl_device_id d, cl_command_queue_properties p,
                                                 cl_int *code) {
    (void)c;
    (void)d;
    (void)p;
    *code = CL_SUCCESS;
    return (cl_command_queue)&queue;
}

static cl_int CL_API_CALL release_queue(cl_command_queue q) {
    (void)q;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL release_context(cl_context c) {
    (void)c;
    return CL_SUCCESS;
}

static void *CL_API_CALL address_for_platform(cl_platform_id p, const char *name) {
    (void)p;
    (void)name;
    return NULL; /* whatever the extensions say */
}

static void count_asking(void) {
    const char *asked = getenv("FAKE_ASKED");
    FILE *f = asked ? fopen(asked, "a") : NULL;
    if (!f) return;
    fputc('x', f);
    fclose(f);
}

static cl_int CL_API_CALL platform_ids(cl_uint n, cl_platform_id *out, cl_uint *n_out) {
    count_asking();
#if defined(FAKE_CRASHES)
    abort();
#elif defined(FAKE_HANGS)
    for (;;) pause();
#elif defined(FAKE_FAILS)
    struct stat left;
    const char *failures = getenv("FAKE_FAILURES");
    if (failures && stat(failures, &left) == 0 && left.st_size > 0 && truncate(failures, left.st_size - 1) == 0)
        abort();
#endif
    functions.clGetPlatformInfo = platform_info;
    functions.clGetDeviceIDs = device_ids;
    functions.clGetDeviceInfo = device_info;
    functions.clCreateContext = create_context;
    functions.clCreateCommandQueue = create_queue;
    functions.clReleaseCommandQueue = release_queue;
    functions.clReleaseContext = release_context;
    functions.clGetExtensionFunctionAddressForPlatform = address_for_platform;
    if (n_out) *n_out = 1;
    if (out && n) out[0] = (cl_platform_id)&platform;
    return CL_SUCCESS;
}

__attribute__((visibility("default"))) void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
    if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0) return (void *)platform_ids;
    if (strcmp(name, "clGetPlatformInfo") == 0) return (void *)platform_info;
    return NULL;
}
