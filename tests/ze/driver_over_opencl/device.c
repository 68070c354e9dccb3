/* The driver, the device, contexts. */
#define _GNU_SOURCE /* dladdr */
#include "driver.h"

#include "tests/support/faults.h"

#include <level_zero/ze_api.h>

#include <time.h>

struct _ze_driver_handle_t the_driver;
struct _ze_device_handle_t the_device;
const ze_device_uuid_t the_uuid = {{'o', 'v', 'e', 'r', ' ', 'O', 'p', 'e', 'n', 'C', 'L'}};

bool call_fails(const char *function) {
    return crumb_test_call_fails(function);
}

ze_result_t call_code(void) {
    return (ze_result_t)crumb_test_fault_code(ZE_RESULT_ERROR_DEVICE_LOST, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                                              ZE_RESULT_ERROR_DEVICE_LOST, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
}

bool device_hangs(void) {
    return crumb_test_device_hangs();
}

bool hangs_for(uint64_t timeout_ns) {
    if (!device_hangs()) return false;
    if (timeout_ns == UINT64_MAX) crumb_test_wait_for_hanging();
    const struct timespec time = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                                  .tv_nsec = (long)(timeout_ns % 1000000000)};
    nanosleep(&time, NULL);
    return true;
}

void stop(const char *what) {
    fprintf(stderr, "driver_over_opencl: %s\n", what);
    abort();
}

ze_result_t result_of(cl_int code) {
    switch (code) {
    case CL_SUCCESS: return ZE_RESULT_SUCCESS;
    case CL_OUT_OF_HOST_MEMORY: return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    case CL_OUT_OF_RESOURCES:
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    default: fprintf(stderr, "driver_over_opencl: OpenCL says %d\n", code); return ZE_RESULT_ERROR_UNKNOWN;
    }
}

/* ---- which GPU it claims to be ------------------------------------------------------------------------------------
 */

#define IP_VERSION(architecture, release, revision) ((architecture) << 22 | (release) << 14 | (revision))

typedef struct gpu {
    const char *name;
    uint32_t ip_version, device_id;
    bool integrated, has_blocks; /* 2D block loads */
    uint32_t sub_group;          /* of matrix instructions; 0: it has none */
    uint32_t slices, xe_cores_per_slice, eus_per_xe_core, clock_mhz;
} gpu;

static const gpu gpus[] = {
    {"bmg", IP_VERSION(20, 1, 4), 0xe20b, false, true, 16, 5, 4, 8, 2850},
    {"dg2", IP_VERSION(12, 55, 8), 0x56a0, false, false, 8, 8, 4, 16, 2400},
    {"lnl", IP_VERSION(20, 4, 4), 0x64a0, true, true, 16, 2, 4, 8, 2050},
    {"tgllp", IP_VERSION(12, 0, 0), 0x9a49, true, false, 0, 1, 6, 16, 1350},
};

static const gpu *claimed(void) {
    const char *name = getenv("CRUMB_DRIVER_GPU");
    for (size_t i = 0; name && i < sizeof gpus / sizeof *gpus; i++)
        if (strcmp(gpus[i].name, name) == 0) return &gpus[i];
    stop("CRUMB_DRIVER_GPU is not bmg, dg2, lnl or tgllp");
}

/* ---- the driver ---------------------------------------------------------------------------------------------------
 */

/* A pointer to a function and one to data are different things to C, and the same to every system with OpenCL. */
static bool find_extension(cl_platform_id platform, const char *name, void *out) {
    const void *address = clGetExtensionFunctionAddressForPlatform(platform, name);
    memcpy(out, &address, sizeof address);
    return address != NULL;
}

static bool find_usm(cl_platform_id platform, usm_functions *out) {
    return find_extension(platform, "clDeviceMemAllocINTEL", &out->device_alloc) &&
           find_extension(platform, "clHostMemAllocINTEL", &out->host_alloc) &&
           find_extension(platform, "clMemFreeINTEL", &out->release) &&
           find_extension(platform, "clSetKernelArgMemPointerINTEL", &out->set_arg) &&
           find_extension(platform, "clEnqueueMemcpyINTEL", &out->copy) &&
           find_extension(platform, "clEnqueueMemFillINTEL", &out->fill);
}

