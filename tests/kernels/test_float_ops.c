/* Float kernels: the reference against double precision within the error that cpu/float.h states, every other tier
 * against the reference bit for bit. */
#include "cpu/float.h"
#include "host/base/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 1024 };
static const crumb_float_ops *const ref = &crumb_float_ops__ref;

static uint32_t random_state = 1;
static float uniform(float low, float high) {
    random_state = random_state * 1664525u + 1013904223u;
    return low + (high - low) * (float)(random_state >> 8) / 16777216.0f;
}
static void fill(float *out, size_t n, float low, float high) {
    for (size_t i = 0; i < n; i++) out[i] = uniform(low, high);
}

/* The tables of tiers other than the scalar one that this machine can run; the same table is given once. */
static size_t other_tiers(const crumb_float_ops *out[CRUMB_ISA_COUNT]) {
    size_t n = 0;
    for (crumb_isa isa = CRUMB_ISA_AVX2; isa < CRUMB_ISA_COUNT; isa++) {
        const crumb_float_ops *ops = crumb_float_ops_select(isa);
        if (crumb_isa_available(isa) && (n == 0 || out[n - 1] != ops)) out[n++] = ops;
    }
    return n;
}

#define FOR_EACH_TIER(ops)                                                                                             \
    const crumb_float_ops *tiers_[CRUMB_ISA_COUNT], *ops;                                                              \
    for (size_t n_tiers_ = other_tiers(tiers_), t_ = 0; t_ < n_tiers_ && (ops = tiers_[t_], 1); t_++)

static double ulps(float value, double exact) {
    float f = (float)exact;
    return fabs((double)value - exact) / (double)(nextafterf(fabsf(f), INFINITY) - fabsf(f));
}

static void exp_is_within_two_ulp(void **state) {
    (void)state;
    double worst = 0;
    for (float x = CRUMB_EXP_MIN; x < CRUMB_EXP_MAX; x += 0.00037f)
        worst = fmax(worst, ulps(ref->exp(x), exp((double)x)));
    assert_true(worst < 2);
    assert_true(ref->exp(0) == 1.0f);
    assert_true(ref->exp(-INFINITY) == ref->exp(CRUMB_EXP_MIN) && ref->exp(-INFINITY) > 0);
    assert_true(ref->exp(INFINITY) == ref->exp(CRUMB_EXP_MAX) && isfinite(ref->exp(INFINITY)));
    assert_true(isnan(ref->exp(NAN)));
    FOR_EACH_TIER(ops) {
        for (float x = -90; x < 90; x += 0.0037f) {
            float a = ref->exp(x), b = ops->exp(x);
            assert_memory_equal(&a, &b, sizeof a);
        }
        assert_true(isnan(ops->exp(NAN)));
    }
}

static void rms_norm_agrees(void **state) {
    (void)state;
    static float x[MOST], w[MOST], expected[MOST], got[MOST];
    for (uint32_t n = 1; n < MOST; n += n < 70 ? 1 : 61) {
        fill(x, n, -3, 3);
        fill(w, n, 0, 2);
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
        ref->rms_norm(x, w, n, 1e-5f, expected);
        for (uint32_t i = 0; i < n; i++) {
            double exact = (double)x[i] * (double)w[i] / sqrt(sum / n + (double)1e-5f);
            assert_true(fabs((double)expected[i] - exact) <= 2e-7 * fabs(exact));
        }
        FOR_EACH_TIER(ops) {
            memcpy(got, x, sizeof got);
            ops->rms_norm(got, w, n, 1e-5f, got);
            assert_memory_equal(got, expected, n * sizeof(float));
        }
    }
}

