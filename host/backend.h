/* The interface that every device implements, and the op descriptors it works on.
 *
 * A span of layers is recorded once as a plan and replayed for each batch of rows. Recording selects kernels,
 * allocates and compiles; replaying does none of that. A row is one token at one position of one sequence: one
 * conversation decodes with one row, a server's batch with one row per sequence, prefill with many rows of one.
 *
 * Results do not depend on the number of threads, on the batch a row travels in, or on how [m0, m1) splits a matrix:
 * every sum has one fixed order (stated with each op). A backend fails with DEVICE or MEMORY, and the engine can then
 * move its layers to another.
 */
#ifndef CRUMB_BACKEND_H
#define CRUMB_BACKEND_H

#include "host/base/error.h"
#include "host/lowbit/tile.h"

/* ---- values and ops ---------------------------------------------------------------------------------------- */

/* A value is an activation: f32 [N][width]. Values are numbered within a span; the graph's memory plan gives each an
 * offset in the span's scratch, and values that are never alive together share it.
 *
 * A shared value is one that plans of several devices have: each plan names the same memory, computes some of its
 * columns (linear parts with rows of their matrix, PLACE), SIGNALs, and WAITs before it reads what the others have
 * computed. So devices share a layer with no copies; its matrices' rows may be views (crumb_matrix_rows). */
typedef uint16_t crumb_value;
#define CRUMB_NO_VALUE ((crumb_value)0xffff)

typedef struct crumb_value_info {
    uint32_t width; /* floats per row */
    uint32_t slot;  /* values in one slot share memory; a slot is as wide as its widest value */
    float *shared;  /* NULL: in the plan's own memory. Else [max_rows][width] of what the plan's device has made with
                     * shared_create, or, for a device with host_memory, of any; all values of the slot name the same */
} crumb_value_info;

typedef enum crumb_op_kind {
    CRUMB_OP_INPUT,     /* out is what the host writes before each replay (plan.write); comes before all other kinds */
    CRUMB_OP_EMBED,     /* out = scale * row `token` of the table */
    CRUMB_OP_RMS_NORM,  /* out = x / sqrt(mean(x^2) + eps) * weight */
    CRUMB_OP_LINEAR,    /* out_i = W_i x (+ add), up to three matrices that share x (q/k/v, gate/up) */
    CRUMB_OP_ROPE,      /* rotates q and k in place by the row's position */
    CRUMB_OP_ATTENTION, /* stores k and v in the cache, then out = softmax(scale * q K^T) V over positions <= the row's
                         */
    CRUMB_OP_GATED,     /* out = activation(gate) * up */
    CRUMB_OP_SELECT,    /* keeps only the rows whose logits are wanted, in order; later ops see those, and only another
                         * SELECT reads values from before */
    CRUMB_OP_TOP,    /* out = the k largest values of each row of x, falling, then the bits of their indices (uint32);
                      * the first of equal ones; NaN is not among them: -infinity and 2^32 - 1 fill up */
    CRUMB_OP_PLACE,  /* columns [column, column + width of x) of out = x */
    CRUMB_OP_GATHER, /* column i of out = column from[i] of x */
    CRUMB_OP_SIGNAL, /* when all before it is done: flag := this replay's number (another device's plan waits for it) */
    CRUMB_OP_WAIT,   /* nothing after it begins until the flag holds this replay's number, or a later one; after ten
                      * seconds the replay fails with DEVICE */
} crumb_op_kind;

typedef enum crumb_act_quant {
    CRUMB_ACT_F32,   /* not quantized */
    CRUMB_ACT_ROW,   /* int8, one absmax scale per row: scale = max(max|x|, 1e-5) / 127, BitNet's rule */
    CRUMB_ACT_GROUP, /* int8, one absmax scale per act_group values of a row: d = max|x| / 127 */
} crumb_act_quant;

typedef enum crumb_activation_fn { CRUMB_ACT_FN_SILU, CRUMB_ACT_FN_RELU2 } crumb_activation_fn;
typedef enum crumb_rope_pairing {
    CRUMB_ROPE_NORMAL, /* pairs (2i, 2i+1) */
    CRUMB_ROPE_HALVES, /* pairs (i, i + dims/2), "NEOX" */
} crumb_rope_pairing;

