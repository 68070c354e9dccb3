/* The software matrix instructions of xe_builtins.cl against DPAS as Intel's vISA documentation (DPAS.md of the
 * graphics compiler) describes it: registers are a linear memory of dwords, and a systolic depth takes four elements of
 * a dword of src1 and the next four of src2. And what its block loads ask of a surface. */
#include "cpu/trial.h"
#include "host/base/half.h"
#include "tests/xe/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_xe_device device;
static uint64_t seed = 20261124;
static size_t n_checked;

enum { MAX_DWORDS = 8 * 16 }; /* of an operand */

typedef struct precision {
    const char *builtin, *type; /* "u2", "uint" */
    unsigned bits;
    bool is_signed;
    bool unsigned_a; /* the other operand's bytes */
} precision;
static const precision precisions[] = {{"u2", "uint", 2, false, false}, {"i2", "int", 2, true, false},
                                       {"u4", "uint", 4, false, false}, {"u8", "uint", 8, false, false},
                                       {"i8", "int", 8, true, false},   {"i8", "int", 8, true, true}};

static int element(const uint32_t *dword, unsigned index, const precision *p) {
    unsigned value = *dword >> (index * p->bits) & ((1u << p->bits) - 1);
    bool negative = p->is_signed && value >> (p->bits - 1);
    return negative ? (int)value - (1 << p->bits) : (int)value;
}

/* n: execution size; rows: repeat count; src2 of bytes, four operations per channel, systolic depth 8. */
static void dpas(const int32_t *src0, const uint32_t *src1, const uint8_t *src2, unsigned n, unsigned rows,
                 const precision *p, int32_t *dst) {
    unsigned operands_per_dword = 32 / (4 * p->bits), k = 0;
    for (unsigned r = 0; r < rows; r++) {
        for (unsigned i = 0; i < n; i++) dst[r * n + i] = src0[r * n + i];
        for (unsigned depth = 0; depth < 8; depth++, k += 4)
            for (unsigned i = 0; i < n; i++) {
                const uint32_t *dword = &src1[depth / operands_per_dword * n + i];
                unsigned from = depth % operands_per_dword * 4;
                for (unsigned j = 0; j < 4; j++)
                    dst[r * n + i] +=
                        element(dword, from + j, p) * (p->unsigned_a ? (int)src2[k + j] : (int)(int8_t)src2[k + j]);
            }
    }
}

/* d = builtin(a, b, c) by one sub-group, whose first n_out dwords are compared with want. */
static void check(const char *options, unsigned n, const void *src2, const uint32_t *src1, const void *src0,
                  const void *want, size_t n_out) {
    uint32_t got[MAX_DWORDS];
    cl_kernel kernel = crumb_xe_kernel(&device, "tests/xe/builtin_calls.cl", options, true, "call");
    cl_mem a = crumb_xe_buffer(&device, src2, 8 * 32), b = crumb_xe_buffer(&device, src1, sizeof got);
    cl_mem c = crumb_xe_buffer(&device, src0, sizeof got), d = crumb_xe_buffer(&device, NULL, sizeof got);
    crumb_xe_args(kernel, 0, "bbbb", a, b, c, d);
    crumb_xe_run(&device, kernel, n, 1, 1, 1);
    crumb_xe_read(&device, d, got, sizeof got);
    if (memcmp(got, want, n_out * sizeof *got) != 0) fail_msg("%s differs from DPAS", options);
    clReleaseMemObject(a), clReleaseMemObject(b), clReleaseMemObject(c), clReleaseMemObject(d);
    clReleaseKernel(kernel);
    n_checked++;
}

static void make_options(char out[300], const char *name, const char *sign, const char *b_type, const char *d_type,
                         unsigned n, unsigned rows) {
    char lane[8];
    snprintf(lane, sizeof lane, "%s%s", sign, n == 16 ? "short" : "int");
    char vector[4] = "";
    if (rows > 1) snprintf(vector, sizeof vector, "%u", rows);
    snprintf(out, 300, "-D NAME=intel_sub_group_%s -D A=%s%s -D A_LANE=%s -D B=%s -D D=%s%s -D SUB_GROUP=%u", name,
             lane, vector, lane, b_type, d_type, vector, n);
}

static void compare(const precision *p, unsigned n, unsigned rows) {
    uint32_t src1[MAX_DWORDS];
    int32_t src0[MAX_DWORDS], want[MAX_DWORDS];
    uint8_t src2[8 * 32];
    char options[300], name[64], b_type[16];
    for (int i = 0; i < MAX_DWORDS; i++) {
        src1[i] = (uint32_t)crumb_random_u64(&seed);
        src0[i] = (int32_t)(crumb_random_u64(&seed) % 100000) - 50000;
    }
    for (size_t i = 0; i < sizeof src2; i++) src2[i] = (uint8_t)crumb_random_u64(&seed);
    dpas(src0, src1, src2, n, rows, p, want);
    snprintf(name, sizeof name, "%s_%s_matrix_mad_k32", p->unsigned_a ? "u8" : "i8", p->builtin);
    snprintf(b_type, sizeof b_type, "%s%u", p->type, p->bits);
    make_options(options, name, p->unsigned_a ? "u" : "", b_type, "int", n, rows);
    check(options, n, src2, src1, src0, want, rows * n);
}

