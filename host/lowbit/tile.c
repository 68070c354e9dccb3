#include "host/lowbit/tile.h"

#include "host/base/checked.h"
#include "host/base/half.h"
#include "host/lowbit/index.h"

#include <string.h>

void crumb_tile_plane_order(unsigned bits, uint8_t order[32]) {
    for (unsigned k = 0; k < CRUMB_TILE_K; k++) order[crumb_tile_plane_position(bits, k)] = (uint8_t)k;
}

/* offset = *total, which then grows by n_bytes rounded up to 64. */
static bool place(uint64_t n_bytes, uint64_t *offset, uint64_t *total) {
    *offset = *total;
    return n_bytes <= UINT64_MAX / 2 && crumb_add_u64(*total, crumb_round_up(n_bytes, 64), total);
}

/* Bytes of 16 lanes of something for every `group` weights of all tile-rows. */
static bool lanes_bytes(const crumb_matrix *matrix, uint32_t group, uint64_t value_bytes, uint64_t *out) {
    const uint64_t n_tile_rows = crumb_div_up(matrix->m, CRUMB_TILE_ROWS);
    return crumb_mul_u64(n_tile_rows, crumb_div_up(matrix->k, group) * CRUMB_TILE_ROWS * value_bytes, out);
}

static bool plan_tiles(crumb_matrix *matrix, crumb_matrix_layout *layout, bool has_min) {
    const uint64_t scale_bytes = matrix->super_group ? 1 : matrix->scales_f32 ? 4 : 2;
    uint64_t codes_bytes, scales_bytes, supers_bytes = 0;
    if (!lanes_bytes(matrix, CRUMB_TILE_K, 4ull * matrix->bits, &codes_bytes) ||
        !lanes_bytes(matrix, matrix->group, scale_bytes, &scales_bytes) ||
        !place(codes_bytes, &layout->codes_offset, &layout->total_bytes) ||
        !place(scales_bytes, &layout->scales_offset, &layout->total_bytes) ||
        (has_min && !place(scales_bytes, &layout->mins_offset, &layout->total_bytes)))
        return false;
    if (!matrix->super_group) return true;
    return lanes_bytes(matrix, matrix->super_group, 2, &supers_bytes) &&
           place(supers_bytes, &layout->supers_offset, &layout->total_bytes) &&
           (!has_min || place(supers_bytes, &layout->super_mins_offset, &layout->total_bytes));
}

crumb_status crumb_matrix_plan(crumb_type type, uint64_t m, uint64_t k, crumb_matrix *matrix,
                               crumb_matrix_layout *layout, crumb_error *err) {
    const crumb_type_info *info = crumb_type_get_info(type);
    uint64_t disk_bytes;
    CRUMB_TRY(crumb_type_tensor_bytes(type, m, k, &disk_bytes, err));
    if (m > UINT32_MAX - CRUMB_TILE_ROWS || k > UINT32_MAX - CRUMB_TILE_K)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "a matrix of %llu x %llu weights is larger than crumb's limit "
                          "of 2^32 rows or columns",
                          (unsigned long long)m, (unsigned long long)k);
    *layout = (crumb_matrix_layout){0};
    *matrix = (crumb_matrix){.type = type,
                             .bits = info->bits,
                             .max_code = info->max_code,
                             .mul = info->mul,
                             .sub = info->sub,
                             .codebook = info->codebook};
    matrix->m = (uint32_t)m;
    matrix->k = (uint32_t)k;
    bool fits;
    if (info->bits == 0) {
        fits = place(disk_bytes, &layout->codes_offset, &layout->total_bytes);
    } else {
        matrix->scales_f32 = info->scale_kind == CRUMB_SCALE_TENSOR || info->scale_kind == CRUMB_SCALE_E8M0 ||
                             info->scale_kind == CRUMB_SCALE_F32;
        matrix->super_group = info->scale_kind == CRUMB_SCALE_LEVELS ? info->block : 0;
        matrix->group = info->group ? info->group : (uint32_t)crumb_round_up(k, CRUMB_TILE_K);
        fits = plan_tiles(matrix, layout, info->has_min);
    }
    if (!fits)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "the size of %llu x %llu weights overflows", (unsigned long long)m,
                          (unsigned long long)k);
    return CRUMB_OK;
}

unsigned crumb_matrix_indexed_code(const crumb_matrix *matrix, uint32_t m, uint32_t k) {
    const unsigned in_block = k % CRUMB_TILE_K;
    return crumb_index_code(matrix, m, k - in_block + crumb_tile_plane_position(matrix->bits, in_block));
}

