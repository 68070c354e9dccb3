/* Asking every OpenCL driver of this machine for its devices. */
#include "cl/survey.h"

#include "cl/driver.h"
#include "cl/opencl/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PLATFORMS = 16 };

/* A query has failed for want of something that may be there the next time: the survey is partial. */
static bool is_partial;

static cl_int note(cl_int code) {
    is_partial =
        is_partial || code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY || code == CL_DEVICE_NOT_AVAILABLE;
    return code;
}

/* ---- queries: what a device does not answer is 0 or empty ---------------------------------------------------- */

static void query_text(cl_device_id d, cl_device_info what, char out[CRUMB_CL_TEXT]) {
    char text[2048] = "";
    if (note(clGetDeviceInfo(d, what, sizeof text - 1, text, NULL)) != CL_SUCCESS) text[0] = 0;
    text[sizeof text - 1] = 0;
    crumb_cl_clean_text(text, out);
}

static uint64_t ask_number(cl_device_id d, cl_device_info what, size_t n_bytes, cl_int *code) {
    unsigned char bytes[8] = {0};
    uint64_t value = 0;
    *code = note(clGetDeviceInfo(d, what, n_bytes, bytes, NULL));
    if (*code != CL_SUCCESS) return 0;
    memcpy(&value, bytes, n_bytes); /* little-endian, as all that crumb runs on */
    return value;
}

static uint64_t query_number(cl_device_id d, cl_device_info what, size_t n_bytes) {
    cl_int code;
    return ask_number(d, what, n_bytes, &code);
}

/* What crumb cannot do without: the first such query that fails is why the device cannot be used. */
#define NEED(d, f, what, type) need_number(d, f, what, #what, sizeof(type))
static uint64_t need_number(cl_device_id d, crumb_cl_facts *f, cl_device_info what, const char *name, size_t n_bytes) {
    cl_int code;
    const uint64_t value = ask_number(d, what, n_bytes, &code);
    if (code != CL_SUCCESS && !*f->unusable)
        snprintf(f->unusable, sizeof f->unusable, "clGetDeviceInfo of %s failed: %s", name, crumb_cl_error_name(code));
    return value;
}

/* A word of the space-separated list. */
static bool has_extension(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0)) return true;
    return false;
}

/* Extensions that are claimed and not there are the commonest lie of drivers. */
static bool has_usm_functions(cl_platform_id platform) {
    static const char *const names[] = {"clDeviceMemAllocINTEL", "clHostMemAllocINTEL", "clMemBlockingFreeINTEL",
                                        "clEnqueueMemcpyINTEL", "clSetKernelArgMemPointerINTEL"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!clGetExtensionFunctionAddressForPlatform(platform, names[i])) return false;
    return true;
}

static void take_pci(cl_device_id d, crumb_cl_facts *f) {
    cl_uint pci[4] = {0}; /* domain, bus, device, function */
    if (note(clGetDeviceInfo(d, CRUMB_CL_PCI_BUS_INFO, sizeof pci, pci, NULL)) == CL_SUCCESS)
        snprintf(f->pci, CRUMB_CL_TEXT, "%04x:%02x:%02x.%x", pci[0], pci[1], pci[2], pci[3]);
}

