/* QIGen's kernels for AVX2. */
#include "cpu/avx2/simd.h"

#include "cpu/papers/qigen.h"

QIGEN_INSTANCE(2)
QIGEN_INSTANCE(3)
QIGEN_INSTANCE(4)
