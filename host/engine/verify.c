#include "host/engine/verify.h"

#include "host/engine/shares.h"
#include "host/engine/verify_compare.h"
#include "host/engine/verify_copy.h"

#include "host/base/memory.h"
#include "host/kernel/kv.h"
#include "host/kernel/op.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A device agrees to the bit but for what the last bits of a norm, or of 16-bit floats on matrix instructions
 * (attention, dense weights), make of it within one layer: a code of 127 that becomes its neighbour. Kernels that are
 * wrong are wrong by the size of their results, everywhere or in some outputs: with nothing in its place an output is
 * off by half of what it is held against. */
static const crumb_verify_error allowed = {.whole = 1e-4, .output = 0.1};
/* Where values between ops have 8 bits, and more codes become neighbours. */
static const crumb_verify_error bf16_allowed = {.whole = 1e-2, .output = 0.25};

/* What is run of a layer: a few rows in a plan that may take as many as a prompt's do, so that it has the same kernels;
 * one by itself; and the other plans of a prompt's end, or of several sequences, whose kernels differ by their rows:
 * of each kind of layer once. All but the first stand behind so many keys that a GPU's work-groups divide them, and
 * merge what they have made. */
typedef struct batch {
    uint32_t n, most;
} batch;
static const batch batches[] = {{5, 512}, {1, 1}, {2, 2}, {4, 4}, {8, 8}, {16, 16}};
enum { N_BATCHES = sizeof batches / sizeof *batches, OF_ALL_LAYERS = 2, N_ROWS = 5 + 1 + 2 + 4 + 8 + 16 };
enum { POSITION = 142, N_CTX = 160 };

/* One of the two that are compared. */
typedef struct side {
    const crumb_backend *backend;
    crumb_device *device;
    crumb_kv_params kv_params;
    crumb_kv_cache *kv;
    crumb_op *ops;
    const crumb_value_info *values;
    size_t n_values;
    crumb_plan *plan;
    crumb_share_part part; /* of divided layers: the device's, whose ops and values these are */
    float *shared;         /* where its shared values lie */
} side;

typedef struct verifier {
    const crumb_model *m;
    crumb_kv_type kv_type;
    side gpu, cpu;
    crumb_graph graph; /* of the layer under way; its ops are the device's, unless layers are divided */
    size_t n_ops;      /* of either side */
    uint64_t shared_bytes;
    bool embeds; /* divided: the layer's input is what the CPU would have embedded */
    crumb_verify_copies copies;
    uint64_t *kinds; /* of layers that all batches have run of */
    size_t n_kinds;
    float *x;   /* [N_ROWS][hidden]: the layer's input, as the device has made it, where it has run the one before */
    void *past; /* what lies in a layer's cache before its first row: N_CTX keys and values of all heads */
    crumb_row rows[N_ROWS];
    crumb_verify_error allowed, worst; /* worst: the largest of all layers */
    crumb_error *err;
} verifier;

/* ---- parts of divided layers -------------------------------------------------------------------------------- */

static void drop_plan(side *s) {
    if (s->plan) s->backend->plan.destroy(s->plan);
    s->plan = NULL;
}

static void free_parts(verifier *v) {
    drop_plan(&v->gpu);
    drop_plan(&v->cpu);
    crumb_share_free(&v->gpu.part);
    crumb_share_free(&v->cpu.part);
    if (v->gpu.shared) v->gpu.backend->device.shared_destroy(v->gpu.device, v->gpu.shared, v->shared_bytes);
    if (v->cpu.shared) v->cpu.backend->device.shared_destroy(v->cpu.device, v->cpu.shared, v->shared_bytes);
    v->gpu.shared = v->cpu.shared = NULL;
}

