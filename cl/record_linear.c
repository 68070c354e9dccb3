/* Linear ops: quantizing their input, then one launch for all parts whose weights are alike. */
#include "cl/record.h"

#include "cl/program.h"
#include "cl/tuned.h"
#include "host/base/checked.h"

#include <stdio.h>
#include <string.h>

enum { WG = 128 };

static uint32_t padded(const crumb_matrix *w) {
    return (uint32_t)crumb_round_up(w->k, CRUMB_TILE_K);
}

static bool quantizes(const crumb_op *op, const crumb_matrix *w) {
    return w->bits && op->linear.act != CRUMB_ACT_F32;
}

/* Weights that share a sum of codes; 0: whole rows. */
static uint32_t sum_group(const crumb_op *op, const crumb_matrix *w) {
    uint32_t group = op->linear.act == CRUMB_ACT_ROW ? w->group : op->linear.act_group;
    return group >= padded(w) ? 0 : group;
}

static uint64_t n_sums(const crumb_op *op, const crumb_matrix *w) {
    uint32_t group = sum_group(op, w);
    return group ? padded(w) / group : 1;
}

static uint64_t n_scales(const crumb_op *op, const crumb_matrix *w) {
    return op->linear.act == CRUMB_ACT_ROW ? 1 : n_sums(op, w);
}

/* Whether one launch serves both. */
static bool alike(const crumb_cl_recorder *r, const crumb_op *op, const crumb_linear_part *a,
                  const crumb_linear_part *b) {
    if (!a->w->bits && !b->w->bits) {
        const crumb_cl_kernel *kernel = crumb_cl_dense_kernel(r, op, a);
        return a->w->type == b->w->type && kernel && crumb_cl_dense_joins(kernel) && crumb_cl_dense_kernel(r, op, b);
    }
    return quantizes(op, a->w) && quantizes(op, b->w) && crumb_cl_linear_joins(a->w, b->w);
}

/* Whether a part's launch, or one before it that turns activations into what it reads, can compute a norm: those of
 * dense weights on plain instructions for one row, which each work-group norms anew. */
static bool takes_norm(const crumb_cl_recorder *r, const crumb_op *op, const crumb_linear_part *part) {
    if (part->w->bits) return quantizes(op, part->w);
    const crumb_cl_kernel *kernel = crumb_cl_dense_kernel(r, op, part);
    return kernel && (kernel->op == CRUMB_CL_DENSE_MATRIX || kernel->tokens == 1);
}

/* How many parts from `first` on have one launch. */
static uint32_t alike_from(const crumb_cl_recorder *r, const crumb_op *op, uint32_t first) {
    const crumb_linear_part *part = &op->linear.part[first];
    uint32_t n = 1;
    while (first + n < op->linear.n_parts && alike(r, op, part, &part[n])) n++;
    return n;
}

static uint32_t tiles_of(const crumb_linear_part *part) {
    return (uint32_t)crumb_div_up(part->m1, CRUMB_TILE_ROWS) - part->m0 / CRUMB_TILE_ROWS;
}

/* INPUT: `made` is the norm or gate that is computed where its result is quantized, or NULL. */
static uint32_t input_option(const crumb_op *made) {
    return !made ? 0 : made->kind == CRUMB_OP_RMS_NORM ? 1 : 1 + crumb_cl_fn_option(made);
}

static void keep_most(uint64_t *most, uint64_t n_bytes) {
    if (n_bytes > *most) *most = n_bytes;
}

void crumb_cl_linear_bytes(const crumb_cl_recorder *r, const crumb_op *op, crumb_cl_prepared_bytes *most) {
    const uint32_t n = r->p->max_rows;
    for (int i = 0; i < op->linear.n_parts; i++) {
        const crumb_matrix *w = op->linear.part[i].w;
        if (quantizes(op, w)) {
            keep_most(&most->q, crumb_cl_linear_x_bytes(n, padded(w)));
            keep_most(&most->sx, n_scales(op, w) * 4 * n);
            keep_most(&most->qsum, n_sums(op, w) * 4 * n);
        } else if (!w->bits) {
            const crumb_cl_kernel *kernel = crumb_cl_dense_kernel(r, op, &op->linear.part[i]);
            if (!kernel || crumb_cl_dense_owns(kernel)) continue;
            keep_most(&most->q, crumb_cl_split_bytes(r->p->max_rows, w->k));
            keep_most(&most->sx, n * sizeof(float));
        }
    }
}

/* ---- folding ------------------------------------------------------------------------------------------------- */

