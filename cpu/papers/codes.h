/* What the papers' layouts share: reading a matrix in the tile layout code by code, and activations in their natural
 * order. Packing for comparisons need not be fast. */
#ifndef CRUMB_CPU_PAPERS_CODES_H
#define CRUMB_CPU_PAPERS_CODES_H

#include "cpu/kernels.h"

/* The code of row m and column k; 0 in the padding. */
unsigned crumb_papers_code(const crumb_matrix *w, uint32_t m, uint32_t k);

/* Whether 2-bit codes 0, 1, 2 mean -1, 0, 1. `takes` of a layout for nothing else. */
bool crumb_papers_ternary(const crumb_matrix *w);

/* Activations with k in rising order: [n][k_padded] int8. prepared_bytes and prepare of a layout. */
size_t crumb_papers_natural_bytes(const crumb_linear_args *args);
void crumb_papers_natural(const crumb_linear_args *args, void *prepared);

#endif
