/* Modules and kernels. A module is SPIR-V, compiled by OpenCL and linked with the builtins that it calls; its native
 * binary is the SPIR-V, which has the kernels' signatures, followed by OpenCL's binary. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- building -----------------------------------------------------------------------------------------------------
 */

typedef struct blob_head {
    char magic[8];
    uint64_t n_spirv_bytes;
} blob_head;
static const char blob_magic[8] = "ze-on-cl";

/* What options of a driver become OpenCL's; false: there is one that no driver knows. */
static bool translate_options(const char *flags, char *out, size_t size) {
    static const char rounded[] = "-cl-fp32-correctly-rounded-divide-sqrt", large[] = "-ze-opt-large-register-file";
    const char *at = flags ? flags : "";
    snprintf(out, size, "%s", strstr(at, rounded) ? rounded : "");
    while (*(at += strspn(at, " "))) {
        const size_t n = strcspn(at, " ");
        if (!(n == strlen(rounded) && strncmp(at, rounded, n) == 0) &&
            !(n == strlen(large) && strncmp(at, large, n) == 0))
            return false;
        at += n;
    }
    return true;
}

static cl_program compile_builtins(void) {
    static char text[1 << 20];
    const char *path = getenv("CRUMB_LAYER_BUILTINS"), *lines = text;
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (!f || fread(text, 1, sizeof text - 1, f) == 0) stop("CRUMB_LAYER_BUILTINS names no file");
    fclose(f);
    cl_int code;
    cl_program p = clCreateProgramWithSource(the_device.context, 1, &lines, NULL, &code);
    if (code != CL_SUCCESS ||
        clCompileProgram(p, 1, &the_device.id, "-cl-std=CL3.0", 0, NULL, NULL, NULL, NULL) != CL_SUCCESS)
        stop("the builtins do not compile");
    return p;
}

/* `p` linked with the builtins; it is released. */
static cl_program link_builtins(cl_program p, cl_int *code) {
    static cl_program builtins;
    if (!builtins) builtins = compile_builtins();
    cl_program linked =
        clLinkProgram(the_device.context, 1, &the_device.id, "", 2, (cl_program[]){p, builtins}, NULL, NULL, code);
    clReleaseProgram(p);
    return linked;
}

static void give_log(cl_program p, const char *words, ze_module_build_log_handle_t *log) {
    if (!log) return;
    *log = calloc(1, sizeof **log);
    if (!*log) stop("no memory for a log");
    snprintf((*log)->text, sizeof(*log)->text, "error: %s ", words);
    const size_t used = strlen((*log)->text);
    if (p)
        clGetProgramBuildInfo(p, the_device.id, CL_PROGRAM_BUILD_LOG, sizeof(*log)->text - used - 1,
                              (*log)->text + used, NULL);
}

static ze_result_t build_spirv(ze_module_handle_t m, const char *options, ze_module_build_log_handle_t *log) {
    bool imports;
    cl_int code;
    m->n_kernels = spirv_read(m->spirv, m->n_spirv_bytes / 4, m->kernel, &imports);
    if (!m->n_kernels)
        return give_log(NULL, "this is no SPIR-V with kernels", log), ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    m->program = clCreateProgramWithIL(the_device.context, m->spirv, m->n_spirv_bytes, &code);
    if (code != CL_SUCCESS) return result_of(code);
    code = imports ? clCompileProgram(m->program, 1, &the_device.id, options, 0, NULL, NULL, NULL, NULL)
                   : clBuildProgram(m->program, 1, &the_device.id, options, NULL, NULL);
    if (code == CL_SUCCESS && imports) m->program = link_builtins(m->program, &code);
    if (code == CL_SUCCESS) return ZE_RESULT_SUCCESS;
    give_log(m->program, "OpenCL does not build it:", log);
    return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
}

static ze_result_t load_native(ze_module_handle_t m, const unsigned char *binary, size_t n_binary) {
    bool imports;
    cl_int code, state;
    m->n_kernels = spirv_read(m->spirv, m->n_spirv_bytes / 4, m->kernel, &imports);
    if (!m->n_kernels) return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
    m->program = clCreateProgramWithBinary(the_device.context, 1, &the_device.id, &n_binary, &binary, &state, &code);
    if (code == CL_SUCCESS) code = clBuildProgram(m->program, 1, &the_device.id, "", NULL, NULL);
    return code == CL_SUCCESS ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
}

