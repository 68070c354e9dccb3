/* CLBlast's Sgemm for dense f32 weights, where a device has nothing better: loaded when `--target cl:RUNG+clblast` asks
 * for it. It is not taken by itself, because its sums' order depends on how many rows a batch has, so that a prompt in
 * pieces gives other last bits than in one.
 *
 * The rule, when it is asked for: f32 weights, a plan for 32 rows of activations or more, no bias, and what is added is
 * y itself. All memory of the device is then cl_mem, which is all that CLBlast takes.
 *
 * Its parameters are CLBlast's, or those of the environment variable CRUMB_CLBLAST_PARAMETERS, which are handed to
 * CLBlast's own override: "Xgemm GEMMK=0 KREG=1 KWG=32 ...; XgemmDirect WGD=16 ...", all that the kernel has.
 */
#ifndef CRUMB_CL_BLAS_H
#define CRUMB_CL_BLAS_H

#include "cl/memory.h"

typedef struct crumb_cl_blas crumb_cl_blas;

enum { CRUMB_CL_BLAS_MIN_ROWS = 32 };

/* Stays loaded with the program; `*out` is owned by the device. Fails with DEVICE where the library is not there, and
 * with ARGUMENT where its override refuses the parameters. */
crumb_status crumb_cl_blas_open(const crumb_device *d, crumb_cl_blas **out, crumb_error *err);
void crumb_cl_blas_close(crumb_cl_blas *blas);

/* y [n][y_width] from column y_column on = scale * x [n][k] * w^T (+ y), w being rows m0 to m1 of [..][k]. */
typedef struct crumb_cl_sgemm {
    void *x, *w, *y; /* cl_mem */
    size_t k, m0, m1, y_width;
    float scale;
    bool add; /* to what y holds */
} crumb_cl_sgemm;

crumb_cl_code crumb_cl_blas_sgemm(const crumb_cl_blas *blas, const crumb_cl_sgemm *g, size_t n, crumb_cl_queue queue,
                                  crumb_cl_event *event);

#endif
