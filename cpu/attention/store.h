/* Storing in the KV cache and preparing 8-bit queries, as crumb_kv_ops' `store` and `prepare` (cpu/attention.h): one
 * version for every tier that has AVX2. */
#ifndef CRUMB_CPU_ATTENTION_STORE_H
#define CRUMB_CPU_ATTENTION_STORE_H

#include "cpu/attention.h"

void crumb_kv_f16_store__avx2(const float *key, const float *value, uint32_t head_dim, uint32_t place, void *keys,
                              void *values);
void crumb_kv_q8_store__avx2(const float *key, const float *value, uint32_t head_dim, uint32_t place, void *keys,
                             void *values);
void crumb_kv_q8_prepare__avx2(const float *q, uint32_t n_rows, uint32_t head_dim, void *queries);

#endif
