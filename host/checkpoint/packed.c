/* Low-bit weights in safetensors: BitNet's, GPTQ's and AWQ's. Codes, scales and zero points become blocks of the types
 * that hold them exactly, w = scale * (code - zero). */
#include "host/base/file.h"
#include "host/base/half.h"
#include "host/base/memory.h"
#include "host/checkpoint/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 32,      /* weights of a block: as many 32-bit words as a code has bits */
    HALF_BLOCK = 16, /* the fewest that have a scale of their own in a block */
};

/* ---- shapes -------------------------------------------------------------------------------------------------- */

static crumb_status fail(const crumb_safetensors *files, const crumb_safetensor *t, const char *problem,
                         crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: tensor '%.80s': %s", crumb_safetensors_path(files, t), t->name,
                      problem);
}

const crumb_safetensor *checkpoint_beside(const crumb_safetensors *files, const checkpoint_tensor *t,
                                          const char *part) {
    char name[512];
    const char *dot = strrchr(t->from->name, '.');
    const int n = snprintf(name, sizeof name, "%.*s.%s", (int)(dot - t->from->name), t->from->name, part);
    return n > 0 && (size_t)n < sizeof name ? crumb_safetensors_find(files, name) : NULL;
}

static bool is_shaped(const crumb_safetensor *t, crumb_dtype dtype, uint64_t rows, uint64_t columns) {
    return t->dtype == dtype && t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == columns;
}

static bool is_float(crumb_dtype dtype) {
    return dtype == CRUMB_DTYPE_F16 || dtype == CRUMB_DTYPE_BF16 || dtype == CRUMB_DTYPE_F32;
}

static float load_float(const crumb_safetensors *files, const crumb_safetensor *t, uint64_t i) {
    return checkpoint_load_float(t->dtype, crumb_safetensors_data(files, t) + i * (t->n_bytes / t->n_values));
}

static crumb_status plan_bitnet(const crumb_safetensors *files, checkpoint_tensor *t, crumb_gguf_tensor *d,
                                crumb_error *err) {
    const crumb_safetensor *from = t->from;
    if (from->n_dims != 2 || from->n_values == 0 || from->dims[0] > UINT32_MAX)
        return fail(files, from, "not a matrix of packed rows", err);
    t->kind = CHECKPOINT_TERNARY;
    t->m = 4 * from->dims[0];
    t->k = from->dims[1];
    t->scales = checkpoint_beside(files, t, "weight_scale");
    if (!t->scales) return fail(files, from, "there is no weight_scale beside it", err);
    if (!is_float(t->scales->dtype) || t->scales->n_values != 1) return fail(files, t->scales, "not one number", err);
    d->type = CRUMB_TYPE_I2_S;
    return crumb_type_gguf_id(d->type, &d->type_id, err);
}

/* Shapes of both; of one column of words either 32 / bits columns (AWQ) or, as a stream of bits, 32 codes along K. */
static crumb_status check_grouped(const crumb_safetensors *files, checkpoint_tensor *t, crumb_error *err) {
    const crumb_safetensor *from = t->from;
    const bool awq = t->packing->method == CHECKPOINT_AWQ;
    const uint32_t bits = t->packing->bits;
    if (from->dtype != CRUMB_DTYPE_I32 || from->n_dims != 2 || from->n_values == 0 || from->dims[0] > UINT32_MAX ||
        from->dims[1] > UINT32_MAX)
        return fail(files, from, "not a matrix of I32", err);
    t->k = awq ? from->dims[0] : from->dims[0] * BLOCK / bits;
    t->m = awq ? from->dims[1] * 8 : from->dims[1];
    if (t->k % BLOCK != 0 || t->m % BLOCK != 0) return fail(files, from, "rows or columns are no multiple of 32", err);
    if (t->k > UINT32_MAX) return fail(files, from, "too many columns", err);
    const uint64_t group = t->packing->group ? t->packing->group : t->k, n_groups = (t->k + group - 1) / group;
    t->scales = checkpoint_beside(files, t, "scales");
    t->zeros = checkpoint_beside(files, t, "qzeros");
    t->group_of = awq ? NULL : checkpoint_beside(files, t, "g_idx");
    if (!t->scales || !t->zeros) return fail(files, from, "there are no scales and qzeros beside it", err);
    if (!is_float(t->scales->dtype) || !is_shaped(t->scales, t->scales->dtype, n_groups, t->m))
        return fail(files, t->scales, "its shape does not fit the weights, bits and group_size", err);
    if (!is_shaped(t->zeros, CRUMB_DTYPE_I32, n_groups, t->m * bits / 32))
        return fail(files, t->zeros, "its shape does not fit the weights, bits and group_size", err);
    if (t->packing->act_order && !t->group_of)
        return fail(files, from, "there is no g_idx beside it, though the folder's settings have desc_act", err);
    if (t->group_of &&
        (t->group_of->dtype != CRUMB_DTYPE_I32 || t->group_of->n_dims != 1 || t->group_of->dims[0] != t->k))
        return fail(files, t->group_of, "not an I32 for each column", err);
    return CRUMB_OK;
}

