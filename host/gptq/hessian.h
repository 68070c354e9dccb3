/* The second derivatives of a linear layer's squared error by a row's weights, H = X^T X (its factor 2 / samples
 * changes no code), and the factor of its inverse that GPTQ works with. */
#ifndef CRUMB_GPTQ_HESSIAN_H
#define CRUMB_GPTQ_HESSIAN_H

#include "host/base/error.h"

typedef struct crumb_hessian {
    uint64_t k;
    double *h;       /* [k][k]: the lower triangle of H; after crumb_hessian_factor U, whose upper triangle is filled */
    uint32_t *order; /* [k] after crumb_hessian_factor: the column of the matrix that is rounded first, second ... */
    double *diagonal; /* [k] likewise, by column: of H before it is damped */
    bool *dead;       /* [k] likewise, by column: no input was ever other than 0 */
} crumb_hessian;

/* Zeros. Freed by crumb_hessian_free, also where it fails. Memory: 8 k^2 bytes. */
crumb_status crumb_hessian_alloc(uint64_t k, crumb_hessian *out, crumb_error *err);
void crumb_hessian_free(crumb_hessian *h);

/* H += X^T X for x, [n][k]. The result does not depend on the number of threads. */
crumb_status crumb_hessian_add(crumb_hessian *h, const float *x, uint64_t n, int n_threads, crumb_error *err);

/* H, plus `damping` times the mean of its diagonal there (columns that are dead have 1 instead of 0), with its rows and
 * columns in the order that they are rounded in: as they stand, or, where act_order, by falling diagonal. It becomes U,
 * upper triangular, with inverse(H) = U^T U. Fails with ARGUMENT where H is singular to working precision, as it can be
 * with little or no damping, and where inputs were not finite. */
crumb_status crumb_hessian_factor(crumb_hessian *h, double damping, bool act_order, int n_threads, crumb_error *err);

#endif
