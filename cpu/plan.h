/* How the CPU backend keeps a recorded plan: an array of steps that the pool's threads walk together (cpu/walk.h).
 *
 * A step is one op, or several that need not wait for each other: a norm is folded into the linear op that reads it
 * (each thread normalises the rows that it quantizes), a gated activation into the linear op that makes gate and up
 * (each thread applies it to the columns that it has just computed). A step is cut into items; which thread takes which
 * changes nothing.
 */
#ifndef CRUMB_CPU_PLAN_H
#define CRUMB_CPU_PLAN_H

#include "cpu/attention.h"
#include "cpu/float.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/walk.h"
#include "host/kernel/op.h"
#include "scheduler/balance.h"
#include "scheduler/choice.h"

enum { CRUMB_LOOKUP_CLASS = 9, CRUMB_BALANCE_CLASSES, CRUMB_BALANCE_PHASES = 3 };

struct crumb_device {
    crumb_pool *pool;
    crumb_way_wanted way;
    /* What the pool's cores are worth: by bits of the weights' codes (0: dense weights) or, for kernels with a layout
     * of their own, looking up; for one row, a few, many. Not in use yet: n_cores 0. */
    crumb_balance balances[CRUMB_BALANCE_CLASSES][CRUMB_BALANCE_PHASES];
    crumb_isa isa;
    crumb_core_speeds cores; /* of the machine's */
    const crumb_float_ops *ops;
    crumb_quantize_fn *quantize;
    crumb_interleave_fn *interleave; /* or NULL */
    crumb_tuning *tuning;            /* measured choices; not owned; NULL: none */
    crumb_log_fn log;                /* NULL: none */
    void *log_user;
    char detail[96];
};

/* The kernels of a tier that runs here; device.c. Plans that have been recorded keep those of their linear ops. */
void crumb_cpu_device_set_tier(crumb_device *d, crumb_isa isa);
/* 1 << bits of the matrices that plans of a tier find in the index layout on its threads, where they can have it. */
uint32_t crumb_cpu_device_index_bits(const crumb_device *d, crumb_isa isa);

/* Keys and values: [layer][sequence][head][position / CRUMB_KEY_BLOCK] blocks, whose insides are the ops' affair. */
struct crumb_kv_cache {
    crumb_kv_params params;
    const crumb_kv_ops *ops;
    char *memory; /* of its own; NULL: crumb_kv_params.pages */
    uint64_t n_bytes;
    size_t block_bytes, head_bytes; /* of keys, or of values */
    char *(*layers)[2];             /* [n_layers]: keys, values */
};

/* Bytes before a head's blocks, in a layer's keys and in its values. */
static inline size_t crumb_kv_head_offset(const crumb_kv_cache *kv, uint32_t sequence, uint32_t head) {
    return ((size_t)sequence * kv->params.n_head_kv + head) * kv->head_bytes;
}

/* Entries of the backend (kv.c). */
crumb_status crumb_cpu_kv_create(crumb_device *d, const crumb_kv_params *params, crumb_kv_cache **out,
                                 uint64_t *n_bytes, crumb_error *err);
void crumb_cpu_kv_destroy(crumb_device *d, crumb_kv_cache *kv);
crumb_status crumb_cpu_kv_read(crumb_device *d, const crumb_kv_cache *kv, const crumb_kv_range *range, void *to,
                               crumb_error *err);
crumb_status crumb_cpu_kv_write(crumb_device *d, crumb_kv_cache *kv, const crumb_kv_range *range, const void *from,
                                crumb_error *err);

typedef struct crumb_step crumb_step;

typedef struct crumb_step_kind {
    /* How many items the step is for the rows of this replay; 0: nothing to do. */
    uint32_t (*n_items)(const crumb_plan *p, const crumb_step *s);
    void (*run)(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker);
} crumb_step_kind;

/* What a linear op needs of x: quantized for one width and group, or as floats. Parts of an op often share it. */
typedef struct crumb_linear_input {
    bool quantized, row_scale;
    uint8_t bits, operand_bits; /* of the weights' codes, and of what a GEMM makes of them */
    uint8_t code_bytes;         /* of a code of interleaved activations */
    uint32_t group, k, k_padded;
    const crumb_cpu_layout *prepares; /* tables for batches of up to prepare_n rows; NULL: none */
    uint32_t prepare_n;
} crumb_linear_input;

enum { CRUMB_SMALL_N = 16 }; /* batches up to this have a kernel choice of their own */

