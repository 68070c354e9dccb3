#include "host/engine/shares.h"

#include "host/base/checked.h"
#include "host/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_FLAGS = CRUMB_SHARE_FLAG_BYTES / sizeof(uint32_t), NO_REGION = UINT32_MAX };

/* How a value of the whole span is there on a device. */
typedef enum form {
    ABSENT,
    LOCAL,  /* all of it, made by the device for itself */
    OWN,    /* its own columns */
    SHARED, /* all of it, in memory that both see */
} form;

typedef struct mapped {
    form form;
    crumb_value value; /* of the part */
    uint32_t region;   /* SHARED */
    bool pending;      /* SHARED: columns are written that have not been exchanged */
} mapped;

/* A piece of shared memory. Its next value may be written once both are behind an exchange after the last reading. */
typedef struct region {
    size_t offset; /* floats */
    uint64_t n_floats;
    uint32_t slot;  /* of the whole graph, whose value is in it */
    size_t read_at; /* exchanges before the last reading of all its columns */
    bool taken;
} region;

enum { MAX_REGIONS = CRUMB_GRAPH_MAX_SLOTS };

typedef struct maker {
    const crumb_share_plan *plan;
    int device;
    const crumb_share_memory *memory;
    crumb_share_part *part;
    mapped *map; /* per value of the whole span */
    region regions[MAX_REGIONS];
    uint32_t n_regions;
    uint32_t head_dim, n_head, n_head_kv;
    crumb_value first_output; /* it and later values have rows that want output only */
    crumb_error *err;
    crumb_status status;
} maker;

static const crumb_value_info *whole_value(const maker *m, crumb_value v) {
    return &m->plan->whole->values[v];
}

/* ---- building the part ---------------------------------------------------------------------------------------- */

static bool grow(maker *m, void **array, size_t n, size_t *capacity, size_t size) {
    if (m->status != CRUMB_OK) return false;
    if (n < *capacity) return true;
    const size_t larger = 2 * *capacity + 64;
    void *grown = realloc(*array, larger * size);
    if (!grown) {
        m->status = crumb_fail(m->err, CRUMB_ERR_MEMORY, "not enough memory for divided layers");
        return false;
    }
    *array = grown;
    *capacity = larger;
    return true;
}

static crumb_value add_value(maker *m, uint32_t width, uint32_t slot, float *shared) {
    crumb_share_part *p = m->part;
    if (!grow(m, (void **)&p->values, p->n_values, &p->values_capacity, sizeof *p->values)) return CRUMB_NO_VALUE;
    p->values[p->n_values] = (crumb_value_info){.width = width, .slot = slot, .shared = shared};
    return (crumb_value)p->n_values++;
}

static void add_op(maker *m, const crumb_op *op) {
    crumb_share_part *p = m->part;
    if (grow(m, (void **)&p->ops, p->n_ops, &p->ops_capacity, sizeof *p->ops)) p->ops[p->n_ops++] = *op;
}

/* What this device has written is there for the other, and the other's for this one. */
static void exchange(maker *m, uint16_t layer) {
    const size_t k = m->part->n_exchanges++;
    if (!m->memory) return;
    uint32_t *flags[2] = {m->memory->flags + 2 * LINE_FLAGS * k, m->memory->flags + (2 * k + 1) * LINE_FLAGS};
    add_op(m, &(crumb_op){.kind = CRUMB_OP_SIGNAL, .layer = layer, .rendezvous.flag = flags[m->device]});
    add_op(m, &(crumb_op){.kind = CRUMB_OP_WAIT,
                          .layer = layer,
                          .rendezvous = {.flag = flags[!m->device],
                                         .waited = m->memory->waited[m->device],
                                         .given_up = m->memory->given_up}});
}

/* ---- columns --------------------------------------------------------------------------------------------------- */

/* What a value's columns are. */
typedef enum columns { ROWS, QUERIES, KEYS } columns;

static columns columns_of(const maker *m, crumb_value v) {
    const crumb_graph *g = m->plan->whole;
    for (size_t i = 0; i < g->n_ops; i++) {
        if (g->ops[i].kind != CRUMB_OP_ATTENTION) continue;
        if (v == g->ops[i].attention.q || v == g->ops[i].attention.out) return QUERIES;
        if (v == g->ops[i].attention.k || v == g->ops[i].attention.v) return KEYS;
    }
    return ROWS;
}

