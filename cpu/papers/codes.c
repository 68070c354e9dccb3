#include "cpu/papers/codes.h"

#include "host/base/checked.h"

unsigned crumb_papers_code(const crumb_matrix *w, uint32_t m, uint32_t k) {
    if (m >= w->m || k >= w->k) return 0;
    uint64_t n_blocks = crumb_div_up(w->k, CRUMB_TILE_K), block = k / CRUMB_TILE_K, bits = w->bits;
    unsigned linear = crumb_tile_linear_of(k % CRUMB_TILE_K), per_dword = 32u / w->bits;
    uint64_t dword = ((m / CRUMB_TILE_ROWS * n_blocks + block) * bits + linear / per_dword) * CRUMB_TILE_ROWS;
    uint32_t word = ((const uint32_t *)w->codes)[dword + m % CRUMB_TILE_ROWS];
    return word >> (bits * (linear % per_dword)) & ((1u << bits) - 1);
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
