/* Recording: every op is checked, values get memory, and ops become launches, some of them several ops at once. */
#include "cl/record.h"

#include "host/base/checked.h"
#include "host/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 1 << 16, PIECE_ALIGN = 256, MAX_SHARED = 8 /* pieces beside values */ };

/* ---- values -------------------------------------------------------------------------------------------------- */

/* Refuses reading rows that SELECT has left behind; only another SELECT may. */
static crumb_status track_reads(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err) {
    crumb_value values[CRUMB_OP_MAX_VALUES];
    size_t n = crumb_op_reads(op, values);
    bool is_select = op->kind == CRUMB_OP_SELECT;
    for (size_t i = 0; i < n; i++)
        if (!r->p->values[values[i]].written)
            return crumb_fail(err, CRUMB_ERR_ARGUMENT, "it reads value %u, which nothing has made", values[i]);
    if (!r->after_select) return CRUMB_OK;
    if (op->kind == CRUMB_OP_ATTENTION || op->kind == CRUMB_OP_ROPE || op->kind == CRUMB_OP_EMBED)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "it cannot come after select");
    for (size_t i = 0; i < n; i++)
        if (r->p->values[values[i]].on_outputs == is_select)
            return crumb_fail(err, CRUMB_ERR_ARGUMENT, "it reads value %u, which was made %s select", values[i],
                              is_select ? "after" : "before");
    return CRUMB_OK;
}

static void track_writes(crumb_cl_recorder *r, const crumb_op *op) {
    crumb_plan *p = r->p;
    crumb_value values[CRUMB_OP_MAX_VALUES];
    size_t n = crumb_op_writes(op, values);
    for (size_t i = 0; i < n; i++) {
        crumb_cl_value *v = &p->values[values[i]];
        uint32_t rows = crumb_cl_most_rows(r);
        v->written = true;
        v->on_outputs = r->after_select;
        if (rows > v->max_rows) v->max_rows = rows;
        for (size_t j = 0; j < p->n_values; j++)
            if (p->values[j].owner == v->owner) p->values[j].readable = false;
        v->readable = true;
        p->result = values[i];
    }
}

/* What ops share, as large as the largest of them needs. */
typedef struct shared_bytes {
    crumb_cl_prepared_bytes activations;
    uint64_t partial_floats;  /* of a row and chunk */
    uint64_t key_heads, keys; /* of a row */
} shared_bytes;

static crumb_status look_at_op(crumb_cl_recorder *r, size_t index, shared_bytes *most, crumb_error *err) {
    crumb_plan *p = r->p;
    const crumb_op *op = &r->desc->ops[index];
    CRUMB_TRY(crumb_op_check(r->desc, p->kv ? &p->kv->params : NULL, index, err));
    CRUMB_TRY(track_reads(r, op, err));
    if (op->kind == CRUMB_OP_SELECT) r->after_select = p->has_select = true;
    track_writes(r, op);
    if (op->kind == CRUMB_OP_LINEAR) crumb_cl_linear_bytes(r, op, &most->activations);
    if (op->kind == CRUMB_OP_TOP && crumb_cl_top_row_bytes(r->desc, op) > most->keys)
        most->keys = crumb_cl_top_row_bytes(r->desc, op);
    if (op->kind == CRUMB_OP_EMBED && (!p->n_vocab || op->embed.table->m < p->n_vocab)) p->n_vocab = op->embed.table->m;
    if (op->kind == CRUMB_OP_ATTENTION) {
        uint64_t floats = (uint64_t)op->attention.n_head * (op->attention.head_dim + 2);
        p->has_attention = true;
        if (floats > most->partial_floats) most->partial_floats = floats;
        if (op->attention.n_head_kv > most->key_heads) most->key_heads = op->attention.n_head_kv;
    }
    return CRUMB_OK;
}

