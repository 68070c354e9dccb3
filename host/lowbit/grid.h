/* Grids as GPTQ's files have them: the weights of a row that are in one group have a scale and a zero point,
 *     w = scale * (code - zero)       code in 0 .. 2^bits - 1, zero in 1 .. 2^bits - 1
 * (version 1 of the form stores zero - 1, which rules out 0). Scales are values of f16. */
#ifndef CRUMB_LOWBIT_GRID_H
#define CRUMB_LOWBIT_GRID_H

#include "host/base/error.h"

#include <math.h>

typedef struct crumb_grid {
    float scale; /* 0: all weights are 0 */
    uint8_t zero, max_code;
} crumb_grid;

/* The grid of n weights that reaches from the least to the largest of them, and has 0 among its values. */
crumb_grid crumb_grid_fit(const double *w, uint64_t n, unsigned bits);
/* Of that grid and narrower ones, down to a quarter of it, which cut off the outermost weights: the one with the least
 * squared error, each weight's multiplied by its `importance`. */
crumb_grid crumb_grid_fit_best(const double *w, const double *importance, uint64_t n, unsigned bits);

/* The code nearest to w. */
static inline unsigned crumb_grid_code(const crumb_grid *g, double w) {
    const double code = g->scale > 0 ? round(w / (double)g->scale) + g->zero : g->zero;
    return code < 0 ? 0 : code > g->max_code ? g->max_code : (unsigned)code;
}
static inline float crumb_grid_value(const crumb_grid *g, unsigned code) {
    return g->scale * (float)((int)code - g->zero);
}

/* A matrix of codes: m rows of k columns. Column c has the grid `group_of[c]` of its row. */
typedef struct crumb_coded {
    uint64_t m, k, group, n_groups; /* group: columns that share a grid; the last may be shorter */
    unsigned bits;
    uint8_t *codes;     /* [m][k] */
    crumb_grid *grids;  /* [m][n_groups] */
    uint32_t *group_of; /* [k]; at first c / group */
} crumb_coded;

/* Freed by crumb_coded_free, also where it fails. */
crumb_status crumb_coded_alloc(uint64_t m, uint64_t k, uint64_t group, unsigned bits, crumb_coded *out,
                               crumb_error *err);
void crumb_coded_free(crumb_coded *c);

/* Columns of a group. */
static inline uint64_t crumb_coded_group_size(const crumb_coded *c, uint64_t group) {
    return group + 1 < c->n_groups ? c->group : c->k - group * c->group;
}

/* Row `row` from k weights: each group's grid, and for each weight the nearest code. `room`: k numbers. */
void crumb_coded_round_row(crumb_coded *c, uint64_t row, const float *weights, double *room);
/* The k weights that row `row` stands for. */
void crumb_coded_row(const crumb_coded *c, uint64_t row, float *out);

#endif
