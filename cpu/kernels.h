/* CPU kernels: what a kernel is called with, and the registry that prototypes, dispatch, tests, benchmarks and listings
 * all come from (cpu/kernels.def, one row per variant).
 *
 * Low-bit linear layers. For weights in the tile layout (host/lowbit/tile.h) and int8 activations q,
 *
 *     S[n,m,g] = mul * sum(u*q) - sub * sum(q)      exact int32, sums over the k of activation group g
 *     S[n,m,g] = sum(codebook[u]*q)                 where there is a codebook
 *
 * and then, in f32, for g rising from acc = 0 (g' is the weight group that holds activation group g):
 *
 *     row scales:    acc = fma(scale[m,g], (float)S, acc)
 *                    acc = fma(min[m,g], (float)qsum[n,g], acc)                 where there are mins
 *                    acc = acc * sx[n]                                          after the last group
 *     group scales:  acc = fma(scale[m,g'], sx[n,g] * (float)S, acc)
 *                    acc = fma(min[m,g'], sx[n,g] * (float)qsum[n,g], acc)      where there are mins
 *
 *     y[n,m] = acc * out_scale + bias[m] + add[n,m]             one multiplication, then two additions; absent terms
 *                                                               are left out, and so is an out_scale of 1
 *
 * Every variant of every ISA computes exactly this sequence, so that all agree bit for bit with cpu/ref, for any n, any
 * split and any thread count. S fits in int32 since K is at most CRUMB_LINEAR_MAX_K.
 */
#ifndef CRUMB_CPU_KERNELS_H
#define CRUMB_CPU_KERNELS_H

#include "host/backend.h"
#include "host/lowbit/q8.h"
#include "host/lowbit/tile.h"

typedef enum crumb_isa {
    CRUMB_ISA_SCALAR,
    CRUMB_ISA_AVX2,        /* AVX2, FMA, F16C */
    CRUMB_ISA_AVXVNNI,     /* + AVX-VNNI */
    CRUMB_ISA_AVXVNNIINT8, /* + AVX-VNNI-INT8 */
    CRUMB_ISA_AVX512YMM,   /* AVX2 tier + AVX512 F BW VL DQ VNNI, on ymm registers; says nothing of AVX-VNNI */
    CRUMB_ISA_AVX512VNNI,  /* the same on zmm registers */
    CRUMB_ISA_AVX512VBMI,  /* + AVX512 VBMI */
    CRUMB_ISA_COUNT
} crumb_isa;

const char *crumb_isa_name(crumb_isa isa);
bool crumb_isa_available(crumb_isa isa);                /* on this machine, by CPUID and XGETBV */
crumb_isa crumb_isa_best(void);                         /* the highest that is available */
bool crumb_core_is_intel(void);                         /* by CPUID */
bool crumb_isa_parse(const char *name, crumb_isa *out); /* "avx2" */
/* Whether code of tier `code` may run where `tier` is the tier in use. */
bool crumb_isa_includes(crumb_isa tier, crumb_isa code);

enum { CRUMB_LINEAR_MAX_K = 1 << 16 }; /* 2^16 * 255 * 128 < 2^31 */

/* Quantizes rows [n0, n1) of x (f32, row n at x + n * x_stride) into rows [n0, n1) of out, k values and zeros up to K',
 * in plane order for weights of `bits`. Exactly, in f32, a = the largest |x| of the row or group:
 *     row:    a = max(a, 1e-5), s = 127 / a, sx = a / 127
 *     group:  s = 127 / a, sx = a / 127; below CRUMB_QUANTIZE_TINY both are 0, since 127 / a could overflow
 *     q = clamp(round_half_even(x * s), -128, 127)
 * x must be finite; what becomes of NaN and infinities is not specified, but stays in bounds. */
typedef void crumb_quantize_fn(const float *x, size_t x_stride, uint32_t k, unsigned bits, uint32_t n0, uint32_t n1,
                               const crumb_q8 *out);
#define CRUMB_QUANTIZE_TINY 1e-30f

/* Fills rows [n0, n1) of x->interleaved [n][K'] for weights whose operands have so many bits (crumb_cpu_operand_bits):
 * once for all chunks of a layer, where a GEMM would do it for each. Codes have one byte, or two where
 * crumb_cpu_interleave_bytes says so. n0 is a multiple of CRUMB_INTERLEAVE_ROWS, n1 as well or the last row. */
