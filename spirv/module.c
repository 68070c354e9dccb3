/* Modules and kernels in Level Zero. Intel's driver compiles the kernels' text; where a driver does not, Intel's
 * offline compiler makes SPIR-V of it, which every driver takes. And a driver takes its own binaries back. */
#include "cl/memory.h"
#include "spirv/archive.h"
#include "spirv/driver.h"
#include "spirv/ocloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ze_result_t create(const crumb_cl_driver *o, ze_module_format_t format, const void *bytes, size_t n_bytes,
                          const char *options, ze_module_handle_t *out, ze_module_build_log_handle_t *log) {
    const ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                                   .format = format,
                                   .inputSize = n_bytes,
                                   .pInputModule = bytes,
                                   .pBuildFlags = options};
    *out = NULL;
    const ze_result_t code = o->z->zeModuleCreate(o->context, o->id, &desc, out, log);
    if (code != ZE_RESULT_SUCCESS) *out = NULL;
    return code;
}

/* With its zero, which Intel's driver wants. NULL: too little memory. */
static char *join(const char *const *texts, size_t *n_bytes) {
    size_t n = 1, used = 0;
    for (size_t i = 0; texts[i]; i++) n += strlen(texts[i]);
    char *all = malloc(n);
    for (size_t i = 0; all && texts[i]; i++) {
        const size_t length = strlen(texts[i]);
        memcpy(all + used, texts[i], length);
        used += length;
    }
    if (all) all[used] = 0;
    *n_bytes = n;
    return all;
}

/* With what the driver's compiler says, where it fails. */
static ze_result_t create_with_log(const crumb_cl_driver *o, ze_module_format_t format, const void *bytes,
                                   size_t n_bytes, const char *options, ze_module_handle_t *out, char *log,
                                   size_t log_size) {
    ze_module_build_log_handle_t words = NULL;
    size_t n_words = log_size;
    const ze_result_t code = create(o, format, bytes, n_bytes, options, out, &words);
    if (words && code != ZE_RESULT_SUCCESS) {
        if (o->z->zeModuleBuildLogGetString(words, &n_words, log) != ZE_RESULT_SUCCESS) *log = 0;
        log[log_size - 1] = 0;
    }
    if (words) o->z->zeModuleBuildLogDestroy(words);
    return code;
}

/* Of a program's options, those that are for the driver's part of the work, as Level Zero calls them. */
static void options_of_spirv(const char *options, char *out, size_t size) {
    snprintf(out, size, "%s %s", strstr(options, CRUMB_CL_BUILD_OPTIONS) ? CRUMB_CL_BUILD_OPTIONS : "",
             strstr(options, CRUMB_CL_LARGE_REGISTERS) ? "-ze-opt-large-register-file" : "");
}

static ze_result_t create_from_spirv(const crumb_device *d, const char *text, const char *options,
                                     ze_module_handle_t *out, char *log, size_t log_size) {
    char own[sizeof CRUMB_CL_BUILD_OPTIONS + 40];
    size_t n_bytes;
    void *spirv = crumb_ze_ocloc_compile(d->facts.ip_version, text, options, &n_bytes, log, log_size);
    if (!spirv) return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    options_of_spirv(options, own, sizeof own);
    const ze_result_t code =
        create_with_log(d->driver, ZE_MODULE_FORMAT_IL_SPIRV, spirv, n_bytes, own, out, log, log_size);
    free(spirv);
    return code;
}

/* NULL: it is not in the archive, or the driver does not take it. */
static ze_module_handle_t find_native(const crumb_device *d, const crumb_ze_archived *a) {
    ze_module_handle_t module = NULL;
    if (a->n_native_bytes) create(d->driver, ZE_MODULE_FORMAT_NATIVE, a->bytes, a->n_native_bytes, "", &module, NULL);
    if (module && d->log) d->log(d->log_user, CRUMB_LOG_DEBUG, "a program from the archive of native binaries");
    return module;
}

