/* The vector quantizers against the reference, byte for byte, and the reference against its rule by hand. */
#include "cpu/trial.h"

#include "host/base/checked.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 20261121;

typedef enum x_fill { X_RANDOM, X_ZERO, X_TIES, X_DENORMAL, X_TINY, X_HUGE, X_ONE_LARGE, X_FILL_COUNT } x_fill;

static float value_of(x_fill fill, uint32_t i) {
    float r = crumb_random_f32(&seed);
    switch (fill) {
    case X_ZERO: return i % 3 ? 0.0f : -0.0f;
    case X_TIES: return i % 7 == 0 ? 127.0f : (float)(int)(r * 100.0f) + 0.5f; /* the scale is 1: halves to even */
    case X_DENORMAL: return r * 1e-39f;
    case X_TINY: return r * 2.0f * CRUMB_QUANTIZE_TINY; /* groups on both sides of the threshold */
    case X_HUGE: return r * FLT_MAX;
    case X_ONE_LARGE: return i % 64 == 5 ? 1000.0f * r : r * 1e-3f;
    default: return r * 10.0f;
    }
}

typedef struct q8_buffers {
    crumb_q8 q8;
    size_t q_bytes, sx_bytes, qsum_bytes;
} q8_buffers;

static q8_buffers buffers_for(uint32_t n, uint32_t k_padded, uint32_t group, bool row) {
    q8_buffers b = {.q8 = {.k_padded = k_padded, .group = group, .row_scale = row}};
    b.q_bytes = (size_t)n * k_padded;
    b.sx_bytes = (row ? n : (size_t)n * (k_padded / group)) * sizeof(float);
    b.qsum_bytes = (size_t)n * (k_padded / group) * sizeof(int32_t);
    b.q8.q = malloc(b.q_bytes);
    b.q8.sx = malloc(b.sx_bytes);
    b.q8.qsum = malloc(b.qsum_bytes);
    assert_true(b.q8.q && b.q8.sx && b.q8.qsum);
    memset(b.q8.q, 0x55, b.q_bytes);
    return b;
}

static void free_buffers(q8_buffers *b) {
    free(b->q8.q);
    free(b->q8.sx);
    free(b->q8.qsum);
}

static void compare(crumb_quantize_fn *fn, x_fill fill, unsigned bits, uint32_t k, uint32_t group, bool row) {
    enum { N = 3 };
    uint32_t k_padded = (uint32_t)crumb_round_up(k, CRUMB_TILE_K), stride = k + 5;
    float *x = malloc((size_t)N * stride * sizeof *x);
    assert_non_null(x);
    for (uint32_t i = 0; i < N * stride; i++) x[i] = value_of(fill, i);
    q8_buffers want = buffers_for(N, k_padded, group, row), got = buffers_for(N, k_padded, group, row);
    crumb_quantize__ref(x, stride, k, bits, 0, N, &want.q8);
    fn(x, stride, k, bits, 0, 1, &got.q8); /* rows of a batch may be quantized apart */
    fn(x, stride, k, bits, 1, N, &got.q8);
    if (memcmp(want.q8.q, got.q8.q, want.q_bytes) || memcmp(want.q8.sx, got.q8.sx, want.sx_bytes) ||
        memcmp(want.q8.qsum, got.q8.qsum, want.qsum_bytes))
        fail_msg("fill %d bits %u k %u group %u row %d", (int)fill, bits, k, group, row);
    free_buffers(&want);
    free_buffers(&got);
    free(x);
}

static void quantizers_equal_reference(void **state) {
    (void)state;
    static const unsigned widths[] = {1, 2, 3, 4, 5, 6, 8};
    for (int isa = CRUMB_ISA_AVX2; isa < CRUMB_ISA_COUNT; isa++) {
        if (!crumb_isa_available((crumb_isa)isa)) continue;
        crumb_quantize_fn *fn = crumb_cpu_quantize_select((crumb_isa)isa);
        assert_ptr_not_equal(fn, crumb_quantize__ref);
        for (size_t b = 0; b < sizeof widths / sizeof widths[0]; b++)
            for (int fill = 0; fill < X_FILL_COUNT; fill++)
                for (int row = 0; row < 2; row++) {
                    for (uint32_t group = 16; group <= 256; group *= 2)
                        compare(fn, (x_fill)fill, widths[b], group * (1 + (uint32_t)(crumb_random_u64(&seed) % 9)),
                                group, row);
                    for (uint32_t k = 1; k <= 100; k += 33)
                        compare(fn, (x_fill)fill, widths[b], k, (uint32_t)crumb_round_up(k, CRUMB_TILE_K), row);
                    for (uint32_t k = 255; k <= 555; k += 100) /* eight groups at once, and what is left of them */
                        compare(fn, (x_fill)fill, widths[b], k, CRUMB_TILE_K, row);
                }
    }
}

/* K' order is checked through a kernel: quantized activations and codes must meet at the same k. */
static void reference_follows_the_rule(void **state) {
    (void)state;
    float x[32] = {0};
    x[0] = 127.0f;
    x[1] = 0.5f;
    x[2] = 1.5f;
    x[3] = -2.5f;
    x[17] = -127.0f;
    q8_buffers b = buffers_for(1, 32, 32, true);
    crumb_quantize__ref(x, 32, 32, 8, 0, 1, &b.q8);
    assert_true(b.q8.sx[0] == 1.0f);
    assert_int_equal(b.q8.qsum[0], 0 + 2 - 2);
    static const struct {
        unsigned k;
        int q;
    } expected[] = {{0, 127}, {1, 0}, {2, 2}, {3, -2}, {17, -127}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(b.q8.q[crumb_tile_plane_position(8, expected[i].k)], expected[i].q);
    float zeros[32] = {0};
    crumb_quantize__ref(zeros, 32, 32, 8, 0, 1, &b.q8);
    assert_true(b.q8.sx[0] == 1e-5f / 127.0f);
    b.q8.row_scale = false;
    crumb_quantize__ref(zeros, 32, 32, 8, 0, 1, &b.q8);
    assert_true(b.q8.sx[0] == 0.0f);
    free_buffers(&b);
}

int main(void) {
    const char *given = getenv("CRUMB_TEST_SEED");
    if (given) seed = strtoull(given, NULL, 10);
    printf("CRUMB_TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_follows_the_rule),
        cmocka_unit_test(quantizers_equal_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