typedef struct crumb_linear_part {
    const crumb_matrix *w; /* pointers inside lie in memory that the device made or wrapped */
    uint32_t m0, m1;       /* the rows of w to compute, multiples of CRUMB_TILE_ROWS except for m1 = w->m */
    crumb_value out;       /* row m of w goes to column m of out */
    float out_scale;       /* y = (W x) * out_scale + bias; 1 where the file has no separate scale tensor */
    const float *bias;     /* m floats or NULL */
} crumb_linear_part;

enum { CRUMB_LINEAR_MAX_PARTS = 3, CRUMB_TOP_MAX_K = 1024 };

typedef struct crumb_op {
    crumb_op_kind kind;
    uint16_t layer; /* for messages and traces */
    union {
        struct {
            crumb_value out; /* shares its slot with no other input */
        } input;
        struct {
            const crumb_matrix *table;
            crumb_value out;
            float scale;
        } embed;
        struct {
            crumb_value x, out;  /* may be the same */
            const float *weight; /* [width] */
            float eps;
            uint32_t head_dim; /* 0: over the whole row; else each head by itself (q/k norms) */
        } norm;
        struct {
            crumb_value x;
            crumb_value add; /* residual: out = W x + add; may be the same value as out; CRUMB_NO_VALUE: none */
            uint8_t n_parts;
            crumb_act_quant act;
            uint32_t act_group; /* for CRUMB_ACT_GROUP: 16, 32, 64 or 128; divides the weights' group */
            crumb_linear_part part[CRUMB_LINEAR_MAX_PARTS];
        } linear;
        struct {
            crumb_value q, k;
            uint32_t n_head, n_head_kv, head_dim, dims; /* the first `dims` of each head are rotated */
            crumb_rope_pairing pairing;
            const float *inv_freq; /* [dims/2]: angle = position * inv_freq[i] */
            float magnitude;       /* factor on cos and sin; 1 unless the scaling says otherwise */
        } rope;
        struct {
            crumb_value q, k, v, out;
            uint32_t kv_layer; /* index into the KV cache */
            uint32_t n_head, n_head_kv, head_dim;
            float scale;
        } attention;
        struct {
            crumb_value gate, up, out; /* may be the same */
            crumb_activation_fn fn;
        } gated;
        struct {
            crumb_value x, out;
        } select;
        struct {
            crumb_value x, out; /* out is 2 k wide */
            uint32_t k;         /* at most CRUMB_TOP_MAX_K */
        } top;
        struct {
            crumb_value x, out; /* not the same */
            uint32_t column;
        } place;
        struct {
            crumb_value x, out;   /* not the same; equally wide */
            const uint32_t *from; /* [width], each less than it */
        } gather;
        struct {
            uint32_t *flag;   /* memory of the host, accessed by threads of it with acquire/release */
            uint64_t *waited; /* WAIT: the ns that the device had nothing to do are added, by the thread that waits,
                               * before the replay returns; NULL: nobody asks */
            const uint32_t *given_up; /* WAIT: not 0 once the flag will never be raised; atomic. NULL: nobody says so */
        } rendezvous;
    };
} crumb_op;

/* One row of a batch. */
typedef struct crumb_row {
    int32_t token;
    uint32_t sequence;
    uint32_t position; /* also its place in the sequence's KV cache; rows of a sequence come in rising order */
    bool wants_output; /* SELECT keeps it */
} crumb_row;

/* ---- the backend ------------------------------------------------------------------------------------------- */

typedef struct crumb_tuning crumb_tuning; /* host/kernel/tuning.h */
struct crumb_tuning_key;
struct crumb_tuning_record;
typedef crumb_status crumb_tuning_find_fn(crumb_tuning *tuning, const struct crumb_tuning_key *key,
                                          struct crumb_tuning_record *out, bool *found, crumb_error *err);
typedef struct crumb_device crumb_device; /* defined by each backend */
typedef struct crumb_buffer crumb_buffer;
typedef struct crumb_kv_cache crumb_kv_cache;
typedef struct crumb_plan crumb_plan;

