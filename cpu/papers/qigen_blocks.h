/* QIGen's block sizes and the order of its blocks (cpu/papers/qigen.h). Here k runs along the input (the paper's m) and
 * m along the output (its t), both in weights. */
#ifndef CRUMB_CPU_PAPERS_QIGEN_BLOCKS_H
#define CRUMB_CPU_PAPERS_QIGEN_BLOCKS_H

#include "host/backend.h"

enum {
    /* The micro-kernel, compiled for what crumb_qigen_choose_micro finds for AVX2's registers (a test compares). */
    CRUMB_QIGEN_REGISTERS = 16,
    CRUMB_QIGEN_MU = 2,
    CRUMB_QIGEN_TU = 4,
    CRUMB_QIGEN_STRIP = 8 * CRUMB_QIGEN_TU /* outputs */
};

/* Codes in the least number of whole 32-bit words: 16 of 2 bits, 32 of 3 (in three words), 8 of 4. */
static inline uint32_t crumb_qigen_unit_codes(unsigned bits) {
    return 32 % bits ? 32 : 32 / bits;
}

/* Left sides of the inequalities (4), in registers, and (5), in bits. */
uint32_t crumb_qigen_registers(uint32_t mu, uint32_t tu);
uint64_t crumb_qigen_cache_bits(unsigned bits, uint32_t mb, uint32_t tb);

/* m_u activations and t_u vectors of 8 outputs. */
typedef struct crumb_qigen_micro {
    uint32_t mu, tu; /* 0 when none fits */
} crumb_qigen_micro;

/* The pair that comes as close to the registers as can be, where m_u divides a unit's codes of every width, and t_u
 * vectors are whole tiles of rows; of equals the one with the most outputs, which more sums side by side and one
 * broadcast of an activation serve. (The paper tries which pair within (4) is fastest.) */
crumb_qigen_micro crumb_qigen_choose_micro(uint32_t registers);

typedef struct crumb_qigen_blocks {
    uint32_t mb, tb; /* k and outputs of a block; 0 when none fits */
} crumb_qigen_blocks;

/* Multiples of step_k up to k and of step_m up to m (both padded to their steps) that come as close to cache_bits as
 * can be; of equals the pair with the most weights, and then the longer in k. */
crumb_qigen_blocks crumb_qigen_choose(unsigned bits, uint32_t k, uint32_t m, uint32_t step_k, uint32_t step_m,
                                      uint64_t cache_bits);

/* The blocks for a matrix, in the machine's L1 (cpu/caches.h): of whole groups where one fits. */
crumb_qigen_blocks crumb_qigen_blocks_of(const crumb_matrix *w);

/* All blocks of a matrix along the Z curve, those at the edges cut to what is there: K padded to 32, M to strips. */
typedef struct crumb_qigen_walk {
    crumb_qigen_blocks blocks;
    uint32_t k_end, m_end;
    unsigned bits;
    uint64_t code; /* of the next block: its place in k in the even bits, in m in the odd ones */
    /* the block */
    uint32_t k, n_k, m, n_m;
    size_t at, n_bytes; /* among the packed weights */
} crumb_qigen_walk;

void crumb_qigen_walk_begin(const crumb_matrix *w, crumb_qigen_blocks blocks, crumb_qigen_walk *walk);
bool crumb_qigen_walk_next(crumb_qigen_walk *walk); /* false after the last */

#endif
