#include "cpu/papers/codes.h"

#include "host/base/checked.h"

unsigned crumb_papers_code(const crumb_matrix *w, uint32_t m, uint32_t k) {
    if (m >= w->m || k >= w->k) return 0;
    uint64_t tile = m / CRUMB_TILE_ROWS * crumb_div_up(w->k, CRUMB_TILE_K) + k / CRUMB_TILE_K;
    const uint32_t *dwords = (const uint32_t *)w->codes + tile * w->bits * CRUMB_TILE_ROWS;
    return crumb_tile_code(dwords, w->bits, m % CRUMB_TILE_ROWS, crumb_tile_linear_of(k % CRUMB_TILE_K));
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
