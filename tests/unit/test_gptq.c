/* host/gptq: the linear algebra by what defines it, at sizes that are no whole blocks; codes against numpy's
 * (tests/oracle/make_gptq.py). */
#include "host/container/safetensors.h"
#include "host/gptq/product.h"
#include "host/gptq/solve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_safetensors *files;

static int open_files(void **state) {
    (void)state;
    return crumb_safetensors_open("tests/oracle/gptq.safetensors", &files, NULL) == CRUMB_OK ? 0 : -1;
}

static int close_files(void **state) {
    (void)state;
    crumb_safetensors_close(files);
    return 0;
}

static void *room(uint64_t n, uint64_t size) {
    void *p = calloc(n ? n : 1, size);
    assert_non_null(p);
    return p;
}

/* Numbers from -1 to 1, the same in every run. */
static double next_number(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (1 << 23) - 1;
}

static void fill(double *x, uint64_t n, uint32_t seed) {
    for (uint64_t i = 0; i < n; i++) x[i] = next_number(&seed);
}

/* ---- products ------------------------------------------------------------------------------------------------ */

static void check_product(uint64_t m, uint64_t n, uint64_t k, bool turned) {
    const uint64_t a_row = turned ? 1 : k + 1, a_column = turned ? m + 2 : 1, c_row = n + 3;
    double *a = room((m + 2) * (k + 2), 8), *b = room(k * (n + 1), 8), *c = room(m * c_row, 8);
    fill(a, (m + 2) * (k + 2), 1);
    fill(b, k * (n + 1), 2);
    fill(c, m * c_row, 3);
    double *expected = room(m * c_row, 8);
    memcpy(expected, c, m * c_row * 8);
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j++)
            for (uint64_t p = 0; p < k; p++)
                expected[i * c_row + j] -= a[i * a_row + p * a_column] * b[p * (n + 1) + j];
    crumb_product_subtract(m, n, k, (crumb_doubles){a, a_row, a_column}, b, n + 1, c, c_row);
    for (uint64_t i = 0; i < m * c_row; i++)
        if (!(fabs(c[i] - expected[i]) < 1e-12 * (double)(k + 1))) /* also what lies between rows of C */
            fail_msg("%d x %d x %d: element %d is %g, not %g", (int)m, (int)n, (int)k, (int)i, c[i], expected[i]);
    free(a), free(b), free(c), free(expected);
}

static void products_are_right_at_every_size(void **state) {
    (void)state;
    static const uint64_t sizes[] = {0, 1, 3, 4, 8, 11, 33, 68, 257};
    enum { N = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < N * N * N; i++)
        for (int turned = 0; turned < 2; turned++)
            check_product(sizes[i % N], sizes[i / N % N], sizes[i / N / N], turned);
}

/* ---- second derivatives -------------------------------------------------------------------------------------- */

static float *make_inputs(uint64_t n, uint64_t k, uint32_t seed) {
    float *x = room(n * k, sizeof *x);
    for (uint64_t i = 0; i < n * k; i++) x[i] = (float)(next_number(&seed) * (1 + (double)(i % k) / 8));
    return x;
}

/* inverse(H) = U^T U, with H's rows and columns in the order of U: (U H)^T's product with U^T is 1. */
static void check_factor(const crumb_hessian *h, const float *x, uint64_t n, double damping) {
    const uint64_t k = h->k;
    double *full = room(k * k, 8), *left = room(k * k, 8), mean = 0;
    for (uint64_t i = 0; i < k; i++)
        for (uint64_t j = 0; j < k; j++)
            for (uint64_t s = 0; s < n; s++)
                full[i * k + j] += (double)x[s * k + h->order[i]] * (double)x[s * k + h->order[j]];
    for (uint64_t i = 0; i < k; i++) full[i * k + i] = h->dead[h->order[i]] ? 1 : full[i * k + i];
    for (uint64_t i = 0; i < k; i++) mean += full[i * k + i] / (double)k;
    for (uint64_t i = 0; i < k; i++) full[i * k + i] += damping * mean;
    for (uint64_t i = 0; i < k; i++)
        for (uint64_t j = 0; j < k; j++)
            for (uint64_t p = i; p < k; p++) left[i * k + j] += h->h[i * k + p] * full[p * k + j];
    for (uint64_t i = 0; i < k; i++)
        for (uint64_t j = 0; j < k; j++) {
            double sum = 0;
            for (uint64_t p = j; p < k; p++) sum += left[i * k + p] * h->h[j * k + p];
            if (!(fabs(sum - (i == j)) < 1e-8)) fail_msg("k = %d: (%d, %d) is %g", (int)k, (int)i, (int)j, sum);
        }
    free(full), free(left);
}

