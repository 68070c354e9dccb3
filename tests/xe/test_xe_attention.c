/* Rotation, the KV cache and attention on an OpenCL device against cpu/ref, bit for bit but on matrix instructions
 * (attention_matrix.c): both types of cache, heads of several sizes, sequences mixed in a batch, prefill and decode. */
#include "cpu/attention.h"
#include "cpu/float.h"
#include "tests/xe/attention.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const float NORM_EPS = 1e-5f;
static const crumb_xe_heads shapes[] = {
    {CRUMB_KV_F16, 64, 9, 3, 64, CRUMB_ROPE_NORMAL},   {CRUMB_KV_Q8, 64, 9, 3, 64, CRUMB_ROPE_NORMAL},
    {CRUMB_KV_F16, 128, 4, 1, 128, CRUMB_ROPE_HALVES}, {CRUMB_KV_Q8, 128, 4, 1, 128, CRUMB_ROPE_HALVES},
    {CRUMB_KV_F16, 80, 2, 2, 40, CRUMB_ROPE_HALVES},   {CRUMB_KV_Q8, 80, 2, 2, 40, CRUMB_ROPE_HALVES},
    {CRUMB_KV_F16, 192, 2, 1, 0, CRUMB_ROPE_NORMAL},   {CRUMB_KV_Q8, 24, 3, 1, 24, CRUMB_ROPE_NORMAL},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* CRUMB_XE_SMALL, for a simulator: every other shape, of both caches, and batches of up to two chunks of keys. */
static bool small;
static bool takes(int index, int batch) {
    return !small || (index % 4 < 2 ? batch == 2 : index == 7 && batch == 0);
}

static cl_kernel rope_kernel(const crumb_xe_heads *s) {
    char options[200];
    snprintf(options, sizeof options,
             "-D HEAD_DIM=%u -D KV=%d -D N_HEAD=%u -D N_HEAD_KV=%u -D DIMS=%u -D PAIRING=%d -D STORE=1", s->head_dim,
             s->type == CRUMB_KV_Q8 ? 8 : 16, s->n_head, s->n_head_kv, s->dims, s->pairing == CRUMB_ROPE_HALVES);
    return crumb_xe_kernel(&crumb_xe_tested, "rope.cl", options, false, "rope_store");
}

static void check_cache(const char *got, const char *want, size_t n_bytes, const crumb_xe_heads *s, const char *what) {
    size_t block = crumb_kv_ops_select(s->type, CRUMB_ISA_SCALAR)->block_bytes(s->head_dim);
    for (size_t i = 0; i < n_bytes; i++)
        if (got[i] != want[i])
            fail_msg("%s, type %d, head_dim %u: byte %zu of block %zu is %d, not %d", what, (int)s->type, s->head_dim,
                     i % block, i / block, got[i], want[i]);
}

/* ---- rotating and storing ----------------------------------------------------------------------------------- */

static float *make_table(const crumb_xe_heads *s) {
    float *table = crumb_xe_random_floats((size_t)CRUMB_XE_CTX * (s->dims ? s->dims : 2), 1);
    for (uint32_t position = 0; position < CRUMB_XE_CTX; position++)
        for (uint32_t i = 0; i < s->dims / 2; i++) {
            double angle = position * pow(10000, -2.0 * i / s->dims);
            table[(position * (s->dims / 2) + i) * 2] = (float)cos(angle);
            table[(position * (s->dims / 2) + i) * 2 + 1] = (float)sin(angle);
        }
    return table;
}

/* Norms a head that has weights, and rotates it. */
static void rotate(const crumb_xe_heads *s, float *head, const float *weight, const float *table, uint32_t position) {
    float cosines[128], sines[128];
    if (weight) crumb_float_ops__ref.rms_norm(head, weight, s->head_dim, NORM_EPS, head);
    for (uint32_t i = 0; i < s->dims / 2; i++) {
        cosines[i] = table[(position * (s->dims / 2) + i) * 2];
        sines[i] = table[(position * (s->dims / 2) + i) * 2 + 1];
    }
    crumb_float_ops__ref.rope(head, cosines, sines, s->dims, s->pairing);
}

/* norms: whose heads go through a norm first, 1: queries', 2: keys', 3: both. */
static void compare_rope(const crumb_xe_heads *s, int b, int norms) {
    uint32_t n = crumb_xe_batches[b].n;
    size_t n_q = (size_t)n * s->n_head * s->head_dim, n_k = (size_t)n * s->n_head_kv * s->head_dim;
    size_t cache_bytes = CRUMB_XE_LAYERS * crumb_xe_layer_bytes(s);
    float *q = crumb_xe_random_floats(n_q, 3), *k = crumb_xe_random_floats(n_k, 3), *v = crumb_xe_random_floats(n_k, 3),
          *table = make_table(s);
    float *got = crumb_xe_random_floats(n_q, 1), *weights = crumb_xe_random_floats((size_t)2 * s->head_dim, 2);
    const float *q_norm = norms & 1 ? weights : NULL, *k_norm = norms & 2 ? weights + s->head_dim : NULL;
    char *keys = calloc(1, cache_bytes), *values = calloc(1, cache_bytes), *got_cache = malloc(cache_bytes);
    cl_mem batch = crumb_xe_batch_buffer(b), bk = crumb_xe_buffer(&crumb_xe_tested, k, n_k * 4),
           bq = crumb_xe_buffer(&crumb_xe_tested, q, n_q * 4);
    cl_mem bv = crumb_xe_buffer(&crumb_xe_tested, v, n_k * 4),
           bt = crumb_xe_buffer(&crumb_xe_tested, table, (size_t)CRUMB_XE_CTX * (s->dims ? s->dims : 2) * 4);
    cl_mem bkeys = crumb_xe_buffer(&crumb_xe_tested, keys, cache_bytes),
           bvalues = crumb_xe_buffer(&crumb_xe_tested, values, cache_bytes);
    cl_mem bq_norm = q_norm ? crumb_xe_buffer(&crumb_xe_tested, q_norm, s->head_dim * 4) : NULL,
           bk_norm = k_norm ? crumb_xe_buffer(&crumb_xe_tested, k_norm, s->head_dim * 4) : NULL;
    cl_kernel kernel = rope_kernel(s);
    crumb_xe_args(kernel, 0, "bbbbbbboubfbf", batch, bq, bk, bv, bt, bkeys, bvalues,
                  (uint64_t)crumb_xe_layer_bytes(s) * CRUMB_XE_LAYER, (uint32_t)CRUMB_XE_HEAD_BLOCKS, bq_norm,
                  (double)NORM_EPS, bk_norm, (double)NORM_EPS);
    crumb_xe_run(&crumb_xe_tested, kernel, 64, s->n_head + s->n_head_kv, n + 2, 1);

    for (uint32_t r = 0; r < n; r++) {
        uint32_t position = crumb_xe_batches[b].rows[r].position;
        for (uint32_t h = 0; h < s->n_head; h++)
            rotate(s, q + ((size_t)r * s->n_head + h) * s->head_dim, q_norm, table, position);
        for (uint32_t h = 0; h < s->n_head_kv; h++) {
            size_t at = ((size_t)r * s->n_head_kv + h) * s->head_dim;
            rotate(s, k + at, k_norm, table, position);
            crumb_xe_store(s, keys, values, crumb_xe_batches[b].rows[r].sequence, h, position, k + at, v + at);
        }
    }
    crumb_xe_read(&crumb_xe_tested, bq, got, n_q * 4);
    crumb_xe_check_floats(got, q, n_q, s, b, "q");
    crumb_xe_read(&crumb_xe_tested, bk, got, n_k * 4);
    crumb_xe_check_floats(got, k, n_k, s, b, "k");
    crumb_xe_read(&crumb_xe_tested, bkeys, got_cache, cache_bytes);
    check_cache(got_cache, keys, cache_bytes, s, "keys");
    crumb_xe_read(&crumb_xe_tested, bvalues, got_cache, cache_bytes);
    check_cache(got_cache, values, cache_bytes, s, "values");
    cl_mem all[] = {batch, bq, bk, bv, bt, bkeys, bvalues, bq_norm, bk_norm};
    crumb_xe_release(9, all);
    clReleaseKernel(kernel);
    free(q), free(k), free(v), free(table), free(got), free(weights), free(keys), free(values), free(got_cache);
}

static void rotation_and_cache_equal_reference(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int b = 0; b < CRUMB_XE_BATCHES; b++)
            for (int norms = 0; norms <= 3 && takes(i, b); norms += 1 + b % 3) compare_rope(&shapes[i], b, norms);
}