static void take_extensions(cl_platform_id platform, cl_device_id d, crumb_cl_facts *f) {
    size_t n_bytes = 0;
    if (note(clGetDeviceInfo(d, CL_DEVICE_EXTENSIONS, 0, NULL, &n_bytes)) != CL_SUCCESS || n_bytes > 1u << 20) return;
    char *list = calloc(1, n_bytes + 1);
    if (!list) return;
    if (note(clGetDeviceInfo(d, CL_DEVICE_EXTENSIONS, n_bytes, list, NULL)) != CL_SUCCESS) list[0] = 0;
    f->has_usm = has_extension(list, "cl_intel_unified_shared_memory") && has_usm_functions(platform);
    f->has_f16 = has_extension(list, "cl_khr_fp16");
    f->has_sub_groups = has_extension(list, "cl_khr_subgroups") || has_extension(list, "cl_intel_subgroups");
    f->has_intel_sub_groups =
        has_extension(list, "cl_intel_subgroups") && has_extension(list, "cl_intel_required_subgroup_size");
    f->has_dot_product = has_extension(list, "cl_khr_integer_dot_product");
    f->has_matrix = has_extension(list, "cl_intel_subgroup_matrix_multiply_accumulate");
    f->has_2d_blocks = has_extension(list, "cl_intel_subgroup_2d_block_io");
    f->has_bf16 = has_extension(list, "cl_intel_bfloat16_conversions");
    f->has_command_buffer = has_extension(list, "cl_khr_command_buffer");
    if (has_extension(list, "cl_khr_pci_bus_info")) take_pci(d, f);
    free(list);
}

static void take_sub_groups(cl_device_id d, crumb_cl_facts *f) {
    size_t sizes[16], n_bytes = 0, used = 0;
    if (note(clGetDeviceInfo(d, CRUMB_CL_SUB_GROUP_SIZES, sizeof sizes, sizes, &n_bytes)) != CL_SUCCESS) return;
    for (size_t i = 0; i < n_bytes / sizeof *sizes && i < 16 && used < 100; i++)
        used += (size_t)snprintf(f->sub_groups + used, CRUMB_CL_TEXT - used, "%s%zu", i ? " " : "", sizes[i]);
}

static void take_intel(cl_device_id d, crumb_cl_facts *f) {
    if (f->vendor_id != CRUMB_CL_VENDOR_INTEL || !f->is_gpu) return;
    f->ip_version = query_number(d, CRUMB_CL_IP_VERSION, 4);
    f->xe_cores = query_number(d, CRUMB_CL_NUM_SLICES, 4) * query_number(d, CRUMB_CL_SUB_SLICES, 4);
}

/* PoCL turns kernels into loops over work-items unless told otherwise, and then computes some of crumb's wrong: what
 * lies behind barriers is left out or gets other values (3.1: linear and rope_store; 7.1: attention with an 8-bit
 * cache). Its method "cbs", of version 4 and later, has the same text right; Oclgrind and Intel's runtime find nothing
 * wrong in it. */
static bool computes_wrong(const crumb_cl_facts *f) {
    const char *method = getenv("POCL_WORK_GROUP_METHOD");
    if (!strstr(f->platform_name, "Portable Computing Language")) return false;
    return strtoul(f->driver, NULL, 10) < 4 || !method || strcmp(method, "cbs") != 0;
}

/* What crumb's kernels cannot do without. */
static void judge(cl_device_id d, crumb_cl_facts *f) {
    const bool is_available = NEED(d, f, CL_DEVICE_AVAILABLE, cl_bool) != 0;
    const bool compiles = NEED(d, f, CL_DEVICE_COMPILER_AVAILABLE, cl_bool) != 0;
    const bool is_little = NEED(d, f, CL_DEVICE_ENDIAN_LITTLE, cl_bool) != 0;
    const uint64_t address_bits = NEED(d, f, CL_DEVICE_ADDRESS_BITS, cl_uint);
    const char *why = NULL;
    if (*f->unusable) return; /* what has not been answered says nothing about the device */
    if (!is_available)
        why = "the driver says that the device is not available";
    else if (!compiles)
        why = "its driver has no compiler for OpenCL C";
    else if (address_bits != 64)
        why = "its addresses have not 64 bits";
    else if (!is_little)
        why = "it is big-endian";
    else if (f->local_bytes < 16384 || f->max_work_group < 64)
        why = "its work-groups or their memory are too small (64 work-items and 16 kB are needed)";
    else if (f->memory_bytes == 0 || f->max_alloc_bytes == 0)
        why = "the driver says that it has no memory";
    else if ((f->is_wrong = computes_wrong(f)))
        why = "PoCL compiles some kernels wrong, but for version 4 and later with POCL_WORK_GROUP_METHOD=cbs in the "
              "environment";
    if (why) snprintf(f->unusable, sizeof f->unusable, "%s", why);
}