static ze_module_handle_t find_spirv(const crumb_device *d, const crumb_ze_archived *a, const char *options) {
    char own[sizeof CRUMB_CL_BUILD_OPTIONS + 40];
    ze_module_handle_t module = NULL;
    options_of_spirv(options, own, sizeof own);
    if (a->n_spirv_bytes)
        create(d->driver, ZE_MODULE_FORMAT_IL_SPIRV, a->bytes + a->n_native_bytes, a->n_spirv_bytes, own, &module,
               NULL);
    if (module && d->log) d->log(d->log_user, CRUMB_LOG_DEBUG, "a program from the archive's SPIR-V");
    return module;
}

crumb_cl_code crumb_cl_built_compile(crumb_device *d, const char *const *texts, const char *options,
                                     crumb_cl_built *out, char *log, size_t log_size) {
    char path[700] = "";
    size_t n_bytes;
    char *text = join(texts, &n_bytes);
    crumb_ze_archived archived = {0};
    ze_result_t code = ZE_RESULT_SUCCESS;
    if (!text) return (crumb_cl_code)ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (crumb_ze_archive_path(path, sizeof path)) crumb_ze_archive_find(path, text, options, &archived);
    ze_module_handle_t module = find_native(d, &archived);
    if (!module)
        code = create_with_log(d->driver, crumb_ze_format_opencl_c(), text, n_bytes, options, &module, log, log_size);
    if (code == ZE_RESULT_ERROR_INVALID_ENUMERATION || code == ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION) {
        module = find_spirv(d, &archived, options);
        code = module ? ZE_RESULT_SUCCESS : create_from_spirv(d, text, options, &module, log, log_size);
    }
    free(archived.bytes);
    free(text);
    *out = module;
    return (crumb_cl_code)code;
}

crumb_cl_built crumb_cl_built_load(crumb_device *d, const void *binary, size_t n_bytes, const char *options) {
    ze_module_handle_t module;
    create(d->driver, ZE_MODULE_FORMAT_NATIVE, binary, n_bytes, options, &module, NULL);
    return module;
}

void *crumb_cl_built_binary(crumb_cl_built built, size_t *n_bytes) {
    const crumb_ze_functions *z = crumb_ze_load(NULL);
    *n_bytes = 0;
    if (z->zeModuleGetNativeBinary(built, n_bytes, NULL) != ZE_RESULT_SUCCESS || !*n_bytes) return NULL;
    uint8_t *binary = malloc(*n_bytes);
    if (binary && z->zeModuleGetNativeBinary(built, n_bytes, binary) == ZE_RESULT_SUCCESS) return binary;
    free(binary);
    return NULL;
}

void crumb_cl_built_release(crumb_cl_built built) {
    crumb_ze_load(NULL)->zeModuleDestroy(built);
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

crumb_cl_code crumb_cl_call_create(crumb_cl_built built, const char *name, crumb_cl_call *out) {
    const ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = name};
    ze_kernel_handle_t kernel = NULL;
    const ze_result_t code = crumb_ze_load(NULL)->zeKernelCreate(built, &desc, &kernel);
    *out = code == ZE_RESULT_SUCCESS ? kernel : NULL;
    return (crumb_cl_code)code;
}

void crumb_cl_call_release(crumb_cl_call call) {
    crumb_ze_load(NULL)->zeKernelDestroy(call);
}

crumb_cl_code crumb_cl_call_set(crumb_cl_call call, uint32_t index, size_t size, const void *value) {
    return (crumb_cl_code)crumb_ze_load(NULL)->zeKernelSetArgumentValue(call, index, size, value);
}

crumb_cl_code crumb_cl_call_set_memory(const crumb_device *d, crumb_cl_call call, uint32_t index,
                                       const crumb_cl_memory *memory) {
    const void *address = memory ? memory->usm : NULL;
    (void)d;
    return crumb_cl_call_set(call, index, sizeof address, &address);
}
