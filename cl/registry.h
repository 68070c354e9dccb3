/* The registry of OpenCL kernels (cl/kernels.def, one row per variant): which kernel runs for an op, with which -D
 * options, work-groups and local memory. The only place where that is decided; a kernel's arguments are in the comment
 * that its file begins with.
 */
#ifndef CRUMB_CL_REGISTRY_H
#define CRUMB_CL_REGISTRY_H

#include "host/backend.h"

/* The ladder: what a device has decides how far up it may go. A rung's kernels also run on all rungs above it. */
typedef enum crumb_cl_rung {
    CRUMB_CL_PORTABLE, /* OpenCL C 1.2 */
    CRUMB_CL_DP4A,     /* cl_khr_integer_dot_product */
    CRUMB_CL_DPAS_I8,  /* Intel's matrix instructions on int8, other widths expanded in registers */
    CRUMB_CL_DPAS,     /* and on weights of 2 and 4 bits as they lie */
    CRUMB_CL_RUNG_COUNT
} crumb_cl_rung;

const char *crumb_cl_rung_name(crumb_cl_rung rung); /* "portable", "dp4a", "dpas-i8", "dpas" */
bool crumb_cl_rung_parse(const char *name, crumb_cl_rung *out);

typedef enum crumb_cl_op {
    CRUMB_CL_EMBED,
    CRUMB_CL_RMS_NORM,
    CRUMB_CL_QUANTIZE,
    CRUMB_CL_LINEAR,       /* weights in tiles, int8 activations */
    CRUMB_CL_LINEAR_F32,   /* weights in tiles, float activations */
    CRUMB_CL_LINEAR_DENSE, /* dense weights */
    CRUMB_CL_SPLIT,        /* activations to terms of 16 bits, for DENSE_MATRIX */
    CRUMB_CL_DENSE_MATRIX, /* dense weights of 16 bits, matrix instructions */
    CRUMB_CL_ROPE_STORE,
    CRUMB_CL_ATTENTION_SPLIT,
    CRUMB_CL_ATTENTION_WHOLE,
    CRUMB_CL_GATED,
    CRUMB_CL_SELECT,
    CRUMB_CL_TOP,
    CRUMB_CL_PLACE,
    CRUMB_CL_GATHER,
} crumb_cl_op;

/* The texts of linear layers with weights in tiles: they are called alike and differ in what fits them. */
typedef enum crumb_cl_form {
    CRUMB_CL_PLAIN, /* linear.cl */
    CRUMB_CL_GEMV,  /* gemv.cl */
    CRUMB_CL_GEMM,  /* gemm.cl */
} crumb_cl_form;

typedef struct crumb_cl_kernel {
    const char *name; /* "linear_u2_gemv__dp4a" */
    bool bf16;        /* -D VALUES=16: values between ops are bf16; its name ends with "_bf16" */
    crumb_cl_op op;
    const char *file, *entry; /* "linear.cl", "linear" */
    const char *options;      /* -D options that make it this variant */
    uint32_t local_size;
    /* Of linear layers: */
    crumb_cl_form form;
    crumb_cl_rung rung;
    uint8_t bits; /* of codes; 0: dense */
    bool codebook;
    uint8_t x;          /* 0: int8 activations from memory, or f32 that a work-group quantizes, by -D X; 32: f32 alone,
                           quantized in registers */
    uint8_t x_bits;     /* the BITS that quantize.cl is built with for it */
    bool x_pairs;       /* and its X_PAIRS */
    uint8_t x_rows;     /* and its X_ROWS */
    uint8_t sub_group;  /* 0: any */
    uint16_t registers; /* per thread: 256 is built with CRUMB_CL_LARGE_REGISTERS on Intel's GPUs */
    uint16_t tiles;     /* tile-rows of a work-group */
    uint16_t tokens;    /* rows of activations of a work-group */
    uint8_t step;       /* 32-blocks that gemv.cl or gemm.cl loads together; 0: each by itself */
    uint8_t slices;     /* of K, which a work-group's items divide */
    bool groups;        /* gemm.cl: also takes X_GROUP */
    uint32_t min_n;     /* rows of activations from and up to which it is meant to be used; it computes any */
    uint32_t max_n;
    int rank;         /* higher is preferred among those that fit */
    crumb_kv_type kv; /* of attention on matrix instructions: the caches that it serves */
    /* Of dense layers, which have tokens and max_n too; on matrix instructions also rung, sub_group and rank: */
    uint8_t type;  /* of weights: 16 f16, 17 bf16 */
    uint16_t rows; /* of weights, of a work-group */
} crumb_cl_kernel;

