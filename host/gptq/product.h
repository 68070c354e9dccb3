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
 * overlaps neither. What an element becomes depends on m, n and k and where in C it stands, and on nothing else:
 * whoever divides work among threads does so at fixed places, and results do not depend on how many there are. */
void crumb_product_subtract(uint64_t m, uint64_t n, uint64_t k, crumb_doubles a, const double *b, uint64_t b_row,
                            double *c, uint64_t c_row);

#endif
