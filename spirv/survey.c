/* Asking every Level Zero driver of this machine for its devices. */
#include "cl/survey.h"

#include "cl/driver.h"
#include "host/kernel/energy.h"
#include "spirv/api.h"
#include "spirv/ocloc.h"
#include "spirv/sysman.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DRIVERS = 16, MAX_MEMORIES = 16 };

/* Of ZE_intel_experimental_device_module_dp_properties (bit 0: dp4a, bit 1: DPAS), of
 * ZE_intel_experimental_device_block_array_properties (bit 1: 2D block loads) and, since version 1.5, of
 * ZE_extension_device_ip_version. */
typedef struct number_properties {
    uint32_t stype;
    void *pNext;
    uint32_t number;
} number_properties;
#define MATRIX_PROPERTIES 0x00030013
#define IP_VERSION        0x0001000f
#define BLOCK_PROPERTIES  0x00030007

/* What a driver answers for good, be it no. What has failed for now leaves the survey partial. */
static bool is_for_good(ze_result_t code) {
    switch (code) {
    case ZE_RESULT_NOT_READY:
    case ZE_RESULT_ERROR_DEVICE_LOST:
    case ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY:
    case ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY:
    case ZE_RESULT_ERROR_NOT_AVAILABLE:
    case ZE_RESULT_ERROR_UNKNOWN: return false;
    default: return true;
    }
}

typedef struct asker {
    const crumb_ze_functions *z;
    bool is_partial;
    const char *failed; /* the first call for this device that has, for now, or that crumb cannot do without; or NULL */
    ze_result_t code;   /* what it has failed with */
} asker;

static bool is_answered(asker *a, const char *call, bool is_needed, ze_result_t code) {
    if (!is_for_good(code)) a->is_partial = true;
    if (!a->failed && (!is_for_good(code) || (is_needed && code != ZE_RESULT_SUCCESS))) {
        a->failed = call;
        a->code = code;
    }
    return code == ZE_RESULT_SUCCESS;
}
#define ASK(a, call, ...)  is_answered(a, #call, false, (a)->z->call(__VA_ARGS__))
#define NEED(a, call, ...) is_answered(a, #call, true, (a)->z->call(__VA_ARGS__))

/* ---- drivers --------------------------------------------------------------------------------------------------- */

static bool has_extension(asker *a, ze_driver_handle_t driver, const char *name) {
    uint32_t n = 0;
    bool found = false;
    if (!ASK(a, zeDriverGetExtensionProperties, driver, &n, NULL) || n > 4096) return false;
    ze_driver_extension_properties_t *all = calloc(n ? n : 1, sizeof *all);
    if (all && ASK(a, zeDriverGetExtensionProperties, driver, &n, all))
        for (uint32_t i = 0; i < n; i++) found = found || strcmp(all[i].name, name) == 0;
    free(all);
    return found;
}

static void take_versions(asker *a, ze_driver_handle_t driver, crumb_cl_facts *f) {
    ze_driver_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};
    ze_api_version_t version = ZE_API_VERSION_1_0;
    crumb_ze_version_fn get_version = NULL;
    char text[CRUMB_CL_TEXT] = "";
    size_t size = 0; /* asks for it */
    void *address = NULL;
    ASK(a, zeDriverGetProperties, driver, &properties);
    snprintf(text, sizeof text, "%u.%u.%u", properties.driverVersion >> 24, properties.driverVersion >> 16 & 0xff,
             properties.driverVersion & 0xffff);
    if (has_extension(a, driver, "ZE_intel_get_driver_version_string") &&
        ASK(a, zeDriverGetExtensionFunctionAddress, driver, "zeIntelGetDriverVersionString", &address)) {
        memcpy(&get_version, &address, sizeof address);
        if (get_version && get_version(driver, NULL, &size) == ZE_RESULT_SUCCESS && size < sizeof text)
            get_version(driver, text, &size);
    }
    text[sizeof text - 1] = 0;
    crumb_cl_clean_text(text, f->driver);
    if (ASK(a, zeDriverGetApiVersion, driver, &version))
        snprintf(f->version, sizeof f->version, "Level Zero %u.%u", (unsigned)ZE_MAJOR_VERSION(version),
                 (unsigned)ZE_MINOR_VERSION(version));
    snprintf(f->platform_name, sizeof f->platform_name, "Level Zero");
    f->has_bf16 = has_extension(a, driver, "ZE_extension_bfloat16_conversions");
}

/* ---- devices: what one does not answer is 0 or empty ------------------------------------------------------------ */