static void find_owners(crumb_plan *p, const crumb_plan_desc *desc) {
    for (size_t i = 0; i < p->n_values; i++) {
        p->values[i].width = desc->values[i].width;
        p->values[i].item_bytes = sizeof(float);
        p->values[i].owner = i;
        p->values[i].written = desc->values[i].shared != NULL;
        for (size_t j = 0; j < i; j++)
            if (desc->values[j].slot == desc->values[i].slot) {
                p->values[i].owner = j;
                break;
            }
    }
}

/* Whether the op may write a value in f32 where values are bf16: nothing that it reads lies in the same place. */
static bool may_write_f32(const crumb_op *op) {
    return op->kind == CRUMB_OP_TOP || op->kind == CRUMB_OP_INPUT ||
           (op->kind == CRUMB_OP_LINEAR && op->linear.n_parts == 1 && op->linear.add == CRUMB_NO_VALUE);
}

/* Logits stay f32: what only TOP reads, or nothing. */
static bool stays_f32(const crumb_plan_desc *desc, crumb_value v) {
    for (size_t i = 0; i < desc->n_ops; i++) {
        crumb_value values[CRUMB_OP_MAX_VALUES];
        const crumb_op *op = &desc->ops[i];
        const size_t n_read = crumb_op_reads(op, values);
        for (size_t j = 0; j < n_read; j++)
            if (values[j] == v && op->kind != CRUMB_OP_TOP) return false;
        const size_t n_written = crumb_op_writes(op, values);
        for (size_t j = 0; j < n_written; j++)
            if (values[j] == v && !may_write_f32(op)) return false;
    }
    return true;
}

static crumb_status choose_item_bytes(crumb_plan *p, const crumb_plan_desc *desc, crumb_error *err) {
    if (!p->device->ladder.bf16) return CRUMB_OK;
    for (size_t i = 0; i < p->n_values; i++)
        if (!stays_f32(desc, (crumb_value)i)) p->values[i].item_bytes = sizeof(uint16_t);
    for (size_t i = 0; i < desc->n_ops; i++)
        if (desc->ops[i].kind == CRUMB_OP_TOP && p->values[desc->ops[i].top.x].item_bytes != sizeof(float))
            return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s has no values in bf16 among which it finds the largest",
                              p->device->label);
    return CRUMB_OK;
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* Memory that a plan takes of the device: pieces are wished for, then all get their places at once. */
static void wish(crumb_cl_recorder *r, uint64_t n_bytes, const char *what, crumb_cl_memory *out) {
    if (n_bytes == 0) return;
    r->wishes[r->n_wishes++] = (crumb_cl_wish){n_bytes, what, out};
    r->wished_bytes += crumb_round_up(n_bytes, PIECE_ALIGN);
    r->p->scratch_bytes += n_bytes;
}

/* One allocation where the device has USM and takes it at once: each more that a launch's arguments lie in costs the
 * host some 45 ns on Intel's driver, in every replay. */
static crumb_status grant(crumb_cl_recorder *r, crumb_error *err) {
    crumb_plan *p = r->p;
    const bool whole = p->device->has_usm && r->n_wishes > 0 && r->wished_bytes <= p->device->facts.max_alloc_bytes;
    if (whole) CRUMB_TRY(crumb_cl_memory_create(p->device, r->wished_bytes, "a plan's values", &p->scratch, err));
    uint64_t used = 0;
    for (size_t i = 0; i < r->n_wishes; i++) {
        const crumb_cl_wish *w = &r->wishes[i];
        if (whole)
            *w->out = (crumb_cl_memory){.usm = (char *)p->scratch.usm + used, .n_bytes = w->n_bytes};
        else
            CRUMB_TRY(crumb_cl_memory_create(p->device, w->n_bytes, w->what, w->out, err));
        used += crumb_round_up(w->n_bytes, PIECE_ALIGN);
    }
    return CRUMB_OK;
}

