#include "host/base/checked.h"
#include "host/base/file.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/lowbit/index.h"
#include "host/model/rope.h"
#include "host/model/weights.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* One piece of work: tile rows [tile0, tile1) of a matrix, or a whole vector or scalar. */
typedef struct pack_item {
    uint32_t entry;
    uint32_t tile0, tile1;
} pack_item;

typedef struct packer {
    const crumb_gguf *g;
    crumb_weights *weights;
    const crumb_weights_place *places;
    pack_item *items;
    uint64_t n_items;
    const crumb_matrix *embedding; /* whose rows are read one by one */
    atomic_uint *left;             /* per entry: items still to do */
    atomic_uint_fast64_t freed, copied;
    atomic_uint_fast64_t done;
    const void *caller; /* identifies the calling thread, the only one that reports progress */
    crumb_progress_fn progress;
    void *progress_user;
} packer;

static _Thread_local char thread_marker;

/* About this many packed bytes make one item: small enough to balance, large enough not to matter. */
static const uint64_t item_bytes = 1u << 20;

static uint32_t tiles_per_item(const crumb_weights_entry *e) {
    uint64_t tiles = crumb_div_up(e->matrix->m, CRUMB_TILE_ROWS);
    uint64_t per_item = crumb_div_up(tiles * item_bytes, e->layout.total_bytes ? e->layout.total_bytes : 1);
    return (uint32_t)(per_item < tiles ? per_item : tiles);
}

static uint64_t count_items(const crumb_weights_entry *e) {
    if (e->is_there) return 0;
    return e->matrix ? crumb_div_up(crumb_div_up(e->matrix->m, CRUMB_TILE_ROWS), tiles_per_item(e)) : 1;
}

static crumb_status make_items(packer *p, crumb_error *err) {
    const crumb_weights *w = p->weights;
    for (size_t i = 0; i < w->n_entries; i++) p->n_items += count_items(&w->entries[i]);
    CRUMB_TRY(crumb_calloc(p->n_items, sizeof *p->items, "the packing list", (void **)&p->items, err));
    CRUMB_TRY(crumb_calloc(w->n_entries, sizeof *p->left, "the packing list", (void **)&p->left, err));
    pack_item *item = p->items;
    for (uint32_t i = 0; i < w->n_entries; i++) {
        const crumb_weights_entry *e = &w->entries[i];
        uint64_t n = count_items(e), tiles = e->matrix ? crumb_div_up(e->matrix->m, CRUMB_TILE_ROWS) : 0;
        uint32_t step = e->matrix ? tiles_per_item(e) : 0;
        atomic_init(&p->left[i], (unsigned)n);
        for (uint64_t j = 0; j < n; j++) {
            uint64_t end = (j + 1) * step;
            *item++ = (pack_item){i, (uint32_t)(j * step), (uint32_t)(end < tiles ? end : tiles)};
        }
    }
    return CRUMB_OK;
}

/* Where an entry goes. */
static uint8_t *memory_of(const packer *p, const crumb_weights_entry *e) {
    return p->places[e->memory].base + e->offset;
}

static crumb_status pack_floats(const packer *p, const crumb_weights_entry *e, crumb_error *err) {
    const crumb_gguf_tensor *t = e->tensor;
    float *out = e->scalar ? e->scalar : (float *)(void *)memory_of(p, e);
    crumb_type_row_to_f32(t->type, crumb_gguf_tensor_data(p->g, t), t->dims[0], 0, out);
    for (uint64_t i = 0; i < t->dims[0]; i++)
        if (!isfinite(out[i]))
            return crumb_fail(err, CRUMB_ERR_FORMAT, "value %llu is not finite", (unsigned long long)i);
    return CRUMB_OK;
}

typedef struct guarded_item {
    packer *packer;
    const pack_item *item;
} guarded_item;

static crumb_status pack_item_guarded(void *ctx, crumb_error *err) {
    const guarded_item *gi = ctx;
    const packer *p = gi->packer;
    const crumb_weights_entry *e = &p->weights->entries[gi->item->entry];
    crumb_status status = CRUMB_OK;
    if (e->matrix)
        status = crumb_matrix_pack(e->tensor->type, crumb_gguf_tensor_data(p->g, e->tensor), e->matrix, &e->layout,
                                   memory_of(p, e), gi->item->tile0, gi->item->tile1, err);
    else if (e->order)
        memcpy(memory_of(p, e), e->tensor->order, e->tensor->dims[0] * sizeof **e->order);
    else
        status = pack_floats(p, e, err);
    return status == CRUMB_OK ? status : crumb_fail_prefix(err, status, "tensor '%s'", e->tensor->name);
}