/* The device's query heads and key heads. */
static uint32_t own_queries(const maker *m) {
    const uint32_t group = m->n_head_kv > 1 ? m->n_head / m->n_head_kv : 1;
    return m->device ? m->n_head - m->plan->heads * group : m->plan->heads * group;
}
static uint32_t own_keys(const maker *m) {
    if (m->n_head_kv == 1) return 1;
    return m->device ? m->n_head_kv - m->plan->heads : m->plan->heads;
}

uint32_t crumb_share_heads(const crumb_hparams *h, double share) {
    const uint32_t n = h->num_key_value_heads > 1 ? h->num_key_value_heads : h->num_attention_heads;
    const uint32_t heads = (uint32_t)lround(share * n);
    if (heads < 1) return 1;
    return heads < n ? heads : n - 1;
}

uint32_t crumb_share_rows(uint32_t m, double share) {
    const uint32_t n_tiles = (uint32_t)crumb_div_up(m, CRUMB_TILE_ROWS);
    uint32_t tiles = (uint32_t)lround(share * n_tiles);
    if (tiles < 1) tiles = 1;
    if (tiles >= n_tiles) tiles = n_tiles - 1;
    return tiles * CRUMB_TILE_ROWS;
}

/* Columns [*begin, *end) of a value that are this device's. */
static void own_columns(const maker *m, crumb_value v, uint32_t *begin, uint32_t *end) {
    const uint32_t width = whole_value(m, v)->width;
    const columns of = columns_of(m, v);
    const uint32_t heads = of == QUERIES ? own_queries(m) : own_keys(m);
    uint32_t cut = m->device ? width - heads * m->head_dim : heads * m->head_dim;
    if (of == ROWS) cut = crumb_share_rows(width, m->plan->share);
    *begin = m->device ? cut : 0;
    *end = m->device ? width : cut;
}

/* ---- shared memory --------------------------------------------------------------------------------------------- */

/* Of a slot's largest value: what is shared may take its place later. */
static uint64_t slot_floats(const maker *m, uint32_t slot) {
    const crumb_graph *g = m->plan->whole;
    uint64_t most = 0;
    for (size_t i = 0; i < g->n_values; i++) {
        const uint32_t rows = i < m->first_output ? m->plan->max_rows : m->plan->max_outputs;
        const uint64_t n = (uint64_t)g->values[i].width * rows;
        if (g->values[i].slot == slot && n > most) most = n;
    }
    return most;
}

/* A piece for a value: the one that an earlier value of its slot had, or a free one, or a new one. */
static uint32_t take_region(maker *m, crumb_value v) {
    const uint32_t slot = whole_value(m, v)->slot;
    const uint64_t n_floats = slot_floats(m, slot);
    for (uint32_t i = 0; i < m->n_regions; i++)
        if (m->regions[i].taken && m->regions[i].slot == slot) m->regions[i].taken = false; /* that one is gone */
    for (uint32_t i = 0; i < m->n_regions; i++) {
        region *r = &m->regions[i];
        if (r->taken || r->n_floats < n_floats || r->read_at >= m->part->n_exchanges) continue;
        r->taken = true;
        r->slot = slot;
        return i;
    }
    if (m->n_regions == MAX_REGIONS) {
        m->status = crumb_fail(m->err, CRUMB_ERR_INTERNAL, "divided layers: too many shared values");
        return NO_REGION;
    }
    m->regions[m->n_regions] =
        (region){.offset = m->part->n_floats, .n_floats = n_floats, .slot = slot, .taken = true, .read_at = 0};
    m->part->n_floats += crumb_round_up(n_floats, 16);
    return m->n_regions++;
}

static crumb_value add_shared(maker *m, crumb_value v, uint32_t at) {
    float *memory = m->memory && at != NO_REGION ? m->memory->values + m->regions[at].offset : NULL;
    return add_value(m, whole_value(m, v)->width, CRUMB_GRAPH_MAX_SLOTS + at, memory);
}

/* All columns of a value, to read: its own are placed beside the other device's first. */
static crumb_value read_all(maker *m, crumb_value v, uint16_t layer) {
    mapped *x = &m->map[v];
    if (x->form == OWN) {
        uint32_t begin, end;
        own_columns(m, v, &begin, &end);
        const uint32_t at = take_region(m, v);
        const crumb_value all = add_shared(m, v, at);
        add_op(m, &(crumb_op){
                      .kind = CRUMB_OP_PLACE, .layer = layer, .place = {.x = x->value, .out = all, .column = begin}});
        *x = (mapped){SHARED, all, at, true};
    }
    if (x->form == SHARED && x->pending) {
        exchange(m, layer);
        x->pending = false;
    }
    if (x->form == SHARED && x->region != NO_REGION) m->regions[x->region].read_at = m->part->n_exchanges;
    return x->value;
}

