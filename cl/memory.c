#include "cl/memory.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- allocations --------------------------------------------------------------------------------------------- */

/* A sixteenth is left to the desktop and to the driver: a card that is filled to the brim moves pages to and fro. */
static crumb_status check_budget(const crumb_device *d, uint64_t n_bytes, const char *what, crumb_error *err) {
    uint64_t total = d->facts.memory_bytes, budget = total - total / 16;
    if (n_bytes > d->facts.max_alloc_bytes)
        return crumb_fail(err, CRUMB_ERR_MEMORY,
                          "%s: %s takes %.1f MiB, and the device allocates at most %.1f MiB at once", d->label, what,
                          (double)n_bytes / 1048576, (double)d->facts.max_alloc_bytes / 1048576);
    if (d->allocated_bytes <= budget && n_bytes <= budget - d->allocated_bytes) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_MEMORY,
                      "%s: not enough memory for %s: %.1f MiB wanted, %.1f of %.1f MiB are taken; a smaller model or "
                      "context (-c), or --device cpu",
                      d->label, what, (double)n_bytes / 1048576, (double)d->allocated_bytes / 1048576,
                      (double)total / 1048576);
}

crumb_status crumb_cl_memory_create(crumb_device *d, uint64_t n_bytes, const char *what, crumb_cl_memory *out,
                                    crumb_error *err) {
    *out = (crumb_cl_memory){.n_bytes = n_bytes ? n_bytes : 64};
    CRUMB_TRY(check_budget(d, out->n_bytes, what, err));
    const crumb_cl_code code = crumb_cl_driver_allocate(d, out);
    if (code != CRUMB_CL_OK) {
        *out = (crumb_cl_memory){0};
        return crumb_cl_fail(err, d->label, what, code);
    }
    d->allocated_bytes += out->n_bytes;
    return CRUMB_OK;
}

void crumb_cl_memory_free(crumb_device *d, crumb_cl_memory *m) {
    if (m->usm || m->mem) {
        crumb_cl_driver_free(d, m);
        d->allocated_bytes -= m->n_bytes;
    }
    *m = (crumb_cl_memory){0};
}

crumb_status crumb_cl_memory_write(crumb_device *d, const crumb_cl_memory *m, const void *from, uint64_t n_bytes,
                                   crumb_error *err) {
    const crumb_cl_code code = crumb_cl_driver_write(d, m, 0, from, n_bytes, true);
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, d->label, "copying to the device", code);
}

crumb_status crumb_cl_host_create(crumb_device *d, uint64_t n_bytes, void **out, crumb_error *err) {
    if (!d->has_usm) return crumb_calloc(1, n_bytes, "a plan's results", out, err);
    const crumb_cl_code code = crumb_cl_driver_allocate_host(d, n_bytes, 0, out);
    if (code != CRUMB_CL_OK) return crumb_cl_fail(err, d->label, "a plan's results", code);
    memset(*out, 0, (size_t)n_bytes);
    return CRUMB_OK;
}

void crumb_cl_host_free(crumb_device *d, void *p) {
    if (!p || crumb_cl_limit_is_over(&d->limit)) return; /* the device may still write there */
    if (d->has_usm)
        crumb_cl_driver_free_host(d, p);
    else
        free(p);
}

/* ---- weights ------------------------------------------------------------------------------------------------- */

enum { SLAB_BYTES = 4 << 20, SLAB_PIECE_BYTES = 256 << 10, SLAB_ALIGN = 256 };

/* Part of a buffer that has been copied to the device. */
typedef struct piece {
    uint64_t offset, n_bytes;
    crumb_cl_memory memory; /* usm: an address in an allocation */
} piece;

typedef struct piece_list {
    void *items;
    size_t n, capacity;
} piece_list;

struct crumb_buffer {
    crumb_buffer *next;
    char *host;
    uint64_t n_bytes;
    bool shared; /* host is host USM, which kernels read */
    atomic_flag busy;
    piece_list pieces;    /* of piece */
    piece_list owned;     /* of crumb_cl_memory: what the pieces lie in */
    crumb_cl_memory slab; /* the owned one that small pieces fill */
    uint64_t slab_used;
};

static crumb_status list_add(piece_list *list, const void *item, size_t size, crumb_error *err) {
    if (list->n == list->capacity) {
        size_t capacity = 2 * list->capacity + 64;
        void *grown = realloc(list->items, capacity * size);
        if (!grown) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a list of weights");
        list->items = grown;
        list->capacity = capacity;
    }
    memcpy((char *)list->items + list->n++ * size, item, size);
    return CRUMB_OK;
}

