#include "host/kernel/trial.h"

#include "host/base/checked.h"
#include "host/base/half.h"
#include "host/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- problems ---------------------------------------------------------------------------------------------- */

/* As models have it: the weights' group, but at most 128. */
static uint32_t activation_group(const crumb_kernel_problem *p) {
    uint32_t whole = p->group ? p->group : (uint32_t)crumb_round_up(p->k, CRUMB_TILE_K), group = 128;
    while (whole % group) group /= 2;
    return group;
}

crumb_trial_params crumb_problem_trial(const crumb_kernel_problem *p) {
    return (crumb_trial_params){.bits = p->format->bits,
                                .max_code = p->format->max_code,
                                .mul = p->format->mul,
                                .sub = p->format->sub,
                                .codebook = p->format->codebook,
                                .m = p->m,
                                .k = p->k,
                                .n = p->n,
                                .group = p->group,
                                .act = p->act,
                                .act_group = activation_group(p)};
}

bool crumb_problem_fits(const crumb_kernel_problem *p) {
    return !p->group ||
           ((p->group == 16 || p->group % CRUMB_TILE_K == 0) && crumb_round_up(p->k, CRUMB_TILE_K) % p->group == 0);
}

crumb_status crumb_problem_refuse(const crumb_kernel_problem *p, crumb_error *err) {
    return crumb_fail(
        err, CRUMB_ERR_ARGUMENT,
        "groups of %u do not divide a row of %u; there are groups of 16 and of multiples of 32, and 0: one "
        "scale per row",
        p->group, p->k);
}

crumb_matrix crumb_problem_matrix(const crumb_kernel_problem *p) {
    return (crumb_matrix){.bits = (uint8_t)p->format->bits,
                          .max_code = (uint8_t)p->format->max_code,
                          .mul = (int16_t)p->format->mul,
                          .sub = (int16_t)p->format->sub,
                          .codebook = p->format->codebook,
                          .m = p->m,
                          .k = p->k,
                          .group = p->group ? p->group : (uint32_t)crumb_round_up(p->k, CRUMB_TILE_K)};
}

/* ---- random data ------------------------------------------------------------------------------------------- */

uint64_t crumb_random_u64(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

float crumb_random_f32(uint64_t *state) {
    return (float)(int32_t)(crumb_random_u64(state) >> 32) * 0x1p-31f;
}

/* Twelve uniform numbers less their mean are as good as normal here. */
static float random_normal(uint64_t *seed) {
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += crumb_random_f32(seed) * 0.5f;
    return sum;
}

static crumb_status allocate(uint64_t n_bytes, void *out, crumb_error *err) {
    void *p = aligned_alloc(64, crumb_round_up(n_bytes + !n_bytes, 64));
    if (!p)
        return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for a trial of %llu MB",
                          (unsigned long long)(n_bytes >> 20));
    memcpy(out, &p, sizeof p);
    return CRUMB_OK;
}

static unsigned largest_code(const crumb_trial_params *p) {
    return p->max_code ? p->max_code : (1u << p->bits) - 1;
}

static unsigned code_of_largest_value(const crumb_trial_params *p) {
    unsigned code = 0;
    if (!p->codebook) return largest_code(p);
    for (unsigned i = 1; i < CRUMB_CODEBOOK_ENTRIES; i++)
        if (p->codebook[i] > p->codebook[code]) code = i;
    return code;
}

static unsigned code_of_smallest_value(const crumb_trial_params *p) {
    unsigned code = 0;
    for (unsigned i = 1; p->codebook && i < CRUMB_CODEBOOK_ENTRIES; i++)
        if (p->codebook[i] < p->codebook[code]) code = i;
    return code;
}

/* Fills that reach a bound have one code everywhere. */
static bool is_extreme(const crumb_trial_params *p) {
    return p->fill >= CRUMB_FILL_POSITIVE;
}
static unsigned extreme_code(const crumb_trial_params *p) {
    return p->fill == CRUMB_FILL_OPPOSED ? code_of_smallest_value(p) : code_of_largest_value(p);
}

