/* Dynamic chunks: how a linear layer's rows, or a context's keys, are cut into pieces, which threads take one after the
 * other. */
#ifndef CRUMB_SCHEDULER_CHUNKS_H
#define CRUMB_SCHEDULER_CHUNKS_H

#include "host/base/error.h"

/* Where chunk i of n_units begins; n_units for those behind the last. Chunks come in batches, one for each thread, each
 * batch a part of what is left (factoring: Hummel, Schonberg, Flynn, 1992): so there are few, long streams of which the
 * beginning alone waits for memory, and still no thread waits long for the last; cores half as fast as the others have
 * just done their first then. A unit is some tile-rows with unit_bytes of weights, or a chunk of keys and values;
 * share: a batch is 1 / share of what is left, 0 a default. Chunks of more than `step` units are multiples of it, but
 * for the last. */
uint32_t crumb_chunk_begin(uint32_t i, uint32_t n_units, uint64_t unit_bytes, uint32_t step, int n_threads,
                           uint32_t share);
/* How many chunks there are. */
uint32_t crumb_chunks_count(uint32_t n_units, uint64_t unit_bytes, uint32_t step, int n_threads, uint32_t share);
/* All of n_units in at most `most` chunks, of which the last takes what is left. bounds [most + 1]: where they begin,
 * and the end. Returns how many there are. */
uint32_t crumb_chunks_cut(uint32_t n_units, uint64_t unit_bytes, uint32_t step, int n_threads, uint32_t share,
                          uint32_t most, uint32_t *bounds);

#endif