/* What the device computes of a layer, without meeting anyone: the other's columns stay zeros on both sides. */
static crumb_status make_part(verifier *v, side *s, const crumb_share_plan *plan, uint32_t *flags) {
    void *memory;
    crumb_share_part *part = &s->part;
    CRUMB_TRY(s->backend->device.shared_create(s->device, v->shared_bytes, &memory, v->err));
    s->shared = memory;
    const crumb_share_memory at = {.values = s->shared, .flags = flags};
    CRUMB_TRY(crumb_share_make(plan, 0, &at, part, v->err));
    size_t n = 0;
    for (size_t i = 0; i < part->n_ops; i++)
        if (part->ops[i].kind != CRUMB_OP_SIGNAL && part->ops[i].kind != CRUMB_OP_WAIT) part->ops[n++] = part->ops[i];
    part->n_ops = v->n_ops = n;
    s->ops = part->ops;
    s->values = part->values;
    s->n_values = part->n_values;
    return CRUMB_OK;
}

static crumb_status make_parts(verifier *v, crumb_value *out) {
    const crumb_share_plan plan = {.whole = &v->graph,
                                   .result = *out,
                                   .heads = crumb_share_heads(&v->m->net.hparams, v->m->split),
                                   .share = v->m->split,
                                   .max_rows = batches[0].most,
                                   .max_outputs = batches[0].most,
                                   .second_embeds = true};
    crumb_share_part sizes;
    void *flags; /* which nobody raises */
    CRUMB_TRY(crumb_share_make(&plan, 0, NULL, &sizes, v->err));
    const uint64_t flag_bytes = sizes.n_exchanges * 2 * CRUMB_SHARE_FLAG_BYTES;
    v->shared_bytes = sizes.n_floats * sizeof(float);
    crumb_share_free(&sizes);
    CRUMB_TRY(crumb_verify_own(&v->copies, flag_bytes, &flags, v->err));
    v->embeds = v->graph.ops[0].kind == CRUMB_OP_EMBED;
    CRUMB_TRY(make_part(v, &v->gpu, &plan, flags));
    CRUMB_TRY(make_part(v, &v->cpu, &plan, flags));
    *out = v->gpu.part.result;
    return CRUMB_OK;
}

/* Both sides begin with the same; what is embedded is the first of the shared values. */
static void fill_shared(const verifier *v, const side *s, uint32_t row0, uint32_t n) {
    const size_t hidden = v->m->net.hparams.hidden_size;
    if (!s->shared) return;
    memset(s->shared, 0, (size_t)v->shared_bytes);
    if (v->embeds) memcpy(s->shared, v->x + row0 * hidden, n * hidden * sizeof *v->x);
}

/* ---- running a layer on both ------------------------------------------------------------------------------- */

/* Batch b's rows of v->x and v->rows. */
static uint32_t first_row(const batch *b) {
    uint32_t row0 = 0;
    for (const batch *before = batches; before < b; before++) row0 += before->n;
    return row0;
}

/* A batch through the first n_ops of the layer. */
static crumb_status run(verifier *v, side *s, size_t n_ops, const batch *b) {
    const uint32_t row0 = first_row(b), n = b->n;
    crumb_plan_desc desc = {.ops = s->ops,
                            .n_ops = n_ops,
                            .values = s->values,
                            .n_values = s->n_values,
                            .max_rows = s == &v->gpu ? b->most : n,
                            .max_outputs = n,
                            .kv = s->kv};
    const size_t hidden = v->m->net.hparams.hidden_size;
    drop_plan(s);
    CRUMB_TRY(s->backend->plan.record(s->device, &desc, &s->plan, v->err));
    if (s->ops[0].kind == CRUMB_OP_INPUT)
        CRUMB_TRY(s->backend->plan.write(s->plan, s->ops[0].input.out, v->x + row0 * hidden, n, v->err));
    fill_shared(v, s, row0, n);
    return s->backend->plan.replay(s->plan, v->rows + row0, n, v->err);
}

