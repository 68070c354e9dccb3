/* Tensor types on disk, one row per GGUF type id, and how each decodes into the logical low-bit form:
 *
 *     w[m,k] = scale[m,g] * (mul * u[m,k] - sub) + min[m,g]          g = k / group
 *     w[m,k] = scale[m,g] * codebook[u[m,k]]                         where the type has a codebook
 *
 * u is a code of `bits` bits; mul and sub are small integers of the type (Q4_0: u - 8, ternary: u - 1,
 * one bit: 2u - 1, Q8_0: u - 128). scale and min come from the file and are never rounded; where a file has two levels
 * of them, an int8 of each group times an f16 of its block, they stay two. A dense type (F32, F16, BF16) has no codes.
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
    CRUMB_TYPE_PTQ1_0,
    CRUMB_TYPE_Q5_0,
    CRUMB_TYPE_Q5_1,
    CRUMB_TYPE_Q2_K,
    CRUMB_TYPE_Q3_K,
    CRUMB_TYPE_Q4_K,
    CRUMB_TYPE_Q5_K,
    CRUMB_TYPE_Q6_K,
    CRUMB_TYPE_MXFP4,
    CRUMB_TYPE_IQ4_NL,
    CRUMB_TYPE_GGUF_COUNT, /* the others are what packed safetensors become: no GGUF file has them */
    CRUMB_TYPE_INT2 = CRUMB_TYPE_GGUF_COUNT,
    CRUMB_TYPE_INT3,
    CRUMB_TYPE_INT4,
    CRUMB_TYPE_INT8,
    CRUMB_TYPE_INT2_G16,
    CRUMB_TYPE_INT3_G16,
    CRUMB_TYPE_INT4_G16,
    CRUMB_TYPE_INT8_G16,
    CRUMB_TYPE_COUNT
} crumb_type;

/* How the activations that meet a type are quantized when the user does not say otherwise (lowbit.md). */
typedef enum crumb_act_rule {
    CRUMB_ACT_RULE_NONE,  /* dense weights: float activations */
    CRUMB_ACT_RULE_ROW,   /* trained with one scale per token: ternary */
    CRUMB_ACT_RULE_GROUP, /* quantized after training: one scale per weight group, 16 to 128 */
} crumb_act_rule;

/* What a type's scales are on disk. */
typedef enum crumb_scale_kind {
    CRUMB_SCALE_F16,    /* one of each block, and so is the min */
    CRUMB_SCALE_TENSOR, /* one f32 behind the codes of the whole tensor */
    CRUMB_SCALE_E8M0,   /* of each block the exponent of a power of two */
    CRUMB_SCALE_F32,    /* one of each group, all of a block beside each other, and so are the mins */
    CRUMB_SCALE_LEVELS, /* two levels: of each group an int8, times an f16 of the block; mins as well */
} crumb_scale_kind;

enum { CRUMB_BLOCK_MAX = 256, CRUMB_BLOCK_MAX_GROUPS = 16, CRUMB_BLOCK_MAX_WIDE = 2 };

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
    crumb_scale_kind scale_kind;
    const int8_t *codebook; /* 16 values that 4-bit codes stand for, with mul 1 and sub 0; NULL: themselves */
    uint8_t codes_offset, scale_offset,
        min_offset; /* within a block: of its codes, its (first) scale or exponent, its (first) min */
} crumb_type_info;

const crumb_type_info *crumb_type_get_info(crumb_type type);

/* The name that llama.cpp (or a fork) prints for a GGUF type id, also of types that crumb does not run; NULL: unknown.
 */
const char *crumb_type_gguf_name(uint32_t id);

/* Ids with several meanings, which only the size tells apart. Bytes per 256 weights: 42 is 72 (groups of 64), 68 (of
 * 128) or 42 (sparse); 39 is 136 (MXFP4), or another type's in files of old forks. */
enum { CRUMB_GGUF_ID_MXFP4 = 39, CRUMB_GGUF_ID_Q2_0 = 42 };

/* Which type a GGUF id means. bytes_per_256 matters for these ids only; 0: the size fits no meaning, or several. Fails
 * with UNSUPPORTED and a message that names the type and says what to do for ids that crumb does not run. */
crumb_status crumb_type_from_gguf(uint32_t id, uint32_t bytes_per_256, crumb_type *out, crumb_error *err);

/* The id by which a GGUF file names a type; UNSUPPORTED for what only other files have. */
crumb_status crumb_type_gguf_id(crumb_type type, uint32_t *out, crumb_error *err);

/* Bytes of a tensor of m rows of k weights, checked: k must be whole blocks, nothing may overflow. */
crumb_status crumb_type_tensor_bytes(crumb_type type, uint64_t m, uint64_t k, uint64_t *out, crumb_error *err);

/* Bytes from one row of k weights to the next (I2_S: of codes; its scale stands behind all rows). */
uint64_t crumb_type_row_bytes(crumb_type type, uint64_t k);

/* I2_S: the tensor's scale, which stands behind the codes of its m rows. */
float crumb_type_i2_s_scale(const uint8_t *tensor, uint64_t m, uint64_t k);

/* What a block says beside its codes, as the file has it. */
typedef struct crumb_block_scales {
    uint16_t scale, min; /* f16; of two levels the upper ones. min is what is added, whichever sign the file gives it */
    float wide_scales[CRUMB_BLOCK_MAX_WIDE], wide_mins[CRUMB_BLOCK_MAX_WIDE]; /* instead, of CRUMB_SCALE_E8M0 and _F32:
                                                                                 of each group */
    int8_t scales[CRUMB_BLOCK_MAX_GROUPS], mins[CRUMB_BLOCK_MAX_GROUPS];      /* of two levels the lower ones */
} crumb_block_scales;

/* The codes of one block of a low-bit type, one per byte, and its scales (not of CRUMB_SCALE_TENSOR, which has none).
 */
void crumb_type_block_codes(crumb_type type, const uint8_t *block, uint8_t *codes);
void crumb_type_block_scales(crumb_type type, const uint8_t *block, crumb_block_scales *out);

/* Decodes one row of a low-bit type: k codes (one per byte), and per group the scale and, where the type has one, the
 * min (k / group values each, as float: exact, since files hold f16 or f32, and 8 + 11 bits of two levels fit). For
 * I2_S `row` is the row's codes and the scale is not written. mins may be NULL where the type has none. */
void crumb_type_decode_row(crumb_type type, const uint8_t *row, uint64_t k, uint8_t *codes, float *scales, float *mins);

/* Any type to float: one row of k weights (embedding lookup, the float oracle). `tensor_scale` is I2_S's, else ignored.
 */
void crumb_type_row_to_f32(crumb_type type, const uint8_t *row, uint64_t k, float tensor_scale, float *out);

#endif