/* Whether a norm can be part of the op, linear, that reads it. */
static bool norm_is_part(const crumb_cl_recorder *r, const crumb_op *norm, const crumb_op *linear) {
    if (linear->linear.add == norm->norm.out) return false;
    for (int i = 0; i < linear->linear.n_parts; i++) { /* every launch norms by itself, also behind others */
        const crumb_linear_part *part = &linear->linear.part[i];
        if (!takes_norm(r, linear, part)) return false;
        if (r->desc->values[part->out].slot == r->desc->values[norm->norm.x].slot) return false;
    }
    return true;
}

/* Whether an order of columns, and the norm before it or NULL, can be part of the op, linear, that reads them. */
static bool takes_order(const crumb_cl_recorder *r, const crumb_op *norm, const crumb_op *gather,
                        const crumb_op *linear) {
    const crumb_value x = norm ? norm->norm.x : gather->gather.x;
    if (linear->linear.add == gather->gather.out || (norm && linear->linear.add == norm->norm.out)) return false;
    for (int i = 0; i < linear->linear.n_parts; i++) { /* every quantizing launch reads x, also behind others */
        const crumb_linear_part *part = &linear->linear.part[i];
        if (!quantizes(linear, part->w)) return false;
        if (r->desc->values[part->out].slot == r->desc->values[x].slot) return false;
    }
    return true;
}

size_t crumb_cl_gather_folds(const crumb_cl_recorder *r, size_t index, const crumb_op *norm) {
    const crumb_op *gather = &r->desc->ops[index], *op = gather + 1, *end = r->desc->ops + r->desc->n_ops;
    while (op < end && op->kind == CRUMB_OP_LINEAR && op->linear.x == gather->gather.out) {
        if (!takes_order(r, norm, gather, op++)) return 0;
    }
    const size_t n = (size_t)(op - gather) - 1;
    return n && crumb_op_only_next_reads(r->desc, index + n - 1, gather->gather.out) ? n : 0;
}

size_t crumb_cl_norm_folds(const crumb_cl_recorder *r, size_t index) {
    const crumb_op *norm = &r->desc->ops[index], *op = norm + 1, *end = r->desc->ops + r->desc->n_ops;
    if (norm->norm.head_dim && norm->norm.head_dim != r->desc->values[norm->norm.x].width) return 0;
    while (op < end) {
        if (op->kind == CRUMB_OP_GATHER && op->gather.x == norm->norm.out) {
            const size_t n = crumb_cl_gather_folds(r, (size_t)(op - r->desc->ops), norm);
            if (!n) return 0;
            op += 1 + n;
        } else if (op->kind == CRUMB_OP_LINEAR && op->linear.x == norm->norm.out) {
            if (!norm_is_part(r, norm, op++)) return 0;
        } else {
            break;
        }
    }
    const size_t n = (size_t)(op - norm) - 1;
    return n && crumb_op_only_next_reads(r->desc, index + n - 1, norm->norm.out) ? n : 0;
}

/* A linear op's `first` part and those alike behind it, as a kernel is asked for. */
static crumb_cl_linear use_of(const crumb_cl_recorder *r, const crumb_op *op, uint32_t first, uint32_t n,
                              const crumb_cl_source *from, const crumb_op *gated) {
    crumb_cl_linear use = {.w = op->linear.part[first].w,
                           .act = op->linear.act,
                           .act_group = op->linear.act_group,
                           .n_parts = n,
                           .gated = gated ? crumb_cl_fn_option(gated) : 0,
                           .x = 8,
                           .f32_results = *crumb_cl_results_option(r, op->linear.part[first].out) != 0,
                           .input = input_option(from->made),
                           .ordered = from->gather != NULL};
    for (uint32_t i = first; i < first + (gated ? 1 : n); i++) use.tiles += tiles_of(&op->linear.part[i]);
    return use;
}

/* Whether all parts find their codes in memory: `crumb tune` has not found for any that it should quantize by itself,
 * in each work-group, where a gate would be computed over and over. */
static crumb_status reads_codes(const crumb_cl_recorder *r, const crumb_op *op, bool *out, crumb_error *err) {
    *out = true;
    for (uint32_t i = 0, n; *out && i < op->linear.n_parts; i += n) {
        crumb_cl_variant v;
        bool tuned;
        n = alike_from(r, op, i);
        crumb_cl_linear use = use_of(r, op, i, n, &(crumb_cl_source){0}, NULL);
        CRUMB_TRY(crumb_cl_tuned_find(r->p->device, &use, crumb_cl_most_rows(r), true, &v, &tuned, err));
        *out = !tuned || use.x == 8;
    }
    return CRUMB_OK;
}

