#include "host/lowbit/types.h"

#include "host/base/checked.h"
#include "host/base/half.h"
#include "host/lowbit/tile.h"

#include <string.h>

static const crumb_type_info infos[CRUMB_TYPE_COUNT] = {
    [CRUMB_TYPE_F32] = {.name = "F32", .block = 1, .block_bytes = 4},
    [CRUMB_TYPE_F16] = {.name = "F16", .block = 1, .block_bytes = 2},
    [CRUMB_TYPE_BF16] = {.name = "BF16", .block = 1, .block_bytes = 2},
    [CRUMB_TYPE_Q4_0] = {.name = "Q4_0",
                         .block = 32,
                         .block_bytes = 18,
                         .bits = 4,
                         .max_code = 15,
                         .mul = 1,
                         .sub = 8,
                         .group = 32,
                         .act_rule = CRUMB_ACT_RULE_GROUP,
                         .codes_offset = 2},
    [CRUMB_TYPE_Q4_1] = {.name = "Q4_1",
                         .block = 32,
                         .block_bytes = 20,
                         .bits = 4,
                         .max_code = 15,
                         .mul = 1,
                         .group = 32,
                         .has_min = true,
                         .act_rule = CRUMB_ACT_RULE_GROUP,
                         .codes_offset = 4,
                         .min_offset = 2},
    [CRUMB_TYPE_Q8_0] = {.name = "Q8_0",
                         .block = 32,
                         .block_bytes = 34,
                         .bits = 8,
                         .max_code = 255,
                         .mul = 1,
                         .sub = 128,
                         .group = 32,
                         .act_rule = CRUMB_ACT_RULE_GROUP,
                         .codes_offset = 2},
    [CRUMB_TYPE_TQ1_0] = {.name = "TQ1_0",
                          .block = 256,
                          .block_bytes = 54,
                          .bits = 2,
                          .max_code = 2,
                          .mul = 1,
                          .sub = 1,
                          .group = 256,
                          .act_rule = CRUMB_ACT_RULE_ROW,
                          .scale_offset = 52},
    [CRUMB_TYPE_TQ2_0] = {.name = "TQ2_0",
                          .block = 256,
                          .block_bytes = 66,
                          .bits = 2,
                          .max_code = 2,
                          .mul = 1,
                          .sub = 1,
                          .group = 256,
                          .act_rule = CRUMB_ACT_RULE_ROW,
                          .scale_offset = 64},
    [CRUMB_TYPE_I2_S] = {.name = "I2_S",
                         .block = 128,
                         .block_bytes = 32,
                         .bits = 2,
                         .max_code = 2,
                         .mul = 1,
                         .sub = 1,
                         .act_rule = CRUMB_ACT_RULE_ROW,
                         .scale_kind = CRUMB_SCALE_TENSOR},
    /* Models in Q1_0, Q2_0 and PTQ1_0 were trained with low-bit weights but float activations: group scales lose less.
     */
    [CRUMB_TYPE_Q1_0] = {.name = "Q1_0",
                         .block = 128,
                         .block_bytes = 18,
                         .bits = 1,
                         .max_code = 1,
                         .mul = 2,
                         .sub = 1,
                         .group = 128,
                         .act_rule = CRUMB_ACT_RULE_GROUP,
                         .codes_offset = 2},
    [CRUMB_TYPE_Q2_0_G64] = {.name = "Q2_0",
                             .block = 64,
                             .block_bytes = 18,
                             .bits = 2,
                             .max_code = 3,
                             .mul = 1,
                             .sub = 1,
                             .group = 64,
                             .act_rule = CRUMB_ACT_RULE_GROUP,
                             .codes_offset = 2},
    [CRUMB_TYPE_Q2_0_G128] = {.name = "Q2_0_G128",
                              .block = 128,
                              .block_bytes = 34,
                              .bits = 2,
                              .max_code = 3,
                              .mul = 1,
                              .sub = 1,
                              .group = 128,
                              .act_rule = CRUMB_ACT_RULE_GROUP,
                              .codes_offset = 2},
    [CRUMB_TYPE_PTQ1_0] = {.name = "PTQ1_0",
                           .block = 128,
                           .block_bytes = 28,
                           .bits = 2,
                           .max_code = 2,
                           .mul = 1,
                           .sub = 1,
                           .group = 128,
                           .act_rule = CRUMB_ACT_RULE_GROUP,
                           .scale_offset = 26},
    [CRUMB_TYPE_Q5_0] = {.name = "Q5_0",
                         .block = 32,
                         .block_bytes = 22,
                         .bits = 5,
                         .max_code = 31,
                         .mul = 1,
                         .sub = 16,
                         .group = 32,
                         .act_rule = CRUMB_ACT_RULE_GROUP,
                         .codes_offset = 2},
    [CRUMB_TYPE_Q5_1] = {.name = "Q5_1",
                         .block = 32,
                         .block_bytes = 24,
                         .bits = 5,
                         .max_code = 31,
                         .mul = 1,
                         .group = 32,
                         .has_min = true,
                         .act_rule = CRUMB_ACT_RULE_GROUP,
                         .codes_offset = 4,
                         .min_offset = 2},
    [CRUMB_TYPE_Q2_K] = {.name = "Q2_K",
                         .block = 256,
                         .block_bytes = 84,
                         .bits = 2,
                         .max_code = 3,
                         .mul = 1,
                         .group = 16,
                         .has_min = true,
                         .act_rule = CRUMB_ACT_RULE_GROUP,
                         .scale_kind = CRUMB_SCALE_LEVELS,
                         .codes_offset = 16,
                         .scale_offset = 80,
                         .min_offset = 82},
    [CRUMB_TYPE_Q3_K] = {.name = "Q3_K",
                         .block = 256,
                         .block_bytes = 110,
                         .bits = 3,
                         .max_code = 7,
                         .mul = 1,
                         .sub = 4,
                         .group = 16,
                         .act_rule = CRUMB_ACT_RULE_GROUP,
                         .scale_kind = CRUMB_SCALE_LEVELS,
                         .scale_offset = 108},
    [CRUMB_TYPE_Q4_K] = {.name = "Q4_K",
                         .block = 256,
                         .block_bytes = 144,
                         .bits = 4,
                         .max_code = 15,
                         .mul = 1,
                         .group = 32,
                         .has_min = true,
                         .act_rule = CRUMB_ACT_RULE_GROUP,
                         .scale_kind = CRUMB_SCALE_LEVELS,
                         .codes_offset = 16,
                         .min_offset = 2},
    [CRUMB_TYPE_Q5_K] = {.name = "Q5_K",
                         .block = 256,
                         .block_bytes = 176,
                         .bits = 5,
                         .max_code = 31,
                         .mul = 1,
                         .group = 32,
                         .has_min = true,
                         .act_rule = CRUMB_ACT_RULE_GROUP,
                         .scale_kind = CRUMB_SCALE_LEVELS,
                         .codes_offset = 16,
                         .min_offset = 2},
    [CRUMB_TYPE_Q6_K] = {.name = "Q6_K",
                         .block = 256,
                         .block_bytes = 210,
                         .bits = 6,
                         .max_code = 63,
                         .mul = 1,
                         .sub = 32,
                         .group = 16,
                         .act_rule = CRUMB_ACT_RULE_GROUP,
                         .scale_kind = CRUMB_SCALE_LEVELS,
                         .scale_offset = 208},
    [CRUMB_TYPE_MXFP4] = {.name = "MXFP4",
                          .block = 32,
                          .block_bytes = 17,
                          .bits = 4,
                          .max_code = 15,
                          .mul = 1,
                          .group = 32,
                          .act_rule = CRUMB_ACT_RULE_GROUP,
                          .scale_kind = CRUMB_SCALE_E8M0,
                          .codebook = crumb_codebook_e2m1,
                          .codes_offset = 1},
    [CRUMB_TYPE_IQ4_NL] = {.name = "IQ4_NL",
                           .block = 32,
                           .block_bytes = 18,
                           .bits = 4,
                           .max_code = 15,
                           .mul = 1,
                           .group = 32,
                           .act_rule = CRUMB_ACT_RULE_GROUP,
                           .codebook = crumb_codebook_iq4_nl,
                           .codes_offset = 2},
#define INT_TYPE(name_, bits_, group_)                                                                                 \
    {.name = name_,                                                                                                    \
     .block = 32,                                                                                                      \
     .block_bytes = 32 / (group_) * 8 + 4 * (bits_),                                                                   \
     .bits = (bits_),                                                                                                  \
     .max_code = (1 << (bits_)) - 1,                                                                                   \
     .mul = 1,                                                                                                         \
     .sub = 1 << ((bits_) - 1),                                                                                        \
     .group = (group_),                                                                                                \
     .has_min = true,                                                                                                  \
     .act_rule = CRUMB_ACT_RULE_GROUP,                                                                                 \
     .scale_kind = CRUMB_SCALE_F32,                                                                                    \
     .codes_offset = 32 / (group_) * 8,                                                                                \
     .min_offset = 32 / (group_) * 4}
    /* f32 scales and mins of the groups, then the codes as a stream of bits, lowest first. The min makes up for a zero
     * point that is not the middle one: scale * (middle - zero), which a float holds exactly where the scale was an
     * f16. */
    [CRUMB_TYPE_INT2] = INT_TYPE("INT2", 2, 32),
    [CRUMB_TYPE_INT3] = INT_TYPE("INT3", 3, 32),
    [CRUMB_TYPE_INT4] = INT_TYPE("INT4", 4, 32),
    [CRUMB_TYPE_INT8] = INT_TYPE("INT8", 8, 32),
    [CRUMB_TYPE_INT2_G16] = INT_TYPE("INT2_G16", 2, 16),
    [CRUMB_TYPE_INT3_G16] = INT_TYPE("INT3_G16", 3, 16),
    [CRUMB_TYPE_INT4_G16] = INT_TYPE("INT4_G16", 4, 16),
    [CRUMB_TYPE_INT8_G16] = INT_TYPE("INT8_G16", 8, 16),
};

