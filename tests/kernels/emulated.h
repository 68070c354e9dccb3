/* Tiers that the test machine may lack, compiled a second time with their dot product replaced by an exact emulation.
 */
#ifndef CRUMB_TESTS_EMULATED_H
#define CRUMB_TESTS_EMULATED_H

#include "cpu/kernels.h"

/* Rows named as the registry's, with functions of their own. They need AVX2. */
const crumb_cpu_kernel *crumb_emulated_kernels(size_t *n);

#define EMULATED_FOR_WIDTHS(X, op, tier) X(op, 1, tier) X(op, 2, tier) X(op, 4, tier) X(op, 8, tier)
#define EMULATED_FOR_ALL(X)                                                                                            \
    EMULATED_FOR_WIDTHS(X, gemv, avxvnni)                                                                              \
    EMULATED_FOR_WIDTHS(X, gemm, avxvnni)                                                                              \
    EMULATED_FOR_WIDTHS(X, gemv, avx512vnni)                                                                           \
    EMULATED_FOR_WIDTHS(X, gemm, avx512vnni)

#define EMULATED_PROTOTYPE(op, bits, tier) crumb_linear_fn crumb_##op##_u##bits##_i8__##tier##_emulated;
EMULATED_FOR_ALL(EMULATED_PROTOTYPE)

#endif
