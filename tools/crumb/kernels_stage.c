/* Scenes on devices. */
#include "tools/crumb/kernels_scene.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/kernel/kv.h"

#include <stdlib.h>
#include <string.h>

enum { FILL_ROWS = 64, LINE_BYTES = 64 };

/* ---- weights ----------------------------------------------------------------------------------------------- */

static crumb_status put(kernels_stage *stage, const void *from, uint64_t n_bytes, const void **out, crumb_error *err) {
    void *host;
    *out = NULL;
    if (!from || n_bytes == 0) return CRUMB_OK;
    crumb_buffer **buffer = &stage->buffers[stage->n_buffers];
    /* kernels of the CPU read whole lines */
    CRUMB_TRY(stage->backend->device.buffer_create(stage->device, n_bytes + LINE_BYTES, "a trial", buffer, &host, err));
    stage->n_buffers++;
    memcpy(host, from, n_bytes);
    *out = host;
    return stage->backend->device.buffer_commit(stage->device, *buffer, 0, n_bytes + LINE_BYTES, false, err);
}

static crumb_status put_floats(kernels_stage *stage, const float *from, uint64_t n, const float **out,
                               crumb_error *err) {
    const void *memory;
    CRUMB_TRY(put(stage, from, n * sizeof *from, &memory, err));
    *out = memory;
    return CRUMB_OK;
}

static crumb_status put_matrix(kernels_stage *stage, crumb_error *err) {
    const crumb_matrix_bytes n = crumb_matrix_get_bytes(&stage->scene->w);
    stage->w = stage->scene->w;
    CRUMB_TRY(put(stage, stage->w.codes, n.codes, &stage->w.codes, err));
    CRUMB_TRY(put(stage, stage->w.scales, n.scales, &stage->w.scales, err));
    return put(stage, stage->w.mins, n.mins, &stage->w.mins, err);
}

/* Lets an op name the device's memory. */
static crumb_status put_op(kernels_stage *stage, crumb_op *op, crumb_error *err) {
    const kernels_scene *s = stage->scene;
    switch (op->kind) {
    case CRUMB_OP_EMBED:
        CRUMB_TRY(put_matrix(stage, err));
        op->embed.table = &stage->w;
        return CRUMB_OK;
    case CRUMB_OP_LINEAR:
        CRUMB_TRY(put_matrix(stage, err));
        op->linear.part[0].w = &stage->w;
        return put_floats(stage, op->linear.part[0].bias, s->m, &op->linear.part[0].bias, err);
    case CRUMB_OP_RMS_NORM:
        return put_floats(stage, op->norm.weight, op->norm.head_dim ? op->norm.head_dim : s->k, &op->norm.weight, err);
    case CRUMB_OP_ROPE: return put_floats(stage, op->rope.inv_freq, op->rope.dims / 2, &op->rope.inv_freq, err);
    case CRUMB_OP_GATHER: {
        const void *from;
        CRUMB_TRY(put(stage, op->gather.from, s->k * sizeof *op->gather.from, &from, err));
        op->gather.from = from;
        return CRUMB_OK;
    }
    default: return CRUMB_OK;
    }
}

crumb_status kernels_stage_create(const kernels_scene *scene, const crumb_backend *backend, crumb_device *device,
                                  kernels_stage *out, crumb_error *err) {
    uint64_t n_bytes;
    *out = (kernels_stage){.scene = scene, .backend = backend, .device = device};
    memcpy(out->ops, scene->ops, sizeof out->ops);
    for (size_t i = 0; i < scene->n_ops; i++) CRUMB_TRY(put_op(out, &out->ops[i], err));
    return scene->kv.n_layers ? backend->device.kv_create(device, &scene->kv, &out->kv, &n_bytes, err) : CRUMB_OK;
}

void kernels_stage_destroy(kernels_stage *stage) {
    if (!stage->backend) return;
    if (stage->plan) stage->backend->plan.destroy(stage->plan);
    if (stage->kv) stage->backend->device.kv_destroy(stage->device, stage->kv);
    for (size_t i = 0; i < stage->n_buffers; i++)
        stage->backend->device.buffer_destroy(stage->device, stage->buffers[i]);
    *stage = (kernels_stage){.scene = NULL};
}

crumb_plan_desc kernels_stage_desc(const kernels_stage *stage) {
    const kernels_scene *s = stage->scene;
    return (crumb_plan_desc){.ops = stage->ops,
                             .n_ops = s->n_ops,
                             .values = s->values,
                             .n_values = s->n_values,
                             .max_rows = s->n,
                             .max_outputs = s->n,
                             .kv = stage->kv};
}

crumb_status kernels_stage_write(const kernels_stage *stage, crumb_error *err) {
    const kernels_scene *s = stage->scene;
    for (size_t i = 0; i < s->n_values; i++)
        if (s->inputs[i]) CRUMB_TRY(stage->backend->plan.write(stage->plan, (crumb_value)i, s->inputs[i], s->n, err));
    return CRUMB_OK;
}

/* ---- caches ------------------------------------------------------------------------------------------------ */