/* All rows of cl/kernels.def, those for values in bf16 behind those in f32. */
const crumb_cl_kernel *crumb_cl_kernels(size_t *n);
/* The row of an op that has one variant only, for values in bf16 or f32; of others the first. */
const crumb_cl_kernel *crumb_cl_kernel_of(crumb_cl_op op, bool bf16);

/* What of a device decides. */
typedef struct crumb_cl_target {
    crumb_cl_rung rung;   /* the highest that works */
    uint32_t sub_group;   /* of its matrix instructions: 16, 8, or 0 */
    uint64_t local_bytes; /* local memory of a work-group */
    uint32_t max_work_group;
    uint32_t xe_cores; /* 0: unknown */
    bool bf16;         /* values between ops are bf16: asked for */
    bool exact;        /* 16-bit floats are added up in the CPU's order, so not on matrix instructions: asked for */
    bool no_blocks;    /* sub-groups of 16 have no 2D block loads */
} crumb_cl_target;

/* How a linear layer with weights in tiles is called. */
typedef struct crumb_cl_linear {
    const crumb_matrix *w; /* of part 0; the other parts differ in m and pointers alone */
    crumb_act_quant act;   /* CRUMB_ACT_ROW or CRUMB_ACT_GROUP */
    uint32_t act_group;    /* for CRUMB_ACT_GROUP */
    uint32_t n_parts;      /* 1 to 3 */
    uint32_t gated;        /* 0; 1: silu, 2: relu^2 of part 0, times part 1 */
    uint32_t x;            /* 8 or 32, as in crumb_cl_kernel */
    uint32_t input;        /* INPUT of common.cl, 0 to 3: what is quantized, with x 32 by the kernel itself */
    bool ordered;          /* ORDER of common.cl: of columns in another order; by whom as of input */
    uint32_t tiles;        /* tile-rows that are computed, of all parts; 0: those of w */
    bool f32_results;      /* what bf16 rows write is f32: logits */
} crumb_cl_linear;

/* Whether two matrices may be parts of one launch. */
bool crumb_cl_linear_joins(const crumb_matrix *a, const crumb_matrix *b);
/* The kernel for n rows of activations: the highest rank that fits. Where that leaves engines of the GPU's Xe-cores
 * without a sub-group, as small matrices do, the row of the same text that has the most. NULL: nothing fits; with x 8
 * something of the portable rung always fits matrices of K' <= 65536 whose activation groups divide K'. */
const crumb_cl_kernel *crumb_cl_linear_select(const crumb_cl_linear *use, uint32_t n, const crumb_cl_target *target);
/* Whether a launch of quantize.cl with CRUMB_CL_ONLY_SCALES finds the rows' largest values for it. */
bool crumb_cl_linear_scaled(const crumb_cl_kernel *kernel);
/* Whether one may be taken: to force it by name, to test, to tune. */
bool crumb_cl_linear_fits(const crumb_cl_kernel *kernel, const crumb_cl_linear *use, const crumb_cl_target *target);
/* Work-items of a launch. */
uint64_t crumb_cl_linear_items(const crumb_cl_kernel *kernel, const crumb_cl_linear *use, uint32_t n);
/* Bytes of n rows of int8 activations, for whichever kernel, and where number k of row n stands among them: as
 * quantize.cl writes it. */
uint64_t crumb_cl_linear_x_bytes(uint32_t n, uint32_t k_padded);
uint64_t crumb_cl_linear_x_place(const crumb_cl_kernel *kernel, uint32_t k_padded, uint32_t n, uint32_t k);
/* Bytes of its `scratch` argument. */
uint64_t crumb_cl_linear_scratch_bytes(const crumb_cl_kernel *kernel, const crumb_cl_linear *use);

/* Dense weights on matrix instructions: the kernel for n rows of activations, or NULL: linear_dense.cl serves them all.
 * Whether there is one does not depend on n, and neither do results. Activations come from split.cl, or of one row from
 * x. */
