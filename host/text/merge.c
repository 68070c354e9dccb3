/* Merging neighbours into tokens, best first: a heap of candidates over symbols that are linked by their sizes. Both
 * byte-level BPE and SentencePiece's BPE are this with another rule for what may merge and in which order.
 */
#include "host/text/internal.h"

#include <stdlib.h>

crumb_status crumb_merger_reserve(crumb_merger *m, size_t n_bytes, crumb_error *err) {
    if (n_bytes <= m->n_symbols) return CRUMB_OK;
    size_t n = n_bytes < 256 ? 256 : n_bytes;
    crumb_symbol *symbols = realloc(m->symbols, n * sizeof *symbols);
    if (!symbols) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory to tokenize a text of %zu bytes", n_bytes);
    m->symbols = symbols;
    m->n_symbols = n;
    return CRUMB_OK;
}

void crumb_merger_free(crumb_merger *m) {
    free(m->symbols);
    free(m->heap);
}

static crumb_status heap_push(crumb_merger *m, crumb_candidate c, crumb_error *err) {
    if (m->n_heap == m->heap_capacity) {
        size_t n = m->heap_capacity ? 2 * m->heap_capacity : 256;
        crumb_candidate *heap = realloc(m->heap, n * sizeof *heap);
        if (!heap) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %zu merge candidates", n);
        m->heap = heap;
        m->heap_capacity = n;
    }
    size_t at = m->n_heap++;
    while (at > 0 && m->heap[(at - 1) / 2].key > c.key) {
        m->heap[at] = m->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    m->heap[at] = c;
    return CRUMB_OK;
}

static crumb_candidate heap_pop(crumb_merger *m) {
    crumb_candidate top = m->heap[0], last = m->heap[--m->n_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < m->n_heap; at = child) {
        if (child + 1 < m->n_heap && m->heap[child + 1].key < m->heap[child].key) child++;
        if (m->heap[child].key >= last.key) break;
        m->heap[at] = m->heap[child];
    }
    m->heap[at] = last;
    return top;
}

typedef struct merging {
    crumb_merger *merger;
    const char *word;
    size_t n_bytes;
    crumb_merge_fn fn;
    const void *rules;
} merging;

/* Queues the pair of symbols[left] and its right neighbour, if there is one and they may merge. */
static crumb_status consider(const merging *w, uint32_t left, crumb_error *err) {
    const crumb_symbol *symbols = w->merger->symbols;
    uint32_t right = left + symbols[left].size, rank;
    int32_t id;
    if (right >= w->n_bytes || !w->fn(w->rules, w->word, symbols, left, right, &rank, &id)) return CRUMB_OK;
    crumb_candidate c = {(uint64_t)rank << 32 | left, symbols[left].size + symbols[right].size, id};
    return heap_push(w->merger, c, err);
}

crumb_status crumb_merger_run(crumb_merger *m, const char *word, size_t n_bytes, crumb_merge_fn fn, const void *rules,
                              crumb_error *err) {
    merging w = {m, word, n_bytes, fn, rules};
    crumb_symbol *symbols = m->symbols;
    m->n_heap = 0;
    for (uint32_t i = 0; i < n_bytes; i += symbols[i].size) CRUMB_TRY(consider(&w, i, err));
    while (m->n_heap > 0) {
        crumb_candidate c = heap_pop(m);
        uint32_t left = (uint32_t)c.key, right = left + symbols[left].size;
        /* Symbols only grow, so an old candidate's sizes no longer add up. */
        if (symbols[left].size == 0 || right >= n_bytes || symbols[left].size + symbols[right].size != c.size) continue;
        symbols[left].size = c.size;
        symbols[left].id = c.id;
        symbols[right].size = 0;
        if (left + c.size < n_bytes) symbols[left + c.size].prev = left;
        if (symbols[left].prev != UINT32_MAX) CRUMB_TRY(consider(&w, symbols[left].prev, err));
        CRUMB_TRY(consider(&w, left, err));
    }
    return CRUMB_OK;
}
