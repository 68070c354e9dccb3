#include "tests/xe/attention.h"

#include "cpu/attention.h"
#include "cpu/float.h"
#include "host/base/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

crumb_xe_device crumb_xe_tested;

const crumb_xe_batch crumb_xe_batches[CRUMB_XE_BATCHES] = {
    {1, {{1, 0}}},
    {1, {{0, 299}}},
    {3, {{2, 127}, {0, 128}, {1, 5}}},
    {7, {{0, 124}, {0, 125}, {0, 126}, {0, 127}, {0, 128}, {0, 129}, {0, 130}}},
    {6, {{1, 7}, {1, 8}, {2, 255}, {2, 256}, {2, 257}, {0, 0}}},
    {2, {{2, 4299}, {1, 130}}}};

cl_mem crumb_xe_batch_buffer(int b) {
    uint32_t batch[4 + 4 * CRUMB_XE_MAX_ROWS] = {crumb_xe_batches[b].n, 0, 0, 1};
    for (uint32_t n = 0; n < crumb_xe_batches[b].n; n++) {
        batch[4 + 4 * n + 1] = crumb_xe_batches[b].rows[n].sequence;
        batch[4 + 4 * n + 2] = crumb_xe_batches[b].rows[n].position;
        if (crumb_xe_batches[b].rows[n].position >= batch[2]) batch[2] = crumb_xe_batches[b].rows[n].position + 1;
    }
    return crumb_xe_buffer(&crumb_xe_tested, batch, sizeof batch);
}

void crumb_xe_check_floats(const float *got, const float *want, size_t n, const crumb_xe_heads *s, int b,
                           const char *what) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s, type %d, head_dim %u, batch %d: value %zu is %a, not %a", what, (int)s->type, s->head_dim, b,
                     i, (double)got[i], (double)want[i]);
}

/* ---- a cache ------------------------------------------------------------------------------------------------ */

static const crumb_kv_ops *ops_of(const crumb_xe_heads *s) {
    return crumb_kv_ops_select(s->type, CRUMB_ISA_SCALAR);
}

size_t crumb_xe_layer_bytes(const crumb_xe_heads *s) {
    return (size_t)CRUMB_XE_SEQUENCES * s->n_head_kv * CRUMB_XE_HEAD_BLOCKS * ops_of(s)->block_bytes(s->head_dim);
}

static size_t head_at(const crumb_xe_heads *s, uint32_t sequence, uint32_t head) {
    size_t index = ((size_t)CRUMB_XE_LAYER * CRUMB_XE_SEQUENCES + sequence) * s->n_head_kv + head;
    return index * CRUMB_XE_HEAD_BLOCKS * ops_of(s)->block_bytes(s->head_dim);
}

void crumb_xe_store(const crumb_xe_heads *s, char *keys, char *values, uint32_t sequence, uint32_t head,
                    uint32_t position, const float *k, const float *v) {
    size_t at = head_at(s, sequence, head) + position / 16 * ops_of(s)->block_bytes(s->head_dim);
    ops_of(s)->store(k, v, s->head_dim, position % 16, keys + at, values + at);
}

/* Every position of every sequence. */
static void fill_cache(const crumb_xe_heads *s, char *keys, char *values) {
    for (uint32_t sequence = 0; sequence < CRUMB_XE_SEQUENCES; sequence++)
        for (uint32_t head = 0; head < s->n_head_kv; head++)
            for (uint32_t position = 0; position < CRUMB_XE_CTX; position++) {
                float *k = crumb_xe_random_floats(s->head_dim, 2), *v = crumb_xe_random_floats(s->head_dim, 1);
                crumb_xe_store(s, keys, values, sequence, head, position, k, v);
                free(k), free(v);
            }
}

void crumb_xe_cache_create(crumb_xe_cache *out, const crumb_xe_heads *s) {
    const size_t n_bytes = CRUMB_XE_LAYERS * crumb_xe_layer_bytes(s);
    *out = (crumb_xe_cache){.s = s, .keys = calloc(1, n_bytes), .values = calloc(1, n_bytes)};
    assert_true(out->keys && out->values);
    fill_cache(s, out->keys, out->values);
    out->bkeys = crumb_xe_buffer(&crumb_xe_tested, out->keys, n_bytes);
    out->bvalues = crumb_xe_buffer(&crumb_xe_tested, out->values, n_bytes);
}

void crumb_xe_cache_destroy(crumb_xe_cache *cache) {
    clReleaseMemObject(cache->bkeys);
    clReleaseMemObject(cache->bvalues);
    free(cache->keys), free(cache->values);
}

