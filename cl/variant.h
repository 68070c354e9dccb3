/* A kernel of the registry with other parameters than its row has: what `crumb tune` searches. They change its speed
 * and not its results, and are written as "slices=4 tiles=8 fused=1":
 *
 * - tokens, slices, tiles: -D options of linear.cl, rows of activations, parts of K and tile-rows of a work-group
 * - tn, step: of gemv.cl and gemm.cl, tile-rows of a sub-group; of gemv.cl, 32-blocks that are loaded together
 * - tm, across: of gemm.cl, blocks of 8 rows of activations of a sub-group, and sub-groups of a work-group that take
 *   other tile-rows; it has slices with across=1 alone
 * - ahead: of gemm.cl, steps that are fetched ahead; nothing is in groups, where it is no knob
 * - registers: per thread, 128 or 256, on Intel's GPUs alone
 * - fused: 1: quantizes activations itself, in the same launch
 */
#ifndef CRUMB_CL_VARIANT_H
#define CRUMB_CL_VARIANT_H

#include "cl/registry.h"

typedef struct crumb_cl_variant {
    crumb_cl_kernel kernel; /* the row with these parameters; its options lie in this structure, so it is not copied */
    char options[192];
    uint32_t x; /* 8: int8 activations from memory; 32: quantized in the kernel */
} crumb_cl_variant;

/* The row as it stands. */
void crumb_cl_variant_of(const crumb_cl_kernel *row, crumb_cl_variant *out);
/* The row with knobs. False where a knob is unknown or not the row's, is what the row has anyway, or where a rule of
 * the kernel's file forbids the combination. */
bool crumb_cl_variant_make(const crumb_cl_kernel *row, const char *knobs, crumb_cl_variant *out);
/* Whether it works for a layer: crumb_cl_linear_fits, and rules that depend on both. use->x is the variant's. */
bool crumb_cl_variant_fits(const crumb_cl_variant *v, const crumb_cl_linear *use, const crumb_cl_target *target);

/* How many combinations of the row's knobs there are, the forbidden ones too; number 0 is the row itself, "". */
size_t crumb_cl_variant_count(const crumb_cl_kernel *row);
void crumb_cl_variant_print(const crumb_cl_kernel *row, size_t number, char *out, size_t size);

#endif