/* bf16: the gate's results would not be rounded where they are codes at once, and must not depend on what is tuned. */
crumb_status crumb_cl_gate_is_quantized(const crumb_cl_recorder *r, size_t index, bool *out, crumb_error *err) {
    const crumb_value_info *values = r->desc->values;
    const crumb_op *gate = &r->desc->ops[index], *linear = gate + 1;
    *out = false;
    if (index + 1 >= r->desc->n_ops || linear->kind != CRUMB_OP_LINEAR || linear->linear.x != gate->gated.out)
        return CRUMB_OK;
    if (r->p->device->ladder.bf16 || !crumb_op_only_next_reads(r->desc, index, gate->gated.out)) return CRUMB_OK;
    for (int i = 0; i < linear->linear.n_parts; i++) { /* every quantizing launch gates by itself, also behind others */
        const crumb_linear_part *part = &linear->linear.part[i];
        const uint32_t slot = values[part->out].slot;
        if (!quantizes(linear, part->w)) return CRUMB_OK;
        if (slot == values[gate->gated.gate].slot || slot == values[gate->gated.up].slot) return CRUMB_OK;
    }
    return reads_codes(r, linear, out, err);
}

/* Work-groups that read their input by themselves must not find results in it, which have no place of their own then.
 */
static bool keeps_input(const crumb_cl_recorder *r, const crumb_op *gated) {
    const crumb_value_info *values = r->desc->values;
    const uint32_t slot = values[gated->gated.out].slot;
    return slot == values[gated->gated.gate].slot || slot == values[gated->gated.up].slot;
}

bool crumb_cl_gated_folds(const crumb_cl_recorder *r, size_t index) {
    const crumb_op *linear = &r->desc->ops[index], *gated = linear + 1;
    if (index + 1 >= r->desc->n_ops || gated->kind != CRUMB_OP_GATED || linear->linear.n_parts != 2) return false;
    const crumb_linear_part *gate = &linear->linear.part[0], *up = &linear->linear.part[1];
    if (gate->out != gated->gated.gate || up->out != gated->gated.up || !alike(r, linear, gate, up)) return false;
    if (!gate->w->bits && !keeps_input(r, gated)) return false;
    if (gate->m0 || up->m0 || gate->m1 != gate->w->m || up->m1 != up->w->m || gate->w->m != up->w->m) return false;
    return (gate->out == gated->gated.out || crumb_op_only_next_reads(r->desc, index, gate->out)) &&
           (up->out == gated->gated.out || crumb_op_only_next_reads(r->desc, index, up->out));
}

/* ---- launches ------------------------------------------------------------------------------------------------ */

static void set_time(crumb_cl_builder *b) {
    b->launch->time = b->r->after_select ? CRUMB_CL_TIME_HEAD : CRUMB_CL_TIME_LINEAR;
}

/* The value that a launch begins with which quantizes: x. */
static crumb_value source_of(const crumb_op *op, const crumb_cl_source *from) {
    const crumb_op *made = from->made;
    if (!made) return from->gather ? from->gather->gather.x : op->linear.x;
    return made->kind == CRUMB_OP_RMS_NORM ? made->norm.x : made->gated.gate;
}

static const uint32_t *order_of(const crumb_cl_source *from) {
    return from->gather ? from->gather->gather.from : NULL;
}

/* x, aux, order, eps of INPUT and ORDER. */
static void arg_source(crumb_cl_builder *b, const crumb_op *op, const crumb_cl_source *from, uint32_t k) {
    const crumb_op *made = from->made;
    const bool norm = made && made->kind == CRUMB_OP_RMS_NORM;
    crumb_cl_arg_value(b, source_of(op, from));
    if (made && !norm)
        crumb_cl_arg_value(b, made->gated.up);
    else
        crumb_cl_arg_weights(b, norm ? made->norm.weight : NULL, k * sizeof(float));
    crumb_cl_arg_weights(b, order_of(from), k * sizeof(uint32_t));
    crumb_cl_arg_f32(b, norm ? made->norm.eps : 0);
}

/* Activations as `kernel` reads them, or where it quantizes by itself only their rows' largest values; unless they lie
 * there already. */
