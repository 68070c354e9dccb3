/* The kernels of all ops that are no low-bit or dense products, a row each: what the tiers' devices take, and what
 * `crumb kernels` lists, compares and times. All equal the references bit for bit. */
#ifndef CRUMB_CPU_OP_KERNELS_H
#define CRUMB_CPU_OP_KERNELS_H

#include "cpu/attention.h"
#include "cpu/float.h"
#include "host/kernel/op.h"

typedef struct crumb_cpu_op_kernel {
    const char *name; /* "attention_q8__avx2" */
    const char *op;   /* "attention" */
    crumb_op_kind kind;
    crumb_isa isa;
    int rank; /* the highest of those that a tier includes is taken */
    const char *bound;
    /* What it is, by its kind: */
    crumb_kv_type kv_type;         /* of ATTENTION */
    const crumb_kv_ops *kv;        /* of ATTENTION */
    const crumb_float_ops *floats; /* of RMS_NORM, ROPE and GATED */
    crumb_quantize_fn *quantize;   /* of LINEAR: its activations */
} crumb_cpu_op_kernel;

const crumb_cpu_op_kernel *crumb_cpu_op_kernels(size_t *n);

#endif