/* ---- columns and their groups -------------------------------------------------------------------------------- */

typedef struct ordering {
    const crumb_safetensors *files;
    const checkpoint_tensor *t;
    uint32_t *order; /* [k], by group; columns of one group stay in the order that they have */
    uint32_t *begin; /* [groups + 1]: where each group's columns begin there */
} ordering;

static uint32_t load_word(const uint8_t *words, uint64_t i) {
    uint32_t word;
    memcpy(&word, words + 4 * i, 4);
    return word;
}

static crumb_status group_of(const crumb_safetensors *files, const checkpoint_tensor *t, uint64_t k, uint64_t *out,
                             crumb_error *err) {
    *out = t->packing->group ? k / t->packing->group : 0;
    if (t->group_of) *out = load_word(crumb_safetensors_data(files, t->group_of), k);
    if (*out < t->scales->dims[0]) return CRUMB_OK;
    return fail(files, t->group_of ? t->group_of : t->from, "a group that there is no scale for; the file is damaged",
                err);
}

/* Runs inside crumb_file_guard. */
static crumb_status sort_columns(void *ctx, crumb_error *err) {
    const ordering *o = ctx;
    const uint64_t n_groups = o->t->scales->dims[0];
    uint64_t group;
    for (uint64_t i = 0; i < o->t->k; i++) {
        CRUMB_TRY(group_of(o->files, o->t, i, &group, err));
        o->begin[group + 1]++;
    }
    for (uint64_t g = 0; g < n_groups; g++) o->begin[g + 1] += o->begin[g];
    for (uint64_t i = 0; i < o->t->k; i++) {
        CRUMB_TRY(group_of(o->files, o->t, i, &group, err));
        if (o->begin[group] == o->t->k) return fail(o->files, o->t->group_of, "it changes while it is read", err);
        o->order[o->begin[group]++] = (uint32_t)i; /* begin[g] becomes where group g ends */
    }
    return CRUMB_OK;
}

/* Of how many columns runs may be so that none reaches from one group into the next one at a column that is a multiple
 * of `end`: a block, half of one, 1. */
static uint32_t run_to(uint64_t end) {
    return end % BLOCK == 0 ? BLOCK : end % HALF_BLOCK == 0 ? HALF_BLOCK : 1;
}

/* Whether a column is in its place, and what run_to says of all groups. */
static void look_at_order(const ordering *o, bool *in_place, uint32_t *run) {
    *in_place = true;
    *run = BLOCK;
    for (uint64_t i = 0; i < o->t->k; i++) *in_place &= o->order[i] == i;
    for (uint64_t g = 0; g < o->t->scales->dims[0]; g++) {
        const uint32_t here = run_to(o->begin[g]);
        *run = here < *run ? here : *run;
    }
}

/* Columns that share a scale may stand apart (GPTQ's act-order): sorted by their groups, runs of them can be kept as
 * they are, and whoever multiplies by them takes the activations in that order. */
static crumb_status find_order(const crumb_safetensors *files, checkpoint_tensor *t, uint32_t *run, crumb_error *err) {
    ordering o = {.files = files, .t = t};
    bool in_place = true;
    *run = run_to(t->packing->group); /* 0: a whole row */
    if (!t->group_of) return CRUMB_OK;
    CRUMB_TRY(crumb_calloc(t->k, sizeof *o.order, "an order of columns", (void **)&o.order, err));
    crumb_status status =
        crumb_calloc(t->scales->dims[0] + 1, sizeof *o.begin, "an order of columns", (void **)&o.begin, err);
    if (status == CRUMB_OK)
        status = crumb_file_guard(crumb_safetensors_path(files, t->group_of), sort_columns, &o, err);
    if (status == CRUMB_OK) look_at_order(&o, &in_place, run);
    free(o.begin);
    if (status == CRUMB_OK && *run > 1 && !in_place)
        t->order = o.order;
    else
        free(o.order);
    return status;
}

