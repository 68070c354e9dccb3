/* Recording: ops become steps, values get offsets, kernels are chosen, work is cut into chunks, and all scratch is
 * allocated, so that a replay only runs. */
#include "cpu/plan.h"

#include "host/base/checked.h"
#include "host/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 1 << 16, MAX_VALUES = 1 << 15 };

typedef struct recorder {
    crumb_plan *p;
    const crumb_plan_desc *desc;
    bool after_select;
    bool folded[MAX_VALUES]; /* values that no memory ever holds, since their only reader makes them itself */
    size_t chunk_capacity, n_chunk_bounds;
    uint32_t max_k, max_n_head_kv, max_group;
    size_t attention_floats_per_chunk; /* most (m, l, o) of a row in one chunk of keys */
} recorder;

static const crumb_op *op_at(const recorder *r, size_t i) {
    return i < r->desc->n_ops ? &r->desc->ops[i] : NULL;
}

static uint32_t slot_of(const recorder *r, crumb_value v) {
    return r->desc->values[v].slot;
}

static crumb_step *add_step(recorder *r, const crumb_op *op, const crumb_step_kind *kind) {
    crumb_step *s = &r->p->steps[r->p->n_steps++];
    s->kind = kind;
    s->layer = op ? op->layer : 0;
    s->on_outputs = r->after_select;
    return s;
}

static void add_simple_step(recorder *r, const crumb_op *op, const crumb_step_kind *kind) {
    add_step(r, op, kind)->op = *op;
}

/* ---- linear ------------------------------------------------------------------------------------------------ */

/* Whether nobody reads the value that op `index` makes, except the op after it. */
static bool only_next_reads(const recorder *r, size_t index, crumb_value v) {
    for (size_t i = index + 2; i < r->desc->n_ops; i++) {
        crumb_value values[CRUMB_OP_MAX_VALUES];
        size_t n = crumb_op_reads(op_at(r, i), values);
        for (size_t j = 0; j < n; j++)
            if (values[j] == v) return false;
        n = crumb_op_writes(op_at(r, i), values);
        for (size_t j = 0; j < n; j++)
            if (values[j] == v) return true;
    }
    return true;
}

/* A norm can be folded into the linear op behind it, unless that would write where other threads still read the norm's
 * input. */
static bool norm_folds(const recorder *r, size_t index) {
    const crumb_op *norm = op_at(r, index), *linear = op_at(r, index + 1);
    if (!linear || linear->kind != CRUMB_OP_LINEAR || linear->linear.x != norm->norm.out) return false;
    if (norm->norm.head_dim && norm->norm.head_dim != r->desc->values[norm->norm.x].width) return false;
    for (int i = 0; i < linear->linear.n_parts; i++)
        if (slot_of(r, linear->linear.part[i].out) == slot_of(r, norm->norm.x)) return false;
    return only_next_reads(r, index, norm->norm.out);
}

/* A gated activation can be folded into the linear op that makes gate and up whole, unless its result would overwrite
 * what other threads still read. */
static bool gated_folds(const recorder *r, size_t index, const crumb_op *norm) {
    const crumb_op *linear = op_at(r, index), *gated = op_at(r, index + 1);
    if (!gated || gated->kind != CRUMB_OP_GATED || linear->linear.n_parts != 2) return false;
    const crumb_linear_part *gate = &linear->linear.part[0], *up = &linear->linear.part[1];
    if (gate->out != gated->gated.gate || up->out != gated->gated.up) return false;
    if (gate->m0 != 0 || gate->m1 != gate->w->m || up->m0 != 0 || up->m1 != up->w->m) return false;
    uint32_t slot = slot_of(r, gated->gated.out);
    return slot != slot_of(r, linear->linear.x) && (!norm || slot != slot_of(r, norm->norm.x));
}

static crumb_status find_input(recorder *r, crumb_step *s, const crumb_op *op, const crumb_matrix *w, uint8_t *index,
                               crumb_error *err) {
    crumb_linear_input in = {.k = w->k, .k_padded = (uint32_t)crumb_round_up(w->k, CRUMB_TILE_K), .group = 1};
    if (w->bits && op->linear.act != CRUMB_ACT_F32) {
        in.quantized = true;
        in.row_scale = op->linear.act == CRUMB_ACT_ROW;
        in.bits = w->bits;
        in.group = in.row_scale ? w->group : op->linear.act_group;
        if (in.k_padded % in.group)
            return crumb_fail(err, CRUMB_ERR_ARGUMENT, "groups of %u do not divide %u columns", in.group, w->k);
    }
    if (w->k > r->max_k) r->max_k = w->k;
    for (uint32_t i = 0; i < s->linear.n_inputs; i++) {
        const crumb_linear_input *have = &s->linear.inputs[i];
        *index = (uint8_t)i;
        if (have->quantized == in.quantized && have->row_scale == in.row_scale && have->bits == in.bits &&
            have->group == in.group)
            return CRUMB_OK;
    }
    *index = (uint8_t)s->linear.n_inputs;
    s->linear.inputs[s->linear.n_inputs++] = in;
    return CRUMB_OK;
}

