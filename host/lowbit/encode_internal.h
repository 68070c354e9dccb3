/* What the files of encoders share. */
#ifndef CRUMB_LOWBIT_ENCODE_INTERNAL_H
#define CRUMB_LOWBIT_ENCODE_INTERNAL_H

#include "host/lowbit/encode.h"

/* ---- encode.c ---- */

/* Two bytes of the value as f16. */
void crumb_put_f16(uint8_t *out, float value);
/* 32 codes of 4 bits: 16 bytes, each with code i below code i + 16. */
void crumb_put_nibbles(const uint8_t codes[32], uint8_t *out);
/* 128 codes of 2 bits: 32 bytes, each with the codes i, i + 32, i + 64, i + 96 from its lowest bits. */
void crumb_put_bit_pairs(const uint8_t codes[128], uint8_t *out);

/* ---- encode_seq.c: a block of CRUMB_ENCODE_SEQ ---- */

void crumb_encode_seq_q4_0(const float *x, uint8_t *out);
void crumb_encode_seq_q2_k(const float *x, uint8_t *out);

#endif