static uint8_t random_byte(const crumb_trial_params *p, uint64_t random) {
    const unsigned n_codes = largest_code(p) + 1;
    unsigned byte = 0;
    if (p->bits == 8) return (uint8_t)(random >> 32);
    for (unsigned bit = 0; bit < 8; bit += p->bits, random >>= 8) byte |= (unsigned)(random & 255) % n_codes << bit;
    return (uint8_t)byte;
}

/* Widths that divide a byte. */
static void fill_bytes(const crumb_trial_params *p, uint8_t *codes, size_t n_bytes, uint64_t *seed) {
    unsigned chosen = 0;
    for (unsigned bit = 0; bit < 8; bit += p->bits) chosen |= extreme_code(p) << bit;
    for (size_t i = 0; i < n_bytes; i++)
        codes[i] = is_extreme(p) ? (uint8_t)chosen : random_byte(p, crumb_random_u64(seed));
}

/* Any width: eight codes of each random number, into zeros. */
static void fill_tiles(const crumb_trial_params *p, uint32_t *tile, size_t n_tiles, uint64_t *seed) {
    const unsigned n_codes = largest_code(p) + 1, chosen = extreme_code(p);
    for (size_t i = 0; i < n_tiles; i++, tile += p->bits * CRUMB_TILE_ROWS)
        for (unsigned lane = 0; lane < CRUMB_TILE_ROWS; lane++) {
            uint64_t random = 0;
            for (unsigned linear = 0; linear < CRUMB_TILE_K; linear++, random >>= 8) {
                if (linear % 8 == 0) random = crumb_random_u64(seed);
                unsigned code = is_extreme(p) ? chosen : (unsigned)(random & 255) % n_codes;
                crumb_tile_set_code(tile, p->bits, lane, linear, code);
            }
        }
}

/* n_sets sets of n_groups scales for 16 rows. With sums only one group of each set counts. */
static crumb_status random_scales(const crumb_trial_params *p, size_t n_sets, size_t n_groups, uint64_t *seed,
                                  const void **out, crumb_error *err) {
    uint8_t *scales = NULL;
    CRUMB_TRY(allocate(n_sets * n_groups * CRUMB_TILE_ROWS * (p->scales_f32 ? 4 : 2), &scales, err));
    *out = scales;
    for (size_t set = 0; set < n_sets; set++) {
        size_t chosen = crumb_random_u64(seed) % n_groups;
        for (size_t i = 0; i < n_groups * CRUMB_TILE_ROWS; i++) {
            size_t at = set * n_groups * CRUMB_TILE_ROWS + i;
            float value = crumb_random_f32(seed) * 0.25f;
            if (p->fill != CRUMB_FILL_RANDOM) value = i / CRUMB_TILE_ROWS == chosen ? 1.0f : 0.0f;
            uint16_t half = crumb_f32_to_f16(value);
            memcpy(scales + at * (p->scales_f32 ? 4 : 2), p->scales_f32 ? (void *)&value : (void *)&half,
                   p->scales_f32 ? 4 : 2);
        }
    }
    return CRUMB_OK;
}

/* The same in two levels. With sums the super-scales are 1, and one of the int8 scales of each row. */
static crumb_status two_level_scales(const crumb_trial_params *p, size_t n_tiles, size_t n_groups, size_t n_supers,
                                     uint64_t *seed, const void **scales, const uint16_t **supers, crumb_error *err) {
    int8_t *low = NULL;
    uint16_t *high = NULL;
    CRUMB_TRY(allocate(n_tiles * n_groups * CRUMB_TILE_ROWS, &low, err));
    *scales = low;
    CRUMB_TRY(allocate(n_tiles * n_supers * CRUMB_TILE_ROWS * sizeof *high, &high, err));
    *supers = high;
    for (size_t i = 0; i < n_tiles * n_supers * CRUMB_TILE_ROWS; i++)
        high[i] = crumb_f32_to_f16(p->fill == CRUMB_FILL_RANDOM ? crumb_random_f32(seed) * 0.01f : 1.0f);
    for (size_t tile = 0; tile < n_tiles; tile++) {
        size_t chosen = crumb_random_u64(seed) % n_groups;
        for (size_t i = 0; i < n_groups * CRUMB_TILE_ROWS; i++, low++)
            *low = p->fill == CRUMB_FILL_RANDOM ? (int8_t)crumb_random_u64(seed) : i / CRUMB_TILE_ROWS == chosen;
    }
    return CRUMB_OK;
}

