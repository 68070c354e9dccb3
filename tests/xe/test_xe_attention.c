/* Rotation, the KV cache and attention on an OpenCL device against cpu/ref, bit for bit but on matrix instructions:
 * both types of cache, heads of several sizes, sequences mixed in a batch, prefill and decode. */
#include "cl/registry.h"
#include "cpu/attention.h"
#include "cpu/float.h"
#include "cpu/trial.h"
#include "host/base/half.h"
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
static const float NORM_EPS = 1e-5f;
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

/* Norms a head that has weights, and rotates it. */
static void rotate(const shape *s, float *head, const float *weight, const float *table, uint32_t position) {
    float cosines[128], sines[128];
    if (weight) crumb_float_ops__ref.rms_norm(head, weight, s->head_dim, NORM_EPS, head);
    for (uint32_t i = 0; i < s->dims / 2; i++) {
        cosines[i] = table[(position * (s->dims / 2) + i) * 2];
        sines[i] = table[(position * (s->dims / 2) + i) * 2 + 1];
    }
    crumb_float_ops__ref.rope(head, cosines, sines, s->dims, s->pairing);
}

/* norms: whose heads go through a norm first, 1: queries', 2: keys', 3: both. */
static void compare_rope(const shape *s, int b, int norms) {
    uint32_t n = batches[b].n;
    size_t n_q = (size_t)n * s->n_head * s->head_dim, n_k = (size_t)n * s->n_head_kv * s->head_dim;
    size_t cache_bytes = N_LAYERS * layer_bytes(s);
    float *q = random_floats(n_q, 3), *k = random_floats(n_k, 3), *v = random_floats(n_k, 3), *table = make_table(s);
    float *got = random_floats(n_q, 1), *weights = random_floats((size_t)2 * s->head_dim, 2);
    const float *q_norm = norms & 1 ? weights : NULL, *k_norm = norms & 2 ? weights + s->head_dim : NULL;
    char *keys = calloc(1, cache_bytes), *values = calloc(1, cache_bytes), *got_cache = malloc(cache_bytes);
    cl_mem batch = batch_buffer(b), bk = crumb_xe_buffer(&device, k, n_k * 4),
           bq = crumb_xe_buffer(&device, q, n_q * 4);
    cl_mem bv = crumb_xe_buffer(&device, v, n_k * 4),
           bt = crumb_xe_buffer(&device, table, (size_t)N_CTX * (s->dims ? s->dims : 2) * 4);
    cl_mem bkeys = crumb_xe_buffer(&device, keys, cache_bytes), bvalues = crumb_xe_buffer(&device, values, cache_bytes);
    cl_mem bq_norm = q_norm ? crumb_xe_buffer(&device, q_norm, s->head_dim * 4) : NULL,
           bk_norm = k_norm ? crumb_xe_buffer(&device, k_norm, s->head_dim * 4) : NULL;
    cl_kernel kernel = kernel_of(s, "rope.cl", "rope_store", 1);
    crumb_xe_args(kernel, 0, "bbbbbbboubfbf", batch, bq, bk, bv, bt, bkeys, bvalues, (uint64_t)layer_bytes(s) * LAYER,
                  (uint32_t)HEAD_BLOCKS, bq_norm, (double)NORM_EPS, bk_norm, (double)NORM_EPS);
    crumb_xe_run(&device, kernel, 64, s->n_head + s->n_head_kv, n + 2, 1);

    for (uint32_t r = 0; r < n; r++) {
        uint32_t position = batches[b].rows[r].position;
        for (uint32_t h = 0; h < s->n_head; h++)
            rotate(s, q + ((size_t)r * s->n_head + h) * s->head_dim, q_norm, table, position);
        for (uint32_t h = 0; h < s->n_head_kv; h++) {
            size_t at = ((size_t)r * s->n_head_kv + h) * s->head_dim;
            rotate(s, k + at, k_norm, table, position);
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
    cl_mem all[] = {batch, bq, bk, bv, bt, bkeys, bvalues, bq_norm, bk_norm};
    crumb_xe_release(9, all);
    clReleaseKernel(kernel);
    free(q), free(k), free(v), free(table), free(got), free(weights), free(keys), free(values), free(got_cache);
}

static void rotation_and_cache_equal_reference(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int b = 0; b < N_BATCHES; b++)
            for (int norms = 0; norms <= 3 && takes(i, b); norms += 1 + b % 3) compare_rope(&shapes[i], b, norms);
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
        float own = crumb_softmax__ref(p, n, scale, &sum), most = own > m ? own : m;
        ops->values(p, 1, &n, dim, values + at, keys, o);
        float old = floats->exp(m - most), new = floats->exp(own - most);
        m = most;
        l = l * old + sum * new;
        floats->attention_merge(out, old, o, new, dim);
    }
    float inverse = 1 / l;
    for (uint32_t d = 0; d < dim; d++) out[d] *= inverse;
}