static bool open_device(struct _ze_device_handle_t *out) {
    cl_platform_id platforms[8];
    cl_uint n = 0;
    cl_int code;
    if (clGetPlatformIDs(8, platforms, &n) != CL_SUCCESS) return false;
    for (cl_uint i = 0; i < n && i < 8; i++) {
        if (!find_usm(platforms[i], &out->usm) ||
            clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &out->id, NULL) != CL_SUCCESS)
            continue;
        out->context = clCreateContext(NULL, 1, &out->id, NULL, NULL, &code);
        return code == CL_SUCCESS;
    }
    return false;
}

ze_result_t ZE_APICALL zeInit(ze_init_flags_t flags) {
    CALL();
    if (flags & ZE_INIT_FLAG_VPU_ONLY) return ZE_RESULT_ERROR_UNINITIALIZED;
    if (!the_device.context && !open_device(&the_device)) return ZE_RESULT_ERROR_UNINITIALIZED;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeDriverGet(uint32_t *n, ze_driver_handle_t *out) {
    CALL();
    if (*n && out) *out = &the_driver;
    *n = 1;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeDriverGetApiVersion(ze_driver_handle_t driver, ze_api_version_t *out) {
    CALL();
    (void)driver;
    *out = ZE_API_VERSION_1_6;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeDriverGetProperties(ze_driver_handle_t driver, ze_driver_properties_t *out) {
    CALL();
    (void)driver;
    out->driverVersion = 1;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeDriverGetExtensionProperties(ze_driver_handle_t driver, uint32_t *n,
                                                      ze_driver_extension_properties_t *out) {
    static const char *const names[] = {"ZE_experimental_immediate_command_list_append",
                                        "ZE_extension_device_ip_version"};
    const uint32_t there = sizeof names / sizeof *names;
    CALL();
    (void)driver;
    for (uint32_t i = 0; out && i < *n && i < there; i++) {
        out[i].version = ZE_MAKE_VERSION(1, 0);
        snprintf(out[i].name, sizeof out[i].name, "%s", names[i]);
    }
    if (*n == 0 || *n > there) *n = there;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeDriverGetExtensionFunctionAddress(ze_driver_handle_t driver, const char *name, void **out) {
    (void)driver, (void)name, (void)out;
    return ZE_RESULT_ERROR_INVALID_ARGUMENT; /* it has none */
}

/* ---- the device ---------------------------------------------------------------------------------------------------
 */

/* What a caller has chained behind a structure. Intel's own have no names in the headers: numbers as in spirv/survey.c.
 */
enum { BLOCK_PROPERTIES = 0x00030007, MATRIX_PROPERTIES = 0x00030013 };
typedef struct chained {
    uint32_t stype;
    struct chained *next;
    uint32_t number;
} chained;

static void answer_chain(void *first) {
    const gpu *g = claimed();
    for (chained *c = first; c; c = c->next) {
        if (c->stype == ZE_STRUCTURE_TYPE_DEVICE_IP_VERSION_EXT) c->number = g->ip_version;
        if (c->stype == BLOCK_PROPERTIES) c->number = g->has_blocks ? 3 : 0;
        if (c->stype == MATRIX_PROPERTIES) c->number = g->sub_group ? 3 : 1;
    }
}

ze_result_t ZE_APICALL zeDeviceGet(ze_driver_handle_t driver, uint32_t *n, ze_device_handle_t *out) {
    CALL();
    (void)driver;
    if (*n && out) *out = &the_device;
    *n = 1;
    return ZE_RESULT_SUCCESS;
}

static cl_ulong device_number(cl_device_info what) {
    cl_ulong value = 0;
    clGetDeviceInfo(the_device.id, what, sizeof value, &value, NULL);
    return value;
}

/* Named as OpenCL names it, by which crumb knows it for the same card. */
ze_result_t ZE_APICALL zeDeviceGetProperties(ze_device_handle_t device, ze_device_properties_t *out) {
    CALL();
    const gpu *g = claimed();
    out->type = ZE_DEVICE_TYPE_GPU;
    out->vendorId = 0x8086;
    out->deviceId = g->device_id;
    out->uuid = the_uuid;
    out->flags = g->integrated ? ZE_DEVICE_PROPERTY_FLAG_INTEGRATED : 0;
    out->coreClockRate = g->clock_mhz;
    out->maxMemAllocSize = device_number(CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    out->numEUsPerSubslice = g->eus_per_xe_core;
    out->numSubslicesPerSlice = g->xe_cores_per_slice;
    out->numSlices = g->slices;
    out->timerResolution =
        out->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 ? TICKS_PER_SECOND : 1000000000 / TICKS_PER_SECOND;
    out->timestampValidBits = out->kernelTimestampValidBits = TICK_BITS;
    clGetDeviceInfo(device->id, CL_DEVICE_NAME, sizeof out->name, out->name, NULL);
    answer_chain(out->pNext);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeDeviceGetComputeProperties(ze_device_handle_t device, ze_device_compute_properties_t *out) {
    CALL();
    (void)device;
    out->maxTotalGroupSize = out->maxGroupSizeX = out->maxGroupSizeY = out->maxGroupSizeZ = 1024;
    out->maxSharedLocalMemory = 64 << 10;
    out->numSubGroupSizes = 0;
    for (uint32_t size = claimed()->sub_group == 16 ? 16 : 8; size <= 32; size *= 2)
        out->subGroupSizes[out->numSubGroupSizes++] = size;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeDeviceGetModuleProperties(ze_device_handle_t device, ze_device_module_properties_t *out) {
    CALL();
    (void)device;
    out->spirvVersionSupported = ZE_MAKE_VERSION(1, 4);
    out->flags = ZE_DEVICE_MODULE_FLAG_FP16 | ZE_DEVICE_MODULE_FLAG_DP4A;
    out->fp32flags = ZE_DEVICE_FP_FLAG_FMA;
    if (claimed()->sub_group == 16) /* dg2 and tgllp do not round division */
        out->fp32flags |= ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT;
    answer_chain(out->pNext);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeDeviceGetMemoryProperties(ze_device_handle_t device, uint32_t *n,
                                                   ze_device_memory_properties_t *out) {
    CALL();
    (void)device;
    if (*n && out) out->totalSize = device_number(CL_DEVICE_GLOBAL_MEM_SIZE);
    *n = 1;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeDeviceGetCacheProperties(ze_device_handle_t device, uint32_t *n,
                                                  ze_device_cache_properties_t *out) {
    CALL();
    (void)device;
    if (*n && out) out->cacheSize = 8 << 20;
    *n = 1;
    return ZE_RESULT_SUCCESS;
}

/* Copies have a group of their own, the first, as some GPUs have it. */
ze_result_t ZE_APICALL zeDeviceGetCommandQueueGroupProperties(ze_device_handle_t device, uint32_t *n,
                                                              ze_command_queue_group_properties_t *out) {
    CALL();
    (void)device;
    for (uint32_t i = 0; out && i < *n && i < 2; i++) {
        out[i].flags = i ? ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY
                         : ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
        out[i].maxMemoryFillPatternSize = 16;
        out[i].numQueues = 1;
    }
    *n = 2;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeDevicePciGetPropertiesExt(ze_device_handle_t device, ze_pci_ext_properties_t *out) {
    (void)device, (void)out;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE; /* it is in no slot */
}

/* ---- contexts -----------------------------------------------------------------------------------------------------
 */

ze_result_t ZE_APICALL zeContextCreate(ze_driver_handle_t driver, const ze_context_desc_t *desc,
                                       ze_context_handle_t *out) {
    CALL();
    (void)driver, (void)desc;
    *out = calloc(1, sizeof **out);
    return *out ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

ze_result_t ZE_APICALL zeContextDestroy(ze_context_handle_t context) {
    free(context);
    return ZE_RESULT_SUCCESS;
}
