/* The CPU's kernels for `crumb kernels` and `crumb tune`. */
#ifndef CRUMB_CPU_SUITE_H
#define CRUMB_CPU_SUITE_H

#include "host/kernel/suite.h"

extern const crumb_kernel_suite crumb_kernel_suite_cpu;

#endif
