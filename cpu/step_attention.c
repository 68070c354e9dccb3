/* Rotation of queries and keys, the KV cache, and attention: the order of its sums is in cpu/attention.h. */
#include "cpu/plan.h"

#include "host/base/checked.h"
#include "scheduler/chunks.h"

#include <math.h>
#include <string.h>

static void store(const crumb_plan *p, const crumb_step *s, uint32_t row, uint32_t head, const float *k) {
    uint32_t dim = s->attention.head_dim, position = p->rows[row].position;
    const float *v = crumb_plan_floats(p, s->attention.v) + ((size_t)row * s->attention.n_head_kv + head) * dim;
    char *const *layer = p->kv->layers[s->attention.kv_layer];
    size_t block =
        crumb_kv_head_offset(p->kv, p->rows[row].sequence, head) + position / CRUMB_KEY_BLOCK * p->kv->block_bytes;
    p->kv->ops->store(k, v, dim, position % CRUMB_KEY_BLOCK, layer[0] + block, layer[1] + block);
}

static uint64_t heads_to_rotate(const crumb_plan *p, const crumb_step *s) {
    return (uint64_t)crumb_step_n(p, s) * (s->attention.n_head + s->attention.n_head_kv);
}

static uint32_t rotate_items(const crumb_plan *p, const crumb_step *s) {
    return crumb_even_items(p, heads_to_rotate(p, s), 16);
}

/* The query heads of a row, then its key heads, which are also stored. */
static void rotate(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    (void)walker;
    uint32_t n_head = s->attention.n_head, n_kv = s->attention.n_head_kv, dim = s->attention.head_dim;
    uint32_t dims = s->attention.rope_dims, n_items = rotate_items(p, s);
    float *q = crumb_plan_floats(p, s->attention.q), *k = crumb_plan_floats(p, s->attention.k);
    const float *tables = (const float *)(const void *)(p->scratch + p->rope_values);
    uint64_t end = crumb_even_begin(heads_to_rotate(p, s), item + 1, n_items);
    for (uint64_t i = crumb_even_begin(heads_to_rotate(p, s), item, n_items); i < end; i++) {
        uint32_t row = (uint32_t)(i / (n_head + n_kv)), head = (uint32_t)(i % (n_head + n_kv));
        bool is_key = head >= n_head;
        if (is_key) head -= n_head;
        float *x = is_key ? k + ((size_t)row * n_kv + head) * dim : q + ((size_t)row * n_head + head) * dim;
        const float *cosines = tables + (size_t)row * p->rope_row_floats + s->attention.rope_table;
        if (dims) p->device->ops->rope(x, cosines, cosines + dims / 2, dims, s->attention.pairing);
        if (is_key && s->attention.store) store(p, s, row, head, x);
    }
}

const crumb_step_kind crumb_step_rotate = {rotate_items, rotate};

/* ---- attention --------------------------------------------------------------------------------------------- */

/* Queries of one key head: the rows of a block x the heads of its group, row by row. */
typedef struct queries {
    uint32_t row0, n_rows, group, n; /* n = n_rows * group */
    uint32_t kv_head;
    const char *keys, *values; /* of the head and sequence, from position 0 */
    /* In the thread's scratch: */
    void *q;            /* [n], as the cache's ops want them */
    float *scores;      /* [n][CRUMB_ATTENTION_CHUNK] */
    float *chunk_o, *o; /* [n][head_dim]: of one chunk; merged */
    float *m, *l;       /* [n]: merged */
    float *chunk_m, *chunk_l;
    uint32_t *n_keys; /* [n] */
} queries;

static uint32_t most_queries(uint32_t n_head, uint32_t n_head_kv) {
    uint32_t group = n_head / n_head_kv;
    return group > CRUMB_QUERY_ROWS ? group : CRUMB_QUERY_ROWS;
}

size_t crumb_attention_scratch_bytes(const crumb_kv_ops *kv, uint32_t n_head, uint32_t n_head_kv, uint32_t head_dim) {
    uint64_t n = most_queries(n_head, n_head_kv);
    uint64_t per_query = (2ull * head_dim + CRUMB_ATTENTION_CHUNK + 5) * sizeof(float) + kv->query_bytes(head_dim);
    return crumb_round_up(n * per_query, 64);
}

