/* Activations as int8, as linear layers read them. */
#ifndef CRUMB_LOWBIT_Q8_H
#define CRUMB_LOWBIT_Q8_H

#include <stdbool.h>
#include <stdint.h>

enum { CRUMB_Q8_REACH = 4 }; /* numbers per 32-block in reach */

/* Quantized activations of n rows. K' = k rounded up to 32, padded with zeros. */
typedef struct crumb_q8 {
    int8_t *q;           /* [n][K'], each 32-block in plane order for the weights' bits */
    float *sx;           /* [n] (row) or [n][K'/group] */
    int8_t *interleaved; /* NULL, or q once more in the order of the CPU tier's GEMM (crumb_interleave_fn) */
    uint16_t *reach;     /* beside interleaved: [n][K'/32][4], for GEMMs that sum in 16 bits (cpu/lowbit/dot16.h) */
    int32_t *qsum;       /* [n][K'/group]: sums of q per activation group (row scales: per weight group) */
    uint32_t k_padded, group; /* group: values per qsum, and per sx where there are group scales; divides K' */
    bool row_scale;
} crumb_q8;

#endif