typedef struct crumb_linear_range {
    crumb_linear_part part;
    uint32_t tile0, tile1;
    uint8_t input;                                     /* which of the step's inputs */
    const crumb_cpu_kernel *kernel[CRUMB_SMALL_N + 1]; /* by n; [0] for more than CRUMB_SMALL_N */
    crumb_cpu_knobs knobs[2];                          /* for up to CRUMB_SMALL_N rows, for more */
    uint32_t few_rows[2]; /* knobs.threads hold for no more rows: they were measured with no less work */
} crumb_linear_range;

typedef struct crumb_chunks {
    uint32_t first, n; /* of the plan's chunk bounds */
    int n_threads;     /* of the plan's, the first: who takes them */
} crumb_chunks;

struct crumb_step {
    const crumb_step_kind *kind;
    uint16_t layer;
    bool on_outputs; /* runs on the rows that SELECT kept */
    union {
        crumb_op op; /* EMBED, RMS_NORM, GATED, SELECT, TOP, PLACE, GATHER, SIGNAL, WAIT */
        struct {
            uint32_t n_parts, n_inputs, k;
            crumb_value x, add;
            crumb_linear_range parts[CRUMB_LINEAR_MAX_PARTS];
            crumb_linear_input inputs[CRUMB_LINEAR_MAX_PARTS];
            const float *norm_weight; /* NULL: no norm folded in */
            float norm_eps;
            bool gated; /* parts are gate and up, taken tile by tile together */
            crumb_activation_fn gated_fn;
            crumb_value gated_out;
            crumb_chunks chunks[2]; /* for up to CRUMB_SMALL_N rows, for more */
            crumb_chunks few[2];    /* in their place for up to few_rows[]: fewer threads are faster */
            uint32_t few_rows[2];
            uint32_t number; /* among the plan's linear steps */
            uint32_t choice; /* of the divider's: for up to CRUMB_SMALL_N rows; the next for more */
        } linear;
        struct {
            crumb_value q, k, v, out;
            uint32_t n_head, n_head_kv, head_dim, kv_layer;
            bool store;          /* k and v go to the cache */
            uint32_t rope_dims;  /* 0: no rotation */
            uint32_t rope_table; /* offset in floats of a row's cosines and sines */
            crumb_rope_pairing pairing;
            float scale;
        } attention;
    };
};

/* Cosines and sines for one set of frequencies, computed once per replay for every row: [row][2][dims/2] at `offset`
 * floats within a row's tables. */
typedef struct crumb_rope_table {
    const float *inv_freq;
    uint32_t dims, offset;
    float magnitude;
} crumb_rope_table;

/* Neighbouring rows of one sequence, whose queries are evaluated against the same keys. */
typedef struct crumb_row_block {
    uint32_t row0, n;
} crumb_row_block;

enum {
    CRUMB_LOCAL_ROWS = 4, /* most rows whose inputs each thread prepares for itself, to save a barrier */
    CRUMB_SPLIT_ROWS = 4, /* most rows whose attention is split over chunks of keys */
    CRUMB_QUERY_ROWS = 64 /* queries (rows x heads of a group) that are evaluated against a chunk at once */
};

typedef struct crumb_plan_value {
    uint32_t width, max_rows;
    size_t offset;   /* in scratch, bytes; of shared values nothing */
    float *rows;     /* where they lie */
    bool on_outputs; /* written after SELECT */
    bool readable;   /* nothing overwrites it before the plan's end, and it is not folded away */
} crumb_plan_value;

typedef struct crumb_divider crumb_divider; /* cpu/divide.h */

struct crumb_plan {
    crumb_device *device;
    crumb_kv_cache *kv;
    int n_threads;
    uint32_t max_rows, max_outputs;
    crumb_plan_value *values;
    size_t n_values;
    crumb_step *steps;
    size_t n_steps;
    crumb_walk walk;
    uint32_t *chunk_bounds;
    crumb_divider *divider; /* NULL: linear steps are divided in chunks only */
    crumb_rope_table *rope_tables;
    uint32_t n_rope_tables, rope_row_floats;
    uint32_t block_rows; /* most rows of a row block */
    uint32_t n_vocab;    /* of the smallest embedding table; 0: the plan has none */
    bool has_attention, has_select;
    crumb_rows_rule rule; /* for the rows of a replay */
    crumb_inputs inputs;

