/* Attention over a cache of either type: the reference against double precision from what the cache should hold, every
 * other tier against the reference bit for bit, and so an emulation of those that the machine may lack. */
#include "host/base/half.h"
#include "tests/kernels/emulated.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CHUNK = CRUMB_ATTENTION_CHUNK, BLOCK = CRUMB_KEY_BLOCK, MOST_DIM = 256, MOST_ROWS = 16 };
static const uint32_t dims[] = {1, 4, 8, 12, 24, 31, 32, 40, 63, 64, 80, 96, 112, 128, 192, 256};
enum { N_DIMS = sizeof dims / sizeof dims[0] };
static const crumb_kv_type types[] = {CRUMB_KV_F16, CRUMB_KV_Q8};

static uint32_t random_state = 1;
static float uniform(float low, float high) {
    random_state = random_state * 1664525u + 1013904223u;
    return low + (high - low) * (float)(random_state >> 8) / 16777216.0f;
}
static void fill(float *out, size_t n, float low, float high) {
    for (size_t i = 0; i < n; i++) out[i] = uniform(low, high);
}

/* One chunk of keys, and several queries that see different numbers of them. */
typedef struct chunk_case {
    uint32_t n_rows, head_dim;
    float q[MOST_ROWS * MOST_DIM], keys[CHUNK * MOST_DIM], values[CHUNK * MOST_DIM]; /* as given */
    uint32_t n_keys[MOST_ROWS];
    float scores[MOST_ROWS * CHUNK], o[MOST_ROWS * MOST_DIM], m[MOST_ROWS], l[MOST_ROWS];
    char key_blocks[CHUNK * MOST_DIM * 2], value_blocks[CHUNK * MOST_DIM * 2], queries[MOST_ROWS * MOST_DIM * 8];
} chunk_case;

/* The ops that reference's results are compared with. */
typedef struct compared {
    const crumb_kv_ops *ops[CRUMB_ISA_COUNT + 3];
    size_t n;
} compared;

static compared ops_to_compare(crumb_kv_type type) {
    static const crumb_kv_ops *const q8[] = {&crumb_kv_q8__avxvnni_emulated, &crumb_kv_q8__avx512ymm_emulated,
                                             &crumb_kv_q8__avx512vnni_emulated};
    compared c = {0};
    for (crumb_isa isa = CRUMB_ISA_AVX2; isa < CRUMB_ISA_COUNT; isa++)
        if (crumb_isa_available(isa)) c.ops[c.n++] = crumb_kv_ops_select(type, isa);
    if (!c.n) return c; /* emulations need AVX2 */
    for (size_t i = 0; i < sizeof q8 / sizeof q8[0] && type == CRUMB_KV_Q8; i++) c.ops[c.n++] = q8[i];
    if (type == CRUMB_KV_F16) c.ops[c.n++] = &crumb_kv_f16__avx512vnni_emulated;
    return c;
}

static const crumb_kv_ops *reference(crumb_kv_type type) {
    return crumb_kv_ops_select(type, CRUMB_ISA_SCALAR);
}

static void store_chunk(const crumb_kv_ops *ops, chunk_case *c) {
    size_t block_bytes = ops->block_bytes(c->head_dim);
    assert_true(block_bytes * (CHUNK / BLOCK) <= sizeof c->key_blocks);
    assert_true(ops->query_bytes(c->head_dim) % 4 == 0);
    for (uint32_t j = 0; j < CHUNK; j++)
        ops->store(c->keys + (size_t)j * c->head_dim, c->values + (size_t)j * c->head_dim, c->head_dim, j % BLOCK,
                   c->key_blocks + j / BLOCK * block_bytes, c->value_blocks + j / BLOCK * block_bytes);
}

static void run_chunk(const crumb_kv_ops *ops, chunk_case *c, float scale) {
    uint32_t most = 0;
    for (uint32_t r = 0; r < c->n_rows; r++) most = c->n_keys[r] > most ? c->n_keys[r] : most;
    for (size_t i = 0; i < MOST_ROWS * CHUNK; i++) c->scores[i] = NAN; /* what lies behind a row's keys is not read */
    ops->prepare(c->q, c->n_rows, c->head_dim, c->queries);
    ops->scores(c->queries, c->n_rows, c->head_dim, c->key_blocks, (most + BLOCK - 1) / BLOCK, c->value_blocks,
                c->scores);
    ops->softmax(c->scores, c->n_rows, c->n_keys, scale, c->m, c->l);
    ops->values(c->scores, c->n_rows, c->n_keys, c->head_dim, c->value_blocks, c->key_blocks, c->o);
}

