/* What the tests of attention share: batches, a cache that cpu/ref has filled, and queries with what they should make
 * of it, run by any kernel. */
#ifndef CRUMB_TESTS_XE_ATTENTION_H
#define CRUMB_TESTS_XE_ATTENTION_H

#include "cl/registry.h"
#include "tests/xe/device.h"

enum {
    CRUMB_XE_MAX_ROWS = 7,
    CRUMB_XE_SEQUENCES = 3,
    CRUMB_XE_CTX = 4300, /* more chunks of keys than are merged together */
    CRUMB_XE_HEAD_BLOCKS = (CRUMB_XE_CTX + 15) / 16,
    CRUMB_XE_LAYER = 1, /* the one that is looked at */
    CRUMB_XE_LAYERS = 2,
    CRUMB_XE_BATCHES = 6
};

typedef struct crumb_xe_heads {
    crumb_kv_type type;
    uint32_t head_dim, n_head, n_head_kv, dims;
    crumb_rope_pairing pairing;
} crumb_xe_heads;

/* Sequence and position of each row. */
typedef struct crumb_xe_batch {
    uint32_t n;
    struct {
        uint32_t sequence, position;
    } rows[CRUMB_XE_MAX_ROWS];
} crumb_xe_batch;
extern const crumb_xe_batch crumb_xe_batches[CRUMB_XE_BATCHES];

extern crumb_xe_device crumb_xe_tested; /* opened by main */

cl_mem crumb_xe_batch_buffer(int b);
/* Fails where a bit differs, naming heads, batch and `what`. */
void crumb_xe_check_floats(const float *got, const float *want, size_t n, const crumb_xe_heads *s, int b,
                           const char *what);

/* Bytes of a layer's keys, or values. */
size_t crumb_xe_layer_bytes(const crumb_xe_heads *s);
/* Stores a head's key and value in the layer as cpu/ref does. */
void crumb_xe_store(const crumb_xe_heads *s, char *keys, char *values, uint32_t sequence, uint32_t head,
                    uint32_t position, const float *k, const float *v);

/* Random keys and values at every position of every sequence; here and on the device. */
typedef struct crumb_xe_cache {
    const crumb_xe_heads *s;
    char *keys, *values;
    cl_mem bkeys, bvalues;
} crumb_xe_cache;
void crumb_xe_cache_create(crumb_xe_cache *out, const crumb_xe_heads *s);
void crumb_xe_cache_destroy(crumb_xe_cache *cache);

/* A batch's queries, and what they make of the cache. */
typedef struct crumb_xe_attention {
    const crumb_xe_cache *cache;
    const crumb_xe_heads *s;
    int b;
    uint32_t n, chunks;
    size_t n_q;
    float *q, *want, *got, scale;
    double *exact; /* NULL: of a cache that is not f16 */
    cl_mem batch, bq, bq_bf16, partials, arrived, out;
    bool bf16; /* what kernels read and write now; queries fit it if they did when the case was made */
} crumb_xe_attention;
void crumb_xe_attention_create(crumb_xe_attention *c, const crumb_xe_cache *cache, int b, bool bf16);
void crumb_xe_attention_destroy(crumb_xe_attention *c);

/* Into c->got. Split over the keys and merged, twice, to the same bits. */
void crumb_xe_run_split(crumb_xe_attention *c, const crumb_cl_kernel *row);
/* A work-group takes `rows` through all keys. */
void crumb_xe_run_whole(crumb_xe_attention *c, const crumb_cl_kernel *row, uint32_t rows);

/* The tests of attention_matrix.c. */
void crumb_xe_matrix_attention_is_near_and_agrees(void **state);
void crumb_xe_matrix_attention_of_bytes_equals_reference(void **state);

#endif
