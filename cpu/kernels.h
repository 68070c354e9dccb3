/* CPU kernels: what a kernel is called with, and the registry that prototype, dispatch, tests, benchmarks and listings
 * all come from (cpu/kernels.def, one row per variant).
 *
 * Low-bit linear layers. For weights in the tile layout (host/lowbit/tile.h) and int8 activations q,
 *
 *     S[n,m,g] = mul * sum(u*q) - sub * sum(q)                    exact int32, sums over k of group g
 *     row scales:    acc = fma(scale[m,g], (float)S, acc);  min: acc = fma(min[m,g], (float)qsum[n,g], acc)   for g
 * rising y[n,m] = acc * sx[n] group scales:  acc = fma(scale[m,g'], sx[n,g] * (float)S, acc);  min: acc =
 * fma(min[m,g'], sx[n,g] * (float)qsum[n,g], acc) y[n,m] = acc            g counts activation groups, g' = the weight
 * group that holds g
 *
 * Every variant of every ISA computes exactly this sequence in f32, so that all agree bit for bit with cpu/ref, for any
 * n, any split and any thread count.
 */
#ifndef CRUMB_CPU_KERNELS_H
#define CRUMB_CPU_KERNELS_H

#include "host/backend.h"
#include "host/lowbit/tile.h"

typedef enum crumb_isa {
    CRUMB_ISA_SCALAR,
    CRUMB_ISA_AVX2,       /* AVX2, FMA, F16C */
    CRUMB_ISA_AVXVNNI,    /* + AVX-VNNI */
    CRUMB_ISA_AVX512VNNI, /* AVX512 F BW VL DQ VNNI */
    CRUMB_ISA_COUNT
} crumb_isa;

const char *crumb_isa_name(crumb_isa isa);
crumb_isa crumb_isa_best(void);                         /* by CPUID and XGETBV */
bool crumb_isa_parse(const char *name, crumb_isa *out); /* "avx2" */

/* Quantized activations of n rows. K' = k rounded up to 32, padded with zeros. */
typedef struct crumb_q8 {
    int8_t *q;                /* [n][K'], each 32-block in plane order for the weights' bits */
    float *sx;                /* [n] (row) or [n][K'/group] */
    int32_t *qsum;            /* [n][K'/group]: sums of q per activation group (row scales: per weight group) */
    uint32_t k_padded, group; /* group: values per qsum, and per sx where there are group scales */
    bool row_scale;
} crumb_q8;

/* Quantizes rows [n0, n1) of x (f32, row stride x_stride floats). */
typedef void crumb_quantize_fn(const float *x, size_t x_stride, uint32_t k, unsigned bits, uint32_t n0, uint32_t n1,
                               const crumb_q8 *out);

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
    float out_scale;   /* y = result * out_scale + bias + add */
    const float *bias; /* [m] or NULL */
    void *scratch;     /* per thread, at least the row's scratch_bytes, 64-byte aligned */
    size_t scratch_bytes;
} crumb_linear_args;

typedef void crumb_linear_fn(const crumb_linear_args *args);

typedef enum crumb_cpu_op { CRUMB_CPU_GEMV, CRUMB_CPU_GEMM } crumb_cpu_op; /* N = 1; N >= 1 */

typedef struct crumb_cpu_kernel {
    const char *name; /* "gemv_u2_i8__avx2" */
    crumb_cpu_op op;
    uint8_t bits;          /* 0: dense of `dense_type` */
    crumb_type dense_type; /* when bits is 0 */
    crumb_act_quant act;   /* of host/backend.h */
    crumb_isa isa;
    uint32_t min_group; /* smallest weight group it serves */
    int rank;           /* higher is preferred among those that fit */
    const char *bound;  /* why nothing overflows: "42 steps of 3*128*2 in int16" */
    crumb_linear_fn *run;
} crumb_cpu_kernel;

/* All rows of cpu/kernels.def. */
const crumb_cpu_kernel *crumb_cpu_kernels(size_t *n);
/* The kernel for a matrix and a batch: the highest rank that fits the tier; the scalar reference always fits. */
const crumb_cpu_kernel *crumb_cpu_kernel_select(const crumb_matrix *w, crumb_act_quant act, uint32_t act_group,
                                                uint32_t n, crumb_isa isa);
crumb_quantize_fn *crumb_cpu_quantize_select(crumb_isa isa);
/* Scratch per thread that any kernel may need for this matrix and batch. */
size_t crumb_cpu_kernel_scratch(const crumb_matrix *w, uint32_t n);

#endif