static crumb_status take_values(crumb_cl_recorder *r, crumb_error *err) {
    crumb_plan *p = r->p;
    const crumb_plan_desc *desc = r->desc;
    for (size_t i = 0; i < p->n_values; i++) {
        uint64_t most = 0;
        float *shared = desc->values[i].shared;
        if (p->values[i].owner != i) continue;
        for (size_t j = i; j < p->n_values; j++) {
            const crumb_cl_value *v = &p->values[j];
            const uint64_t n_bytes = v->owner == i ? (uint64_t)v->width * v->max_rows * v->item_bytes : 0;
            if (n_bytes > most) most = n_bytes;
        }
        p->values[i].lent = shared != NULL || p->values[i].memory.usm;
        if (!p->values[i].lent)
            wish(r, most, "a plan's values", &p->values[i].memory);
        else if (shared && crumb_cl_shared_has(p->device, shared, most))
            p->values[i].memory.usm = shared;
        else if (shared)
            return crumb_fail(err, CRUMB_ERR_ARGUMENT, "value %zu lies in memory that %s does not share", i,
                              p->device->label);
    }
    return CRUMB_OK;
}

/* Whether only the op that makes the result knows it: kernels can then write it where the host reads it. */
static bool result_is_alone(const crumb_cl_recorder *r) {
    const crumb_plan *p = r->p;
    for (size_t i = 0; i < p->n_values; i++)
        if (i != p->result && p->values[i].owner == p->values[p->result].owner) return false;
    for (size_t i = 0; i < r->desc->n_ops; i++) {
        crumb_value values[CRUMB_OP_MAX_VALUES];
        const size_t n = crumb_op_reads(&r->desc->ops[i], values);
        for (size_t j = 0; j < n; j++)
            if (values[j] == p->result) return false;
    }
    return !r->desc->values[p->result].shared;
}

/* The batch and the result, where the host has them; and where the device reads and writes them there, no copies: each
 * costs a replay as much as a kernel. */
static crumb_status take_host_memory(crumb_cl_recorder *r, crumb_error *err) {
    crumb_plan *p = r->p;
    crumb_cl_value *result = &p->values[p->result];
    const uint64_t batch_bytes = sizeof(crumb_cl_batch) + (uint64_t)p->max_rows * sizeof(crumb_cl_row);
    void *memory;
    CRUMB_TRY(crumb_cl_host_create(p->device, batch_bytes, &memory, err));
    p->host_batch = memory;
    if (p->device->has_usm && p->device->facts.unified)
        p->batch.usm = memory;
    else
        wish(r, batch_bytes, "a plan's batch", &p->batch);
    CRUMB_TRY(
        crumb_cl_host_create(p->device, (uint64_t)result->width * result->max_rows * sizeof(float) + 64, &memory, err));
    p->results = memory;
    if (p->device->has_usm && result_is_alone(r)) result->memory.usm = memory; /* of whichever width; see replay.c */
    return CRUMB_OK;
}

/* Attention's work-groups for few rows take chunks of keys. */
static void wish_chunks(crumb_cl_recorder *r, const shared_bytes *most) {
    crumb_plan *p = r->p;
    if (p->max_rows > CRUMB_CL_SPLIT_ROWS) return;
    wish(r, p->max_rows * p->max_chunks * most->partial_floats * sizeof(float), "a plan's attention", &p->partials);
    wish(r, p->max_rows * most->key_heads * sizeof(uint32_t), "a plan's attention", &p->arrived);
}

