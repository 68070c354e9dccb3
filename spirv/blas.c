/* CLBlast works through OpenCL, so that there is none here. */
#include "cl/blas.h"

crumb_status crumb_cl_blas_open(const crumb_device *d, crumb_cl_blas **out, crumb_error *err) {
    *out = NULL;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%s: CLBlast works through OpenCL only: --backend cl", d->label);
}

void crumb_cl_blas_close(crumb_cl_blas *blas) {
    (void)blas;
}

crumb_cl_code crumb_cl_blas_sgemm(const crumb_cl_blas *blas, const crumb_cl_sgemm *g, size_t n, crumb_cl_queue queue,
                                  crumb_cl_event *event) {
    (void)blas, (void)g, (void)n, (void)queue, (void)event;
    return -1; /* plans have no such launch */
}
