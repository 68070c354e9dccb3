#include "tests/kernels/emulated.h"

enum { ACT_I8 = 1 << CRUMB_ACT_ROW | 1 << CRUMB_ACT_GROUP };

static const crumb_cpu_kernel kernels[] = {
#define EMULATED_ROW(op, form, code_bits, range, tier)                                                                 \
    {.name = #op "_" #form "_i8__" #tier,                                                                              \
     .bits = code_bits,                                                                                                \
     .acts = ACT_I8,                                                                                                   \
     .isa = CRUMB_ISA_AVX2,                                                                                            \
     .max_n = UINT32_MAX,                                                                                              \
     .run = crumb_##op##_##form##_i8__##tier##_emulated,                                                               \
     .codebook_range = range},
    EMULATED_FOR_ALL(EMULATED_ROW)
#define EMULATED_LAYOUT_ROW(kernel_name, code_bits, own_layout, tier)                                                  \
    {.name = #kernel_name "__" #tier,                                                                                  \
     .bits = code_bits,                                                                                                \
     .acts = ACT_I8,                                                                                                   \
     .isa = CRUMB_ISA_AVX2,                                                                                            \
     .max_n = UINT32_MAX,                                                                                              \
     .run = crumb_##kernel_name##__##tier##_emulated,                                                                  \
     .layout = &(own_layout)},
        EMULATED_FOR_LAYOUTS(EMULATED_LAYOUT_ROW)};

const crumb_cpu_kernel *crumb_emulated_kernels(size_t *n) {
    *n = sizeof kernels / sizeof kernels[0];
    return kernels;
}