/* ---- attention ---------------------------------------------------------------------------------------------- */

static void compare_attention(crumb_xe_attention *c) {
    crumb_xe_run_split(c, crumb_cl_kernel_of(CRUMB_CL_ATTENTION_SPLIT, false));
    crumb_xe_check_floats(c->got, c->want, c->n_q, c->s, c->b, "decode");
    crumb_xe_run_whole(c, crumb_cl_kernel_of(CRUMB_CL_ATTENTION_WHOLE, false), 12 / (c->s->n_head / c->s->n_head_kv));
    crumb_xe_check_floats(c->got, c->want, c->n_q, c->s, c->b, "prefill");
}

static void attention_equals_reference(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        const crumb_xe_heads *s = &shapes[i];
        crumb_xe_cache cache;
        crumb_xe_cache_create(&cache, s);
        for (int b = 0; b < CRUMB_XE_BATCHES; b++)
            if (takes(i, b)) {
                crumb_xe_attention c;
                crumb_xe_attention_create(&c, &cache, b, false);
                compare_attention(&c);
                crumb_xe_attention_destroy(&c);
            }
        crumb_xe_cache_destroy(&cache);
    }
}

/* Matrix instructions are for heads of whole blocks that fit registers. */
static void selection_follows_its_rule(void **state) {
    (void)state;
    const crumb_cl_target matrix = {
        .rung = CRUMB_CL_DPAS_I8, .sub_group = 16, .local_bytes = 64 << 10, .max_work_group = 1024};
    crumb_cl_target narrow = matrix, none = matrix;
    narrow.sub_group = 8;
    none.rung = CRUMB_CL_DP4A;
    static const struct {
        crumb_cl_heads heads;
        uint32_t on_16, on_8, rows_16, rows_8; /* sub-group, 0: none */
    } cases[] = {
        {{CRUMB_KV_F16, 128, 32, 8}, 16, 8, 8, 4}, {{CRUMB_KV_Q8, 128, 32, 8}, 16, 8, 8, 4},
        {{CRUMB_KV_F16, 80, 4, 4}, 16, 8, 32, 16}, {{CRUMB_KV_Q8, 80, 4, 4}, 0, 0, 16, 16},
        {{CRUMB_KV_F16, 24, 6, 2}, 0, 0, 5, 5},    {{CRUMB_KV_F16, 64, 71, 1}, 0, 0, 1, 1},
        {{CRUMB_KV_F16, 256, 16, 1}, 16, 0, 2, 1}, {{CRUMB_KV_F16, 256, 8, 8}, 16, 0, 32, 16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int which = 0; which < 3; which++) {
            const crumb_cl_target *t = which == 0 ? &matrix : which == 1 ? &narrow : &none;
            const uint32_t want = which == 0 ? cases[i].on_16 : which == 1 ? cases[i].on_8 : 0;
            const crumb_cl_kernel *whole = crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &cases[i].heads, t);
            assert_int_equal(whole->sub_group, want);
            assert_int_equal(crumb_cl_attention_select(CRUMB_CL_ATTENTION_SPLIT, &cases[i].heads, t)->sub_group, want);
            const uint32_t rows = crumb_cl_attention_rows(whole, &cases[i].heads, t);
            if (which < 2) assert_int_equal(rows, which == 0 ? cases[i].rows_16 : cases[i].rows_8);
            crumb_cl_target exact = *t;
            exact.exact = true;
            assert_int_equal(crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &cases[i].heads, &exact)->sub_group,
                             cases[i].heads.kv == CRUMB_KV_Q8 ? want : 0);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotation_and_cache_equal_reference),
        cmocka_unit_test(attention_equals_reference),
        cmocka_unit_test(selection_follows_its_rule),
        cmocka_unit_test(crumb_xe_matrix_attention_of_bytes_equals_reference),
        cmocka_unit_test(crumb_xe_matrix_attention_is_near_and_agrees),
    };
    small = getenv("CRUMB_XE_SMALL") != NULL;
    return crumb_xe_run_tests(&crumb_xe_tested, tests, sizeof tests / sizeof *tests);
}