/* Attention of as few heads as there are, whose results nobody reads: it stores what it is given. */
static crumb_status record_fill(kernels_stage *stage, crumb_plan **out, crumb_error *err) {
    const crumb_kv_params *kv = &stage->scene->kv;
    const uint32_t width = kv->n_head_kv * kv->head_dim;
    crumb_op ops[4];
    crumb_value_info values[4];
    for (uint16_t i = 0; i < 4; i++) values[i] = (crumb_value_info){.width = width, .slot = i};
    for (crumb_value i = 0; i < 3; i++) ops[i] = (crumb_op){.kind = CRUMB_OP_INPUT, .input = {.out = i}};
    ops[3] = (crumb_op){.kind = CRUMB_OP_ATTENTION,
                        .attention = {.q = 0,
                                      .k = 1,
                                      .v = 2,
                                      .out = 3,
                                      .n_head = kv->n_head_kv,
                                      .n_head_kv = kv->n_head_kv,
                                      .head_dim = kv->head_dim,
                                      .scale = 1}};
    const crumb_plan_desc desc = {
        .ops = ops, .n_ops = 4, .values = values, .n_values = 4, .max_rows = FILL_ROWS, .kv = stage->kv};
    return stage->backend->plan.record(stage->device, &desc, out, err);
}

/* Positions [first, first + n) of a sequence. */
static crumb_status fill_rows(const kernels_stage *stage, crumb_plan *plan, uint32_t sequence, uint32_t first,
                              uint32_t n, float *data, uint64_t *seed, crumb_error *err) {
    const size_t n_floats = (size_t)n * stage->scene->kv.n_head_kv * stage->scene->kv.head_dim;
    crumb_row rows[FILL_ROWS];
    for (uint32_t i = 0; i < n; i++) rows[i] = (crumb_row){.sequence = sequence, .position = first + i};
    for (crumb_value v = 0; v < 3; v++) {
        for (size_t i = 0; i < n_floats; i++) data[i] = crumb_random_f32(seed);
        CRUMB_TRY(stage->backend->plan.write(plan, v, data, n, err));
    }
    return stage->backend->plan.replay(plan, rows, n, err);
}

crumb_status kernels_stage_fill(kernels_stage *stage, crumb_error *err) {
    const crumb_kv_params *kv = &stage->scene->kv;
    uint64_t seed = stage->scene->seed + 1;
    void *data = NULL;
    crumb_plan *plan = NULL;
    CRUMB_TRY(crumb_calloc(FILL_ROWS, (uint64_t)kv->n_head_kv * kv->head_dim * sizeof(float), "keys", &data, err));
    crumb_status status = record_fill(stage, &plan, err);
    for (uint32_t s = 0; s < kv->n_sequences; s++)
        for (uint32_t i = 0; i < stage->scene->past[s] && status == CRUMB_OK; i += FILL_ROWS) {
            const uint32_t left = stage->scene->past[s] - i, n = left < FILL_ROWS ? left : FILL_ROWS;
            status = fill_rows(stage, plan, s, i, n, data, &seed, err);
        }
    if (plan) stage->backend->plan.destroy(plan);
    free(data);
    return status;
}

static crumb_status read_cache(const kernels_stage *stage, const crumb_kv_range *range, void **out, uint64_t *n_bytes,
                               crumb_error *err) {
    *n_bytes = crumb_kv_range_bytes(&stage->scene->kv, range);
    CRUMB_TRY(crumb_calloc(*n_bytes, 1, "keys and values", out, err));
    return stage->backend->device.kv_read(stage->device, stage->kv, range, *out, err);
}

static crumb_kv_range whole(const kernels_stage *stage, uint32_t sequence, uint32_t n_positions) {
    return (crumb_kv_range){
        .n_layers = 1, .sequence = sequence, .n_heads = stage->scene->kv.n_head_kv, .n_positions = n_positions};
}

crumb_status kernels_stage_copy_cache(const kernels_stage *from, kernels_stage *to, crumb_error *err) {
    for (uint32_t s = 0; s < from->scene->kv.n_sequences; s++) {
        const crumb_kv_range range = whole(from, s, from->scene->past[s]);
        void *pages = NULL;
        uint64_t n_bytes;
        if (range.n_positions == 0) continue;
        crumb_status status = read_cache(from, &range, &pages, &n_bytes, err);
        if (status == CRUMB_OK) status = to->backend->device.kv_write(to->device, to->kv, &range, pages, err);
        free(pages);
        CRUMB_TRY(status);
    }
    return CRUMB_OK;
}

crumb_status kernels_stage_read_cache(const kernels_stage *stage, void **out, uint64_t *n_bytes, crumb_error *err) {
    const kernels_scene *s = stage->scene;
    const uint32_t n = s->past[0] + s->n - s->n / 3;
    const crumb_kv_range range = whole(stage, 0, n / CRUMB_KV_PAGE * CRUMB_KV_PAGE);
    *out = NULL;
    *n_bytes = 0;
    return range.n_positions ? read_cache(stage, &range, out, n_bytes, err) : CRUMB_OK;
}
