/* Tiers that the test machine may lack, compiled a second time with their dot product replaced by an exact emulation.
 */
#ifndef CRUMB_TESTS_EMULATED_H
#define CRUMB_TESTS_EMULATED_H

#include "cpu/kernels.h"

/* Rows named as the registry's. They need AVX2. */
const crumb_cpu_kernel *crumb_emulated_kernels(size_t *n);

#endif
