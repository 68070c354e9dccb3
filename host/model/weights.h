/* Weights: which tensors of a file a network needs, where each goes, and packing them there: into one allocation, or
 * one in each of two devices' memories.
 *
 * Everything is copied out of the mapped file, in the layout that kernels read: after packing the file can go, and
 * resident memory is the packed weights alone. Pages of the file are dropped tensor by tensor while packing.
 */
#ifndef CRUMB_MODEL_WEIGHTS_H
#define CRUMB_MODEL_WEIGHTS_H

#include "host/backend.h"
#include "host/model/network.h"

enum { CRUMB_WEIGHTS_MEMORIES = 2 };

/* One tensor on its way from file to memory. Exactly one of matrix, vector, scalar and order is set. */
typedef struct crumb_weights_entry {
    const crumb_gguf_tensor *tensor;
    crumb_matrix *matrix;
    const float **vector;
    float *scalar;
    const uint32_t **order;     /* of a matrix's columns: crumb_gguf_tensor.order */
    bool is_there;              /* an order that an earlier entry brings */
    crumb_matrix_layout layout; /* of a matrix */
    uint8_t memory;             /* which of them it goes to */
    uint64_t offset;            /* there; a multiple of 64 */
} crumb_weights_entry;

typedef struct crumb_weights {
    crumb_weights_entry *entries;
    size_t n_entries, capacity;
    uint64_t total_bytes[CRUMB_WEIGHTS_MEMORIES]; /* of each allocation; 0: none */
    uint64_t freed_bytes;  /* of these, given back after packing: the index layout may be smaller than tiles, and scales
                            * of few groups, or of f16, than were planned */
    uint64_t copied_bytes; /* that lie in a device's memory and in the host's: crumb_weights_place.rows */
    uint64_t inv_freq_offset[CRUMB_WEIGHTS_MEMORIES];
    bool head_apart;                     /* tied, but in another memory than the embedding: there twice */
    const uint8_t *memories;             /* the caller's */
    const crumb_gguf_tensor *rope_freqs; /* per-frequency divisors of llama3's scaling; NULL: none */
} crumb_weights;

/* Finds every tensor that net->arch asks for and checks its shape; sets net->layers (owned by the caller, freed with
 * free()) and net->tied. A tensor that nothing asked for is UNSUPPORTED: running without it would be wrong. memories:
 * of each layer and of the head behind them, the embedding going with the first layer; NULL: all in the first. */
crumb_status crumb_weights_plan(const crumb_gguf *g, const uint8_t *memories, crumb_network *net, crumb_weights *out,
                                crumb_error *err);
void crumb_weights_free(crumb_weights *w);

/* Where weights of one memory go: a buffer of weights->total_bytes, and `base`, where the host writes it. */
typedef struct crumb_weights_place {
    const crumb_backend *backend;
    crumb_device *device;
    crumb_buffer *buffer;
    uint8_t *base;       /* zeroed, 64-byte aligned */
    bool host_memory;    /* which is where they are read, so that pages that nothing needs may be given back */
    uint32_t index_bits; /* 1 << bits of the matrices that get the index layout where it fits, except for the
                          * embedding, whose rows are read one by one */
    /* NULL: the device gets all. Else the host goes on reading what is not the device's alone: it keeps vectors, and of
     * a matrix, one of the network's, the device gets as many rows, the first, as this says; those too where they are
     * `kept`. */
    uint32_t (*rows)(const void *user, const crumb_matrix *w, bool *kept);
    const void *user;
} crumb_weights_place;

/* Commits of a matrix, which is packed at place->base, what place->rows says, and adds to *copied what the host keeps
 * beside the device. */
crumb_status crumb_weights_commit_rows(const crumb_weights_place *place, const crumb_matrix *w, uint64_t *copied,
                                       crumb_error *err);

/* places: [CRUMB_WEIGHTS_MEMORIES]. Packs all entries on n_threads threads, commits each to the device when it is
 * whole, and points the network's weights there. `progress` is called from the calling thread. */
crumb_status crumb_weights_pack(const crumb_gguf *g, crumb_weights *w, crumb_network *net,
                                const crumb_weights_place *places, int n_threads, crumb_progress_fn progress,
                                void *progress_user, crumb_error *err);

#endif
