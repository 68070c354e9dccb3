/* Rotation, the KV cache and attention on an OpenCL device against cpu/ref, bit for bit: both types of cache, heads of
 * several sizes, sequences mixed in a batch, prefill and decode. */
#include "cl/registry.h"
#include "cpu/attention.h"
#include "cpu/float.h"
#include "cpu/trial.h"
#include "tests/xe/device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_xe_device device;
static uint64_t seed = 20261123;

enum { MAX_ROWS = 7, N_SEQUENCES = 3, N_CTX = 300, HEAD_BLOCKS = (N_CTX + 15) / 16, LAYER = 1, N_LAYERS = 2 };

typedef struct shape {
    crumb_kv_type type;
    uint32_t head_dim, n_head, n_head_kv, dims;
    crumb_rope_pairing pairing;
} shape;
static const shape shapes[] = {
    {CRUMB_KV_F16, 64, 9, 3, 64, CRUMB_ROPE_NORMAL},   {CRUMB_KV_Q8, 64, 9, 3, 64, CRUMB_ROPE_NORMAL},
    {CRUMB_KV_F16, 128, 4, 1, 128, CRUMB_ROPE_HALVES}, {CRUMB_KV_Q8, 128, 4, 1, 128, CRUMB_ROPE_HALVES},
    {CRUMB_KV_F16, 80, 2, 2, 40, CRUMB_ROPE_HALVES},   {CRUMB_KV_Q8, 80, 2, 2, 40, CRUMB_ROPE_HALVES},
    {CRUMB_KV_F16, 192, 2, 1, 0, CRUMB_ROPE_NORMAL},   {CRUMB_KV_Q8, 24, 3, 1, 24, CRUMB_ROPE_NORMAL},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* Batches: sequence and position of each row. */
static const struct {
    uint32_t n;
    struct {
        uint32_t sequence, position;
    } rows[MAX_ROWS];
} batches[] = {{1, {{1, 0}}},
               {1, {{0, 299}}},
               {3, {{2, 127}, {0, 128}, {1, 5}}},
               {7, {{0, 124}, {0, 125}, {0, 126}, {0, 127}, {0, 128}, {0, 129}, {0, 130}}},
               {6, {{1, 7}, {1, 8}, {2, 255}, {2, 256}, {2, 257}, {0, 0}}}};
enum { N_BATCHES = sizeof batches / sizeof batches[0] };

/* CRUMB_XE_SMALL, for a simulator: every other shape, of both caches, and batches of up to two chunks of keys. */
static bool small;
static bool takes(int index, int batch) {
    return !small || (index % 4 < 2 ? batch == 2 : index == 7 && batch == 0);
}

static float *random_floats(size_t n, float scale) {
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = crumb_random_f32(&seed) * scale;
    return x;
}

static cl_mem batch_buffer(int b) {
    uint32_t batch[4 + 4 * MAX_ROWS] = {batches[b].n, 0, 0, 1};
    for (uint32_t n = 0; n < batches[b].n; n++) {
        batch[4 + 4 * n + 1] = batches[b].rows[n].sequence;
        batch[4 + 4 * n + 2] = batches[b].rows[n].position;
        if (batches[b].rows[n].position >= batch[2]) batch[2] = batches[b].rows[n].position + 1;
    }
    return crumb_xe_buffer(&device, batch, sizeof batch);
}

static cl_kernel kernel_of(const shape *s, const char *file, const char *entry, int rows) {
    char options[200];
    snprintf(options, sizeof options,
             "-D HEAD_DIM=%u -D KV=%d -D N_HEAD=%u -D N_HEAD_KV=%u -D DIMS=%u -D PAIRING=%d -D STORE=1 -D ROWS=%d",
             s->head_dim, s->type == CRUMB_KV_Q8 ? 8 : 16, s->n_head, s->n_head_kv, s->dims,
             s->pairing == CRUMB_ROPE_HALVES, rows);
    return crumb_xe_kernel(&device, file, options, false, entry);
}

static void check_floats(const float *got, const float *want, size_t n, const shape *s, int b, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s, type %d, head_dim %u, batch %d: value %zu is %a, not %a", what, (int)s->type, s->head_dim, b,
                     i, (double)got[i], (double)want[i]);
}

