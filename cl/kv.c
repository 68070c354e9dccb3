#include "cl/kv.h"

#include "host/base/checked.h"
#include "host/base/memory.h"

#include <math.h>
#include <stdlib.h>

enum { KEY_BLOCK = 16, KV_GROUP = 32 };

/* Of 16 positions of a head, as KV_BLOCK_BYTES in cl/kernels/common.cl. */
static uint64_t block_bytes(const crumb_kv_params *p) {
    if (p->type == CRUMB_KV_F16) return 2ull * KEY_BLOCK * p->head_dim;
    return KEY_BLOCK * (2 * crumb_div_up(p->head_dim, KV_GROUP) + crumb_round_up(p->head_dim, 8));
}

static crumb_status layer_bytes(const crumb_kv_params *p, uint32_t head_blocks, uint64_t *out, crumb_error *err) {
    uint64_t n;
    bool fits = crumb_mul_u64(head_blocks, block_bytes(p), &n) && crumb_mul_u64(n, p->n_head_kv, &n) &&
                crumb_mul_u64(n, p->n_sequences, &n) && n < UINT64_MAX / 4;
    *out = fits ? n : 0;
    if (fits && p->n_layers && n) return CRUMB_OK;
    return crumb_fail(err, fits ? CRUMB_ERR_ARGUMENT : CRUMB_ERR_MEMORY,
                      "a KV cache of %u layers, %u sequences, %u positions, %u heads of %u", p->n_layers,
                      p->n_sequences, p->n_ctx, p->n_head_kv, p->head_dim);
}

void crumb_cl_kv_destroy(crumb_device *d, crumb_kv_cache *kv) {
    if (!kv) return;
    for (uint32_t i = 0; kv->keys && kv->values && i < kv->params.n_layers; i++) {
        crumb_cl_memory_free(d, &kv->keys[i]);
        crumb_cl_memory_free(d, &kv->values[i]);
    }
    for (uint32_t i = 0; i < kv->n_turns; i++) crumb_cl_memory_free(d, &kv->turns[i].table);
    free(kv->keys);
    free(kv->values);
    free(kv);
}

static crumb_status allocate(crumb_device *d, crumb_kv_cache *kv, uint64_t *n_bytes, crumb_error *err) {
    const crumb_kv_params *p = &kv->params;
    uint64_t n;
    kv->head_blocks = (uint32_t)crumb_div_up(p->n_ctx, KEY_BLOCK);
    CRUMB_TRY(layer_bytes(p, kv->head_blocks, &n, err));
    CRUMB_TRY(crumb_calloc(p->n_layers, sizeof *kv->keys, "the KV cache", (void **)&kv->keys, err));
    CRUMB_TRY(crumb_calloc(p->n_layers, sizeof *kv->values, "the KV cache", (void **)&kv->values, err));
    for (uint32_t i = 0; i < p->n_layers; i++) {
        CRUMB_TRY(crumb_cl_memory_create(d, n, "the KV cache", &kv->keys[i], err));
        CRUMB_TRY(crumb_cl_memory_create(d, n, "the KV cache", &kv->values[i], err));
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