static double half_at(const char *block, size_t index) {
    uint16_t bits;
    memcpy(&bits, block + index * sizeof bits, sizeof bits);
    return (double)crumb_f16_to_f32(bits);
}

/* The same in double precision over an f16 cache, and its softmax over all keys at once. */
static void attend_exactly(const shape *s, const char *keys, const char *values, const float *q, uint32_t position,
                           float scale, double *out) {
    const size_t block_bytes = ops_of(s)->block_bytes(s->head_dim);
    double scores[N_CTX], most = -INFINITY, sum = 0;
    for (uint32_t j = 0; j <= position; j++) {
        scores[j] = 0;
        for (uint32_t d = 0; d < s->head_dim; d++)
            scores[j] += (double)q[d] * half_at(keys + j / 16 * block_bytes, d * 16 + j % 16);
        scores[j] *= (double)scale;
        most = fmax(most, scores[j]);
    }
    for (uint32_t d = 0; d < s->head_dim; d++) out[d] = 0;
    for (uint32_t j = 0; j <= position; j++) {
        const double p = exp(scores[j] - most);
        sum += p;
        for (uint32_t d = 0; d < s->head_dim; d++)
            out[d] += p * half_at(values + j / 16 * block_bytes, j % 16 * s->head_dim + d);
    }
    for (uint32_t d = 0; d < s->head_dim; d++) out[d] /= sum;
}

/* A batch's queries, and what they make of the cache. */
typedef struct attention_case {
    const shape *s;
    int b;
    uint32_t n, chunks;
    size_t n_q;
    float *q, *want, *got, scale;
    double *exact; /* NULL: of a cache that is not f16 */
    cl_mem batch, bq, bq_bf16, bkeys, bvalues, partials, out;
    bool bf16; /* what kernels read and write now; queries fit it if they did when the case was made */
} attention_case;

static float rounded(float x) {
    return crumb_bf16_to_f32(crumb_f32_to_bf16(x));
}

static cl_mem bf16_buffer(const float *x, size_t n) {
    uint16_t *narrow = malloc(n * sizeof *narrow);
    assert_non_null(narrow);
    for (size_t i = 0; i < n; i++) narrow[i] = crumb_f32_to_bf16(x[i]);
    cl_mem buffer = crumb_xe_buffer(&device, narrow, n * sizeof *narrow);
    free(narrow);
    return buffer;
}