static void factor_inputs(const float *x, uint64_t n, uint64_t k, double damping, bool act_order, int n_threads,
                          crumb_hessian *h) {
    crumb_error err = {0};
    assert_int_equal(crumb_hessian_alloc(k, h, &err), CRUMB_OK);
    assert_int_equal(crumb_hessian_add(h, x, n / 2, n_threads, &err), CRUMB_OK); /* in two parts */
    assert_int_equal(crumb_hessian_add(h, x + n / 2 * k, n - n / 2, n_threads, &err), CRUMB_OK);
    if (crumb_hessian_factor(h, damping, act_order, n_threads, &err) != CRUMB_OK) fail_msg("%s", err.message);
}

static void factors_are_those_of_the_inverse(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 2, 7, 63, 64, 65, 129};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int act_order = 0; act_order < 2; act_order++) {
            const uint64_t k = sizes[i], n = 3 * k;
            float *x = make_inputs(n, k, 5);
            crumb_hessian h, again;
            factor_inputs(x, n, k, 0.01, act_order, 1, &h);
            check_factor(&h, x, n, 0.01);
            for (uint64_t c = 1; c < k && !act_order; c++) assert_int_equal(h.order[c], c);
            factor_inputs(x, n, k, 0.01, act_order, 3, &again);
            assert_memory_equal(h.h, again.h, k * k * sizeof *h.h); /* however many threads there are */
            crumb_hessian_free(&h);
            crumb_hessian_free(&again);
            free(x);
        }
}

static void singular_inputs_are_damped_or_refused(void **state) {
    (void)state;
    enum { K = 70 };
    float *x = make_inputs(1, K, 9);
    crumb_error err = {0};
    crumb_hessian h;
    x[0] = x[69] = 0; /* dead columns */
    factor_inputs(x, 1, K, 0.01, true, 1, &h);
    check_factor(&h, x, 1, 0.01);
    assert_true(h.dead[0] && h.dead[69] && !h.dead[1]);
    crumb_hessian_free(&h);
    assert_int_equal(crumb_hessian_alloc(K, &h, &err), CRUMB_OK);
    assert_int_equal(crumb_hessian_add(&h, x, 1, 1, &err), CRUMB_OK);
    assert_int_equal(crumb_hessian_factor(&h, 0, false, 1, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "more damping"));
    crumb_hessian_free(&h);
    memset(x, 0, K * sizeof *x); /* all dead: nothing to make up for */
    factor_inputs(x, 1, K, 0, false, 1, &h);
    for (int i = 0; i < K * K; i++) assert_true(h.h[i] == (i % (K + 1) == 0));
    crumb_hessian_free(&h);
    x[3] = NAN;
    assert_int_equal(crumb_hessian_alloc(K, &h, &err), CRUMB_OK);
    assert_int_equal(crumb_hessian_add(&h, x, 1, 1, &err), CRUMB_OK);
    assert_int_equal(crumb_hessian_factor(&h, 0.01, false, 1, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "not finite"));
    crumb_hessian_free(&h);
    free(x);
}

/* ---- codes --------------------------------------------------------------------------------------------------- */

/* A copy of a tensor, freed by the caller. */
static void *load(const char *name, const char *part, uint64_t dims[2]) {
    char whole[96];
    snprintf(whole, sizeof whole, "%s.%s", name, part);
    const crumb_safetensor *t = crumb_safetensors_find(files, whole);
    if (!t) {
        fail_msg("%s is not in the file", whole);
        return NULL; /* which clang-tidy does not know */
    }
    if (dims) memcpy(dims, t->dims, 2 * sizeof *dims);
    return memcpy(room(t->n_bytes, 1), crumb_safetensors_data(files, t), t->n_bytes);
}

