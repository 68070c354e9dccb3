/* Recording linear ops: what is folded in, how inputs are quantized, which kernels run, how rows are cut into chunks.
 */
#include "cpu/knobs.h"
#include "cpu/record.h"

#include "host/base/checked.h"
#include "host/kernel/suite.h"
#include "host/kernel/tuning.h"
#include "scheduler/chunks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A norm can be folded into the linear op behind it, unless that would write where other threads still read the norm's
 * input. */
bool crumb_record_norm_folds(const crumb_recorder *r, size_t index) {
    const crumb_op *norm = crumb_record_op(r, index), *linear = crumb_record_op(r, index + 1);
    if (!linear || linear->kind != CRUMB_OP_LINEAR || linear->linear.x != norm->norm.out) return false;
    if (norm->norm.head_dim && norm->norm.head_dim != r->desc->values[norm->norm.x].width) return false;
    for (int i = 0; i < linear->linear.n_parts; i++)
        if (crumb_record_slot(r, linear->linear.part[i].out) == crumb_record_slot(r, norm->norm.x)) return false;
    return crumb_op_only_next_reads(r->desc, index, norm->norm.out);
}

/* A gated activation can be folded into the linear op that makes gate and up whole, unless its result would overwrite
 * what other threads still read. */
bool crumb_record_gated_folds(const crumb_recorder *r, size_t index, const crumb_op *norm) {
    const crumb_op *linear = crumb_record_op(r, index), *gated = crumb_record_op(r, index + 1);
    if (!gated || gated->kind != CRUMB_OP_GATED || linear->linear.n_parts != 2) return false;
    const crumb_linear_part *gate = &linear->linear.part[0], *up = &linear->linear.part[1];
    if (gate->out != gated->gated.gate || up->out != gated->gated.up) return false;
    if (gate->m0 != 0 || gate->m1 != gate->w->m || up->m0 != 0 || up->m1 != up->w->m) return false;
    uint32_t slot = crumb_record_slot(r, gated->gated.out);
    return slot != crumb_record_slot(r, linear->linear.x) && (!norm || slot != crumb_record_slot(r, norm->norm.x));
}

