/* Division on a device that does not round it correctly (-D ROUND_DIVISION=1), against the CPU's, bit for bit: scales
 * of activations and the codes that lie nearest to the middle between two, and silu for divisors of all sizes. The
 * devices at hand round all the same, so their quotients are made worse, by up to two units. */
#include "cl/program.h"
#include "cpu/float.h"
#include "cpu/trial.h"
#include "tests/xe/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { GROUP = 32, GROUPS = 200, K = GROUP * GROUPS, N = CRUMB_XE_ROWS * K };

/* Of any size from 1e-30 to 1e30, many of them with fractions of few or nearly all ones. */
static float awkward(void) {
    static const uint32_t fractions[] = {0, 1, 2, 0x7fffff, 0x7ffffe, 0x400000, 0x3fffff, 0x2aaaaa, 0x555555};
    const uint32_t kind = crumb_xe_below(12), exponent = 127 - 99 + crumb_xe_below(199);
    const uint32_t fraction = kind < 9 ? fractions[kind] : crumb_xe_below(1u << 23), bits = exponent << 23 | fraction;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A group's largest value, and others whose codes another last bit of 127 / largest would change. */
static void fill_group(float *x) {
    const float largest = awkward(), to_code = 127 / largest;
    x[0] = largest;
    for (int i = 1; i < GROUP; i++) {
        const float middle = ((float)crumb_xe_below(126) + 0.5f) / to_code;
        x[i] = i % 3 == 0 ? middle : nextafterf(middle, i % 3 == 1 ? 0 : INFINITY);
        if (i % 2) x[i] = -x[i];
    }
}

static const char rough[] = "static float rough(float x) {\n"
                            "    return as_float(as_uint(x) + as_uint(x) % 5 - 2);\n"
                            "}\n";

/* A text with `from` replaced, which it has once. */
static char *replaced(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    char *out = calloc(1, strlen(text) + strlen(to) + 1);
    assert_non_null(out);
    if (!at || strstr(at + 1, from)) fail_msg("common.cl has not '%s', or more than once", from);
    memcpy(out, text, (size_t)(at - text));
    strcat(out, to);
    strcat(out, at + strlen(from));
    return out;
}

/* The op's kernel, with worse division where common.cl corrects it. */
static cl_kernel rough_kernel(crumb_cl_op op, const char *options) {
    const crumb_cl_kernel *row = crumb_cl_kernel_of(op, false);
    char path[] = "/tmp/crumb-xe-XXXXXX", *worse = replaced(crumb_cl_text("common.cl"), "x / y", "rough(x / y)"),
         *worst = replaced(worse, "1 / y", "rough(1 / y)");
    const int file = mkstemp(path);
    FILE *f = file >= 0 ? fdopen(file, "w") : NULL;
    assert_non_null(f);
    fprintf(f, "%s%s\n%s", rough, worst, crumb_cl_text(row->file));
    assert_int_equal(fclose(f), 0);
    cl_kernel kernel = crumb_xe_kernel(&crumb_xe_tested, path, options, false, row->entry);
    assert_int_equal(unlink(path), 0);
    free(worse), free(worst);
    return kernel;
}

static void compare_codes(cl_kernel kernel, cl_mem batch) {
    static float x[N], scales[CRUMB_XE_ROWS * GROUPS];
    static int8_t want[N], got[N];
    static int32_t sums[CRUMB_XE_ROWS * GROUPS];
    for (int i = 0; i < N; i += GROUP) fill_group(x + i);
    crumb_q8 out = {.q = want, .sx = scales, .qsum = sums, .k_padded = K, .group = GROUP};
    crumb_quantize__ref(x, K, K, 8, 0, CRUMB_XE_ROWS, &out);
    cl_mem all[] = {crumb_xe_upload(x, sizeof x), crumb_xe_upload(NULL, N), crumb_xe_upload(NULL, sizeof sums)};
    cl_mem sx = crumb_xe_upload(NULL, sizeof scales);
    crumb_xe_args(kernel, 0, "buubbbfbbbl", batch, 0u, (uint32_t)K, all[0], NULL, NULL, 0.0, all[1], sx, all[2],
                  (size_t)(8 * GROUPS));
    crumb_xe_run(&crumb_xe_tested, kernel, 128, CRUMB_XE_ROWS, 1, 1);
    crumb_xe_read(&crumb_xe_tested, all[1], got, N);
    crumb_xe_check_buffer(sx, scales, sizeof scales / sizeof *scales, "scale of activations");
    for (int i = 0; i < N; i++)
        if (got[i] != want[i])
            fail_msg("value %a of %a: code %d, not %d", (double)x[i], (double)x[i / 32 * 32], got[i], want[i]);
    crumb_xe_release(3, all);
}

static void compare_silu(cl_kernel kernel, cl_mem batch) {
    static float gate[N], up[N], want[N];
    for (int i = 0; i < N; i++) {
        gate[i] = i % 2 ? awkward() : crumb_random_f32(&crumb_xe_seed) * 90;
        if (i % 4 == 1) gate[i] = -gate[i];
        up[i] = 1;
    }
    gate[0] = 0, gate[1] = -0.0f, gate[2] = INFINITY, gate[3] = 3e38f;
    crumb_float_ops__ref.gated(gate, up, N, CRUMB_ACT_FN_SILU, want);
    cl_mem gates = crumb_xe_upload(gate, sizeof gate), ups = crumb_xe_upload(up, sizeof up);
    crumb_xe_args(kernel, 0, "buubbb", batch, 0u, (uint32_t)K, gates, ups, gates);
    crumb_xe_run(&crumb_xe_tested, kernel, 128, K / 128, CRUMB_XE_ROWS, 1);
    crumb_xe_check_buffer(gates, want, N, "silu");
    clReleaseMemObject(ups);
}

void crumb_xe_rough_division_is_rounded(void **state) {
    (void)state;
    const int rounds = getenv("CRUMB_XE_SMALL") ? 1 : 10; /* 10000 scales, 320000 quotients */
    cl_mem batch = crumb_xe_batch_of(NULL, NULL, 0);
    cl_kernel quantize =
        rough_kernel(CRUMB_CL_QUANTIZE, CRUMB_CL_ROUND_DIVISION " -D BITS=8 -D X_GROUP=32 -D ROW_SCALE=0 -D INPUT=0");
    cl_kernel gated = rough_kernel(CRUMB_CL_GATED, CRUMB_CL_ROUND_DIVISION " -D FN=1");
    for (int round = 0; round < rounds; round++) {
        compare_codes(quantize, batch);
        compare_silu(gated, batch);
    }
    clReleaseKernel(quantize);
    clReleaseKernel(gated);
    clReleaseMemObject(batch);
}
