/* What an op reads and writes, and whether its values, shapes and pointers fit together. */
#include "host/kernel/op.h"

const char *crumb_op_name(crumb_op_kind kind) {
    static const char *const names[] = {
        [CRUMB_OP_INPUT] = "input",   [CRUMB_OP_EMBED] = "embed",   [CRUMB_OP_RMS_NORM] = "rms_norm",
        [CRUMB_OP_LINEAR] = "linear", [CRUMB_OP_ROPE] = "rope",     [CRUMB_OP_ATTENTION] = "attention",
        [CRUMB_OP_GATED] = "gated",   [CRUMB_OP_SELECT] = "select", [CRUMB_OP_TOP] = "top",
        [CRUMB_OP_PLACE] = "place",   [CRUMB_OP_GATHER] = "gather", [CRUMB_OP_SIGNAL] = "signal",
        [CRUMB_OP_WAIT] = "wait",
    };
    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}

size_t crumb_op_reads(const crumb_op *op, crumb_value out[CRUMB_OP_MAX_VALUES]) {
    size_t n = 0;
    switch (op->kind) {
    case CRUMB_OP_RMS_NORM: out[n++] = op->norm.x; break;
    case CRUMB_OP_LINEAR:
        out[n++] = op->linear.x;
        if (op->linear.add != CRUMB_NO_VALUE) out[n++] = op->linear.add;
        break;
    case CRUMB_OP_ROPE:
        out[n++] = op->rope.q;
        out[n++] = op->rope.k;
        break;
    case CRUMB_OP_ATTENTION:
        out[n++] = op->attention.q;
        out[n++] = op->attention.k;
        out[n++] = op->attention.v;
        break;
    case CRUMB_OP_GATED:
        out[n++] = op->gated.gate;
        out[n++] = op->gated.up;
        break;
    case CRUMB_OP_SELECT: out[n++] = op->select.x; break;
    case CRUMB_OP_TOP: out[n++] = op->top.x; break;
    case CRUMB_OP_PLACE: out[n++] = op->place.x; break;
    case CRUMB_OP_GATHER: out[n++] = op->gather.x; break;
    case CRUMB_OP_INPUT:
    case CRUMB_OP_EMBED:
    case CRUMB_OP_SIGNAL:
    case CRUMB_OP_WAIT: break;
    }
    return n;
}

size_t crumb_op_writes(const crumb_op *op, crumb_value out[CRUMB_OP_MAX_VALUES]) {
    size_t n = 0;
    switch (op->kind) {
    case CRUMB_OP_INPUT: out[n++] = op->input.out; break;
    case CRUMB_OP_EMBED: out[n++] = op->embed.out; break;
    case CRUMB_OP_RMS_NORM: out[n++] = op->norm.out; break;
    case CRUMB_OP_LINEAR:
        for (uint8_t i = 0; i < op->linear.n_parts && i < CRUMB_LINEAR_MAX_PARTS; i++)
            out[n++] = op->linear.part[i].out;
        break;
    case CRUMB_OP_ROPE:
        out[n++] = op->rope.q;
        out[n++] = op->rope.k;
        break;
    case CRUMB_OP_ATTENTION: out[n++] = op->attention.out; break;
    case CRUMB_OP_GATED: out[n++] = op->gated.out; break;
    case CRUMB_OP_SELECT: out[n++] = op->select.out; break;
    case CRUMB_OP_TOP: out[n++] = op->top.out; break;
    case CRUMB_OP_PLACE: out[n++] = op->place.out; break;
    case CRUMB_OP_GATHER: out[n++] = op->gather.out; break;
    case CRUMB_OP_SIGNAL:
    case CRUMB_OP_WAIT: break;
    }
    return n;
}

/* One check per line: the first that fails is the message. */
#define REQUIRE(condition, ...)                                                                                        \
    do {                                                                                                               \
        if (!(condition)) return crumb_fail(err, CRUMB_ERR_ARGUMENT, __VA_ARGS__);                                     \
    } while (0)

static uint32_t width_of(const crumb_plan_desc *desc, crumb_value v) {
    return desc->values[v].width;
}

/* Inputs are there before anything runs, so each needs a place of its own. */
static crumb_status check_input(const crumb_plan_desc *desc, const crumb_op *op, crumb_error *err) {
    for (const crumb_op *before = desc->ops; before < op; before++) {
        REQUIRE(before->kind == CRUMB_OP_INPUT, "inputs come before all other ops");
        REQUIRE(desc->values[before->input.out].slot != desc->values[op->input.out].slot,
                "another input has its place");
    }
    return CRUMB_OK;
}

