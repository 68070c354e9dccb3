#include "tests/kernels/rig.h"

#include "host/engine/modules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

crumb_error rig_error;

void rig_ok(crumb_status status) {
    if (status != CRUMB_OK) fail_msg("%s", rig_error.message);
}

static crumb_status find_device(const char *name, const char *target, const crumb_backend **out) {
    crumb_device *device;
    const crumb_device_params params = {.target = target, .n_threads = 1};
    const crumb_module *module;
    *out = &crumb_backend_cpu;
    if (strcmp(name, "cpu") != 0) {
        CRUMB_TRY(crumb_engine_module_load(name, &module, &rig_error));
        *out = module->backend;
    }
    CRUMB_TRY((*out)->device.open(&params, &device, &rig_error));
    (*out)->device.close(device);
    return CRUMB_OK;
}

bool rig_find_device(const char *name, const char *target, const crumb_backend **out) {
    if (find_device(name, target, out) == CRUMB_OK) return true;
    fprintf(stderr, "%s\n", rig_error.message);
    return false;
}

crumb_plan_desc rig_describe(const rig *r, uint32_t max_rows) {
    return (crumb_plan_desc){.ops = r->model.ops,
                             .n_ops = r->model.n_ops,
                             .values = r->model.values,
                             .n_values = r->model.n_values,
                             .max_rows = max_rows,
                             .max_outputs = max_rows,
                             .kv = r->kv};
}

void rig_open(rig *r, const rig_params *params) {
    const crumb_device_params device = {
        .target = params->target, .n_threads = params->n_threads, .balance = params->balance};
    uint64_t n_bytes;
    *r = (rig){.backend = params->backend};
    mini_create(&r->model, params->act, params->f32_v ? CRUMB_TYPE_F32 : CRUMB_TYPE_BF16, 7, RIG_SEQUENCES, RIG_CTX);
    r->model.kv.type = params->kv;
    rig_ok(r->backend->device.open(&device, &r->device, &rig_error));
    rig_ok(r->backend->device.kv_create(r->device, &r->model.kv, &r->kv, &n_bytes, &rig_error));
    crumb_plan_desc desc = rig_describe(r, params->max_rows);
    rig_ok(r->backend->plan.record(r->device, &desc, &r->plan, &rig_error));
}

void rig_close(rig *r) {
    r->backend->plan.destroy(r->plan);
    r->backend->device.kv_destroy(r->device, r->kv);
    r->backend->device.close(r->device);
    mini_destroy(&r->model);
}

int32_t rig_token(uint32_t sequence, uint32_t position) {
    return (int32_t)((position * 7 + position * position % 11 + sequence * 13) % MINI_VOCAB);
}

void rig_replay(rig *r, const crumb_row *rows, uint32_t n, float *logits) {
    const float *out;
    uint32_t n_out, wanted = 0;
    rig_ok(r->backend->plan.replay(r->plan, rows, n, &rig_error));
    rig_ok(r->backend->plan.read(r->plan, r->model.logits, &out, &n_out, &rig_error));
    for (uint32_t i = 0; i < n; i++) wanted += rows[i].wants_output;
    assert_int_equal(n_out, wanted);
    memcpy(logits, out, (size_t)n_out * MINI_VOCAB * sizeof(float));
}

void rig_feed(const rig_params *params, uint32_t batch, float logits[RIG_LOGITS]) {
    rig r;
    crumb_row rows[RIG_TOKENS];
    rig_open(&r, params);
    for (uint32_t t = 0, n; t < RIG_TOKENS; t += n) {
        n = RIG_TOKENS - t < batch ? RIG_TOKENS - t : batch;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = (crumb_row){.token = rig_token(1, t + i), .sequence = 1, .position = t + i, .wants_output = true};
        rig_replay(&r, rows, n, logits + (size_t)t * MINI_VOCAB);
    }
    rig_close(&r);
}
