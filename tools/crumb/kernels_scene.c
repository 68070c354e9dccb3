#include "tools/crumb/kernels_scene.h"

#include "host/base/checked.h"
#include "host/base/half.h"
#include "host/base/memory.h"
#include "host/kernel/kv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEQUENCES = 2, FILL_ROWS = 64, TOP_K = 40 };

#define TILE CRUMB_TYPE_F32 /* of weights in tiles: of no importance */
const kernels_form kernels_forms[] = {
    {.op = "embed", .m = 70, .k = 96, .perf_m = 32768, .perf_k = 2048, .type = CRUMB_TYPE_F16},
    {.op = "embed", .m = 70, .k = 96, .perf_m = 32768, .perf_k = 2048, .type = CRUMB_TYPE_BF16},
    {.op = "embed", .m = 70, .k = 128, .perf_m = 32768, .perf_k = 2048, .bits = 2},
    {.op = "embed", .m = 70, .k = 128, .perf_m = 32768, .perf_k = 2048, .bits = 4, .group = 32},
    {.op = "norm", .k = 328, .perf_k = 2048},
    {.op = "norm", .k = 320, .perf_k = 2048, .head_dim = 64},
    {.op = "quantize", .m = 48, .k = 256, .perf_m = 256, .perf_k = 2048, .bits = 2},
    {.op = "quantize", .m = 33, .k = 320, .perf_m = 256, .perf_k = 2048, .bits = 4, .group = 32, .norm = true},
    {.op = "float", .m = 48, .k = 256, .perf_m = 8192, .perf_k = 2048, .bits = 2},
    {.op = "float", .m = 33, .k = 320, .perf_m = 8192, .perf_k = 2048, .bits = 8, .group = 32},
    {.op = "dense", .m = 77, .k = 416, .perf_m = 8192, .perf_k = 2048, .type = CRUMB_TYPE_F16},
    {.op = "dense", .m = 77, .k = 416, .perf_m = 8192, .perf_k = 2048, .type = CRUMB_TYPE_BF16},
    {.op = "dense", .m = 77, .k = 101, .perf_m = 8192, .perf_k = 2048, .type = CRUMB_TYPE_F32},
    {.op = "split", .m = 77, .k = 288, .perf_m = 256, .perf_k = 2048, .type = CRUMB_TYPE_F16},
    {.op = "split", .m = 77, .k = 288, .perf_m = 256, .perf_k = 2048, .type = CRUMB_TYPE_BF16, .norm = true},
    {.op = "rope", .m = 44, .k = 256, .perf_m = 2048, .perf_k = 2048, .head_dim = 64, .sharing = 2},
    {.op = "rope",
     .m = 44,
     .k = 160,
     .perf_m = 2048,
     .perf_k = 2048,
     .head_dim = 80,
     .sharing = 1,
     .kv = CRUMB_KV_Q8,
     .pairing = CRUMB_ROPE_HALVES},
    {.op = "rope",
     .m = 44,
     .k = 512,
     .perf_m = 2048,
     .perf_k = 2048,
     .norm = true,
     .head_dim = 128,
     .sharing = 2,
     .pairing = CRUMB_ROPE_HALVES},
    {.op = "attention", .m = 300, .k = 256, .perf_m = 2048, .perf_k = 2048, .head_dim = 64, .sharing = 2},
    {.op = "attention", .m = 140, .k = 512, .perf_m = 2048, .perf_k = 2048, .head_dim = 128, .sharing = 4},
    {.op = "attention",
     .m = 300,
     .k = 512,
     .perf_m = 2048,
     .perf_k = 2048,
     .head_dim = 128,
     .sharing = 4,
     .kv = CRUMB_KV_Q8},
    {.op = "gated", .k = 300, .perf_k = 8192, .fn = CRUMB_ACT_FN_SILU},
    {.op = "gated", .k = 300, .perf_k = 8192, .fn = CRUMB_ACT_FN_RELU2},
    {.op = "select", .k = 300, .perf_k = 2048},
    {.op = "top", .m = 5000, .k = 1, .perf_m = 128256, .perf_k = 1},
    {.op = "place", .k = 300, .perf_k = 2048},
    {.op = "gather", .k = 300, .perf_k = 8192},
};
const size_t kernels_n_forms = sizeof kernels_forms / sizeof kernels_forms[0];