static crumb_status check_norm(const crumb_plan_desc *desc, const crumb_op *op, crumb_error *err) {
    uint32_t width = width_of(desc, op->norm.x), head_dim = op->norm.head_dim;
    REQUIRE(op->norm.weight, "no weights");
    REQUIRE(width_of(desc, op->norm.out) == width, "x and out differ in width");
    REQUIRE(!head_dim || width % head_dim == 0, "head_dim %u does not divide the width %u", head_dim, width);
    return CRUMB_OK;
}

static bool is_group(uint32_t group) {
    return group == CRUMB_TILE_K / 2 || (group && group % CRUMB_TILE_K == 0);
}

static crumb_status check_part(const crumb_plan_desc *desc, const crumb_op *op, const crumb_linear_part *part,
                               crumb_error *err) {
    const crumb_matrix *w = part->w;
    REQUIRE(w && w->codes, "a part has no weights");
    REQUIRE(w->k == width_of(desc, op->linear.x), "weights have %u columns, x is %u wide", w->k,
            width_of(desc, op->linear.x));
    REQUIRE(width_of(desc, part->out) == w->m, "weights have %u rows, out is %u wide", w->m, width_of(desc, part->out));
    REQUIRE(part->m0 < part->m1 && part->m1 <= w->m && part->m0 % CRUMB_TILE_ROWS == 0 &&
                (part->m1 % CRUMB_TILE_ROWS == 0 || part->m1 == w->m),
            "rows %u to %u of %u are no whole tiles", part->m0, part->m1, w->m);
    REQUIRE(op->linear.add == CRUMB_NO_VALUE || width_of(desc, op->linear.add) == w->m, "add is %u wide, out %u",
            width_of(desc, op->linear.add), w->m);
    REQUIRE(part->out != op->linear.x && desc->values[part->out].slot != desc->values[op->linear.x].slot,
            "out overwrites x");
    if (w->bits == 0 || op->linear.act == CRUMB_ACT_F32) return CRUMB_OK;
    REQUIRE(is_group(w->group), "group %u is neither 16 nor a multiple of %d", w->group, CRUMB_TILE_K);
    uint32_t group = op->linear.act_group;
    REQUIRE(op->linear.act != CRUMB_ACT_GROUP || (is_group(group) && w->group % group == 0),
            "activation group %u does not divide the weights' group %u", group, w->group);
    return CRUMB_OK;
}

static crumb_status check_linear(const crumb_plan_desc *desc, const crumb_op *op, crumb_error *err) {
    REQUIRE(op->linear.n_parts >= 1 && op->linear.n_parts <= CRUMB_LINEAR_MAX_PARTS, "%d parts", op->linear.n_parts);
    REQUIRE(op->linear.add == CRUMB_NO_VALUE || op->linear.n_parts == 1, "a residual needs a single part");
    for (int i = 0; i < op->linear.n_parts; i++) CRUMB_TRY(check_part(desc, op, &op->linear.part[i], err));
    return CRUMB_OK;
}

static crumb_status check_rope(const crumb_plan_desc *desc, const crumb_op *op, crumb_error *err) {
    uint32_t dim = op->rope.head_dim, dims = op->rope.dims;
    REQUIRE(op->rope.inv_freq, "no frequencies");
    REQUIRE(dims >= 2 && dims % 2 == 0 && dims <= dim, "%u rotated dimensions of %u", dims, dim);
    REQUIRE(width_of(desc, op->rope.q) == (uint64_t)op->rope.n_head * dim, "q does not hold %u heads of %u",
            op->rope.n_head, dim);
    REQUIRE(width_of(desc, op->rope.k) == (uint64_t)op->rope.n_head_kv * dim, "k does not hold %u heads of %u",
            op->rope.n_head_kv, dim);
    return CRUMB_OK;
}

static crumb_status check_attention(const crumb_plan_desc *desc, const crumb_op *op, const crumb_kv_params *kv,
                                    crumb_error *err) {
    uint64_t dim = op->attention.head_dim, n_head = op->attention.n_head, n_kv = op->attention.n_head_kv;
    REQUIRE(kv, "the plan has no KV cache");
    REQUIRE(n_kv && n_head && n_head % n_kv == 0 && dim, "%u query heads and %u key heads of %u", op->attention.n_head,
            op->attention.n_head_kv, op->attention.head_dim);
    REQUIRE(width_of(desc, op->attention.q) == n_head * dim && width_of(desc, op->attention.out) == n_head * dim,
            "q and out do not hold %u heads of %u", op->attention.n_head, op->attention.head_dim);
    REQUIRE(width_of(desc, op->attention.k) == n_kv * dim && width_of(desc, op->attention.v) == n_kv * dim,
            "k and v do not hold %u heads of %u", op->attention.n_head_kv, op->attention.head_dim);
    REQUIRE(op->attention.kv_layer < kv->n_layers && n_kv == kv->n_head_kv && dim == kv->head_dim,
            "layer %u with %u heads of %u does not fit a KV cache of %u layers with %u heads of %u",
            op->attention.kv_layer, op->attention.n_head_kv, op->attention.head_dim, kv->n_layers, kv->n_head_kv,
            kv->head_dim);
    return CRUMB_OK;
}