static queries gather(const crumb_plan *p, const crumb_step *s, int thread, const crumb_row_block *block,
                      uint32_t kv_head) {
    uint32_t dim = s->attention.head_dim, group = s->attention.n_head / s->attention.n_head_kv;
    queries a = {.row0 = block->row0, .n_rows = block->n, .group = group, .n = block->n * group, .kv_head = kv_head};
    char *const *layer = p->kv->layers[s->attention.kv_layer];
    size_t base = crumb_kv_head_offset(p->kv, p->rows[block->row0].sequence, kv_head);
    a.keys = layer[0] + base;
    a.values = layer[1] + base;
    float *scratch = (float *)(void *)(crumb_plan_thread(p, thread) + p->attention_scratch);
    size_t n = most_queries(s->attention.n_head, s->attention.n_head_kv);
    a.scores = scratch;
    a.chunk_o = a.scores + n * CRUMB_ATTENTION_CHUNK;
    a.o = a.chunk_o + n * dim;
    a.m = a.o + n * dim;
    a.l = a.m + n;
    a.chunk_m = a.l + n;
    a.chunk_l = a.chunk_m + n;
    a.n_keys = (uint32_t *)(void *)(a.chunk_l + n);
    a.q = a.n_keys + n;
    const float *q = crumb_plan_floats(p, s->attention.q);
    size_t group_bytes = group * p->kv->ops->query_bytes(dim);
    for (uint32_t r = 0; r < block->n; r++)
        p->kv->ops->prepare(q + ((size_t)(block->row0 + r) * s->attention.n_head + (size_t)kv_head * group) * dim,
                            group, dim, (char *)a.q + r * group_bytes);
    return a;
}

static uint32_t chunks_of(const crumb_plan *p, const crumb_row_block *block) {
    return p->rows[block->row0 + block->n - 1].position / CRUMB_ATTENTION_CHUNK + 1; /* positions rise */
}

/* Keys and values of a chunk: as many bytes of each. */
static size_t chunk_bytes_of(const crumb_plan *p) {
    return CRUMB_ATTENTION_CHUNK / CRUMB_KEY_BLOCK * p->kv->block_bytes;
}

/* The chunk's (m, l, o) of every query; a query whose row lies before the chunk has n_keys 0, and no m and l. `next`:
 * the keys that this thread reads next, or any others. */
static void attend_chunk(const crumb_plan *p, const crumb_step *s, const queries *a, uint32_t chunk, const char *next,
                         float *m, float *l, float *o) {
    uint32_t dim = s->attention.head_dim, first = chunk * CRUMB_ATTENTION_CHUNK, most = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t position = p->rows[a->row0 + i / a->group].position;
        uint32_t n_keys = position < first ? 0 : position - first + 1;
        a->n_keys[i] = n_keys < CRUMB_ATTENTION_CHUNK ? n_keys : CRUMB_ATTENTION_CHUNK;
        most = a->n_keys[i] > most ? a->n_keys[i] : most;
    }
    uint32_t n_blocks = (most + CRUMB_KEY_BLOCK - 1) / CRUMB_KEY_BLOCK;
    const size_t chunk_bytes = chunk_bytes_of(p);
    const char *keys = a->keys + chunk * chunk_bytes, *values = a->values + chunk * chunk_bytes;
    p->kv->ops->scores(a->q, a->n, dim, keys, n_blocks, values, a->scores);
    p->kv->ops->softmax(a->scores, a->n, a->n_keys, s->attention.scale, m, l);
    p->kv->ops->values(a->scores, a->n, a->n_keys, dim, values, next, o);
}

static void start_merge(const queries *a, uint32_t dim) {
    for (uint32_t i = 0; i < a->n; i++) {
        a->m[i] = -INFINITY;
        a->l[i] = 0;
    }
    memset(a->o, 0, (size_t)a->n * dim * sizeof(float));
}