/* Multiplies n values by the Hadamard matrix whose order is the largest power of 2 in n, as a matrix. */
static void turn(double *x, uint32_t n, double factor) {
    uint32_t order = n & -n;
    double from[32];
    memcpy(from, x, n * sizeof *x);
    for (uint32_t i = 0; i < n; i++) {
        x[i] = 0;
        for (uint32_t j = 0; j < order; j++)
            x[i] += __builtin_popcount(i % order & j) % 2 ? -from[i / order * order + j] : from[i / order * order + j];
        x[i] *= factor < 0 ? 1 / (double)order : factor;
    }
}

/* What the cache should hold of n values: halves, or groups of 32 with a common step, keys turned. */
static void round_as_stored(crumb_kv_type type, bool key, const float *x, uint32_t n, double *out) {
    for (uint32_t d = 0; d < n; d++)
        out[d] = type == CRUMB_KV_Q8 ? (double)x[d] : (double)crumb_f16_to_f32(crumb_f32_to_f16(x[d]));
    for (uint32_t g = 0; g < n && type == CRUMB_KV_Q8; g += 32) {
        uint32_t size = n - g < 32 ? n - g : 32;
        double most = 0;
        if (key) turn(out + g, size, 1);
        for (uint32_t d = g; d < g + size; d++) most = fmax(most, fabs(out[d]));
        double step = (double)crumb_f16_to_f32(crumb_f32_to_f16((float)most / 127));
        for (uint32_t d = g; d < g + size; d++)
            out[d] = step > 0 ? fmax(-127, fmin(127, rint(out[d] / step))) * step : 0;
        if (key) turn(out + g, size, -1);
    }
}

static void check_row(crumb_kv_type type, const chunk_case *c, uint32_t r, float scale) {
    static double keys[CHUNK][MOST_DIM], values[CHUNK][MOST_DIM];
    double p[CHUNK], sum = 0, max = -1e300;
    for (uint32_t j = 0; j < c->n_keys[r]; j++) {
        round_as_stored(type, true, c->keys + (size_t)j * c->head_dim, c->head_dim, keys[j]);
        round_as_stored(type, false, c->values + (size_t)j * c->head_dim, c->head_dim, values[j]);
        p[j] = 0;
        for (uint32_t d = 0; d < c->head_dim; d++) p[j] += (double)c->q[r * c->head_dim + d] * keys[j][d];
        p[j] *= (double)scale;
        max = fmax(max, p[j]);
    }
    for (uint32_t j = 0; j < c->n_keys[r]; j++) sum += p[j] = exp(p[j] - max);
    for (uint32_t d = 0; d < c->head_dim && c->n_keys[r]; d++) {
        double exact = 0;
        for (uint32_t j = 0; j < c->n_keys[r]; j++) exact += p[j] / sum * values[j][d];
        /* Queries and weights of an 8-bit cache are rounded to 16 bits; and in test data a value may lie on an edge
         * between two codes. */
        double tolerance = type == CRUMB_KV_Q8 ? 1e-3 : 1e-5;
        assert_true(fabs((double)(c->o[r * c->head_dim + d] / c->l[r]) - exact) < tolerance);
    }
}

/* The last row by itself gives the same bits. */
static void check_alone(const crumb_kv_ops *ops, const chunk_case *a, chunk_case *alone, float scale) {
    uint32_t dim = a->head_dim, last = a->n_rows - 1;
    *alone = *a;
    memcpy(alone->q, a->q + last * dim, dim * sizeof(float));
    alone->n_rows = 1;
    alone->n_keys[0] = a->n_keys[last];
    run_chunk(ops, alone, scale);
    assert_memory_equal(alone->o, a->o + last * dim, dim * sizeof(float));
}

