/* CLBlast's Sgemm for dense f32 weights through the OpenCL backend (cl/blas.h), on a device without unified shared
 * memory: near the CPU, taken from 32 rows on, its parameters overridden. Exits with 77 where there is no
 * libclblast1. */
#include "host/base/module.h"
#include "host/engine/modules.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 70, K = 96, M = 77, N = 40 };

static const crumb_backend *cl;
static crumb_error err;
static float table[VOCAB * K], weights[M * K];

static void fill(float *x, size_t n, uint32_t state) {
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1;
    }
}

/* y = 0.75 * W x (+ y), x being rows of the table; y [N][M]. */
static crumb_status multiply(const crumb_backend *backend, const char *target, bool add, uint32_t max_rows, float *y) {
    const crumb_matrix embedding = {.type = CRUMB_TYPE_F32, .m = VOCAB, .k = K, .codes = table};
    const crumb_matrix first = {.type = CRUMB_TYPE_F32, .m = M, .k = K, .codes = weights};
    crumb_op ops[3] = {{.kind = CRUMB_OP_EMBED}, {.kind = CRUMB_OP_LINEAR}, {.kind = CRUMB_OP_LINEAR}};
    const crumb_value_info values[] = {{.width = K, .slot = 0}, {.width = M, .slot = 1}};
    ops[0].embed.table = &embedding;
    ops[0].embed.scale = 1;
    for (int i = 1; i < 3; i++) {
        ops[i].linear.x = 0;
        ops[i].linear.add = i == 1 ? CRUMB_NO_VALUE : 1;
        ops[i].linear.n_parts = 1;
        ops[i].linear.part[0] =
            (crumb_linear_part){.w = &first, .m0 = i == 1 ? 0 : 16, .m1 = M, .out = 1, .out_scale = 0.75f};
    }
    crumb_device *d;
    crumb_plan *plan;
    crumb_row rows[N];
    const float *out;
    uint32_t n_out;
    CRUMB_TRY(backend->device.open(&(crumb_device_params){.target = target, .n_threads = 1}, &d, &err));
    const crumb_plan_desc desc = {
        .ops = ops, .n_ops = add ? 3 : 2, .values = values, .n_values = 2, .max_rows = max_rows};
    crumb_status status = backend->plan.record(d, &desc, &plan, &err);
    for (uint32_t t = 0, n; t < N && status == CRUMB_OK; t += n) {
        n = N - t < max_rows ? N - t : max_rows;
        for (uint32_t i = 0; i < n; i++) rows[i] = (crumb_row){.token = (int32_t)((t + i) * 7 % VOCAB), .position = i};
        status = backend->plan.replay(plan, rows, n, &err);
        if (status == CRUMB_OK) status = backend->plan.read(plan, 1, &out, &n_out, &err);
        if (status == CRUMB_OK) memcpy(y + (size_t)t * M, out, (size_t)n * M * sizeof *y);
    }
    backend->plan.destroy(plan);
    backend->device.close(d);
    return status;
}

static size_t count_equal(const float *a, const float *b) {
    size_t equal = 0;
    for (size_t i = 0; i < N * M; i++) equal += memcmp(&a[i], &b[i], sizeof *a) == 0;
    return equal;
}

static void compare_with_cpu(bool add, float *got) {
    static float want[N * M];
    if (multiply(&crumb_backend_cpu, NULL, add, N, want) != CRUMB_OK ||
        multiply(cl, "cl:portable+clblast", add, N, got) != CRUMB_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < N * M; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-5f * K))
            fail_msg("y[%zu][%zu] is %g, not %g", i / M, i % M, (double)got[i], (double)want[i]);
    print_message("%zu of %d values bit-equal\n", count_equal(got, want), N * M);
    assert_true(count_equal(got, want) < N * M); /* its sums have another order: it was CLBlast */
}

static void sgemm_is_near_the_cpu(void **state) {
    (void)state;
    static float got[N * M];
    for (int add = 0; add < 2; add++) compare_with_cpu(add, got);
}