static void take_device(cl_platform_id platform, cl_device_id d, crumb_cl_facts *f) {
    query_text(d, CL_DEVICE_NAME, f->name);
    query_text(d, CL_DEVICE_VENDOR, f->vendor);
    query_text(d, CL_DRIVER_VERSION, f->driver);
    query_text(d, CL_DEVICE_VERSION, f->version);
    uint64_t type = query_number(d, CL_DEVICE_TYPE, sizeof(cl_device_type));
    f->is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
    f->is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
    f->vendor_id = query_number(d, CL_DEVICE_VENDOR_ID, sizeof(cl_uint));
    f->unified = f->is_cpu || query_number(d, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof(cl_bool)) != 0;
    f->units = query_number(d, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(cl_uint));
    f->clock_mhz = query_number(d, CL_DEVICE_MAX_CLOCK_FREQUENCY, sizeof(cl_uint));
    f->memory_bytes = NEED(d, f, CL_DEVICE_GLOBAL_MEM_SIZE, cl_ulong);
    f->max_alloc_bytes = NEED(d, f, CL_DEVICE_MAX_MEM_ALLOC_SIZE, cl_ulong);
    f->local_bytes = NEED(d, f, CL_DEVICE_LOCAL_MEM_SIZE, cl_ulong);
    f->max_work_group = NEED(d, f, CL_DEVICE_MAX_WORK_GROUP_SIZE, size_t);
    f->cache_bytes = query_number(d, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof(cl_ulong));
    f->align_bytes = query_number(d, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(cl_uint)) / 8;
    uint64_t float_config = query_number(d, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(cl_device_fp_config));
    f->rounds_division = (float_config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
    take_extensions(platform, d, f);
    take_sub_groups(d, f);
    take_intel(d, f);
    judge(d, f);
}

static void take_platform(cl_platform_id platform, uint64_t index, crumb_cl_survey *out) {
    cl_device_id devices[CRUMB_CL_MAX_DEVICES] = {0};
    char text[1024] = "", name[CRUMB_CL_TEXT];
    cl_uint n = 0;
    if (note(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof text - 1, text, NULL)) != CL_SUCCESS) text[0] = 0;
    crumb_cl_clean_text(text, name);
    if (note(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, CRUMB_CL_MAX_DEVICES, devices, &n)) != CL_SUCCESS) return;
    if (n > CRUMB_CL_MAX_DEVICES) n = CRUMB_CL_MAX_DEVICES;
    for (cl_uint i = 0; i < n && out->n_devices < CRUMB_CL_MAX_DEVICES; i++) {
        if (!devices[i]) continue; /* announced, and not given */
        crumb_cl_facts *f = &out->device[out->n_devices++];
        *f = (crumb_cl_facts){.platform = index, .device = i};
        memcpy(f->platform_name, name, sizeof name);
        take_device(platform, devices[i], f);
    }
}

void crumb_cl_survey_take(const char *driver, crumb_cl_survey *out) {
    cl_platform_id platforms[MAX_PLATFORMS] = {0};
    cl_uint n = 0;
    is_partial = false;
    *out = (crumb_cl_survey){0};
    if (driver) setenv("OCL_ICD_VENDORS", driver, 1);
    if (note(clGetPlatformIDs(MAX_PLATFORMS, platforms, &n)) != CL_SUCCESS) n = 0;
    if (n > MAX_PLATFORMS) n = MAX_PLATFORMS;
    out->n_platforms = n;
    for (cl_uint i = 0; i < n; i++)
        if (platforms[i]) take_platform(platforms[i], i, out);
    out->is_partial = is_partial;
}
