/* The registry: which kernel runs for a matrix and a batch. The only place where that is decided. */
#include "cpu/kernels.h"
#include "cpu/lowbit/gemm_shape.h"

#include "host/base/checked.h"

#include <string.h>

static const crumb_cpu_kernel kernels[] = {
#define CRUMB_CPU_KERNEL(name, op, bits, type, acts, isa, max_n, rank, bound, fn)                                      \
    {name, CRUMB_CPU_##op, bits, CRUMB_TYPE_##type, acts, CRUMB_ISA_##isa, max_n, rank, bound, fn, 0, NULL, 0},
#define CRUMB_CPU_CODEBOOK_KERNEL(name, op, range, acts, isa, max_n, rank, bound, fn)                                  \
    {name, CRUMB_CPU_##op, 4, CRUMB_TYPE_F32, acts, CRUMB_ISA_##isa, max_n, rank, bound, fn, range, NULL, 0},
#define CRUMB_CPU_INDEX_KERNEL(name, op, bits, acts, isa, max_n, rank, layout, bound, fn)                              \
    {name, CRUMB_CPU_##op, bits, CRUMB_TYPE_F32, acts, CRUMB_ISA_##isa, max_n, rank, bound, fn, 0, &layout, 0},
#define CRUMB_CPU_PAPER_KERNEL(name, op, bits, acts, isa, layout, max_nmse, bound, fn)                                 \
    {name, CRUMB_CPU_##op, bits,    CRUMB_TYPE_F32, acts, CRUMB_ISA_##isa, UINT32_MAX, -1, bound, fn,                  \
     0,    &layout,        max_nmse},
#include "cpu/kernels.def"
#undef CRUMB_CPU_KERNEL
#undef CRUMB_CPU_CODEBOOK_KERNEL
#undef CRUMB_CPU_INDEX_KERNEL
#undef CRUMB_CPU_PAPER_KERNEL
};

const crumb_cpu_kernel *crumb_cpu_kernels(size_t *n) {
    *n = sizeof kernels / sizeof kernels[0];
    return kernels;
}

static bool is_narrow(const int8_t *codebook) {
    const crumb_codebook_range range = crumb_codebook_get_range(codebook);
    return range.high - range.low <= CRUMB_CODEBOOK_NARROW;
}

static bool takes_codebook(const crumb_cpu_kernel *kernel, const int8_t *codebook) {
    const crumb_codebook_range range = crumb_codebook_get_range(codebook);
    if (kernel->codebook_range == CRUMB_CODEBOOK_SIGNED) return range.low > INT8_MIN;
    if (kernel->codebook_range == CRUMB_CODEBOOK_WIDE) return !is_narrow(codebook);
    return range.high - range.low <= kernel->codebook_range;
}

bool crumb_cpu_kernel_takes(const crumb_cpu_kernel *kernel, const crumb_matrix *w) {
    if (kernel->bits != w->bits) return false;
    if (w->bits == 0) return kernel->dense_type == w->type;
    if (w->k > CRUMB_LINEAR_MAX_K) return false;
    const bool halves = kernel->layout && kernel->layout->halves;
    const bool plain = w->group % (CRUMB_TILE_K / (halves ? 2 : 1)) == 0 && !w->super_group;
    if (kernel->rank < 0 && !plain) return false; /* the papers' */
    if (kernel->layout && kernel->layout->takes && !kernel->layout->takes(w)) return false;
    if (!w->codebook || !kernel->codebook_range) return !w->codebook == !kernel->codebook_range;
    return takes_codebook(kernel, w->codebook);
}

/* The layout of a tier's own GEMV on the index layout. */
static const crumb_cpu_layout *index_layout_of(unsigned bits, crumb_isa isa) {
    const crumb_cpu_kernel *best = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        const crumb_cpu_kernel *k = &kernels[i];
        if (k->bits != bits || !k->layout || !k->layout->indexed || !k->layout->prepare) continue;
        if (crumb_isa_includes(isa, k->isa) && (!best || k->rank > best->rank)) best = k;
    }
    return best ? best->layout : NULL;
}

bool crumb_cpu_kernel_finds_activations(const crumb_cpu_kernel *kernel, crumb_isa isa) {
    if (kernel->layout && kernel->layout->indexed && kernel->layout->prepare)
        return kernel->layout == index_layout_of(kernel->bits, isa);
    if (kernel->op != CRUMB_CPU_GEMM || !kernel->bits) return true;
    crumb_interleave_fn *own = crumb_cpu_interleave_select(kernel->isa);
    return !own || own == crumb_cpu_interleave_select(isa);
}

/* A GEMV folds the sums of a group for each row of activations by itself, so where groups are short the GEMM is faster
 * for fewer rows than max_n says, which holds for scales per row. */
static uint32_t most_rows(const crumb_cpu_kernel *kernel, const crumb_matrix *w) {
    if (kernel->op != CRUMB_CPU_GEMV || kernel->max_n <= 4 || w->group >= w->k) return kernel->max_n;
    return w->group >= 128 ? 4 : 3;
}

static bool fits(const crumb_cpu_kernel *kernel, const crumb_matrix *w, crumb_act_quant act, uint32_t n,
                 crumb_isa isa) {
    if (kernel->layout ? !(kernel->layout->indexed && w->indexed) : w->indexed) return false;
    if (!crumb_isa_includes(isa, kernel->isa) || !(kernel->acts >> act & 1)) return false;
    return n <= most_rows(kernel, w) && crumb_cpu_kernel_finds_activations(kernel, isa) &&
           crumb_cpu_kernel_takes(kernel, w);
}

const crumb_cpu_kernel *crumb_cpu_kernel_select(const crumb_matrix *w, crumb_act_quant act, uint32_t n, crumb_isa isa) {
    const crumb_cpu_kernel *best = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (fits(&kernels[i], w, act, n, isa) && (!best || kernels[i].rank > best->rank)) best = &kernels[i];
    return best;
}

const crumb_cpu_kernel *crumb_cpu_kernel_find(const char *name, const crumb_matrix *w, crumb_act_quant act, uint32_t n,
                                              crumb_isa isa) {
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (strcmp(kernels[i].name, name) == 0) return fits(&kernels[i], w, act, n, isa) ? &kernels[i] : NULL;
    return NULL;
}

const char *crumb_cpu_kernels_hash(void) {
    return CRUMB_CPU_KERNELS_HASH;
}

/* Bytes a cycle that a core gets from memory, up to which ternary weights at 1.6 bits, which take more operations, are
 * faster than at 2 (cpu/LIMITS.md): VBMI's products, look-ups. */
static double index_cycle_bytes(crumb_isa isa) {
    return isa >= CRUMB_ISA_AVX512VBMI ? 6 : 4;
}

/* 1 bit takes as many bytes either way; on zmm its products are faster than look-ups. */
uint32_t crumb_cpu_index_bits(crumb_isa isa, double cycle_bytes) {
    if (!crumb_isa_includes(isa, CRUMB_ISA_AVX2)) return 0;
    return (isa < CRUMB_ISA_AVX512VNNI ? 1u << 1 : 0) | (cycle_bytes <= index_cycle_bytes(isa) ? 1u << 2 : 0);
}

crumb_interleave_fn *crumb_cpu_interleave_select(crumb_isa isa) {
    switch (isa) {
    case CRUMB_ISA_AVX2: return crumb_interleave__avx2;
    case CRUMB_ISA_AVXVNNI:
    case CRUMB_ISA_AVXVNNIINT8: return crumb_interleave__avxvnni;
    case CRUMB_ISA_AVX512YMM:
    case CRUMB_ISA_AVX512VNNI:
    case CRUMB_ISA_AVX512VBMI: return crumb_interleave__avx512vnni;
    case CRUMB_ISA_SCALAR:
    case CRUMB_ISA_COUNT: break;
    }
    return NULL;
}

/* vpmaddubsw saturates with 8 bits on both sides, and vpmaddwd does not. */
uint8_t crumb_cpu_operand_bits(crumb_isa isa, const crumb_matrix *w) {
    return isa == CRUMB_ISA_AVX2 && w->codebook && !is_narrow(w->codebook) ? CRUMB_WIDE_BITS : w->bits;
}

uint32_t crumb_cpu_interleave_bytes(crumb_isa isa, unsigned operand_bits) {
    return isa == CRUMB_ISA_AVX2 && operand_bits >= 8 ? 2 : 1;
}

size_t crumb_cpu_kernel_scratch(const crumb_matrix *w, uint32_t n, const crumb_cpu_knobs *knobs) {
    uint32_t k_padded = (uint32_t)crumb_round_up(w->k, CRUMB_TILE_K);
    size_t row = k_padded * sizeof(float); /* one decoded row, for float activations */
    size_t gemm = w->bits ? crumb_gemm_scratch_bytes(n, k_padded, knobs) : 0;
    return row > gemm ? row : gemm;
}