static void index_entry(packer *p, const crumb_weights_entry *e) {
    const uint64_t tile_bytes = crumb_matrix_codes_bytes(e->matrix), index_bytes = crumb_index_bytes(e->matrix);
    uint8_t *codes = memory_of(p, e) + e->layout.codes_offset;
    crumb_index_from_tiles(e->matrix, codes);
    e->matrix->indexed = true;
    atomic_fetch_add(&p->freed, crumb_pages_discard(codes + index_bytes, tile_bytes - index_bytes));
}

/* Scales that files repeat or hold in f16 need not be kept more than once, nor in f32. */
static void shrink_scales(packer *p, const crumb_weights_entry *e) {
    const crumb_matrix_bytes planned = crumb_matrix_get_bytes(e->matrix);
    uint8_t *scales = memory_of(p, e) + e->layout.scales_offset, *mins = memory_of(p, e) + e->layout.mins_offset;
    crumb_matrix_widen_groups(e->matrix);
    crumb_matrix_narrow_scales(e->matrix);
    const crumb_matrix_bytes kept = crumb_matrix_get_bytes(e->matrix);
    if (!p->places[e->memory].host_memory) return;
    atomic_fetch_add(&p->freed, crumb_pages_discard(scales + kept.scales, planned.scales - kept.scales));
    atomic_fetch_add(&p->freed, crumb_pages_discard(mins + kept.mins, planned.mins - kept.mins));
}

static crumb_status commit(const crumb_weights_place *place, uint64_t offset, uint64_t n_bytes, bool kept,
                           crumb_error *err) {
    return place->backend->device.buffer_commit(place->device, place->buffer, offset, n_bytes, kept, err);
}

crumb_status crumb_weights_commit_rows(const crumb_weights_place *place, const crumb_matrix *w, uint64_t *copied,
                                       crumb_error *err) {
    bool kept = false;
    const uint32_t m = place->rows(place->user, w, &kept);
    if (m == 0) return CRUMB_OK;
    const crumb_matrix part = crumb_matrix_rows(w, 0, m);
    const crumb_matrix_bytes n = crumb_matrix_get_bytes(&part);
    const void *const from[] = {part.codes, part.scales, part.mins, part.supers, part.super_mins};
    const uint64_t n_bytes[] = {n.codes, n.scales, n.mins, n.supers, n.super_mins};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        if (!from[i] || n_bytes[i] == 0) continue;
        CRUMB_TRY(commit(place, (uint64_t)((const uint8_t *)from[i] - place->base), n_bytes[i], kept, err));
        if (kept) *copied += n_bytes[i];
    }
    return CRUMB_OK;
}

/* Of something that is no matrix. */
static crumb_status commit_vector(packer *p, const crumb_weights_place *place, uint64_t offset, uint64_t n_bytes,
                                  crumb_error *err) {
    if (place->rows) atomic_fetch_add(&p->copied, n_bytes);
    return commit(place, offset, n_bytes, place->rows != NULL, err);
}

static crumb_status commit_matrix(packer *p, const crumb_weights_place *place, const crumb_weights_entry *e,
                                  crumb_error *err) {
    uint64_t copied = 0;
    if (!place->rows) return commit(place, e->offset, e->layout.total_bytes, false, err);
    CRUMB_TRY(crumb_weights_commit_rows(place, e->matrix, &copied, err));
    atomic_fetch_add(&p->copied, copied);
    return CRUMB_OK;
}

/* All of a tensor is packed. */
static crumb_status finish_entry(packer *p, const crumb_weights_entry *e, crumb_error *err) {
    const crumb_weights_place *place = &p->places[e->memory];
    if (e->order) return commit_vector(p, place, e->offset, e->tensor->dims[0] * sizeof **e->order, err);
    crumb_gguf_tensor_release(p->g, e->tensor);
    if (e->scalar) return CRUMB_OK;
    if (e->vector) return commit_vector(p, place, e->offset, e->tensor->dims[0] * sizeof(float), err);
    if (crumb_type_get_info(e->tensor->type)->act_rule == CRUMB_ACT_RULE_ROW) crumb_matrix_merge_scales(e->matrix);
    if (crumb_type_get_info(e->tensor->type)->scale_kind == CRUMB_SCALE_F32) shrink_scales(p, e);
    if (e->matrix != p->embedding && crumb_index_wanted(e->matrix, place->index_bits)) index_entry(p, e);
    return commit_matrix(p, place, e, err);
}

static crumb_status pack_held(packer *p, guarded_item *gi, crumb_error *err) {
    const crumb_weights_entry *e = &p->weights->entries[gi->item->entry];
    if (e->order) return pack_item_guarded(gi, err);
    CRUMB_TRY(crumb_gguf_tensor_hold(p->g, e->tensor, err));
    const crumb_status status = crumb_file_guard(crumb_gguf_path(p->g), pack_item_guarded, gi, err);
    crumb_gguf_tensor_drop(p->g, e->tensor);
    return status;
}

