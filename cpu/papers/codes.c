#include "cpu/papers/codes.h"

#include "host/base/checked.h"

unsigned crumb_papers_code(const crumb_matrix *w, uint32_t m, uint32_t k) {
    return m < w->m && k < w->k ? crumb_matrix_code(w, m, k) : 0;
}

bool crumb_papers_ternary(const crumb_matrix *w) {
    return w->max_code == 2 && w->mul == 1 && w->sub == 1;
}

size_t crumb_papers_natural_bytes(const crumb_linear_args *args) {
    return (size_t)args->n * args->x.k_padded;
}

void crumb_papers_natural(const crumb_linear_args *args, void *prepared) {
    uint8_t order[CRUMB_TILE_K];
    crumb_tile_plane_order(args->w->bits, order);
    int8_t *to = prepared;
    for (size_t i = 0; i < crumb_papers_natural_bytes(args); i++)
        to[i / CRUMB_TILE_K * CRUMB_TILE_K + order[i % CRUMB_TILE_K]] = args->x.q[i];
}