static void check_cache(const char *got, const char *want, size_t n_bytes, const shape *s, const char *what) {
    size_t block = crumb_kv_ops_select(s->type, CRUMB_ISA_SCALAR)->block_bytes(s->head_dim);
    for (size_t i = 0; i < n_bytes; i++)
        if (got[i] != want[i])
            fail_msg("%s, type %d, head_dim %u: byte %zu of block %zu is %d, not %d", what, (int)s->type, s->head_dim,
                     i % block, i / block, got[i], want[i]);
}

/* ---- a cache ------------------------------------------------------------------------------------------------------
 */

static const crumb_kv_ops *ops_of(const shape *s) {
    return crumb_kv_ops_select(s->type, CRUMB_ISA_SCALAR);
}

static size_t layer_bytes(const shape *s) {
    return (size_t)N_SEQUENCES * s->n_head_kv * HEAD_BLOCKS * ops_of(s)->block_bytes(s->head_dim);
}

static size_t head_at(const shape *s, uint32_t sequence, uint32_t head) {
    size_t index = ((size_t)LAYER * N_SEQUENCES + sequence) * s->n_head_kv + head;
    return index * HEAD_BLOCKS * ops_of(s)->block_bytes(s->head_dim);
}

static void store(const shape *s, char *keys, char *values, uint32_t sequence, uint32_t head, uint32_t position,
                  const float *k, const float *v) {
    size_t at = head_at(s, sequence, head) + position / 16 * ops_of(s)->block_bytes(s->head_dim);
    ops_of(s)->store(k, v, s->head_dim, position % 16, keys + at, values + at);
}

/* Every position of every sequence. */
static void fill_cache(const shape *s, char *keys, char *values) {
    for (uint32_t sequence = 0; sequence < N_SEQUENCES; sequence++)
        for (uint32_t head = 0; head < s->n_head_kv; head++)
            for (uint32_t position = 0; position < N_CTX; position++) {
                float *k = random_floats(s->head_dim, 2), *v = random_floats(s->head_dim, 1);
                store(s, keys, values, sequence, head, position, k, v);
                free(k), free(v);
            }
}

/* ---- rotating and storing ------------------------------------------------------------------------------------------
 */

static float *make_table(const shape *s) {
    float *table = random_floats((size_t)N_CTX * (s->dims ? s->dims : 2), 1);
    for (uint32_t position = 0; position < N_CTX; position++)
        for (uint32_t i = 0; i < s->dims / 2; i++) {
            double angle = position * pow(10000, -2.0 * i / s->dims);
            table[(position * (s->dims / 2) + i) * 2] = (float)cos(angle);
            table[(position * (s->dims / 2) + i) * 2 + 1] = (float)sin(angle);
        }
    return table;
}

static void rotate(const shape *s, float *head, const float *table, uint32_t position) {
    float cosines[128], sines[128];
    for (uint32_t i = 0; i < s->dims / 2; i++) {
        cosines[i] = table[(position * (s->dims / 2) + i) * 2];
        sines[i] = table[(position * (s->dims / 2) + i) * 2 + 1];
    }
    crumb_float_ops__ref.rope(head, cosines, sines, s->dims, s->pairing);
}