static void merge(const crumb_plan *p, const queries *a, uint32_t i, uint32_t dim, float chunk_m, float chunk_l,
                  const float *chunk_o) {
    const crumb_float_ops *ops = p->device->ops;
    float m = a->m[i] > chunk_m ? a->m[i] : chunk_m;
    const float least = a->m[i] > chunk_m ? chunk_m : a->m[i], e = ops->exp(least - m); /* the other's is exp(0) */
    const float old = a->m[i] == m ? 1 : e, new = chunk_m == m ? 1 : e;
    a->m[i] = m;
    a->l[i] = a->l[i] * old + chunk_l * new;
    ops->attention_merge(a->o + (size_t)i * dim, old, chunk_o, new, dim);
}

static void finish(const crumb_plan *p, const crumb_step *s, const queries *a) {
    uint32_t dim = s->attention.head_dim;
    float *out = crumb_plan_floats(p, s->attention.out);
    for (uint32_t i = 0; i < a->n; i++) {
        size_t row = a->row0 + i / a->group, head = (size_t)a->kv_head * a->group + i % a->group;
        float *to = out + (row * s->attention.n_head + head) * dim, inverse = 1 / a->l[i];
        const float *o = a->o + (size_t)i * dim;
        for (uint32_t d = 0; d < dim; d++) to[d] = o[d] * inverse;
    }
}

/* All chunks of a block's head, one after the other. */
static void attend_whole(const crumb_plan *p, const crumb_step *s, int thread, const crumb_row_block *block,
                         uint32_t kv_head) {
    queries a = gather(p, s, thread, block, kv_head);
    uint32_t dim = s->attention.head_dim;
    uint32_t n_chunks = chunks_of(p, block);
    start_merge(&a, dim);
    for (uint32_t chunk = 0; chunk < n_chunks; chunk++) {
        const uint32_t next = chunk + 1 < n_chunks ? chunk + 1 : chunk;
        attend_chunk(p, s, &a, chunk, a.keys + next * chunk_bytes_of(p), a.chunk_m, a.chunk_l, a.chunk_o);
        for (uint32_t i = 0; i < a.n; i++)
            if (a.n_keys[i]) merge(p, &a, i, dim, a.chunk_m[i], a.chunk_l[i], a.chunk_o + (size_t)i * dim);
    }
    finish(p, s, &a);
}

/* Where a chunk's (o, m, l) of all queries of a block's head wait for the others. */
static float *partial(const crumb_plan *p, const crumb_step *s, const queries *a, uint32_t chunk) {
    uint32_t dim = s->attention.head_dim, n_kv = s->attention.n_head_kv;
    size_t per_chunk = (size_t)a->n * (dim + 2), per_row = (size_t)a->group * (dim + 2) * p->partial_chunks;
    float *base = (float *)(void *)(p->scratch + p->partials);
    return base + (size_t)a->row0 * n_kv * per_row + (size_t)a->kv_head * a->n_rows * per_row + chunk * per_chunk;
}

/* Chunks of keys in a row: first to end - 1 of one head's, for one block of rows. */
typedef struct run {
    uint32_t block, kv_head, first, end;
} run;

/* A run's keys, from its first chunk on. */
static const char *run_keys(const crumb_plan *p, const crumb_step *s, const run *r) {
    const uint32_t sequence = p->rows[p->blocks[r->block].row0].sequence;
    return p->kv->layers[s->attention.kv_layer][0] + crumb_kv_head_offset(p->kv, sequence, r->kv_head) +
           r->first * chunk_bytes_of(p);
}

/* Whoever finishes the last chunk of a block's head merges them all, in rising order. `after`: keys that this thread
 * reads after the run, or any others. */
