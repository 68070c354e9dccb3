#include "tests/xe/device.h"

#include "cl/program.h"
#include "cl/registry.h"
#include "cpu/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check(cl_int status, const char *what) {
    if (status != CL_SUCCESS) fail_msg("%s: OpenCL error %d", what, status);
}

static char *read_file(const char *path, size_t *n_bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    *n_bytes = fread(text, 1, (1 << 20) - 1, f);
    assert_true(*n_bytes > 0 && *n_bytes < (1 << 20) - 1);
    fclose(f);
    return text;
}

static char *read_text(const char *path) {
    size_t n_bytes;
    return read_file(path, &n_bytes);
}

void crumb_xe_skip(const char *lacking) {
    if (getenv("CRUMB_XE_HAS_ALL")) fail_msg("the device has no %s, which its runtime is known to have", lacking);
    print_message("the device has no %s\n", lacking);
    skip();
}

static bool has_extension(cl_device_id id, const char *name) {
    static char all[1 << 16];
    check(clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, sizeof all, all, NULL), "CL_DEVICE_EXTENSIONS");
    const char *at = strstr(all, name);
    return at && (at[strlen(name)] == ' ' || at[strlen(name)] == 0);
}

static bool first_device(cl_device_id *out) {
    cl_platform_id platforms[8];
    cl_uint n = 0;
    if (clGetPlatformIDs(8, platforms, &n) != CL_SUCCESS) return false;
    for (cl_uint i = 0; i < n && i < 8; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, out, NULL) == CL_SUCCESS) return true;
    return false;
}

bool crumb_xe_open(crumb_xe_device *out) {
    cl_int status;
    cl_ulong local = 0;
    *out = (crumb_xe_device){0};
    if (!first_device(&out->id)) return false;
    check(clGetDeviceInfo(out->id, CL_DEVICE_NAME, sizeof out->name, out->name, NULL), "CL_DEVICE_NAME");
    check(clGetDeviceInfo(out->id, CL_DEVICE_VERSION, sizeof out->version, out->version, NULL), "CL_DEVICE_VERSION");
    if (getenv("CRUMB_XE_VERSION")) snprintf(out->version, sizeof out->version, "%s", getenv("CRUMB_XE_VERSION"));
    check(clGetDeviceInfo(out->id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL), "CL_DEVICE_LOCAL_MEM_SIZE");
    out->local_bytes = local;
    out->sub_groups = has_extension(out->id, "cl_intel_subgroups");
    out->dot = has_extension(out->id, "cl_khr_integer_dot_product");
    out->context = clCreateContext(NULL, 1, &out->id, NULL, NULL, &status);
    check(status, "clCreateContext");
    out->queue = clCreateCommandQueue(out->context, out->id, 0, &status);
    check(status, "clCreateCommandQueue");
    return true;
}

int crumb_xe_run_tests(crumb_xe_device *d, const struct CMUnitTest *tests, size_t n) {
    if (!crumb_xe_open(d)) {
        fprintf(stderr, "there is no OpenCL device\n");
        return 1;
    }
    printf("on %s\n", d->name);
    int failed = _cmocka_run_group_tests("kernels", tests, n, NULL, NULL);
    crumb_xe_close(d);
    return failed;
}

/* ---- programs ----------------------------------------------------------------------------------------------- */

enum { KEPT_PROGRAMS = 16 };

typedef struct program {
    char *key;
    cl_program program;
    struct program *next;
} program;
static program *programs; /* the newest first */
static cl_program builtins;

/* All but the n newest. */
static void forget_programs(size_t n) {
    program **end = &programs;
    while (n-- > 0 && *end) end = &(*end)->next;
    for (program *p = *end, *next; p; p = next) {
        next = p->next;
        clReleaseProgram(p->program);
        free(p->key);
        free(p);
    }
    *end = NULL;
}

void crumb_xe_close(crumb_xe_device *d) {
    forget_programs(0);
    if (builtins) clReleaseProgram(builtins);
    builtins = NULL;
    if (d->queue) clReleaseCommandQueue(d->queue);
    if (d->context) clReleaseContext(d->context);
}