static void compare_rope(const shape *s, int b) {
    uint32_t n = batches[b].n;
    size_t n_q = (size_t)n * s->n_head * s->head_dim, n_k = (size_t)n * s->n_head_kv * s->head_dim;
    size_t cache_bytes = N_LAYERS * layer_bytes(s);
    float *q = random_floats(n_q, 3), *k = random_floats(n_k, 3), *v = random_floats(n_k, 3), *table = make_table(s);
    float *got = random_floats(n_q, 1);
    char *keys = calloc(1, cache_bytes), *values = calloc(1, cache_bytes), *got_cache = malloc(cache_bytes);
    cl_mem batch = batch_buffer(b), bk = crumb_xe_buffer(&device, k, n_k * 4),
           bq = crumb_xe_buffer(&device, q, n_q * 4);
    cl_mem bv = crumb_xe_buffer(&device, v, n_k * 4),
           bt = crumb_xe_buffer(&device, table, (size_t)N_CTX * (s->dims ? s->dims : 2) * 4);
    cl_mem bkeys = crumb_xe_buffer(&device, keys, cache_bytes), bvalues = crumb_xe_buffer(&device, values, cache_bytes);
    cl_kernel kernel = kernel_of(s, "rope.cl", "rope_store", 1);
    crumb_xe_args(kernel, 0, "bbbbbbbou", batch, bq, bk, bv, bt, bkeys, bvalues, (uint64_t)layer_bytes(s) * LAYER,
                  (uint32_t)HEAD_BLOCKS);
    crumb_xe_run(&device, kernel, 64, s->n_head + s->n_head_kv, n + 2, 1);

    for (uint32_t r = 0; r < n; r++) {
        uint32_t position = batches[b].rows[r].position;
        for (uint32_t h = 0; h < s->n_head; h++)
            rotate(s, q + ((size_t)r * s->n_head + h) * s->head_dim, table, position);
        for (uint32_t h = 0; h < s->n_head_kv; h++) {
            size_t at = ((size_t)r * s->n_head_kv + h) * s->head_dim;
            rotate(s, k + at, table, position);
            store(s, keys, values, batches[b].rows[r].sequence, h, position, k + at, v + at);
        }
    }
    crumb_xe_read(&device, bq, got, n_q * 4);
    check_floats(got, q, n_q, s, b, "q");
    crumb_xe_read(&device, bk, got, n_k * 4);
    check_floats(got, k, n_k, s, b, "k");
    crumb_xe_read(&device, bkeys, got_cache, cache_bytes);
    check_cache(got_cache, keys, cache_bytes, s, "keys");
    crumb_xe_read(&device, bvalues, got_cache, cache_bytes);
    check_cache(got_cache, values, cache_bytes, s, "values");
    cl_mem all[] = {batch, bq, bk, bv, bt, bkeys, bvalues};
    for (int i = 0; i < 7; i++) clReleaseMemObject(all[i]);
    clReleaseKernel(kernel);
    free(q), free(k), free(v), free(table), free(got), free(keys), free(values), free(got_cache);
}

static void rotation_and_cache_equal_reference(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int b = 0; b < N_BATCHES; b++)
            if (takes(i, b)) compare_rope(&shapes[i], b);
}

/* ---- attention
 * -------------------------------------------------------------------------------------------------------- */

/* One query over all its keys, chunk by chunk: the sequence of cpu/attention.h. */
static void attend(const shape *s, const char *keys, const char *values, const float *q, uint32_t position, float scale,
                   float *out) {
    enum { CHUNK = CRUMB_ATTENTION_CHUNK };
    const crumb_kv_ops *ops = ops_of(s);
    const crumb_float_ops *floats = &crumb_float_ops__ref;
    uint32_t query[1024], dim = s->head_dim;
    float p[CHUNK], o[256], m = -INFINITY, l = 0, sum;
    ops->prepare(q, 1, dim, query);
    memset(out, 0, dim * sizeof *out);
    for (uint32_t first = 0; first <= position; first += CHUNK) {
        uint32_t n = position - first + 1 < CHUNK ? position - first + 1 : CHUNK;
        size_t at = first / 16 * ops->block_bytes(dim);
        ops->scores(query, 1, dim, keys + at, (n + 15) / 16, keys, p);
        float own = floats->attention_softmax(p, n, scale, &sum), most = own > m ? own : m;
        ops->values(p, 1, &n, dim, values + at, keys, o);
        float old = floats->exp(m - most), new = floats->exp(own - most);
        m = most;
        l = l * old + sum * new;
        floats->attention_merge(out, old, o, new, dim);
    }
    float inverse = 1 / l;
    for (uint32_t d = 0; d < dim; d++) out[d] *= inverse;
}