/* The error of a value that both plans have kept; given: what it was added to, or NULL; *got: the device's rows. */
static crumb_status compare(verifier *v, crumb_value value, const float *given, crumb_verify_error *error,
                            const float **got) {
    const float *expected;
    uint32_t n_got, n_expected;
    CRUMB_TRY(v->gpu.backend->plan.read(v->gpu.plan, value, got, &n_got, v->err));
    CRUMB_TRY(v->cpu.backend->plan.read(v->cpu.plan, value, &expected, &n_expected, v->err));
    *error = n_got == n_expected ? crumb_verify_compare(*got, expected, given, n_got, v->gpu.values[value].width)
                                 : (crumb_verify_error){INFINITY, INFINITY, 0};
    return CRUMB_OK;
}

static bool is_wrong(const verifier *v, const crumb_verify_error *error) {
    return !(error->whole <= v->allowed.whole && error->output <= v->allowed.output);
}

/* ---- naming what differs ----------------------------------------------------------------------------------- */

static void describe(const crumb_op *op, char *out, size_t size) {
    int length = snprintf(out, size, "%s", crumb_op_name(op->kind));
    if (op->kind != CRUMB_OP_LINEAR) return;
    for (int i = 0; i < op->linear.n_parts && length > 0 && (size_t)length < size; i++) {
        const crumb_matrix *w = op->linear.part[i].w;
        length += snprintf(out + length, size - (size_t)length, "%s%s %u x %u", i ? ", " : " of ",
                           crumb_type_get_info(w->type)->name, w->m, w->k);
    }
}

/* Whether the last of the layer's first n_ops differs; what cannot be read at its end does not. */
static bool op_differs(verifier *v, size_t n_ops, const batch *b) {
    crumb_value values[CRUMB_OP_MAX_VALUES];
    crumb_error none, *err = v->err;
    const size_t n_values = crumb_op_writes(&v->gpu.ops[n_ops - 1], values);
    bool differs = false;
    v->err = &none;
    if (v->gpu.ops[n_ops - 1].kind != CRUMB_OP_INPUT && run(v, &v->gpu, n_ops, b) == CRUMB_OK &&
        run(v, &v->cpu, n_ops, b) == CRUMB_OK)
        for (size_t i = 0; i < n_values && !differs; i++) {
            crumb_verify_error error;
            const float *got;
            differs = compare(v, values[i], NULL, &error, &got) == CRUMB_OK && is_wrong(v, &error);
        }
    v->err = err;
    return differs;
}

static crumb_status fail(verifier *v, uint32_t layer, const batch *b, const crumb_verify_error *error) {
    char where[256] = "", how[96];
    if (!(error->whole <= v->allowed.whole))
        snprintf(how, sizeof how, "by %.2g of its power", error->whole);
    else
        snprintf(how, sizeof how, "in output %u by %.2g of an output's power", error->column, error->output);
    for (size_t i = 1; i <= v->n_ops && !*where; i++)
        if (op_differs(v, i, b)) describe(&v->gpu.ops[i - 1], where, sizeof where);
    return crumb_fail(v->err, CRUMB_ERR_VERIFY,
                      "%s (%s) computes wrongly with its kernels '%s': layer %u differs from the CPU's %s with %u "
                      "row%s%s%s",
                      v->m->units[0].info.name, v->m->units[0].info.detail, v->m->units[0].info.target, layer, how,
                      b->n, b->n == 1 ? "" : "s", *where ? ", first at " : "", where);
}

/* ---- all layers -------------------------------------------------------------------------------------------- */

/* What a layer adds to its rows is what is wrong where one is; but rows that have been rounded to 16 bits are off by a
 * part of themselves. */
static const float *given_of(const verifier *v, uint32_t row0, uint32_t width) {
    const size_t hidden = v->m->net.hparams.hidden_size;
    const bool adds = v->gpu.ops[0].kind == CRUMB_OP_INPUT && width == hidden;
    return adds && !v->m->units[0].info.bf16 ? v->x + row0 * hidden : NULL;
}

