/* Tables of partial sums for GEMVs on the index layout (host/lowbit/index.h), in the manner of T-MAC and TL2
 * (cpu/papers/tmac.h, bitnet_tl.h), but exact in bytes.
 *
 * A table has 16 entries: what the codes that an index of 4 bits stands for make of their activations. A vpshufb reads
 * bytes, and an entry has 11 bits; so it is stored as two digits of base B, of which a few may be added before they
 * leave the range of a byte. Sums of digits are put together at the end, low + B * high. Of each line of weights the
 * tables of its first byte stand before those of its second, 16 bytes each, one per half of a vector:
 *
 *     1 bit     [low digits, high digits] of the indices in bits 0-3, then the same of bits 4-7
 *               B = 32, entries in [-512, 508]: low in [0, 31], high + 16 in [0, 31]; 8 of each fit into a byte
 *     ternary   [low, high] of index a, then of index b, b's at even indices
 *               B = 25, entries in [-384, 384]: low in [-12, 12], high in [-15, 15] (b: [-10, 10]); 5 lines of each fit
 */
#ifndef CRUMB_CPU_AVX2_TABLES_H
#define CRUMB_CPU_AVX2_TABLES_H

#include "cpu/kernels.h"

#include "host/lowbit/index.h"

enum {
    TRITS_UNIT_BYTES = 20, /* activations that meet two lines of ternary bytes */
    TABLES_LINE_BYTES = 4 * CRUMB_INDEX_LINE_BYTES,
    TABLES_BIT_BASE = 32,
    TABLES_BIT_BIAS = 16, /* of a high digit */
    TABLES_TRIT_BASE = 25
};

/* Bytes of the tables of one row of activations. */
size_t crumb_tables_b8_bytes(const crumb_linear_args *args);
size_t crumb_tables_t5_bytes(const crumb_linear_args *args);

/* The tables of all rows of args->x. */
void crumb_tables_b8__avx2(const crumb_linear_args *args, void *tables);
void crumb_tables_t5__avx2(const crumb_linear_args *args, void *tables);

/* For products (cpu/lowbit/gemv_trits.h) no tables, but the activations of all rows of args->x in another order: of
 * each 20 positions 0, 5, 10, 15, then 1, 6, 11, 16 and so on, with zeros behind the last one; rows are
 * crumb_trits_order_row bytes apart. */
size_t crumb_trits_order_row(const crumb_linear_args *args);
size_t crumb_trits_order_bytes(const crumb_linear_args *args);
void crumb_trits_order__avx2(const crumb_linear_args *args, void *ordered);

#endif