/* A device as it is listed, before it is opened. */
typedef enum crumb_device_kind {
    CRUMB_DEVICE_PROCESSOR,  /* the machine's own: the CPU backend, or another that runs on it */
    CRUMB_DEVICE_INTEGRATED, /* shares the machine's memory */
    CRUMB_DEVICE_DISCRETE,   /* has memory of its own */
} crumb_device_kind;

typedef struct crumb_device_listing {
    char name[16];      /* "cpu", "gpu0": what opens it */
    char pci[24];       /* where it is: "0000:03:00.0"; empty: unknown, or nowhere */
    char detail[96];    /* the processor's or card's own name */
    char driver[160];   /* name and version of what drives it; empty: nothing does */
    char target[32];    /* the kernels that it would run: "avx2", "portable" */
    char reason[160];   /* why these and no others */
    char unusable[320]; /* why it cannot be opened and what to do about it; empty: it can */
    char features[256]; /* what it has, for people: "sub-groups 8 16 32, f16, dot products" */
    char advice[320];   /* what would make more of it: settings, newer drivers; empty: nothing to say */
    char kernels[64];   /* crumb_device_info's, once it is open */
    crumb_device_kind kind;
    bool intel;       /* made by Intel: `auto` takes a GPU only if it is */
    uint32_t n_units; /* 0: unknown */
    char units[16];   /* what n_units counts: "Xe-cores", "compute units" */
    uint64_t memory_bytes, max_alloc_bytes;
} crumb_device_listing;

/* By the machine's profile; 0: unknown. */
typedef struct crumb_core_speeds {
    double memory_gb_s; /* that all cores read together from memory */
    double clock_ghz;   /* of a core while all compute */
} crumb_core_speeds;

typedef struct crumb_device_params {
    const char *device; /* name of a listing; NULL: the backend's first */
    const char *called; /* what messages call it; NULL: as the listing does */
    const char *target; /* "cpu", "cpu:avx2", "cl:portable"; NULL: the best */
    int n_threads;      /* 0: one per physical core */
    crumb_log_fn log;
    void *log_user;
    crumb_tuning *tuning;              /* measured choices of kernels, which outlive the device; NULL: none */
    crumb_tuning_find_fn *find_tuning; /* crumb_tuning_find, which modules do not link; NULL: none are looked up */
    const char *cpu_kind; /* the CPU's cores to run on: "auto", "p", "e", "all"; NULL: auto. Others ignore it, and: */
    const char *balance;  /* how the CPU divides a layer among threads: "auto", "split", "chunks"; NULL: auto */
    crumb_core_speeds cores; /* of the machine's */
} crumb_device_params;

typedef struct crumb_device_info {
    char name[64];   /* "cpu" */
    char detail[96]; /* the processor's or card's own name */
    char target[32]; /* tier in use: "avx2" */
    int n_threads;
    bool host_memory;             /* buffers are host memory that the host can write at any time */
    uint32_t index_bits;          /* 1 << bits of the weights that are faster in the index layout (host/lowbit/index.h),
                                   * where they can have it */
    uint64_t shared_weight_bytes; /* a buffer of up to so many bytes stays where the host wrote it, so that kernels of
                                   * the CPU read the same weights; 0: none does */
    uint64_t memory_bytes, memory_free_bytes;
    char kernels[64];      /* which kernels and driver these are: another text where either has changed; empty: they are
                            * part of the library, and its tests have proven them */
    bool bf16;             /* values between ops are bf16: results are near the CPU's, and not the same */
    char lower_target[32]; /* the target to open it with when these kernels compute wrongly; empty: there is none */
    bool stuck;   /* it has not answered in time: nothing more is asked of it, and what it has is not given back */
    bool refused; /* since it was opened, its compiler has refused one of these kernels: it would so the next time */
} crumb_device_info;