static void rope_rotates(void **state) {
    (void)state;
    float c[MOST / 2], s[MOST / 2], x[MOST + 3], expected[MOST + 3], got[MOST + 3];
    for (uint32_t dims = 2; dims < 300; dims += dims < 40 ? 2 : 26)
        for (int halves = 0; halves < 2; halves++) {
            crumb_rope_pairing pairing = halves ? CRUMB_ROPE_HALVES : CRUMB_ROPE_NORMAL;
            for (uint32_t i = 0; i < dims / 2; i++) {
                c[i] = cosf((float)i);
                s[i] = sinf((float)i);
            }
            fill(x, dims + 3, -2, 2);
            memcpy(expected, x, sizeof x);
            ref->rope(expected, c, s, dims, pairing);
            for (uint32_t i = 0; i < dims / 2; i++) {
                uint32_t a = halves ? i : 2 * i, b = halves ? i + dims / 2 : 2 * i + 1;
                double xa = (double)x[a], xb = (double)x[b], co = (double)c[i], si = (double)s[i];
                assert_true(fabs((double)expected[a] - (xa * co - xb * si)) < 5e-7);
                assert_true(fabs((double)expected[b] - (xa * si + xb * co)) < 5e-7);
            }
            assert_memory_equal(expected + dims, x + dims, 3 * sizeof(float));
            FOR_EACH_TIER(ops) {
                memcpy(got, x, sizeof x);
                ops->rope(got, c, s, dims, pairing);
                assert_memory_equal(got, expected, (dims + 3) * sizeof(float));
            }
        }
}

static void gated_agrees(void **state) {
    (void)state;
    static float g[MOST], u[MOST], expected[MOST], got[MOST];
    for (uint32_t n = 1; n < 200; n += n < 40 ? 1 : 37)
        for (int relu = 0; relu < 2; relu++) {
            crumb_activation_fn fn = relu ? CRUMB_ACT_FN_RELU2 : CRUMB_ACT_FN_SILU;
            fill(g, n + 8, -20, 20);
            fill(u, n + 8, -2, 2);
            g[0] = -1000;
            ref->gated(g, u, n, fn, expected);
            for (uint32_t i = 0; i < n; i++) {
                double x = (double)g[i], exact = (relu ? (x > 0 ? x * x : 0) : x / (1 + exp(-x))) * (double)u[i];
                assert_true(fabs((double)expected[i] - exact) <= 5e-7 * fabs(exact) + 1e-30);
            }
            FOR_EACH_TIER(ops) {
                memcpy(got, g, sizeof got);
                ops->gated(got, u, n, fn, got);
                assert_memory_equal(got, expected, n * sizeof(float));
                assert_memory_equal(got + n, g + n, 8 * sizeof(float));
            }
        }
}

static void chunks_merge(void **state) {
    (void)state;
    float o[45], chunk[45], expected[45], got[45];
    fill(o, 45, -2, 2);
    fill(chunk, 45, -2, 2);
    for (uint32_t n = 0; n <= 45; n++) {
        memcpy(expected, o, sizeof o);
        ref->attention_merge(expected, 0.3f, chunk, 0.7f, n);
        for (uint32_t i = 0; i < 45; i++) {
            double exact = i < n ? (double)o[i] * (double)0.3f + (double)chunk[i] * (double)0.7f : (double)o[i];
            assert_true(fabs((double)expected[i] - exact) < 3e-7);
        }
        FOR_EACH_TIER(ops) {
            memcpy(got, o, sizeof o);
            ops->attention_merge(got, 0.3f, chunk, 0.7f, n);
            assert_memory_equal(got, expected, sizeof got);
        }
    }
}

/* ---- dense linear layers ----------------------------------------------------------------------------------- */

enum { DENSE_M = 53, DENSE_N = 9 };

typedef struct dense_case {
    crumb_matrix w;
    float x[DENSE_N * 600], y[DENSE_N * DENSE_M], bias[DENSE_M], add[DENSE_N * DENSE_M];
} dense_case;

static void run_dense(dense_case *c, const crumb_cpu_kernel *kernel, uint32_t n0, uint32_t n1, uint32_t tile0,
                      uint32_t tile1) {
    crumb_linear_args args = {.w = &c->w,
                              .xf = c->x + (size_t)n0 * c->w.k,
                              .xf_stride = c->w.k,
                              .n = n1 - n0,
                              .tile0 = tile0,
                              .tile1 = tile1,
                              .y = c->y + (size_t)n0 * DENSE_M,
                              .y_stride = DENSE_M,
                              .add = c->add + (size_t)n0 * DENSE_M,
                              .add_stride = DENSE_M,
                              .out_scale = 0.5f,
                              .bias = c->bias};
    kernel->run(&args);
}