typedef void crumb_interleave_fn(const crumb_q8 *x, unsigned operand_bits, uint32_t n0, uint32_t n1);
enum {
    CRUMB_WIDE_BITS = 16,       /* of operands that are a wide codebook's entries */
    CRUMB_INTERLEAVE_BYTES = 2, /* of a code, at most */
    CRUMB_INTERLEAVE_ROWS = 12, /* a multiple of every tier's register blocks */
    CRUMB_STRIP_TILES = 2,      /* tile-rows that a GEMM takes at once, in some tiers */
    CRUMB_STREAM_TILES = 4      /* and a GEMV */
};

/* What changes a kernel's speed and not its results: `crumb tune` finds values for a machine. 0 is a default. */
typedef struct crumb_cpu_knobs {
    uint32_t streams;    /* GEMV: tile-rows read at once: 1, 2, 4 */
    uint32_t unroll;     /* GEMV: lines of codes taken at once: 1, 2 */
    uint32_t near_bytes; /* GEMV: how far ahead in each stream lines are fetched into L1 */
    uint32_t far_kb;     /* and into L2; GEMV: not at all where that is no further; GEMM: 1 is not at all, and the
                          * default what the next panel is made of */
    uint32_t columns;    /* GEMM: the most of a block; the default follows L2 */
    uint32_t steps;      /* GEMM: of a panel; the default follows L1 */
    uint32_t share;      /* a batch of chunks is 1 / share of what is left (scheduler/chunks.h) */
    uint32_t threads;    /* the first so many of all compute, the others wait; all of them where there are no more */
} crumb_cpu_knobs;

typedef struct crumb_linear_args {
    const crumb_matrix *w;
    crumb_q8 x;      /* quantized activations (tile layout) */
    const float *xf; /* float activations (dense weights, or CRUMB_ACT_F32), stride xf_stride */
    size_t xf_stride;
    uint32_t n;            /* rows of activations */
    uint32_t tile0, tile1; /* rows 16*tile0 .. min(16*tile1, w->m) of the weights */
    float *y;              /* y[n*y_stride + m] */
    size_t y_stride;
    const float *add; /* residual, added last: y = result + add[n*add_stride + m]; NULL: none; may be y */
    size_t add_stride;
    float out_scale;   /* y = acc * out_scale + bias + add */
    const float *bias; /* [m] or NULL */
    void *scratch;     /* per thread, at least the row's scratch_bytes, 64-byte aligned */
    size_t scratch_bytes;
    crumb_cpu_knobs knobs;
    crumb_cpu_knobs *effect; /* not NULL: nothing is computed, but told what this call would make of the knobs, for
                              * kernels that have any; y, weights and activations need not be there */
    const void *packed;      /* for a kernel with a layout of its own: what its pack and prepare have made */
    const void *prepared;    /* of w and of all n rows of activations */
} crumb_linear_args;

typedef void crumb_linear_fn(const crumb_linear_args *args);

/* How weights and activations lie for a kernel that does not read tiles and plane-ordered activations. The papers'
 * layouts are there to be compared with (`crumb kernels perf`), and are never chosen for a model. The index layout
 * (host/lowbit/index.h) is: kernels with it are chosen for matrices that are kept so. */
typedef struct crumb_cpu_layout {
    const char *name;
    bool indexed;  /* the index layout */
    bool halves;   /* of a papers' kernel: it takes groups of 16, half of a block's K, too */
    uint32_t rows; /* of a block: a kernel's tile0 and tile1 (but for the last) are multiples of rows / 16 */
    /* Whether it can hold a matrix of the width that the kernel's row names; NULL: any. */
    bool (*takes)(const crumb_matrix *w);
    size_t (*packed_bytes)(const crumb_matrix *w);
    void (*pack)(const crumb_matrix *w, void *packed); /* w is in the tile layout; 64-byte aligned */
    /* NULL, as is prepare, where args->x serves as it is. For the index layout as many bytes for every row. */
    size_t (*prepared_bytes)(const crumb_linear_args *args);
    /* Once per input, before all threads: reorders args->x, or makes tables of it or of args->xf. */
    void (*prepare)(const crumb_linear_args *args, void *prepared);
} crumb_cpu_layout;

typedef enum crumb_cpu_op { CRUMB_CPU_GEMV, CRUMB_CPU_GEMM } crumb_cpu_op; /* n up to the row's max_n; any n */

/* What codebooks a kernel takes: those whose largest less smallest entry is at most a number, or one of: */
enum {
    CRUMB_CODEBOOK_NARROW = 31,  /* whose entries less the smallest are operands of 5 bits */
    CRUMB_CODEBOOK_SIGNED = 254, /* with entries from -127 to 127 */
    CRUMB_CODEBOOK_WIDE = 256,   /* all but the narrow ones */
};

