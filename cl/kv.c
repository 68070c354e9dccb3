#include "cl/kv.h"

#include "cl/rendezvous.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/kernel/kv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static crumb_status layer_bytes(const crumb_kv_params *p, uint32_t head_blocks, uint64_t *out, crumb_error *err) {
    uint64_t n;
    bool fits = crumb_mul_u64(head_blocks, crumb_kv_page_bytes(p->type, p->head_dim), &n) &&
                crumb_mul_u64(n, p->n_head_kv, &n) && crumb_mul_u64(n, p->n_sequences, &n) && n < UINT64_MAX / 4;
    *out = fits ? n : 0;
    if (fits && p->n_layers && n) return CRUMB_OK;
    return crumb_fail(err, fits ? CRUMB_ERR_ARGUMENT : CRUMB_ERR_MEMORY,
                      "a KV cache of %u layers, %u sequences, %u positions, %u heads of %u", p->n_layers,
                      p->n_sequences, p->n_ctx, p->n_head_kv, p->head_dim);
}

void crumb_cl_kv_destroy(crumb_device *d, crumb_kv_cache *kv) {
    if (!kv) return;
    for (uint32_t i = 0; kv->keys && kv->values && !kv->lent && i < kv->params.n_layers; i++) {
        crumb_cl_memory_free(d, &kv->keys[i]);
        crumb_cl_memory_free(d, &kv->values[i]);
    }
    for (uint32_t i = 0; i < kv->n_turns; i++) crumb_cl_memory_free(d, &kv->turns[i].table);
    free(kv->keys);
    free(kv->values);
    free(kv);
}

/* Zeros, since pages that move to another device do so whole: what they hold of positions that nobody has reached must
 * not be NaN there. */
static crumb_status allocate_zeros(crumb_device *d, uint64_t n_bytes, crumb_cl_memory *out, crumb_error *err) {
    CRUMB_TRY(crumb_cl_memory_create(d, n_bytes, "the KV cache", out, err));
    const crumb_cl_code code = crumb_cl_driver_zero(d, out);
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, d->label, "clearing the KV cache", code);
}

/* Memory that other devices' caches may be in as well. */
static crumb_status borrow(crumb_device *d, crumb_kv_cache *kv, uint64_t layer_bytes, crumb_error *err) {
    kv->lent = true;
    for (uint32_t i = 0; i < kv->params.n_layers; i++)
        for (int values = 0; values < 2; values++) {
            void *at = kv->params.pages[i][values];
            if (!crumb_cl_shared_has(d, at, layer_bytes))
                return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                                  "keys or values of layer %u lie in memory that %s does not share", i, d->label);
            (values ? kv->values : kv->keys)[i] = (crumb_cl_memory){.usm = at, .n_bytes = layer_bytes};
        }
    kv->params.pages = NULL; /* the caller's */
    return CRUMB_OK;
}

static crumb_status allocate(crumb_device *d, crumb_kv_cache *kv, uint64_t *n_bytes, crumb_error *err) {
    const crumb_kv_params *p = &kv->params;
    uint64_t n;
    kv->head_blocks = (uint32_t)crumb_div_up(p->n_ctx, CRUMB_KV_PAGE);
    CRUMB_TRY(layer_bytes(p, kv->head_blocks, &n, err));
    CRUMB_TRY(crumb_calloc(p->n_layers, sizeof *kv->keys, "the KV cache", (void **)&kv->keys, err));
    CRUMB_TRY(crumb_calloc(p->n_layers, sizeof *kv->values, "the KV cache", (void **)&kv->values, err));
    *n_bytes = 0;
    if (p->pages) return borrow(d, kv, n, err);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        CRUMB_TRY(allocate_zeros(d, n, &kv->keys[i], err));
        CRUMB_TRY(allocate_zeros(d, n, &kv->values[i], err));
    }
    *n_bytes = 2 * n * p->n_layers;
    return CRUMB_OK;
}

crumb_status crumb_cl_kv_create(crumb_device *d, const crumb_kv_params *params, crumb_kv_cache **out, uint64_t *n_bytes,
                                crumb_error *err) {
    void *memory;
    *out = NULL;
    if (params->type != CRUMB_KV_F16 && params->type != CRUMB_KV_Q8)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a KV cache of type %d: there are f16 and q8", (int)params->type);
    if (params->head_dim % 2)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s: heads of %u dimensions, an odd number", d->label,
                          params->head_dim);
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "the KV cache", &memory, err));
    crumb_kv_cache *kv = memory;
    kv->params = *params;
    crumb_status status = allocate(d, kv, n_bytes, err);
    if (status == CRUMB_OK)
        *out = kv;
    else
        crumb_cl_kv_destroy(d, kv);
    return status;
}

/* ---- moving parts of it -------------------------------------------------------------------------------------- */