static void compare(const char *name, const crumb_coded *got) {
    uint8_t *codes = load(name, "codes", NULL), *zeros = load(name, "zeros", NULL);
    float *scales = load(name, "scales", NULL);
    uint32_t *group_of = load(name, "group_of", NULL);
    for (uint64_t i = 0; i < got->m * got->n_groups; i++)
        if (got->grids[i].scale != scales[i] || got->grids[i].zero != zeros[i])
            fail_msg("%s: grid %d is %g, %d and not %g, %d", name, (int)i, (double)got->grids[i].scale,
                     got->grids[i].zero, (double)scales[i], zeros[i]);
    for (uint64_t i = 0; i < got->m * got->k; i++)
        if (got->codes[i] != codes[i])
            fail_msg("%s: code (%d, %d) is %d, not %d", name, (int)(i / got->k), (int)(i % got->k), got->codes[i],
                     codes[i]);
    assert_memory_equal(got->group_of, group_of, got->k * sizeof *group_of);
    free(codes), free(zeros), free(scales), free(group_of);
}

/* What rounding a layer loses: the squared difference of its outputs. */
static double loss(const float *w, const float *x, uint64_t n, const crumb_coded *codes) {
    double all = 0;
    float *row = room(codes->k, sizeof *row);
    for (uint64_t m = 0; m < codes->m; m++) {
        crumb_coded_row(codes, m, row);
        for (uint64_t s = 0; s < n; s++) {
            double sum = 0;
            for (uint64_t i = 0; i < codes->k; i++)
                sum += ((double)row[i] - (double)w[m * codes->k + i]) * (double)x[s * codes->k + i];
            all += sum * sum;
        }
    }
    free(row);
    return all;
}

static void check_nearest_loses_more(const char *name, const float *w, const float *x, uint64_t n,
                                     const crumb_coded *codes) {
    crumb_coded nearest;
    double *numbers = room(codes->k, sizeof *numbers);
    assert_int_equal(crumb_coded_alloc(codes->m, codes->k, codes->group, codes->bits, &nearest, NULL), CRUMB_OK);
    for (uint64_t m = 0; m < codes->m; m++) crumb_coded_round_row(&nearest, m, w + m * codes->k, numbers);
    const double ours = loss(w, x, n, codes), theirs = loss(w, x, n, &nearest);
    if (!(ours < theirs)) fail_msg("%s: loses %g, to the nearest code %g", name, ours, theirs);
    crumb_coded_free(&nearest);
    free(numbers);
}

static void check_case(const char *name) {
    char layer[32], order[16];
    unsigned bits, group;
    uint64_t dims[2] = {0}, x_dims[2] = {0};
    crumb_hessian h;
    crumb_coded codes;
    assert_int_equal(sscanf(name, "%31[a-z].%u.%u.%15[a-z]", layer, &bits, &group, order), 4);
    float *w = load(layer, "w", dims), *x = load(layer, "x", x_dims);
    const crumb_gptq_order kind = strcmp(order, "plain") == 0    ? CRUMB_GPTQ_ORDER_PLAIN
                                  : strcmp(order, "static") == 0 ? CRUMB_GPTQ_ORDER_STATIC
                                                                 : CRUMB_GPTQ_ORDER_FREE;
    factor_inputs(x, x_dims[0], dims[1], 0.01, kind != CRUMB_GPTQ_ORDER_PLAIN, 2, &h);
    assert_int_equal(crumb_coded_alloc(dims[0], dims[1], group ? group : dims[1], bits, &codes, NULL), CRUMB_OK);
    assert_int_equal(crumb_gptq_solve(w, &h, kind, 2, &codes, NULL), CRUMB_OK);
    compare(name, &codes);
    check_nearest_loses_more(name, w, x, x_dims[0], &codes);
    crumb_coded_free(&codes);
    crumb_hessian_free(&h);
    free(w), free(x);
}

static void codes_are_those_of_numpy(void **state) {
    (void)state;
    size_t n = 0;
    for (size_t i = 0; i < crumb_safetensors_n(files); i++) {
        char name[96];
        snprintf(name, sizeof name, "%s", crumb_safetensors_at(files, i)->name);
        char *part = strrchr(name, '.');
        if (strcmp(part, ".codes") != 0) continue;
        *part = 0;
        check_case(name);
        n++;
    }
    assert_true(n > 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right_at_every_size),
        cmocka_unit_test(factors_are_those_of_the_inverse),
        cmocka_unit_test(singular_inputs_are_damped_or_refused),
        cmocka_unit_test_setup_teardown(codes_are_those_of_numpy, open_files, close_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
