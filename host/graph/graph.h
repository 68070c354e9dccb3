/* A graph: the ops of a forward pass in order, and a memory plan for the values between them.
 *
 * Builders call these functions one after the other. The first error sticks: later calls do nothing, and the caller
 * looks once at the end. A value's memory is reused after crumb_graph_release(), so that scratch stays small.
 */
#ifndef CRUMB_GRAPH_GRAPH_H
#define CRUMB_GRAPH_GRAPH_H

#include "host/backend.h"

enum { CRUMB_GRAPH_MAX_SLOTS = 32 };

struct crumb_weight; /* host/model/network.h */

typedef struct crumb_graph {
    crumb_op *ops;
    size_t n_ops, ops_capacity;
    crumb_value_info *values;
    size_t n_values, values_capacity;
    bool slot_used[CRUMB_GRAPH_MAX_SLOTS];
    crumb_activation activation; /* the session's wish */
    uint16_t layer;              /* stamped on ops */
    crumb_status status;
    crumb_error *err;
} crumb_graph;

void crumb_graph_init(crumb_graph *g, crumb_activation activation, crumb_error *err);
void crumb_graph_free(crumb_graph *g);

crumb_value crumb_graph_value(crumb_graph *g, uint32_t width);
void crumb_graph_release(crumb_graph *g, crumb_value v);

/* Written by the host before each replay. */
crumb_value crumb_graph_input(crumb_graph *g, uint32_t width);
crumb_value crumb_graph_embed(crumb_graph *g, const crumb_matrix *table);
crumb_value crumb_graph_rms_norm(crumb_graph *g, crumb_value x, const float *weight, float eps);
/* outs[i] = weights[i] x (+ add for n == 1). Matrices that quantize x alike, and have
 * their columns in the same order, become one op that quantizes it once. */
void crumb_graph_linear(crumb_graph *g, crumb_value x, size_t n, const struct crumb_weight *const *weights,
                        const crumb_value *outs, crumb_value add);
crumb_value crumb_graph_select(crumb_graph *g, crumb_value x);
crumb_value crumb_graph_top(crumb_graph *g, crumb_value x, uint32_t k);
/* Appends an op that its caller has filled; for the kinds without a function of their own. */
void crumb_graph_append(crumb_graph *g, const crumb_op *op);

#endif