    char *scratch;
    uint64_t scratch_bytes;
    size_t shared_inputs, rope_values, partials, partial_chunks;       /* offsets; chunks a row may have */
    size_t thread_scratch, thread_bytes;                               /* offset of thread 0's, bytes of each */
    size_t local_inputs, local_row, attention_scratch, kernel_scratch; /* offsets within a thread's */
    size_t local_units; /* the same, of crumb_units[n_steps]: what it took first of each linear step last time */
    size_t kernel_scratch_bytes;
    _Atomic uint32_t *merges; /* [CRUMB_SPLIT_ROWS][n_head_kv]: chunks done of a row block's head */
    uint32_t *last_position;  /* per sequence of the cache: checks the order of a batch's rows */
    crumb_row_block *blocks;  /* [max_rows] */

    /* The replay in progress. */
    const crumb_row *rows;
    uint32_t n_rows, n_outputs, n_blocks;
    uint32_t number; /* counts replays from 1 */
    bool stalled;    /* a WAIT was not answered: no further step runs */

    crumb_plan_times *times;     /* NULL: not measured */
    const crumb_step_kind *only; /* measured: steps of this kind alone; NULL: all */
    uint64_t step_began_ns;      /* while measured: the step under way */
    uint32_t step;
};

/* Steps, by file: step_row.c, step_linear.c, step_attention.c. */
extern const crumb_step_kind crumb_step_embed, crumb_step_rms_norm, crumb_step_gated, crumb_step_select, crumb_step_top,
    crumb_step_place, crumb_step_gather, crumb_step_signal, crumb_step_wait, crumb_step_rope_table;
extern const crumb_step_kind crumb_step_prepare, crumb_step_linear;
extern const crumb_step_kind crumb_step_rotate, crumb_step_attention;

/* Fetches the weights that the thread will probably read first behind `step`. It reads nothing that a replay changes.
 */
void crumb_linear_fetch_next(const crumb_plan *p, uint32_t step, int thread);
/* Bytes of a linear step's prepared inputs for `capacity` rows. */
size_t crumb_linear_input_bytes(const crumb_step *s, uint32_t capacity);
/* Bytes of scratch that a thread needs for attention with these shapes. */
size_t crumb_attention_scratch_bytes(const crumb_kv_ops *kv, uint32_t n_head, uint32_t n_head_kv, uint32_t head_dim);

static inline float *crumb_plan_floats(const crumb_plan *p, crumb_value v) {
    return p->values[v].rows;
}
static inline char *crumb_plan_thread(const crumb_plan *p, int thread) {
    return p->scratch + p->thread_scratch + (size_t)thread * p->thread_bytes;
}
static inline uint32_t crumb_step_n(const crumb_plan *p, const crumb_step *s) {
    return s->on_outputs ? p->n_outputs : p->n_rows;
}
/* Units of work that all cost the same are cut into a few items per thread, each of at least `least` units. */
static inline uint32_t crumb_even_items(const crumb_plan *p, uint64_t n_units, uint32_t least) {
    uint64_t most = p->n_threads == 1 ? 1 : 4 * (uint64_t)p->n_threads, n = (n_units + least - 1) / least;
    return (uint32_t)(n < most ? n : most);
}
/* The first unit of item `item` of n_items; that of item + 1 is its end. No units make no items. */
static inline uint64_t crumb_even_begin(uint64_t n_units, uint32_t item, uint32_t n_items) {
    return n_items ? n_units * item / n_items : 0;
}

/* Plan entries of the backend (plan.c, replay.c), and the end of recording. */
void crumb_cpu_plan_start(crumb_plan *p);
crumb_status crumb_cpu_plan_record(crumb_device *d, const crumb_plan_desc *desc, crumb_plan **out, crumb_error *err);
crumb_status crumb_cpu_plan_write(crumb_plan *p, crumb_value value, const float *rows, uint32_t n_rows,
                                  crumb_error *err);
crumb_status crumb_cpu_plan_replay(crumb_plan *p, const crumb_row *rows, uint32_t n_rows, crumb_error *err);
crumb_status crumb_cpu_plan_read(crumb_plan *p, crumb_value value, const float **out, uint32_t *n_rows,
                                 crumb_error *err);
uint64_t crumb_cpu_plan_scratch_bytes(const crumb_plan *p);
void crumb_cpu_plan_measure(crumb_plan *p, crumb_plan_times *times);
void crumb_cpu_plan_destroy(crumb_plan *p);

#endif