/* Memory shared with the host where the device has the machine's and takes it at once; else pages of the host. */
static crumb_status allocate_host(crumb_device *d, crumb_buffer *b, const char *what, crumb_error *err) {
    void *memory = NULL;
    if (d->has_usm && d->facts.unified && b->n_bytes <= d->facts.max_alloc_bytes) {
        CRUMB_TRY(check_budget(d, b->n_bytes, what, err));
        if (crumb_cl_driver_allocate_host(d, b->n_bytes, SLAB_ALIGN, &memory) != CRUMB_CL_OK) memory = NULL;
    }
    if (memory) {
        memset(memory, 0, (size_t)b->n_bytes);
        b->shared = true;
        d->allocated_bytes += b->n_bytes;
    } else {
        CRUMB_TRY(crumb_pages_alloc(b->n_bytes, what, &memory, err));
    }
    b->host = memory;
    return CRUMB_OK;
}

crumb_status crumb_cl_buffer_create(crumb_device *d, uint64_t n_bytes, const char *what, crumb_buffer **out,
                                    void **host, crumb_error *err) {
    void *memory;
    *out = NULL;
    *host = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof **out, what, &memory, err));
    crumb_buffer *b = memory;
    b->n_bytes = n_bytes ? n_bytes : 64;
    atomic_flag_clear(&b->busy);
    crumb_status status = allocate_host(d, b, what, err);
    if (status != CRUMB_OK) {
        free(b);
        return status;
    }
    b->next = d->buffers;
    d->buffers = b;
    *out = b;
    *host = b->host;
    return CRUMB_OK;
}

void crumb_cl_buffer_destroy(crumb_device *d, crumb_buffer *b) {
    if (!b) return;
    for (crumb_buffer **at = &d->buffers; *at; at = &(*at)->next)
        if (*at == b) {
            *at = b->next;
            break;
        }
    crumb_cl_memory *owned = b->owned.items;
    for (size_t i = 0; i < b->owned.n; i++) crumb_cl_memory_free(d, &owned[i]);
    free(b->owned.items);
    free(b->pieces.items);
    if (b->shared) {
        crumb_cl_driver_free_host(d, b->host);
        d->allocated_bytes -= b->n_bytes;
    } else if (!crumb_cl_limit_is_over(&d->limit)) { /* else the device may still read there */
        crumb_pages_free(b->host, b->n_bytes);
    }
    free(b);
}

/* Device memory for a piece: by itself, or with other small ones, since drivers give memory out in large pages. */
static crumb_status place_piece(crumb_device *d, crumb_buffer *b, piece *p, crumb_error *err) {
    bool small = p->n_bytes <= SLAB_PIECE_BYTES && d->has_usm;
    if (!small || b->slab_used + p->n_bytes > b->slab.n_bytes) {
        uint64_t slab_bytes = SLAB_BYTES < d->facts.max_alloc_bytes ? SLAB_BYTES : p->n_bytes;
        crumb_cl_memory memory;
        CRUMB_TRY(crumb_cl_memory_create(d, small ? slab_bytes : p->n_bytes, "the model's weights", &memory, err));
        crumb_status status = list_add(&b->owned, &memory, sizeof memory, err);
        if (status != CRUMB_OK) {
            crumb_cl_memory_free(d, &memory);
            return status;
        }
        p->memory = memory;
        if (!small) return CRUMB_OK;
        b->slab = memory;
        b->slab_used = 0;
    }
    p->memory.usm = (char *)b->slab.usm + b->slab_used;
    b->slab_used = crumb_round_up(b->slab_used + p->n_bytes, SLAB_ALIGN);
    return CRUMB_OK;
}

static crumb_status add_piece(crumb_device *d, crumb_buffer *b, uint64_t offset, uint64_t n_bytes, bool kept,
                              crumb_error *err) {
    piece p = {.offset = offset, .n_bytes = n_bytes};
    CRUMB_TRY(place_piece(d, b, &p, err));
    CRUMB_TRY(crumb_cl_memory_write(d, &p.memory, b->host + offset, n_bytes, err));
    CRUMB_TRY(list_add(&b->pieces, &p, sizeof p, err));
    if (!kept) crumb_pages_discard(b->host + offset, n_bytes);
    return CRUMB_OK;
}

crumb_status crumb_cl_buffer_commit(crumb_device *d, crumb_buffer *b, uint64_t offset, uint64_t n_bytes, bool kept,
                                    crumb_error *err) {
    if (offset > b->n_bytes || n_bytes > b->n_bytes - offset)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "bytes %llu to %llu of a buffer of %llu", (unsigned long long)offset,
                          (unsigned long long)(offset + n_bytes), (unsigned long long)b->n_bytes);
    if (b->shared || !d->has_usm || n_bytes == 0) return CRUMB_OK;
    while (atomic_flag_test_and_set(&b->busy)) crumb_thread_yield();
    crumb_status status = add_piece(d, b, offset, n_bytes, kept, err);
    atomic_flag_clear(&b->busy);
    return status;
}