static crumb_status check_shapes(const crumb_plan_desc *desc, const crumb_op *op, const crumb_kv_params *kv,
                                 crumb_error *err) {
    switch (op->kind) {
    case CRUMB_OP_INPUT: return check_input(desc, op, err);
    case CRUMB_OP_EMBED:
        REQUIRE(op->embed.table && op->embed.table->codes, "no table");
        REQUIRE(op->embed.table->k == width_of(desc, op->embed.out), "the table's rows are %u wide, out is %u",
                op->embed.table->k, width_of(desc, op->embed.out));
        return CRUMB_OK;
    case CRUMB_OP_RMS_NORM: return check_norm(desc, op, err);
    case CRUMB_OP_LINEAR: return check_linear(desc, op, err);
    case CRUMB_OP_ROPE: return check_rope(desc, op, err);
    case CRUMB_OP_ATTENTION: return check_attention(desc, op, kv, err);
    case CRUMB_OP_GATED:
        REQUIRE(width_of(desc, op->gated.gate) == width_of(desc, op->gated.out) &&
                    width_of(desc, op->gated.up) == width_of(desc, op->gated.out),
                "gate, up and out differ in width");
        return CRUMB_OK;
    case CRUMB_OP_SELECT:
        REQUIRE(width_of(desc, op->select.x) == width_of(desc, op->select.out), "x and out differ in width");
        return CRUMB_OK;
    case CRUMB_OP_TOP:
        REQUIRE(op->top.k >= 1 && op->top.k <= CRUMB_TOP_MAX_K, "k %u is not 1 to %d", op->top.k, CRUMB_TOP_MAX_K);
        REQUIRE(width_of(desc, op->top.out) == 2 * op->top.k, "out is %u wide, and k is %u",
                width_of(desc, op->top.out), op->top.k);
        return CRUMB_OK;
    case CRUMB_OP_PLACE:
        REQUIRE(op->place.column <= width_of(desc, op->place.out) &&
                    width_of(desc, op->place.x) <= width_of(desc, op->place.out) - op->place.column,
                "columns %u to %llu of an out that is %u wide", op->place.column,
                (unsigned long long)op->place.column + width_of(desc, op->place.x), width_of(desc, op->place.out));
        REQUIRE(desc->values[op->place.x].slot != desc->values[op->place.out].slot, "out overwrites x");
        return CRUMB_OK;
    case CRUMB_OP_GATHER:
        REQUIRE(op->gather.from, "no columns");
        REQUIRE(width_of(desc, op->gather.x) == width_of(desc, op->gather.out), "x and out differ in width");
        REQUIRE(desc->values[op->gather.x].slot != desc->values[op->gather.out].slot, "out overwrites x");
        return CRUMB_OK;
    case CRUMB_OP_SIGNAL:
    case CRUMB_OP_WAIT: REQUIRE(op->rendezvous.flag, "no flag"); return CRUMB_OK;
    }
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "crumb does not know this op");
}

crumb_status crumb_op_check(const crumb_plan_desc *desc, const crumb_kv_params *kv, size_t index, crumb_error *err) {
    const crumb_op *op = &desc->ops[index];
    crumb_value values[2 * CRUMB_OP_MAX_VALUES];
    size_t n = crumb_op_reads(op, values);
    n += crumb_op_writes(op, values + n);
    for (size_t i = 0; i < n; i++) REQUIRE(values[i] < desc->n_values, "value %u of %zu", values[i], desc->n_values);
    return check_shapes(desc, op, kv, err);
}

/* ---- whole plans ------------------------------------------------------------------------------------------- */