/* Whether an earlier part of the plan has the same type and shape as part `index` of the last step. */
static bool logged_before(const crumb_plan *p, uint32_t index) {
    const crumb_step *last = &p->steps[p->n_steps - 1];
    const crumb_matrix *w = last->linear.parts[index].part.w;
    for (const crumb_step *s = p->steps; s <= last; s++) {
        if (s->kind != &crumb_step_linear) continue;
        for (uint32_t i = 0; i < (s == last ? index : s->linear.n_parts); i++) {
            const crumb_matrix *other = s->linear.parts[i].part.w;
            if (other->type == w->type && other->m == w->m && other->k == w->k) return true;
        }
    }
    return false;
}

/* One line for every distinct type and shape. */
static void log_choices(const crumb_plan *p) {
    const crumb_device *d = p->device;
    const crumb_step *s = &p->steps[p->n_steps - 1];
    for (uint32_t i = 0; d->log && i < s->linear.n_parts; i++) {
        if (logged_before(p, i)) continue;
        const crumb_linear_range *range = &s->linear.parts[i];
        const crumb_matrix *w = range->part.w;
        char line[256];
        snprintf(line, sizeof line, "cpu: %s %u x %u: %s for 1 row, %s for %u", crumb_type_get_info(w->type)->name,
                 w->m, w->k, range->kernel[1]->name,
                 range->kernel[p->max_rows <= CRUMB_SMALL_N ? p->max_rows : 0]->name, p->max_rows);
        d->log(d->log_user, CRUMB_LOG_DEBUG, line);
    }
}

static crumb_status choose_kernels(recorder *r, const crumb_op *op, crumb_linear_range *range, crumb_error *err) {
    const crumb_matrix *w = range->part.w;
    crumb_isa isa = r->p->device->isa;
    crumb_act_quant act = w->bits ? op->linear.act : CRUMB_ACT_F32;
    for (uint32_t i = 0; i <= CRUMB_SMALL_N; i++) {
        uint32_t n = i ? i : r->p->max_rows > CRUMB_SMALL_N ? r->p->max_rows : CRUMB_SMALL_N + 1;
        range->kernel[i] = crumb_cpu_kernel_select(w, act, n, isa);
        if (!range->kernel[i])
            return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "no kernel for %s weights, %u x %u, in tier %s",
                              crumb_type_get_info(w->type)->name, w->m, w->k, crumb_isa_name(isa));
    }
    size_t n_bytes = crumb_cpu_kernel_scratch(w);
    if (n_bytes > r->p->kernel_scratch_bytes) r->p->kernel_scratch_bytes = n_bytes;
    return CRUMB_OK;
}

static crumb_status add_bound(recorder *r, uint32_t bound, crumb_error *err) {
    if (r->n_chunk_bounds == r->chunk_capacity) {
        size_t capacity = 2 * r->chunk_capacity + 256;
        uint32_t *grown = realloc(r->p->chunk_bounds, capacity * sizeof *grown);
        if (!grown) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a plan");
        r->p->chunk_bounds = grown;
        r->chunk_capacity = capacity;
    }
    r->p->chunk_bounds[r->n_chunk_bounds++] = bound;
    return CRUMB_OK;
}

/* Large chunks first and ever smaller ones: few calls and long streams, and still no thread waits long for the last. */
static crumb_status cut_chunks(recorder *r, crumb_step *s, uint32_t n_units, crumb_error *err) {
    const uint64_t least_bytes = 16384;
    const crumb_matrix *w = s->linear.parts[0].part.w;
    uint64_t unit_bytes = (uint64_t)w->k * CRUMB_TILE_ROWS * (w->bits ? w->bits : 16) / 8 + 1;
    uint32_t least = (uint32_t)crumb_div_up(least_bytes, unit_bytes), share = 2 * (uint32_t)r->p->n_threads;
    s->linear.first_chunk = (uint32_t)r->n_chunk_bounds;
    CRUMB_TRY(add_bound(r, 0, err));
    for (uint32_t at = 0; at < n_units; s->linear.n_chunks++) {
        uint32_t left = n_units - at, n = r->p->n_threads == 1 ? left : (left + share - 1) / share;
        if (n < least) n = least < left ? least : left;
        at += n;
        CRUMB_TRY(add_bound(r, at, err));
    }
    return CRUMB_OK;
}

