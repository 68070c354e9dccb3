/* Asking every Level Zero driver of this machine for its devices. */
#include "cl/survey.h"

#include "spirv/api.h"
#include "spirv/ocloc.h"

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

/* ---- drivers --------------------------------------------------------------------------------------------------- */

static bool has_extension(const crumb_ze_functions *z, ze_driver_handle_t driver, const char *name) {
    uint32_t n = 0;
    bool found = false;
    if (z->zeDriverGetExtensionProperties(driver, &n, NULL) != ZE_RESULT_SUCCESS || n > 4096) return false;
    ze_driver_extension_properties_t *all = calloc(n ? n : 1, sizeof *all);
    if (all && z->zeDriverGetExtensionProperties(driver, &n, all) == ZE_RESULT_SUCCESS)
        for (uint32_t i = 0; i < n; i++) found = found || strcmp(all[i].name, name) == 0;
    free(all);
    return found;
}

static void take_versions(const crumb_ze_functions *z, ze_driver_handle_t driver, crumb_cl_facts *f) {
    ze_driver_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};
    ze_api_version_t version = ZE_API_VERSION_1_0;
    crumb_ze_version_fn get_version = NULL;
    char text[CRUMB_CL_TEXT] = "";
    size_t size = 0; /* asks for it */
    void *address = NULL;
    z->zeDriverGetProperties(driver, &properties);
    snprintf(text, sizeof text, "%u.%u.%u", properties.driverVersion >> 24, properties.driverVersion >> 16 & 0xff,
             properties.driverVersion & 0xffff);
    if (has_extension(z, driver, "ZE_intel_get_driver_version_string") &&
        z->zeDriverGetExtensionFunctionAddress(driver, "zeIntelGetDriverVersionString", &address) ==
            ZE_RESULT_SUCCESS) {
        memcpy(&get_version, &address, sizeof address);
        if (get_version && get_version(driver, NULL, &size) == ZE_RESULT_SUCCESS && size < sizeof text)
            get_version(driver, text, &size);
    }
    text[sizeof text - 1] = 0;
    crumb_cl_clean_text(text, f->driver);
    if (z->zeDriverGetApiVersion(driver, &version) == ZE_RESULT_SUCCESS)
        snprintf(f->version, sizeof f->version, "Level Zero %u.%u", (unsigned)ZE_MAJOR_VERSION(version),
                 (unsigned)ZE_MINOR_VERSION(version));
    snprintf(f->platform_name, sizeof f->platform_name, "Level Zero");
    f->has_bf16 = has_extension(z, driver, "ZE_extension_bfloat16_conversions");
}

/* ---- devices: what one does not answer is 0 or empty ------------------------------------------------------------ */

static void take_properties(const crumb_ze_functions *z, ze_device_handle_t d, crumb_cl_facts *f) {
    number_properties blocks = {.stype = BLOCK_PROPERTIES}, ip = {.stype = IP_VERSION, .pNext = &blocks};
    ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, .pNext = &ip};
    if (z->zeDeviceGetProperties(d, &p) != ZE_RESULT_SUCCESS) return;
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

static void take_compute(const crumb_ze_functions *z, ze_device_handle_t d, crumb_cl_facts *f) {
    ze_device_compute_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES};
    size_t used = 0;
    if (z->zeDeviceGetComputeProperties(d, &p) != ZE_RESULT_SUCCESS) return;
    f->local_bytes = p.maxSharedLocalMemory;
    f->max_work_group = p.maxTotalGroupSize;
    for (uint32_t i = 0; i < p.numSubGroupSizes && i < ZE_SUBGROUPSIZE_COUNT && used < 100; i++)
        used += (size_t)snprintf(f->sub_groups + used, CRUMB_CL_TEXT - used, "%s%u", i ? " " : "", p.subGroupSizes[i]);
    f->has_sub_groups = f->has_intel_sub_groups = used > 0;
}

static void take_abilities(const crumb_ze_functions *z, ze_device_handle_t d, crumb_cl_facts *f) {
    number_properties matrix = {.stype = MATRIX_PROPERTIES};
    ze_device_module_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES, .pNext = &matrix};
    if (z->zeDeviceGetModuleProperties(d, &p) != ZE_RESULT_SUCCESS) return;
    f->rounds_division = (p.fp32flags & ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT) != 0;
    f->has_f16 = (p.flags & ZE_DEVICE_MODULE_FLAG_FP16) != 0;
    f->has_dot_product = (p.flags & ZE_DEVICE_MODULE_FLAG_DP4A) != 0;
    f->has_matrix = (matrix.number & 2) != 0;
    f->has_usm = true;
    f->has_command_buffer = true;
}