uint64_t crumb_matrix_codes_bytes(const crumb_matrix *matrix) {
    if (matrix->bits == 0) return matrix->m * crumb_type_row_bytes(matrix->type, matrix->k);
    if (matrix->indexed) return crumb_index_bytes(matrix);
    const uint64_t n_tiles = crumb_div_up(matrix->m, CRUMB_TILE_ROWS) * crumb_div_up(matrix->k, CRUMB_TILE_K);
    return n_tiles * matrix->bits * CRUMB_TILE_ROWS * sizeof(uint32_t);
}

crumb_matrix_bytes crumb_matrix_get_bytes(const crumb_matrix *matrix) {
    crumb_matrix_bytes n = {.codes = crumb_matrix_codes_bytes(matrix)};
    if (matrix->bits == 0) return n;
    const uint64_t rows = crumb_round_up(matrix->m, CRUMB_TILE_ROWS), columns = crumb_round_up(matrix->k, CRUMB_TILE_K);
    const uint64_t scale_bytes = matrix->supers ? 1 : matrix->scales_f32 ? 4 : 2;
    n.scales = rows * (columns / matrix->group) * scale_bytes;
    n.mins = matrix->mins ? n.scales : 0;
    n.supers = matrix->supers ? rows * (columns / matrix->super_group) * 2 : 0;
    n.super_mins = matrix->super_mins ? n.supers : 0;
    return n;
}

static const void *behind(const void *p, uint64_t n_bytes) {
    return p ? (const char *)p + n_bytes : NULL;
}

crumb_matrix crumb_matrix_rows(const crumb_matrix *matrix, uint32_t m0, uint32_t m1) {
    crumb_matrix part = *matrix;
    part.m = m0;
    const crumb_matrix_bytes before = crumb_matrix_get_bytes(&part);
    part.m = m1 - m0;
    part.codes = behind(matrix->codes, before.codes);
    part.scales = behind(matrix->scales, before.scales);
    part.mins = behind(matrix->mins, before.mins);
    part.supers = behind(matrix->supers, before.supers);
    part.super_mins = behind(matrix->super_mins, before.super_mins);
    return part;
}

void crumb_matrix_bind(crumb_matrix *matrix, const crumb_matrix_layout *layout, const uint8_t *base) {
    matrix->codes = base + layout->codes_offset;
    matrix->scales = matrix->bits ? base + layout->scales_offset : NULL;
    matrix->mins = layout->mins_offset ? base + layout->mins_offset : NULL;
    matrix->supers = layout->supers_offset ? (const uint16_t *)(const void *)(base + layout->supers_offset) : NULL;
    matrix->super_mins =
        layout->super_mins_offset ? (const uint16_t *)(const void *)(base + layout->super_mins_offset) : NULL;
}

void crumb_matrix_merge_scales(crumb_matrix *matrix) {
    const uint64_t n_tiles = crumb_div_up(matrix->m, CRUMB_TILE_ROWS),
                   n_groups = crumb_div_up(matrix->k, matrix->group);
    const uint64_t set_bytes = CRUMB_TILE_ROWS * (matrix->scales_f32 ? 4 : 2); /* of a group's 16 rows */
    uint8_t *scales = (uint8_t *)(uintptr_t)matrix->scales;                    /* our own allocation */
    for (uint64_t i = 0; i < n_tiles * n_groups; i++)
        if (memcmp(scales + i * set_bytes, scales + i / n_groups * n_groups * set_bytes, set_bytes) != 0) return;
    for (uint64_t tile = 0; tile < n_tiles; tile++)
        memmove(scales + tile * set_bytes, scales + tile * n_groups * set_bytes, set_bytes);
    matrix->group = (uint32_t)crumb_round_up(matrix->k, CRUMB_TILE_K);
}

/* Whether each run of n sets of bytes is the same set n times. */
static bool runs_repeat(const uint8_t *sets, uint64_t n_sets, uint64_t set_bytes, uint64_t n) {
    for (uint64_t i = 0; i < n_sets; i++)
        if (memcmp(sets + i * set_bytes, sets + i / n * n * set_bytes, set_bytes) != 0) return false;
    return true;
}

static bool all_zero(const float *values, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (values[i] != 0) return false;
    return true;
}

void crumb_matrix_widen_groups(crumb_matrix *matrix) {
    const uint64_t n_tiles = crumb_div_up(matrix->m, CRUMB_TILE_ROWS), n_groups = matrix->k / matrix->group;
    const uint64_t n_sets = n_tiles * n_groups, set_bytes = CRUMB_TILE_ROWS * sizeof(float);
    uint8_t *parts[] = {(uint8_t *)(uintptr_t)matrix->scales, (uint8_t *)(uintptr_t)matrix->mins}; /* ours */
    if (all_zero(matrix->mins, n_sets * CRUMB_TILE_ROWS)) matrix->mins = NULL;
    uint32_t n = CRUMB_WIDEST_GROUP / matrix->group;
    while (n > 1 && (n_groups % n != 0 || !runs_repeat(parts[0], n_sets, set_bytes, n) ||
                     !runs_repeat(parts[1], n_sets, set_bytes, n)))
        n /= 2;
    for (uint64_t i = 0; n > 1 && i < n_sets / n; i++)
        for (int p = 0; p < 2; p++) memmove(parts[p] + i * set_bytes, parts[p] + i * n * set_bytes, set_bytes);
    matrix->group *= n;
}