/* ---- codes of weights -------------------------------------------------------------------------------------- */

/* The code whose value is nearest to `value`. */
static unsigned nearest_code(const crumb_matrix *w, float value) {
    if (!w->codebook) {
        const float code = (value + (float)w->sub) / (float)w->mul + 0.5f;
        return code <= 0 ? 0 : code >= (float)w->max_code ? w->max_code : (unsigned)code;
    }
    unsigned best = 0;
    for (unsigned code = 1; code <= w->max_code; code++) {
        const float known = (float)crumb_matrix_code_value(w, best), other = (float)crumb_matrix_code_value(w, code);
        if (fabsf(other - value) < fabsf(known - value)) best = code;
    }
    return best;
}

/* The squared error of n weights with a scale. */
static double loss(const crumb_matrix *w, const float *weights, uint32_t n, float scale) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const unsigned code = nearest_code(w, weights[i] / scale);
        const float difference = scale * (float)crumb_matrix_code_value(w, code) - weights[i];
        sum += (double)(difference * difference);
    }
    return sum;
}

/* The scale of a group: as Q4_0 has it, the weight of the largest magnitude becomes the value of the largest; or a 32nd
 * of that less, and again, as long as less is lost so, as with few bits. */
static float best_scale(const crumb_trial *t, const float *weights, uint32_t n) {
    const int low = crumb_matrix_code_value(&t->w, code_of_smallest_value(&t->params));
    const int high = crumb_matrix_code_value(&t->w, code_of_largest_value(&t->params));
    float extreme = 0, best = 0;
    double least = INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (fabsf(weights[i]) > fabsf(extreme)) extreme = weights[i];
    for (int part = 32; part > 0 && extreme != 0; part--) {
        float scale = extreme / (float)(-low >= high ? low : high) * (float)part / 32;
        if (!t->w.scales_f32) scale = crumb_f16_to_f32(crumb_f32_to_f16(scale)); /* as a kernel reads it */
        const double lost = loss(&t->w, weights, n, scale);
        if (lost > least) break;
        least = lost;
        best = scale;
    }
    return best;
}

/* Rounds the n weights of row m from k, a group, to codes, which are zeros before. Returns their scale. */
static float round_group(crumb_trial *t, uint32_t m, uint32_t k, uint32_t n) {
    const crumb_matrix *w = &t->w;
    const float *weights = t->wf + (size_t)m * w->k + k, scale = best_scale(t, weights, n);
    const size_t tile_dwords = w->bits * CRUMB_TILE_ROWS;
    uint32_t *tiles = (uint32_t *)w->codes + m / CRUMB_TILE_ROWS * crumb_div_up(w->k, CRUMB_TILE_K) * tile_dwords;
    for (uint32_t i = k; i < k + n; i++)
        crumb_tile_set_code(tiles + i / CRUMB_TILE_K * tile_dwords, w->bits, m % CRUMB_TILE_ROWS,
                            crumb_tile_linear_of(i % CRUMB_TILE_K),
                            nearest_code(w, scale != 0 ? weights[i - k] / scale : 0));
    return scale;
}