/* ---- ops ------------------------------------------------------------------------------------------------------- */

static crumb_value make_local(maker *m, crumb_value v) {
    m->map[v] =
        (mapped){LOCAL, add_value(m, whole_value(m, v)->width, whole_value(m, v)->slot, NULL), NO_REGION, false};
    return m->map[v].value;
}

static crumb_value make_own(maker *m, crumb_value v) {
    uint32_t begin, end;
    own_columns(m, v, &begin, &end);
    m->map[v] = (mapped){OWN, add_value(m, end - begin, whole_value(m, v)->slot, NULL), NO_REGION, false};
    return m->map[v].value;
}

/* Each for itself, or the second for both: exchanged when it is first read. */
static void divide_embedding(maker *m, const crumb_op *from) {
    crumb_op op = *from;
    if (m->plan->second_embeds) {
        const uint32_t at = take_region(m, from->embed.out);
        op.embed.out = add_shared(m, from->embed.out, at);
        m->map[from->embed.out] = (mapped){SHARED, op.embed.out, at, true};
        if (m->device == 0) return;
    } else {
        op.embed.out = make_local(m, from->embed.out);
    }
    add_op(m, &op);
}

/* y = W x: own rows, as a matrix of their own. */
static void divide_linear(maker *m, const crumb_op *from) {
    crumb_op op = *from;
    op.linear.x = read_all(m, from->linear.x, from->layer);
    for (int i = 0; i < from->linear.n_parts; i++) {
        crumb_linear_part *part = &op.linear.part[i];
        uint32_t begin, end;
        if (m->n_head_kv == 1 && columns_of(m, part->out) == KEYS) {
            part->out = make_local(m, part->out);
            continue;
        }
        own_columns(m, part->out, &begin, &end);
        crumb_matrix *view = &m->part->views[m->part->n_views++];
        *view = crumb_matrix_rows(part->w, begin, end);
        if (part->bias) part->bias += begin;
        part->w = view;
        part->m0 = 0;
        part->m1 = end - begin;
        part->out = make_own(m, part->out);
    }
    add_op(m, &op);
}

/* residual += W x: own rows of the stream, which both see. Into the same memory where nobody may still be reading it.
 */
static void divide_addition(maker *m, const crumb_op *from) {
    crumb_op op = *from;
    crumb_linear_part *part = &op.linear.part[0];
    const crumb_value out = part->out;
    op.linear.x = read_all(m, from->linear.x, from->layer);
    op.linear.add = m->map[from->linear.add].value;
    own_columns(m, out, &part->m0, &part->m1);
    mapped *x = &m->map[out];
    if (x->form != SHARED || m->regions[x->region].read_at >= m->part->n_exchanges) {
        if (x->form == SHARED) m->regions[x->region].read_at = m->part->n_exchanges;
        const uint32_t at = take_region(m, out);
        *x = (mapped){SHARED, add_shared(m, out, at), at, true};
    }
    x->pending = true;
    part->out = x->value;
    add_op(m, &op);
}

static void divide_attention(maker *m, const crumb_op *from) {
    crumb_op op = *from;
    if (op.kind == CRUMB_OP_ROPE) {
        op.rope.q = m->map[from->rope.q].value;
        op.rope.k = m->map[from->rope.k].value;
        op.rope.n_head = own_queries(m);
        op.rope.n_head_kv = own_keys(m);
    } else {
        op.attention.q = m->map[from->attention.q].value;
        op.attention.k = m->map[from->attention.k].value;
        op.attention.v = m->map[from->attention.v].value;
        op.attention.out = make_own(m, from->attention.out);
        op.attention.n_head = own_queries(m);
        op.attention.n_head_kv = own_keys(m);
    }
    add_op(m, &op);
}

static void divide_gated(maker *m, const crumb_op *from) {
    crumb_op op = *from;
    op.gated.gate = m->map[from->gated.gate].value;
    op.gated.up = m->map[from->gated.up].value;
    op.gated.out = from->gated.out == from->gated.gate ? op.gated.gate
                   : from->gated.out == from->gated.up ? op.gated.up
                                                       : make_own(m, from->gated.out);
    add_op(m, &op);
}

