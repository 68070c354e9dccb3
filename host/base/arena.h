/* Memory for many small things that are freed together. */
#ifndef CRUMB_BASE_ARENA_H
#define CRUMB_BASE_ARENA_H

#include "host/base/error.h"

/* Starts with limit_bytes set and everything else zero: crumb_arena a = {.limit_bytes = 1 << 20}. */
typedef struct crumb_arena {
    struct crumb_arena_chunk *chunks;
    uint64_t n_bytes;     /* taken so far */
    uint64_t limit_bytes; /* more is refused: what is allocated for may come from an attacker */
} crumb_arena;

/* n * size zeroed bytes, aligned for any type, which live until the arena is freed. NULL: the limit, or no memory. */
void *crumb_arena_alloc(crumb_arena *a, uint64_t n, uint64_t size);
void crumb_arena_free(crumb_arena *a); /* everything at once; the arena can be used again */

#endif