static void take_properties(asker *a, ze_device_handle_t d, crumb_cl_facts *f) {
    number_properties blocks = {.stype = BLOCK_PROPERTIES}, ip = {.stype = IP_VERSION, .pNext = &blocks};
    ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, .pNext = &ip};
    if (!ASK(a, zeDeviceGetProperties, d, &p)) return;
    p.name[sizeof p.name - 1] = 0;
    crumb_cl_clean_text(p.name, f->name);
    snprintf(f->vendor, sizeof f->vendor, "%s", p.vendorId == CRUMB_CL_VENDOR_INTEL ? "Intel(R) Corporation" : "");
    f->vendor_id = p.vendorId;
    f->is_cpu = p.type == ZE_DEVICE_TYPE_CPU;
    f->is_gpu = p.type == ZE_DEVICE_TYPE_GPU;
    f->unified = f->is_cpu || (p.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED) != 0;
    f->xe_cores = (uint64_t)p.numSlices * p.numSubslicesPerSlice;
    f->units = f->xe_cores * p.numEUsPerSubslice;
    f->clock_mhz = p.coreClockRate;
    f->max_alloc_bytes = p.maxMemAllocSize;
    f->ip_version = ip.number;
    f->has_2d_blocks = (blocks.number & 2) != 0;
}

static void take_compute(asker *a, ze_device_handle_t d, crumb_cl_facts *f) {
    ze_device_compute_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES};
    size_t used = 0;
    if (!NEED(a, zeDeviceGetComputeProperties, d, &p)) return;
    f->local_bytes = p.maxSharedLocalMemory;
    f->max_work_group = p.maxTotalGroupSize;
    for (uint32_t i = 0; i < p.numSubGroupSizes && i < ZE_SUBGROUPSIZE_COUNT && used < 100; i++)
        used += (size_t)snprintf(f->sub_groups + used, CRUMB_CL_TEXT - used, "%s%u", i ? " " : "", p.subGroupSizes[i]);
    f->has_sub_groups = f->has_intel_sub_groups = used > 0;
}

static void take_abilities(asker *a, ze_device_handle_t d, crumb_cl_facts *f) {
    number_properties matrix = {.stype = MATRIX_PROPERTIES};
    ze_device_module_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES, .pNext = &matrix};
    if (!ASK(a, zeDeviceGetModuleProperties, d, &p)) return;
    f->rounds_division = (p.fp32flags & ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT) != 0;
    f->has_f16 = (p.flags & ZE_DEVICE_MODULE_FLAG_FP16) != 0;
    f->has_dot_product = (p.flags & ZE_DEVICE_MODULE_FLAG_DP4A) != 0;
    f->has_matrix = (matrix.number & 2) != 0;
    f->has_usm = true;
    f->has_command_buffer = true;
}

static void take_memory(asker *a, ze_device_handle_t d, crumb_cl_facts *f) {
    ze_device_memory_properties_t memories[MAX_MEMORIES];
    ze_device_cache_properties_t caches[MAX_MEMORIES];
    uint32_t n = MAX_MEMORIES;
    for (int i = 0; i < MAX_MEMORIES; i++) {
        memories[i] = (ze_device_memory_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
        caches[i] = (ze_device_cache_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES};
    }
    if (NEED(a, zeDeviceGetMemoryProperties, d, &n, memories))
        for (uint32_t i = 0; i < n && i < MAX_MEMORIES; i++) f->memory_bytes += memories[i].totalSize;
    n = MAX_MEMORIES;
    if (ASK(a, zeDeviceGetCacheProperties, d, &n, caches))
        for (uint32_t i = 0; i < n && i < MAX_MEMORIES; i++)
            if (caches[i].cacheSize > f->cache_bytes) f->cache_bytes = caches[i].cacheSize;
}

static void take_place(asker *a, ze_device_handle_t d, crumb_cl_facts *f) {
    ze_pci_ext_properties_t p = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
    if (ASK(a, zeDevicePciGetPropertiesExt, d, &p))
        snprintf(f->pci, CRUMB_CL_TEXT, "%04x:%02x:%02x.%x", p.address.domain, p.address.bus, p.address.device,
                 p.address.function);
}

/* What crumb cannot do without. Lists that are done in their order came with Intel's drivers of 2023. */
static const char *try_device(asker *a, ze_driver_handle_t driver, ze_device_handle_t d) {
    static const char source[] = "kernel void nothing(global int *out) { *out = 1; }";
    const ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    const ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                           .flags = CRUMB_ZE_QUEUE_IN_ORDER,
                                           .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    const ze_module_desc_t module_desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                                          .format = crumb_ze_format_opencl_c(),
                                          .inputSize = sizeof source,
                                          .pInputModule = (const uint8_t *)source};
    ze_context_handle_t context;
    ze_command_list_handle_t list = NULL;
    ze_module_handle_t module = NULL;
    const char *why = NULL;
    if (!NEED(a, zeContextCreate, driver, &context_desc, &context)) return "its driver makes no context for it";
    if (!ASK(a, zeCommandListCreateImmediate, context, d, &queue, &list))
        why = "its Level Zero driver has no command lists that are done in their order: install a newer one";
    else if (!ASK(a, zeModuleCreate, context, d, &module_desc, &module, NULL) && !crumb_ze_ocloc_is_there())
        why = "its Level Zero driver does not compile OpenCL C: install a newer one, or Intel's "
              "offline compiler (intel-ocloc)";
    if (module) a->z->zeModuleDestroy(module);
    if (list) a->z->zeCommandListDestroy(list);
    a->z->zeContextDestroy(context);
    return why;
}

