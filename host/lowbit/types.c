#include "host/lowbit/types.h"

#include "host/base/checked.h"
#include "host/base/half.h"

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
                         .act_rule = CRUMB_ACT_RULE_ROW},
    /* Models in Q1_0 and Q2_0 were trained with low-bit weights but float activations: group scales lose less. */
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
};

/* The ids of GGUF: what each is called, and which of crumb's types it is (COUNT: none). */
static const struct gguf_id {
    uint32_t id;
    const char *name;
    crumb_type type;
} gguf_ids[] = {
    {0, "F32", CRUMB_TYPE_F32},           {1, "F16", CRUMB_TYPE_F16},
    {2, "Q4_0", CRUMB_TYPE_Q4_0},         {3, "Q4_1", CRUMB_TYPE_Q4_1},
    {6, "Q5_0", CRUMB_TYPE_COUNT},        {7, "Q5_1", CRUMB_TYPE_COUNT},
    {8, "Q8_0", CRUMB_TYPE_Q8_0},         {9, "Q8_1", CRUMB_TYPE_COUNT},
    {10, "Q2_K", CRUMB_TYPE_COUNT},       {11, "Q3_K", CRUMB_TYPE_COUNT},
    {12, "Q4_K", CRUMB_TYPE_COUNT},       {13, "Q5_K", CRUMB_TYPE_COUNT},
    {14, "Q6_K", CRUMB_TYPE_COUNT},       {15, "Q8_K", CRUMB_TYPE_COUNT},
    {16, "IQ2_XXS", CRUMB_TYPE_COUNT},    {17, "IQ2_XS", CRUMB_TYPE_COUNT},
    {18, "IQ3_XXS", CRUMB_TYPE_COUNT},    {19, "IQ1_S", CRUMB_TYPE_COUNT},
    {20, "IQ4_NL", CRUMB_TYPE_COUNT},     {21, "IQ3_S", CRUMB_TYPE_COUNT},
    {22, "IQ2_S", CRUMB_TYPE_COUNT},      {23, "IQ4_XS", CRUMB_TYPE_COUNT},
    {24, "I8", CRUMB_TYPE_COUNT},         {25, "I16", CRUMB_TYPE_COUNT},
    {26, "I32", CRUMB_TYPE_COUNT},        {27, "I64", CRUMB_TYPE_COUNT},
    {28, "F64", CRUMB_TYPE_COUNT},        {29, "IQ1_M", CRUMB_TYPE_COUNT},
    {30, "BF16", CRUMB_TYPE_BF16},        {34, "TQ1_0", CRUMB_TYPE_TQ1_0},
    {35, "TQ2_0", CRUMB_TYPE_TQ2_0},      {36, "I2_S", CRUMB_TYPE_I2_S},
    {39, "MXFP4", CRUMB_TYPE_COUNT},      {40, "NVFP4", CRUMB_TYPE_COUNT},
    {41, "Q1_0", CRUMB_TYPE_Q1_0},        {CRUMB_GGUF_ID_Q2_0, "Q2_0", CRUMB_TYPE_COUNT}, /* told apart by size */
    {142, "PQ2_0", CRUMB_TYPE_Q2_0_G128}, {143, "PTQ1_0", CRUMB_TYPE_COUNT},
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

/* ---- codes of one block, one per byte ---- */

static void codes_q4(const uint8_t *in, uint8_t *codes) {
    for (int j = 0; j < 16; j++) codes[j] = in[j] & 15, codes[16 + j] = in[j] >> 4;
}

static void codes_q8(const uint8_t *in, uint8_t *codes) {
    for (int j = 0; j < 32; j++) codes[j] = in[j] ^ 0x80; /* int8 to code: + 128 */
}

/* n_bytes bytes hold n_trits trits each, as a fraction of 3: trit t of byte i is code t * n_bytes + i. */
static void codes_trits(const uint8_t *in, int n_bytes, int n_trits, uint8_t *codes) {
    for (int i = 0; i < n_bytes; i++) {
        unsigned rest = in[i];
        for (int t = 0; t < n_trits; t++) {
            codes[t * n_bytes + i] = (uint8_t)(rest * 3 >> 8);
            rest = rest * 3 & 255;
        }
    }
}

static void codes_tq1_0(const uint8_t *in, uint8_t *codes) {
    codes_trits(in, 32, 5, codes);
    codes_trits(in + 32, 16, 5, codes + 160);
    codes_trits(in + 48, 4, 4, codes + 240);
}

static void codes_tq2_0(const uint8_t *in, uint8_t *codes) {
    for (int i = 0; i < 256; i++) codes[i] = in[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
}

static void codes_i2_s(const uint8_t *in, uint8_t *codes) {
    for (int i = 0; i < 128; i++) codes[i] = in[i % 32] >> (6 - 2 * (i / 32)) & 3;
}

static void codes_q1_0(const uint8_t *in, uint8_t *codes) {
    for (int i = 0; i < 128; i++) codes[i] = in[i / 8] >> i % 8 & 1;
}

static void codes_q2_0_g64(const uint8_t *in, uint8_t *codes) {
    for (int i = 0; i < 64; i++) codes[i] = in[i / 4] >> 2 * (i % 4) & 3;
}

static void codes_q2_0_g128(const uint8_t *in, uint8_t *codes) {
    codes_q2_0_g64(in, codes);
    codes_q2_0_g64(in + 16, codes + 64);
}

static void (*const block_codes[CRUMB_TYPE_COUNT])(const uint8_t *in, uint8_t *codes) = {
    [CRUMB_TYPE_Q4_0] = codes_q4,     [CRUMB_TYPE_Q4_1] = codes_q4,           [CRUMB_TYPE_Q8_0] = codes_q8,
    [CRUMB_TYPE_TQ1_0] = codes_tq1_0, [CRUMB_TYPE_TQ2_0] = codes_tq2_0,       [CRUMB_TYPE_I2_S] = codes_i2_s,
    [CRUMB_TYPE_Q1_0] = codes_q1_0,   [CRUMB_TYPE_Q2_0_G64] = codes_q2_0_g64, [CRUMB_TYPE_Q2_0_G128] = codes_q2_0_g128,
};

static float read_f16(const uint8_t *p) {
    return crumb_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

void crumb_type_decode_row(crumb_type type, const uint8_t *row, uint64_t k, uint8_t *codes, float *scales,
                           float *mins) {
    const crumb_type_info *info = &infos[type];
    for (uint64_t b = 0; b < k / info->block; b++) {
        const uint8_t *block = row + b * info->block_bytes;
        block_codes[type](block + info->codes_offset, codes + b * info->block);
        if (type != CRUMB_TYPE_I2_S) scales[b] = read_f16(block + info->scale_offset);
        if (info->has_min) mins[b] = read_f16(block + info->min_offset);
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
    for (uint64_t b = 0; b < k / info->block; b++, row += info->block_bytes, out += info->block) {
        uint8_t codes[256] = {0};
        float scale = tensor_scale, min = 0;
        crumb_type_decode_row(type, row, info->block, codes, &scale, &min);
        for (uint32_t i = 0; i < info->block; i++) out[i] = scale * (float)(info->mul * codes[i] - info->sub);
        if (info->has_min)
            for (uint32_t i = 0; i < info->block; i++) out[i] += min;
    }
}
