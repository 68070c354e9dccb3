/* GPTQ (Frantar et al. 2022): a matrix's columns are rounded one after the other, and what each loses is made up for by
 * the columns that are still to come, as the second derivatives of the layer's error say. */
#ifndef CRUMB_GPTQ_SOLVE_H
#define CRUMB_GPTQ_SOLVE_H

#include "host/gptq/hessian.h"
#include "host/lowbit/grid.h"

/* Which columns share a grid where the order is not the matrix's. */
typedef enum crumb_gptq_order {
    CRUMB_GPTQ_ORDER_PLAIN,  /* columns as they stand */
    CRUMB_GPTQ_ORDER_STATIC, /* by importance; groups are neighbours in the matrix, their grids those of its weights */
    CRUMB_GPTQ_ORDER_FREE,   /* by importance; groups are neighbours in that order */
} crumb_gptq_order;

/* Rounds the rows of weights, [out->m][out->k]. `h`: factored, with act_order unless `order` is PLAIN. A group's grid
 * is fitted to its weights, by their columns' second derivatives, when its first column's turn comes (STATIC: at the
 * start). Rows are divided among threads;
 * the result does not depend on how many there are. */
crumb_status crumb_gptq_solve(const float *weights, const crumb_hessian *h, crumb_gptq_order order, int n_threads,
                              crumb_coded *out, crumb_error *err);

#endif