static crumb_status take_memory(crumb_cl_recorder *r, const shared_bytes *most, crumb_error *err) {
    crumb_plan *p = r->p;
    const crumb_cl_prepared_bytes *prepared = &most->activations;
    void *memory;
    CRUMB_TRY(crumb_calloc(p->n_values + MAX_SHARED, sizeof *r->wishes, "a plan", &memory, err));
    r->wishes = memory;
    CRUMB_TRY(take_host_memory(r, err));
    CRUMB_TRY(take_values(r, err));
    wish(r, prepared->q, "a plan's activations", &p->q);
    wish(r, prepared->sx, "a plan's activations", &p->sx);
    wish(r, prepared->qsum, "a plan's activations", &p->qsum);
    for (int i = 0; i < 2; i++) wish(r, p->max_rows * most->keys, "a plan's largest values", &p->keys[i]);
    if (p->has_attention) {
        p->max_chunks = (uint32_t)crumb_div_up(p->kv->params.n_ctx, CRUMB_CL_KV_CHUNK);
        p->chunks = 1;
        wish_chunks(r, most);
        CRUMB_TRY(crumb_calloc(p->kv->params.n_sequences, sizeof *p->next_position, "a plan", &memory, err));
        p->next_position = memory;
    }
    return grant(r, err);
}

/* ---- ops ----------------------------------------------------------------------------------------------------- */

static crumb_status record_linear(crumb_cl_recorder *r, size_t *index, const crumb_cl_source *from, crumb_error *err) {
    const crumb_op *op = &r->desc->ops[*index];
    const crumb_op *gated = crumb_cl_gated_folds(r, *index) ? op + 1 : NULL;
    CRUMB_TRY(crumb_cl_record_linear(r, op, from, gated, err));
    if (!gated) return CRUMB_OK;
    for (int i = 0; i < 2; i++)
        if (op->linear.part[i].out != gated->gated.out) r->p->values[op->linear.part[i].out].readable = false;
    ++*index;
    return CRUMB_OK;
}

/* An order of columns, behind `norm` where that is folded: part of the linear ops that read it, or a launch. */
static crumb_status record_gather(crumb_cl_recorder *r, size_t *index, const crumb_op *norm, crumb_error *err) {
    const crumb_op *op = &r->desc->ops[*index];
    const size_t n_linear = crumb_cl_gather_folds(r, *index, norm);
    if (!n_linear) return crumb_cl_record_gather(r, op, err);
    r->p->values[op->gather.out].readable = false;
    for (size_t i = 0; i < n_linear; i++) {
        ++*index;
        CRUMB_TRY(record_linear(r, index, &(crumb_cl_source){norm, op}, err));
    }
    return CRUMB_OK;
}

static bool rope_feeds(const crumb_cl_recorder *r, size_t index) {
    const crumb_op *rope = &r->desc->ops[index], *op = rope + 1;
    return index + 1 < r->desc->n_ops && op->kind == CRUMB_OP_ATTENTION && op->attention.q == rope->rope.q &&
           op->attention.k == rope->rope.k && op->attention.head_dim == rope->rope.head_dim &&
           op->attention.n_head == rope->rope.n_head && op->attention.n_head_kv == rope->rope.n_head_kv;
}

/* The norms of queries' and keys' heads, in place, that begin at op `index` and that the rotation right behind them
 * does in its launch; returns how many, 0 to 2. */
static size_t head_norms(const crumb_cl_recorder *r, size_t index, crumb_cl_turn *turn) {
    const crumb_op *first = &r->desc->ops[index], *rope = first, *end = r->desc->ops + r->desc->n_ops;
    while (rope < end && rope->kind == CRUMB_OP_RMS_NORM) rope++;
    if (rope == end || rope->kind != CRUMB_OP_ROPE) return 0;
    for (const crumb_op *norm = first; norm < rope; norm++) {
        const crumb_op **place = norm->norm.x == rope->rope.q ? &turn->q_norm : &turn->k_norm;
        if ((norm->norm.x != rope->rope.q && norm->norm.x != rope->rope.k) || norm->norm.out != norm->norm.x ||
            norm->norm.head_dim != rope->rope.head_dim || *place)
            return 0;
        *place = norm;
    }
    return (size_t)(rope - first);
}

