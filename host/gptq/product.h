/* Products of matrices of doubles, which all that is slow in GPTQ consists of. */
#ifndef CRUMB_GPTQ_PRODUCT_H
#define CRUMB_GPTQ_PRODUCT_H

#include <stdint.h>

/* A matrix in memory: element (i, j) is at[i * row + j * column]. */
typedef struct crumb_doubles {
    const double *at;
    uint64_t row, column;
} crumb_doubles;

/* C -= A B, with C of m x n, whose rows are c_row apart, A of m x k and B of k x n, whose columns are neighbours. C
 * overlaps neither. How a sum is cut depends on k alone, so that results do not depend on how C is cut. */
void crumb_product_subtract(uint64_t m, uint64_t n, uint64_t k, crumb_doubles a, const double *b, uint64_t b_row,
                            double *c, uint64_t c_row);

#endif