static crumb_status find_input(crumb_recorder *r, crumb_step *s, const crumb_op *op, const crumb_matrix *w,
                               uint8_t *index, crumb_error *err) {
    crumb_linear_input in = {.k = w->k, .k_padded = (uint32_t)crumb_round_up(w->k, CRUMB_TILE_K), .group = 1};
    if (w->bits && op->linear.act != CRUMB_ACT_F32) {
        in.quantized = true;
        in.row_scale = op->linear.act == CRUMB_ACT_ROW;
        in.bits = w->bits;
        in.operand_bits = crumb_cpu_operand_bits(r->p->device->isa, w);
        in.code_bytes = (uint8_t)crumb_cpu_interleave_bytes(r->p->device->isa, in.operand_bits);
        in.group = in.row_scale ? w->group : op->linear.act_group;
        if (in.k_padded % in.group)
            return crumb_fail(err, CRUMB_ERR_ARGUMENT, "groups of %u do not divide %u columns", in.group, w->k);
    }
    if (w->k > r->max_k) r->max_k = w->k;
    for (uint32_t i = 0; i < s->linear.n_inputs; i++) {
        const crumb_linear_input *have = &s->linear.inputs[i];
        *index = (uint8_t)i;
        if (have->quantized == in.quantized && have->row_scale == in.row_scale && have->bits == in.bits &&
            have->operand_bits == in.operand_bits && have->group == in.group)
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

/* For how many rows of activations a matrix is no more work than what was measured. */
static uint32_t rows_of_work(const crumb_tuning_key *measured, const crumb_matrix *w) {
    const double rows = (double)measured->m * measured->k * measured->n / ((double)w->m * w->k);
    return rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX;
}

/* The most rows of activations that the step being recorded is given when it has a few of them, and when it has many.
 */
static uint32_t most_rows(const crumb_recorder *r, int many) {
    const uint32_t n = r->after_select ? r->p->max_outputs : r->p->max_rows;
    if (many) return n > CRUMB_SMALL_N ? n : CRUMB_SMALL_N + 1;
    return n < 1 ? 1 : n < CRUMB_SMALL_N ? n : CRUMB_SMALL_N;
}

/* Kernels and knobs that were measured to be faster here than those of the highest rank. Plans are recorded for 1, 2,
 * 4, 8 and 16 rows and for many: each looks for what was measured with its own number. */
static crumb_status apply_tuning(const crumb_recorder *r, crumb_act_quant act, crumb_linear_range *range,
                                 crumb_error *err) {
    const crumb_device *d = r->p->device;
    const crumb_matrix *w = range->part.w;
    for (int many = 0; many < 2; many++) {
        const uint32_t n = most_rows(r, many);
        crumb_tuning_key key = {.m = w->m,
                                .k = w->k,
                                .n = n,
                                .group = w->group,
                                .act = (uint32_t)act,
                                .n_threads = (uint32_t)r->p->n_threads};
        crumb_tuning_record record;
        bool found;
        snprintf(key.device, sizeof key.device, "%s", d->detail);
        snprintf(key.target, sizeof key.target, "%s", crumb_isa_name(d->isa));
        snprintf(key.source, sizeof key.source, "%s", crumb_cpu_kernels_hash());
        crumb_kernel_weights_name(w->bits, w->codebook, w->indexed, key.weights);
        CRUMB_TRY(crumb_tuning_find(d->tuning, &key, &record, &found, err));
        if (!found) continue;
        for (uint32_t i = many ? 0 : 1; i <= (many ? 0 : CRUMB_SMALL_N); i++) {
            const crumb_cpu_kernel *tuned = crumb_cpu_kernel_find(record.kernel, w, act, many ? n : i, d->isa);
            if (!tuned) continue;
            range->kernel[i] = tuned;
            range->knobs[many] = crumb_cpu_knobs_parse(tuned->op, record.knobs);
            range->few_rows[many] = rows_of_work(&record.key, w);
        }
    }
    return CRUMB_OK;
}

static crumb_status choose_kernels(crumb_recorder *r, const crumb_op *op, crumb_linear_range *range, crumb_error *err) {
    const crumb_matrix *w = range->part.w;
    crumb_isa isa = r->p->device->isa;
    crumb_act_quant act = w->bits ? op->linear.act : CRUMB_ACT_F32;
    for (uint32_t i = 0; i <= CRUMB_SMALL_N; i++) {
        const uint32_t n = i ? i : most_rows(r, true);
        range->kernel[i] = crumb_cpu_kernel_select(w, act, n, isa);
        if (!range->kernel[i])
            return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "no kernel for %s weights, %u x %u, in tier %s",
                              crumb_type_get_info(w->type)->name, w->m, w->k, crumb_isa_name(isa));
    }
    if (r->p->device->tuning && w->bits) CRUMB_TRY(apply_tuning(r, act, range, err));
    for (int many = 0; many < 2; many++) {
        const size_t n_bytes = crumb_cpu_kernel_scratch(w, most_rows(r, many), &range->knobs[many]);
        if (n_bytes > r->p->kernel_scratch_bytes) r->p->kernel_scratch_bytes = n_bytes;
    }
    return CRUMB_OK;
}

/* What the chosen kernels make of an input before they run. All parts that share it look up the same tables. */
static void choose_preparing(const crumb_linear_range *range, crumb_linear_input *in) {
    for (uint32_t n = 1; n <= CRUMB_SMALL_N; n++) {
        const crumb_cpu_layout *layout = range->kernel[n]->layout;
        if (!layout || !layout->prepare) continue;
        in->prepares = layout;
        if (n > in->prepare_n) in->prepare_n = n;
    }
}

static crumb_status add_bound(crumb_recorder *r, uint32_t bound, crumb_error *err) {
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

/* Of a tile-row, or of two where gate and up are taken together. */
static uint64_t unit_bytes_of(const crumb_step *s) {
    const crumb_matrix *w = s->linear.parts[0].part.w;
    return crumb_matrix_codes_bytes(w) / crumb_div_up(w->m, CRUMB_TILE_ROWS) * (s->linear.gated ? 2 : 1);
}

/* Cuts n_units among n_threads threads. */
static crumb_status cut(crumb_recorder *r, const crumb_step *s, int many, uint32_t n_units, int n_threads,
                        crumb_chunks *out, crumb_error *err) {
    const uint64_t unit_bytes = unit_bytes_of(s);
    const uint32_t share = s->linear.parts[0].knobs[many].share;
    const uint32_t step = many ? CRUMB_STRIP_TILES : CRUMB_STREAM_TILES;
    const uint32_t n = crumb_chunks_count(n_units, unit_bytes, step, n_threads, share);
    *out = (crumb_chunks){.first = (uint32_t)r->n_chunk_bounds, .n = n, .n_threads = n_threads};
    for (uint32_t i = 0; i <= n; i++)
        CRUMB_TRY(add_bound(r, crumb_chunk_begin(i, n_units, unit_bytes, step, n_threads, share), err));
    return CRUMB_OK;
}

/* How many threads compute a step, and for up to how many rows: all where that was faster for any of its parts. */
static int few_threads(const crumb_step *s, int many, int n_threads, uint32_t *n_rows) {
    int most = 0;
    *n_rows = UINT32_MAX;
    for (uint32_t i = 0; i < s->linear.n_parts; i++) {
        const crumb_linear_range *part = &s->linear.parts[i];
        const int n = crumb_cpu_knobs_threads(&part->knobs[many], n_threads);
        if (n > most) most = n;
        if (part->few_rows[many] < *n_rows) *n_rows = part->few_rows[many];
    }
    return most;
}

/* Chunks for a few rows of activations and for many, whose kernels may have other knobs. */
static crumb_status cut_chunks(crumb_recorder *r, crumb_step *s, uint32_t n_units, crumb_error *err) {
    const int all = r->p->n_threads;
    for (int many = 0; many < 2; many++) {
        uint32_t few_rows;
        CRUMB_TRY(cut(r, s, many, n_units, all, &s->linear.chunks[many], err));
        const int few = few_threads(s, many, all, &few_rows);
        if (few == all || few_rows == 0) continue;
        CRUMB_TRY(cut(r, s, many, n_units, few, &s->linear.few[many], err));
        s->linear.few_rows[many] = few_rows;
    }
    return CRUMB_OK;
}

/* `norm` and `gated` are the ops folded in, or NULL. */
crumb_status crumb_record_linear(crumb_recorder *r, const crumb_op *op, const crumb_op *norm, const crumb_op *gated,
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
        choose_preparing(range, &step.linear.inputs[range->input]);
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
        crumb_record_step(r, op, &crumb_step_prepare)->linear = step.linear;
    }
    crumb_record_step(r, op, &crumb_step_linear)->linear = step.linear;
    log_choices(r->p);
    return CRUMB_OK;
}