/* What a device's counters and sensors say at one moment. What is unknown is 0 or empty. */
typedef struct crumb_device_sensors {
    char energy_source[96];  /* the counter: "Level Zero Sysman, card"; empty: there is none that can be read */
    uint64_t energy_uj;      /* taken since some moment, in microjoules */
    uint64_t energy_wrap_uj; /* the counter begins again there; 0: it never does */
    uint32_t power_mw;       /* over the last tenth of a second; only of a listing */
    uint32_t power_limit_mw; /* what its maker lets it take for long */
    uint32_t clock_mhz;      /* of what computes */
    uint32_t clock_most_mhz;
    bool knows_throttling;
    char throttling[128]; /* what holds the clock down: "power, temperature"; empty: nothing does, or it is unknown */
    char missing[400];    /* why something of this is unknown, and what to do about it; empty: nothing to say */
} crumb_device_sensors;

typedef struct crumb_kv_params {
    uint32_t n_layers, n_sequences, n_ctx, n_head_kv, head_dim; /* [layer][sequence][head][position][head_dim] */
    crumb_kv_type type;
    /* NULL: memory of the cache's own. Else [n_layers][2]: where each layer's keys, and its values, lie, in the order
     * above: memory of the host that outlives the cache, zeroed when it was new, and, for a device without host_memory,
     * made by its shared_create. So several devices have one cache, or parts of it with heads of their own. */
    void *const (*pages)[2];
} crumb_kv_params;

/* A part of a cache that moves to another: what some layers hold of a sequence's heads. Positions travel in pages of
 * CRUMB_KV_PAGE; the last page travels whole, and what it holds behind the range means nothing. */
enum { CRUMB_KV_PAGE = 16 };
typedef struct crumb_kv_range {
    uint32_t layer, n_layers;
    uint32_t sequence;
    uint32_t head, n_heads;         /* of the cache's */
    uint32_t position, n_positions; /* from a multiple of CRUMB_KV_PAGE */
} crumb_kv_range;

typedef struct crumb_plan_desc {
    const crumb_op *ops; /* copied */
    size_t n_ops;
    const crumb_value_info *values; /* copied */
    size_t n_values;
    uint32_t max_rows;    /* the bucket: replay takes 1..max_rows rows */
    uint32_t max_outputs; /* most rows that SELECT keeps: what it and later ops write is sized for these */
    int n_threads;        /* of the device's; 0: all */
    crumb_kv_cache *kv;   /* NULL: a span without attention */
} crumb_plan_desc;

/* Where the time of replays went. What is folded into a linear op (norms, quantization, gates) counts with it. */
typedef struct crumb_plan_times {
    uint64_t linear_ns;    /* before SELECT: the layers */
    uint64_t head_ns;      /* linear ops behind SELECT */
    uint64_t attention_ns; /* with rotations */
    uint64_t other_ns;
    uint64_t n_replays;
} crumb_plan_times;