/* ---- what ops name ------------------------------------------------------------------------------------------- */

typedef struct crumb_cl_copy {
    struct crumb_cl_copy *next;
    const void *host;
    crumb_cl_memory memory;
} crumb_cl_copy;

void crumb_cl_copies_free(crumb_device *d, crumb_cl_copies *copies) {
    for (crumb_cl_copy *c = copies->first, *next; c; c = next) {
        next = c->next;
        crumb_cl_memory_free(d, &c->memory);
        free(c);
    }
    copies->first = NULL;
}

static crumb_status copy_loose(crumb_device *d, crumb_cl_copies *copies, const void *host, uint64_t n_bytes,
                               crumb_cl_memory *out, crumb_error *err) {
    void *memory;
    for (const crumb_cl_copy *c = copies->first; c; c = c->next)
        if (c->host == host && c->memory.n_bytes >= n_bytes) return *out = c->memory, CRUMB_OK;
    CRUMB_TRY(crumb_calloc(1, sizeof(crumb_cl_copy), "a copy of weights", &memory, err));
    crumb_cl_copy *c = memory;
    c->host = host;
    c->next = copies->first;
    copies->first = c;
    CRUMB_TRY(crumb_cl_memory_create(d, n_bytes, "weights", &c->memory, err));
    CRUMB_TRY(crumb_cl_memory_write(d, &c->memory, host, n_bytes, err));
    *out = c->memory;
    return CRUMB_OK;
}

static crumb_buffer *find_buffer(const crumb_device *d, const void *host) {
    const uintptr_t at = (uintptr_t)host;
    for (crumb_buffer *b = d->buffers; b; b = b->next)
        if (at >= (uintptr_t)b->host && at - (uintptr_t)b->host < b->n_bytes) return b;
    return NULL;
}

/* A cl_mem is found by its beginning only. */
static bool find_piece(const crumb_device *d, const crumb_buffer *b, uint64_t offset, uint64_t n_bytes,
                       crumb_cl_memory *out) {
    const piece *pieces = b->pieces.items;
    for (size_t i = 0; i < b->pieces.n; i++) {
        const piece *p = &pieces[i];
        bool inside =
            offset >= p->offset && offset - p->offset <= p->n_bytes && n_bytes <= p->n_bytes - (offset - p->offset);
        if (!inside || (!d->has_usm && offset != p->offset)) continue;
        *out = p->memory;
        if (d->has_usm) out->usm = (char *)p->memory.usm + (offset - p->offset);
        return true;
    }
    return false;
}

crumb_status crumb_cl_weights_find(crumb_device *d, crumb_cl_copies *copies, const void *host, uint64_t n_bytes,
                                   crumb_cl_memory *out, crumb_error *err) {
    *out = (crumb_cl_memory){0};
    if (!host) return CRUMB_OK;
    crumb_buffer *b = find_buffer(d, host);
    if (!b) return copy_loose(d, copies, host, n_bytes, out, err);
    if (b->shared) {
        out->usm = (void *)(uintptr_t)host;
        return CRUMB_OK;
    }
    uint64_t offset = (uint64_t)((const char *)host - b->host);
    if (find_piece(d, b, offset, n_bytes, out)) return CRUMB_OK;
    if (d->has_usm || n_bytes > b->n_bytes - offset)
        return crumb_fail(err, CRUMB_ERR_INTERNAL, "%s: weights at byte %llu were not committed", d->label,
                          (unsigned long long)offset);
    CRUMB_TRY(add_piece(d, b, offset, n_bytes, false, err));
    return find_piece(d, b, offset, n_bytes, out) ? CRUMB_OK : CRUMB_ERR_INTERNAL;
}

crumb_status crumb_cl_weights_read(crumb_device *d, const void *host, uint64_t n_bytes, void *to, crumb_error *err) {
    crumb_cl_memory memory;
    const crumb_buffer *b = find_buffer(d, host);
    if (!b || b->shared || !find_piece(d, b, (uint64_t)((const char *)host - b->host), n_bytes, &memory)) {
        memcpy(to, host, (size_t)n_bytes);
        return CRUMB_OK;
    }
    void *stage;
    CRUMB_TRY(crumb_calloc(1, n_bytes, "a copy of weights", &stage, err));
    const crumb_cl_code code = crumb_cl_driver_read(d, &memory, 0, stage, n_bytes, true);
    if (code == CRUMB_CL_OK) memcpy(to, stage, (size_t)n_bytes);
    if (code != CRUMB_CL_STUCK) free(stage); /* else the device may still write there */
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, d->label, "reading from the device", code);
}
