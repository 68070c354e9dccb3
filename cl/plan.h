/* A recorded plan: an array of kernels whose arguments are set, and sizes. A replay writes the batch, enqueues them in
 * their order, reads the last value, and waits once. */
#ifndef CRUMB_CL_PLAN_H
#define CRUMB_CL_PLAN_H

#include "cl/blas.h"
#include "cl/commands.h"
#include "cl/kv.h"
#include "cl/rendezvous.h"
#include "host/kernel/op.h"

/* As cl/kernels/common.cl has them. */
typedef struct crumb_cl_row {
    int32_t token;
    uint32_t sequence, position;
    uint32_t output; /* its number among the rows that SELECT keeps; UINT32_MAX: none */
} crumb_cl_row;

typedef struct crumb_cl_batch {
    uint32_t n_rows, n_outputs, max_kv, number;
    crumb_cl_row rows[];
} crumb_cl_batch;

enum {
    CRUMB_CL_KV_CHUNK = 128,
    CRUMB_CL_SPLIT_ROWS = 4, /* up to so many, attention divides the keys */
    CRUMB_CL_NO_DIM = 3
};

typedef enum crumb_cl_time {
    CRUMB_CL_TIME_LINEAR,
    CRUMB_CL_TIME_HEAD,
    CRUMB_CL_TIME_ATTENTION,
    CRUMB_CL_TIME_OTHER
} crumb_cl_time;

typedef struct crumb_cl_launch {
    crumb_cl_call call;
    const char *name;     /* of its row in kernels.def */
    crumb_cl_sgemm sgemm; /* instead of a kernel where it has a matrix */
    crumb_cl_time time;
    bool on_outputs;         /* works on the rows that SELECT kept; left out where there are none */
    bool splits_keys;        /* dimension 0 counts the plan's chunks */
    uint8_t n_dims, row_dim; /* row_dim: the dimension that counts rows; CRUMB_CL_NO_DIM: none does */
    uint32_t tokens;         /* rows that a work-group takes */
    uint64_t ns;             /* that it took in the last replay that was measured */
    size_t groups[3];        /* for as many rows as the plan takes */
    size_t local[3];
} crumb_cl_launch;

typedef struct crumb_cl_value {
    uint32_t width, max_rows;
    uint32_t item_bytes; /* 4: f32, 2: bf16 */
    size_t owner;        /* the first value of its slot, which has the memory */
    crumb_cl_memory memory;
    bool written, on_outputs; /* by an op or another device; behind SELECT */
    bool lent;                /* memory is what shared_create has made, or the plan's results */
    bool readable;            /* nothing overwrites it before the plan's end, and it is not folded away */
} crumb_cl_value;

struct crumb_plan {
    crumb_device *device;
    crumb_kv_cache *kv;
    uint32_t max_rows, max_outputs;
    crumb_cl_value *values;
    size_t n_values;
    crumb_cl_launch *launches;
    size_t n_launches, launch_capacity;
    crumb_cl_meetings meetings;
    crumb_cl_copies copies;
    crumb_cl_memory batch, q, sx, qsum; /* the batch; quantized activations */
    crumb_cl_memory partials, arrived;  /* of attention's chunks (7_attention.cl) */
    crumb_cl_memory keys[2];            /* what TOP's launches hand on */
    crumb_cl_memory scratch;            /* with USM all of these and values lie in it, if the device takes it at once */
    uint64_t scratch_bytes;
    crumb_rows_rule rule;
    crumb_inputs inputs;
    uint32_t *next_position; /* [n_sequences] */
    uint32_t n_vocab;
    bool has_select, has_attention;
    uint32_t chunks, max_chunks; /* of keys: what launches are set for; what partials hold */
    bool none_arrived;           /* no chunk is counted: launches leave it so, but not where a replay has failed */

    crumb_cl_batch *host_batch; /* where the device shares the machine's memory kernels read it, else a copy */
    crumb_value result;         /* what a replay reads by itself: the last op's */
    float *results;             /* [rows][width] of it, and its memory where only the op that makes it knows it */
    float *other;               /* of the value read last besides; NULL: none yet */
    uint64_t other_bytes;
    uint16_t *narrow; /* rows that are written, as bf16; NULL: none yet */
    uint64_t narrow_bytes;
    uint32_t n_rows, n_outputs, number;

    crumb_cl_commands commands;
    crumb_plan_times *times; /* NULL: not measured */
    crumb_cl_event *events;  /* [n_launches] while measured */
};

static inline const crumb_cl_memory *crumb_cl_value_memory(const crumb_plan *p, crumb_value v) {
    return &p->values[p->values[v].owner].memory;
}

/* Bytes of a value's rows in this replay. */
uint64_t crumb_cl_value_bytes(const crumb_plan *p, const crumb_cl_value *v);

/* A launch's global sizes for the rows of this replay; false: it has none. */
bool crumb_cl_launch_sizes(const crumb_plan *p, const crumb_cl_launch *l, size_t global[3]);

crumb_status crumb_cl_plan_record(crumb_device *d, const crumb_plan_desc *desc, crumb_plan **out, crumb_error *err);
crumb_status crumb_cl_plan_write(crumb_plan *p, crumb_value value, const float *rows, uint32_t n_rows,
                                 crumb_error *err);
crumb_status crumb_cl_plan_replay(crumb_plan *p, const crumb_row *rows, uint32_t n_rows, crumb_error *err);
crumb_status crumb_cl_plan_read(crumb_plan *p, crumb_value value, const float **out, uint32_t *n_rows,
                                crumb_error *err);
uint64_t crumb_cl_plan_scratch_bytes(const crumb_plan *p);
void crumb_cl_plan_measure(crumb_plan *p, crumb_plan_times *times);
void crumb_cl_plan_destroy(crumb_plan *p);

#endif