/* Of each head by itself: each device norms those that it has. */
static void divide_head_norm(maker *m, const crumb_op *from) {
    crumb_op op = *from;
    const mapped x = m->map[from->norm.x];
    if (x.form != OWN && x.form != LOCAL) {
        m->status = crumb_fail(m->err, CRUMB_ERR_INTERNAL, "divided layers: heads that both devices hold");
        return;
    }
    op.norm.x = op.norm.out = x.value;
    if (from->norm.out != from->norm.x)
        op.norm.out = x.form == OWN ? make_own(m, from->norm.out) : make_local(m, from->norm.out);
    add_op(m, &op);
}

static void divide(maker *m, const crumb_op *from) {
    crumb_op op = *from;
    switch (from->kind) {
    case CRUMB_OP_EMBED: divide_embedding(m, from); break;
    case CRUMB_OP_INPUT:
        op.input.out = make_local(m, from->input.out);
        add_op(m, &op);
        break;
    case CRUMB_OP_RMS_NORM:
        if (from->norm.head_dim) {
            divide_head_norm(m, from);
            break;
        }
        op.norm.x = read_all(m, from->norm.x, from->layer);
        op.norm.out = make_local(m, from->norm.out);
        add_op(m, &op);
        break;
    case CRUMB_OP_GATHER:
        op.gather.x = read_all(m, from->gather.x, from->layer);
        op.gather.out = make_local(m, from->gather.out);
        add_op(m, &op);
        break;
    case CRUMB_OP_SELECT:
        op.select.x = read_all(m, from->select.x, from->layer);
        op.select.out = make_local(m, from->select.out);
        add_op(m, &op);
        break;
    case CRUMB_OP_LINEAR: (from->linear.add == CRUMB_NO_VALUE ? divide_linear : divide_addition)(m, from); break;
    case CRUMB_OP_ROPE:
    case CRUMB_OP_ATTENTION: divide_attention(m, from); break;
    case CRUMB_OP_GATED: divide_gated(m, from); break;
    case CRUMB_OP_TOP:
    case CRUMB_OP_PLACE:
    case CRUMB_OP_SIGNAL:
    case CRUMB_OP_WAIT: m->status = crumb_fail(m->err, CRUMB_ERR_INTERNAL, "layers that are divided already"); break;
    }
}

static crumb_value find_first_output(const crumb_graph *g) {
    for (size_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == CRUMB_OP_SELECT) return g->ops[i].select.out;
    return CRUMB_NO_VALUE;
}

/* Heads are those of the first attention: all layers have the same. The output matrix by itself has none. */
static crumb_status find_heads(maker *m) {
    const crumb_graph *g = m->plan->whole;
    for (size_t i = 0; i < g->n_ops; i++) {
        const crumb_op *op = &g->ops[i];
        if (op->kind != CRUMB_OP_ATTENTION) continue;
        m->head_dim = op->attention.head_dim;
        m->n_head_kv = op->attention.n_head_kv;
        m->n_head = op->attention.n_head;
        break;
    }
    const uint32_t n = m->n_head_kv > 1 ? m->n_head_kv : m->n_head;
    if (n == 0) return CRUMB_OK;
    if (m->plan->heads >= 1 && m->plan->heads < n && m->head_dim % CRUMB_TILE_ROWS == 0) return CRUMB_OK;
    return crumb_fail(m->err, CRUMB_ERR_UNSUPPORTED,
                      "layers with %u heads of %u columns cannot be divided between two devices", m->n_head,
                      m->head_dim);
}

crumb_status crumb_share_make(const crumb_share_plan *plan, int device, const crumb_share_memory *memory,
                              crumb_share_part *out, crumb_error *err) {
    maker m = {.plan = plan, .device = device, .memory = memory, .part = out, .err = err};
    *out = (crumb_share_part){.result = CRUMB_NO_VALUE};
    CRUMB_TRY(find_heads(&m));
    m.first_output = find_first_output(plan->whole);
    CRUMB_TRY(crumb_calloc(plan->whole->n_values, sizeof *m.map, "divided layers", (void **)&m.map, err));
    m.status = crumb_calloc(plan->whole->n_ops * CRUMB_LINEAR_MAX_PARTS, sizeof *out->views, "divided layers",
                            (void **)&out->views, err);
    for (size_t i = 0; i < plan->whole->n_ops && m.status == CRUMB_OK; i++) divide(&m, &plan->whole->ops[i]);
    if (m.status == CRUMB_OK) out->result = read_all(&m, plan->result, 0);
    free(m.map);
    if (m.status != CRUMB_OK) crumb_share_free(out);
    return m.status;
}

void crumb_share_free(crumb_share_part *part) {
    free(part->ops);
    free(part->values);
    free(part->views);
    *part = (crumb_share_part){.result = CRUMB_NO_VALUE};
}
