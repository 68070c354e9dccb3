/* An OpenCL layer that gives a device the matrix instructions of Intel's GPUs in software, so that the whole backend
 * runs its matrix rungs on Intel's OpenCL runtime for CPUs, without knowing. The loader puts it before every driver
 * when OPENCL_LAYERS names it. From the environment: CRUMB_LAYER_SUB_GROUP   16 (Xe2, Xe3: with 2D block loads) or 8
 * (dg2, arl-h): what the device then claims CRUMB_LAYER_BUILTINS    path of xe_builtins.cl
 *
 * Two things are changed: the answers of clGetDeviceInfo about extensions and sub-groups; and programs built as
 * OpenCL C 3.0, which those with matrix instructions are, are compiled and linked with the builtins. The program that
 * the caller holds stays as it is; the linked one stands behind it.
 */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUB_GROUP_SIZES = 0x4108, MAX_LINKED = 4096, MAX_TEXT = 1 << 20 };

static const cl_icd_dispatch *below;
static cl_icd_dispatch layer;
static struct {
    cl_program held, linked;
} programs[MAX_LINKED];
static size_t n_programs;
static cl_program builtins;

static void stop(const char *what) {
    fprintf(stderr, "matrix_layer.c: %s\n", what);
    abort();
}

static int sub_group(void) {
    const char *size = getenv("CRUMB_LAYER_SUB_GROUP");
    if (!size || (strcmp(size, "16") != 0 && strcmp(size, "8") != 0)) stop("CRUMB_LAYER_SUB_GROUP is not 16 or 8");
    return atoi(size);
}

/* ---- what the device claims ---------------------------------------------------------------------------------- */

static cl_int answer(const void *value, size_t n_bytes, size_t size, void *out, size_t *n_out) {
    if (n_out) *n_out = n_bytes;
    if (!out) return CL_SUCCESS;
    if (size < n_bytes) return CL_INVALID_VALUE;
    memcpy(out, value, n_bytes);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, size_t size, void *out,
                                          size_t *n_out) {
    static char list[MAX_TEXT];
    const size_t of_16[] = {16, 32}, of_8[] = {8, 16, 32};
    if (what == SUB_GROUP_SIZES)
        return sub_group() == 16 ? answer(of_16, sizeof of_16, size, out, n_out)
                                 : answer(of_8, sizeof of_8, size, out, n_out);
    if (what != CL_DEVICE_EXTENSIONS) return below->clGetDeviceInfo(device, what, size, out, n_out);
    cl_int code = below->clGetDeviceInfo(device, what, sizeof list - 100, list, NULL);
    if (code != CL_SUCCESS) return code;
    strcat(list, " cl_intel_subgroup_matrix_multiply_accumulate");
    if (sub_group() == 16) strcat(list, " cl_intel_subgroup_2d_block_io");
    return answer(list, strlen(list) + 1, size, out, n_out);
}

/* ---- programs ------------------------------------------------------------------------------------------------ */

static cl_program behind(cl_program held) {
    for (size_t i = 0; i < n_programs; i++)
        if (programs[i].held == held) return programs[i].linked;
    return held;
}

static cl_context context_of(cl_program p) {
    cl_context context = NULL;
    if (below->clGetProgramInfo(p, CL_PROGRAM_CONTEXT, sizeof context, &context, NULL) != CL_SUCCESS)
        stop("a program without a context");
    return context;
}

static cl_program compile_builtins(cl_context context, const cl_device_id *device) {
    static char text[MAX_TEXT];
    const char *path = getenv("CRUMB_LAYER_BUILTINS"), *lines = text;
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (!f || fread(text, 1, sizeof text - 1, f) == 0) stop("CRUMB_LAYER_BUILTINS names no file");
    fclose(f);
    cl_int code;
    cl_program p = below->clCreateProgramWithSource(context, 1, &lines, NULL, &code);
    if (code != CL_SUCCESS ||
        below->clCompileProgram(p, 1, device, "-cl-std=CL3.0", 0, NULL, NULL, NULL, NULL) != CL_SUCCESS)
        stop("the builtins do not compile");
    return p;
}

static bool has_source(cl_program p) {
    size_t n_bytes = 0;
    return below->clGetProgramInfo(p, CL_PROGRAM_SOURCE, 0, NULL, &n_bytes) == CL_SUCCESS && n_bytes > 1;
}

/* The options but for the size of registers, which are software here: a layer before this one may claim a GPU.
 * Attention over int8 caches is not optimized: Intel's runtime for CPUs takes minutes to. */