static ze_result_t copy_spirv(ze_module_handle_t m, const void *spirv, size_t n_bytes) {
    m->spirv = malloc(n_bytes ? n_bytes : 1);
    if (!m->spirv) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    memcpy(m->spirv, spirv, n_bytes);
    m->n_spirv_bytes = n_bytes;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fill_module(ze_module_handle_t m, const ze_module_desc_t *desc, ze_module_build_log_handle_t *log) {
    char options[128];
    blob_head head = {0};
    const uint8_t *bytes = desc->pInputModule;
    if (!translate_options(desc->format == ZE_MODULE_FORMAT_NATIVE ? "" : desc->pBuildFlags, options, sizeof options))
        return give_log(NULL, "an option that it does not know", log), ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    if (desc->format != ZE_MODULE_FORMAT_NATIVE) {
        const ze_result_t code = copy_spirv(m, bytes, desc->inputSize);
        return code == ZE_RESULT_SUCCESS ? build_spirv(m, options, log) : code;
    }
    if (desc->inputSize > sizeof head) memcpy(&head, bytes, sizeof head);
    if (memcmp(head.magic, blob_magic, sizeof blob_magic) != 0 || head.n_spirv_bytes > desc->inputSize - sizeof head)
        return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
    const size_t before = sizeof head + (size_t)head.n_spirv_bytes;
    const ze_result_t code = copy_spirv(m, bytes + sizeof head, (size_t)head.n_spirv_bytes);
    return code == ZE_RESULT_SUCCESS ? load_native(m, bytes + before, desc->inputSize - before) : code;
}

/* ---- modules ------------------------------------------------------------------------------------------------------
 */

ze_result_t ZE_APICALL zeModuleDestroy(ze_module_handle_t m) {
    if (m->program) clReleaseProgram(m->program);
    free(m->spirv);
    free(m);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeModuleCreate(ze_context_handle_t context, ze_device_handle_t device,
                                      const ze_module_desc_t *desc, ze_module_handle_t *out,
                                      ze_module_build_log_handle_t *log) {
    CALL();
    (void)context, (void)device;
    if (desc->format != ZE_MODULE_FORMAT_IL_SPIRV && desc->format != ZE_MODULE_FORMAT_NATIVE)
        return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
    ze_module_handle_t m = calloc(1, sizeof *m);
    if (!m) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    const ze_result_t code = fill_module(m, desc, log);
    if (code == ZE_RESULT_SUCCESS)
        *out = m;
    else
        zeModuleDestroy(m);
    return code;
}

ze_result_t ZE_APICALL zeModuleBuildLogGetString(ze_module_build_log_handle_t log, size_t *n, char *out) {
    const size_t there = strlen(log->text) + 1;
    CALL();
    if (out) snprintf(out, *n, "%s", log->text);
    if (!out || *n > there) *n = there;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeModuleBuildLogDestroy(ze_module_build_log_handle_t log) {
    free(log);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeModuleGetNativeBinary(ze_module_handle_t m, size_t *n, uint8_t *out) {
    blob_head head = {.n_spirv_bytes = m->n_spirv_bytes};
    size_t n_binary = 0;
    CALL();
    memcpy(head.magic, blob_magic, sizeof blob_magic);
    cl_int code = clGetProgramInfo(m->program, CL_PROGRAM_BINARY_SIZES, sizeof n_binary, &n_binary, NULL);
    const size_t n_all = sizeof head + m->n_spirv_bytes + n_binary;
    if (code == CL_SUCCESS && out) {
        if (*n < n_all) return ZE_RESULT_ERROR_INVALID_SIZE;
        unsigned char *binary = out + n_all - n_binary;
        memcpy(out, &head, sizeof head);
        memcpy(out + sizeof head, m->spirv, m->n_spirv_bytes);
        code = clGetProgramInfo(m->program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL);
    }
    *n = n_all;
    return result_of(code);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------
 */

ze_result_t ZE_APICALL zeKernelCreate(ze_module_handle_t m, const ze_kernel_desc_t *desc, ze_kernel_handle_t *out) {
    const signature *found = NULL;
    cl_int code;
    cl_uint n = 0;
    CALL();
    for (size_t i = 0; i < m->n_kernels; i++)
        if (strcmp(m->kernel[i].name, desc->pKernelName) == 0) found = &m->kernel[i];
    if (!found) return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
    cl_kernel kernel = clCreateKernel(m->program, desc->pKernelName, &code);
    if (code != CL_SUCCESS) return result_of(code);
    if (clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof n, &n, NULL) != CL_SUCCESS || n != found->n)
        stop("OpenCL counts other parameters than the module has");
    *out = calloc(1, sizeof **out);
    if (!*out) stop("no memory for a kernel");
    **out = (struct _ze_kernel_handle_t){.kernel = kernel, .arguments = *found};
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeKernelDestroy(ze_kernel_handle_t k) {
    clReleaseKernel(k->kernel);
    free(k);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeKernelSetGroupSize(ze_kernel_handle_t k, uint32_t x, uint32_t y, uint32_t z) {
    CALL();
    if (!x || !y || !z || (uint64_t)x * y * z > 1024) return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
    k->local[0] = x;
    k->local[1] = y;
    k->local[2] = z;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeKernelSetArgumentValue(ze_kernel_handle_t k, uint32_t index, size_t size, const void *value) {
    CALL();
    if (index >= k->arguments.n) return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX;
    parameter *p = &k->arguments.parameter[index];
    const size_t wanted = p->kind == PARAMETER_LOCAL ? size : p->kind == PARAMETER_GLOBAL ? sizeof(void *) : p->n_bytes;
    if (size != wanted || size == 0) return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
    if ((p->kind == PARAMETER_LOCAL) != (value == NULL)) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    p->value = 0;
    p->n_bytes = size;
    if (value) memcpy(&p->value, value, size);
    if (p->kind == PARAMETER_GLOBAL && p->value && !is_usm((const void *)(uintptr_t)p->value, 1))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    p->is_set = true;
    return ZE_RESULT_SUCCESS;
}
