#include "cpu/papers/qigen_blocks.h"

#include "cpu/caches.h"
#include "host/base/checked.h"
#include "host/lowbit/tile.h"

uint32_t crumb_qigen_registers(uint32_t mu, uint32_t tu) {
    return mu + mu * tu + tu;
}

uint64_t crumb_qigen_cache_bits(unsigned bits, uint32_t mb, uint32_t tb) {
    return 32 * (uint64_t)mb + bits * (uint64_t)mb * tb + 32 * (uint64_t)tb;
}

crumb_qigen_micro crumb_qigen_choose_micro(uint32_t registers) {
    const uint32_t tile_vectors = CRUMB_TILE_ROWS / 8, fewest_codes = crumb_qigen_unit_codes(4);
    crumb_qigen_micro best = {0};
    for (uint32_t mu = 1; mu <= fewest_codes && mu < registers; mu *= 2) {
        const crumb_qigen_micro pair = {mu, (registers - mu) / (mu + 1) / tile_vectors * tile_vectors}; /* (4) for tu */
        if (pair.tu && crumb_qigen_registers(pair.mu, pair.tu) > crumb_qigen_registers(best.mu, best.tu)) best = pair;
    }
    return best;
}

/* Whether a is to be preferred to b. */
static bool better(unsigned bits, crumb_qigen_blocks a, crumb_qigen_blocks b) {
    uint64_t bits_a = crumb_qigen_cache_bits(bits, a.mb, a.tb), bits_b = crumb_qigen_cache_bits(bits, b.mb, b.tb);
    if (bits_a != bits_b) return bits_a > bits_b;
    uint64_t weights_a = (uint64_t)a.mb * a.tb, weights_b = (uint64_t)b.mb * b.tb;
    return weights_a != weights_b ? weights_a > weights_b : a.mb > b.mb;
}

crumb_qigen_blocks crumb_qigen_choose(unsigned bits, uint32_t k, uint32_t m, uint32_t step_k, uint32_t step_m,
                                      uint64_t cache_bits) {
    crumb_qigen_blocks best = {0};
    for (uint32_t mb = step_k; mb < k + step_k && 32 * (uint64_t)mb < cache_bits; mb += step_k) {
        uint64_t tb = (cache_bits - 32 * (uint64_t)mb) / (bits * (uint64_t)mb + 32); /* (5) for tb */
        uint64_t m_padded = crumb_round_up(m, step_m);
        if (tb > m_padded) tb = m_padded;
        crumb_qigen_blocks candidate = {mb, (uint32_t)(tb / step_m * step_m)};
        if (candidate.tb && better(bits, candidate, best)) best = candidate;
    }
    return best;
}

crumb_qigen_blocks crumb_qigen_blocks_of(const crumb_matrix *w) {
    const uint32_t k = (uint32_t)crumb_round_up(w->k, CRUMB_TILE_K), step = w->group < k ? w->group : CRUMB_TILE_K;
    const uint64_t cache_bits = 8 * (uint64_t)crumb_caches_get().l1_bytes;
    crumb_qigen_blocks blocks = crumb_qigen_choose(w->bits, k, w->m, step, CRUMB_QIGEN_STRIP, cache_bits);
    if (blocks.mb) return blocks;
    return crumb_qigen_choose(w->bits, k, w->m, CRUMB_TILE_K, CRUMB_QIGEN_STRIP, cache_bits);
}

/* Every second bit of code. */
static uint32_t even_bits(uint64_t code) {
    uint32_t bits = 0;
    for (unsigned i = 0; i < 32; i++) bits |= (uint32_t)(code >> (2 * i) & 1) << i;
    return bits;
}

void crumb_qigen_walk_begin(const crumb_matrix *w, crumb_qigen_blocks blocks, crumb_qigen_walk *walk) {
    *walk = (crumb_qigen_walk){.blocks = blocks,
                               .k_end = (uint32_t)crumb_round_up(w->k, CRUMB_TILE_K),
                               .m_end = (uint32_t)crumb_round_up(w->m, CRUMB_QIGEN_STRIP),
                               .bits = w->bits};
}

bool crumb_qigen_walk_next(crumb_qigen_walk *walk) {
    const uint64_t columns = crumb_div_up(walk->k_end, walk->blocks.mb);
    const uint64_t rows = crumb_div_up(walk->m_end, walk->blocks.tb);
    uint64_t side = 1; /* of the square that the curve fills */
    while (side < rows || side < columns) side *= 2;
    walk->at += walk->n_bytes;
    while (walk->code < side * side) {
        const uint64_t column = even_bits(walk->code), row = even_bits(walk->code >> 1);
        if (column < columns && row < rows) {
            walk->k = (uint32_t)column * walk->blocks.mb;
            walk->m = (uint32_t)row * walk->blocks.tb;
            walk->n_k = walk->k_end - walk->k < walk->blocks.mb ? walk->k_end - walk->k : walk->blocks.mb;
            walk->n_m = walk->m_end - walk->m < walk->blocks.tb ? walk->m_end - walk->m : walk->blocks.tb;
            walk->n_bytes = (size_t)walk->n_k * walk->n_m * walk->bits / 8;
            walk->code++;
            return true;
        }
        /* The corner of a square lies outside, and so does the square: the largest that begins here. */
        const unsigned zeros = (unsigned)__builtin_ctzll(walk->code);
        walk->code += (uint64_t)1 << zeros / 2 * 2;
    }
    return false;
}