static crumb_status record_quantize(crumb_cl_recorder *r, const crumb_op *op, const crumb_cl_source *from,
                                    const crumb_cl_kernel *kernel, const crumb_cl_linear *use, crumb_error *err) {
    char options[CRUMB_CL_OPTIONS_MAX];
    crumb_cl_builder b;
    crumb_plan *p = r->p;
    const crumb_matrix *w = use->w;
    crumb_cl_quantize_options(kernel, use, options);
    if (strcmp(options, r->quantized) == 0 && r->quantized_order == order_of(from)) return CRUMB_OK;
    r->quantized_order = order_of(from);
    snprintf(r->quantized, sizeof r->quantized, "%s", options);
    CRUMB_TRY(crumb_cl_launch_begin(r, crumb_cl_row_of(r, CRUMB_CL_QUANTIZE), options, &b, err));
    set_time(&b);
    crumb_cl_arg_u32(&b, r->after_select);
    crumb_cl_arg_u32(&b, w->k);
    arg_source(&b, op, from, w->k);
    crumb_cl_arg_memory(&b, &p->q);
    crumb_cl_arg_memory(&b, &p->sx);
    crumb_cl_arg_memory(&b, &p->qsum);
    crumb_cl_arg_local(&b, 4 * (n_scales(op, w) + n_sums(op, w)));
    return crumb_cl_launch_end(&b, 1, WG, 0, 1);
}

static void arg_part(crumb_cl_builder *b, const crumb_linear_part *part, crumb_value out) {
    const crumb_matrix rows = crumb_cl_part_matrix(part);
    crumb_cl_arg_matrix(b, &rows);
    crumb_cl_arg_weights(b, part->bias, part->w->m * sizeof(float));
    crumb_cl_arg_value(b, out);
    crumb_cl_arg_u32(b, part->m0 / CRUMB_TILE_ROWS);
    crumb_cl_arg_u32(b, tiles_of(part));
    crumb_cl_arg_u32(b, part->w->m);
    crumb_cl_arg_u32(b, b->r->desc->values[out].width);
    crumb_cl_arg_f32(b, part->out_scale);
}

/* What a kernel that quantizes by itself reads, else nulls. */
static void arg_input(crumb_cl_builder *b, const crumb_op *op, const crumb_cl_source *from,
                      const crumb_cl_linear *use) {
    if (use->x == 32) {
        arg_source(b, op, from, use->w->k);
        return;
    }
    crumb_cl_arg_null(b);
    crumb_cl_arg_null(b);
    crumb_cl_arg_null(b);
    crumb_cl_arg_f32(b, 0);
}

/* Parts [first, first + n), which are alike; their input is quantized, unless the kernel does that. */
static crumb_status record_parts(crumb_cl_recorder *r, const crumb_op *op, uint32_t first,
                                 const crumb_cl_kernel *kernel, const crumb_cl_linear *use, const crumb_cl_source *from,
                                 const crumb_op *gated, crumb_error *err) {
    char options[CRUMB_CL_LINEAR_OPTIONS_MAX];
    crumb_cl_builder b;
    crumb_plan *p = r->p;
    const crumb_linear_part *parts = &op->linear.part[first];
    size_t groups = 0;
    crumb_cl_linear_program(p->device, kernel, use, options);
    CRUMB_TRY(crumb_cl_launch_begin(r, kernel, options, &b, err));
    set_time(&b);
    crumb_cl_arg_u32(&b, r->after_select);
    crumb_cl_arg_u32(&b, use->w->k);
    arg_input(&b, op, from, use);
    crumb_cl_arg_memory(&b, &p->q);
    crumb_cl_arg_memory(&b, &p->sx);
    crumb_cl_arg_memory(&b, &p->qsum);
    crumb_cl_arg_codebook(&b, use->w);
    crumb_cl_arg_i32(&b, use->w->mul);
    crumb_cl_arg_i32(&b, use->w->sub);
    crumb_cl_arg_value(&b, op->linear.add);
    crumb_cl_arg_local(&b, crumb_cl_linear_scratch_bytes(kernel, use));
    for (uint32_t i = 0; i < use->n_parts; i++) {
        arg_part(&b, &parts[i], gated ? gated->gated.out : parts[i].out);
        if (!gated || i == 0) groups += crumb_div_up(tiles_of(&parts[i]), kernel->tiles);
    }
    return crumb_cl_launch_end(&b, groups, kernel->local_size, 0, kernel->tokens);
}

