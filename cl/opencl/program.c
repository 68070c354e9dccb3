/* Programs and kernels in OpenCL. */
#include "cl/memory.h"
#include "cl/opencl/driver.h"

#include <stdlib.h>

crumb_cl_code crumb_cl_built_compile(crumb_device *d, const char *const *texts, const char *options,
                                     crumb_cl_built *out, char *log, size_t log_size) {
    cl_uint n = 0;
    cl_int code;
    while (texts[n]) n++;
    cl_program program = clCreateProgramWithSource(d->driver->context, n, (const char **)texts, NULL, &code);
    if (code != CL_SUCCESS) return code;
    code = clBuildProgram(program, 1, &d->driver->id, options, NULL, NULL);
    if (code == CL_SUCCESS) {
        *out = program;
        return code;
    }
    clGetProgramBuildInfo(program, d->driver->id, CL_PROGRAM_BUILD_LOG, log_size - 1, log, NULL);
    clReleaseProgram(program);
    return code;
}

crumb_cl_built crumb_cl_built_load(crumb_device *d, const void *binary, size_t n_bytes, const char *options) {
    const unsigned char *bytes = binary;
    cl_int state = CL_SUCCESS, code;
    cl_program program =
        clCreateProgramWithBinary(d->driver->context, 1, &d->driver->id, &n_bytes, &bytes, &state, &code);
    if (code != CL_SUCCESS) return NULL;
    if (state == CL_SUCCESS && clBuildProgram(program, 1, &d->driver->id, options, NULL, NULL) == CL_SUCCESS)
        return program;
    clReleaseProgram(program);
    return NULL;
}

void *crumb_cl_built_binary(crumb_cl_built built, size_t *n_bytes) {
    *n_bytes = 0;
    if (clGetProgramInfo(built, CL_PROGRAM_BINARY_SIZES, sizeof *n_bytes, n_bytes, NULL) != CL_SUCCESS || !*n_bytes)
        return NULL;
    unsigned char *binary = malloc(*n_bytes);
    if (binary && clGetProgramInfo(built, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS)
        return binary;
    free(binary);
    return NULL;
}

void crumb_cl_built_release(crumb_cl_built built) {
    clReleaseProgram(built);
}

crumb_cl_code crumb_cl_call_create(crumb_cl_built built, const char *name, crumb_cl_call *out) {
    cl_int code;
    *out = clCreateKernel(built, name, &code);
    return code;
}

void crumb_cl_call_release(crumb_cl_call call) {
    clReleaseKernel(call);
}

crumb_cl_code crumb_cl_call_set(crumb_cl_call call, uint32_t index, size_t size, const void *value) {
    return clSetKernelArg(call, index, size, value);
}

crumb_cl_code crumb_cl_call_set_memory(const crumb_device *d, crumb_cl_call call, uint32_t index,
                                       const crumb_cl_memory *memory) {
    cl_mem mem = memory ? memory->mem : NULL; /* and not NULL for the argument itself, which some drivers take amiss */
    if (memory && memory->usm) return d->driver->usm.set_arg(call, index, memory->usm);
    return clSetKernelArg(call, index, sizeof(cl_mem), &mem);
}