/* Rotation, with `n_norms` ops before it, and attention behind it. */
static crumb_status record_rope(crumb_cl_recorder *r, size_t *index, size_t n_norms, crumb_cl_turn *turn,
                                crumb_error *err) {
    *index += n_norms;
    turn->rope = &r->desc->ops[*index];
    if (rope_feeds(r, *index)) turn->attention = turn->rope + 1;
    CRUMB_TRY(crumb_cl_record_rope_store(r, turn, err));
    if (!turn->attention) return CRUMB_OK;
    ++*index;
    return crumb_cl_record_attention(r, turn->attention, err);
}

static crumb_status record_norm(crumb_cl_recorder *r, size_t *index, crumb_error *err) {
    const crumb_op *op = &r->desc->ops[*index];
    crumb_cl_turn turn = {0};
    const size_t n = head_norms(r, *index, &turn);
    if (n) return record_rope(r, index, n, &turn, err);
    const size_t last = *index + crumb_cl_norm_folds(r, *index);
    if (last == *index) return crumb_cl_record_norm(r, op, err);
    r->p->values[op->norm.out].readable = false;
    while (*index < last) {
        ++*index;
        if (r->desc->ops[*index].kind == CRUMB_OP_GATHER)
            CRUMB_TRY(record_gather(r, index, op, err));
        else
            CRUMB_TRY(record_linear(r, index, &(crumb_cl_source){.made = op}, err));
    }
    return CRUMB_OK;
}

/* A gate that no linear op before it computes. */
static crumb_status record_gate(crumb_cl_recorder *r, size_t *index, crumb_error *err) {
    const crumb_op *op = &r->desc->ops[*index];
    bool quantized;
    CRUMB_TRY(crumb_cl_gate_is_quantized(r, *index, &quantized, err));
    if (!quantized) return crumb_cl_record_gated(r, op, err);
    r->p->values[op->gated.out].readable = false;
    ++*index;
    return record_linear(r, index, &(crumb_cl_source){.made = op}, err);
}

/* Records op *index, and those after it that are folded in; leaves *index at the last one. */
static crumb_status record_op(crumb_cl_recorder *r, size_t *index, crumb_error *err) {
    const crumb_op *op = &r->desc->ops[*index];
    *r->quantized = '\0';
    switch (op->kind) {
    case CRUMB_OP_INPUT: return CRUMB_OK; /* crumb_cl_plan_write puts it where the ops find it */
    case CRUMB_OP_EMBED: return crumb_cl_record_embed(r, op, err);
    case CRUMB_OP_RMS_NORM: return record_norm(r, index, err);
    case CRUMB_OP_LINEAR: return record_linear(r, index, &(crumb_cl_source){0}, err);
    case CRUMB_OP_ROPE: return record_rope(r, index, 0, &(crumb_cl_turn){0}, err);
    case CRUMB_OP_ATTENTION:
        CRUMB_TRY(crumb_cl_record_rope_store(r, &(crumb_cl_turn){.attention = op}, err));
        return crumb_cl_record_attention(r, op, err);
    case CRUMB_OP_GATED: return record_gate(r, index, err);
    case CRUMB_OP_SELECT: r->after_select = true; return crumb_cl_record_select(r, op, err);
    case CRUMB_OP_TOP: return crumb_cl_record_top(r, op, err);
    case CRUMB_OP_PLACE: return crumb_cl_record_place(r, op, err);
    case CRUMB_OP_GATHER: return record_gather(r, index, NULL, err);
    case CRUMB_OP_SIGNAL:
    case CRUMB_OP_WAIT: return crumb_cl_meetings_add(&r->p->meetings, r->p->n_launches, op, err);
    }
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s does not know this op", r->p->device->label);
}

