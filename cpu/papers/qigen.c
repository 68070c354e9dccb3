/* The weights and activations of cpu/papers/qigen.h. */
#include "cpu/papers/codes.h"
#include "cpu/papers/qigen_blocks.h"

#include "host/base/checked.h"

#include <string.h>

static size_t packed_bytes(const crumb_matrix *w) {
    return crumb_round_up(w->m, CRUMB_QIGEN_STRIP) * crumb_round_up(w->k, CRUMB_TILE_K) * w->bits / 8;
}

/* A strip of a block: [k][word of the unit][m of the strip], codes with k rising from the lowest bits of a unit on. */
static uint32_t *pack_strip(const crumb_matrix *w, uint32_t m, uint32_t k, uint32_t n_k, uint32_t *to) {
    const uint32_t n_codes = crumb_qigen_unit_codes(w->bits), n_words = n_codes * w->bits / 32;
    for (uint32_t first = k; first < k + n_k; first += n_codes, to += n_words * CRUMB_QIGEN_STRIP) {
        memset(to, 0, n_words * CRUMB_QIGEN_STRIP * sizeof *to);
        for (uint32_t i = 0; i < CRUMB_QIGEN_STRIP; i++)
            for (uint32_t j = 0; j < n_codes; j++) {
                const uint64_t code = (uint64_t)crumb_papers_code(w, m + i, first + j) << w->bits * j % 32;
                uint32_t *word = to + w->bits * j / 32 * CRUMB_QIGEN_STRIP + i;
                *word |= (uint32_t)code;
                if (code >> 32) word[CRUMB_QIGEN_STRIP] |= (uint32_t)(code >> 32);
            }
    }
    return to;
}

static void pack(const crumb_matrix *w, void *packed) {
    crumb_qigen_walk block;
    crumb_qigen_walk_begin(w, crumb_qigen_blocks_of(w), &block);
    for (uint32_t *to = packed; crumb_qigen_walk_next(&block);)
        for (uint32_t m = block.m; m < block.m + block.n_m; m += CRUMB_QIGEN_STRIP)
            to = pack_strip(w, m, block.k, block.n_k, to);
}

static size_t row_floats(const crumb_matrix *w) {
    const size_t k = crumb_round_up(w->k, CRUMB_TILE_K);
    return k + k / w->group;
}

static size_t prepared_bytes(const crumb_linear_args *args) {
    return args->n * row_floats(args->w) * sizeof(float);
}

/* Per row of activations: they, and zeros up to K padded; then their sum for each group of weights. */
static void prepare(const crumb_linear_args *args, void *prepared) {
    const crumb_matrix *w = args->w;
    const size_t k_padded = crumb_round_up(w->k, CRUMB_TILE_K);
    float *to = prepared;
    for (uint32_t n = 0; n < args->n; n++, to += row_floats(w)) {
        memset(to, 0, k_padded * sizeof *to);
        memcpy(to, args->xf + n * args->xf_stride, w->k * sizeof *to);
        for (size_t g = 0; g < k_padded / w->group; g++) {
            double sum = 0;
            for (size_t k = g * w->group; k < (g + 1) * w->group; k++) sum += (double)to[k];
            to[k_padded + g] = (float)sum;
        }
    }
}

/* Words of 3 bits hold 32 codes, whose groups are not divided. */
static bool takes(const crumb_matrix *w) {
    return w->bits != 3 || w->group % CRUMB_TILE_K == 0;
}

const crumb_cpu_layout crumb_layout_qigen = {.name = "blocks on the Z curve, [M/32][b*K/32][m32] words in each",
                                             .halves = true,
                                             .rows = CRUMB_QIGEN_STRIP,
                                             .takes = takes,
                                             .packed_bytes = packed_bytes,
                                             .pack = pack,
                                             .prepared_bytes = prepared_bytes,
                                             .prepare = prepare};