/* ---- data -------------------------------------------------------------------------------------------------- */

static crumb_status random_floats(kernels_scene *s, uint64_t n, float size, float **out, crumb_error *err) {
    void *memory;
    CRUMB_TRY(crumb_calloc(n, sizeof **out, "random data", &memory, err));
    *out = memory;
    for (uint64_t i = 0; i < n; i++) (*out)[i] = crumb_random_f32(&s->seed) * size;
    return CRUMB_OK;
}

static crumb_value add_value(kernels_scene *s, uint32_t width) {
    s->values[s->n_values] = (crumb_value_info){.width = width, .slot = (uint32_t)s->n_values};
    return (crumb_value)s->n_values++;
}

static crumb_op *add_op(kernels_scene *s, crumb_op_kind kind) {
    crumb_op *op = &s->ops[s->n_ops++];
    *op = (crumb_op){.kind = kind};
    return op;
}

/* Rows of different sizes: from tiny ones to large ones. */
static crumb_status add_input(kernels_scene *s, uint32_t width, float size, crumb_value *out, crumb_error *err) {
    static const float of_row[] = {1, 30, 1e-3f};
    *out = add_value(s, width);
    add_op(s, CRUMB_OP_INPUT)->input.out = *out;
    s->n_bytes += (uint64_t)s->n * width * sizeof(float);
    CRUMB_TRY(random_floats(s, (uint64_t)s->n * width, size, &s->inputs[*out], err));
    for (uint64_t i = 0; size > 1 && i < (uint64_t)s->n * width; i++) s->inputs[*out][i] *= of_row[i / width % 3];
    return CRUMB_OK;
}

static void add_result(kernels_scene *s, crumb_value value) {
    s->results[s->n_results++] = value;
    s->n_bytes += (uint64_t)s->n * s->values[value].width * sizeof(float);
}

static crumb_status make_dense(kernels_scene *s, crumb_error *err) {
    const kernels_form *f = s->form;
    const uint64_t n = (uint64_t)s->m * s->k, size = f->type == CRUMB_TYPE_F32 ? 4 : 2;
    CRUMB_TRY(crumb_calloc(n, size, "random weights", &s->dense, err));
    for (uint64_t i = 0; i < n; i++) {
        const float w = crumb_random_f32(&s->seed) * 0.3f;
        if (size == 4)
            ((float *)s->dense)[i] = w;
        else
            ((uint16_t *)s->dense)[i] = f->type == CRUMB_TYPE_F16 ? crumb_f32_to_f16(w) : crumb_f32_to_bf16(w);
    }
    s->w = (crumb_matrix){.type = f->type, .m = s->m, .k = s->k, .codes = s->dense};
    s->n_bytes += n * size;
    return CRUMB_OK;
}

