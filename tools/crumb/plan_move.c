/* How fast keys and values move from a GPU's cache to the processor's, by the entries that the engine moves them with.
 */
#include "tools/crumb/plan.h"

#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/kernel/kv.h"

#include <stdlib.h>

enum { ROUNDS = 7, FEW = 64, MANY = 2048 }; /* positions */

typedef struct side {
    const crumb_backend *backend;
    crumb_device *device;
    crumb_kv_cache *kv;
} side;

/* A layer of Llama3-8B. */
static const crumb_kv_params params = {
    .n_layers = 1, .n_sequences = 1, .n_ctx = MANY, .n_head_kv = 8, .head_dim = 128, .type = CRUMB_KV_F16};

static crumb_status open_side(const crumb_backend *backend, const char *name, side *out, crumb_error *err) {
    uint64_t n_bytes;
    out->backend = backend;
    CRUMB_TRY(backend->device.open(&(crumb_device_params){.device = name}, &out->device, err));
    return backend->device.kv_create(out->device, &params, &out->kv, &n_bytes, err);
}

static void close_side(side *s) {
    if (s->kv) s->backend->device.kv_destroy(s->device, s->kv);
    if (s->device) s->backend->device.close(s->device);
}

static crumb_status time_move(const side *from, const side *to, uint32_t n_positions, void *pages, double *ns,
                              crumb_error *err) {
    const crumb_kv_range range = {.n_layers = 1, .n_heads = params.n_head_kv, .n_positions = n_positions};
    double times[ROUNDS];
    CRUMB_TRY(
        from->backend->device.kv_write(from->device, from->kv, &range, pages, err)); /* there is something to move */
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t begin = crumb_now_ns();
        CRUMB_TRY(from->backend->device.kv_read(from->device, from->kv, &range, pages, err));
        CRUMB_TRY(to->backend->device.kv_write(to->device, to->kv, &range, pages, err));
        times[i] = (double)(crumb_now_ns() - begin);
    }
    *ns = cli_median(times, ROUNDS);
    return CRUMB_OK;
}

static crumb_status measure(const side *gpu, const side *cpu, plan_move *out, crumb_error *err) {
    const crumb_kv_range all = {.n_layers = 1, .n_heads = params.n_head_kv, .n_positions = MANY};
    const crumb_kv_range some = {.n_layers = 1, .n_heads = params.n_head_kv, .n_positions = FEW};
    const uint64_t all_bytes = crumb_kv_range_bytes(&params, &all), some_bytes = crumb_kv_range_bytes(&params, &some);
    double all_ns = 0, some_ns = 0;
    void *pages;
    CRUMB_TRY(crumb_calloc(1, all_bytes, "keys and values", &pages, err));
    crumb_status status = time_move(gpu, cpu, MANY, pages, &all_ns, err);
    if (status == CRUMB_OK) status = time_move(gpu, cpu, FEW, pages, &some_ns, err);
    free(pages);
    if (status != CRUMB_OK) return status;
    if (!(all_ns > some_ns)) return crumb_fail(err, CRUMB_ERR_DEVICE, "moving keys and values cannot be timed");
    out->gb_s = (double)(all_bytes - some_bytes) / (all_ns - some_ns);
    out->us = some_ns * 1e-3 - (double)some_bytes / out->gb_s * 1e-3;
    if (out->us < 0) out->us = 0;
    return CRUMB_OK;
}

crumb_status plan_measure_move(const crumb_backend *backend, const char *name, plan_move *out, crumb_error *err) {
    side gpu = {.device = NULL}, cpu = {.device = NULL};
    crumb_device_info info = {.shared_weight_bytes = 0};
    *out = (plan_move){0, 0};
    crumb_status status = open_side(backend, name, &gpu, err);
    if (status == CRUMB_OK) backend->device.get_info(gpu.device, &info);
    if (status == CRUMB_OK && !info.shared_weight_bytes) status = open_side(&crumb_backend_cpu, NULL, &cpu, err);
    if (status == CRUMB_OK && !info.shared_weight_bytes) status = measure(&gpu, &cpu, out, err);
    close_side(&gpu);
    close_side(&cpu);
    return status;
}
