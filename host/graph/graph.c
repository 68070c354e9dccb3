#include "host/graph/graph.h"

#include "host/model/network.h"

#include <stdlib.h>

void crumb_graph_init(crumb_graph *g, crumb_activation activation, crumb_error *err) {
    *g = (crumb_graph){.activation = activation, .err = err};
}

void crumb_graph_free(crumb_graph *g) {
    free(g->ops);
    free(g->values);
    *g = (crumb_graph){0};
}

/* Makes room for one more element; false when the graph has failed. */
static bool reserve(crumb_graph *g, void **array, size_t n, size_t *capacity, size_t size) {
    if (g->status != CRUMB_OK) return false;
    if (n < *capacity) return true;
    size_t larger = *capacity ? 2 * *capacity : 64;
    void *p = realloc(*array, larger * size);
    if (!p) {
        g->status = crumb_fail(g->err, CRUMB_ERR_MEMORY, "not enough memory for the graph");
        return false;
    }
    *array = p;
    *capacity = larger;
    return true;
}

crumb_value crumb_graph_value(crumb_graph *g, uint32_t width) {
    if (!reserve(g, (void **)&g->values, g->n_values, &g->values_capacity, sizeof *g->values)) return CRUMB_NO_VALUE;
    uint32_t slot = 0;
    while (slot < CRUMB_GRAPH_MAX_SLOTS && g->slot_used[slot]) slot++;
    if (slot == CRUMB_GRAPH_MAX_SLOTS || g->n_values >= CRUMB_NO_VALUE) {
        g->status =
            crumb_fail(g->err, CRUMB_ERR_INTERNAL, "graph: more than %d values are alive", CRUMB_GRAPH_MAX_SLOTS);
        return CRUMB_NO_VALUE;
    }
    g->slot_used[slot] = true;
    g->values[g->n_values] = (crumb_value_info){.width = width, .slot = slot};
    return (crumb_value)g->n_values++;
}

void crumb_graph_release(crumb_graph *g, crumb_value v) {
    if (g->status == CRUMB_OK && v != CRUMB_NO_VALUE) g->slot_used[g->values[v].slot] = false;
}

void crumb_graph_append(crumb_graph *g, const crumb_op *op) {
    if (!reserve(g, (void **)&g->ops, g->n_ops, &g->ops_capacity, sizeof *g->ops)) return;
    g->ops[g->n_ops] = *op;
    g->ops[g->n_ops++].layer = g->layer;
}

crumb_value crumb_graph_input(crumb_graph *g, uint32_t width) {
    crumb_value out = crumb_graph_value(g, width);
    crumb_graph_append(g, &(crumb_op){.kind = CRUMB_OP_INPUT, .input = {.out = out}});
    return out;
}

crumb_value crumb_graph_embed(crumb_graph *g, const crumb_matrix *table) {
    crumb_value out = crumb_graph_value(g, table->k);
    crumb_graph_append(g, &(crumb_op){.kind = CRUMB_OP_EMBED, .embed = {.table = table, .out = out, .scale = 1}});
    return out;
}

crumb_value crumb_graph_rms_norm(crumb_graph *g, crumb_value x, const float *weight, float eps) {
    if (g->status != CRUMB_OK) return CRUMB_NO_VALUE;
    crumb_value out = crumb_graph_value(g, g->values[x].width);
    crumb_graph_append(
        g, &(crumb_op){.kind = CRUMB_OP_RMS_NORM, .norm = {.x = x, .out = out, .weight = weight, .eps = eps}});
    return out;
}

crumb_value crumb_graph_select(crumb_graph *g, crumb_value x) {
    if (g->status != CRUMB_OK) return CRUMB_NO_VALUE;
    crumb_value out = crumb_graph_value(g, g->values[x].width);
    crumb_graph_append(g, &(crumb_op){.kind = CRUMB_OP_SELECT, .select = {.x = x, .out = out}});
    return out;
}

crumb_value crumb_graph_top(crumb_graph *g, crumb_value x, uint32_t k) {
    crumb_value out = crumb_graph_value(g, 2 * k);
    crumb_graph_append(g, &(crumb_op){.kind = CRUMB_OP_TOP, .top = {.x = x, .out = out, .k = k}});
    return out;
}

static crumb_value gather(crumb_graph *g, crumb_value x, const uint32_t *from) {
    crumb_value out = crumb_graph_value(g, g->values[x].width);
    crumb_graph_append(g, &(crumb_op){.kind = CRUMB_OP_GATHER, .gather = {.x = x, .out = out, .from = from}});
    return out;
}

/* How the activations of one matrix are quantized. */
typedef struct quantization {
    crumb_act_quant act;
    uint32_t group;
    uint8_t bits;
} quantization;

static bool same_quantization(quantization a, quantization b) {
    return a.act == b.act && a.group == b.group && a.bits == b.bits;
}

/* The type's own rule (lowbit.md, "Activations") unless the session asks otherwise. */
static quantization choose_quantization(crumb_graph *g, const crumb_matrix *w) {
    quantization none = {CRUMB_ACT_F32, 0, w->bits}, row = {CRUMB_ACT_ROW, 0, w->bits};
    quantization group = {CRUMB_ACT_GROUP, w->group, w->bits};
    if (w->bits == 0 || g->activation == CRUMB_ACTIVATION_FLOAT) return none;
    if (g->activation == CRUMB_ACTIVATION_ROW) return row;
    if (g->activation == CRUMB_ACTIVATION_GROUP) {
        if (w->group <= 128) return group;
        if (g->status == CRUMB_OK)
            g->status = crumb_fail(g->err, CRUMB_ERR_ARGUMENT,
                                   "activation scales per group need weight groups of 16 to 128; this file's %s has %u",
                                   crumb_type_get_info(w->type)->name, w->group);
        return row;
    }
    return crumb_type_get_info(w->type)->act_rule == CRUMB_ACT_RULE_GROUP && w->group <= 128 ? group : row;
}

void crumb_graph_linear(crumb_graph *g, crumb_value x, size_t n, const crumb_weight *const *weights,
                        const crumb_value *outs, crumb_value add) {
    for (size_t i = 0; i < n && g->status == CRUMB_OK;) {
        quantization q = choose_quantization(g, &weights[i]->matrix);
        const uint32_t *order = weights[i]->order;
        crumb_value in = order ? gather(g, x, order) : x;
        crumb_op op = {.kind = CRUMB_OP_LINEAR, .linear = {.x = in, .add = add, .act = q.act, .act_group = q.group}};
        for (; i < n && op.linear.n_parts < CRUMB_LINEAR_MAX_PARTS; i++) {
            const crumb_weight *w = weights[i];
            if (w->order != order || !same_quantization(q, choose_quantization(g, &w->matrix))) break;
            op.linear.part[op.linear.n_parts++] = (crumb_linear_part){
                .w = &w->matrix, .m1 = w->matrix.m, .out = outs[i], .out_scale = w->scale, .bias = w->bias};
        }
        crumb_graph_append(g, &op);
        if (order) crumb_graph_release(g, in);
    }
}
