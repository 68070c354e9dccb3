/* The registry: which kernel runs for a matrix and a batch. The only place where that is decided. */
#include "cpu/kernels.h"
#include "cpu/lowbit/gemm_shape.h"

#include "host/base/checked.h"

static const crumb_cpu_kernel kernels[] = {
#define CRUMB_CPU_KERNEL(name, op, bits, type, acts, isa, max_n, rank, bound, fn)                                      \
    {name, CRUMB_CPU_##op, bits, CRUMB_TYPE_##type, acts, CRUMB_ISA_##isa, max_n, rank, bound, fn},
#include "cpu/kernels.def"
#undef CRUMB_CPU_KERNEL
};

const crumb_cpu_kernel *crumb_cpu_kernels(size_t *n) {
    *n = sizeof kernels / sizeof kernels[0];
    return kernels;
}

static bool fits(const crumb_cpu_kernel *kernel, const crumb_matrix *w, crumb_act_quant act, uint32_t n,
                 crumb_isa isa) {
    if (!crumb_isa_includes(isa, kernel->isa) || !(kernel->acts >> act & 1)) return false;
    if (kernel->bits != w->bits || n > kernel->max_n) return false;
    return w->bits ? w->k <= CRUMB_LINEAR_MAX_K : kernel->dense_type == w->type;
}

const crumb_cpu_kernel *crumb_cpu_kernel_select(const crumb_matrix *w, crumb_act_quant act, uint32_t n, crumb_isa isa) {
    const crumb_cpu_kernel *best = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (fits(&kernels[i], w, act, n, isa) && (!best || kernels[i].rank > best->rank)) best = &kernels[i];
    return best;
}

crumb_quantize_fn *crumb_cpu_quantize_select(crumb_isa isa) {
    return crumb_isa_includes(isa, CRUMB_ISA_AVX2) ? crumb_quantize__avx2 : crumb_quantize__ref;
}

crumb_interleave_fn *crumb_cpu_interleave_select(crumb_isa isa) {
    switch (isa) {
    case CRUMB_ISA_AVX2: return crumb_interleave__avx2;
    case CRUMB_ISA_AVXVNNI: return crumb_interleave__avxvnni;
    case CRUMB_ISA_AVX512VNNI: return crumb_interleave__avx512vnni;
    case CRUMB_ISA_SCALAR:
    case CRUMB_ISA_COUNT: break;
    }
    return NULL;
}

size_t crumb_cpu_kernel_scratch(const crumb_matrix *w) {
    uint32_t k_padded = (uint32_t)crumb_round_up(w->k, CRUMB_TILE_K);
    size_t row = k_padded * sizeof(float); /* one decoded row, for float activations */
    size_t gemm = w->bits ? crumb_gemm_scratch_bytes(k_padded) : 0;
    return row > gemm ? row : gemm;
}