/* Large products are CLBlast's other kernel's, for which it copies and pads matrices in launches of its own; here ours
 * are, by its own parameter for that. That it is this kernel shows where its work-groups are larger than any device
 * takes: 128 x 128 items. */
static void so_is_the_kernel_for_large_products(void **state) {
    (void)state;
    static float y[N * M];
    static const char all[] = "GemmRoutine XGEMM_MIN_INDIRECT_SIZE=1",
                      too_large[] =
                          "; Xgemm GEMMK=0 KREG=1 KWG=16 KWI=2 MDIMA=128 MDIMC=128 MWG=128 NDIMB=128 NDIMC=128 "
                          "NWG=128 SA=0 SB=0 STRM=0 STRN=0 VWM=1 VWN=1";
    char both[sizeof all + sizeof too_large];
    snprintf(both, sizeof both, "%s%s", all, too_large);
    setenv("CRUMB_CLBLAST_PARAMETERS", all, 1);
    for (int add = 0; add < 2; add++) compare_with_cpu(add, y);
    setenv("CRUMB_CLBLAST_PARAMETERS", both, 1);
    assert_int_equal(multiply(cl, "cl:portable+clblast", false, N, y), CRUMB_ERR_DEVICE);
    setenv("CRUMB_CLBLAST_PARAMETERS", "GemmRoutine XGEMM_MIN_INDIRECT_SIZE=100000", 1);
    compare_with_cpu(false, y);
    unsetenv("CRUMB_CLBLAST_PARAMETERS");
}

/* Below the rule's number of rows, and when it is not asked for, results are the CPU's bit for bit. */
static void few_rows_do_without(void **state) {
    (void)state;
    static float want[N * M], got[N * M];
    if (multiply(&crumb_backend_cpu, NULL, true, N, want) != CRUMB_OK ||
        multiply(cl, "cl:portable+clblast", true, 31, got) != CRUMB_OK)
        fail_msg("%s", err.message);
    assert_int_equal(count_equal(got, want), N * M);
    if (multiply(cl, "cl:portable", true, N, got) != CRUMB_OK) fail_msg("%s", err.message);
    assert_int_equal(count_equal(got, want), N * M);
}

static const char direct[] = "XgemmDirect KWID=2 MDIMAD=8 MDIMCD=8 NDIMBD=8 NDIMCD=8 PADA=1 PADB=1 VWMD=1 VWND=1 WGD=8";

static void parameters_can_be_overridden(void **state) {
    (void)state;
    static float y[N * M];
    const char *const refused[] = {"XgemmDirect WGD=8", "XgemmDirect WGD=eight", "Xgemm WGD", "Nothing A=1"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        setenv("CRUMB_CLBLAST_PARAMETERS", refused[i], 1);
        assert_int_equal(multiply(cl, "cl:portable+clblast", false, N, y), CRUMB_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "CRUMB_CLBLAST_PARAMETERS"));
    }
    setenv("CRUMB_CLBLAST_PARAMETERS", direct, 1);
    if (multiply(cl, "cl:portable+clblast", false, N, y) != CRUMB_OK) fail_msg("%s", err.message);
    unsetenv("CRUMB_CLBLAST_PARAMETERS");
}

static crumb_status find_device(void) {
    crumb_device *d;
    const crumb_module *module;
    CRUMB_TRY(crumb_engine_module_load("cl", &module, &err));
    cl = module->backend;
    CRUMB_TRY(cl->device.open(&(crumb_device_params){.target = "cl:portable+clblast"}, &d, &err));
    cl->device.close(d);
    return CRUMB_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgemm_is_near_the_cpu),
        cmocka_unit_test(so_is_the_kernel_for_large_products),
        cmocka_unit_test(few_rows_do_without),
        cmocka_unit_test(parameters_can_be_overridden),
    };
    fill(table, VOCAB * K, 1);
    fill(weights, M * K, 2);
    const void *address;
    if (crumb_module_open("libclblast.so.1", "CLBlastSgemm", &address, NULL) != CRUMB_OK) {
        fprintf(stderr, "skipped: no libclblast.so.1 (package libclblast1)\n");
        return 77;
    }
    if (find_device() != CRUMB_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