static void fail_with_log(crumb_xe_device *d, cl_program p, const char *key, cl_int status) {
    static char log[1 << 15];
    clGetProgramBuildInfo(p, d->id, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
    fail_msg("%s does not build (%d):\n%s", key, status, log);
}

static cl_program compile(crumb_xe_device *d, const char *const *texts, cl_uint n, const char *options, bool link,
                          const char *key) {
    cl_int status;
    cl_program p = clCreateProgramWithSource(d->context, n, (const char **)(uintptr_t)texts, NULL, &status);
    check(status, "clCreateProgramWithSource");
    status = link ? clCompileProgram(p, 1, &d->id, options, 0, NULL, NULL, NULL, NULL)
                  : clBuildProgram(p, 1, &d->id, options, NULL, NULL);
    if (status != CL_SUCCESS) fail_with_log(d, p, key, status);
    return p;
}

/* ---- SPIR-V --------------------------------------------------------------------------------------------------- *
 * CRUMB_XE_OCLOC, a command, is Intel's offline compiler for GPUs: programs are then made of what it writes. */

static void write_texts(const char *path, const char *const *texts, cl_uint n) {
    FILE *f = fopen(path, "wb");
    if (!f) fail_msg("%s cannot be written", path);
    for (cl_uint i = 0; i < n; i++) fputs(texts[i], f);
    assert_int_equal(fclose(f), 0);
}

static cl_program compile_spirv(crumb_xe_device *d, const char *const *texts, cl_uint n, const char *options, bool link,
                                const char *key) {
    char folder[] = "/tmp/crumb-xe-XXXXXX", command[2048], path[64];
    cl_int status;
    size_t n_bytes;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/k.cl", folder);
    write_texts(path, texts, n);
    snprintf(
        command, sizeof command,
        "%s compile -spv_only -file %s -device %s -options '%s' -out_dir %s -output k -output_no_suffix >%s/log 2>&1",
        getenv("CRUMB_XE_OCLOC"), path, strstr(options, "-D SUB_GROUP=8") ? "dg2" : "bmg", options, folder, folder);
    if (system(command) != 0) fail_msg("ocloc fails: %s", command);
    snprintf(path, sizeof path, "%s/k.spv", folder);
    char *module = read_file(path, &n_bytes);
    cl_program p = clCreateProgramWithIL(d->context, module, n_bytes, &status);
    check(status, "clCreateProgramWithIL");
    free(module);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    status = link ? clCompileProgram(p, 1, &d->id, CRUMB_CL_BUILD_OPTIONS, 0, NULL, NULL, NULL, NULL)
                  : clBuildProgram(p, 1, &d->id, CRUMB_CL_BUILD_OPTIONS, NULL, NULL);
    if (status != CL_SUCCESS) fail_with_log(d, p, key, status);
    return p;
}

static cl_program link_builtins(crumb_xe_device *d, cl_program kernels, const char *key) {
    cl_int status;
    if (!builtins) {
        char *text = read_text("tests/xe/xe_builtins.cl");
        builtins = compile(d, (const char *const[]){text}, 1, "-cl-std=CL3.0", true, "xe_builtins.cl");
        free(text);
    }
    cl_program linked =
        clLinkProgram(d->context, 1, &d->id, "", 2, (cl_program[]){kernels, builtins}, NULL, NULL, &status);
    if (status != CL_SUCCESS) fail_with_log(d, linked, key, status);
    clReleaseProgram(kernels);
    return linked;
}

static cl_program build(crumb_xe_device *d, const char *file, const char *options, bool matrix, const char *key) {
    char *whole = strchr(file, '/') ? read_text(file) : NULL;
    const char *const texts[] = {crumb_cl_text("common.cl"), "\n", crumb_cl_text(file)};
    if (!whole && !texts[2]) fail_msg("there is no kernel text %s", file);
    bool spirv = getenv("CRUMB_XE_OCLOC") != NULL;
    cl_program p = (spirv ? compile_spirv : compile)(d, whole ? (const char *const[]){whole} : texts, whole ? 1 : 3,
                                                     options, matrix, key);
    free(whole);
    return matrix ? link_builtins(d, p, key) : p;
}

/* CRUMB_XE_QUICKLY: without optimization, which takes Intel's runtime for CPUs 3 to 50 times as long. */
cl_kernel crumb_xe_kernel(crumb_xe_device *d, const char *file, const char *options, bool matrix, const char *entry) {
    char all[1024], key[1280];
    cl_int status;
    const char *quickly = getenv("CRUMB_XE_QUICKLY") ? " -cl-opt-disable" : "";
    const bool rounds = !strstr(options, CRUMB_CL_ROUND_DIVISION); /* as cl/program.c has it */
    snprintf(all, sizeof all, "%s %s%s", rounds ? CRUMB_CL_BUILD_OPTIONS : "", options, quickly);
    snprintf(key, sizeof key, "%s %d %s", file, matrix, all);
    program *p = programs;
    while (p && strcmp(p->key, key) != 0) p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p);
        assert_non_null(p);
        *p = (program){strdup(key), build(d, file, all, matrix, key), programs};
        programs = p;
        forget_programs(KEPT_PROGRAMS); /* one of Intel's runtime takes megabytes, and there are thousands of them */
    }
    cl_kernel kernel = clCreateKernel(p->program, entry, &status);
    check(status, entry);
    return kernel;
}

