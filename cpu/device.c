/* The CPU as a device: tier and threads, memory for weights, the KV cache. */
#include "cpu/plan.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/kernel/energy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct crumb_buffer {
    void *data;
    uint64_t n_bytes;
};

/* "cpu", "cpu:avx2", or NULL: the best tier of this machine. */
static crumb_status choose_isa(const char *target, crumb_isa *out, crumb_error *err) {
    *out = crumb_isa_best();
    if (!target || strcmp(target, "cpu") == 0 || strcmp(target, "auto") == 0) return CRUMB_OK;
    if (strncmp(target, "cpu:", 4) != 0)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "target '%s' is not one of the CPU's: \"cpu\" or \"cpu:TIER\"",
                          target);
    if (!crumb_isa_parse(target + 4, out))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "target '%s': no such tier; there are scalar, avx2, avxvnni, avxvnniint8, avx512ymm, "
                          "avx512vnni and avx512vbmi",
                          target);
    if (!crumb_isa_available(*out))
        return crumb_fail(err, CRUMB_ERR_DEVICE, "target '%s': this processor cannot run it; its best is %s", target,
                          crumb_isa_name(crumb_isa_best()));
    return CRUMB_OK;
}

static size_t device_list(crumb_device_listing *out, size_t capacity, char *note, size_t note_size) {
    int cpus[1024];
    if (note_size) note[0] = 0;
    if (capacity == 0) return 0;
    *out = (crumb_device_listing){.name = "cpu",
                                  .kind = CRUMB_DEVICE_PROCESSOR,
                                  .units = "cores",
                                  .n_units = (uint32_t)crumb_cpu_physical(cpus, 1024),
                                  .memory_bytes = crumb_memory_total_bytes()};
    crumb_cpu_model_name(out->detail, sizeof out->detail);
    snprintf(out->target, sizeof out->target, "%s", crumb_isa_name(crumb_isa_best()));
    return 1;
}

static void device_close(crumb_device *d) {
    if (!d) return;
    crumb_pool_destroy(d->pool);
    free(d);
}

/* Where nobody has measured: two channels of DDR5-5200. */
enum { USUAL_GB_S = 64, USUAL_GHZ = 4 };

uint32_t crumb_cpu_device_index_bits(const crumb_device *d, crumb_isa isa) {
    const double gb_s = d->cores.memory_gb_s > 0 ? d->cores.memory_gb_s : USUAL_GB_S;
    const double ghz = d->cores.clock_ghz > 0 ? d->cores.clock_ghz : USUAL_GHZ;
    return crumb_cpu_index_bits(isa, gb_s / crumb_pool_threads(d->pool) / ghz);
}

/* Which cores the threads are pinned to, and how ternary weights lie for them. */
static void log_cores(const crumb_device *d) {
    const int n = crumb_pool_threads(d->pool);
    char line[320];
    size_t used = (size_t)snprintf(line, sizeof line, "cpu: %d threads", n);
    for (int i = 0; i < n && crumb_pool_cpu(d->pool, i) >= 0 && used < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s %d", i ? "," : " on processors",
                                 crumb_pool_cpu(d->pool, i));
    const uint32_t indexed = crumb_cpu_device_index_bits(d, d->isa) >> 2 & 1;
    if (used < sizeof line)
        snprintf(line + used, sizeof line - used, "; ternary weights with a scale per row at %s bits",
                 indexed ? "1.6" : "2");
    if (d->log) d->log(d->log_user, CRUMB_LOG_DEBUG, line);
}

void crumb_cpu_device_set_tier(crumb_device *d, crumb_isa isa) {
    d->isa = isa;
    d->ops = crumb_float_ops_select(isa);
    d->quantize = crumb_cpu_quantize_select(isa);
    d->interleave = crumb_cpu_interleave_select(isa);
}

static crumb_status device_open(const crumb_device_params *params, crumb_device **out, crumb_error *err) {
    *out = NULL;
    crumb_isa isa;
    crumb_cores_wanted cores;
    crumb_way_wanted way;
    CRUMB_TRY(choose_isa(params->target, &isa, err));
    if (!crumb_cores_wanted_parse(params->cpu_kind, &cores))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "cores of kind '%s': there are auto, p, e and all",
                          params->cpu_kind);
    if (!crumb_way_wanted_parse(params->balance, &way))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "balance '%s': there are auto, split and chunks", params->balance);
    void *memory;
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "the CPU device", &memory, err));
    crumb_device *d = memory;
    crumb_cpu_device_set_tier(d, isa);
    d->way = way;
    d->cores = params->cores;
    d->tuning = params->tuning;
    d->log = params->log;
    d->log_user = params->log_user;
    crumb_cpu_model_name(d->detail, sizeof d->detail);
    crumb_status status = crumb_pool_create(params->n_threads, cores, &d->pool, err);
    if (status != CRUMB_OK) {
        device_close(d);
        return status;
    }
    log_cores(d);
    *out = d;
    return CRUMB_OK;
}