static crumb_status record_float_tiles(crumb_cl_recorder *r, const crumb_op *op, const crumb_linear_part *part,
                                       crumb_error *err) {
    enum { TOKENS = 4, SLICES = 8 };
    char matrix[CRUMB_CL_OPTIONS_MAX], options[CRUMB_CL_OPTIONS_MAX + 80];
    crumb_cl_builder b;
    const crumb_matrix *w = part->w;
    uint32_t tokens = crumb_cl_most_rows(r) > 1 ? TOKENS : 1;
    crumb_cl_matrix_options(w, matrix);
    const crumb_cl_kernel *row = crumb_cl_row_of(r, CRUMB_CL_LINEAR_F32);
    snprintf(options, sizeof options, "%s -D TOKENS=%u -D SLICES=%d%s%s", matrix, tokens, SLICES,
             row->bf16 ? CRUMB_CL_BF16_VALUES : "", crumb_cl_results_option(r, part->out));
    CRUMB_TRY(crumb_cl_launch_begin(r, row, options, &b, err));
    set_time(&b);
    crumb_cl_arg_u32(&b, r->after_select);
    crumb_cl_arg_u32(&b, w->k);
    crumb_cl_arg_value(&b, op->linear.x);
    crumb_cl_arg_codebook(&b, w);
    crumb_cl_arg_i32(&b, w->mul);
    crumb_cl_arg_i32(&b, w->sub);
    crumb_cl_arg_value(&b, op->linear.add);
    arg_part(&b, part, part->out);
    return crumb_cl_launch_end(&b, tiles_of(part), CRUMB_TILE_ROWS * SLICES, 0, tokens);
}

/* ---- the op -------------------------------------------------------------------------------------------------- */

/* A kernel that quantizes for itself reads its input while others write results: they must not share memory. And it
 * does so in each work-group, which is too dear for a gate. */
static bool may_fuse(const crumb_cl_recorder *r, const crumb_op *op, uint32_t first, uint32_t n,
                     const crumb_cl_source *from, const crumb_op *gated) {
    const crumb_value_info *values = r->desc->values;
    const uint32_t slot = values[source_of(op, from)].slot;
    if (from->made && from->made->kind == CRUMB_OP_GATED) return false;
    if (gated && values[gated->gated.out].slot == slot) return false;
    for (uint32_t i = first; i < first + n; i++)
        if (values[op->linear.part[i].out].slot == slot) return false;
    return true;
}

/* The kernel for n parts from `first` on, which are alike: the one that was measured to be fastest for the first of
 * them, else that of the highest rank. */
static crumb_status choose(const crumb_cl_recorder *r, const crumb_op *op, uint32_t first, uint32_t n,
                           const crumb_cl_source *from, const crumb_op *gated, crumb_cl_linear *use,
                           crumb_cl_variant *out, crumb_error *err) {
    const crumb_device *d = r->p->device;
    const crumb_matrix *w = op->linear.part[first].w;
    const uint32_t rows = crumb_cl_most_rows(r);
    const bool may = may_fuse(r, op, first, n, from, gated);
    bool tuned;
    *use = use_of(r, op, first, n, from, gated);
    CRUMB_TRY(crumb_cl_tuned_find(d, use, rows, may, out, &tuned, err));
    if (tuned || crumb_cl_untuned(d, use, rows, may, out)) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s has no kernel for %s weights, %u x %u, in groups of %u", d->label,
                      crumb_type_get_info(w->type)->name, w->m, w->k, w->group);
}

static crumb_status record_tiles(crumb_cl_recorder *r, const crumb_op *op, uint32_t first, uint32_t n,
                                 const crumb_cl_source *from, const crumb_op *gated, crumb_error *err) {
    crumb_cl_linear use;
    crumb_cl_variant v;
    CRUMB_TRY(choose(r, op, first, n, from, gated, &use, &v, err));
    if (use.x == 8 || crumb_cl_linear_scaled(&v.kernel)) CRUMB_TRY(record_quantize(r, op, from, &v.kernel, &use, err));
    return record_parts(r, op, first, &v.kernel, &use, from, gated, err);
}

crumb_status crumb_cl_record_linear(crumb_cl_recorder *r, const crumb_op *op, const crumb_cl_source *from,
                                    const crumb_op *gated, crumb_error *err) {
    uint8_t split = 0;
    for (uint32_t i = 0, n; i < op->linear.n_parts; i += n) {
        const crumb_linear_part *part = &op->linear.part[i];
        if (part->w->indexed)
            return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s does not read the index layout", r->p->device->label);
        n = alike_from(r, op, i);
        if (part->w->bits) split = 0;
        if (!part->w->bits)
            CRUMB_TRY(crumb_cl_record_dense(r, op, i, n, from->made, gated, &split, err));
        else if (!quantizes(op, part->w))
            CRUMB_TRY(record_float_tiles(r, op, part, err));
        else
            CRUMB_TRY(record_tiles(r, op, i, n, from, gated, err));
    }
    return CRUMB_OK;
}
