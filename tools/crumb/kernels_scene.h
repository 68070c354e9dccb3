/* Scenes: an op with those it needs around it, on random data, as a plan of any backend can record it. By scenes
 * kernels are compared and timed that are no linear layer in tiles by itself. */
#ifndef CRUMB_TOOLS_KERNELS_SCENE_H
#define CRUMB_TOOLS_KERNELS_SCENE_H

#include "host/backend.h"
#include "host/kernel/trial.h"

/* What is random, and what is not. m: rows of the weights; for attention and rotations the positions that lie in the
 * cache already; for TOP the values. k: columns, of which attention makes heads. n: rows of activations. */
typedef struct kernels_form {
    const char *op;                /* crumb_kernel_info's */
    uint32_t m, k, perf_m, perf_k; /* for tests, and for timing */
    crumb_type type;               /* of dense weights, where bits is 0 */
    uint8_t bits;                  /* of weights in tiles */
    uint32_t group;                /* of these; 0: the row */
    bool norm;                     /* x goes through a norm first; of rotations queries' and keys' heads do */
    uint32_t head_dim, sharing;    /* heads of queries that share one of keys */
    crumb_kv_type kv;
    crumb_rope_pairing pairing;
    crumb_activation_fn fn;
} kernels_form;

extern const kernels_form kernels_forms[];
extern const size_t kernels_n_forms;

enum { SCENE_MAX_OPS = 8, SCENE_MAX_VALUES = 8, SCENE_MAX_RESULTS = 2, SCENE_MAX_BUFFERS = 12 };

typedef struct kernels_scene {
    const kernels_form *form;
    uint32_t m, k, n;
    uint64_t seed;
    crumb_op ops[SCENE_MAX_OPS];
    size_t n_ops;
    crumb_value_info values[SCENE_MAX_VALUES];
    float *inputs[SCENE_MAX_VALUES]; /* [n][width] of those that are inputs */
    size_t n_values;
    crumb_value results[SCENE_MAX_RESULTS]; /* to be compared */
    size_t n_results;
    crumb_row *rows;
    crumb_kv_params kv; /* n_layers 0: no cache */
    uint32_t past[2];   /* positions of each sequence that lie in the cache before the rows */
    crumb_trial trial;  /* weights in tiles */
    void *dense;        /* others */
    crumb_matrix w;
    float *bias, *norm_weight, *inv_freq;
    uint32_t *columns;
    uint64_t n_bytes; /* that the op must move: weights, keys and values, activations */
    double n_flops;   /* of its products and sums; 0 where they do not count */
} kernels_scene;

/* Fails with MEMORY. Destroyed by the caller in any case. */
crumb_status kernels_scene_create(const kernels_form *form, crumb_op_kind kind, uint32_t m, uint32_t k, uint32_t n,
                                  uint64_t seed, kernels_scene *out, crumb_error *err);
void kernels_scene_destroy(kernels_scene *scene);

/* A scene on a device: its ops name memory of the device. */
typedef struct kernels_stage {
    const kernels_scene *scene;
    const crumb_backend *backend;
    crumb_device *device; /* not owned */
    crumb_op ops[SCENE_MAX_OPS];
    crumb_matrix w;
    crumb_buffer *buffers[SCENE_MAX_BUFFERS];
    size_t n_buffers;
    crumb_kv_cache *kv;
    crumb_plan *plan; /* made by the caller of kernels_stage_desc; destroyed with the stage */
} kernels_stage;

/* Copies weights to the device, and makes a cache. Destroyed by the caller in any case. */
crumb_status kernels_stage_create(const kernels_scene *scene, const crumb_backend *backend, crumb_device *device,
                                  kernels_stage *out, crumb_error *err);
void kernels_stage_destroy(kernels_stage *stage);
crumb_plan_desc kernels_stage_desc(const kernels_stage *stage);
/* Fills the cache of a stage with host_memory by running attention on random keys and values; copies it to another. */
crumb_status kernels_stage_fill(kernels_stage *stage, crumb_error *err);
crumb_status kernels_stage_copy_cache(const kernels_stage *from, kernels_stage *to, crumb_error *err);
/* Gives the plan its inputs, which every replay takes anew. */
crumb_status kernels_stage_write(const kernels_stage *stage, crumb_error *err);
/* What sequence 0 holds after the rows, whole pages; freed by the caller. */
crumb_status kernels_stage_read_cache(const kernels_stage *stage, void **out, uint64_t *n_bytes, crumb_error *err);

#endif