static crumb_status plan_grouped(const crumb_safetensors *files, checkpoint_tensor *t, crumb_gguf_tensor *d,
                                 crumb_error *err) {
    static const crumb_type of_blocks[9] = {
        [2] = CRUMB_TYPE_INT2, [3] = CRUMB_TYPE_INT3, [4] = CRUMB_TYPE_INT4, [8] = CRUMB_TYPE_INT8};
    static const crumb_type of_halves[9] = {
        [2] = CRUMB_TYPE_INT2_G16, [3] = CRUMB_TYPE_INT3_G16, [4] = CRUMB_TYPE_INT4_G16, [8] = CRUMB_TYPE_INT8_G16};
    const unsigned bits = t->packing->bits;
    uint32_t run;
    CRUMB_TRY(check_grouped(files, t, err));
    CRUMB_TRY(find_order(files, t, &run, err));
    t->kind = run > 1 ? CHECKPOINT_CODES : CHECKPOINT_HALVES;
    t->becomes = run == BLOCK ? of_blocks[bits] : run == HALF_BLOCK ? of_halves[bits] : CRUMB_TYPE_F16;
    d->type = t->becomes;
    d->type_id = run > 1 ? UINT32_MAX : 1; /* GGUF has no such types */
    d->order = t->order;
    return CRUMB_OK;
}

crumb_status checkpoint_packed_plan(crumb_safetensors *files, checkpoint_tensor *t, crumb_gguf_tensor *d,
                                    crumb_error *err) {
    if (t->packing->online)
        CRUMB_TRY(checkpoint_absmean_plan(files, t, d, err));
    else
        CRUMB_TRY(t->packing->method == CHECKPOINT_BITNET ? plan_bitnet(files, t, d, err)
                                                          : plan_grouped(files, t, d, err));
    if (t->n_heads && (t->m % t->n_heads != 0 || t->m / t->n_heads % 2 != 0))
        return fail(files, t->from, "its rows are not whole heads of config.json", err);
    d->dims[0] = t->k;
    d->dims[1] = t->m;
    return CRUMB_OK;
}

/* ---- BitNet: bits 2i of row p of bytes are row i * (m / 4) + p --------------------------------------------- */

static crumb_status make_ternary(const crumb_safetensors *files, const checkpoint_tensor *t, uint8_t *out,
                                 crumb_error *err) {
    const uint8_t *in = crumb_safetensors_data(files, t->from);
    const uint64_t row_bytes = crumb_type_row_bytes(CRUMB_TYPE_I2_S, t->k);
    for (uint64_t m = 0; m < t->m; m++) {
        const uint64_t row = checkpoint_row_from(t, t->m, m), shift = 2 * (row / (t->m / 4));
        const uint8_t *bytes = in + row % (t->m / 4) * t->k;
        for (uint64_t i = 0; i < row_bytes; i++) { /* 32 bytes of four codes each, 32 apart, the first highest */
            const uint8_t *c = bytes + i / 32 * 128 + i % 32;
            const unsigned codes[4] = {c[0] >> shift & 3, c[32] >> shift & 3, c[64] >> shift & 3, c[96] >> shift & 3};
            out[m * row_bytes + i] = (uint8_t)(codes[0] << 6 | codes[1] << 4 | codes[2] << 2 | codes[3]);
        }
    }
    const float stored = load_float(files, t->scales, 0), scale = t->packing->divides ? 1 / stored : stored;
    if (!isfinite(stored) || !isfinite(scale))
        return fail(files, t->scales, "the scale is not a number to compute with; the file is damaged", err);
    memcpy(out + t->m * row_bytes, &scale, sizeof scale); /* the rest is zero already */
    return CRUMB_OK;
}

/* ---- GPTQ and AWQ -------------------------------------------------------------------------------------------- */

/* Code i of a stream of bits whose words are `stride` apart. */
static unsigned stream_code(const uint8_t *words, uint64_t stride, unsigned bits, uint64_t i) {
    const uint64_t at = i * bits, word = at / 32, shift = at % 32;
    uint64_t pair = load_word(words, word * stride);
    if (shift + bits > 32) pair |= (uint64_t)load_word(words, (word + 1) * stride) << 32;
    return (unsigned)(pair >> shift & ((UINT64_C(1) << bits) - 1));
}