/* The ids of GGUF: what each is called, and which of crumb's types it is (COUNT: none). */
static const struct gguf_id {
    uint32_t id;
    const char *name;
    crumb_type type;
} gguf_ids[] = {
    {0, "F32", CRUMB_TYPE_F32},
    {1, "F16", CRUMB_TYPE_F16},
    {2, "Q4_0", CRUMB_TYPE_Q4_0},
    {3, "Q4_1", CRUMB_TYPE_Q4_1},
    {6, "Q5_0", CRUMB_TYPE_Q5_0},
    {7, "Q5_1", CRUMB_TYPE_Q5_1},
    {8, "Q8_0", CRUMB_TYPE_Q8_0},
    {9, "Q8_1", CRUMB_TYPE_COUNT},
    {10, "Q2_K", CRUMB_TYPE_Q2_K},
    {11, "Q3_K", CRUMB_TYPE_Q3_K},
    {12, "Q4_K", CRUMB_TYPE_Q4_K},
    {13, "Q5_K", CRUMB_TYPE_Q5_K},
    {14, "Q6_K", CRUMB_TYPE_Q6_K},
    {15, "Q8_K", CRUMB_TYPE_COUNT},
    {16, "IQ2_XXS", CRUMB_TYPE_COUNT},
    {17, "IQ2_XS", CRUMB_TYPE_COUNT},
    {18, "IQ3_XXS", CRUMB_TYPE_COUNT},
    {19, "IQ1_S", CRUMB_TYPE_COUNT},
    {20, "IQ4_NL", CRUMB_TYPE_IQ4_NL},
    {21, "IQ3_S", CRUMB_TYPE_COUNT},
    {22, "IQ2_S", CRUMB_TYPE_COUNT},
    {23, "IQ4_XS", CRUMB_TYPE_COUNT},
    {24, "I8", CRUMB_TYPE_COUNT},
    {25, "I16", CRUMB_TYPE_COUNT},
    {26, "I32", CRUMB_TYPE_COUNT},
    {27, "I64", CRUMB_TYPE_COUNT},
    {28, "F64", CRUMB_TYPE_COUNT},
    {29, "IQ1_M", CRUMB_TYPE_COUNT},
    {30, "BF16", CRUMB_TYPE_BF16},
    {34, "TQ1_0", CRUMB_TYPE_TQ1_0},
    {35, "TQ2_0", CRUMB_TYPE_TQ2_0},
    {36, "I2_S", CRUMB_TYPE_I2_S},
    {CRUMB_GGUF_ID_MXFP4, "MXFP4", CRUMB_TYPE_MXFP4},
    {40, "NVFP4", CRUMB_TYPE_COUNT},
    {41, "Q1_0", CRUMB_TYPE_Q1_0},
    {CRUMB_GGUF_ID_Q2_0, "Q2_0", CRUMB_TYPE_COUNT}, /* told apart by size */
    {142, "PQ2_0", CRUMB_TYPE_Q2_0_G128},
    {143, "PTQ1_0", CRUMB_TYPE_PTQ1_0},
};