static double dense_exact(const dense_case *c, uint32_t n, uint32_t m, double *size) {
    float row[600];
    double sum = 0;
    *size = 1;
    crumb_matrix_row_to_f32(&c->w, m, row);
    for (uint32_t k = 0; k < c->w.k; k++) {
        double product = (double)row[k] * (double)c->x[n * c->w.k + k];
        sum += product;
        *size += fabs(product);
    }
    return sum * 0.5 + (double)c->bias[m] + (double)c->add[n * DENSE_M + m];
}

static void check_dense(dense_case *c, const crumb_cpu_kernel *kernel, const crumb_cpu_kernel *reference) {
    static float expected[DENSE_N * DENSE_M];
    const uint32_t n_tiles = (DENSE_M + 15) / 16;
    run_dense(c, reference, 0, DENSE_N, 0, n_tiles);
    memcpy(expected, c->y, sizeof expected);
    for (uint32_t n = 0; n < DENSE_N; n++)
        for (uint32_t m = 0; m < DENSE_M; m++) {
            double size, exact = dense_exact(c, n, m, &size);
            assert_true(fabs((double)expected[n * DENSE_M + m] - exact) < 1e-6 * size);
        }
    for (uint32_t step = 1; step <= DENSE_N; step++) { /* by batches of any size, and by tiles */
        memset(c->y, 0, sizeof c->y);
        for (uint32_t n = 0; n < DENSE_N; n += step)
            for (uint32_t t = 0; t < n_tiles; t += 1 + step % 3)
                run_dense(c, kernel, n, n + step < DENSE_N ? n + step : DENSE_N, t,
                          t + 1 + step % 3 < n_tiles ? t + 1 + step % 3 : n_tiles);
        assert_memory_equal(c->y, expected, sizeof expected);
    }
}

static void dense_kernels_agree(void **state) {
    (void)state;
    dense_case *c = calloc(1, sizeof *c);
    fill(c->bias, DENSE_M, -1, 1);
    fill(c->add, DENSE_N * DENSE_M, -1, 1);
    size_t n_kernels, n_checked = 0;
    const crumb_cpu_kernel *kernels = crumb_cpu_kernels(&n_kernels);
    static const uint32_t ks[] = {1, 7, 8, 31, 96, 577};
    for (size_t i = 0; i < n_kernels; i++) {
        if (kernels[i].bits != 0 || !crumb_isa_available(kernels[i].isa)) continue;
        n_checked++;
        for (size_t j = 0; j < sizeof ks / sizeof ks[0]; j++) {
            uint32_t k = ks[j];
            size_t width = kernels[i].dense_type == CRUMB_TYPE_F32 ? 4 : 2;
            char *codes = malloc(DENSE_M * k * width); /* exact size: a sanitizer sees reads behind it */
            for (size_t at = 0; at < DENSE_M * k; at++) {
                float weight = uniform(-1, 1);
                uint16_t half =
                    kernels[i].dense_type == CRUMB_TYPE_F16 ? crumb_f32_to_f16(weight) : crumb_f32_to_bf16(weight);
                memcpy(codes + at * width, width == 4 ? (void *)&weight : (void *)&half, width);
            }
            fill(c->x, DENSE_N * k, -1, 1);
            c->w = (crumb_matrix){.type = kernels[i].dense_type, .m = DENSE_M, .k = k, .codes = codes};
            check_dense(c, &kernels[i], crumb_cpu_kernel_select(&c->w, CRUMB_ACT_F32, 1, CRUMB_ISA_SCALAR));
            free(codes);
        }
    }
    assert_true(n_checked >= 3);
    free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_two_ulp), cmocka_unit_test(rms_norm_agrees),
        cmocka_unit_test(rope_rotates),          cmocka_unit_test(gated_agrees),
        cmocka_unit_test(chunks_merge),          cmocka_unit_test(dense_kernels_agree),
    };
    return cmocka_run_group_tests_name("float ops", tests, NULL, NULL);
}