static void take_memory(const crumb_ze_functions *z, ze_device_handle_t d, crumb_cl_facts *f) {
    ze_device_memory_properties_t memories[MAX_MEMORIES];
    ze_device_cache_properties_t caches[MAX_MEMORIES];
    uint32_t n = MAX_MEMORIES;
    for (int i = 0; i < MAX_MEMORIES; i++) {
        memories[i] = (ze_device_memory_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
        caches[i] = (ze_device_cache_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES};
    }
    if (z->zeDeviceGetMemoryProperties(d, &n, memories) == ZE_RESULT_SUCCESS)
        for (uint32_t i = 0; i < n && i < MAX_MEMORIES; i++) f->memory_bytes += memories[i].totalSize;
    n = MAX_MEMORIES;
    if (z->zeDeviceGetCacheProperties(d, &n, caches) == ZE_RESULT_SUCCESS)
        for (uint32_t i = 0; i < n && i < MAX_MEMORIES; i++)
            if (caches[i].cacheSize > f->cache_bytes) f->cache_bytes = caches[i].cacheSize;
}

static void take_place(const crumb_ze_functions *z, ze_device_handle_t d, crumb_cl_facts *f) {
    ze_pci_ext_properties_t p = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
    if (z->zeDevicePciGetPropertiesExt(d, &p) == ZE_RESULT_SUCCESS)
        snprintf(f->pci, CRUMB_CL_TEXT, "%04x:%02x:%02x.%x", p.address.domain, p.address.bus, p.address.device,
                 p.address.function);
}

/* What crumb cannot do without. Lists that are done in their order came with Intel's drivers of 2023. */
static const char *try_device(const crumb_ze_functions *z, ze_driver_handle_t driver, ze_device_handle_t d) {
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
    if (z->zeContextCreate(driver, &context_desc, &context) != ZE_RESULT_SUCCESS)
        return "its driver makes no context for it";
    if (z->zeCommandListCreateImmediate(context, d, &queue, &list) != ZE_RESULT_SUCCESS)
        why = "its Level Zero driver has no command lists that are done in their order: install a newer one";
    else if (z->zeModuleCreate(context, d, &module_desc, &module, NULL) != ZE_RESULT_SUCCESS &&
             !crumb_ze_ocloc_is_there())
        why = "its Level Zero driver does not compile OpenCL C: install a newer one, or Intel's "
              "offline compiler (intel-ocloc)";
    if (module) z->zeModuleDestroy(module);
    if (list) z->zeCommandListDestroy(list);
    z->zeContextDestroy(context);
    return why;
}

static void judge(const crumb_ze_functions *z, ze_driver_handle_t driver, ze_device_handle_t d, crumb_cl_facts *f) {
    const char *why = NULL;
    if (f->local_bytes < 16384 || f->max_work_group < 64)
        why = "its work-groups or their memory are too small (64 work-items and 16 kB are needed)";
    else if (f->memory_bytes == 0 || f->max_alloc_bytes == 0)
        why = "the driver says that it has no memory";
    else
        why = try_device(z, driver, d);
    if (why) snprintf(f->unusable, sizeof f->unusable, "%s", why);
}

static void take_driver(const crumb_ze_functions *z, ze_driver_handle_t driver, uint64_t index, crumb_cl_survey *out) {
    ze_device_handle_t devices[CRUMB_CL_MAX_DEVICES] = {0};
    uint32_t n = CRUMB_CL_MAX_DEVICES;
    if (z->zeDeviceGet(driver, &n, devices) != ZE_RESULT_SUCCESS) return;
    for (uint32_t i = 0; i < n && i < CRUMB_CL_MAX_DEVICES && out->n_devices < CRUMB_CL_MAX_DEVICES; i++) {
        crumb_cl_facts *f = &out->device[out->n_devices];
        *f = (crumb_cl_facts){.platform = index, .device = i};
        if (!devices[i]) continue; /* announced, and not given */
        take_properties(z, devices[i], f);
        if (!f->is_gpu) continue; /* NPUs have drivers too */
        out->n_devices++;
        take_versions(z, driver, f);
        take_compute(z, devices[i], f);
        take_abilities(z, devices[i], f);
        take_memory(z, devices[i], f);
        take_place(z, devices[i], f);
        judge(z, driver, devices[i], f);
    }
}

void crumb_cl_survey_take(const char *driver, crumb_cl_survey *out) {
    ze_driver_handle_t drivers[MAX_DRIVERS] = {0};
    uint32_t n = MAX_DRIVERS;
    *out = (crumb_cl_survey){0};
    if (driver) setenv("ZE_ENABLE_ALT_DRIVERS", driver, 1);
    const crumb_ze_functions *z = crumb_ze_load(NULL);
    if (!z || z->zeInit(0) != ZE_RESULT_SUCCESS || z->zeDriverGet(&n, drivers) != ZE_RESULT_SUCCESS) return;
    if (n > MAX_DRIVERS) n = MAX_DRIVERS;
    out->n_platforms = n;
    for (uint32_t i = 0; i < n; i++)
        if (drivers[i]) take_driver(z, drivers[i], i, out);
}