const crumb_type_info *crumb_type_get_info(crumb_type type) {
    return &infos[type];
}

static const struct gguf_id *find_id(uint32_t id) {
    for (size_t i = 0; i < sizeof gguf_ids / sizeof *gguf_ids; i++)
        if (gguf_ids[i].id == id) return &gguf_ids[i];
    return NULL;
}

const char *crumb_type_gguf_name(uint32_t id) {
    const struct gguf_id *entry = find_id(id);
    return entry ? entry->name : NULL;
}

static crumb_status q2_0_from_size(uint32_t bytes_per_256, crumb_type *out, crumb_error *err) {
    if (bytes_per_256 == 72) return *out = CRUMB_TYPE_Q2_0_G64, CRUMB_OK;
    if (bytes_per_256 == 68) return *out = CRUMB_TYPE_Q2_0_G128, CRUMB_OK;
    if (bytes_per_256 == 42)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "type id 42 is here the sparse type of 42 bytes per 256 weights, "
                          "which crumb does not run; convert the model to TQ2_0");
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                      "type id 42 has several meanings, and the sizes of this file's "
                      "tensors do not tell which; convert the model to TQ2_0");
}

crumb_status crumb_type_from_gguf(uint32_t id, uint32_t bytes_per_256, crumb_type *out, crumb_error *err) {
    const struct gguf_id *entry = find_id(id);
    if (id == CRUMB_GGUF_ID_Q2_0) return q2_0_from_size(bytes_per_256, out, err);
    if (id == CRUMB_GGUF_ID_MXFP4 && bytes_per_256 != 136)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "type id 39 is MXFP4, but the sizes of this file's tensors are not: it may be TL2 of an old "
                          "fork, which crumb does not run; convert the model to TQ2_0");
    if (!entry)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "type id %u is unknown; convert the model to Q8_0, Q4_1 or TQ2_0",
                          id);
    if (entry->type == CRUMB_TYPE_COUNT)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "type %s (id %u) is not supported; convert the model to Q8_0, Q4_1 or TQ2_0", entry->name,
                          id);
    *out = entry->type;
    return CRUMB_OK;
}

