/* Encoding floats in the types of files. */
#ifndef CRUMB_LOWBIT_ENCODE_H
#define CRUMB_LOWBIT_ENCODE_H

#include "host/lowbit/types.h"

typedef enum crumb_encode_method {
    /* To the nearest code: byte for byte as the `gguf` package does (Q8_0, Q4_0, Q4_1, TQ1_0, TQ2_0, MXFP4, F16, BF16)
     * and llama-quantize --pure (these and Q1_0, Q2_0). I2_S is nobody's there: as ABSMEAN. */
    CRUMB_ENCODE_RTN,
    /* To ParetoQ's four stretched levels, -3, -1, 1 and 3 times a unit, the one with the least squared error: Q4_0 (a
     * unit per 32 weights), Q2_K (a multiple, 0 to 5, of a unit per 256 for each 16). Weights that lie on such levels
     * keep them, and stay exact where an f16 is their unit. */
    CRUMB_ENCODE_SEQ,
    /* Ternary as BitNet b1.58 trains: one scale per tensor (crumb_ternary_scale): I2_S, TQ1_0, TQ2_0. */
    CRUMB_ENCODE_ABSMEAN,
} crumb_encode_method;

/* Whether crumb_type_encode_row can write a type by a method. */
bool crumb_type_can_encode(crumb_type type, crumb_encode_method method);
/* Whether it needs the scale of the whole tensor for that. */
bool crumb_type_needs_tensor_scale(crumb_type type, crumb_encode_method method);

/* One row of k weights, whole blocks of them, to crumb_type_row_bytes bytes. tensor_scale is ignored where it is not
 * needed. */
void crumb_type_encode_row(crumb_type type, crumb_encode_method method, const float *row, uint64_t k,
                           float tensor_scale, uint8_t *out);

/* Whether f16 is as good for this scale as for a weight: rounded to f16 it is off by 2^-11 of itself at most. Scales of
 * 6e-5 to 65504 are such, and all f16. */
bool crumb_f16_is_near(float scale);

/* A block of 32 weights of INT2, INT3, INT4 or INT8 as one of Q4_0 or Q8_0, where that has all values code - zero, and
 * an f16 is near the scale, which is rounded to it. Else false, and nothing is written; always of groups of 16, of
 * which no type of GGUF has such scales. */
bool crumb_type_recode_block(crumb_type from, const uint8_t *block, crumb_type to, uint8_t *out);

/* Whether writing a block of `to` by a method keeps the codes of the weights in it, and rounds nothing but their scale,
 * to an f16 that is near: `blocks` are as many of `from` as have its weights. Q4_0 and Q8_0 as above; Q1_0 and TQ2_0 of
 * blocks of INT2 that have one scale and no values but -1 and 1 (and 0); by CRUMB_ENCODE_SEQ Q4_0 and Q2_K of ParetoQ's
 * four levels with one unit. */
bool crumb_type_keeps_codes(crumb_type from, const uint8_t *blocks, crumb_type to, crumb_encode_method method);

/* What a ternary tensor's scale depends on, added up over all rows of a tensor (start with zeros). */
typedef struct crumb_ternary_sums {
    double abs;    /* sum of magnitudes */
    uint64_t n;    /* weights */
    float largest; /* magnitude */
    float other;   /* a magnitude that is neither 0 nor the largest so far; 0: there was none */
} crumb_ternary_sums;
void crumb_ternary_sums_add(crumb_ternary_sums *sums, const float *row, uint64_t k);
void crumb_ternary_sums_join(crumb_ternary_sums *sums, const crumb_ternary_sums *others);
/* The magnitude that all weights but zeros have, where there is one: weights trained so stay exact. Else their mean
 * magnitude, as BitNet's training rounds with. */
float crumb_ternary_scale(const crumb_ternary_sums *sums);

#endif