static crumb_status verify_rows(verifier *v, uint32_t layer, crumb_value out, const batch *b) {
    const size_t hidden = v->m->net.hparams.hidden_size;
    const uint32_t row0 = first_row(b), width = v->gpu.values[out].width;
    const float *got;
    crumb_verify_error error;
    CRUMB_TRY(run(v, &v->gpu, v->n_ops, b));
    CRUMB_TRY(run(v, &v->cpu, v->n_ops, b));
    CRUMB_TRY(compare(v, out, given_of(v, row0, width), &error, &got));
    if (is_wrong(v, &error)) return fail(v, layer, b, &error);
    if (error.whole > v->worst.whole) v->worst.whole = error.whole;
    if (error.output > v->worst.output) v->worst.output = error.output;
    if (width == hidden) memcpy(v->x + row0 * hidden, got, b->n * hidden * sizeof *got);
    return CRUMB_OK;
}

/* Whether a layer that has the same kernels in all plans has not been run. */
static bool is_new_kind(verifier *v, uint32_t layer) {
    const uint64_t kind = crumb_engine_layer_kind(&v->m->net, layer);
    for (size_t i = 0; i < v->n_kinds; i++)
        if (v->kinds[i] == kind) return false;
    v->kinds[v->n_kinds++] = kind;
    return true;
}

/* The whole layer on both sides. */
static crumb_status take_whole(verifier *v) {
    void *ops;
    CRUMB_TRY(crumb_verify_own(&v->copies, v->graph.n_ops * sizeof *v->cpu.ops, &ops, v->err));
    memcpy(ops, v->graph.ops, v->graph.n_ops * sizeof *v->cpu.ops);
    v->gpu.ops = v->graph.ops;
    v->cpu.ops = ops;
    v->gpu.values = v->cpu.values = v->graph.values;
    v->gpu.n_values = v->cpu.n_values = v->graph.n_values;
    v->n_ops = v->graph.n_ops;
    return CRUMB_OK;
}

static crumb_kv_range range_of(const side *s, uint32_t layer) {
    return (crumb_kv_range){
        .layer = layer, .n_layers = 1, .n_heads = s->kv_params.n_head_kv, .n_positions = s->kv_params.n_ctx};
}

static crumb_status fill_cache(const verifier *v, const side *s, uint32_t layer) {
    const crumb_kv_range range = range_of(s, layer);
    if (layer == s->kv_params.n_layers) return CRUMB_OK; /* the head */
    return s->backend->device.kv_write(s->device, s->kv, &range, v->past, v->err);
}

static crumb_status verify_layer(verifier *v, uint32_t layer) {
    free_parts(v);
    crumb_graph_free(&v->graph);
    crumb_verify_drop_copies(&v->copies);
    crumb_graph_init(&v->graph, CRUMB_ACTIVATION_AUTO, v->err);
    crumb_value out = crumb_network_span(&v->m->net, &v->graph, layer, layer + 1);
    CRUMB_TRY(v->graph.status);
    CRUMB_TRY(v->m->divided ? make_parts(v, &out) : take_whole(v));
    for (size_t i = 0; i < v->n_ops; i++)
        CRUMB_TRY(crumb_verify_copy_weights(&v->copies, v->gpu.backend, v->gpu.device, v->gpu.values, &v->cpu.ops[i],
                                            v->err));
    CRUMB_TRY(fill_cache(v, &v->gpu, layer));
    CRUMB_TRY(fill_cache(v, &v->cpu, layer));
    const size_t n = is_new_kind(v, layer) ? N_BATCHES : OF_ALL_LAYERS;
    for (size_t i = 0; i < n; i++) CRUMB_TRY(verify_rows(v, layer, out, &batches[i]));
    return CRUMB_OK;
}