crumb_status crumb_type_gguf_id(crumb_type type, uint32_t *out, crumb_error *err) {
    if (type == CRUMB_TYPE_Q2_0_G64) return *out = CRUMB_GGUF_ID_Q2_0, CRUMB_OK;
    for (size_t i = 0; i < sizeof gguf_ids / sizeof *gguf_ids; i++)
        if (gguf_ids[i].type == type) return *out = gguf_ids[i].id, CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "GGUF files have no type for %s weights", infos[type].name);
}

crumb_status crumb_type_tensor_bytes(crumb_type type, uint64_t m, uint64_t k, uint64_t *out, crumb_error *err) {
    const crumb_type_info *info = &infos[type];
    if (m == 0 || k == 0) return crumb_fail(err, CRUMB_ERR_FORMAT, "the tensor has no elements");
    if (k % info->block != 0)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "rows of %llu weights are not whole %s blocks of %u",
                          (unsigned long long)k, info->name, info->block);
    uint64_t row_bytes, extra = type == CRUMB_TYPE_I2_S ? 32 : 0;
    if (!crumb_mul_u64(k / info->block, info->block_bytes, &row_bytes) || !crumb_mul_u64(m, row_bytes, out) ||
        !crumb_add_u64(*out, extra, out))
        return crumb_fail(err, CRUMB_ERR_FORMAT, "the size of %llu x %llu weights overflows", (unsigned long long)m,
                          (unsigned long long)k);
    return CRUMB_OK;
}