/* ---- what queries make of it -------------------------------------------------------------------------------- */

/* One query over all its keys, chunk by chunk: the sequence of cpu/attention.h. */
static void attend(const crumb_xe_heads *s, const char *keys, const char *values, const float *q, uint32_t position,
                   float scale, float *out) {
    enum { CHUNK = CRUMB_ATTENTION_CHUNK };
    const crumb_kv_ops *ops = ops_of(s);
    const crumb_float_ops *floats = &crumb_float_ops__ref;
    uint32_t query[1024], dim = s->head_dim;
    float p[CHUNK], o[256], m = -INFINITY, l = 0, own, sum;
    ops->prepare(q, 1, dim, query);
    memset(out, 0, dim * sizeof *out);
    for (uint32_t first = 0; first <= position; first += CHUNK) {
        uint32_t n = position - first + 1 < CHUNK ? position - first + 1 : CHUNK;
        size_t at = first / 16 * ops->block_bytes(dim);
        ops->scores(query, 1, dim, keys + at, (n + 15) / 16, keys, p);
        crumb_softmax__ref(p, 1, &n, scale, &own, &sum);
        float most = own > m ? own : m;
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
static void attend_exactly(const crumb_xe_heads *s, const char *keys, const char *values, const float *q,
                           uint32_t position, float scale, double *out) {
    const size_t block_bytes = ops_of(s)->block_bytes(s->head_dim);
    double scores[CRUMB_XE_CTX], most = -INFINITY, sum = 0;
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

static const uint32_t no_arrived[256]; /* [row][head] of keys */

static size_t partial_bytes(const crumb_xe_attention *c) {
    return (size_t)c->n * c->s->n_head * c->chunks * (c->s->head_dim + 2) * sizeof(float);
}

static cl_mem bf16_buffer(const float *x, size_t n) {
    uint16_t *narrow = malloc(n * sizeof *narrow);
    assert_non_null(narrow);
    for (size_t i = 0; i < n; i++) narrow[i] = crumb_f32_to_bf16(x[i]);
    cl_mem buffer = crumb_xe_buffer(&crumb_xe_tested, narrow, n * sizeof *narrow);
    free(narrow);
    return buffer;
}

void crumb_xe_attention_create(crumb_xe_attention *c, const crumb_xe_cache *cache, int b, bool bf16) {
    const crumb_xe_heads *s = cache->s;
    *c = (crumb_xe_attention){.cache = cache, .s = s, .b = b, .n = crumb_xe_batches[b].n, .scale = 0.15f, .bf16 = bf16};
    for (uint32_t r = 0; r < c->n; r++)
        if (crumb_xe_batches[b].rows[r].position / 128 >= c->chunks)
            c->chunks = crumb_xe_batches[b].rows[r].position / 128 + 1;
    c->n_q = (size_t)c->n * s->n_head * s->head_dim;
    c->q = crumb_xe_random_floats(c->n_q, 2), c->want = crumb_xe_random_floats(c->n_q, 1),
    c->got = crumb_xe_random_floats(c->n_q, 1);
    c->exact = s->type == CRUMB_KV_F16 ? calloc(c->n_q, sizeof *c->exact) : NULL;
    for (uint32_t i = 0; i < c->n * s->n_head; i++) {
        const uint32_t sequence = crumb_xe_batches[b].rows[i / s->n_head].sequence,
                       position = crumb_xe_batches[b].rows[i / s->n_head].position;
        size_t at = head_at(s, sequence, i % s->n_head / (s->n_head / s->n_head_kv)), own = (size_t)i * s->head_dim;
        for (uint32_t d = 0; d < s->head_dim && i % 5 == 3; d++) c->q[own + d] *= i % 2 ? 0 : 1e-30f;
        for (uint32_t d = 0; d < s->head_dim && bf16; d++)
            c->q[own + d] = crumb_bf16_to_f32(crumb_f32_to_bf16(c->q[own + d]));
        attend(s, cache->keys + at, cache->values + at, c->q + own, position, c->scale, c->want + own);
        if (c->exact)
            attend_exactly(s, cache->keys + at, cache->values + at, c->q + own, position, c->scale, c->exact + own);
    }
    c->batch = crumb_xe_batch_buffer(b);
    c->bq = crumb_xe_buffer(&crumb_xe_tested, c->q, c->n_q * 4);
    c->bq_bf16 = bf16_buffer(c->q, c->n_q);
    c->partials = crumb_xe_buffer(&crumb_xe_tested, NULL, partial_bytes(c));
    assert_true(c->n * s->n_head_kv <= sizeof no_arrived / sizeof *no_arrived);
    c->arrived = crumb_xe_buffer(&crumb_xe_tested, no_arrived, sizeof no_arrived);
    c->out = crumb_xe_buffer(&crumb_xe_tested, NULL, c->n_q * 4);
}

void crumb_xe_attention_destroy(crumb_xe_attention *c) {
    crumb_xe_release(6, (cl_mem[]){c->batch, c->bq, c->bq_bf16, c->partials, c->arrived, c->out});
    free(c->q), free(c->want), free(c->got), free(c->exact);
}

/* Intel's runtime for CPUs takes seconds to optimize programs of matrix instructions, minutes over int8 caches; f16's
 * are optimized in tests/cl. */
static cl_kernel attention_kernel(const crumb_xe_attention *c, const crumb_cl_kernel *row, uint32_t rows) {
    static const char quickly[] = " -cl-opt-disable";
    char options[CRUMB_CL_OPTIONS_MAX + sizeof quickly];
    const crumb_cl_heads heads = {c->s->type, c->s->head_dim, c->s->n_head, c->s->n_head_kv};
    crumb_cl_attention_options(row, &heads, rows, crumb_cl_standard(crumb_xe_tested.version), options);
    if (row->sub_group) strcat(options, quickly);
    return crumb_xe_kernel(&crumb_xe_tested, row->file, options, row->sub_group != 0, row->entry);
}

static cl_mem queries_of(const crumb_xe_attention *c) {
    return c->bf16 ? c->bq_bf16 : c->bq;
}

/* Into c->got. */
static void read_results(crumb_xe_attention *c) {
    uint16_t *narrow = malloc(c->n_q * sizeof *narrow);
    assert_non_null(narrow);
    if (c->bf16)
        crumb_xe_read(&crumb_xe_tested, c->out, narrow, c->n_q * sizeof *narrow);
    else
        crumb_xe_read(&crumb_xe_tested, c->out, c->got, c->n_q * sizeof *c->got);
    for (size_t i = 0; c->bf16 && i < c->n_q; i++) c->got[i] = crumb_bf16_to_f32(narrow[i]);
    free(narrow);
}

/* A launch that finds nothing of one before, and leaves no chunk counted. */
static void run_split(crumb_xe_attention *c, const crumb_cl_kernel *row, cl_kernel split) {
    uint32_t arrived[sizeof no_arrived / sizeof *no_arrived];
    crumb_xe_fill(&crumb_xe_tested, c->partials, partial_bytes(c));
    crumb_xe_fill(&crumb_xe_tested, c->out, c->n_q * 4);
    crumb_xe_run(&crumb_xe_tested, split, row->local_size, c->chunks, c->s->n_head_kv, c->n + 1);
    crumb_xe_read(&crumb_xe_tested, c->arrived, arrived, sizeof arrived);
    assert_memory_equal(arrived, no_arrived, sizeof arrived);
    read_results(c);
}

void crumb_xe_run_split(crumb_xe_attention *c, const crumb_cl_kernel *row) {
    const uint64_t offset = (uint64_t)crumb_xe_layer_bytes(c->s) * CRUMB_XE_LAYER;
    cl_kernel split = attention_kernel(c, row, 1);
    crumb_xe_args(split, 0, "bbbboufbbb", c->batch, queries_of(c), c->cache->bkeys, c->cache->bvalues, offset,
                  (uint32_t)CRUMB_XE_HEAD_BLOCKS, (double)c->scale, c->partials, c->arrived, c->out);
    run_split(c, row, split);
    float *first = malloc(c->n_q * sizeof *first);
    assert_non_null(first);
    memcpy(first, c->got, c->n_q * sizeof *first);
    run_split(c, row, split);
    assert_memory_equal(c->got, first, c->n_q * sizeof *first);
    free(first);
    clReleaseKernel(split);
}

void crumb_xe_run_whole(crumb_xe_attention *c, const crumb_cl_kernel *row, uint32_t rows) {
    cl_kernel whole = attention_kernel(c, row, rows);
    crumb_xe_args(whole, 0, "bbbboufb", c->batch, queries_of(c), c->cache->bkeys, c->cache->bvalues,
                  (uint64_t)crumb_xe_layer_bytes(c->s) * CRUMB_XE_LAYER, (uint32_t)CRUMB_XE_HEAD_BLOCKS,
                  (double)c->scale, c->out);
    crumb_xe_run(&crumb_xe_tested, whole, row->local_size, c->s->n_head_kv, (c->n + rows) / rows + 1, 1);
    read_results(c);
    clReleaseKernel(whole);
}
