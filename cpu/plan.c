/* Recording: ops become steps, values get offsets, kernels are chosen (record_linear.c), and all scratch is allocated
 * (record_scratch.c), so that a replay only runs. */
#include "cpu/divide.h"
#include "cpu/record.h"

#include "host/base/checked.h"
#include "host/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 1 << 16 };

crumb_step *crumb_record_step(crumb_recorder *r, const crumb_op *op, const crumb_step_kind *kind) {
    crumb_step *s = &r->p->steps[r->p->n_steps++];
    s->kind = kind;
    s->layer = op ? op->layer : 0;
    s->on_outputs = r->after_select;
    return s;
}

static void add_simple_step(crumb_recorder *r, const crumb_op *op, const crumb_step_kind *kind) {
    crumb_record_step(r, op, kind)->op = *op;
}

/* ---- attention --------------------------------------------------------------------------------------------- */

static crumb_status find_rope_table(crumb_recorder *r, const crumb_op *op, uint32_t *offset, crumb_error *err) {
    crumb_plan *p = r->p;
    for (uint32_t i = 0; i < p->n_rope_tables; i++) {
        const crumb_rope_table *t = &p->rope_tables[i];
        *offset = t->offset;
        if (t->inv_freq == op->rope.inv_freq && t->dims == op->rope.dims && t->magnitude == op->rope.magnitude)
            return CRUMB_OK;
    }
    crumb_rope_table *grown = realloc(p->rope_tables, (p->n_rope_tables + 1) * sizeof *grown);
    if (!grown) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a plan");
    p->rope_tables = grown;
    *offset = p->rope_row_floats;
    grown[p->n_rope_tables++] = (crumb_rope_table){
        .inv_freq = op->rope.inv_freq, .dims = op->rope.dims, .offset = *offset, .magnitude = op->rope.magnitude};
    p->rope_row_floats += op->rope.dims;
    return CRUMB_OK;
}

static void set_heads(crumb_step *s, crumb_value q, crumb_value k, uint32_t n_head, uint32_t n_head_kv,
                      uint32_t head_dim) {
    s->attention.q = q;
    s->attention.k = k;
    s->attention.n_head = n_head;
    s->attention.n_head_kv = n_head_kv;
    s->attention.head_dim = head_dim;
}

/* Rotation, and, where the attention op follows, storing k and v in the same step. */
static crumb_status add_rope(crumb_recorder *r, const crumb_op *op, const crumb_op *attention, crumb_error *err) {
    crumb_step *s = crumb_record_step(r, op, &crumb_step_rotate);
    set_heads(s, op->rope.q, op->rope.k, op->rope.n_head, op->rope.n_head_kv, op->rope.head_dim);
    s->attention.rope_dims = op->rope.dims;
    s->attention.pairing = op->rope.pairing;
    if (attention) {
        s->attention.store = true;
        s->attention.v = attention->attention.v;
        s->attention.kv_layer = attention->attention.kv_layer;
    }
    return find_rope_table(r, op, &s->attention.rope_table, err);
}

static bool rope_feeds(const crumb_op *rope, const crumb_op *op) {
    return op && op->kind == CRUMB_OP_ATTENTION && op->attention.q == rope->rope.q && op->attention.k == rope->rope.k &&
           op->attention.head_dim == rope->rope.head_dim && op->attention.n_head == rope->rope.n_head;
}

static void add_attention(crumb_recorder *r, const crumb_op *op, bool stored) {
    uint32_t n_head = op->attention.n_head, n_kv = op->attention.n_head_kv, dim = op->attention.head_dim;
    crumb_step *s;
    if (!stored) {
        s = crumb_record_step(r, op, &crumb_step_rotate);
        set_heads(s, op->attention.q, op->attention.k, n_head, n_kv, dim);
        s->attention.store = true;
        s->attention.v = op->attention.v;
        s->attention.kv_layer = op->attention.kv_layer;
    }
    s = crumb_record_step(r, op, &crumb_step_attention);
    set_heads(s, op->attention.q, op->attention.k, n_head, n_kv, dim);
    s->attention.v = op->attention.v;
    s->attention.out = op->attention.out;
    s->attention.kv_layer = op->attention.kv_layer;
    s->attention.scale = op->attention.scale;
    r->p->has_attention = true;
    if (n_kv > r->max_n_head_kv) r->max_n_head_kv = n_kv;
    if (n_head / n_kv > r->max_group) r->max_group = n_head / n_kv;
    size_t per_chunk = (size_t)n_head * (dim + 2);
    if (per_chunk > r->attention_floats_per_chunk) r->attention_floats_per_chunk = per_chunk;
}