static const char *options_here(const char *options, char *out, size_t size) {
    static const char large[] = "-cl-intel-256-GRF-per-thread";
    const char *quickly = strstr(options, "-D KV=8") ? " -cl-opt-disable" : "";
    if (strlen(options) + strlen(quickly) >= size) stop("options are too long");
    strcat(strcpy(out, options), quickly);
    char *at = strstr(out, large);
    if (at) memset(at, ' ', strlen(large));
    return out;
}

static cl_int CL_API_CALL build_program(cl_program p, cl_uint n_devices, const cl_device_id *devices,
                                        const char *options, void(CL_CALLBACK *notify)(cl_program, void *),
                                        void *user) {
    static cl_context of_builtins;
    if (!options || !strstr(options, "-cl-std=CL3.0") || n_devices != 1 || notify || !has_source(p))
        return below->clBuildProgram(p, n_devices, devices, options, notify, user);
    char kept[4096];
    options = options_here(options, kept, sizeof kept);
    cl_int code = below->clCompileProgram(p, 1, devices, options, 0, NULL, NULL, NULL, NULL);
    if (code != CL_SUCCESS) return code;
    cl_context context = context_of(p);
    if (builtins && of_builtins != context) {
        below->clReleaseProgram(builtins);
        builtins = NULL;
    }
    if (!builtins) builtins = compile_builtins(of_builtins = context, devices);
    cl_program linked =
        below->clLinkProgram(context, 1, devices, "", 2, (cl_program[]){p, builtins}, NULL, NULL, &code);
    if (code != CL_SUCCESS) return CL_BUILD_PROGRAM_FAILURE;
    if (n_programs == MAX_LINKED) stop("too many programs");
    programs[n_programs].held = p;
    programs[n_programs++].linked = linked;
    return CL_SUCCESS;
}

static cl_kernel CL_API_CALL create_kernel(cl_program p, const char *name, cl_int *code) {
    return below->clCreateKernel(behind(p), name, code);
}

static cl_int CL_API_CALL get_program_info(cl_program p, cl_program_info what, size_t size, void *out, size_t *n_out) {
    bool binary = what == CL_PROGRAM_BINARY_SIZES || what == CL_PROGRAM_BINARIES;
    return below->clGetProgramInfo(binary ? behind(p) : p, what, size, out, n_out);
}

/* Programs here have one owner, who releases them once. A context that is created later may lie where the one of the
 * builtins was, so these go with the last program. */
static cl_int CL_API_CALL release_program(cl_program p) {
    for (size_t i = 0; i < n_programs; i++)
        if (programs[i].held == p) {
            below->clReleaseProgram(programs[i].linked);
            programs[i] = programs[--n_programs];
            break;
        }
    if (n_programs == 0 && builtins) {
        below->clReleaseProgram(builtins);
        builtins = NULL;
    }
    return below->clReleaseProgram(p);
}

/* ---- what the loader calls ----------------------------------------------------------------------------------- */

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void *out, size_t *n_out) {
    static const char name[] = "crumb's matrix instructions in software";
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (what == CL_LAYER_API_VERSION) return answer(&version, sizeof version, size, out, n_out);
    if (what == CL_LAYER_NAME) return answer(name, sizeof name, size, out, n_out);
    return CL_INVALID_VALUE;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint n_entries, const cl_icd_dispatch *target, cl_uint *n_out,
                                            const cl_icd_dispatch **out) {
    const size_t known = sizeof layer / sizeof(void *);
    if (!target || !n_out || !out) return CL_INVALID_VALUE;
    below = target;
    memcpy(&layer, target, (n_entries < known ? n_entries : known) * sizeof(void *));
    layer.clGetDeviceInfo = get_device_info;
    layer.clBuildProgram = build_program;
    layer.clCreateKernel = create_kernel;
    layer.clGetProgramInfo = get_program_info;
    layer.clReleaseProgram = release_program;
    *n_out = (cl_uint)known;
    *out = &layer;
    return CL_SUCCESS;
}

/* What Khronos's newer loaders, such as that beside Intel's runtime, call instead. Their headers are not everywhere. */
cl_int CL_API_CALL clInitLayerWithProperties(cl_uint n_entries, const cl_icd_dispatch *target, cl_uint *n_out,
                                             const cl_icd_dispatch **out, const void *properties);
cl_int CL_API_CALL clInitLayerWithProperties(cl_uint n_entries, const cl_icd_dispatch *target, cl_uint *n_out,
                                             const cl_icd_dispatch **out, const void *properties) {
    (void)properties;
    return clInitLayer(n_entries, target, n_out, out);
}
cl_int CL_API_CALL clDeinitLayer(void);
cl_int CL_API_CALL clDeinitLayer(void) {
    return CL_SUCCESS;
}