/* The same of floats of 16 bits: two operations per channel. */
static void dpas_float(const float *src0, const uint32_t *src1, const uint16_t *src2, unsigned n, unsigned rows,
                       float (*value)(uint16_t), float *dst) {
    for (unsigned r = 0, k = 0; r < rows; r++) {
        for (unsigned i = 0; i < n; i++) dst[r * n + i] = src0[r * n + i];
        for (unsigned depth = 0; depth < 8; depth++, k += 2)
            for (unsigned i = 0; i < n; i++)
                for (unsigned j = 0; j < 2; j++)
                    dst[r * n + i] += value((uint16_t)(src1[depth * n + i] >> (16 * j))) * value(src2[k + j]);
    }
}

static void compare_float(bool f16, unsigned n, unsigned rows) {
    uint32_t src1[MAX_DWORDS];
    uint16_t src2[8 * 16];
    float src0[MAX_DWORDS], want[MAX_DWORDS];
    char options[300];
    for (int i = 0; i < MAX_DWORDS; i++) {
        float low = crumb_random_f32(&seed), high = crumb_random_f32(&seed);
        src1[i] = f16 ? crumb_f32_to_f16(low) | (uint32_t)crumb_f32_to_f16(high) << 16
                      : crumb_f32_to_bf16(low) | (uint32_t)crumb_f32_to_bf16(high) << 16;
        src0[i] = crumb_random_f32(&seed);
    }
    for (int i = 0; i < 8 * 16; i++) {
        float x = crumb_random_f32(&seed);
        src2[i] = f16 ? crumb_f32_to_f16(x) : crumb_f32_to_bf16(x);
    }
    dpas_float(src0, src1, src2, n, rows, f16 ? crumb_f16_to_f32 : crumb_bf16_to_f32, want);
    make_options(options, f16 ? "f16_f16_matrix_mad_k16" : "bf16_bf16_matrix_mad_k16", "", "int8", "float", n, rows);
    check(options, n, src2, src1, src0, want, rows * n);
}

static void matrix_builtins_are_dpas(void **state) {
    (void)state;
    if (!device.sub_groups) crumb_xe_skip("sub-groups");
    for (unsigned rows = 1; rows <= 8; rows *= 2)
        for (unsigned n = 8; n <= 16; n *= 2) {
            for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) compare(&precisions[i], n, rows);
            compare_float(true, n, rows);
            compare_float(false, n, rows);
        }
    print_message("%zu builtins are DPAS\n", n_checked);
}

/* Surfaces that the hardware takes, and does not: tests of kernels see the difference. */
static void loads_ask_for_sound_surfaces(void **state) {
    static const struct {
        uint32_t skip;
        int width, height, pitch;
        bool sound;
    } surfaces[] = {{0, 64, 8, 64, true},  {64, 128, 3, 192, true}, {0, 100, 8, 112, true}, {32, 64, 8, 64, false},
                    {0, 32, 8, 64, false}, {0, 98, 8, 112, false},  {0, 128, 8, 64, false}, {0, 64, 8, 72, false},
                    {0, 64, 0, 64, false}, {16, 100, 8, 112, false}};
    uint32_t memory[1024], got[8 * 16];
    (void)state;
    if (!device.sub_groups) crumb_xe_skip("sub-groups");
    for (uint32_t i = 0; i < 1024; i++) memory[i] = i;
    cl_kernel kernel = crumb_xe_kernel(&device, "tests/xe/surface_read.cl", "", true, "read");
    cl_mem x = crumb_xe_buffer(&device, memory, sizeof memory), out = crumb_xe_buffer(&device, NULL, sizeof got);
    for (size_t i = 0; i < sizeof surfaces / sizeof *surfaces; i++) {
        const int width = surfaces[i].width, height = surfaces[i].height, pitch = surfaces[i].pitch;
        crumb_xe_args(kernel, 0, "buiiiib", x, surfaces[i].skip, width, height, pitch, 1, out);
        crumb_xe_run(&device, kernel, 16, 1, 1, 1);
        crumb_xe_read(&device, out, got, sizeof got);
        for (int r = 0; r < 8; r++)
            for (int c = 0; c < 16; c++) {
                const bool inside = 4 * c + 4 < width && r < height;
                const uint32_t there = inside ? memory[((int)surfaces[i].skip + r * pitch) / 4 + c + 1] : 0;
                assert_int_equal(got[16 * r + c], surfaces[i].sound ? there : 0x5a5a5a5a);
            }
    }
    clReleaseMemObject(x), clReleaseMemObject(out);
    clReleaseKernel(kernel);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(matrix_builtins_are_dpas),
                                       cmocka_unit_test(loads_ask_for_sound_surfaces)};
    return crumb_xe_run_tests(&device, tests, sizeof tests / sizeof *tests);
}