static void attend_run(crumb_plan *p, const crumb_step *s, int thread, const run *r, const char *after) {
    const crumb_row_block *block = &p->blocks[r->block];
    queries a = gather(p, s, thread, block, r->kv_head);
    uint32_t dim = s->attention.head_dim, n_chunks = chunks_of(p, block), n = r->end - r->first;
    for (uint32_t chunk = r->first; chunk < r->end; chunk++) {
        float *o = partial(p, s, &a, chunk), *m = o + (size_t)a.n * dim, *l = m + a.n;
        for (uint32_t i = 0; i < a.n; i++) l[i] = 0;
        attend_chunk(p, s, &a, chunk, chunk + 1 < r->end ? a.keys + (chunk + 1) * chunk_bytes_of(p) : after, m, l, o);
    }
    _Atomic uint32_t *done = &p->merges[(size_t)r->block * s->attention.n_head_kv + r->kv_head];
    if (atomic_fetch_add_explicit(done, n, memory_order_acq_rel) + n < n_chunks) return;
    atomic_store_explicit(done, 0, memory_order_relaxed);
    start_merge(&a, dim);
    for (uint32_t c = 0; c < n_chunks; c++) {
        const float *chunk_o = partial(p, s, &a, c), *chunk_m = chunk_o + (size_t)a.n * dim, *chunk_l = chunk_m + a.n;
        for (uint32_t i = 0; i < a.n; i++)
            if (chunk_l[i] != 0) merge(p, &a, i, dim, chunk_m[i], chunk_l[i], chunk_o + (size_t)i * dim);
    }
    finish(p, s, &a);
}

/* Few rows: threads take chunks of keys, of all blocks and heads in a row, so that one long context keeps all of them
 * busy. An item is as many of these units as scheduler/chunks.h says: long runs first, within which a thread fetches a
 * chunk while it computes on the one before, and short ones at the end, so that threads finish nearly together. */
static bool splits(const crumb_plan *p) {
    return p->n_rows <= CRUMB_SPLIT_ROWS && p->n_threads > 1;
}

static uint32_t units_of(const crumb_plan *p, const crumb_step *s) {
    uint32_t n_chunks = 0;
    for (uint32_t b = 0; b < p->n_blocks; b++) n_chunks += chunks_of(p, &p->blocks[b]);
    return s->attention.n_head_kv * n_chunks;
}

/* Where item i begins, counted from the first unit on. */
static uint32_t item_begin(const crumb_plan *p, uint32_t i, uint32_t n_units) {
    return crumb_chunk_begin(i, n_units, 2 * chunk_bytes_of(p), 1, p->n_threads, 0);
}

/* The run that begins with unit `at`: to the unit `end`, or to the end of its head. */
static run run_at(const crumb_plan *p, const crumb_step *s, uint32_t at, uint32_t end) {
    const uint32_t n_units = end - at, n_kv = s->attention.n_head_kv;
    run r = {0};
    while (at >= n_kv * chunks_of(p, &p->blocks[r.block])) at -= n_kv * chunks_of(p, &p->blocks[r.block++]);
    const uint32_t n_chunks = chunks_of(p, &p->blocks[r.block]);
    r.kv_head = at / n_chunks;
    r.first = at % n_chunks;
    r.end = n_units < n_chunks - r.first ? r.first + n_units : n_chunks;
    return r;
}

static uint32_t attention_items(const crumb_plan *p, const crumb_step *s) {
    if (!splits(p)) return s->attention.n_head_kv * p->n_blocks;
    return crumb_chunks_count(units_of(p, s), 2 * chunk_bytes_of(p), 1, p->n_threads, 0);
}

static void attention(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    const uint32_t n_kv = s->attention.n_head_kv;
    if (!splits(p)) { /* the last blocks, which have the most keys, come first */
        attend_whole(p, s, walker->thread, &p->blocks[item / n_kv], item % n_kv);
        return;
    }
    const uint32_t n_units = units_of(p, s);
    const uint32_t i = attention_items(p, s) - 1 - item; /* the highest is taken first */
    const uint32_t end = item_begin(p, i + 1, n_units);
    uint32_t at = item_begin(p, i, n_units);
    run r = run_at(p, s, at, end);
    for (at += r.end - r.first; at < end; at += r.end - r.first) {
        const run next = run_at(p, s, at, end);
        attend_run(p, s, walker->thread, &r, run_keys(p, s, &next));
        r = next;
    }
    attend_run(p, s, walker->thread, &r, run_keys(p, s, &r));
}

const crumb_step_kind crumb_step_attention = {attention_items, attention};
