/* Which kernels the ops besides linear ones become. */
#include "cl/record.h"

#include "cl/advice.h"
#include "cl/program.h"
#include "host/base/checked.h"

#include <stdio.h>

enum { WG = 128, ROPE_WG = 64 };

/* A launch of an op with one kernel. */
static crumb_status begin(crumb_cl_recorder *r, crumb_cl_op op, const char *options, crumb_cl_builder *b,
                          crumb_error *err) {
    char all[CRUMB_CL_OPTIONS_MAX + sizeof CRUMB_CL_BF16_VALUES];
    const crumb_cl_kernel *row = crumb_cl_row_of(r, op);
    snprintf(all, sizeof all, "%s%s", options, row->bf16 ? CRUMB_CL_BF16_VALUES : "");
    return crumb_cl_launch_begin(r, row, all, b, err);
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

crumb_status crumb_cl_record_embed(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err) {
    const crumb_matrix *t = op->embed.table;
    char options[CRUMB_CL_OPTIONS_MAX];
    crumb_cl_builder b;
    crumb_cl_matrix_options(t, options);
    CRUMB_TRY(begin(r, CRUMB_CL_EMBED, options, &b, err));
    crumb_cl_arg_u32(&b, t->k);
    crumb_cl_arg_matrix(&b, t);
    crumb_cl_arg_codebook(&b, t);
    crumb_cl_arg_i32(&b, t->mul);
    crumb_cl_arg_i32(&b, t->sub);
    crumb_cl_arg_f32(&b, op->embed.scale);
    crumb_cl_arg_value(&b, op->embed.out);
    return crumb_cl_launch_end(&b, crumb_div_up(t->k, WG), WG, 1, 1);
}

crumb_status crumb_cl_record_norm(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err) {
    uint32_t row = r->desc->values[op->norm.x].width, width = op->norm.head_dim ? op->norm.head_dim : row;
    crumb_cl_builder b;
    CRUMB_TRY(begin(r, CRUMB_CL_RMS_NORM, "-D WG=128", &b, err));
    crumb_cl_arg_u32(&b, r->after_select);
    crumb_cl_arg_u32(&b, width);
    crumb_cl_arg_u32(&b, row / width);
    crumb_cl_arg_value(&b, op->norm.x);
    crumb_cl_arg_weights(&b, op->norm.weight, width * sizeof(float));
    crumb_cl_arg_f32(&b, op->norm.eps);
    crumb_cl_arg_value(&b, op->norm.out);
    return crumb_cl_launch_end(&b, row / width, WG, 1, 1);
}

crumb_status crumb_cl_record_gated(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err) {
    uint32_t width = r->desc->values[op->gated.out].width;
    crumb_cl_builder b;
    CRUMB_TRY(begin(r, CRUMB_CL_GATED, op->gated.fn == CRUMB_ACT_FN_SILU ? "-D FN=1" : "-D FN=2", &b, err));
    crumb_cl_arg_u32(&b, r->after_select);
    crumb_cl_arg_u32(&b, width);
    crumb_cl_arg_value(&b, op->gated.gate);
    crumb_cl_arg_value(&b, op->gated.up);
    crumb_cl_arg_value(&b, op->gated.out);
    return crumb_cl_launch_end(&b, crumb_div_up(width, WG), WG, 1, 1);
}

crumb_status crumb_cl_record_select(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err) {
    uint32_t width = r->desc->values[op->select.x].width;
    crumb_cl_builder b;
    CRUMB_TRY(begin(r, CRUMB_CL_SELECT, "-D WG=128", &b, err));
    b.launch->on_outputs = true;
    crumb_cl_arg_u32(&b, width);
    crumb_cl_arg_value(&b, op->select.x);
    crumb_cl_arg_value(&b, op->select.out);
    return crumb_cl_launch_end(&b, crumb_div_up(width, WG), WG, CRUMB_CL_NO_DIM, 1);
}

crumb_status crumb_cl_record_place(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err) {
    const uint32_t width = r->desc->values[op->place.x].width;
    crumb_cl_builder b;
    CRUMB_TRY(begin(r, CRUMB_CL_PLACE, "-D WG=128", &b, err));
    crumb_cl_arg_u32(&b, r->after_select);
    crumb_cl_arg_u32(&b, width);
    crumb_cl_arg_u32(&b, op->place.column);
    crumb_cl_arg_u32(&b, r->desc->values[op->place.out].width);
    crumb_cl_arg_value(&b, op->place.x);
    crumb_cl_arg_value(&b, op->place.out);
    return crumb_cl_launch_end(&b, crumb_div_up(width, WG), WG, 1, 1);
}

crumb_status crumb_cl_record_gather(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err) {
    const uint32_t width = r->desc->values[op->gather.x].width;
    crumb_cl_builder b;
    CRUMB_TRY(begin(r, CRUMB_CL_GATHER, "-D WG=128", &b, err));
    crumb_cl_arg_u32(&b, r->after_select);
    crumb_cl_arg_u32(&b, width);
    crumb_cl_arg_weights(&b, op->gather.from, width * sizeof *op->gather.from);
    crumb_cl_arg_value(&b, op->gather.x);
    crumb_cl_arg_value(&b, op->gather.out);
    return crumb_cl_launch_end(&b, crumb_div_up(width, WG), WG, 1, 1);
}

/* ---- top ----------------------------------------------------------------------------------------------------- */

enum { TOP_CHUNK = 2048 };

uint64_t crumb_cl_top_row_bytes(const crumb_plan_desc *desc, const crumb_op *op) {
    const uint64_t chunks = crumb_div_up(desc->values[op->top.x].width, TOP_CHUNK);
    return chunks > 1 ? chunks * op->top.k * sizeof(uint64_t) : 0;
}

/* A launch for each time that the values left are more than one chunk, and the last. */
crumb_status crumb_cl_record_top(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err) {
    const crumb_plan *p = r->p;
    uint32_t n_in = r->desc->values[op->top.x].width;
    for (int launch = 0;; launch++) {
        const uint32_t chunks = (uint32_t)crumb_div_up(n_in, TOP_CHUNK);
        char options[64];
        crumb_cl_builder b;
        snprintf(options, sizeof options, "-D FIRST=%d -D LAST=%d -D K=%u -D WG=%d", launch == 0, chunks == 1,
                 op->top.k, WG);
        CRUMB_TRY(begin(r, CRUMB_CL_TOP, options, &b, err));
        crumb_cl_arg_u32(&b, r->after_select);
        crumb_cl_arg_u32(&b, n_in);
        crumb_cl_arg_value(&b, op->top.x);
        crumb_cl_arg_memory(&b, &p->keys[launch % 2 ^ 1]);
        crumb_cl_arg_memory(&b, &p->keys[launch % 2]);
        crumb_cl_arg_value(&b, op->top.out);
        CRUMB_TRY(crumb_cl_launch_end(&b, chunks, WG, 1, 1));
        if (chunks == 1) return CRUMB_OK;
        n_in = chunks * op->top.k;
    }
}

/* ---- attention ----------------------------------------------------------------------------------------------- */

static void arg_cache(crumb_cl_builder *b, uint32_t layer) {
    const crumb_kv_cache *kv = b->r->p->kv;
    crumb_cl_arg_memory(b, &kv->keys[layer]);
    crumb_cl_arg_memory(b, &kv->values[layer]);
    crumb_cl_arg_u64(b, 0); /* a layer has memory of its own */
    crumb_cl_arg_u32(b, kv->head_blocks);
}

static int kv_option(const crumb_plan *p) {
    return p->kv && p->kv->params.type == CRUMB_KV_Q8 ? 8 : 16;
}

static void arg_head_norm(crumb_cl_builder *b, const crumb_op *norm) {
    crumb_cl_arg_weights(b, norm ? norm->norm.weight : NULL, norm ? norm->norm.head_dim * sizeof(float) : 0);
    crumb_cl_arg_f32(b, norm ? norm->norm.eps : 0);
}

crumb_status crumb_cl_record_rope_store(crumb_cl_recorder *r, const crumb_cl_turn *turn, crumb_error *err) {
    char options[256];
    crumb_cl_builder b;
    crumb_plan *p = r->p;
    const crumb_op *rope = turn->rope, *attention = turn->attention;
    const crumb_cl_memory *table = NULL;
    uint32_t n_kv = rope ? rope->rope.n_head_kv : attention->attention.n_head_kv;
    uint32_t head_dim = rope ? rope->rope.head_dim : attention->attention.head_dim,
             n_head = rope ? rope->rope.n_head : 0;
    if (!p->kv) return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s rotates only with a KV cache", p->device->label);
    if (rope)
        CRUMB_TRY(crumb_cl_kv_turns(p->device, p->kv, rope->rope.inv_freq, rope->rope.dims, rope->rope.magnitude,
                                    &table, err));
    snprintf(options, sizeof options,
             "-D HEAD_DIM=%u -D KV=%d -D N_HEAD=%u -D N_HEAD_KV=%u -D DIMS=%u -D PAIRING=%d -D STORE=%d -D WG=%d",
             head_dim, kv_option(p), n_head, n_kv, rope ? rope->rope.dims : 0,
             rope && rope->rope.pairing == CRUMB_ROPE_HALVES, attention != NULL, ROPE_WG);
    CRUMB_TRY(begin(r, CRUMB_CL_ROPE_STORE, options, &b, err));
    b.launch->time = CRUMB_CL_TIME_ATTENTION;
    crumb_cl_arg_value(&b, rope ? rope->rope.q : CRUMB_NO_VALUE);
    crumb_cl_arg_value(&b, rope ? rope->rope.k : attention->attention.k);
    crumb_cl_arg_value(&b, attention ? attention->attention.v : CRUMB_NO_VALUE);
    crumb_cl_arg_memory(&b, table);
    arg_cache(&b, attention ? attention->attention.kv_layer : 0);
    arg_head_norm(&b, turn->q_norm);
    arg_head_norm(&b, turn->k_norm);
    return crumb_cl_launch_end(&b, n_head + n_kv, ROPE_WG, 1, 1);
}

static crumb_cl_heads heads_of(const crumb_plan *p, const crumb_op *op) {
    return (crumb_cl_heads){.kv = p->kv->params.type,
                            .head_dim = op->attention.head_dim,
                            .n_head = op->attention.n_head,
                            .n_head_kv = op->attention.n_head_kv};
}

/* A launch of one of attention's kernels, with the options for `rows`. */
static crumb_status begin_attention(crumb_cl_recorder *r, const crumb_cl_kernel *kernel, const crumb_cl_heads *heads,
                                    uint32_t rows, crumb_cl_builder *b, crumb_error *err) {
    char options[CRUMB_CL_OPTIONS_MAX], all[CRUMB_CL_OPTIONS_MAX + sizeof CRUMB_CL_LARGE_REGISTERS + 1];
    const bool large = kernel->registers == 256 && crumb_cl_chooses_registers(r->p->device);
    crumb_cl_attention_options(kernel, heads, rows, crumb_cl_standard(r->p->device->facts.version), options);
    snprintf(all, sizeof all, "%s%s", options, large ? " " CRUMB_CL_LARGE_REGISTERS : "");
    CRUMB_TRY(crumb_cl_launch_begin(r, kernel, all, b, err));
    b->launch->time = CRUMB_CL_TIME_ATTENTION;
    return CRUMB_OK;
}

/* Few rows: work-groups take chunks of keys, and the last one merges their results. */
static crumb_status record_split(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err) {
    crumb_cl_builder b;
    crumb_plan *p = r->p;
    const crumb_cl_heads heads = heads_of(p, op);
    const crumb_cl_kernel *split = crumb_cl_attention_select(CRUMB_CL_ATTENTION_SPLIT, &heads, &p->device->ladder);
    CRUMB_TRY(begin_attention(r, split, &heads, 1, &b, err));
    b.launch->splits_keys = true;
    crumb_cl_arg_value(&b, op->attention.q);
    arg_cache(&b, op->attention.kv_layer);
    crumb_cl_arg_f32(&b, op->attention.scale);
    crumb_cl_arg_memory(&b, &p->partials);
    crumb_cl_arg_memory(&b, &p->arrived);
    crumb_cl_arg_value(&b, op->attention.out);
    CRUMB_TRY(crumb_cl_launch_end(&b, p->chunks, split->local_size, 2, 1));
    b.launch->groups[1] = op->attention.n_head_kv;
    return CRUMB_OK;
}

/* Once for all layers of a plan. */
static void warn_of_time(const crumb_plan *p, const crumb_op *op) {
    const crumb_device *d = p->device;
    char advice[256], line[sizeof advice + 192];
    if (!d->log || op->attention.kv_layer != 0) return;
    crumb_cl_advise_attention(&d->facts, op->attention.n_head * op->attention.head_dim, p->max_rows,
                              p->kv->params.n_ctx, advice, sizeof advice);
    if (!*advice) return;
    snprintf(line, sizeof line, "%s: %s", d->label, advice);
    d->log(d->log_user, CRUMB_LOG_WARN, line);
}

crumb_status crumb_cl_record_attention(crumb_cl_recorder *r, const crumb_op *op, crumb_error *err) {
    crumb_cl_builder b;
    crumb_plan *p = r->p;
    if (p->partials.n_bytes) return record_split(r, op, err);
    const crumb_cl_heads heads = heads_of(p, op);
    const crumb_cl_kernel *whole = crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &heads, &p->device->ladder);
    const uint32_t rows = crumb_cl_attention_rows(whole, &heads, &p->device->ladder);
    if (!whole->sub_group) warn_of_time(p, op);
    CRUMB_TRY(begin_attention(r, whole, &heads, rows, &b, err));
    crumb_cl_arg_value(&b, op->attention.q);
    arg_cache(&b, op->attention.kv_layer);
    crumb_cl_arg_f32(&b, op->attention.scale);
    crumb_cl_arg_value(&b, op->attention.out);
    return crumb_cl_launch_end(&b, op->attention.n_head_kv, whole->local_size, 1, rows);
}