static void device_get_info(const crumb_device *d, crumb_device_info *out) {
    *out = (crumb_device_info){.name = "cpu",
                               .n_threads = crumb_pool_threads(d->pool),
                               .host_memory = true,
                               .shared_weight_bytes = UINT64_MAX,
                               .index_bits = crumb_cpu_device_index_bits(d, d->isa)};
    snprintf(out->detail, sizeof out->detail, "%s", d->detail);
    snprintf(out->target, sizeof out->target, "%s", crumb_isa_name(d->isa));
    out->memory_bytes = crumb_memory_total_bytes();
    out->memory_free_bytes = crumb_memory_available_bytes();
}

static crumb_status buffer_create(crumb_device *d, uint64_t n_bytes, const char *what, crumb_buffer **out, void **host,
                                  crumb_error *err) {
    (void)d;
    *out = NULL;
    *host = NULL;
    void *memory;
    CRUMB_TRY(crumb_calloc(1, sizeof **out, what, &memory, err));
    crumb_buffer *b = memory;
    b->n_bytes = n_bytes;
    crumb_status status = crumb_pages_alloc(n_bytes, what, &b->data, err);
    if (status != CRUMB_OK) {
        free(b);
        return status;
    }
    *out = b;
    *host = b->data;
    return CRUMB_OK;
}

static crumb_status shared_create(crumb_device *d, uint64_t n_bytes, void **out, crumb_error *err) {
    (void)d;
    return crumb_pages_alloc(n_bytes, "what devices share", out, err);
}

static void shared_destroy(crumb_device *d, void *shared, uint64_t n_bytes) {
    (void)d;
    if (shared) crumb_pages_free(shared, n_bytes);
}

/* Kernels read what the host writes. */
static crumb_status buffer_commit(crumb_device *d, crumb_buffer *b, uint64_t offset, uint64_t n_bytes, bool kept,
                                  crumb_error *err) {
    (void)d;
    (void)kept;
    if (offset <= b->n_bytes && n_bytes <= b->n_bytes - offset) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "bytes %llu to %llu of a buffer of %llu", (unsigned long long)offset,
                      (unsigned long long)(offset + n_bytes), (unsigned long long)b->n_bytes);
}

static crumb_status buffer_read(crumb_device *d, const void *host, uint64_t n_bytes, void *to, crumb_error *err) {
    (void)d;
    (void)err;
    memcpy(to, host, (size_t)n_bytes);
    return CRUMB_OK;
}

static void buffer_destroy(crumb_device *d, crumb_buffer *b) {
    (void)d;
    if (!b) return;
    crumb_pages_free(b->data, b->n_bytes);
    free(b);
}

static void sense(crumb_device *d, const char *name, crumb_device_sensors *out) {
    (void)d, (void)name;
    *out = (crumb_device_sensors){0};
    crumb_energy_read_rapl("", out);
}

const crumb_backend crumb_backend_cpu = {
    .name = "cpu",
    .device = {.list = device_list,
               .open = device_open,
               .close = device_close,
               .get_info = device_get_info,
               .buffer_create = buffer_create,
               .buffer_commit = buffer_commit,
               .buffer_read = buffer_read,
               .buffer_destroy = buffer_destroy,
               .kv_create = crumb_cpu_kv_create,
               .kv_destroy = crumb_cpu_kv_destroy,
               .kv_read = crumb_cpu_kv_read,
               .kv_write = crumb_cpu_kv_write,
               .shared_create = shared_create,
               .shared_destroy = shared_destroy,
               .sense = sense},
    .plan = {.record = crumb_cpu_plan_record,
             .write = crumb_cpu_plan_write,
             .replay = crumb_cpu_plan_replay,
             .read = crumb_cpu_plan_read,
             .scratch_bytes = crumb_cpu_plan_scratch_bytes,
             .measure = crumb_cpu_plan_measure,
             .destroy = crumb_cpu_plan_destroy},
};