typedef struct crumb_backend {
    const char *name;
    struct {
        /* What there is, best first, at most `capacity`; returns how many. `note` says in one line why there is no
         * (other) device, and what to do about it; empty when there is nothing to say. Opens nothing and keeps nothing;
         * a driver that crashes or hangs does so in another process. */
        size_t (*list)(crumb_device_listing *out, size_t capacity, char *note, size_t note_size);
        crumb_status (*open)(const crumb_device_params *params, crumb_device **out, crumb_error *err);
        void (*close)(crumb_device *d);
        void (*get_info)(const crumb_device *d, crumb_device_info *out);
        /* Memory for weights, zeroed; `*host` is where the host writes them (and, where host_memory, what kernels
         * read). Ops name weights by the host's addresses, whatever the device makes of them. */
        crumb_status (*buffer_create)(crumb_device *d, uint64_t n_bytes, const char *what, crumb_buffer **out,
                                      void **host, crumb_error *err);
        /* The host has written [offset, offset + n_bytes) for good: a device with memory of its own copies it there
         * now. Unless they are `kept`, the host will not read these bytes again either, and such a device gives their
         * pages back; kept ones, and those that are never committed, other devices' ops may name as well. What one op
         * names (a matrix, a vector) must lie within one committed range. Before the first plan is recorded every byte
         * that ops name is committed. Several threads may commit at once. */
        crumb_status (*buffer_commit)(crumb_device *d, crumb_buffer *b, uint64_t offset, uint64_t n_bytes, bool kept,
                                      crumb_error *err);
        /* The n_bytes that ops name by `host`, also after the host's pages have gone. */
        crumb_status (*buffer_read)(crumb_device *d, const void *host, uint64_t n_bytes, void *to, crumb_error *err);
        void (*buffer_destroy)(crumb_device *d, crumb_buffer *b);
        crumb_status (*kv_create)(crumb_device *d, const crumb_kv_params *params, crumb_kv_cache **out,
                                  uint64_t *n_bytes, crumb_error *err);
        void (*kv_destroy)(crumb_device *d, crumb_kv_cache *kv);
        /* The keys and values of a range, crumb_kv_range_bytes of them (host/kernel/kv.h): [layer][keys, values][head]
         * [page], pages as cpu/attention.h has them for the cache's type. What one device reads another writes, bit for
         * bit, also where the two caches have other layers, heads, sequences or contexts. Not while the cache's plans
         * are replayed; both return when it is done. */
        crumb_status (*kv_read)(crumb_device *d, const crumb_kv_cache *kv, const crumb_kv_range *range, void *to,
                                crumb_error *err);
        crumb_status (*kv_write)(crumb_device *d, crumb_kv_cache *kv, const crumb_kv_range *range, const void *from,
                                 crumb_error *err);
        /* Memory that the host and the device's kernels both see, for values that plans share with other devices:
         * zeroed, aligned to 64 bytes. Fails with UNSUPPORTED where the device has none. */
        crumb_status (*shared_create)(crumb_device *d, uint64_t n_bytes, void **out, crumb_error *err);
        void (*shared_destroy)(crumb_device *d, void *shared, uint64_t n_bytes);
        /* What its sensors say now: of an open device, or, where `d` is NULL, of the listing `name`, for which a driver
         * is asked by another process. Never fails: out->missing says what is not there. */
        void (*sense)(crumb_device *d, const char *name, crumb_device_sensors *out);
    } device;
    struct {
        /* Selects kernels for every op. Fails with UNSUPPORTED when an op has no kernel, naming it. */
        crumb_status (*record)(crumb_device *d, const crumb_plan_desc *desc, crumb_plan **out, crumb_error *err);
        /* The rows of a value that an INPUT op names: f32 [n][width], copied before it returns, n being what the next
         * replay takes. Stays until a replay, which may overwrite it. */
        crumb_status (*write)(crumb_plan *p, crumb_value value, const float *rows, uint32_t n_rows, crumb_error *err);
        /* Evaluates the rows and returns when they are done. Not thread-safe per device: the caller serializes. Fails
         * where an input has not been written, for these rows, since the last replay. */
        crumb_status (*replay)(crumb_plan *p, const crumb_row *rows, uint32_t n_rows, crumb_error *err);
        /* The rows of a value after replay: f32 [n][width], row-major without gaps. Valid until the next replay. */
        crumb_status (*read)(crumb_plan *p, crumb_value value, const float **out, uint32_t *n_rows, crumb_error *err);
        uint64_t (*scratch_bytes)(const crumb_plan *p);
        /* Adds the time of every later replay to *times, which must outlive them; NULL: no more. The entry itself may
         * be NULL: nothing is measured. */
        void (*measure)(crumb_plan *p, crumb_plan_times *times);
        void (*destroy)(crumb_plan *p);
    } plan;
} crumb_backend;

extern const crumb_backend crumb_backend_cpu;

/* ---- backends that are loaded ------------------------------------------------------------------------------ */

typedef struct crumb_kernel_suite crumb_kernel_suite; /* host/kernel/suite.h */

/* What a loadable backend exports, under the name CRUMB_MODULE_SYMBOL and as its only symbol. One whose interface or
 * version is another is not used: the structures above may differ. */
typedef struct crumb_module {
    uint32_t interface;  /* CRUMB_MODULE_INTERFACE, raised with every change of this header and of suite.h */
    const char *version; /* crumb_version() of its build */
    const crumb_backend *backend;
    const crumb_kernel_suite *suite; /* its kernels one by one, outside of plans; NULL: they cannot be asked for */
} crumb_module;

#define CRUMB_MODULE_SYMBOL "crumb_module_entry"
enum { CRUMB_MODULE_INTERFACE = 13 };

#endif