static void make_case(attention_case *c, const shape *s, int b, const char *keys, const char *values, cl_mem bkeys,
                      cl_mem bvalues, bool bf16) {
    *c = (attention_case){
        .s = s, .b = b, .n = batches[b].n, .scale = 0.15f, .bkeys = bkeys, .bvalues = bvalues, .bf16 = bf16};
    for (uint32_t r = 0; r < c->n; r++)
        if (batches[b].rows[r].position / 128 >= c->chunks) c->chunks = batches[b].rows[r].position / 128 + 1;
    c->n_q = (size_t)c->n * s->n_head * s->head_dim;
    c->q = random_floats(c->n_q, 2), c->want = random_floats(c->n_q, 1), c->got = random_floats(c->n_q, 1);
    c->exact = s->type == CRUMB_KV_F16 ? calloc(c->n_q, sizeof *c->exact) : NULL;
    for (uint32_t i = 0; i < c->n * s->n_head; i++) {
        const uint32_t sequence = batches[b].rows[i / s->n_head].sequence,
                       position = batches[b].rows[i / s->n_head].position;
        size_t at = head_at(s, sequence, i % s->n_head / (s->n_head / s->n_head_kv)), own = (size_t)i * s->head_dim;
        for (uint32_t d = 0; d < s->head_dim && i % 5 == 3; d++) c->q[own + d] *= i % 2 ? 0 : 1e-30f;
        for (uint32_t d = 0; d < s->head_dim && bf16; d++) c->q[own + d] = rounded(c->q[own + d]);
        attend(s, keys + at, values + at, c->q + own, position, c->scale, c->want + own);
        if (c->exact) attend_exactly(s, keys + at, values + at, c->q + own, position, c->scale, c->exact + own);
    }
    c->batch = batch_buffer(b);
    c->bq = crumb_xe_buffer(&device, c->q, c->n_q * 4);
    c->bq_bf16 = bf16_buffer(c->q, c->n_q);
    c->partials = crumb_xe_buffer(&device, NULL, (size_t)c->n * s->n_head * c->chunks * (s->head_dim + 2) * 4);
    c->out = crumb_xe_buffer(&device, NULL, c->n_q * 4);
}

static void free_case(attention_case *c) {
    cl_mem all[] = {c->batch, c->bq, c->bq_bf16, c->partials, c->out};
    for (int i = 0; i < 5; i++) clReleaseMemObject(all[i]);
    free(c->q), free(c->want), free(c->got), free(c->exact);
}

/* Intel's runtime for CPUs takes seconds to optimize programs of matrix instructions, minutes over int8 caches; f16's
 * are optimized in tests/cl. */
static cl_kernel attention_kernel(const attention_case *c, const crumb_cl_kernel *row, uint32_t rows) {
    static const char quickly[] = " -cl-opt-disable";
    char options[CRUMB_CL_OPTIONS_MAX + sizeof quickly];
    const crumb_cl_heads heads = {c->s->type, c->s->head_dim, c->s->n_head, c->s->n_head_kv};
    crumb_cl_attention_options(row, &heads, rows, options);
    if (row->sub_group) strcat(options, quickly);
    return crumb_xe_kernel(&device, row->file, options, row->sub_group != 0, row->entry);
}

static cl_mem queries_of(const attention_case *c) {
    return c->bf16 ? c->bq_bf16 : c->bq;
}

/* Into c->got. */
static void read_results(attention_case *c) {
    uint16_t *narrow = malloc(c->n_q * sizeof *narrow);
    assert_non_null(narrow);
    if (c->bf16)
        crumb_xe_read(&device, c->out, narrow, c->n_q * sizeof *narrow);
    else
        crumb_xe_read(&device, c->out, c->got, c->n_q * sizeof *c->got);
    for (size_t i = 0; c->bf16 && i < c->n_q; i++) c->got[i] = crumb_bf16_to_f32(narrow[i]);
    free(narrow);
}

/* Split over the keys and merged; one chunk needs no merging. Into c->got. */
static void run_split(attention_case *c, const crumb_cl_kernel *row) {
    const uint64_t offset = (uint64_t)layer_bytes(c->s) * LAYER;
    cl_kernel split = attention_kernel(c, row, 1),
              merge = attention_kernel(c, crumb_cl_kernel_of(CRUMB_CL_ATTENTION_MERGE, c->bf16), 1);
    crumb_xe_args(split, 0, "bbbboufbb", c->batch, queries_of(c), c->bkeys, c->bvalues, offset, (uint32_t)HEAD_BLOCKS,
                  (double)c->scale, c->partials, c->out);
    crumb_xe_run(&device, split, row->local_size, c->chunks, c->s->n_head_kv, c->n + 1);
    crumb_xe_args(merge, 0, "bubb", c->batch, c->chunks, c->partials, c->out);
    if (c->chunks > 1) crumb_xe_run(&device, merge, 128, c->s->n_head, c->n + 1, 1);
    read_results(c);
    clReleaseKernel(split), clReleaseKernel(merge);
}