static crumb_status make_weights(kernels_scene *s, crumb_error *err) {
    const kernels_form *f = s->form;
    if (f->bits == 0) return make_dense(s, err);
    const crumb_trial_params params = {
        .bits = f->bits, .mul = 1, .sub = 1, .m = s->m, .k = s->k, .n = 1, .group = f->group, .has_min = s->seed % 2};
    CRUMB_TRY(crumb_trial_generate(&params, &s->seed, &s->trial, err));
    s->w = s->trial.w;
    const crumb_matrix_bytes n = crumb_matrix_get_bytes(&s->w);
    s->n_bytes += n.codes + n.scales + n.mins;
    return CRUMB_OK;
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

static crumb_status add_embed(kernels_scene *s, crumb_error *err) {
    CRUMB_TRY(make_weights(s, err));
    s->n_bytes = s->n_bytes / s->m * s->n; /* rows of the table, not all */
    for (uint32_t i = 0; i < s->n; i++) s->rows[i].token = (int32_t)(crumb_random_u64(&s->seed) % s->m);
    crumb_op *op = add_op(s, CRUMB_OP_EMBED);
    op->embed.table = &s->w;
    op->embed.scale = 1.5f;
    op->embed.out = add_value(s, s->k);
    add_result(s, op->embed.out);
    return CRUMB_OK;
}

static crumb_status make_norm_weight(kernels_scene *s, uint32_t width, crumb_error *err) {
    CRUMB_TRY(random_floats(s, width, 1, &s->norm_weight, err));
    for (uint32_t i = 0; i < width; i++) s->norm_weight[i] += 1;
    return CRUMB_OK;
}

static void append_norm(kernels_scene *s, crumb_value x, crumb_value out, uint32_t head_dim) {
    crumb_op *op = add_op(s, CRUMB_OP_RMS_NORM);
    op->norm.x = x;
    op->norm.out = out;
    op->norm.weight = s->norm_weight;
    op->norm.eps = 1e-5f;
    op->norm.head_dim = head_dim;
}

static crumb_status add_norm(kernels_scene *s, crumb_value x, uint32_t head_dim, crumb_value *out, crumb_error *err) {
    CRUMB_TRY(make_norm_weight(s, head_dim ? head_dim : s->k, err));
    *out = add_value(s, s->k);
    append_norm(s, x, *out, head_dim);
    return CRUMB_OK;
}

static crumb_status add_norm_alone(kernels_scene *s, crumb_error *err) {
    const uint32_t head = s->form->head_dim;
    crumb_value x, out;
    if (head) s->k = s->k < head ? head : s->k / head * head; /* whole heads */
    CRUMB_TRY(add_input(s, s->k, 3, &x, err));
    CRUMB_TRY(add_norm(s, x, head, &out, err));
    add_result(s, out);
    return CRUMB_OK;
}

/* Trained ternary weights have an activation scale per row, others one per group. */
static crumb_status add_linear(kernels_scene *s, crumb_error *err) {
    const kernels_form *f = s->form;
    const bool quantizes = strcmp(f->op, "quantize") == 0;
    crumb_value x, add;
    CRUMB_TRY(make_weights(s, err));
    CRUMB_TRY(random_floats(s, s->m, 1, &s->bias, err));
    CRUMB_TRY(add_input(s, s->k, f->norm ? 3 : 1, &x, err));
    CRUMB_TRY(add_input(s, s->m, 1, &add, err));
    if (f->norm) CRUMB_TRY(add_norm(s, x, 0, &x, err));
    crumb_op *op = add_op(s, CRUMB_OP_LINEAR);
    op->linear.x = x;
    op->linear.add = add;
    op->linear.n_parts = 1;
    op->linear.act = !quantizes ? CRUMB_ACT_F32 : f->group ? CRUMB_ACT_GROUP : CRUMB_ACT_ROW;
    op->linear.act_group = f->group;
    op->linear.part[0] =
        (crumb_linear_part){.w = &s->w, .m1 = s->m, .out = add_value(s, s->m), .out_scale = 0.7f, .bias = s->bias};
    add_result(s, op->linear.part[0].out);
    s->n_flops = 2.0 * s->m * s->k * s->n;
    return CRUMB_OK;
}

/* The rows are of two sequences: one has m positions in the cache, the other a third of them. */
static void place_rows(kernels_scene *s) {
    const uint32_t first = s->n - s->n / 3;
    s->past[0] = s->m;
    s->past[1] = s->m / 3;
    for (uint32_t i = 0; i < s->n; i++) {
        s->rows[i].sequence = i >= first;
        s->rows[i].position = i < first ? s->past[0] + i : s->past[1] + i - first;
        s->n_flops += 4.0 * s->k * (s->rows[i].position + 1);
    }
}

/* Keys and values are read once for all rows of a sequence. */
static void count_cache(kernels_scene *s) {
    const uint64_t page = crumb_kv_page_bytes(s->kv.type, s->kv.head_dim);
    for (int i = 0; i < N_SEQUENCES && (i == 0 || s->n > 2); i++)
        s->n_bytes += 2 * page * s->kv.n_head_kv * crumb_div_up(s->past[i] + s->n, CRUMB_KV_PAGE);
}

/* Of queries and of keys, in place. */
static crumb_status add_head_norms(kernels_scene *s, crumb_value q, crumb_value k, crumb_error *err) {
    CRUMB_TRY(make_norm_weight(s, s->form->head_dim, err));
    append_norm(s, q, q, s->form->head_dim);
    append_norm(s, k, k, s->form->head_dim);
    return CRUMB_OK;
}

static crumb_status add_rope(kernels_scene *s, crumb_value q, crumb_value k, uint32_t n_head, crumb_error *err) {
    const kernels_form *f = s->form;
    const uint32_t dims = f->head_dim / 4 * 2;
    CRUMB_TRY(random_floats(s, dims / 2, 0, &s->inv_freq, err));
    for (uint32_t i = 0; i < dims / 2; i++) s->inv_freq[i] = powf(10000, -2.0f * (float)i / (float)dims);
    crumb_op *op = add_op(s, CRUMB_OP_ROPE);
    op->rope.q = q;
    op->rope.k = k;
    op->rope.n_head = n_head;
    op->rope.n_head_kv = n_head / f->sharing;
    op->rope.head_dim = f->head_dim;
    op->rope.dims = dims;
    op->rope.pairing = f->pairing;
    op->rope.inv_freq = s->inv_freq;
    op->rope.magnitude = 1;
    add_result(s, q);
    return CRUMB_OK;
}

static crumb_status add_attention(kernels_scene *s, bool rope, crumb_error *err) {
    const kernels_form *f = s->form;
    const uint32_t groups = s->k / (f->head_dim * f->sharing), n_head = (groups ? groups : 1) * f->sharing;
    const uint32_t width = n_head / f->sharing * f->head_dim;
    crumb_value q, k, v;
    s->k = n_head * f->head_dim;
    place_rows(s);
    CRUMB_TRY(add_input(s, s->k, 1, &q, err));
    CRUMB_TRY(add_input(s, width, 1, &k, err));
    CRUMB_TRY(add_input(s, width, 1, &v, err));
    if (f->norm) CRUMB_TRY(add_head_norms(s, q, k, err));
    if (rope) CRUMB_TRY(add_rope(s, q, k, n_head, err));
    crumb_op *op = add_op(s, CRUMB_OP_ATTENTION);
    op->attention.q = q;
    op->attention.k = k;
    op->attention.v = v;
    op->attention.out = add_value(s, s->k);
    op->attention.n_head = n_head;
    op->attention.n_head_kv = n_head / f->sharing;
    op->attention.head_dim = f->head_dim;
    op->attention.scale = 4 / sqrtf((float)f->head_dim);
    s->kv = (crumb_kv_params){.n_layers = 1,
                              .n_sequences = N_SEQUENCES,
                              .n_ctx = (uint32_t)crumb_round_up(s->m + s->n, CRUMB_KV_PAGE),
                              .n_head_kv = n_head / f->sharing,
                              .head_dim = f->head_dim,
                              .type = f->kv};
    add_result(s, op->attention.out);
    if (!rope) count_cache(s);
    if (rope) s->n_flops = 0;
    return CRUMB_OK;
}

static crumb_status add_gated(kernels_scene *s, crumb_error *err) {
    crumb_op *op;
    crumb_value gate, up;
    CRUMB_TRY(add_input(s, s->k, 9, &gate, err));
    CRUMB_TRY(add_input(s, s->k, 9, &up, err));
    op = add_op(s, CRUMB_OP_GATED);
    op->gated.gate = gate;
    op->gated.up = up;
    op->gated.out = add_value(s, s->k);
    op->gated.fn = s->form->fn;
    add_result(s, op->gated.out);
    return CRUMB_OK;
}

static crumb_status add_select(kernels_scene *s, crumb_error *err) {
    crumb_value x;
    CRUMB_TRY(add_input(s, s->k, 1, &x, err));
    for (uint32_t i = 0; i < s->n; i++) s->rows[i].wants_output = i == 0 || crumb_random_u64(&s->seed) % 2;
    crumb_op *op = add_op(s, CRUMB_OP_SELECT);
    op->select.x = x;
    op->select.out = add_value(s, s->k);
    add_result(s, op->select.out);
    return CRUMB_OK;
}

/* Values of which many are equal, infinite ones, and some that are none. */
static crumb_status add_top(kernels_scene *s, crumb_error *err) {
    crumb_value x;
    CRUMB_TRY(add_input(s, s->m, 1, &x, err));
    for (uint64_t i = 0; i < (uint64_t)s->n * s->m; i++) {
        float *v = &s->inputs[x][i];
        *v = rintf(*v * 2048);
        if (i % 997 == 3) *v = i % 2 ? NAN : -INFINITY;
        if (i % 4999 == 7) *v = INFINITY;
    }
    crumb_op *op = add_op(s, CRUMB_OP_TOP);
    op->top.x = x;
    op->top.k = s->m < TOP_K ? s->m : TOP_K;
    op->top.out = add_value(s, 2 * op->top.k);
    add_result(s, op->top.out);
    return CRUMB_OK;
}

/* Two halves make a whole. */
static crumb_status add_place(kernels_scene *s, crumb_error *err) {
    crumb_value halves[2];
    for (int i = 0; i < 2; i++) CRUMB_TRY(add_input(s, s->k, 1, &halves[i], err));
    const crumb_value out = add_value(s, 2 * s->k);
    for (uint32_t i = 0; i < 2; i++) {
        crumb_op *op = add_op(s, CRUMB_OP_PLACE);
        op->place.x = halves[i];
        op->place.out = out;
        op->place.column = i * s->k;
    }
    add_result(s, out);
    return CRUMB_OK;
}

/* All columns, in any order. */
static crumb_status add_gather(kernels_scene *s, crumb_error *err) {
    crumb_value x;
    void *memory;
    CRUMB_TRY(add_input(s, s->k, 1, &x, err));
    CRUMB_TRY(crumb_calloc(s->k, sizeof *s->columns, "an order of columns", &memory, err));
    s->columns = memory;
    for (uint32_t i = 0; i < s->k; i++) s->columns[i] = i;
    for (uint32_t i = 1; i < s->k; i++) {
        const uint32_t other = (uint32_t)(crumb_random_u64(&s->seed) % (i + 1)), kept = s->columns[i];
        s->columns[i] = s->columns[other];
        s->columns[other] = kept;
    }
    crumb_op *op = add_op(s, CRUMB_OP_GATHER);
    op->gather.x = x;
    op->gather.from = s->columns;
    op->gather.out = add_value(s, s->k);
    add_result(s, op->gather.out);
    return CRUMB_OK;
}

static crumb_status add_ops(kernels_scene *s, crumb_op_kind kind, crumb_error *err) {
    switch (kind) {
    case CRUMB_OP_EMBED: return add_embed(s, err);
    case CRUMB_OP_RMS_NORM: return add_norm_alone(s, err);
    case CRUMB_OP_LINEAR: return add_linear(s, err);
    case CRUMB_OP_ROPE: return add_attention(s, true, err);
    case CRUMB_OP_ATTENTION: return add_attention(s, false, err);
    case CRUMB_OP_GATED: return add_gated(s, err);
    case CRUMB_OP_SELECT: return add_select(s, err);
    case CRUMB_OP_TOP: return add_top(s, err);
    case CRUMB_OP_PLACE: return add_place(s, err);
    case CRUMB_OP_GATHER: return add_gather(s, err);
    case CRUMB_OP_INPUT:
    case CRUMB_OP_SIGNAL:
    case CRUMB_OP_WAIT: break;
    }
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "no kernel is tested as part of this op");
}

crumb_status kernels_scene_create(const kernels_form *form, crumb_op_kind kind, uint32_t m, uint32_t k, uint32_t n,
                                  uint64_t seed, kernels_scene *out, crumb_error *err) {
    void *memory;
    *out = (kernels_scene){.form = form, .m = m, .k = k, .n = n, .seed = seed};
    CRUMB_TRY(crumb_calloc(n, sizeof *out->rows, "rows", &memory, err));
    out->rows = memory;
    for (uint32_t i = 0; i < n; i++) out->rows[i] = (crumb_row){.position = i};
    return add_ops(out, kind, err);
}

void kernels_scene_destroy(kernels_scene *scene) {
    for (size_t i = 0; i < SCENE_MAX_VALUES; i++) free(scene->inputs[i]);
    if (scene->form && scene->form->bits) crumb_trial_destroy(&scene->trial);
    free(scene->rows);
    free(scene->dense);
    free(scene->bias);
    free(scene->norm_weight);
    free(scene->inv_freq);
    free(scene->columns);
    *scene = (kernels_scene){.form = NULL};
}