const crumb_cl_kernel *crumb_cl_dense_select(const crumb_matrix *w, uint32_t n, const crumb_cl_target *target);
bool crumb_cl_dense_fits(const crumb_cl_kernel *kernel, const crumb_matrix *w, const crumb_cl_target *target);
/* That of linear_dense.cl for n rows: always one. */
const crumb_cl_kernel *crumb_cl_floats_select(uint32_t n, bool bf16);
/* How a launch with dense weights is called. */
typedef struct crumb_cl_dense {
    crumb_type type;
    uint32_t n_parts; /* 1 to 3; 1 where it does not join them */
    uint32_t gated;   /* 0; 1: silu, 2: relu^2 of part 0, times part 1 */
    bool norm;        /* it computes the norm of its input */
} crumb_cl_dense;
/* Whether it reads its input by itself, and no launch of split.cl comes before. */
bool crumb_cl_dense_owns(const crumb_cl_kernel *kernel);
/* Whether it takes several parts, and a gate. dense_matrix.cl's for many rows does not: in sub-groups of 8 choosing
 * among matrices costs its loop more instructions than tests/xe/machine_code.py allows. */
bool crumb_cl_dense_joins(const crumb_cl_kernel *kernel);
/* Bytes of split activations of n rows of k. */
uint64_t crumb_cl_split_bytes(uint32_t n, uint32_t k);

/* Attention's kernel, ATTENTION_SPLIT or ATTENTION_WHOLE: matrix instructions where the target has them and they serve
 * the heads and the cache, else, or of f16 caches with `exact`, the CPU's sequence of operations. Which it is does not
 * depend on the number of rows, and neither do results. */
typedef struct crumb_cl_heads {
    crumb_kv_type kv;
    uint32_t head_dim, n_head, n_head_kv;
} crumb_cl_heads;
const crumb_cl_kernel *crumb_cl_attention_select(crumb_cl_op op, const crumb_cl_heads *heads,
                                                 const crumb_cl_target *target);
/* Rows that a work-group of ATTENTION_WHOLE takes: what fits its local memory and registers. */
uint32_t crumb_cl_attention_rows(const crumb_cl_kernel *kernel, const crumb_cl_heads *heads,
                                 const crumb_cl_target *target);
/* Its options for that many rows; 1 for ATTENTION_SPLIT. standard: crumb_cl_standard's. */
void crumb_cl_attention_options(const crumb_cl_kernel *kernel, const crumb_cl_heads *heads, uint32_t rows,
                                const char *standard, char *out);
/* The option for the newest OpenCL C of a device, by its version ("OpenCL 3.0 ..."); empty: 1.2. Level Zero's have 3.0.
 */
const char *crumb_cl_standard(const char *version);

/* The longest text that the functions below write. */
enum { CRUMB_CL_OPTIONS_MAX = 512 };
/* What every program is built with, beside the options below. The language is OpenCL C 1.2, the default, but where a
 * row's own options say 3.0, and for ATTENTION_SPLIT, whose work-groups join, the newest of the device. */
#define CRUMB_CL_BUILD_OPTIONS "-cl-fp32-correctly-rounded-divide-sqrt"
/* Instead of that on devices that lack it (tgllp; dg2 by Level Zero's driver): common.cl's crumb_divide. */
#define CRUMB_CL_ROUND_DIVISION "-D ROUND_DIVISION=1"

/* Of quantize.cl, and of linear layers that quantize, where `ordered`; else nothing. */
#define CRUMB_CL_ORDERED         " -D ORDER=1"
#define CRUMB_CL_ONLY_SCALES     " -D ONLY_SCALES=1"
#define CRUMB_CL_LARGE_REGISTERS "-cl-intel-256-GRF-per-thread"
/* Of bf16 rows, which have it among their own; and behind it, where they write f32. */
#define CRUMB_CL_BF16_VALUES " -D VALUES=16"
#define CRUMB_CL_F32_RESULTS " -D RESULTS=32"

/* -D options. All write a zero-terminated text of less than CRUMB_CL_OPTIONS_MAX bytes. */
void crumb_cl_linear_options(const crumb_cl_kernel *kernel, const crumb_cl_linear *use, char *out);
/* Of quantize.cl for what such a kernel reads with x 8. */
void crumb_cl_quantize_options(const crumb_cl_kernel *kernel, const crumb_cl_linear *use, char *out);
/* Of split.cl for what such a kernel reads; `norm`: of x's RMS norm. */
void crumb_cl_split_options(const crumb_cl_kernel *dense, bool norm, char *out);
/* Of linear_dense.cl and dense_matrix.cl. */
void crumb_cl_dense_options(const crumb_cl_kernel *kernel, const crumb_cl_dense *use, char *out);
/* Of embed.cl and linear_f32.cl (with the kernel's own): the form of a matrix. */
void crumb_cl_matrix_options(const crumb_matrix *w, char *out);

#endif