/* ---- all ops ----------------------------------------------------------------------------------------------- */

/* Marks what the op writes, and refuses reading rows that SELECT has left behind; only another SELECT may. */
static crumb_status track_values(crumb_recorder *r, size_t index, crumb_error *err) {
    const crumb_op *op = crumb_record_op(r, index);
    crumb_value values[CRUMB_OP_MAX_VALUES];
    size_t n = crumb_op_reads(op, values);
    bool is_select = op->kind == CRUMB_OP_SELECT;
    if (r->after_select && (op->kind == CRUMB_OP_ATTENTION || op->kind == CRUMB_OP_EMBED))
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s cannot come after select", crumb_op_name(op->kind));
    for (size_t i = 0; i < n && r->after_select; i++)
        if (r->p->values[values[i]].on_outputs == is_select)
            return crumb_fail(err, CRUMB_ERR_ARGUMENT, "it reads value %u, which was made %s select", values[i],
                              is_select ? "after" : "before");
    if (is_select) r->after_select = r->p->has_select = true;
    n = crumb_op_writes(op, values);
    for (size_t i = 0; i < n; i++) {
        crumb_plan_value *v = &r->p->values[values[i]];
        uint32_t rows = r->after_select ? r->p->max_outputs : r->p->max_rows;
        v->on_outputs = r->after_select;
        if (rows > v->max_rows) v->max_rows = rows;
        for (size_t j = 0; j < r->p->n_values; j++)
            if (crumb_record_slot(r, (crumb_value)j) == crumb_record_slot(r, values[i]))
                r->p->values[j].readable = false;
        v->readable = true;
    }
    return CRUMB_OK;
}

static crumb_status add_norm(crumb_recorder *r, size_t *index, crumb_error *err) {
    const crumb_op *norm = crumb_record_op(r, *index);
    if (!crumb_record_norm_folds(r, *index)) {
        add_simple_step(r, norm, &crumb_step_rms_norm);
        return CRUMB_OK;
    }
    CRUMB_TRY(track_values(r, ++*index, err));
    r->folded[norm->norm.out] = true;
    bool gated = crumb_record_gated_folds(r, *index, norm);
    CRUMB_TRY(
        crumb_record_linear(r, crumb_record_op(r, *index), norm, gated ? crumb_record_op(r, *index + 1) : NULL, err));
    return gated ? track_values(r, ++*index, err) : CRUMB_OK;
}

/* Adds the steps of op *index, and of those after it that are folded in; leaves *index at the last one taken. */
static crumb_status add_op(crumb_recorder *r, size_t *index, crumb_error *err) {
    const crumb_op *op = crumb_record_op(r, *index);
    CRUMB_TRY(track_values(r, *index, err));
    switch (op->kind) {
    case CRUMB_OP_INPUT: return CRUMB_OK; /* crumb_cpu_plan_write puts it where the ops find it */
    case CRUMB_OP_EMBED:
        add_simple_step(r, op, &crumb_step_embed);
        if (!r->p->n_vocab || op->embed.table->m < r->p->n_vocab) r->p->n_vocab = op->embed.table->m;
        return CRUMB_OK;
    case CRUMB_OP_RMS_NORM: return add_norm(r, index, err);
    case CRUMB_OP_LINEAR: {
        bool gated = crumb_record_gated_folds(r, *index, NULL);
        CRUMB_TRY(crumb_record_linear(r, op, NULL, gated ? crumb_record_op(r, *index + 1) : NULL, err));
        return gated ? track_values(r, ++*index, err) : CRUMB_OK;
    }
    case CRUMB_OP_ROPE: {
        const crumb_op *next = crumb_record_op(r, *index + 1);
        bool feeds = rope_feeds(op, next);
        CRUMB_TRY(add_rope(r, op, feeds ? next : NULL, err));
        if (!feeds) return CRUMB_OK;
        CRUMB_TRY(track_values(r, ++*index, err));
        add_attention(r, next, true);
        return CRUMB_OK;
    }
    case CRUMB_OP_ATTENTION: add_attention(r, op, false); return CRUMB_OK;
    case CRUMB_OP_GATED: add_simple_step(r, op, &crumb_step_gated); return CRUMB_OK;
    case CRUMB_OP_SELECT:
        add_simple_step(r, op, &crumb_step_select);
        r->p->steps[r->p->n_steps - 1].on_outputs = false;
        return CRUMB_OK;
    case CRUMB_OP_TOP: add_simple_step(r, op, &crumb_step_top); return CRUMB_OK;
    case CRUMB_OP_PLACE: add_simple_step(r, op, &crumb_step_place); return CRUMB_OK;
    case CRUMB_OP_GATHER: add_simple_step(r, op, &crumb_step_gather); return CRUMB_OK;
    case CRUMB_OP_SIGNAL:
    case CRUMB_OP_WAIT:
        add_simple_step(r, op, op->kind == CRUMB_OP_SIGNAL ? &crumb_step_signal : &crumb_step_wait);
        r->p->steps[r->p->n_steps - 1].on_outputs = false;
        return CRUMB_OK;
    }
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "the CPU backend does not know this op");
}