bool crumb_op_only_next_reads(const crumb_plan_desc *desc, size_t index, crumb_value v) {
    if (desc->values[v].shared) return false;
    for (size_t i = index + 2; i < desc->n_ops; i++) {
        crumb_value values[CRUMB_OP_MAX_VALUES];
        size_t n = crumb_op_reads(&desc->ops[i], values);
        for (size_t j = 0; j < n; j++)
            if (values[j] == v) return false;
        n = crumb_op_writes(&desc->ops[i], values);
        for (size_t j = 0; j < n; j++)
            if (values[j] == v) return true;
    }
    return true;
}

crumb_status crumb_values_check(const crumb_plan_desc *desc, crumb_error *err) {
    for (size_t i = 0; i < desc->n_values; i++)
        for (size_t j = 0; j < i; j++)
            REQUIRE(desc->values[i].slot != desc->values[j].slot || desc->values[i].shared == desc->values[j].shared,
                    "values %zu and %zu have one slot, but not the same shared memory", j, i);
    return CRUMB_OK;
}

crumb_status crumb_op_fail(const crumb_plan_desc *desc, size_t index, crumb_status status, crumb_error *err) {
    return crumb_fail_prefix(err, status, "op %zu (%s, layer %u)", index, crumb_op_name(desc->ops[index].kind),
                             desc->ops[index].layer);
}

/* ---- inputs ------------------------------------------------------------------------------------------------ */

crumb_status crumb_inputs_find(const crumb_plan_desc *desc, crumb_inputs *out, crumb_error *err) {
    *out = (crumb_inputs){0};
    for (size_t i = 0; i < desc->n_ops; i++) {
        if (desc->ops[i].kind != CRUMB_OP_INPUT) continue;
        if (out->n == CRUMB_OP_MAX_INPUTS)
            return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "a plan with more than %d inputs", CRUMB_OP_MAX_INPUTS);
        out->value[out->n++] = desc->ops[i].input.out;
    }
    return CRUMB_OK;
}

crumb_status crumb_inputs_written(crumb_inputs *inputs, crumb_value value, uint32_t n_rows, uint32_t max_rows,
                                  crumb_error *err) {
    REQUIRE(n_rows > 0 && n_rows <= max_rows, "%u rows for a plan of 1 to %u", n_rows, max_rows);
    for (size_t i = 0; i < inputs->n; i++)
        if (inputs->value[i] == value) return inputs->n_rows[i] = n_rows, CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "value %u is not an input of the plan", value);
}

crumb_status crumb_inputs_take(crumb_inputs *inputs, uint32_t n_rows, crumb_error *err) {
    for (size_t i = 0; i < inputs->n; i++)
        REQUIRE(inputs->n_rows[i] == n_rows, "input value %u was written for %u rows, and %u are replayed",
                inputs->value[i], inputs->n_rows[i], n_rows);
    for (size_t i = 0; i < inputs->n; i++) inputs->n_rows[i] = 0;
    return CRUMB_OK;
}

/* ---- rows -------------------------------------------------------------------------------------------------- */

static crumb_status check_place(const crumb_rows_rule *rule, const crumb_row *row, uint32_t i, crumb_error *err) {
    const crumb_kv_params *kv = rule->kv;
    REQUIRE(row->sequence < kv->n_sequences, "row %u: sequence %u of %u", i, row->sequence, kv->n_sequences);
    REQUIRE(row->position < kv->n_ctx, "row %u: position %u in a context of %u", i, row->position, kv->n_ctx);
    REQUIRE(row->position >= rule->next_position[row->sequence],
            "row %u: position %u of sequence %u comes after a later one", i, row->position, row->sequence);
    rule->next_position[row->sequence] = row->position + 1;
    return CRUMB_OK;
}

crumb_status crumb_rows_check(const crumb_rows_rule *rule, const crumb_row *rows, uint32_t n_rows, uint32_t *n_outputs,
                              crumb_error *err) {
    *n_outputs = 0;
    REQUIRE(n_rows > 0 && n_rows <= rule->max_rows, "%u rows for a plan of 1 to %u", n_rows, rule->max_rows);
    for (uint32_t i = 0; rule->kv && i < n_rows; i++)
        if (rows[i].sequence < rule->kv->n_sequences) rule->next_position[rows[i].sequence] = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        REQUIRE(!rule->n_vocab || (rows[i].token >= 0 && (uint32_t)rows[i].token < rule->n_vocab),
                "row %u: token %d is not one of %u", i, rows[i].token, rule->n_vocab);
        if (rows[i].wants_output && rule->has_select) ++*n_outputs;
        REQUIRE(*n_outputs <= rule->max_outputs, "more outputs wanted than the %u of the plan", rule->max_outputs);
        if (rule->kv) CRUMB_TRY(check_place(rule, &rows[i], i, err));
    }
    return CRUMB_OK;
}