uint64_t crumb_type_row_bytes(crumb_type type, uint64_t k) {
    return k / infos[type].block * infos[type].block_bytes;
}

float crumb_type_i2_s_scale(const uint8_t *tensor, uint64_t m, uint64_t k) {
    float scale;
    memcpy(&scale, tensor + m * crumb_type_row_bytes(CRUMB_TYPE_I2_S, k), 4);
    return scale;
}

void crumb_type_decode_row(crumb_type type, const uint8_t *row, uint64_t k, uint8_t *codes, float *scales,
                           float *mins) {
    const crumb_type_info *info = &infos[type];
    const bool levels = info->scale_kind == CRUMB_SCALE_LEVELS;
    const bool wide = info->scale_kind == CRUMB_SCALE_E8M0 || info->scale_kind == CRUMB_SCALE_F32;
    const uint32_t n_groups = info->group ? info->block / info->group : 0;
    for (uint64_t b = 0; b < k / info->block; b++) {
        const uint8_t *block = row + b * info->block_bytes;
        crumb_block_scales s;
        crumb_type_block_codes(type, block, codes + b * info->block);
        crumb_type_block_scales(type, block, &s);
        for (uint32_t g = 0; g < n_groups; g++) {
            const float scale = wide ? s.wide_scales[g] : crumb_f16_to_f32(s.scale);
            const float min = wide ? s.wide_mins[g] : crumb_f16_to_f32(s.min);
            scales[b * n_groups + g] = levels ? scale * (float)s.scales[g] : scale;
            if (info->has_min) mins[b * n_groups + g] = min * (levels ? (float)s.mins[g] : 1.0f);
        }
    }
}

static void dense_row_to_f32(crumb_type type, const uint8_t *row, uint64_t k, float *out) {
    if (type == CRUMB_TYPE_F32) {
        memcpy(out, row, k * 4);
        return;
    }
    for (uint64_t i = 0; i < k; i++) {
        uint16_t h = (uint16_t)(row[2 * i] | row[2 * i + 1] << 8);
        out[i] = type == CRUMB_TYPE_F16 ? crumb_f16_to_f32(h) : crumb_bf16_to_f32(h);
    }
}

void crumb_type_row_to_f32(crumb_type type, const uint8_t *row, uint64_t k, float tensor_scale, float *out) {
    const crumb_type_info *info = &infos[type];
    if (info->bits == 0) {
        dense_row_to_f32(type, row, k, out);
        return;
    }
    for (uint64_t b = 0; b < k / info->block; b++, row += info->block_bytes) {
        uint8_t codes[CRUMB_BLOCK_MAX] = {0};
        float scales[CRUMB_BLOCK_MAX_GROUPS] = {tensor_scale}, mins[CRUMB_BLOCK_MAX_GROUPS] = {0};
        const uint32_t group = info->group ? info->group : info->block;
        crumb_type_decode_row(type, row, info->block, codes, scales, mins);
        for (uint32_t i = 0; i < info->block; i++) {
            const int value = info->codebook ? info->codebook[codes[i]] : info->mul * codes[i] - info->sub;
            *out = scales[i / group] * (float)value;
            if (info->has_min) *out += mins[i / group];
            out++;
        }
    }
}