static crumb_status round_weights(crumb_trial *t, uint64_t *seed, crumb_error *err) {
    const crumb_trial_params *p = &t->params;
    const uint32_t group = t->w.group;
    const size_t n_groups = crumb_round_up(p->k, CRUMB_TILE_K) / group, scale_bytes = p->scales_f32 ? 4 : 2;
    const size_t n_bytes = crumb_round_up(p->m, CRUMB_TILE_ROWS) * n_groups * scale_bytes;
    uint8_t *scales = NULL;
    CRUMB_TRY(allocate(n_bytes, &scales, err));
    t->w.scales = scales;
    memset(scales, 0, n_bytes);
    CRUMB_TRY(allocate((uint64_t)p->m * p->k * sizeof(float), &t->wf, err));
    for (size_t i = 0; i < (size_t)p->m * p->k; i++) t->wf[i] = random_normal(seed);
    for (uint32_t m = 0; m < p->m; m++)
        for (uint32_t k = 0; k < p->k; k += group) {
            const float scale = round_group(t, m, k, p->k - k < group ? p->k - k : group);
            const uint16_t half = crumb_f32_to_f16(scale);
            const size_t at = (m / CRUMB_TILE_ROWS * n_groups + k / group) * CRUMB_TILE_ROWS + m % CRUMB_TILE_ROWS;
            memcpy(scales + at * scale_bytes, p->scales_f32 ? (const void *)&scale : (const void *)&half, scale_bytes);
        }
    return CRUMB_OK;
}

static crumb_status create_weights(crumb_trial *t, uint64_t *seed, crumb_error *err) {
    const crumb_trial_params *p = &t->params;
    uint32_t k_padded = (uint32_t)crumb_round_up(p->k, CRUMB_TILE_K);
    uint32_t group = p->group ? p->group : k_padded;
    size_t n_tiles = crumb_div_up(p->m, CRUMB_TILE_ROWS);
    t->w = (crumb_matrix){.bits = (uint8_t)p->bits,
                          .max_code = (uint8_t)largest_code(p),
                          .scales_f32 = p->scales_f32,
                          .mul = (int16_t)p->mul,
                          .sub = (int16_t)p->sub,
                          .codebook = p->codebook,
                          .m = p->m,
                          .k = p->k,
                          .group = group};
    t->codes_bytes = n_tiles * CRUMB_TILE_ROWS * k_padded * p->bits / 8;
    void *codes;
    CRUMB_TRY(crumb_pages_alloc(t->codes_bytes, "a trial's weights", &codes, err));
    t->w.codes = codes;
    if (p->rounded) return round_weights(t, seed, err);
    if (crumb_tile_base_bits(p->bits) == p->bits)
        fill_bytes(p, codes, t->codes_bytes, seed);
    else
        fill_tiles(p, codes, n_tiles * k_padded / CRUMB_TILE_K, seed);
    if (p->super_group) {
        t->w.super_group = p->super_group;
        const size_t n_groups = k_padded / group, n_supers = k_padded / p->super_group;
        CRUMB_TRY(two_level_scales(p, n_tiles, n_groups, n_supers, seed, &t->w.scales, &t->w.supers, err));
        return p->has_min ? two_level_scales(p, n_tiles, n_groups, n_supers, seed, &t->w.mins, &t->w.super_mins, err)
                          : CRUMB_OK;
    }
    CRUMB_TRY(random_scales(p, n_tiles, k_padded / group, seed, &t->w.scales, err));
    return p->has_min ? random_scales(p, n_tiles, k_padded / group, seed, &t->w.mins, err) : CRUMB_OK;
}

/* A cube has what a model's activations have: the largest is four times the mean. */
static int8_t random_activation(const crumb_trial_params *p, uint64_t *seed) {
    if (p->fill == CRUMB_FILL_POSITIVE) return 127;
    if (p->fill >= CRUMB_FILL_NEGATIVE) return -128;
    const int even = (int8_t)crumb_random_u64(seed);
    return (int8_t)(p->fill == CRUMB_FILL_SUMS ? even : even * even * even / (128 * 128));
}

static float random_float_activation(const crumb_trial_params *p, uint64_t *seed) {
    if (p->fill == CRUMB_FILL_POSITIVE) return 1.0f;
    return p->fill >= CRUMB_FILL_NEGATIVE ? -1.0f : crumb_random_f32(seed);
}

static float rounded(const crumb_trial_params *p, float x) {
    return p->bf16 ? crumb_bf16_to_f32(crumb_f32_to_bf16(x)) : x;
}