static void compare_attention(const shape *s, int b, const char *keys, const char *values, cl_mem bkeys,
                              cl_mem bvalues) {
    uint32_t n = batches[b].n, chunks = (N_CTX + 127) / 128;
    size_t n_q = (size_t)n * s->n_head * s->head_dim;
    size_t n_partials = (size_t)n * s->n_head * chunks * (s->head_dim + 2);
    float *q = random_floats(n_q, 2), *want = random_floats(n_q, 1), *got = random_floats(n_q, 1), scale = 0.15f;
    for (uint32_t i = 0; i < n * s->n_head; i++) {
        size_t at = head_at(s, batches[b].rows[i / s->n_head].sequence, i % s->n_head / (s->n_head / s->n_head_kv));
        attend(s, keys + at, values + at, q + (size_t)i * s->head_dim, batches[b].rows[i / s->n_head].position, scale,
               want + (size_t)i * s->head_dim);
    }
    cl_mem batch = batch_buffer(b), bq = crumb_xe_buffer(&device, q, n_q * 4);
    cl_mem partials = crumb_xe_buffer(&device, NULL, n_partials * 4), out = crumb_xe_buffer(&device, NULL, n_q * 4);
    uint64_t offset = (uint64_t)layer_bytes(s) * LAYER;
    cl_kernel split = kernel_of(s, "attention.cl", "attention_split", 1);
    crumb_xe_args(split, 0, "bbbboufb", batch, bq, bkeys, bvalues, offset, (uint32_t)HEAD_BLOCKS, (double)scale,
                  partials);
    crumb_xe_run(&device, split, 128, chunks, s->n_head_kv, n + 1);
    cl_kernel merge = kernel_of(s, "attention.cl", "attention_merge", 1);
    crumb_xe_args(merge, 0, "bubb", batch, chunks, partials, out);
    crumb_xe_run(&device, merge, 128, s->n_head, n + 1, 1);
    crumb_xe_read(&device, out, got, n_q * 4);
    check_floats(got, want, n_q, s, b, "decode");

    int rows = 12 / (int)(s->n_head / s->n_head_kv);
    cl_kernel whole = kernel_of(s, "attention.cl", "attention_whole", rows);
    crumb_xe_args(whole, 0, "bbbboufb", batch, bq, bkeys, bvalues, offset, (uint32_t)HEAD_BLOCKS, (double)scale, out);
    crumb_xe_run(&device, whole, 128, s->n_head_kv, (n + (uint32_t)rows) / (uint32_t)rows + 1, 1);
    crumb_xe_read(&device, out, got, n_q * 4);
    check_floats(got, want, n_q, s, b, "prefill");
    cl_mem all[] = {batch, bq, partials, out};
    for (int i = 0; i < 4; i++) clReleaseMemObject(all[i]);
    clReleaseKernel(split), clReleaseKernel(merge), clReleaseKernel(whole);
    free(q), free(want), free(got);
}

static void attention_equals_reference(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        const shape *s = &shapes[i];
        size_t n_bytes = N_LAYERS * layer_bytes(s);
        char *keys = calloc(1, n_bytes), *values = calloc(1, n_bytes);
        fill_cache(s, keys, values);
        cl_mem bkeys = crumb_xe_buffer(&device, keys, n_bytes), bvalues = crumb_xe_buffer(&device, values, n_bytes);
        for (int b = 0; b < N_BATCHES; b++)
            if (takes(i, b)) compare_attention(s, b, keys, values, bkeys, bvalues);
        clReleaseMemObject(bkeys);
        clReleaseMemObject(bvalues);
        free(keys), free(values);
    }
}

int main(void) {
    small = getenv("CRUMB_XE_SMALL") != NULL;
    if (!crumb_xe_open(&device)) {
        fprintf(stderr, "skipped: no OpenCL device\n");
        return 77;
    }
    printf("on %s\n", device.name);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotation_and_cache_equal_reference),
        cmocka_unit_test(attention_equals_reference),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    crumb_xe_close(&device);
    return failed;
}