/* One copy for each layer's and head's run of pages; all are under way before any is waited for. */
static crumb_status move_range(crumb_device *d, const crumb_kv_cache *kv, const crumb_kv_range *r, bool write,
                               char *bytes, crumb_error *err) {
    const uint64_t page_bytes = crumb_kv_page_bytes(kv->params.type, kv->params.head_dim);
    const uint64_t n = crumb_kv_run_bytes(&kv->params, r), first = r->position / CRUMB_KV_PAGE;
    crumb_cl_code code = CRUMB_CL_OK;
    for (uint32_t layer = r->layer; layer < r->layer + r->n_layers; layer++)
        for (int values = 0; values < 2; values++)
            for (uint32_t head = r->head; head < r->head + r->n_heads && code == CRUMB_CL_OK; head++, bytes += n) {
                const crumb_cl_memory *m = values ? &kv->values[layer] : &kv->keys[layer];
                const uint64_t heads = (uint64_t)r->sequence * kv->params.n_head_kv + head;
                const uint64_t offset = (heads * kv->head_blocks + first) * page_bytes;
                code = write ? crumb_cl_driver_write(d, m, offset, bytes, n, false)
                             : crumb_cl_driver_read(d, m, offset, bytes, n, false);
            }
    const crumb_cl_code done = crumb_cl_queue_finish(d, d->queue); /* also where one was refused */
    if (code == CRUMB_CL_OK) code = done;
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, d->label, "moving keys and values", code);
}

/* A device that is stuck may still read and write there. */
static void drop_stage(const crumb_device *d, void *stage) {
    if (!crumb_cl_limit_is_over(&d->limit)) free(stage);
}

crumb_status crumb_cl_kv_read(crumb_device *d, const crumb_kv_cache *kv, const crumb_kv_range *range, void *to,
                              crumb_error *err) {
    const uint64_t n_bytes = crumb_kv_range_bytes(&kv->params, range);
    void *stage;
    CRUMB_TRY(crumb_kv_range_check(&kv->params, range, err));
    CRUMB_TRY(crumb_calloc(1, n_bytes, "keys and values that move", &stage, err));
    const crumb_status status = move_range(d, kv, range, false, stage, err);
    if (status == CRUMB_OK) memcpy(to, stage, (size_t)n_bytes);
    drop_stage(d, stage);
    return status;
}

crumb_status crumb_cl_kv_write(crumb_device *d, crumb_kv_cache *kv, const crumb_kv_range *range, const void *from,
                               crumb_error *err) {
    const uint64_t n_bytes = crumb_kv_range_bytes(&kv->params, range);
    void *stage;
    CRUMB_TRY(crumb_kv_range_check(&kv->params, range, err));
    CRUMB_TRY(crumb_calloc(1, n_bytes, "keys and values that move", &stage, err));
    memcpy(stage, from, (size_t)n_bytes);
    const crumb_status status = move_range(d, kv, range, true, stage, err);
    drop_stage(d, stage);
    return status;
}

/* ---- tables of cosines and sines ----------------------------------------------------------------------------- */

/* Angles in double, as the CPU's: in float, positions of some thousands would lose the low bits of the angle. */
static void fill_turns(float *table, const float *inv_freq, uint32_t half, uint32_t n_ctx, float magnitude) {
    for (uint64_t position = 0; position < n_ctx; position++)
        for (uint32_t i = 0; i < half; i++) {
            double angle = (double)position * (double)inv_freq[i];
            *table++ = (float)(cos(angle) * (double)magnitude);
            *table++ = (float)(sin(angle) * (double)magnitude);
        }
}

static crumb_status make_turns(crumb_device *d, const crumb_kv_cache *kv, crumb_cl_turns *t, crumb_error *err) {
    uint32_t half = t->dims / 2;
    uint64_t n_bytes = (uint64_t)kv->params.n_ctx * t->dims * sizeof(float);
    void *memory, *frequencies;
    CRUMB_TRY(crumb_calloc(half, sizeof(float), "rotations", &frequencies, err));
    crumb_status status = crumb_calloc(1, n_bytes, "rotations", &memory, err);
    if (status == CRUMB_OK) {
        status = crumb_cl_weights_read(d, t->inv_freq, half * sizeof(float), frequencies, err);
        if (status == CRUMB_OK) fill_turns(memory, frequencies, half, kv->params.n_ctx, t->magnitude);
        if (status == CRUMB_OK) status = crumb_cl_memory_create(d, n_bytes, "rotations", &t->table, err);
        if (status == CRUMB_OK) status = crumb_cl_memory_write(d, &t->table, memory, n_bytes, err);
        free(memory);
    }
    free(frequencies);
    if (status != CRUMB_OK) crumb_cl_memory_free(d, &t->table);
    return status;
}

crumb_status crumb_cl_kv_turns(crumb_device *d, crumb_kv_cache *kv, const float *inv_freq, uint32_t dims,
                               float magnitude, const crumb_cl_memory **out, crumb_error *err) {
    for (uint32_t i = 0; i < kv->n_turns; i++) {
        const crumb_cl_turns *t = &kv->turns[i];
        *out = &t->table;
        if (t->inv_freq == inv_freq && t->dims == dims && t->magnitude == magnitude) return CRUMB_OK;
    }
    if (kv->n_turns == CRUMB_CL_MAX_TURNS)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "more than %d kinds of rotation", CRUMB_CL_MAX_TURNS);
    crumb_cl_turns t = {.inv_freq = inv_freq, .dims = dims, .magnitude = magnitude};
    CRUMB_TRY(make_turns(d, kv, &t, err));
    kv->turns[kv->n_turns] = t;
    *out = &kv->turns[kv->n_turns++].table;
    return CRUMB_OK;
}