static crumb_status begin_side(verifier *v, side *s) {
    const crumb_hparams *h = &v->m->net.hparams;
    s->kv_params =
        (crumb_kv_params){.n_layers = h->num_hidden_layers,
                          .n_sequences = 1,
                          .n_ctx = N_CTX,
                          .n_head_kv = v->m->divided && h->num_key_value_heads > 1 ? crumb_share_heads(h, v->m->split)
                                                                                   : h->num_key_value_heads,
                          .head_dim = h->head_dim,
                          .type = v->kv_type};
    uint64_t n_bytes;
    return s->backend->device.kv_create(s->device, &s->kv_params, &s->kv, &n_bytes, v->err);
}

static void end_side(side *s) {
    drop_plan(s);
    if (s->kv) s->backend->device.kv_destroy(s->device, s->kv);
}

static crumb_status make_inputs(verifier *v) {
    const crumb_hparams *h = &v->m->net.hparams;
    void *memory;
    CRUMB_TRY(crumb_calloc(N_ROWS, h->hidden_size * sizeof(float), "checking the device's kernels", &memory, v->err));
    v->x = memory;
    for (size_t i = 0; i < N_ROWS * (size_t)h->hidden_size; i++) v->x[i] = (float)(i * 7919 % 255) / 127 - 1;
    for (const batch *b = batches; b < batches + N_BATCHES; b++)
        for (uint32_t i = 0; i < b->n; i++) {
            const uint32_t row = first_row(b) + i;
            v->rows[row] = (crumb_row){.token = (int32_t)((row * 7919u + 1) % h->vocab_size),
                                       .position = b == batches ? i : POSITION + i,
                                       .wants_output = true};
        }
    CRUMB_TRY(
        crumb_calloc(h->num_hidden_layers + 1, sizeof *v->kinds, "checking the device's kernels", &memory, v->err));
    v->kinds = memory;
    const crumb_kv_range range = range_of(&v->gpu, 0);
    return crumb_engine_make_past(&v->gpu.kv_params, &range, &v->past, v->err);
}

static crumb_status verify_all(verifier *v) {
    const crumb_hparams *h = &v->m->net.hparams;
    const crumb_device_params cpu = {.n_threads = v->m->units[0].info.n_threads};
    CRUMB_TRY(crumb_backend_cpu.device.open(&cpu, &v->cpu.device, v->err));
    CRUMB_TRY(begin_side(v, &v->gpu));
    CRUMB_TRY(begin_side(v, &v->cpu));
    CRUMB_TRY(make_inputs(v));
    for (uint32_t i = 0; i <= h->num_hidden_layers; i++) {
        const uint8_t *unit = v->m->places[i].unit;
        if (unit[CRUMB_PHASE_PREFILL] == 0 || unit[CRUMB_PHASE_DECODE] == 0) CRUMB_TRY(verify_layer(v, i));
    }
    return CRUMB_OK;
}

crumb_status crumb_engine_verify(crumb_model *m, crumb_kv_type kv_type, crumb_error *err) {
    verifier v = {.m = m,
                  .kv_type = kv_type,
                  .gpu = {.backend = m->units[0].backend, .device = m->units[0].device},
                  .cpu = {.backend = &crumb_backend_cpu},
                  .allowed = m->units[0].info.bf16 ? bf16_allowed : allowed,
                  .err = err};
    crumb_status status = verify_all(&v);
    if (status == CRUMB_OK)
        crumb_engine_log(
            m, CRUMB_LOG_INFO,
            "they agree: no layer differs by more than %.1g of its power, of %.0g allowed, and none of its "
            "outputs by more than %.1g, of %.2g",
            v.worst.whole, v.allowed.whole, v.worst.output, v.allowed.output);
    end_side(&v.gpu);
    end_side(&v.cpu);
    free_parts(&v);
    if (v.cpu.device) crumb_backend_cpu.device.close(v.cpu.device);
    crumb_graph_free(&v.graph);
    crumb_verify_free_copies(&v.copies);
    free(v.kinds);
    free(v.x);
    free(v.past);
    return status;
}