static crumb_status pack_one(void *ctx, uint64_t index, crumb_error *err) {
    packer *p = ctx;
    guarded_item gi = {p, &p->items[index]};
    CRUMB_TRY(pack_held(p, &gi, err));
    if (atomic_fetch_sub(&p->left[gi.item->entry], 1) == 1)
        CRUMB_TRY(finish_entry(p, &p->weights->entries[gi.item->entry], err));
    uint64_t done = atomic_fetch_add(&p->done, 1) + 1;
    if (p->progress && p->caller == &thread_marker && !p->progress(p->progress_user, (float)done / (float)p->n_items))
        return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "loading was interrupted");
    return CRUMB_OK;
}

typedef struct rope_read {
    const crumb_gguf *g;
    const crumb_weights *weights;
    const crumb_hparams *hparams;
    float *out;
} rope_read;

static crumb_status read_rope_freqs(void *ctx, crumb_error *err) {
    const rope_read *r = ctx;
    const crumb_gguf_tensor *t = r->weights->rope_freqs;
    float divisors[2048]; /* rope_dims is at most 4096 (crumb_hparams_check) */
    if (t) crumb_type_row_to_f32(t->type, crumb_gguf_tensor_data(r->g, t), t->dims[0], 0, divisors);
    for (uint64_t i = 0; t && i < t->dims[0]; i++)
        if (!(divisors[i] > 0) || !isfinite(divisors[i]))
            return crumb_fail(err, CRUMB_ERR_FORMAT, "tensor 'rope_freqs.weight': value %llu is not a positive number",
                              (unsigned long long)i);
    crumb_rope_inv_freq(r->hparams, t ? divisors : NULL, r->out);
    return CRUMB_OK;
}

static crumb_status read_held_rope_freqs(rope_read *r, crumb_error *err) {
    const crumb_gguf_tensor *t = r->weights->rope_freqs;
    if (t) CRUMB_TRY(crumb_gguf_tensor_hold(r->g, t, err));
    const crumb_status status = crumb_file_guard(crumb_gguf_path(r->g), read_rope_freqs, r, err);
    if (t) crumb_gguf_tensor_drop(r->g, t);
    return status;
}

static void bind(packer *p) {
    for (size_t i = 0; i < p->weights->n_entries; i++) {
        crumb_weights_entry *e = &p->weights->entries[i];
        if (e->matrix) crumb_matrix_bind(e->matrix, &e->layout, memory_of(p, e));
        if (e->order) *e->order = (const uint32_t *)(const void *)memory_of(p, e);
        if (e->vector) *e->vector = (const float *)(const void *)memory_of(p, e);
    }
}

/* Once in each memory that holds weights; layers take those that lie beside their own. */
static crumb_status pack_frequencies(packer *p, crumb_network *net, crumb_error *err) {
    const crumb_weights *w = p->weights;
    const float *in_memory[CRUMB_WEIGHTS_MEMORIES] = {0};
    for (int i = 0; i < CRUMB_WEIGHTS_MEMORIES; i++) {
        if (!w->total_bytes[i]) continue;
        float *out = (float *)(void *)(p->places[i].base + w->inv_freq_offset[i]);
        rope_read rope = {p->g, w, &net->hparams, out};
        CRUMB_TRY(read_held_rope_freqs(&rope, err));
        CRUMB_TRY(
            commit_vector(p, &p->places[i], w->inv_freq_offset[i], net->hparams.rope_dims / 2 * sizeof(float), err));
        in_memory[i] = out;
    }
    for (uint32_t i = 0; i < net->hparams.num_hidden_layers; i++)
        net->layers[i].inv_freq = in_memory[w->memories ? w->memories[i] : 0];
    return CRUMB_OK;
}

crumb_status crumb_weights_pack(const crumb_gguf *g, crumb_weights *w, crumb_network *net,
                                const crumb_weights_place *places, int n_threads, crumb_progress_fn progress,
                                void *progress_user, crumb_error *err) {
    packer p = {.g = g,
                .weights = w,
                .places = places,
                .embedding = &net->embedding,
                .caller = &thread_marker,
                .progress = progress,
                .progress_user = progress_user};
    bind(&p);
    crumb_status status = pack_frequencies(&p, net, err);
    if (status == CRUMB_OK) status = make_items(&p, err);
    if (status == CRUMB_OK) status = crumb_parallel_for(n_threads, p.n_items, pack_one, &p, err);
    if (net->tied && !w->head_apart) net->head.matrix = net->embedding;
    w->freed_bytes = atomic_load(&p.freed);
    w->copied_bytes = atomic_load(&p.copied);
    free(p.items);
    free(p.left);
    return status;
}