static void judge(asker *a, ze_driver_handle_t driver, ze_device_handle_t d, crumb_cl_facts *f) {
    const char *why = NULL;
    if (f->local_bytes < 16384 || f->max_work_group < 64)
        why = "its work-groups or their memory are too small (64 work-items and 16 kB are needed)";
    else if (f->memory_bytes == 0 || f->max_alloc_bytes == 0)
        why = "the driver says that it has no memory";
    else
        why = try_device(a, driver, d);
    if (why && a->failed) /* what it says follows from that */
        snprintf(f->unusable, sizeof f->unusable, "%s failed: %s; try again, or --backend cl", a->failed,
                 crumb_cl_error_name((crumb_cl_code)a->code));
    else if (why)
        snprintf(f->unusable, sizeof f->unusable, "%s", why);
}

static void take_driver(asker *a, ze_driver_handle_t driver, uint64_t index, crumb_cl_survey *out) {
    ze_device_handle_t devices[CRUMB_CL_MAX_DEVICES] = {0};
    uint32_t n = CRUMB_CL_MAX_DEVICES;
    if (!ASK(a, zeDeviceGet, driver, &n, devices)) return;
    for (uint32_t i = 0; i < n && i < CRUMB_CL_MAX_DEVICES && out->n_devices < CRUMB_CL_MAX_DEVICES; i++) {
        crumb_cl_facts *f = &out->device[out->n_devices];
        *f = (crumb_cl_facts){.platform = index, .device = i};
        if (!devices[i]) continue; /* announced, and not given */
        a->failed = NULL;
        take_properties(a, devices[i], f);
        if (!f->is_gpu) continue; /* NPUs have drivers too */
        out->n_devices++;
        take_versions(a, driver, f);
        take_compute(a, devices[i], f);
        take_abilities(a, devices[i], f);
        take_memory(a, devices[i], f);
        take_place(a, devices[i], f);
        judge(a, driver, devices[i], f);
    }
}

/* False: there is no loader, or no driver. */
static bool find_drivers(asker *a, ze_driver_handle_t drivers[MAX_DRIVERS], uint32_t *n) {
    *a = (asker){.z = crumb_ze_load(NULL)};
    *n = MAX_DRIVERS;
    if (!a->z || !ASK(a, zeInit, 0) || !ASK(a, zeDriverGet, n, drivers)) return false;
    if (*n > MAX_DRIVERS) *n = MAX_DRIVERS;
    return true;
}

void crumb_cl_survey_take(const char *driver, crumb_cl_survey *out) {
    ze_driver_handle_t drivers[MAX_DRIVERS] = {0};
    uint32_t n;
    asker a;
    *out = (crumb_cl_survey){0};
    if (driver) setenv("ZE_ENABLE_ALT_DRIVERS", driver, 1);
    if (find_drivers(&a, drivers, &n)) {
        out->n_platforms = n;
        for (uint32_t i = 0; i < n; i++)
            if (drivers[i]) take_driver(&a, drivers[i], i, out);
    }
    out->is_partial = a.is_partial;
}

void crumb_cl_survey_sense(uint64_t platform, uint64_t device, crumb_device_sensors *out) {
    ze_driver_handle_t drivers[MAX_DRIVERS] = {0};
    ze_device_handle_t devices[CRUMB_CL_MAX_DEVICES] = {0};
    crumb_ze_sysman sysman;
    asker a;
    uint32_t n, n_devices = CRUMB_CL_MAX_DEVICES;
    *out = (crumb_device_sensors){0};
    if (!find_drivers(&a, drivers, &n) || platform >= n || device >= CRUMB_CL_MAX_DEVICES ||
        a.z->zeDeviceGet(drivers[platform], &n_devices, devices) != ZE_RESULT_SUCCESS || device >= n_devices) {
        crumb_sensors_miss(out, "the device is not there any more");
        return;
    }
    crumb_ze_sysman_find(a.z, devices[device], &sysman);
    crumb_ze_sysman_read(&sysman, out);
}
