#include "tests/kernels/emulated.h"

#include <string.h>

enum { ACT_I8 = 1 << CRUMB_ACT_ROW | 1 << CRUMB_ACT_GROUP };

#define CRUMB_CPU_OP_gemv CRUMB_CPU_GEMV
#define CRUMB_CPU_OP_gemm CRUMB_CPU_GEMM

static const crumb_cpu_kernel kernels[] = {
#define EMULATED_ROW(kernel_op, form, code_bits, range, tier)                                                          \
    {.name = #kernel_op "_" #form "_i8__" #tier,                                                                       \
     .op = CRUMB_CPU_OP_##kernel_op,                                                                                   \
     .bits = code_bits,                                                                                                \
     .acts = ACT_I8,                                                                                                   \
     .isa = CRUMB_ISA_AVX2,                                                                                            \
     .max_n = UINT32_MAX,                                                                                              \
     .run = crumb_##kernel_op##_##form##_i8__##tier##_emulated,                                                        \
     .codebook_range = range},
    EMULATED_FOR_ALL(EMULATED_ROW)
#define EMULATED_LAYOUT_ROW(kernel_name, code_bits, activations, own_layout, tier)                                     \
    {.name = #kernel_name "__" #tier,                                                                                  \
     .bits = code_bits,                                                                                                \
     .acts = (activations),                                                                                            \
     .isa = CRUMB_ISA_AVX2,                                                                                            \
     .max_n = UINT32_MAX,                                                                                              \
     .run = crumb_##kernel_name##__##tier##_emulated,                                                                  \
     .layout = &(own_layout)},
        EMULATED_FOR_LAYOUTS(EMULATED_LAYOUT_ROW)};

const crumb_cpu_kernel *crumb_emulated_kernels(size_t *n) {
    *n = sizeof kernels / sizeof kernels[0];
    return kernels;
}

crumb_interleave_fn *crumb_emulated_interleave_of(const crumb_cpu_kernel *kernel) {
    static const struct {
        crumb_interleave_fn *real, *emulated;
    } twins[] = {{crumb_interleave__avxvnni, crumb_interleave__avxvnni_emulated},
                 {crumb_interleave__avx512vnni, crumb_interleave__avx512vnni_emulated}};
    crumb_isa isa;
    if (!crumb_isa_parse(strstr(kernel->name, "__") + 2, &isa)) return NULL;
    for (size_t i = 0; i < sizeof twins / sizeof twins[0]; i++)
        if (crumb_cpu_interleave_select(isa) == twins[i].real) return twins[i].emulated;
    return NULL;
}