/* The columns of an AWQ word stand in this order. */
static unsigned awq_code(const uint8_t *words, uint64_t row_words, uint64_t row, uint64_t column) {
    static const uint8_t at[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return load_word(words, row * row_words + column / 8) >> 4 * at[column % 8] & 15;
}

static unsigned code_of(const crumb_safetensors *files, const checkpoint_tensor *t, uint64_t row, uint64_t k) {
    const uint8_t *words = crumb_safetensors_data(files, t->from);
    if (t->packing->method == CHECKPOINT_AWQ) return awq_code(words, t->m / 8, k, row);
    return stream_code(words + 4 * row, t->m, t->packing->bits, k);
}

static unsigned zero_of(const crumb_safetensors *files, const checkpoint_tensor *t, uint64_t group, uint64_t row) {
    const uint8_t *words = crumb_safetensors_data(files, t->zeros);
    const unsigned bits = t->packing->bits;
    if (t->packing->method == CHECKPOINT_AWQ) return awq_code(words, t->m / 8, group, row);
    const unsigned stored = stream_code(words + 4 * group * t->zeros->dims[1], 1, bits, row);
    return t->packing->zeros_less_one ? (stored + 1) & ((1u << bits) - 1) : stored;
}

/* Scale and zero point of a row in a group. */
static crumb_status scale_of(const crumb_safetensors *files, const checkpoint_tensor *t, uint64_t group, uint64_t row,
                             float *scale, unsigned *zero, crumb_error *err) {
    *scale = load_float(files, t->scales, group * t->m + row);
    *zero = zero_of(files, t, group, row);
    return isfinite(*scale) ? CRUMB_OK : fail(files, t->scales, "NaN or infinite; the file is damaged", err);
}

void checkpoint_put_codes(const uint8_t codes[BLOCK], unsigned bits, uint8_t *out) {
    memset(out, 0, (size_t)4 * bits);
    for (unsigned i = 0; i < BLOCK; i++) {
        const unsigned at = i * bits, wide = (unsigned)codes[i] << at % 8;
        out[at / 8] |= (uint8_t)wide;
        if (at % 8 + bits > 8) out[at / 8 + 1] |= (uint8_t)(wide >> 8);
    }
}

/* The column that stands at `place`. */
static uint64_t column_at(const checkpoint_tensor *t, uint64_t place) {
    return t->order ? t->order[place] : place;
}

/* Row m of one block of columns. */
static crumb_status make_block(const crumb_safetensors *files, const checkpoint_tensor *t, uint64_t block, uint64_t m,
                               uint8_t *out, crumb_error *err) {
    const crumb_type_info *info = crumb_type_get_info(t->becomes);
    const uint64_t row = checkpoint_row_from(t, t->m, m), first = block * BLOCK;
    uint8_t codes[BLOCK];
    for (unsigned i = 0; i < BLOCK; i += info->group) {
        uint64_t group;
        unsigned zero;
        float scale;
        CRUMB_TRY(group_of(files, t, column_at(t, first + i), &group, err));
        CRUMB_TRY(scale_of(files, t, group, row, &scale, &zero, err));
        const float min = scale * (float)(info->sub - (int)zero);
        memcpy(out + info->scale_offset + i / info->group * sizeof scale, &scale, sizeof scale);
        memcpy(out + info->min_offset + i / info->group * sizeof min, &min, sizeof min);
    }
    for (unsigned i = 0; i < BLOCK; i++) codes[i] = (uint8_t)code_of(files, t, row, column_at(t, first + i));
    checkpoint_put_codes(codes, info->bits, out + info->codes_offset);
    return CRUMB_OK;
}

static crumb_status make_codes(const crumb_safetensors *files, const checkpoint_tensor *t, uint8_t *out,
                               crumb_error *err) {
    const uint64_t block_bytes = crumb_type_get_info(t->becomes)->block_bytes, n_blocks = t->k / BLOCK;
    for (uint64_t b = 0; b < n_blocks; b++) /* as the file's words lie */
        for (uint64_t m = 0; m < t->m; m++)
            CRUMB_TRY(make_block(files, t, b, m, out + (m * n_blocks + b) * block_bytes, err));
    return CRUMB_OK;
}

static crumb_status make_halves(const crumb_safetensors *files, const checkpoint_tensor *t, uint8_t *out,
                                crumb_error *err) {
    for (uint64_t k = 0; k < t->k; k++) {
        uint64_t group;
        CRUMB_TRY(group_of(files, t, k, &group, err));
        for (uint64_t m = 0; m < t->m; m++) {
            const uint64_t row = checkpoint_row_from(t, t->m, m);
            unsigned zero;
            float scale;
            CRUMB_TRY(scale_of(files, t, group, row, &scale, &zero, err));
            const float w = scale * (float)((int)code_of(files, t, row, k) - (int)zero);
            const uint16_t half = crumb_f32_to_f16(w);
            memcpy(out + 2 * (m * t->k + k), &half, 2);
        }
    }
    return CRUMB_OK;
}

crumb_status checkpoint_packed_make(crumb_safetensors *files, const checkpoint_tensor *t, uint8_t *out,
                                    crumb_error *err) {
    if (t->kind == CHECKPOINT_ABSMEAN) return checkpoint_absmean_make(files, t, out, err);
    if (t->kind == CHECKPOINT_TERNARY) return make_ternary(files, t, out, err);
    return t->kind == CHECKPOINT_CODES ? make_codes(files, t, out, err) : make_halves(files, t, out, err);
}
