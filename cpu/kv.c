/* The KV cache of the CPU backend, and moving parts of it (how its blocks lie: cpu/attention.h). */
#include "cpu/plan.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/kernel/kv.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of keys (or of values) in a cache, and of one head's. */
static crumb_status kv_bytes(const crumb_kv_params *p, uint64_t block_bytes, uint64_t *head_bytes, uint64_t *out,
                             crumb_error *err) {
    uint64_t n_blocks = crumb_div_up(p->n_ctx, CRUMB_KEY_BLOCK), n;
    if (!p->n_layers || !p->n_sequences || !p->n_ctx || !p->n_head_kv || !p->head_dim)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "a KV cache of %u layers, %u sequences, %u positions, %u heads of %u", p->n_layers,
                          p->n_sequences, p->n_ctx, p->n_head_kv, p->head_dim);
    bool fits = crumb_mul_u64(n_blocks, block_bytes, head_bytes) && crumb_mul_u64(*head_bytes, p->n_head_kv, &n) &&
                crumb_mul_u64(n, p->n_sequences, &n) && crumb_mul_u64(n, p->n_layers, &n) && n < SIZE_MAX / 8;
    if (!fits)
        return crumb_fail(err, CRUMB_ERR_MEMORY, "a KV cache for %u positions is too large: use a smaller context",
                          p->n_ctx);
    *out = n;
    return CRUMB_OK;
}

void crumb_cpu_kv_destroy(crumb_device *d, crumb_kv_cache *kv) {
    (void)d;
    if (!kv) return;
    crumb_pages_free(kv->memory, kv->n_bytes);
    free(kv->layers);
    free(kv);
}

/* The memory is zeroed and untouched: positions that are never reached cost no memory. */
static crumb_status take_memory(crumb_kv_cache *kv, uint64_t n_bytes, crumb_error *err) {
    const crumb_kv_params *p = &kv->params;
    void *memory;
    CRUMB_TRY(crumb_calloc(p->n_layers, sizeof *kv->layers, "the KV cache", (void **)&kv->layers, err));
    if (!p->pages) {
        CRUMB_TRY(crumb_pages_alloc(2 * n_bytes, "the KV cache", &memory, err));
        kv->memory = memory;
        kv->n_bytes = 2 * n_bytes;
    }
    for (uint32_t i = 0; i < p->n_layers; i++)
        for (int values = 0; values < 2; values++)
            kv->layers[i][values] = p->pages
                                        ? p->pages[i][values]
                                        : kv->memory + (size_t)values * n_bytes + (size_t)i * (n_bytes / p->n_layers);
    kv->params.pages = NULL; /* the caller's */
    return CRUMB_OK;
}

crumb_status crumb_cpu_kv_create(crumb_device *d, const crumb_kv_params *params, crumb_kv_cache **out,
                                 uint64_t *n_bytes, crumb_error *err) {
    *out = NULL;
    if (params->type != CRUMB_KV_F16 && params->type != CRUMB_KV_Q8)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a KV cache of type %d: there are f16 and q8", (int)params->type);
    const crumb_kv_ops *ops = crumb_kv_ops_select(params->type, d->isa);
    uint64_t block_bytes = ops->block_bytes(params->head_dim), head_bytes = 0, n = 0;
    CRUMB_TRY(kv_bytes(params, block_bytes, &head_bytes, &n, err));
    void *memory;
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "the KV cache", &memory, err));
    crumb_kv_cache *kv = memory;
    kv->params = *params;
    kv->ops = ops;
    kv->block_bytes = (size_t)block_bytes;
    kv->head_bytes = (size_t)head_bytes;
    const crumb_status status = take_memory(kv, n, err);
    if (status != CRUMB_OK) {
        crumb_cpu_kv_destroy(d, kv);
        return status;
    }
    *out = kv;
    *n_bytes = kv->n_bytes;
    return CRUMB_OK;
}

/* ---- moving parts of it ------------------------------------------------------------------------------------ */

static void copy_range(const crumb_kv_cache *kv, const crumb_kv_range *r, bool write, char *bytes) {
    const size_t n = (size_t)crumb_kv_run_bytes(&kv->params, r), first = r->position / CRUMB_KEY_BLOCK;
    for (uint32_t layer = r->layer; layer < r->layer + r->n_layers; layer++)
        for (int values = 0; values < 2; values++)
            for (uint32_t head = r->head; head < r->head + r->n_heads; head++, bytes += n) {
                char *pages =
                    kv->layers[layer][values] + crumb_kv_head_offset(kv, r->sequence, head) + first * kv->block_bytes;
                memcpy(write ? pages : bytes, write ? bytes : pages, n);
            }
}

crumb_status crumb_cpu_kv_read(crumb_device *d, const crumb_kv_cache *kv, const crumb_kv_range *range, void *to,
                               crumb_error *err) {
    (void)d;
    CRUMB_TRY(crumb_kv_range_check(&kv->params, range, err));
    copy_range(kv, range, false, to);
    return CRUMB_OK;
}

crumb_status crumb_cpu_kv_write(crumb_device *d, crumb_kv_cache *kv, const crumb_kv_range *range, const void *from,
                                crumb_error *err) {
    (void)d;
    CRUMB_TRY(crumb_kv_range_check(&kv->params, range, err));
    copy_range(kv, range, true, (char *)(uintptr_t)from);
    return CRUMB_OK;
}