static crumb_status record_all(crumb_cl_recorder *r, crumb_error *err) {
    shared_bytes most = {0};
    crumb_status status;
    for (size_t i = 0; i < r->desc->n_ops; i++)
        if ((status = look_at_op(r, i, &most, err)) != CRUMB_OK) return crumb_op_fail(r->desc, i, status, err);
    r->after_select = false;
    CRUMB_TRY(take_memory(r, &most, err));
    for (size_t i = 0; i < r->desc->n_ops; i++)
        if ((status = record_op(r, &i, err)) != CRUMB_OK) return crumb_op_fail(r->desc, i, status, err);
    return CRUMB_OK;
}

/* ---- the plan ------------------------------------------------------------------------------------------------ */

static crumb_status start_plan(crumb_plan *p, crumb_device *d, const crumb_plan_desc *desc, crumb_error *err) {
    void *memory;
    if (desc->n_ops == 0 || desc->n_values == 0 || desc->n_values >= CRUMB_NO_VALUE)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a plan of %zu ops and %zu values", desc->n_ops, desc->n_values);
    if (desc->max_rows == 0 || desc->max_rows > MAX_ROWS || desc->max_outputs > desc->max_rows)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a plan for %u rows with %u outputs: 1 to %d rows are possible",
                          desc->max_rows, desc->max_outputs, MAX_ROWS);
    p->device = d;
    p->kv = desc->kv;
    p->max_rows = desc->max_rows;
    p->max_outputs = desc->max_outputs;
    p->commands.usable = crumb_cl_list_possible(d);
    p->n_values = desc->n_values;
    CRUMB_TRY(crumb_values_check(desc, err));
    CRUMB_TRY(crumb_inputs_find(desc, &p->inputs, err));
    CRUMB_TRY(crumb_calloc(desc->n_values, sizeof *p->values, "a plan", &memory, err));
    p->values = memory;
    find_owners(p, desc);
    return choose_item_bytes(p, desc, err);
}

/* How many launches from number `first` on have its name; 0 where an earlier one has it. */
static size_t count_name(const crumb_plan *p, size_t first) {
    size_t n = 0;
    for (size_t i = 0; i < p->n_launches; i++) {
        if (strcmp(p->launches[i].name, p->launches[first].name) != 0) continue;
        if (i < first) return 0;
        n++;
    }
    return n;
}

static void log_plan(const crumb_plan *p) {
    char line[1024];
    const crumb_device *d = p->device;
    if (!d->log) return;
    int length =
        snprintf(line, sizeof line, "%s: a plan for %u rows is %zu kernels (%s), %.1f MiB of scratch:", d->label,
                 p->max_rows, p->n_launches, crumb_cl_rung_name(d->ladder.rung), (double)p->scratch_bytes / 1048576);
    for (size_t i = 0; i < p->n_launches && length > 0 && (size_t)length < sizeof line; i++) {
        const size_t n = count_name(p, i);
        if (n) length += snprintf(line + length, sizeof line - (size_t)length, " %zu %s", n, p->launches[i].name);
    }
    d->log(d->log_user, CRUMB_LOG_DEBUG, line);
}

crumb_status crumb_cl_plan_record(crumb_device *d, const crumb_plan_desc *desc, crumb_plan **out, crumb_error *err) {
    void *memory;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "a plan", &memory, err));
    crumb_plan *p = memory;
    crumb_cl_recorder r = {.p = p, .desc = desc};
    crumb_status status = start_plan(p, d, desc, err);
    if (status == CRUMB_OK) status = record_all(&r, err);
    free(r.wishes);
    if (status != CRUMB_OK) {
        crumb_cl_plan_destroy(p);
        return status;
    }
    p->rule = (crumb_rows_rule){.max_rows = p->max_rows,
                                .max_outputs = p->max_outputs,
                                .n_vocab = p->n_vocab,
                                .has_select = p->has_select,
                                .kv = p->has_attention ? &p->kv->params : NULL,
                                .next_position = p->next_position};
    log_plan(p);
    *out = p;
    return CRUMB_OK;
}