uint64_t crumb_xe_seed = 20261123;

float *crumb_xe_random_floats(size_t n, float scale) {
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = crumb_random_f32(&crumb_xe_seed) * scale;
    return x;
}

/* ---- buffers and launches ----------------------------------------------------------------------------------- */

void crumb_xe_fill(crumb_xe_device *d, cl_mem buffer, size_t n_bytes) {
    check(clEnqueueFillBuffer(d->queue, buffer, &(uint8_t){0xa5}, 1, 0, n_bytes, 0, NULL, NULL), "fill");
}

cl_mem crumb_xe_buffer(crumb_xe_device *d, const void *data, size_t n_bytes) {
    cl_int status;
    if (n_bytes == 0) return NULL;
    cl_mem buffer = clCreateBuffer(d->context, CL_MEM_READ_WRITE, n_bytes, NULL, &status);
    check(status, "clCreateBuffer");
    if (data)
        check(clEnqueueWriteBuffer(d->queue, buffer, CL_TRUE, 0, n_bytes, data, 0, NULL, NULL), "write");
    else
        crumb_xe_fill(d, buffer, n_bytes);
    return buffer;
}

void crumb_xe_release(size_t n, const cl_mem *buffers) {
    for (size_t i = 0; i < n; i++)
        if (buffers[i]) clReleaseMemObject(buffers[i]);
}

void crumb_xe_read(crumb_xe_device *d, cl_mem buffer, void *out, size_t n_bytes) {
    check(clEnqueueReadBuffer(d->queue, buffer, CL_TRUE, 0, n_bytes, out, 0, NULL, NULL), "read");
}

static void set(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
    cl_int status = clSetKernelArg(kernel, index, size, value);
    if (status != CL_SUCCESS) fail_msg("argument %u of %zu bytes: OpenCL error %d", index, size, status);
}

void crumb_xe_args(cl_kernel kernel, cl_uint first, const char *types, ...) {
    va_list list;
    va_start(list, types);
    for (cl_uint i = 0; types[i]; i++) switch (types[i]) {
        case 'b': set(kernel, first + i, sizeof(cl_mem), &(cl_mem){va_arg(list, cl_mem)}); break;
        case 'f': set(kernel, first + i, sizeof(float), &(float){(float)va_arg(list, double)}); break;
        case 'i': set(kernel, first + i, sizeof(int), &(int){va_arg(list, int)}); break;
        case 'o': set(kernel, first + i, sizeof(uint64_t), &(uint64_t){va_arg(list, uint64_t)}); break;
        case 'l': set(kernel, first + i, va_arg(list, size_t), NULL); break;
        default: set(kernel, first + i, sizeof(uint32_t), &(uint32_t){va_arg(list, uint32_t)}); break;
        }
    va_end(list);
}

void crumb_xe_run(crumb_xe_device *d, cl_kernel kernel, size_t local, size_t groups0, size_t groups1, size_t groups2) {
    size_t local_size[3] = {local, 1, 1}, global[3] = {groups0 * local, groups1, groups2};
    check(clEnqueueNDRangeKernel(d->queue, kernel, 3, NULL, global, local_size, 0, NULL, NULL), "launch");
    check(clFinish(d->queue), "finish");
}
