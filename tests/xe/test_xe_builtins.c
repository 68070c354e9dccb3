/* The software matrix instructions of xe_builtins.cl against DPAS as Intel's vISA documentation (DPAS.md of the
 * graphics compiler) describes it: registers are a linear memory of dwords, and a systolic depth takes four elements of
 * a dword of src1 and the next four of src2. */
#include "cpu/trial.h"
#include "tests/xe/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_xe_device device;
static uint64_t seed = 20261124;

typedef struct precision {
    const char *builtin, *type; /* "u2", "uint" */
    unsigned bits;
    bool is_signed;
} precision;
static const precision precisions[] = {
    {"u2", "uint", 2, false}, {"u4", "uint", 4, false}, {"u8", "uint", 8, false}, {"i8", "int", 8, true}};

static int element(const uint32_t *dword, unsigned index, const precision *p) {
    unsigned value = *dword >> (index * p->bits) & ((1u << p->bits) - 1);
    return p->is_signed ? (int8_t)value : (int)value;
}

/* n: execution size; rows: repeat count; src2 of int8, four operations per channel, systolic depth 8. */
static void dpas(const int32_t *src0, const uint32_t *src1, const int8_t *src2, unsigned n, unsigned rows,
                 const precision *p, int32_t *dst) {
    unsigned operands_per_dword = 32 / (4 * p->bits), k = 0;
    for (unsigned r = 0; r < rows; r++) {
        for (unsigned i = 0; i < n; i++) dst[r * n + i] = src0[r * n + i];
        for (unsigned depth = 0; depth < 8; depth++, k += 4)
            for (unsigned i = 0; i < n; i++) {
                const uint32_t *dword = &src1[depth / operands_per_dword * n + i];
                unsigned from = depth % operands_per_dword * 4;
                for (unsigned j = 0; j < 4; j++) dst[r * n + i] += element(dword, from + j, p) * src2[k + j];
            }
    }
}

static void compare(const precision *p, unsigned n, unsigned rows) {
    enum { MAX_DWORDS = 8 * 16 };
    uint32_t src1[MAX_DWORDS];
    int32_t src0[MAX_DWORDS], want[MAX_DWORDS], got[MAX_DWORDS];
    int8_t src2[8 * 32];
    char options[300], vector[4] = "";
    if (rows > 1) snprintf(vector, sizeof vector, "%u", rows);
    for (int i = 0; i < MAX_DWORDS; i++) {
        src1[i] = (uint32_t)crumb_random_u64(&seed);
        src0[i] = (int32_t)(crumb_random_u64(&seed) % 100000) - 50000;
    }
    for (size_t i = 0; i < sizeof src2; i++) src2[i] = (int8_t)crumb_random_u64(&seed);
    dpas(src0, src1, src2, n, rows, p, want);
    const char *lane = n == 16 ? "short" : "int";
    snprintf(options, sizeof options,
             "-D NAME=intel_sub_group_i8_%s_matrix_mad_k32 -D A=%s%s -D A_LANE=%s -D B=%s%u -D D=int%s -D SUB_GROUP=%u",
             p->builtin, lane, vector, lane, p->type, p->bits, vector, n);
    cl_kernel kernel = crumb_xe_kernel(&device, "tests/xe/builtin_calls.cl", options, true, "call");
    cl_mem a = crumb_xe_buffer(&device, src2, sizeof src2), b = crumb_xe_buffer(&device, src1, sizeof src1);
    cl_mem c = crumb_xe_buffer(&device, src0, sizeof src0), d = crumb_xe_buffer(&device, NULL, sizeof got);
    crumb_xe_args(kernel, 0, "bbbb", a, b, c, d);
    crumb_xe_run(&device, kernel, n, 1, 1, 1);
    crumb_xe_read(&device, d, got, sizeof got);
    if (memcmp(got, want, rows * n * sizeof *got) != 0) fail_msg("%s differs from DPAS", options);
    clReleaseMemObject(a), clReleaseMemObject(b), clReleaseMemObject(c), clReleaseMemObject(d);
    clReleaseKernel(kernel);
}

static void matrix_builtins_are_dpas(void **state) {
    (void)state;
    if (!device.sub_groups) skip();
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++)
        for (unsigned rows = 1; rows <= 8; rows *= 2) {
            compare(&precisions[i], 16, rows);
            compare(&precisions[i], 8, rows);
        }
}

int main(void) {
    if (!crumb_xe_open(&device)) {
        fprintf(stderr, "skipped: no OpenCL device\n");
        return 77;
    }
    printf("on %s\n", device.name);
    const struct CMUnitTest tests[] = {cmocka_unit_test(matrix_builtins_are_dpas)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    crumb_xe_close(&device);
    return failed;
}