/* `norm` and `gated` are the ops folded in, or NULL. */
static crumb_status add_linear(recorder *r, const crumb_op *op, const crumb_op *norm, const crumb_op *gated,
                               crumb_error *err) {
    crumb_step step = {.kind = &crumb_step_linear, .layer = op->layer, .on_outputs = r->after_select};
    step.linear.x = norm ? norm->norm.x : op->linear.x;
    step.linear.add = op->linear.add;
    step.linear.k = r->desc->values[op->linear.x].width;
    step.linear.n_parts = op->linear.n_parts;
    step.linear.norm_weight = norm ? norm->norm.weight : NULL;
    step.linear.norm_eps = norm ? norm->norm.eps : 0;
    uint32_t n_units = 0;
    bool quantizes = false;
    for (uint32_t i = 0; i < op->linear.n_parts; i++) {
        crumb_linear_range *range = &step.linear.parts[i];
        range->part = op->linear.part[i];
        range->tile0 = range->part.m0 / CRUMB_TILE_ROWS;
        range->tile1 = (uint32_t)crumb_div_up(range->part.m1, CRUMB_TILE_ROWS);
        n_units += range->tile1 - range->tile0;
        CRUMB_TRY(find_input(r, &step, op, range->part.w, &range->input, err));
        CRUMB_TRY(choose_kernels(r, op, range, err));
        quantizes = quantizes || step.linear.inputs[range->input].quantized;
    }
    if (gated) {
        step.linear.gated = true;
        step.linear.gated_fn = gated->gated.fn;
        step.linear.gated_out = gated->gated.out;
        n_units = step.linear.parts[0].tile1;
    }
    CRUMB_TRY(cut_chunks(r, &step, n_units, err));
    if (quantizes || norm) {
        add_step(r, op, &crumb_step_prepare)->linear = step.linear;
    }
    add_step(r, op, &crumb_step_linear)->linear = step.linear;
    log_choices(r->p);
    return CRUMB_OK;
}

/* ---- attention --------------------------------------------------------------------------------------------- */