static crumb_status add_all_ops(crumb_recorder *r, crumb_error *err) {
    const crumb_plan_desc *desc = r->desc;
    bool rotates = false;
    CRUMB_TRY(crumb_values_check(desc, err));
    for (size_t i = 0; i < desc->n_ops; i++) {
        crumb_status status = crumb_op_check(desc, desc->kv ? &desc->kv->params : NULL, i, err);
        if (status != CRUMB_OK) return crumb_op_fail(desc, i, status, err);
        rotates = rotates || desc->ops[i].kind == CRUMB_OP_ROPE;
    }
    if (rotates) crumb_record_step(r, NULL, &crumb_step_rope_table);
    for (size_t i = 0; i < desc->n_ops; i++) {
        crumb_status status = add_op(r, &i, err);
        if (status != CRUMB_OK) return crumb_op_fail(desc, i, status, err);
    }
    return CRUMB_OK;
}

/* ---- the plan ---------------------------------------------------------------------------------------------- */

static crumb_status start_plan(crumb_recorder *r, crumb_device *d, const crumb_plan_desc *desc, crumb_error *err) {
    crumb_plan *p = r->p;
    if (desc->n_ops == 0 || desc->n_values >= CRUMB_RECORD_MAX_VALUES || desc->n_ops >= CRUMB_RECORD_MAX_VALUES)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a plan of %zu ops and %zu values", desc->n_ops, desc->n_values);
    if (desc->max_rows == 0 || desc->max_rows > MAX_ROWS || desc->max_outputs > desc->max_rows)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a plan for %u rows with %u outputs: 1 to %d rows are possible",
                          desc->max_rows, desc->max_outputs, MAX_ROWS);
    int n_threads = crumb_pool_threads(d->pool);
    p->device = d;
    p->kv = desc->kv;
    p->n_threads = desc->n_threads > 0 && desc->n_threads < n_threads ? desc->n_threads : n_threads;
    p->max_rows = desc->max_rows;
    p->max_outputs = desc->max_outputs;
    p->n_values = desc->n_values;
    void *memory;
    CRUMB_TRY(crumb_inputs_find(desc, &p->inputs, err));
    CRUMB_TRY(crumb_calloc(desc->n_values, sizeof *p->values, "a plan", &memory, err));
    p->values = memory;
    for (size_t i = 0; i < p->n_values; i++) p->values[i].width = desc->values[i].width;
    CRUMB_TRY(crumb_calloc(2 * desc->n_ops + 1, sizeof *p->steps, "a plan", &memory, err));
    p->steps = memory;
    return CRUMB_OK;
}

static crumb_status record(crumb_recorder *r, crumb_device *d, const crumb_plan_desc *desc, crumb_error *err) {
    CRUMB_TRY(start_plan(r, d, desc, err));
    CRUMB_TRY(add_all_ops(r, err));
    CRUMB_TRY(crumb_record_scratch(r, err));
    CRUMB_TRY(crumb_record_replay_state(r, err));
    CRUMB_TRY(crumb_divider_create(r->p, err));
    crumb_cpu_plan_start(r->p);
    for (size_t i = 0; i < r->p->n_values; i++)
        if (r->folded[i]) r->p->values[i].readable = false;
    return CRUMB_OK;
}

crumb_status crumb_cpu_plan_record(crumb_device *d, const crumb_plan_desc *desc, crumb_plan **out, crumb_error *err) {
    *out = NULL;
    void *memory;
    crumb_plan *plan = aligned_alloc(_Alignof(crumb_plan), sizeof *plan);
    if (!plan) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a plan");
    memset(plan, 0, sizeof *plan);
    crumb_status status = crumb_calloc(1, sizeof(crumb_recorder), "recording a plan", &memory, err);
    if (status == CRUMB_OK) {
        crumb_recorder *r = memory;
        r->p = plan;
        r->desc = desc;
        status = record(r, d, desc, err);
        free(r);
    }
    if (status == CRUMB_OK)
        *out = plan;
    else
        crumb_cpu_plan_destroy(plan);
    return status;
}