/* Values of a part that need not be aligned. */
static float load_f32(const uint8_t *values, uint64_t i) {
    float value;
    memcpy(&value, values + i * sizeof value, sizeof value);
    return value;
}

static bool all_f16(const uint8_t *values, uint64_t n) {
    bool all = true;
    for (uint64_t i = 0; i < n; i++) {
        const float value = load_f32(values, i);
        all = all && crumb_f16_to_f32(crumb_f32_to_f16(value)) == value;
    }
    return all;
}

void crumb_matrix_narrow_scales(crumb_matrix *matrix) {
    uint8_t *parts[] = {(uint8_t *)(uintptr_t)matrix->scales, (uint8_t *)(uintptr_t)matrix->mins}; /* ours */
    const uint64_t n = crumb_matrix_get_bytes(matrix).scales / sizeof(float);
    const int n_parts = matrix->mins ? 2 : 1;
    for (int p = 0; p < n_parts; p++)
        if (!all_f16(parts[p], n)) return;
    for (int p = 0; p < n_parts; p++)
        for (uint64_t i = 0; i < n; i++) { /* what is written lies before what is still to be read */
            const uint16_t half = crumb_f32_to_f16(load_f32(parts[p], i));
            memcpy(parts[p] + i * sizeof half, &half, sizeof half);
        }
    matrix->scales_f32 = false;
}

const int8_t crumb_codebook_e2m1[CRUMB_CODEBOOK_ENTRIES] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
/* MIT licence, ggml-common.h. */
const int8_t crumb_codebook_iq4_nl[CRUMB_CODEBOOK_ENTRIES] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                              1,    13,   25,  38,  53,  69,  89,  113};

crumb_codebook_range crumb_codebook_get_range(const int8_t *codebook) {
    crumb_codebook_range range = {codebook[0], codebook[0]};
    for (int i = 1; i < CRUMB_CODEBOOK_ENTRIES; i++) {
        if (codebook[i] < range.low) range.low = codebook[i];
        if (codebook[i] > range.high) range.high = codebook[i];
    }
    return range;
}

/* Entry (m, group) of [M/16][K/group][16] values and, where they have two levels, of what they are multiplied with. */
static float load_scale(const crumb_matrix *matrix, const void *values, const uint16_t *supers, uint32_t m,
                        uint32_t group) {
    const uint64_t k_padded = crumb_round_up(matrix->k, CRUMB_TILE_K), tile = m / CRUMB_TILE_ROWS;
    const uint64_t lane = m % CRUMB_TILE_ROWS, i = (tile * (k_padded / matrix->group) + group) * CRUMB_TILE_ROWS + lane;
    if (matrix->super_group) {
        uint64_t above = (uint64_t)group * matrix->group / matrix->super_group;
        above = (tile * (k_padded / matrix->super_group) + above) * CRUMB_TILE_ROWS + lane;
        return crumb_f16_to_f32(supers[above]) * (float)((const int8_t *)values)[i];
    }
    return matrix->scales_f32 ? ((const float *)values)[i] : crumb_f16_to_f32(((const uint16_t *)values)[i]);
}

float crumb_matrix_scale(const crumb_matrix *matrix, uint32_t m, uint32_t group) {
    return load_scale(matrix, matrix->scales, matrix->supers, m, group);
}

float crumb_matrix_min(const crumb_matrix *matrix, uint32_t m, uint32_t group) {
    return matrix->mins ? load_scale(matrix, matrix->mins, matrix->super_mins, m, group) : 0;
}

void crumb_matrix_row_to_f32(const crumb_matrix *matrix, uint64_t row, float *out) {
    uint64_t k = matrix->k;
    if (matrix->bits == 0) {
        uint64_t row_bytes = crumb_type_row_bytes(matrix->type, k);
        crumb_type_row_to_f32(matrix->type, (const uint8_t *)matrix->codes + row * row_bytes, k, 0, out);
        return;
    }
    const uint32_t m = (uint32_t)row, end = (uint32_t)crumb_round_up(k, CRUMB_TILE_K);
    for (uint32_t i = 0; i < end;) {
        const float scale = crumb_matrix_scale(matrix, m, i / matrix->group);
        const float min = crumb_matrix_min(matrix, m, i / matrix->group);
        for (uint32_t group_end = i + matrix->group; i < group_end; i++) {
            const float value = scale * (float)crumb_matrix_code_value(matrix, crumb_matrix_code(matrix, m, i));
            out[i] = matrix->mins ? value + min : value;
        }
    }
}