static void check_case(crumb_kv_type type, chunk_case *a, chunk_case *b, chunk_case *alone) {
    float scale = 1 / sqrtf((float)a->head_dim);
    memset(a->key_blocks, 0, sizeof a->key_blocks);
    memset(a->value_blocks, 0, sizeof a->value_blocks);
    *b = *a;
    store_chunk(reference(type), a);
    run_chunk(reference(type), a, scale);
    for (uint32_t r = 0; r < a->n_rows; r++) check_row(type, a, r, scale);
    const compared others = ops_to_compare(type);
    for (size_t i = 0; i < others.n; i++) {
        store_chunk(others.ops[i], b);
        assert_memory_equal(b->key_blocks, a->key_blocks, sizeof a->key_blocks);
        assert_memory_equal(b->value_blocks, a->value_blocks, sizeof a->value_blocks);
        run_chunk(others.ops[i], b, scale);
        assert_memory_equal(b->o, a->o, sizeof a->o);
        assert_memory_equal(b->m, a->m, sizeof a->m);
        assert_memory_equal(b->l, a->l, sizeof a->l);
        check_alone(others.ops[i], a, alone, scale);
    }
}

static void chunks_agree(void **state) {
    (void)state;
    chunk_case *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b), *alone = calloc(1, sizeof *alone);
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < N_DIMS; i++)
            for (uint32_t n_rows = 1; n_rows <= MOST_ROWS; n_rows += n_rows < 8 ? 1 : 4) {
                memset(a, 0, sizeof *a);
                a->n_rows = n_rows;
                a->head_dim = dims[i];
                fill(a->q, n_rows * dims[i], -2, 2);
                fill(a->keys, CHUNK * dims[i], -2, 2);
                fill(a->values, CHUNK * dims[i], -2, 2);
                for (uint32_t r = 0; r < n_rows; r++)
                    a->n_keys[r] = (random_state >> 9) % (CHUNK + 1) * (r + 1) / n_rows;
                if (n_rows == 1) a->n_keys[0] = CHUNK;
                check_case(types[t], a, b, alone);
            }
    free(a);
    free(b);
    free(alone);
}

/* Sizes at the edge of what each type can hold: nothing becomes infinite, and tiers still agree. */
static void extremes_stay_finite(void **state) {
    (void)state;
    static const float sizes[] = {0, 1e-30f, 1e-9f, 3e-6f, 6e4f, 1e9f, 1e30f};
    chunk_case *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            memset(a, 0, sizeof *a);
            a->n_rows = 3;
            a->head_dim = 72;
            a->n_keys[0] = a->n_keys[1] = a->n_keys[2] = 77;
            fill(a->q, 3 * 72, -1, 1);
            fill(a->keys, CHUNK * 72, -sizes[i], sizes[i]);
            fill(a->values, CHUNK * 72, -sizes[i], sizes[i]);
            *b = *a;
            store_chunk(reference(types[t]), a);
            run_chunk(reference(types[t]), a, 1);
            for (uint32_t d = 0; d < 3 * 72; d++) assert_true(isfinite(a->o[d]));
            const compared others = ops_to_compare(types[t]);
            for (size_t j = 0; j < others.n; j++) {
                store_chunk(others.ops[j], b);
                run_chunk(others.ops[j], b, 1);
                assert_memory_equal(b->value_blocks, a->value_blocks, sizeof a->value_blocks);
                assert_memory_equal(b->o, a->o, sizeof a->o);
            }
        }
    free(a);
    free(b);
}

/* The largest sums that can be are exact: every code and weight at its limit, all of one sign. */
static void sums_do_not_overflow(void **state) {
    (void)state;
    chunk_case *a = calloc(1, sizeof *a);
    const compared others = ops_to_compare(CRUMB_KV_Q8);
    for (size_t i = 0; i <= others.n; i++)
        for (int side = 0; side < 2; side++) {
            const crumb_kv_ops *ops = i ? others.ops[i - 1] : reference(CRUMB_KV_Q8);
            float sign = side ? -1.0f : 1.0f;
            a->n_rows = 1;
            a->head_dim = MOST_DIM;
            a->n_keys[0] = CHUNK;
            for (size_t d = 0; d < MOST_DIM; d++) a->q[d] = 1;
            for (size_t d = 0; d < CHUNK * MOST_DIM; d++) a->keys[d] = a->values[d] = 127 * sign;
            store_chunk(ops, a);
            run_chunk(ops, a, 1.0f / MOST_DIM);
            assert_true(fabsf(a->m[0] - 127 * sign) < 1e-4f && fabsf(a->l[0] - CHUNK) < 1e-3f);
            for (size_t d = 0; d < MOST_DIM; d++) assert_true(fabsf(a->o[d] / a->l[0] - 127 * sign) < 1e-3f);
        }
    free(a);
}