/* A work-group takes `rows` through all keys. Into c->got. */
static void run_whole(attention_case *c, const crumb_cl_kernel *row, uint32_t rows) {
    cl_kernel whole = attention_kernel(c, row, rows);
    crumb_xe_args(whole, 0, "bbbboufb", c->batch, queries_of(c), c->bkeys, c->bvalues,
                  (uint64_t)layer_bytes(c->s) * LAYER, (uint32_t)HEAD_BLOCKS, (double)c->scale, c->out);
    crumb_xe_run(&device, whole, row->local_size, c->s->n_head_kv, (c->n + rows) / rows + 1, 1);
    read_results(c);
    clReleaseKernel(whole);
}

static void compare_attention(attention_case *c) {
    run_split(c, crumb_cl_kernel_of(CRUMB_CL_ATTENTION_SPLIT, false));
    check_floats(c->got, c->want, c->n_q, c->s, c->b, "decode");
    run_whole(c, crumb_cl_kernel_of(CRUMB_CL_ATTENTION_WHOLE, false), 12 / (c->s->n_head / c->s->n_head_kv));
    check_floats(c->got, c->want, c->n_q, c->s, c->b, "prefill");
}

/* Distances of results from exact ones. */
typedef struct distance {
    double most, squares;
    size_t n;
} distance;

static void add_distance(const attention_case *c, const float *y, distance *to) {
    for (size_t i = 0; i < c->n_q; i++) {
        const double off = fabs((double)y[i] - c->exact[i]);
        to->most = fmax(to->most, off);
        to->squares += off * off;
    }
    to->n += c->n_q;
}

/* The matrix instructions' results are near, and the same for all ways and numbers of rows; the largest error, which
 * stands beside values of up to 1. */
static double compare_matrix_attention(attention_case *c, uint32_t sub_group, distance *cpu, distance *matrix) {
    const crumb_cl_heads heads = {c->s->type, c->s->head_dim, c->s->n_head, c->s->n_head_kv};
    const crumb_cl_target target = {
        .rung = CRUMB_CL_DPAS, .sub_group = sub_group, .local_bytes = 64 << 10, .max_work_group = 1024};
    const crumb_cl_kernel *split = crumb_cl_attention_select(CRUMB_CL_ATTENTION_SPLIT, &heads, &target);
    const crumb_cl_kernel *whole = crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &heads, &target);
    assert_true(split->sub_group == sub_group && whole->sub_group == sub_group);
    double most = 0;
    run_split(c, split);
    for (size_t i = 0; i < c->n_q; i++) {
        const double off = fabs((double)c->got[i] - (double)c->want[i]);
        if (!(off <= 0x1p-17))
            fail_msg("%s, head_dim %u, batch %d: value %zu is %g, not %g", split->name, c->s->head_dim, c->b, i,
                     (double)c->got[i], (double)c->want[i]);
        most = off > most ? off : most;
    }
    add_distance(c, c->want, cpu);
    add_distance(c, c->got, matrix);
    memcpy(c->want, c->got, c->n_q * sizeof *c->got);
    const uint32_t rows = crumb_cl_attention_rows(whole, &heads, &target);
    run_whole(c, whole, rows);
    check_floats(c->got, c->want, c->n_q, c->s, c->b, whole->name);
    if (c->s->head_dim == 64 || c->s->head_dim == 128) {
        run_whole(c, whole, 2);
        check_floats(c->got, c->want, c->n_q, c->s, c->b, whole->name);
    }
    return most;
}

/* In bf16: what the same kernel makes of the same queries in f32, rounded; so its distance from exact results is at
 * most 2^-8 of them, half a last place, and 2^-16. The largest distance in terms of that. */