static void fill_activations(crumb_trial *t, uint32_t n_groups, size_t n_sx, uint64_t *seed) {
    const crumb_trial_params *p = &t->params;
    const crumb_q8 *x = &t->x;
    for (size_t i = 0; i < (size_t)p->n * x->k_padded; i++) {
        bool padding = i % x->k_padded / 32 * 32 + 32 > p->k && p->k % 32;
        x->q[i] = padding ? 0 : random_activation(p, seed);
    }
    for (size_t i = 0; i < (size_t)p->n * n_groups; i++) {
        x->qsum[i] = 0;
        for (uint32_t j = 0; j < x->group; j++) {
            size_t k = i * x->group + j;
            x->qsum[i] += x->q[k / 32 * 32 + crumb_tile_plane_position(p->bits, k % 32)];
        }
    }
    for (size_t i = 0; i < n_sx; i++) x->sx[i] = p->fill == CRUMB_FILL_RANDOM ? crumb_random_f32(seed) : 1.0f;
    for (size_t i = 0; i < (size_t)p->n * p->k; i++) t->xf[i] = rounded(p, random_float_activation(p, seed));
}

static crumb_status create_activations(crumb_trial *t, uint64_t *seed, crumb_error *err) {
    const crumb_trial_params *p = &t->params;
    crumb_q8 *x = &t->x;
    x->k_padded = (uint32_t)crumb_round_up(p->k, CRUMB_TILE_K);
    x->row_scale = p->act != CRUMB_ACT_GROUP;
    x->group = x->row_scale ? t->w.group : p->act_group;
    uint32_t n_groups = x->k_padded / x->group;
    size_t n_sx = x->row_scale ? p->n : (size_t)p->n * n_groups;
    CRUMB_TRY(allocate((uint64_t)p->n * x->k_padded, &x->q, err));
    CRUMB_TRY(allocate((uint64_t)p->n * n_groups * sizeof(int32_t), &x->qsum, err));
    CRUMB_TRY(allocate(n_sx * sizeof(float), &x->sx, err));
    CRUMB_TRY(allocate((uint64_t)p->n * p->k * sizeof(float), &t->xf, err));
    if (!p->normal) {
        fill_activations(t, n_groups, n_sx, seed);
        return CRUMB_OK;
    }
    memset(x->q, 0, (size_t)p->n * x->k_padded);
    memset(x->qsum, 0, (size_t)p->n * n_groups * sizeof *x->qsum);
    memset(x->sx, 0, n_sx * sizeof *x->sx);
    for (size_t i = 0; i < (size_t)p->n * p->k; i++) t->xf[i] = rounded(p, random_normal(seed));
    return CRUMB_OK;
}

crumb_status crumb_trial_generate(const crumb_trial_params *params, uint64_t *seed, crumb_trial *out,
                                  crumb_error *err) {
    *out = (crumb_trial){.params = *params, .power = -1};
    CRUMB_TRY(create_weights(out, seed, err));
    CRUMB_TRY(create_activations(out, seed, err));
    CRUMB_TRY(allocate(params->m * sizeof(float), &out->bias, err));
    CRUMB_TRY(allocate((uint64_t)params->n * params->m * sizeof(float), &out->add, err));
    for (size_t i = 0; i < params->m; i++) out->bias[i] = crumb_random_f32(seed);
    for (size_t i = 0; i < (size_t)params->n * params->m; i++) out->add[i] = crumb_random_f32(seed);
    return CRUMB_OK;
}

void crumb_trial_unpack(crumb_trial *t) {
    if (t->packed) crumb_pages_free(t->packed, t->packed_bytes);
    free(t->prepared);
    t->packed = t->prepared = NULL;
    t->packed_for = NULL;
}

void crumb_trial_destroy(crumb_trial *t) {
    crumb_trial_unpack(t);
    if (t->w.codes) crumb_pages_free((void *)t->w.codes, t->codes_bytes);
    free((void *)t->w.scales);
    free((void *)t->w.mins);
    free((void *)t->w.supers);
    free((void *)t->w.super_mins);
    free(t->x.q);
    free(t->x.qsum);
    free(t->x.sx);
    free(t->xf);
    free(t->wf);
    free(t->bias);
    free(t->add);
    free(t->interleaved);
    free(t->reach);
    free(t->scratch);
    *t = (crumb_trial){0};
}
