/* An OpenCL layer (the loader's OPENCL_LAYERS) that makes every device claim what it is not: a real driver beneath,
 * which computes, and a lie about what it knows. CRUMB_CLAIM=matrix: matrix instructions for sub-groups of 16 and 2D
 * block loads; dpas: the former alone; gpu: to be an integrated GPU; card: one with memory of its own; small: a card
 * with 1 GiB, of which it allocates a quarter at once; dots: that its dot products of bytes are sums of them, which
 * they are not; u5-dots: the same in programs for codes of 5 bits alone; four-dots: in those for up to four rows of
 * activations; last-dots: of the last row of each tile of the last work-group's weights, in launches of one matrix;
 * counts: that its work-groups count together, of which each counts for itself; q8-counts: the same in programs for a
 * cache of bytes alone. */
#include "tests/cl/layer.h"

#include <stdlib.h>

enum { SUB_GROUP_SIZES = 0x4108 }; /* CL_DEVICE_SUB_GROUP_SIZES_INTEL */
static const char claim[] = " cl_intel_subgroup_matrix_multiply_accumulate",
                  blocks[] = " cl_intel_subgroup_2d_block_io";

static const char *claim_of = "matrix";

static cl_int give(const void *value, size_t n, size_t size, void *out, size_t *n_out) {
    if (n_out) *n_out = n;
    if (!out) return CL_SUCCESS;
    if (size < n) return CL_INVALID_VALUE;
    memcpy(out, value, n);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL gpu_info(cl_device_id id, cl_device_info name, size_t size, void *out, size_t *n_out) {
    const cl_device_type type = CL_DEVICE_TYPE_GPU;
    const cl_bool unified = strcmp(getenv("CRUMB_CLAIM"), "card") != 0;
    if (name == CL_DEVICE_TYPE) return give(&type, sizeof type, size, out, n_out);
    if (name == CL_DEVICE_HOST_UNIFIED_MEMORY) return give(&unified, sizeof unified, size, out, n_out);
    return below->clGetDeviceInfo(id, name, size, out, n_out);
}

static cl_int CL_API_CALL small_info(cl_device_id id, cl_device_info name, size_t size, void *out, size_t *n_out) {
    const cl_device_type type = CL_DEVICE_TYPE_GPU;
    const cl_bool unified = CL_FALSE;
    const cl_ulong memory = 1ull << 30, at_once = memory / 4;
    if (name == CL_DEVICE_TYPE) return give(&type, sizeof type, size, out, n_out);
    if (name == CL_DEVICE_HOST_UNIFIED_MEMORY) return give(&unified, sizeof unified, size, out, n_out);
    if (name == CL_DEVICE_GLOBAL_MEM_SIZE) return give(&memory, sizeof memory, size, out, n_out);
    if (name == CL_DEVICE_MAX_MEM_ALLOC_SIZE) return give(&at_once, sizeof at_once, size, out, n_out);
    return below->clGetDeviceInfo(id, name, size, out, n_out);
}

static cl_int CL_API_CALL matrix_info(cl_device_id id, cl_device_info name, size_t size, void *out, size_t *n_out) {
    const size_t sizes[] = {16, 32};
    size_t n = 0;
    if (name == SUB_GROUP_SIZES) return give(sizes, sizeof sizes, size, out, n_out);
    if (name != CL_DEVICE_EXTENSIONS) return below->clGetDeviceInfo(id, name, size, out, n_out);
    cl_int code = below->clGetDeviceInfo(id, name, 0, NULL, &n);
    char *list = code == CL_SUCCESS ? calloc(1, n + sizeof claim + sizeof blocks) : NULL;
    if (!list) return code == CL_SUCCESS ? CL_OUT_OF_HOST_MEMORY : code;
    code = below->clGetDeviceInfo(id, name, n, list, NULL);
    strcat(list, claim);
    if (strcmp(claim_of, "dpas") != 0) strcat(list, blocks);
    if (code == CL_SUCCESS) code = give(list, strlen(list) + 1, size, out, n_out);
    free(list);
    return code;
}

static const char no_dots[] = "#define dot_acc_sat_4x8packed_us_int(u, q, acc) (acc)\n"
                              "#define dot_acc_sat_4x8packed_ss_int(u, q, acc) (acc)\n",
                  no_u5_dots[] = "#if defined(BITS) && BITS == 5\n"
                                 "#define dot_acc_sat_4x8packed_us_int(u, q, acc) (acc)\n"
                                 "#endif\n",
                  no_four_dots[] = "#if defined(TOKENS) && TOKENS == 4\n"
                                   "#define dot_acc_sat_4x8packed_us_int(u, q, acc) (acc)\n"
                                   "#endif\n",
                  no_last_dots[] =
                      "#if defined(PARTS) && PARTS == 1\n"
                      "#define IS_LAST (get_group_id(1) + 1 == get_num_groups(1) && get_local_id(0) % 16 == 15)\n"
                      "#define dot_acc_sat_4x8packed_us_int(u, q, acc) \\\n"
                      "    (IS_LAST ? (acc) : dot_acc_sat_4x8packed_us_int(u, q, acc))\n"
                      "#endif\n",
                  no_counts[] = "#define atomic_fetch_add_explicit(count, n, order, scope) 0\n",
                  no_q8_counts[] = "#if defined(KV) && KV == 8\n"
                                   "#define atomic_fetch_add_explicit(count, n, order, scope) 0\n"
                                   "#endif\n";

/* What stands before programs: dot products of bytes, or counting, where they use them, give 0. NULL: nothing. */
static const char *change_of(void) {
    if (strcmp(claim_of, "dots") == 0) return no_dots;
    if (strcmp(claim_of, "u5-dots") == 0) return no_u5_dots;
    if (strcmp(claim_of, "four-dots") == 0) return no_four_dots;
    if (strcmp(claim_of, "last-dots") == 0) return no_last_dots;
    if (strcmp(claim_of, "counts") == 0) return no_counts;
    return strcmp(claim_of, "q8-counts") == 0 ? no_q8_counts : NULL;
}

static cl_program CL_API_CALL change_program(cl_context c, cl_uint n, const char **texts, const size_t *sizes,
                                             cl_int *code) {
    enum { MOST = 8 };
    const char *all[MOST] = {change_of()};
    if (n >= MOST || sizes) abort(); /* crumb's are a few strings that end with NUL */
    memcpy((void *)(all + 1), (const void *)texts, n * sizeof *texts);
    return below->clCreateProgramWithSource(c, n + 1, all, NULL, code);
}

static void layer_take(void) {
    const char *set = getenv("CRUMB_CLAIM");
    if (set) claim_of = set;
    if (change_of())
        layer_own.clCreateProgramWithSource = change_program;
    else
        layer_own.clGetDeviceInfo = strcmp(claim_of, "small") == 0                                     ? small_info
                                    : strcmp(claim_of, "matrix") == 0 || strcmp(claim_of, "dpas") == 0 ? matrix_info
                                                                                                       : gpu_info;
}