static double compare_bf16_attention(attention_case *c, uint32_t sub_group) {
    const crumb_cl_heads heads = {c->s->type, c->s->head_dim, c->s->n_head, c->s->n_head_kv};
    crumb_cl_target target = {
        .rung = CRUMB_CL_DPAS, .sub_group = sub_group, .local_bytes = 64 << 10, .max_work_group = 1024};
    c->bf16 = false;
    run_split(c, crumb_cl_attention_select(CRUMB_CL_ATTENTION_SPLIT, &heads, &target));
    for (size_t i = 0; i < c->n_q; i++) c->want[i] = rounded(c->got[i]);
    c->bf16 = target.bf16 = true;
    const crumb_cl_kernel *split = crumb_cl_attention_select(CRUMB_CL_ATTENTION_SPLIT, &heads, &target);
    const crumb_cl_kernel *whole = crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &heads, &target);
    assert_true(split->bf16 && whole->bf16 && split->sub_group == sub_group && whole->sub_group == sub_group);
    run_split(c, split);
    check_floats(c->got, c->want, c->n_q, c->s, c->b, split->name);
    run_whole(c, whole, crumb_cl_attention_rows(whole, &heads, &target));
    check_floats(c->got, c->want, c->n_q, c->s, c->b, whole->name);
    double most = 0;
    for (size_t i = 0; i < c->n_q; i++) {
        const double off = fabs((double)c->got[i] - c->exact[i]) / (0x1p-8 * fabs(c->exact[i]) + 0x1p-16);
        if (!(off <= 1))
            fail_msg("%s, head_dim %u, batch %d: value %zu is %g, not %g", whole->name, c->s->head_dim, c->b, i,
                     (double)c->got[i], c->exact[i]);
        most = fmax(most, off);
    }
    return most;
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
            if (takes(i, b)) {
                attention_case c;
                make_case(&c, s, b, keys, values, bkeys, bvalues, false);
                compare_attention(&c);
                free_case(&c);
            }
        clReleaseMemObject(bkeys);
        clReleaseMemObject(bvalues);
        free(keys), free(values);
    }
}

static void matrix_attention_is_near_and_agrees(void **state) {
    (void)state;
    static const shape heads[] = {{CRUMB_KV_F16, 64, 9, 3, 0, CRUMB_ROPE_NORMAL},
                                  {CRUMB_KV_F16, 128, 4, 1, 0, CRUMB_ROPE_NORMAL},
                                  {CRUMB_KV_F16, 256, 12, 2, 0, CRUMB_ROPE_NORMAL},
                                  {CRUMB_KV_F16, 80, 2, 2, 0, CRUMB_ROPE_NORMAL}};
    double most = 0, most_bf16 = 0;
    distance cpu = {0}, matrix = {0};
    if (!device.sub_groups) skip();
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        const shape *s = &heads[i];
        size_t n_bytes = N_LAYERS * layer_bytes(s);
        char *keys = calloc(1, n_bytes), *values = calloc(1, n_bytes);
        fill_cache(s, keys, values);
        cl_mem bkeys = crumb_xe_buffer(&device, keys, n_bytes), bvalues = crumb_xe_buffer(&device, values, n_bytes);
        for (int b = 0; b < N_BATCHES; b++) { /* programs take seconds to build */
            attention_case c;
            make_case(&c, s, b, keys, values, bkeys, bvalues, false);
            most = fmax(most, compare_matrix_attention(&c, i % 2 ? 8 : 16, &cpu, &matrix));
            free_case(&c);
            if (s->head_dim != 64 && s->head_dim != 128) continue;
            make_case(&c, s, b, keys, values, bkeys, bvalues, true);
            most_bf16 = fmax(most_bf16, compare_bf16_attention(&c, i % 2 ? 8 : 16));
            free_case(&c);
        }
        clReleaseMemObject(bkeys);
        clReleaseMemObject(bvalues);
        free(keys), free(values);
    }
    const double cpu_rms = sqrt(cpu.squares / (double)cpu.n), matrix_rms = sqrt(matrix.squares / (double)matrix.n);
    print_message(
        "the largest distance from the CPU is %.2g; from exact results %.2g (rms %.2g), the CPU's %.2g (%.2g)\n", most,
        matrix.most, matrix_rms, cpu.most, cpu_rms);
    print_message(
        "in bf16 the largest distance from exact results is %.2f of what is allowed, 2^-8 of them and 2^-16\n",
        most_bf16);
    assert_true(matrix_rms <=
                2 * cpu_rms); /* second terms are rounded too, where the instructions round each product */
}

