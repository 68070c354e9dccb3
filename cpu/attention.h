/* Attention over the KV cache: how keys and values are stored, and the kernels that read them. One table of functions
 * per element type and tier; every tier computes the same sequence of operations as cpu/ref, bit for bit.
 *
 * Keys are taken in chunks of CRUMB_ATTENTION_CHUNK positions, counted from 0, always the same:
 *     s[j] = scale * q . k[j]
 *     m = max s, p[j] = exp(s[j] - m)
 *     l = sum p[j]                     lane j % 8 of eight, j rising; then lanes i and i + 4, i + 2, i + 1
 *     o[d] = sum_j p[j] * v[j][d]
 * and the chunks' (m, l, o) are merged in rising order. Nothing in it depends on how many rows are evaluated together,
 * on which thread takes a chunk, or on the row's later neighbours, so neither does the result.
 *
 * Both types keep blocks of CRUMB_KEY_BLOCK positions. Keys are transposed within a block, so that vector lanes are
 * positions and no horizontal sum is needed.
 *
 * f16: keys [head_dim][16], values [16][head_dim].
 *     q . k[j] and o[d]: one fused multiply-add per d or j, rising.
 *
 * q8: int8, one f16 scale per position and group of 32 dimensions: 8.5 bits per value. A block is scales [group][16],
 * then codes. Keys: [head_dim/2][16][2]; values: [group][16/2][group's dimensions][2]; so that a pair of codes meets a
 * pair of int16 in one instruction. head_dim is padded to a multiple of 8, the padding is 0.
 *     turning:  keys have a few dimensions that are ten times larger than the others, which then lose what they hold to
 *               the common step. So each group of a key, and of a query, is multiplied by the Hadamard matrix H of
 * order n, the largest power of 2 that divides its length: sum(q * k) = sum(Hq / n * Hk), and the large ones are spread
 * over all. In float: (a, b) -> (a + b, a - b) at distances 1, 2, ... n / 2. storing:  a = max |x| of the group, scale
 * = f16(a / 127), code = clamp(round(x / scale), -127, 127), where the division is a multiplication by 1 / scale; scale
 * 0: all codes are 0 queries:  int16, one scale per head: a = max |q|, code = round(q * (32767 / a)). 16 bits and not
 * 8, because the products' instruction takes 16 in any case, and the error is then the keys' alone q . k[j]: S = the
 * exact int32 sum of each group (below 2^27), acc = fma((float)S, scale, acc) for rising groups, then acc * (a / 32767)
 *     o[d]:     w[j] = p[j] * scale[j], b = max w over the chunk's keys, W[j] = round(w[j] * (32767 / b)),
 *               S = the exact int32 sum of W[j] * code (below 2^29), o[d] = (float)S * (b / 32767)
 *     An a or b below CRUMB_QUANTIZE_TINY counts as 0. What becomes of NaN and infinities is not specified, but stays
 *     in bounds.
 */
#ifndef CRUMB_CPU_ATTENTION_H
#define CRUMB_CPU_ATTENTION_H

#include "cpu/kernels.h"

enum { CRUMB_ATTENTION_CHUNK = 128, CRUMB_KEY_BLOCK = 16, CRUMB_KV_GROUP = 32 };

/* `ahead`, in what reads the cache: what will be read next. As many bytes as the call reads are fetched from there
 * while it computes; a core's own prefetcher starts anew at every chunk and would leave memory idle half of the time.
 * Any address will do. */
typedef struct crumb_kv_ops {
    /* Bytes of a block of 16 positions' keys, and of their values, of one head. */
    size_t (*block_bytes)(uint32_t head_dim);
    /* Stores the key and the value of the position `place` of a block. Positions of a block may be stored at the same
     * time by different threads. */
    void (*store)(const float *key, const float *value, uint32_t head_dim, uint32_t place, void *keys, void *values);
    /* Queries in the form that `scores` wants: bytes of one, a multiple of 4; and making n_rows of them from
     * [n_rows][head_dim]. */
    size_t (*query_bytes)(uint32_t head_dim);
    void (*prepare)(const float *q, uint32_t n_rows, uint32_t head_dim, void *queries);
    /* s[r * CHUNK + j] = q[r] . k[j] for all keys of n_blocks blocks, not yet scaled. */
    void (*scores)(const void *queries, uint32_t n_rows, uint32_t head_dim, const void *keys, uint32_t n_blocks,
                   const char *ahead, float *s);
    /* s[r] -> p[r] in place for the first n_keys[r] scores of each row; sets m[r] and l[r]. Up to the next multiple of
     * 16 is overwritten; nothing of a row without keys is. */
    void (*softmax)(float *s, uint32_t n_rows, const uint32_t *n_keys, float scale, float *m, float *l);
    /* o[r][d] = sum over the first n_keys[r] (of up to CHUNK) keys of p[r * CHUNK + j] * v[j][d]. p has whole blocks.
     */
    void (*values)(const float *p, uint32_t n_rows, const uint32_t *n_keys, uint32_t head_dim, const void *values,
                   const char *ahead, float *o);
} crumb_kv_ops;

extern const crumb_kv_ops crumb_kv_f16__ref, crumb_kv_f16__avx2, crumb_kv_f16__avx512vnni;
extern const crumb_kv_ops crumb_kv_q8__ref, crumb_kv_q8__avx2, crumb_kv_q8__avxvnni, crumb_kv_q8__avx512ymm,
    crumb_kv_q8__avx512vnni;

const crumb_kv_ops *crumb_kv_ops_select(crumb_kv_type type, crumb_isa isa);

/* What ops of both types and of several tiers share. */
void crumb_softmax__ref(float *s, uint32_t n_rows, const uint32_t *n_keys, float scale, float *m, float *l);
void crumb_softmax__avx2(float *s, uint32_t n_rows, const uint32_t *n_keys, float scale, float *m, float *l);
void crumb_softmax__avx512vnni(float *s, uint32_t n_rows, const uint32_t *n_keys, float scale, float *m, float *l);
size_t crumb_kv_f16_block_bytes(uint32_t head_dim);
size_t crumb_kv_f16_query_bytes(uint32_t head_dim);
void crumb_kv_f16_prepare(const float *q, uint32_t n_rows, uint32_t head_dim, void *queries);
size_t crumb_kv_q8_block_bytes(uint32_t head_dim);
size_t crumb_kv_q8_query_bytes(uint32_t head_dim);

/* Multiplies n values, a group or less, by the Hadamard matrix; returns its order. */
uint32_t crumb_kv_turn(float *x, uint32_t n);

/* The parts of a q8 block. */
static inline uint32_t crumb_kv_groups(uint32_t head_dim) {
    return head_dim / CRUMB_KV_GROUP + (head_dim % CRUMB_KV_GROUP != 0);
}
/* Dimensions of a head, and of its group g, as they are stored. */
static inline size_t crumb_kv_stored_dims(uint32_t head_dim) {
    return ((size_t)head_dim + 7) / 8 * 8;
}
static inline uint32_t crumb_kv_group_width(uint32_t head_dim, uint32_t g) {
    size_t left = crumb_kv_stored_dims(head_dim) - (size_t)g * CRUMB_KV_GROUP;
    return left < CRUMB_KV_GROUP ? (uint32_t)left : CRUMB_KV_GROUP;
}
static inline size_t crumb_kv_codes_offset(uint32_t head_dim) {
    return (size_t)crumb_kv_groups(head_dim) * CRUMB_KEY_BLOCK * sizeof(uint16_t);
}

#endif