typedef struct crumb_cpu_kernel {
    const char *name; /* "gemv_u2_i8__avx2" */
    crumb_cpu_op op;
    uint8_t bits;          /* 0: dense of `dense_type` */
    crumb_type dense_type; /* when bits is 0 */
    uint8_t acts;          /* bit 1 << CRUMB_ACT_...: the activations it takes */
    crumb_isa isa;
    uint32_t max_n;    /* rows of activations up to which it is meant to be used; it computes any */
    int rank;          /* higher is preferred among those that fit */
    const char *bound; /* why nothing overflows: "42 steps of 2 * 3 * 128 in int16" */
    crumb_linear_fn *run;
    int codebook_range;             /* 0: codes are values; else it takes codebooks (CRUMB_CODEBOOK_...) */
    const crumb_cpu_layout *layout; /* NULL: tiles */
    float max_nmse; /* 0: equals the reference bit for bit; else what the squared error of results stays below, as a
                     * part of crumb_trial_power */
} crumb_cpu_kernel;

/* All rows of cpu/kernels.def. */
const crumb_cpu_kernel *crumb_cpu_kernels(size_t *n);
/* Whether a kernel computes right what a matrix holds: its width of codes, its codebook or dense type. */
bool crumb_cpu_kernel_takes(const crumb_cpu_kernel *kernel, const crumb_matrix *w);
/* Whether it finds activations as the tier in use interleaves and prepares them, once for all parts of a layer: kernels
 * of other tiers may want them in another order. */
bool crumb_cpu_kernel_finds_activations(const crumb_cpu_kernel *kernel, crumb_isa isa);
/* The kernel for a matrix and a batch: the highest rank that fits the tier; the scalar reference always fits low-bit
 * matrices of K <= CRUMB_LINEAR_MAX_K. NULL when nothing fits. */
const crumb_cpu_kernel *crumb_cpu_kernel_select(const crumb_matrix *w, crumb_act_quant act, uint32_t n, crumb_isa isa);
/* The kernel of that name, if it fits as well; NULL. */
const crumb_cpu_kernel *crumb_cpu_kernel_find(const char *name, const crumb_matrix *w, crumb_act_quant act, uint32_t n,
                                              crumb_isa isa);
const char *crumb_cpu_kernels_hash(void); /* of the kernels' text: measurements of other text mean nothing */
/* 1 << bits of the matrices that are faster in the index layout, where they can have it, on cores of which each gets
 * so many bytes a cycle from memory while all read. */
uint32_t crumb_cpu_index_bits(crumb_isa isa, double cycle_bytes);
crumb_quantize_fn *crumb_cpu_quantize_select(crumb_isa isa);
crumb_interleave_fn *crumb_cpu_interleave_select(crumb_isa isa); /* NULL: the tier's GEMM reads q */
/* Bits of what the tier's GEMM multiplies: those of the codes, or of a wide codebook's entries. */
uint8_t crumb_cpu_operand_bits(crumb_isa isa, const crumb_matrix *w);
uint32_t crumb_cpu_interleave_bytes(crumb_isa isa, unsigned operand_bits);
/* Scratch bytes per thread that any kernel may need for this matrix, up to n rows of activations and these knobs. */
size_t crumb_cpu_kernel_scratch(const crumb_matrix *w, uint32_t n, const crumb_cpu_knobs *knobs);

/* Prototypes of every row. */
#define CRUMB_CPU_KERNEL(name, op, bits, type, acts, isa, max_n, rank, bound, fn)     crumb_linear_fn fn;
#define CRUMB_CPU_CODEBOOK_KERNEL(name, op, range, acts, isa, max_n, rank, bound, fn) crumb_linear_fn fn;
#define CRUMB_CPU_INDEX_KERNEL(name, op, bits, acts, isa, max_n, rank, layout, bound, fn)                              \
    crumb_linear_fn fn;                                                                                                \
    extern const crumb_cpu_layout layout;
#define CRUMB_CPU_PAPER_KERNEL(name, op, bits, acts, isa, layout, max_nmse, bound, fn)                                 \
    crumb_linear_fn fn;                                                                                                \
    extern const crumb_cpu_layout layout;
#include "cpu/kernels.def"
#undef CRUMB_CPU_KERNEL
#undef CRUMB_CPU_CODEBOOK_KERNEL
#undef CRUMB_CPU_INDEX_KERNEL
#undef CRUMB_CPU_PAPER_KERNEL
crumb_quantize_fn crumb_quantize__ref, crumb_quantize__avx2;
crumb_interleave_fn crumb_interleave__avx2, crumb_interleave__avxvnni, crumb_interleave__avx512vnni;

#endif