/* Over a cache of bytes matrix instructions make the reference's bits, in all ways. */
static void compare_exact_matrix_attention(attention_case *c, uint32_t sub_group) {
    const crumb_cl_heads heads = {c->s->type, c->s->head_dim, c->s->n_head, c->s->n_head_kv};
    const crumb_cl_target target = {.rung = CRUMB_CL_DPAS,
                                    .sub_group = sub_group,
                                    .local_bytes = 64 << 10,
                                    .max_work_group = 1024,
                                    .exact = true,
                                    .bf16 = c->bf16};
    const crumb_cl_kernel *split = crumb_cl_attention_select(CRUMB_CL_ATTENTION_SPLIT, &heads, &target);
    const crumb_cl_kernel *whole = crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &heads, &target);
    assert_true(split->sub_group == sub_group && whole->sub_group == sub_group && split->bf16 == c->bf16);
    for (size_t i = 0; c->bf16 && i < c->n_q; i++) c->want[i] = rounded(c->want[i]);
    run_split(c, split);
    check_floats(c->got, c->want, c->n_q, c->s, c->b, split->name);
    run_whole(c, whole, crumb_cl_attention_rows(whole, &heads, &target));
    check_floats(c->got, c->want, c->n_q, c->s, c->b, whole->name);
    if (c->bf16 || c->s->head_dim != 64) return;
    run_whole(c, whole, 2);
    check_floats(c->got, c->want, c->n_q, c->s, c->b, whole->name);
}

static void matrix_attention_of_bytes_equals_reference(void **state) {
    (void)state;
    static const struct {
        shape s;
        uint32_t sub_group;
        bool bf16;
    } cases[] = {{{CRUMB_KV_Q8, 64, 9, 3, 0, CRUMB_ROPE_NORMAL}, 16, true},
                 {{CRUMB_KV_Q8, 64, 9, 3, 0, CRUMB_ROPE_NORMAL}, 8, false},
                 {{CRUMB_KV_Q8, 128, 4, 1, 0, CRUMB_ROPE_NORMAL}, 8, true},
                 {{CRUMB_KV_Q8, 128, 14, 2, 0, CRUMB_ROPE_NORMAL}, 16, false},
                 {{CRUMB_KV_Q8, 256, 12, 2, 0, CRUMB_ROPE_NORMAL}, 16, false},
                 {{CRUMB_KV_Q8, 96, 2, 2, 0, CRUMB_ROPE_NORMAL}, 16, false}};
    if (!device.sub_groups) skip();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const shape *s = &cases[i].s;
        size_t n_bytes = N_LAYERS * layer_bytes(s);
        char *keys = calloc(1, n_bytes), *values = calloc(1, n_bytes);
        fill_cache(s, keys, values);
        cl_mem bkeys = crumb_xe_buffer(&device, keys, n_bytes), bvalues = crumb_xe_buffer(&device, values, n_bytes);
        for (int b = 0; b < N_BATCHES; b++)
            for (int bf16 = 0; bf16 <= cases[i].bf16; bf16++) {
                attention_case c;
                make_case(&c, s, b, keys, values, bkeys, bvalues, bf16);
                compare_exact_matrix_attention(&c, cases[i].sub_group);
                free_case(&c);
            }
        clReleaseMemObject(bkeys);
        clReleaseMemObject(bvalues);
        free(keys), free(values);
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
    small = getenv("CRUMB_XE_SMALL") != NULL;
    if (!crumb_xe_open(&device)) {
        fprintf(stderr, "skipped: no OpenCL device\n");
        return 77;
    }
    printf("on %s\n", device.name);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotation_and_cache_equal_reference),
        cmocka_unit_test(attention_equals_reference),
        cmocka_unit_test(selection_follows_its_rule),
        cmocka_unit_test(matrix_attention_of_bytes_equals_reference),
        cmocka_unit_test(matrix_attention_is_near_and_agrees),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    crumb_xe_close(&device);
    return failed;
}
