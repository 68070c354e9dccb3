/* Tensor types on disk, one row per GGUF type id, and how each decodes into the logical low-bit form:
 *
 *     w[m,k] = scale[m,g] * (mul * u[m,k] - sub) + min[m,g]          g = k / group
 *
 * u is a code of `bits` bits; mul and sub are small integers of the type (Q4_0: u - 8, ternary: u - 1,
 * one bit: 2u - 1, Q8_0: u - 128). scale and min come from the file and are never rounded. A dense type (F32, F16,
 * BF16) has no codes.
 */
#ifndef CRUMB_LOWBIT_TYPES_H
#define CRUMB_LOWBIT_TYPES_H

#include "host/base/error.h"

typedef enum crumb_type {
    CRUMB_TYPE_F32,
    CRUMB_TYPE_F16,
    CRUMB_TYPE_BF16,
    CRUMB_TYPE_Q4_0,
    CRUMB_TYPE_Q4_1,
    CRUMB_TYPE_Q8_0,
    CRUMB_TYPE_TQ1_0,
    CRUMB_TYPE_TQ2_0,
    CRUMB_TYPE_I2_S,
    CRUMB_TYPE_Q1_0,
    CRUMB_TYPE_Q2_0_G64,
    CRUMB_TYPE_Q2_0_G128,
    CRUMB_TYPE_COUNT
} crumb_type;

/* How the activations that meet a type are quantized when the user does not say otherwise (lowbit.md). */
typedef enum crumb_act_rule {
    CRUMB_ACT_RULE_NONE,  /* dense weights: float activations */
    CRUMB_ACT_RULE_ROW,   /* trained with one scale per token: ternary */
    CRUMB_ACT_RULE_GROUP, /* quantized after training: one scale per weight group, 32 to 128 */
} crumb_act_rule;

typedef struct crumb_type_info {
    const char *name;     /* as llama.cpp prints it */
    uint32_t block;       /* weights per block on disk, along K; for I2_S 128 */
    uint32_t block_bytes; /* bytes per block (I2_S: 32, and one scale for the whole tensor behind all blocks) */
    uint8_t bits;         /* of a code; 0: dense */
    uint8_t max_code;     /* the largest code; ternary types stop at 2, and a 3 is damage */
    int16_t mul, sub;     /* w = scale * (mul * u - sub) + min */
    uint16_t group;       /* weights that share a scale; 0: the whole tensor */
    bool has_min;
    crumb_act_rule act_rule;
    uint8_t codes_offset, scale_offset, min_offset; /* within a block; scale and min are f16 (I2_S: not in the block) */
} crumb_type_info;

const crumb_type_info *crumb_type_get_info(crumb_type type);

/* The name that llama.cpp (or a fork) prints for a GGUF type id, also of types that crumb does not run; NULL: unknown.
 */
const char *crumb_type_gguf_name(uint32_t id);

/* Id 42 has several meanings, which only the size tells apart: bytes per 256 weights 72, 68 or 42. */
enum { CRUMB_GGUF_ID_Q2_0 = 42 };

/* Which type a GGUF id means. bytes_per_256 matters for id 42 only; 0: the size fits no meaning, or several. Fails with
 * UNSUPPORTED and a message that names the type and says what to do for ids that crumb does not run. */
crumb_status crumb_type_from_gguf(uint32_t id, uint32_t bytes_per_256, crumb_type *out, crumb_error *err);

/* Bytes of a tensor of m rows of k weights, checked: k must be whole blocks, nothing may overflow. */
crumb_status crumb_type_tensor_bytes(crumb_type type, uint64_t m, uint64_t k, uint64_t *out, crumb_error *err);

/* Bytes from one row of k weights to the next (I2_S: of codes; its scale stands behind all rows). */
uint64_t crumb_type_row_bytes(crumb_type type, uint64_t k);

/* I2_S: the tensor's scale, which stands behind the codes of its m rows. */
float crumb_type_i2_s_scale(const uint8_t *tensor, uint64_t m, uint64_t k);

/* Decodes one row of a low-bit type: k codes (one per byte), and per group the scale and, where the type has one, the
 * min (k / group values each, as float: exact, since files hold f16 or f32). For I2_S `row` is the row's codes and the
 * scale is not written. mins may be NULL where the type has none. */
void crumb_type_decode_row(crumb_type type, const uint8_t *row, uint64_t k, uint8_t *codes, float *scales, float *mins);

/* Any type to float: one row of k weights (embedding lookup, the float oracle). `tensor_scale` is I2_S's, else ignored.
 */
void crumb_type_row_to_f32(crumb_type type, const uint8_t *row, uint64_t k, float tensor_scale, float *out);

#endif
