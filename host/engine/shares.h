/* A span of layers divided between two devices: what each computes of every op, and where they exchange.
 *
 * Each has its own key heads, with the query heads that share them, and its own rows of all other matrices. Where there
 * is one key head, each has its own query heads, and both have that head's keys and values. A value
 * that only goes on within one device stays as narrow as that; what the other needs as well is put into memory that
 * both see (host/backend.h, shared values), behind which both signal and wait: attention's result, the gate's, and the
 * residual stream twice, four times a layer; and what the second has embedded, where it alone does. Everything else,
 * such as norms, both compute for themselves.
 */
#ifndef CRUMB_ENGINE_SHARES_H
#define CRUMB_ENGINE_SHARES_H

#include "host/graph/graph.h"
#include "host/model/hparams.h"

/* How a span is divided. The first device has key heads (or query heads, where there is one key head) [0, heads) and
 * the part `share` of everything else. */
typedef struct crumb_share_plan {
    const crumb_graph *whole; /* as for one device, without TOP */
    crumb_value result;       /* of it, which the first device gets whole */
    uint32_t heads;           /* 1 .. their number - 1 */
    double share;             /* 0..1 */
    uint32_t max_rows, max_outputs;
    bool second_embeds; /* only the second device has the embedding's table, and embeds for both; else each does */
} crumb_share_plan;

/* How many heads the first device has of a model's: of key heads, or of query heads where there is one key head. */
uint32_t crumb_share_heads(const crumb_hparams *h, double share);
/* How many of a matrix's m rows it has where these are no heads. */
uint32_t crumb_share_rows(uint32_t m, double share);

enum { CRUMB_SHARE_FLAG_BYTES = 64 }; /* a device's flag of an exchange: a cache line */

/* What both devices see; zeroed by who makes it. */
typedef struct crumb_share_memory {
    float *values;       /* n_floats of them, aligned to 64 bytes */
    uint32_t *flags;     /* [n_exchanges][2][16]: the first device's, then the second's, a cache line each */
    uint32_t *given_up;  /* not 0: one device's replay has failed, and the other need not wait for it; atomic */
    uint64_t *waited[2]; /* the ns that each device waits for the other are added */
} crumb_share_memory;

/* One device's part. */
typedef struct crumb_share_part {
    crumb_op *ops;
    size_t n_ops, ops_capacity;
    crumb_value_info *values;
    size_t n_values, values_capacity;
    crumb_matrix *views; /* own rows of matrices, which ops point to */
    size_t n_views;
    crumb_value result; /* crumb_share_plan.result, whole */
    size_t n_floats;    /* of shared values, */
    size_t n_exchanges; /* and exchanges: the same for both */
} crumb_share_part;

/* The part of device 0 or 1. `memory` NULL: only to find out sizes. Fails with UNSUPPORTED where the layers cannot be
 * divided so. */
crumb_status crumb_share_make(const crumb_share_plan *plan, int device, const crumb_share_memory *memory,
                              crumb_share_part *out, crumb_error *err);
void crumb_share_free(crumb_share_part *part); /* zeroed ones too */

#endif
