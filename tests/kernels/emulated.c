#include "tests/kernels/emulated.h"

enum { ACT_I8 = 1 << CRUMB_ACT_ROW | 1 << CRUMB_ACT_GROUP };

static const crumb_cpu_kernel kernels[] = {
#define EMULATED_ROW(op, code_bits, tier)                                                                              \
    {.name = #op "_u" #code_bits "_i8__" #tier,                                                                        \
     .bits = code_bits,                                                                                                \
     .acts = ACT_I8,                                                                                                   \
     .isa = CRUMB_ISA_AVX2,                                                                                            \
     .max_n = UINT32_MAX,                                                                                              \
     .run = crumb_##op##_u##code_bits##_i8__##tier##_emulated},
    EMULATED_FOR_ALL(EMULATED_ROW)};

const crumb_cpu_kernel *crumb_emulated_kernels(size_t *n) {
    *n = sizeof kernels / sizeof kernels[0];
    return kernels;
}