/* Keys with one dimension a hundred times larger than the others, as models have: turned, the others still count. */
static void large_dimensions_drown_nothing(void **state) {
    (void)state;
    chunk_case *a = calloc(1, sizeof *a);
    double error = 0, plain = 0;
    a->n_rows = 1;
    a->head_dim = 64;
    a->n_keys[0] = CHUNK;
    fill(a->q, 64, -1, 1);
    fill(a->keys, CHUNK * 64, -1, 1);
    a->q[5] = 0;
    for (uint32_t j = 0; j < CHUNK; j++) a->keys[j * 64 + 5] = 100;
    const crumb_kv_ops *ops = reference(CRUMB_KV_Q8);
    store_chunk(ops, a);
    ops->prepare(a->q, 1, 64, a->queries);
    ops->scores(a->queries, 1, 64, a->key_blocks, CHUNK / BLOCK, a->value_blocks, a->scores);
    for (uint32_t j = 0; j < CHUNK; j++) {
        double exact = 0, straight = 0;
        for (uint32_t d = 0; d < 64; d++) {
            double step = d < 32 ? 100.0 / 127 : 1.0 / 127, k = (double)a->keys[j * 64 + d];
            exact += (double)a->q[d] * k;
            straight += (double)a->q[d] * rint(k / step) * step; /* what codes of the key as it is would give */
        }
        error += pow((double)a->scores[j] - exact, 2);
        plain += pow(straight - exact, 2);
    }
    assert_true(error > 0 && error * 9 < plain);
    free(a);
}

/* Rows of 0 to CHUNK keys, several at once. */
static void softmax_agrees(void **state) {
    (void)state;
    enum { ROWS = 4 };
    static float s[ROWS * CHUNK], expected[ROWS * CHUNK], got[ROWS * CHUNK];
    compared others = ops_to_compare(CRUMB_KV_F16);
    for (uint32_t n = 1; n <= CHUNK; n++) {
        const uint32_t n_keys[ROWS] = {n, 0, CHUNK - n, n / 2};
        float m[ROWS] = {0}, l[ROWS] = {0};
        fill(s, ROWS * CHUNK, -30, 30);
        memcpy(expected, s, sizeof s);
        reference(CRUMB_KV_F16)->softmax(expected, ROWS, n_keys, 0.3f, m, l);
        double exact = 0;
        for (uint32_t j = 0; j < n; j++) {
            double p = exp((double)s[j] * (double)0.3f - (double)m[0]);
            assert_true(s[j] * 0.3f <= m[0] && fabs((double)expected[j] - p) < 1e-6);
            exact += p;
        }
        assert_true(fabs((double)l[0] - exact) < 1e-5 * exact);
        for (size_t i = 0; i < others.n; i++) {
            float got_m[ROWS] = {0}, got_l[ROWS] = {0};
            memcpy(got, s, sizeof s);
            others.ops[i]->softmax(got, ROWS, n_keys, 0.3f, got_m, got_l);
            assert_memory_equal(got_m, m, sizeof m);
            assert_memory_equal(got_l, l, sizeof l);
            for (uint32_t r = 0; r < ROWS; r++) {
                const size_t row = (size_t)r * CHUNK, end = (n_keys[r] + 15) / 16 * 16;
                assert_memory_equal(got + row, expected + row, n_keys[r] * sizeof(float));
                assert_memory_equal(got + row + end, s + row + end, (CHUNK - end) * sizeof(float));
            }
        }
    }
}

static void eight_bits_take_half(void **state) {
    (void)state;
    for (uint32_t dim = 32; dim <= 256; dim += 32) {
        size_t f16 = crumb_kv_f16_block_bytes(dim), q8 = crumb_kv_q8_block_bytes(dim);
        assert_int_equal(q8 * 32, f16 * 17); /* 8.5 of 16 bits */
    }
    assert_true(crumb_kv_q8_block_bytes(UINT32_MAX) > UINT32_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_agrees),
        cmocka_unit_test(chunks_agree),
        cmocka_unit_test(extremes_stay_finite),
        cmocka_unit_test(sums_do_not_overflow),
        cmocka_unit_test(large_dimensions_drown_nothing),
        cmocka_unit_test(eight_bits_take_half),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