static crumb_status find_rope_table(recorder *r, const crumb_op *op, uint32_t *offset, crumb_error *err) {
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
static crumb_status add_rope(recorder *r, const crumb_op *op, const crumb_op *attention, crumb_error *err) {
    crumb_step *s = add_step(r, op, &crumb_step_rotate);
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

static void add_attention(recorder *r, const crumb_op *op, bool stored) {
    uint32_t n_head = op->attention.n_head, n_kv = op->attention.n_head_kv, dim = op->attention.head_dim;
    crumb_step *s;
    if (!stored) {
        s = add_step(r, op, &crumb_step_rotate);
        set_heads(s, op->attention.q, op->attention.k, n_head, n_kv, dim);
        s->attention.store = true;
        s->attention.v = op->attention.v;
        s->attention.kv_layer = op->attention.kv_layer;
    }
    s = add_step(r, op, &crumb_step_attention);
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
static crumb_status track_values(recorder *r, size_t index, crumb_error *err) {
    const crumb_op *op = op_at(r, index);
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
            if (slot_of(r, (crumb_value)j) == slot_of(r, values[i])) r->p->values[j].readable = false;
        v->readable = true;
    }
    return CRUMB_OK;
}

static crumb_status add_norm(recorder *r, size_t *index, crumb_error *err) {
    const crumb_op *norm = op_at(r, *index);
    if (!norm_folds(r, *index)) {
        add_simple_step(r, norm, &crumb_step_rms_norm);
        return CRUMB_OK;
    }
    CRUMB_TRY(track_values(r, ++*index, err));
    r->folded[norm->norm.out] = true;
    bool gated = gated_folds(r, *index, norm);
    CRUMB_TRY(add_linear(r, op_at(r, *index), norm, gated ? op_at(r, *index + 1) : NULL, err));
    return gated ? track_values(r, ++*index, err) : CRUMB_OK;
}

/* Adds the steps of op *index, and of those after it that are folded in; leaves *index at the last one taken. */
static crumb_status add_op(recorder *r, size_t *index, crumb_error *err) {
    const crumb_op *op = op_at(r, *index);
    CRUMB_TRY(track_values(r, *index, err));
    switch (op->kind) {
    case CRUMB_OP_EMBED:
        add_simple_step(r, op, &crumb_step_embed);
        if (!r->p->n_vocab || op->embed.table->m < r->p->n_vocab) r->p->n_vocab = op->embed.table->m;
        return CRUMB_OK;
    case CRUMB_OP_RMS_NORM: return add_norm(r, index, err);
    case CRUMB_OP_LINEAR: {
        bool gated = gated_folds(r, *index, NULL);
        CRUMB_TRY(add_linear(r, op, NULL, gated ? op_at(r, *index + 1) : NULL, err));
        return gated ? track_values(r, ++*index, err) : CRUMB_OK;
    }
    case CRUMB_OP_ROPE: {
        const crumb_op *next = op_at(r, *index + 1);
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
    case CRUMB_OP_SIGNAL:
    case CRUMB_OP_WAIT:
        add_simple_step(r, op, op->kind == CRUMB_OP_SIGNAL ? &crumb_step_signal : &crumb_step_wait);
        r->p->steps[r->p->n_steps - 1].on_outputs = false;
        return CRUMB_OK;
    }
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "the CPU backend does not know this op");
}

static crumb_status name_op(const crumb_plan_desc *desc, size_t i, crumb_status status, crumb_error *err) {
    return crumb_fail_prefix(err, status, "op %zu (%s, layer %u)", i, crumb_op_name(desc->ops[i].kind),
                             desc->ops[i].layer);
}

static crumb_status add_all_ops(recorder *r, crumb_error *err) {
    const crumb_plan_desc *desc = r->desc;
    bool rotates = false;
    for (size_t i = 0; i < desc->n_ops; i++) {
        crumb_status status = crumb_op_check(desc, i, err);
        if (status != CRUMB_OK) return name_op(desc, i, status, err);
        rotates = rotates || desc->ops[i].kind == CRUMB_OP_ROPE;
    }
    if (rotates) add_step(r, NULL, &crumb_step_rope_table);
    for (size_t i = 0; i < desc->n_ops; i++) {
        crumb_status status = add_op(r, &i, err);
        if (status != CRUMB_OK) return name_op(desc, i, status, err);
    }
    return CRUMB_OK;
}

/* ---- scratch ----------------------------------------------------------------------------------------------- */

/* Takes n * size bytes at the next multiple of 64 of *total. */
static crumb_status reserve(uint64_t *total, uint64_t n, uint64_t size, size_t *offset, crumb_error *err) {
    uint64_t n_bytes;
    *offset = (size_t)*total;
    if (!crumb_mul_u64(n, size, &n_bytes) || n_bytes > UINT64_MAX / 4 || *total > UINT64_MAX / 4)
        return crumb_fail(err, CRUMB_ERR_MEMORY, "the size of a plan's scratch overflows");
    *total = crumb_round_up(*total + n_bytes, 64);
    return CRUMB_OK;
}

static crumb_status reserve_values(recorder *r, uint64_t *total, crumb_error *err) {
    crumb_plan *p = r->p;
    for (size_t i = 0; i < p->n_values; i++) {
        uint64_t most = 0;
        bool placed = false;
        for (size_t j = 0; j < p->n_values && !placed; j++) {
            if (slot_of(r, (crumb_value)j) != slot_of(r, (crumb_value)i)) continue;
            placed = j < i; /* its slot has been placed with an earlier value */
            if (placed) p->values[i].offset = p->values[j].offset;
            uint64_t floats = (uint64_t)p->values[j].width * p->values[j].max_rows;
            if (floats > most) most = floats;
        }
        if (!placed) CRUMB_TRY(reserve(total, most, sizeof(float), &p->values[i].offset, err));
    }
    return CRUMB_OK;
}

static crumb_status reserve_thread(recorder *r, size_t local_inputs, size_t attention, crumb_error *err) {
    crumb_plan *p = r->p;
    uint64_t total = 0;
    CRUMB_TRY(reserve(&total, local_inputs, 1, &p->local_inputs, err));
    CRUMB_TRY(reserve(&total, r->max_k, sizeof(float), &p->local_row, err));
    CRUMB_TRY(reserve(&total, attention, 1, &p->attention_scratch, err));
    CRUMB_TRY(reserve(&total, p->kernel_scratch_bytes, 1, &p->kernel_scratch, err));
    p->thread_bytes = (size_t)crumb_round_up(total, 4096); /* no page, and no line, of two threads */
    return CRUMB_OK;
}

static crumb_status allocate_scratch(recorder *r, crumb_error *err) {
    crumb_plan *p = r->p;
    size_t local_inputs = 0, shared_inputs = 0, attention = 0;
    for (size_t i = 0; i < p->n_steps; i++) {
        const crumb_step *s = &p->steps[i];
        size_t n_bytes = 0;
        if (s->kind == &crumb_step_linear) {
            n_bytes = crumb_linear_input_bytes(s, CRUMB_LOCAL_ROWS);
            if (n_bytes > local_inputs) local_inputs = n_bytes;
            n_bytes = p->max_rows > 1 ? crumb_linear_input_bytes(s, p->max_rows) : 0;
            if (n_bytes > shared_inputs) shared_inputs = n_bytes;
        } else if (s->kind == &crumb_step_attention) {
            n_bytes = crumb_attention_scratch_bytes(s->attention.n_head, s->attention.n_head_kv, s->attention.head_dim);
            if (n_bytes > attention) attention = n_bytes;
        }
    }
    uint64_t total = 0;
    p->partial_chunks = p->kv ? (size_t)crumb_div_up(p->kv->params.n_ctx, CRUMB_ATTENTION_CHUNK) : 0;
    uint32_t split_rows = p->max_rows < CRUMB_SPLIT_ROWS ? p->max_rows : CRUMB_SPLIT_ROWS;
    CRUMB_TRY(reserve_values(r, &total, err));
    CRUMB_TRY(reserve(&total, shared_inputs, 1, &p->shared_inputs, err));
    CRUMB_TRY(reserve(&total, (uint64_t)p->rope_row_floats * p->max_rows, sizeof(float), &p->rope_values, err));
    CRUMB_TRY(reserve(&total, r->attention_floats_per_chunk * split_rows, p->partial_chunks * sizeof(float),
                      &p->partials, err));
    CRUMB_TRY(reserve_thread(r, local_inputs, attention, err));
    total = crumb_round_up(total, 4096);
    CRUMB_TRY(reserve(&total, p->thread_bytes, (uint64_t)p->n_threads, &p->thread_scratch, err));
    p->scratch_bytes = total;
    void *scratch;
    CRUMB_TRY(crumb_pages_alloc(total, "a plan's scratch", &scratch, err));
    p->scratch = scratch;
    return CRUMB_OK;
}

static crumb_status allocate_replay_state(recorder *r, crumb_error *err) {
    crumb_plan *p = r->p;
    void *memory;
    CRUMB_TRY(crumb_calloc(CRUMB_SPLIT_ROWS * (uint64_t)r->max_n_head_kv, sizeof *p->merges, "a plan", &memory, err));
    p->merges = memory;
    CRUMB_TRY(crumb_calloc(p->kv ? p->kv->params.n_sequences : 0, sizeof *p->last_position, "a plan", &memory, err));
    p->last_position = memory;
    CRUMB_TRY(crumb_calloc(p->max_rows, sizeof *p->blocks, "a plan", &memory, err));
    p->blocks = memory;
    p->block_rows = r->max_group && r->max_group < CRUMB_QUERY_ROWS ? CRUMB_QUERY_ROWS / r->max_group : 1;
    return CRUMB_OK;
}

static crumb_status start_plan(recorder *r, crumb_device *d, const crumb_plan_desc *desc, crumb_error *err) {
    crumb_plan *p = r->p;
    if (desc->n_ops == 0 || desc->n_values >= MAX_VALUES || desc->n_ops >= MAX_VALUES)
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
    CRUMB_TRY(crumb_calloc(desc->n_values, sizeof *p->values, "a plan", &memory, err));
    p->values = memory;
    for (size_t i = 0; i < p->n_values; i++) p->values[i].width = desc->values[i].width;
    CRUMB_TRY(crumb_calloc(2 * desc->n_ops + 1, sizeof *p->steps, "a plan", &memory, err));
    p->steps = memory;
    return CRUMB_OK;
}

static crumb_status record(recorder *r, crumb_device *d, const crumb_plan_desc *desc, crumb_error *err) {
    CRUMB_TRY(start_plan(r, d, desc, err));
    CRUMB_TRY(add_all_ops(r, err));
    CRUMB_TRY(allocate_scratch(r, err));
    CRUMB_TRY(allocate_replay_state(r, err));
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
    crumb_status status = crumb_calloc(1, sizeof(recorder), "recording a plan", &memory, err);
    if (status == CRUMB_OK) {
        recorder *r = memory;
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
