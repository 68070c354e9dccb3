#include "cpu/float.h"

const crumb_float_ops *crumb_float_ops_select(crumb_isa isa) {
    return isa >= CRUMB_ISA_AVX2 ? &crumb_float_ops__avx2 : &crumb_float_ops__ref;
}
