#include "host/base/arena.h"

#include "host/base/checked.h"

#include <stdlib.h>

enum { CHUNK_BYTES = 1 << 16, ALIGNMENT = 16 };

typedef struct crumb_arena_chunk {
    struct crumb_arena_chunk *next;
    uint64_t n_used, n_bytes;
    _Alignas(ALIGNMENT) unsigned char data[];
} crumb_arena_chunk;

/* What is large gets a chunk of its own behind the current one, whose rest stays in use. */
static crumb_arena_chunk *add_chunk(crumb_arena *a, uint64_t n_bytes) {
    const bool large = n_bytes > CHUNK_BYTES / 4;
    const uint64_t capacity = large ? n_bytes : CHUNK_BYTES;
    crumb_arena_chunk *c = calloc(1, sizeof *c + (size_t)capacity);
    if (!c) return NULL;
    c->n_bytes = capacity;
    if (large && a->chunks) {
        c->next = a->chunks->next;
        a->chunks->next = c;
    } else {
        c->next = a->chunks;
        a->chunks = c;
    }
    return c;
}

void *crumb_arena_alloc(crumb_arena *a, uint64_t n, uint64_t size) {
    uint64_t bytes;
    if (!crumb_mul_u64(n, size, &bytes) || bytes > a->limit_bytes) return NULL;
    bytes = crumb_round_up(bytes ? bytes : 1, ALIGNMENT);
    if (bytes > a->limit_bytes - (a->n_bytes < a->limit_bytes ? a->n_bytes : a->limit_bytes)) return NULL;
    crumb_arena_chunk *c = a->chunks;
    if (!c || bytes > c->n_bytes - c->n_used) c = add_chunk(a, bytes);
    if (!c) return NULL;
    void *out = c->data + c->n_used;
    c->n_used += bytes;
    a->n_bytes += bytes;
    return out;
}

void crumb_arena_free(crumb_arena *a) {
    for (crumb_arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    a->chunks = NULL;
    a->n_bytes = 0;
}
